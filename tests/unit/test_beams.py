"""Beam search: against all texts of a small vocabulary, against the transformers library, batches, when it stops."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from parity import small_recipe
from zoo.builder import build_model
from zoo.contracts.architecture import Architecture, Output
from zoo.errors import RunFailed, UserError
from zoo.generation import Generated, generate
from zoo_builtin.weights.bart import BARTWeights

END = 0


class Identity(nn.Module):
    """Hidden states are the scores."""

    offers = frozenset({"token_scores"})

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(vocabulary))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden


class Chain(Architecture):
    """A Markov chain: the scores of the next id are a row of a table."""

    offers = frozenset({"causal"})

    def __init__(self, table_VV: Tensor) -> None:
        super().__init__(None)
        self.table, self.calls, self.rows = table_VV, 0, 0
        self.head = Identity(len(table_VV))

    def forward(self, ids_BT: Tensor, **_options: Any) -> Output:
        self.calls, self.rows = self.calls + 1, self.rows + len(ids_BT)
        return Output(self.table[ids_BT], None)

    @property
    def max_length(self) -> int | None:
        return None

    def block_modules(self) -> Any:
        return iter(())

    def initialize(self, seed: int) -> None:
        del seed


def searched(model: Architecture, prompts: list[list[int]], **options: Any) -> list[Generated]:
    given = {"max_new_tokens": 4, "end_of_text": END, "cache": False, "beams": 4}
    return generate(model, prompts, **{**given, **options})


def exhaustive(table_VV: Tensor, start: int, limit: int, penalty: float) -> tuple[list[int], float]:
    """The best of all texts that end within ``limit`` ids or are that long."""
    best: tuple[list[int], float] = ([], -math.inf)
    others = range(1, len(table_VV))
    for length in range(1, limit + 1):
        for body in itertools.product(others, repeat=length - 1):
            for last in [END] if length < limit else range(len(table_VV)):
                score = score_of(table_VV, start, [*body, last], penalty)
                if score > best[1]:
                    best = ([*body, last], score)
    return best


def score_of(table_VV: Tensor, start: int, tokens: list[int], penalty: float) -> float:
    log_p = table_VV.double().log_softmax(-1)
    return sum(log_p[a, b].item() for a, b in itertools.pairwise([start, *tokens])) / len(tokens) ** penalty


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    penalty=st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]),
    size=st.integers(2, 4),
    limit=st.integers(1, 4),
)
def test_as_many_beams_as_texts_find_the_best_of_all(seed: int, penalty: float, size: int, limit: int) -> None:
    table = 2 * torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    (found,) = searched(Chain(table), [[1]], beams=size**limit, max_new_tokens=limit, length_penalty=penalty)
    _, score = exhaustive(table, 1, limit, penalty)
    assert found.score == pytest.approx(score, rel=1e-12)
    # 1 1 2 1 and 1 2 1 1 have the same transitions, so that the best text may be one of several
    assert score_of(table, 1, found.tokens, penalty) == pytest.approx(score, rel=1e-12)
    assert found.stop == ("eos" if found.tokens[-1] == END else "length")


def garden_path() -> Chain:
    """Greedy takes the likelier first id, after which nothing is likely."""
    p = torch.tensor(
        [
            [0.25, 0.25, 0.25, 0.25],
            [0.02, 0.0, 0.55, 0.43],  # from 1: 2 is likelier than 3
            [0.3, 0.25, 0.25, 0.2],  # after 2 all is open
            [0.98, 0.01, 0.01, 0.0],  # after 3 the text ends
        ]
    )
    return Chain(p.log())


def test_a_search_finds_what_greedy_misses() -> None:
    (greedy,) = generate(garden_path(), [[1]], max_new_tokens=4, temperature=0, end_of_text=END, cache=False)
    (found,) = searched(garden_path(), [[1]], beams=2)
    assert greedy.tokens[0] == 2
    assert (found.tokens, found.stop) == ([3, END], "eos")
    assert found.score == pytest.approx(math.log(0.43 * 0.98) / 2, rel=1e-6)


def test_the_penalty_weighs_length_against_probability() -> None:
    p = torch.tensor([[0.25] * 4, [0.5, 0.0, 0.5, 0.0], [0.1, 0.0, 0.0, 0.9], [0.9, 0.05, 0.05, 0.0]])
    short, long = (searched(Chain(p.log()), [[1]], length_penalty=alpha)[0] for alpha in (0.0, 2.0))
    assert short.tokens == [END]
    assert short.score == pytest.approx(math.log(0.5), rel=1e-6)
    assert long.tokens == [2, 3, END]
    assert long.score == pytest.approx(math.log(0.5 * 0.9 * 0.9) / 9, rel=1e-6)


def test_it_stops_when_nothing_can_beat_the_best_and_not_before() -> None:
    sure = torch.tensor([[0.5, 0.5], [0.999, 0.001]]).log()
    model = Chain(sure)
    assert searched(model, [[1]], beams=2, max_new_tokens=50, length_penalty=0.0)[0].tokens == [END]
    assert model.calls == 1  # what goes on has log p = log 0.001 already
    model = Chain(sure)
    assert searched(model, [[1]], beams=2, max_new_tokens=50)[0].tokens == [END]
    assert model.calls == 1  # and log 0.001 / 50 is below log 0.999
    late = torch.tensor([[0.25] * 4, [0.4, 0.0, 0.6, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]).log()
    assert searched(Chain(late), [[1]], beams=2, max_new_tokens=50)[0].tokens == [2, 3, END]


def test_an_end_of_text_beyond_the_beams_ends_nothing() -> None:
    """Ranks at the first step: 2, 3, end. Two beams go on, and the third, an end, is no text."""
    p = torch.tensor([[0.25] * 4, [0.2, 0.0, 0.5, 0.3], [0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.5]])
    assert searched(Chain(p.log()), [[1]], beams=2, max_new_tokens=3)[0].stop == "length"
    assert searched(Chain(p.log()), [[1]], beams=3, max_new_tokens=3, length_penalty=0.0)[0].tokens == [END]


def test_each_prompt_ends_by_itself_and_its_beams_leave_the_batch() -> None:
    p = torch.tensor([[0.2] * 5, [1.0, 0, 0, 0, 0], [0, 0, 0, 1.0, 0], [0, 0, 0, 0, 1.0], [1.0, 0, 0, 0, 0]])
    model, seen = Chain(p.log()), []
    results = searched(model, [[1], [2]], beams=2, stream=lambda row, token: seen.append((row, token)))
    assert [result.tokens for result in results] == [[END], [3, 4, END]]
    assert model.calls == 3
    assert model.rows == 2 + 1 + 1
    assert seen == [(0, END), (1, 3), (1, 4), (1, END)]


def test_ids_nobody_has_are_not_searched() -> None:
    (found,) = searched(Chain(torch.tensor([[0.0, 0.0, 9.0]] * 3)), [[1]], vocab_size=2, beams=2, max_new_tokens=3)
    assert max(found.tokens) < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "beams is 0; it must be at least 1"),
        ({"length_penalty": math.nan}, "length_penalty is nan; it must be a number"),
        ({"beams": 1, "length_penalty": 0.6}, "length_penalty belongs to a beam search, and beams is 1"),
        ({"temperature": 0.7}, "a beam search draws nothing at random"),
        ({"top_k": 5}, "a beam search draws nothing at random"),
        ({"top_p": 0.9}, "a beam search draws nothing at random"),
    ],
)
def test_options_that_do_not_go_together_are_the_users_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        searched(garden_path(), [[1]], **options)


def test_scores_that_are_not_finite_fail_the_run() -> None:
    with pytest.raises(RunFailed, match="scores aren't finite"):
        searched(Chain(torch.full((3, 3), math.nan)), [[1]])


# Real models

BART: dict[str, Any] = {
    "vocab_size": 29,
    "max_length": 24,
    "layers": 2,
    "dim": 32,
    "heads": 4,
    "residual": "post",
    "embedding_norm": True,
    "position": {"name": "learned", "offset": 2},
    "feed_forward": {"name": "mlp", "hidden": 40, "activation": "gelu"},
}
LAYERS = {"layers": 2, "attention_heads": 4, "ffn_dim": 40}
"""The same in the library's words."""
SOURCES = [[5, 9, 8, 7, 3], [4, 6], [11, 12, 13, 14, 15, 16, 17, 18], [20]]


def scattered() -> Any:
    """A GPT-2 whose texts aren't one id for ever."""
    sizes = {name: BART[name] for name in ("vocab_size", "max_length", "layers", "dim", "heads")}
    model = build_model(small_recipe("gpt2", **sizes))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return model.eval()


@functools.cache
def half_trained() -> Any:
    """A BART that has begun to learn to write its source backwards, so that its texts differ and end."""
    model: Any = build_model(small_recipe("encoder_decoder", **BART))
    generator = torch.Generator().manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(120):
        source_BS = torch.randint(3, 29, (32, int(torch.randint(1, 9, (), generator=generator))), generator=generator)
        ends_B1 = torch.full((32, 1), 2)
        target_BT = torch.cat([source_BS.flip(1), ends_B1], 1)
        hidden_BTD = model(torch.cat([ends_B1, target_BT[:, :-1]], 1), source_BS=source_BS).hidden
        loss = nn.functional.cross_entropy(model.head(hidden_BTD).flatten(0, 1), target_BT.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("architecture", ["gpt2", "encoder_decoder"])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_batch_equals_one_at_a_time_and_the_cache_changes_nothing(architecture: str, beams: int) -> None:
    reads = architecture == "encoder_decoder"
    model = half_trained() if reads else scattered()
    options: dict[str, Any] = {"max_new_tokens": 9, "end_of_text": 2, "temperature": 0 if beams == 1 else 1}

    def found(rows: list[list[int]], **more: Any) -> list[Generated]:
        given = {"sources": rows} if reads else {}
        prompts: list[list[int]] = [[] for _ in rows] if reads else rows
        return generate(model, prompts, beams=beams, **given, **options, **more)

    together = found(SOURCES)
    for others in ([found([row])[0] for row in SOURCES], found(SOURCES, cache=False)):
        assert [result.tokens for result in together] == [result.tokens for result in others]
        if beams > 1:
            scores = [result.score for result in others]
            assert [result.score for result in together] == pytest.approx(scores, rel=1e-5)
    assert len({tuple(result.tokens) for result in together}) > 1


@pytest.mark.parametrize(("beams", "penalty"), [(2, 1.0), (4, 0.6), (5, 2.0)])
def test_the_best_text_is_that_of_transformers(beams: int, penalty: float) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 29, "d_model": 32, "max_position_embeddings": 24, "dropout": 0.0}
    sizes |= {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in LAYERS.items()}
    special = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 2}
    other = transformers.BartForConditionalGeneration(
        transformers.BartConfig(**sizes, **special, forced_eos_token_id=None)
    ).eval()
    model = half_trained()
    other.load_state_dict(
        {f"model.{name}": tensor for name, tensor in BARTWeights(BARTWeights.Config()).save(model).items()},
        strict=False,
    )
    other.tie_weights()
    for source in SOURCES:
        theirs = other.generate(
            torch.tensor([source]),
            num_beams=beams,
            length_penalty=penalty,
            max_new_tokens=12,
            early_stopping="never",
            do_sample=False,
            output_scores=True,
            return_dict_in_generate=True,
        )
        (ours,) = generate(
            model,
            [[]],
            sources=[source],
            max_new_tokens=12,
            beams=beams,
            length_penalty=penalty,
            end_of_text=2,
        )
        ids = theirs.sequences[0, 1:].tolist()
        assert ours.tokens == ids
        assert ours.score == pytest.approx(theirs.sequences_scores[0].item(), rel=1e-4)
