"""Generation: batches equal single prompts, rows stop by themselves, options keep their limits, text stays whole."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.contracts.architecture import Architecture, Output
from zoo.contracts.attention import Attention
from zoo.errors import RunFailed, UserError
from zoo.generation import TextStream, continue_texts, generate
from zoo_builtin.architecture.gpt2 import GPT2
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.position.rotary import Rotary
from zoo_builtin.residual.pre import Pre
from zoo_builtin.tokenizer.byte import Byte

VOCABULARY = 23
PROMPTS = [[5], [1, 2, 3, 4, 5, 6, 7], [9, 9, 8], [], [2, 4], [9, 9, 8]]


def tiny(attention: Any = None, position: Any = None, *, length: int = 32, dropout: float = 0.0) -> GPT2:
    """A GPT-2 of two layers whose greedy text isn't one id for ever."""
    config = GPT2.Config(
        initial_std=0.02, vocab_size=VOCABULARY, max_length=length, layers=2, dim=16, heads=4, dropout=dropout
    )
    model = GPT2(
        config,
        attention=attention or MultiHead.part(),
        position=position or Learned.part(),
        feed_forward=MLP.part(),
        norm=LayerNorm.part(),
        residual=Pre.part(),
        embedding=Tokens.part(),
        head=LanguageModel.part(),
    )
    model.initialize(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8.0)
    return model


class Identity(nn.Module):
    """Hidden states are the scores."""

    offers = frozenset({"token_scores"})

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(vocabulary))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden


class Scripted(Architecture):
    """Its scores are written down: step k of row b follows ``script[b][k]``; ids tell the rows apart."""

    offers = frozenset({"causal"})

    def __init__(self, scripts: dict[int, list[int]], vocabulary: int = 10) -> None:
        super().__init__(None)
        self.scripts, self.calls = scripts, 0
        self.head = Identity(vocabulary)

    def forward(self, ids_BT: Tensor, **_options: Any) -> Output:
        self.calls += 1
        nexts = [self.scripts[int(row[0])][self.calls - 1] for row in ids_BT]
        hidden = nn.functional.one_hot(torch.tensor(nexts), len(self.head.weight)).float()
        return Output(hidden[:, None].expand(-1, ids_BT.shape[1], -1), None)

    @property
    def max_length(self) -> int | None:
        return None

    def block_modules(self) -> Any:
        return iter(())

    def initialize(self, seed: int) -> None:
        del seed


class Fixed(Scripted):
    """Every next id has the same scores, whatever came before."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__({}, vocabulary=len(scores))
        self.scores = torch.tensor(scores)

    def forward(self, ids_BT: Tensor, **_options: Any) -> Output:
        return Output(self.scores.expand(*ids_BT.shape, -1), None)


def draw(scores: list[float], count: int, **options: Any) -> Counter[int]:
    """How often each id is drawn: one new id for each of so many equal prompts."""
    results = generate(Fixed(scores), [[0]] * count, max_new_tokens=1, cache=False, **options)
    return Counter(result.tokens[0] for result in results)


VARIANTS = {
    "multi_head, learned": (MultiHead.part(), Learned.part()),
    "multi_head eager, rotary": (MultiHead.part(kernel="eager"), Rotary.part()),
    "grouped_query, rotary": (GroupedQuery.part(kv_heads=2), Rotary.part()),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 0.9, "top_k": 7, "top_p": 0.9, "seed": 4}])
def test_a_batch_of_prompts_equals_one_prompt_at_a_time(variant: str, options: dict[str, Any]) -> None:
    model = tiny(*VARIANTS[variant])
    together = generate(model, PROMPTS[:5], max_new_tokens=12, end_of_text=0, **options)
    alone = [generate(model, [prompt], max_new_tokens=12, end_of_text=0, **options)[0] for prompt in PROMPTS[:5]]
    assert together == alone
    assert len({tuple(result.tokens) for result in together}) == 5


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_the_cache_changes_nothing(variant: str, temperature: float) -> None:
    model = tiny(*VARIANTS[variant])
    options: dict[str, Any] = {"max_new_tokens": 12, "end_of_text": 0, "temperature": temperature}
    assert generate(model, PROMPTS, **options) == generate(model, PROMPTS, cache=False, **options)


def test_left_padding_moves_no_position() -> None:
    """Greedy ids written out by a loop that knows neither padding nor cache."""
    model = tiny()
    expected = []
    for prompt in ([5], [1, 2, 3, 4, 5, 6, 7]):
        ids = list(prompt)
        for _ in range(6):
            with torch.no_grad():
                ids.append(int(model.head(model(torch.tensor([ids])).hidden)[0, -1].argmax()))
        expected.append(ids[len(prompt) :])
    generated = generate(model, [[5], [1, 2, 3, 4, 5, 6, 7]], max_new_tokens=6, temperature=0)
    assert [result.tokens for result in generated] == expected


def test_equal_prompts_get_different_continuations_and_the_first_is_that_of_a_single_one() -> None:
    model = tiny()
    options: dict[str, Any] = {"max_new_tokens": 10, "temperature": 1.5}
    first, other, second = generate(model, [[9, 9, 8], [4], [9, 9, 8]], **options)
    assert first == generate(model, [[9, 9, 8]], **options)[0]
    assert second == generate(model, [[9, 9, 8], [9, 9, 8]], **options)[1]
    assert len({tuple(result.tokens) for result in (first, other, second)}) == 3


def test_another_seed_gives_another_text_and_the_same_seed_the_same() -> None:
    model = tiny()
    one, two, again = (generate(model, [[1]], max_new_tokens=16, seed=seed) for seed in (1, 2, 1))
    assert one == again and one != two


def test_rows_stop_by_themselves_and_a_finished_one_stays_finished() -> None:
    eos = 9
    model = Scripted({1: [9, 5, 6, 7, 8], 2: [4, 3, 4, 9, 8]})
    seen: list[tuple[int, int]] = []
    one, two = generate(
        model,
        [[1], [2]],
        max_new_tokens=10,
        temperature=0,
        end_of_text=eos,
        cache=False,
        stream=lambda row, token: seen.append((row, token)),
    )
    assert model.calls == 4
    assert (one.tokens, one.stop) == ([9], "eos")
    assert (two.tokens, two.stop) == ([4, 3, 4, 9], "eos")
    assert seen == [(0, 9), (1, 4), (1, 3), (1, 4), (1, 9)]


def test_an_end_of_text_in_the_prompt_stops_nothing() -> None:
    model = Scripted({9: [1, 2, 3]})
    (result,) = generate(model, [[9, 9]], max_new_tokens=3, temperature=0, end_of_text=9, cache=False)
    assert (result.tokens, result.stop) == ([1, 2, 3], "length")


def test_generation_stops_where_the_model_has_no_position_left() -> None:
    model = tiny(length=8)
    short, full = generate(model, [[1, 2, 3], list(range(1, 9))], max_new_tokens=50, temperature=0)
    assert (len(short.tokens), short.stop) == (6, "length")  # 3 + 5 tokens were input, the sixth new one isn't
    assert (len(full.tokens), full.stop) == (1, "length")
    assert generate(model, [[1, 2, 3]], max_new_tokens=50, temperature=0)[0] == short


def test_a_model_without_a_longest_input_goes_on() -> None:
    model = tiny(position=Rotary.part(), length=8)
    assert len(generate(model, [[1, 2, 3]], max_new_tokens=20, temperature=0)[0].tokens) == 20


def test_dropout_is_off_and_modes_come_back() -> None:
    model = tiny(dropout=0.5)
    model.train()
    model.stack.blocks[0].eval()
    before = [module.training for module in model.modules()]
    one, two = (generate(model, [[1, 2]], max_new_tokens=8, temperature=0) for _ in range(2))
    assert one == two
    assert [module.training for module in model.modules()] == before and any(before) and not all(before)


# Options (bugs G1)

SCORES = [math.log(probability) for probability in (0.1, 0.5, 0.25, 0.15)]


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"temperature": 0}, {1}),
        ({"top_k": 1}, {1}),
        ({"top_p": 0}, {1}),
        ({"top_p": 0.5}, {1}),
        ({"top_p": 0.51}, {1, 2}),
        ({"top_p": 0.76}, {1, 2, 3}),
        ({"top_k": 2}, {1, 2}),
        ({"top_k": 3, "top_p": 0.8}, {1, 2}),  # of the three, 0.5 / 0.9 and 0.25 / 0.9 make up 0.83
        ({"top_k": 0}, {0, 1, 2, 3}),
        ({"top_k": 100_000}, {0, 1, 2, 3}),
        ({"vocab_size": 1}, {0}),
        ({"temperature": 1e-320}, {1}),
    ],
)
def test_options_allow_exactly_these_ids(options: dict[str, Any], allowed: set[int]) -> None:
    assert set(draw(SCORES, 300, **options)) == allowed


def test_ids_are_drawn_in_proportion_to_their_probabilities() -> None:
    for options, expected in (
        ({}, [0.1, 0.5, 0.25, 0.15]),
        ({"top_k": 2}, [0, 2 / 3, 1 / 3, 0]),
        ({"temperature": 0.5}, [0.01 / 0.345, 0.25 / 0.345, 0.0625 / 0.345, 0.0225 / 0.345]),
    ):
        drawn = draw(SCORES, 4000, **options)
        assert [drawn[token] / 4000 for token in range(4)] == pytest.approx(expected, abs=0.025)


def test_an_impossible_id_is_never_drawn() -> None:
    assert set(draw([-math.inf, 0.0, -math.inf, 0.0, -math.inf], 300)) == {1, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature is -1; it must be at least 0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_k": -1}, "top_k is -1; it must be at least 0"),
        ({"top_p": 1.1}, "top_p is 1.1; it must be from 0 to 1"),
        ({"top_p": -0.1}, "top_p is -0.1; it must be from 0 to 1"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be at least 1"),
    ],
)
def test_an_option_out_of_range_is_the_users_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate(tiny(), [[1]], **{"max_new_tokens": 3, **options})


def test_prompts_that_do_not_fit_are_refused_with_their_numbers() -> None:
    model = tiny(length=8)
    with pytest.raises(UserError, match=r"prompt 2 has 9 tokens, the model takes at most 8\n.*shorten it by 1"):
        generate(model, [[1], [1] * 9], max_new_tokens=3)
    with pytest.raises(UserError, match="prompt 1 holds the id 23; the model's ids are below 23"):
        generate(model, [[23]], max_new_tokens=3)
    with pytest.raises(UserError, match="an empty prompt needs an end of text"):
        generate(model, [[]], max_new_tokens=3)
    assert generate(model, [], max_new_tokens=3) == []


def test_scores_that_are_not_finite_fail_the_run() -> None:
    model = tiny()
    with torch.no_grad():
        model.embedding.tokens.weight.fill_(math.nan)
    with pytest.raises(RunFailed, match="scores aren't finite"):
        generate(model, [[1]], max_new_tokens=3)


class Averaging(Attention):
    """The mean of all positions so far; takes neither padding nor a cache."""

    offers = frozenset({"causal"})

    def forward(self, x_BTD: Tensor, **_parts: Any) -> Tensor:
        return x_BTD.cumsum(1) / torch.arange(1, x_BTD.shape[1] + 1)[:, None]


def test_an_attention_without_padding_still_gets_several_prompts_and_one_without_cache_is_refused() -> None:
    model = tiny(attention=lambda **parent: Averaging(None, **parent))
    with pytest.raises(UserError, match=r"Averaging has no cache\n.*--no-cache"):
        generate(model, [[1]], max_new_tokens=3)
    options: dict[str, Any] = {"max_new_tokens": 5, "temperature": 0, "cache": False}
    prompts = [[1], [2, 3], [4], [5, 6]]
    assert generate(model, prompts, **options) == [generate(model, [p], **options)[0] for p in prompts]


def test_a_model_that_sees_the_future_cannot_generate() -> None:
    class Encoder(Scripted):
        offers = frozenset({"bidirectional"})

    with pytest.raises(UserError, match="Encoder isn't a causal model"):
        generate(Encoder({}), [[1]], max_new_tokens=1)


# Text (bugs G4)


def streamed(data: bytes) -> str:
    stream = TextStream(Byte(Byte.Config()).token_bytes)
    return "".join(map(stream.feed, data)) + stream.finish()


def test_streamed_text_never_breaks_a_character() -> None:
    stream = TextStream(Byte(Byte.Config()).token_bytes)
    pieces = [stream.feed(byte) for byte in "é😀".encode()] + [stream.finish()]
    assert pieces == ["", "é", "", "", "", "😀", ""]


def test_a_text_that_ends_inside_a_character_has_one_replacement_at_its_end() -> None:
    assert streamed("é😀".encode()[:3]) == "é\ufffd"
    assert streamed("é😀".encode()[:5]) == "é\ufffd"


def test_special_and_unknown_ids_have_no_text() -> None:
    stream = TextStream(Byte(Byte.Config()).token_bytes)
    assert [stream.feed(token) for token in (256, 9999)] == ["", ""]


@given(st.binary(max_size=30))
def test_streamed_text_equals_the_whole_decoded(data: bytes) -> None:
    assert streamed(data) == data.decode("utf-8", errors="replace") == Byte(Byte.Config()).decode(data)


def bytes_model() -> SimpleNamespace:
    config = GPT2.Config(vocab_size=300, max_length=64, layers=1, dim=16, heads=2)  # 43 ids nobody has
    parts = {"feed_forward": MLP.part(), "norm": LayerNorm.part(), "residual": Pre.part()}
    parts |= {"embedding": Tokens.part(), "head": LanguageModel.part()}
    model = GPT2(config, attention=MultiHead.part(), position=Learned.part(), **parts)
    model.initialize(0)
    return SimpleNamespace(model=model, tokenizer=Byte(Byte.Config()))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_texts_are_their_streamed_pieces_and_hold_known_ids_only(seed: int) -> None:
    source, pieces = bytes_model(), ["", ""]

    def stream(row: int, piece: str) -> None:
        pieces[row] += piece

    results = continue_texts(source, ["né", ""], max_new_tokens=20, temperature=3.0, seed=seed, stream=stream)
    assert [result.text for result in results] == pieces
    assert [result.prompt for result in results] == ["né", ""]
    assert all(token <= 256 for result in results for token in result.tokens)


def test_a_run_without_tokenizer_writes_no_text() -> None:
    with pytest.raises(UserError, match="no tokenizer"):
        continue_texts(SimpleNamespace(model=tiny(), tokenizer=None), ["a"], max_new_tokens=1)
