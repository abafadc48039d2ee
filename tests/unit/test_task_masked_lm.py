"""Masked language modelling: which tokens are hidden, how, by which draw, and what the loss is of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from zoo.builder import check_buildable
from zoo.contracts.data import Description, Draw, Split
from zoo.contracts.tokenizer import Tokenizer
from zoo.contracts.values.mask import Mask
from zoo.errors import RunFailed, UserError
from zoo.recipe import load_recipe
from zoo_builtin.architecture.bert import BERT
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.masked_lm import MaskedLM as Head
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.residual.post import Post
from zoo_builtin.task.masked_lm import MaskedLM
from zoo_builtin.tokenizer.byte import Byte
from zoo_builtin.tokenizer.wordpiece import Wordpiece

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##do", "re", "##play", "##ed", "the", "go", ","]
PAD, CLS, SEP, MASK = 0, 2, 3, 4
UN, DO, RE, PLAY, ED, THE, GO, COMMA = range(5, 13)


class Data:
    """A data set that is only asked for its tokenizer and its sizes."""

    def __init__(self, tokenizer: Tokenizer | None = None, vocab_size: int | None = 200) -> None:
        self._tokenizer, self._size = tokenizer, vocab_size

    def tokenizer(self) -> Tokenizer | None:
        return self._tokenizer

    def describe(self) -> Description:
        size = self._tokenizer.vocab_size if self._tokenizer else self._size
        return Description(vocab_size=size, max_length=16)


def wordpiece() -> Wordpiece:
    tokenizer = Wordpiece(Wordpiece.Config())
    tokenizer.restore({"pieces": PIECES})
    return tokenizer


def task(tokenizer: Tokenizer | None = None, **knobs: Any) -> MaskedLM:
    return MaskedLM(MaskedLM.Config(**knobs), data=Data(tokenizer))  # type: ignore[arg-type]


def prepare(
    made: MaskedLM,
    ids: np.ndarray,
    *,
    samples: Sequence[int] | None = None,
    seed: int = 0,
    epoch: int = 0,
    split: Split = "train",
    **more: Tensor,
) -> dict[str, np.ndarray]:
    """The prepared batch, as arrays."""
    numbers = np.arange(len(ids)) if samples is None else np.array(samples)
    draw = Draw(numbers, np.full_like(numbers, epoch), seed)
    batch = made.prepare({"ids": torch.from_numpy(ids), **more}, draw, split)
    return {name: tensor.numpy() for name, tensor in batch.items()}


def near(count: int, total: int, probability: float) -> bool:
    """Whether a count is within five standard deviations of what is expected: wrong once in two million times."""
    return abs(count - total * probability) < 5 * math.sqrt(total * probability * (1 - probability))


@pytest.mark.article("masked language modelling, section 8")
def test_15_percent_are_hidden_and_of_these_80_10_10() -> None:
    rows, length, vocabulary = 200, 1000, 200
    ids = np.random.default_rng(1).integers(vocabulary, size=(rows, length))
    made = task()
    batch = prepare(made, ids)
    chosen = batch["targets"] != -100
    hidden, original = batch["ids"][chosen], ids[chosen]
    assert near(int(chosen.sum()), rows * length, 0.15)
    assert chosen.mean() == pytest.approx(0.15, abs=0.005)
    total = len(hidden)
    same = 1 / vocabulary  # a random token may be the one that stood there
    assert near(int((hidden == made.mask).sum()), total, 0.8)
    assert near(int(((hidden != made.mask) & (hidden != original)).sum()), total, 0.1 * (1 - same))
    assert near(int((hidden == original).sum()), total, 0.1 + 0.1 * same)
    random = hidden[(hidden != made.mask) & (hidden != original)]
    assert len(set(random)) == vocabulary  # any of them, 2,985 draws
    assert np.array_equal(batch["targets"][chosen], original)
    assert np.array_equal(batch["ids"][~chosen], ids[~chosen])
    by_place = chosen.mean(0)  # of 200 rows, at each place
    assert abs(by_place - 0.15).max() < 5 * math.sqrt(0.15 * 0.85 / rows)


def test_special_tokens_padding_and_empty_rows_are_never_chosen_nor_drawn() -> None:
    rng = np.random.default_rng(2)
    ids = rng.integers(len(PIECES), size=(64, 500))
    ids[ids == MASK] = THE
    valid = torch.from_numpy(rng.random(ids.shape) < 0.7)
    batch = prepare(task(wordpiece()), ids, samples=[*range(60), -1, -1, -1, -1], valid=valid)
    chosen = batch["targets"] != -100
    ordinary = ~np.isin(ids, [PAD, CLS, SEP]) & valid.numpy()
    ordinary[60:] = False
    assert not (chosen & ~ordinary).any()
    assert near(int(chosen.sum()), int(ordinary.sum()), 0.15)
    assert np.array_equal(batch["valid"], valid.numpy())
    replaced = batch["ids"][chosen & (batch["ids"] != MASK)]
    assert not np.isin(replaced, [PAD, CLS, SEP, MASK]).any()
    assert set(replaced) == set(range(len(PIECES))) - {PAD, CLS, SEP, MASK}


def test_the_mask_is_the_tokenizers_or_one_more_id() -> None:
    assert (task(wordpiece()).mask, task(wordpiece()).describe().vocab_size) == (MASK, len(PIECES))
    made = task(Byte(Byte.Config()))
    assert (made.mask, made.describe()) == (257, Description(vocab_size=258, max_length=16))
    assert (task().mask, task().describe().vocab_size) == (200, 201)


def test_the_end_of_text_is_never_hidden() -> None:
    ids = np.full((8, 200), Byte(Byte.Config()).end_of_text)
    assert (prepare(task(Byte(Byte.Config()), rate=1.0), ids)["targets"] == -100).all()


@given(
    rows=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    length=st.integers(1, 30),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 3),
    whole_word=st.booleans(),
)
def test_a_sample_is_hidden_alike_in_any_batch(
    rows: list[int], length: int, seed: int, epoch: int, whole_word: bool
) -> None:
    ids = np.random.default_rng(3).integers(5, len(PIECES), size=(10, 30))
    made = task(wordpiece(), whole_word=whole_word, rate=0.5)
    whole = prepare(made, ids, seed=seed, epoch=epoch)
    part = prepare(made, ids[rows][:, :length], samples=rows, seed=seed, epoch=epoch)
    for name, array in part.items():
        assert np.array_equal(array, whole[name][rows][:, :length])


def test_seeds_and_epochs_hide_other_tokens_of_the_training_part_only() -> None:
    ids = np.random.default_rng(4).integers(200, size=(20, 500))
    made = task()
    first = prepare(made, ids)
    for other in (prepare(made, ids, seed=1), prepare(made, ids, epoch=1), prepare(made, ids, samples=range(20, 40))):
        both = ((first["targets"] != -100) & (other["targets"] != -100)).sum()
        assert near(int(both), ids.size, 0.15**2)  # independent
    assert np.array_equal(prepare(made, ids, seed=0)["ids"], first["ids"])
    fixed = prepare(made, ids, split="validation")
    assert np.array_equal(prepare(made, ids, seed=7, split="validation")["ids"], fixed["ids"])
    assert np.array_equal(prepare(made, ids, seed=7, epoch=3, split="validation")["ids"], fixed["ids"])


def test_pieces_of_a_word_share_the_decision() -> None:
    words = [[UN, DO], [RE, PLAY, ED], [THE], [GO], [UN, DO, ED], [COMMA]]
    rng = np.random.default_rng(5)
    texts = [[word for _ in range(300) for word in [words[rng.integers(len(words))]]] for _ in range(100)]
    rows = [[CLS, *[piece for word in text for piece in word]][:300] for text in texts]
    ids = np.array(rows)
    batch = prepare(task(wordpiece(), whole_word=True), ids)
    chosen = batch["targets"] != -100
    continues = np.isin(ids, [DO, PLAY, ED])
    assert np.array_equal(chosen[:, 1:][continues[:, 1:]], chosen[:, :-1][continues[:, 1:]])
    assert chosen[:, 1:].mean() == pytest.approx(0.15, abs=0.01)
    assert not chosen[:, 0].any()
    begins = ~continues
    begins[:, 0] = False
    assert near(int(chosen[begins].sum()), int(begins.sum()), 0.15)  # every word by a draw of its own
    how = batch["ids"] == MASK  # each piece is then masked, replaced or kept by itself
    assert near(int(how[chosen].sum()), int(chosen.sum()), 0.8)
    apart = chosen[:, 1:] & continues[:, 1:] & (how[:, 1:] != how[:, :-1])
    assert apart.any()


def test_a_window_may_begin_inside_a_word_and_words_end_at_white_space() -> None:
    text = "cd efg\nhij k"
    ids = np.array([list(text.encode())] * 400)
    chosen = prepare(task(Byte(Byte.Config()), whole_word=True, rate=0.3), ids)["targets"] != -100
    words = [slice(0, 2), slice(2, 3), slice(3, 6), slice(6, 7), slice(7, 10), slice(10, 11), slice(11, 12)]
    for word in words:  # a byte that is white space ends the word that it begins
        assert (chosen[:, word].all(1) == chosen[:, word].any(1)).all()
        assert 0.2 < chosen[:, word].mean() < 0.4
    for one, two in itertools.pairwise(words):
        assert (chosen[:, one.start] != chosen[:, two.start]).any()


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"rate": 0.0}, "rate must be above 0"),
        ({"rate": 1.5}, "rate must be above 0"),
        ({"masked": 0.8, "random": 0.3}, "at most 1 together: got 0.8 and 0.3"),
        ({"random": -0.1}, "got 0.8 and -0.1"),
        ({"whole_word": True}, "needs data with a tokenizer"),
    ],
)
def test_knobs_that_make_no_sense_are_refused(knobs: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        task(**knobs)


def test_data_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="data that has none"):
        MaskedLM(MaskedLM.Config(), data=Data(vocab_size=None))  # type: ignore[arg-type]


def test_a_causal_model_is_refused() -> None:
    recipe = load_recipe("gpt2_text", ["task=masked_lm", "architecture.name=gpt2"])
    with pytest.raises(UserError, match="task masked_lm needs a model that offers 'bidirectional'"):
        check_buildable(recipe)


def bert(vocabulary: int = 201) -> BERT:
    model = BERT(
        BERT.Config(vocab_size=vocabulary, max_length=16, layers=2, dim=16, heads=2),
        attention=MultiHead.part(),
        position=Learned.part(),
        feed_forward=MLP.part(),
        norm=LayerNorm.part(),
        residual=Post.part(),
        embedding=Tokens.part(),
        head=Head.part(),
    )
    model.initialize(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)), alpha=0.1)
    return model.double()


def batch_of(made: MaskedLM, samples: Sequence[int] = range(6), **more: Tensor) -> dict[str, Tensor]:
    ids = np.random.default_rng(6).integers(200, size=(6, 12))[np.array(samples).clip(min=0)]
    return {name: torch.from_numpy(array) for name, array in prepare(made, ids, samples=list(samples), **more).items()}


def test_the_loss_is_the_sum_over_hidden_tokens_only() -> None:
    made, model = task(), bert()
    valid = torch.arange(12) < torch.tensor([12, 3, 7, 1, 12, 5])[:, None]
    batch = batch_of(made, valid=valid)
    loss = made.loss(model, batch)
    scores = model.head(model(batch["ids"], mask=Mask(valid_BS=valid)).hidden).flatten(0, 1)
    want = F.cross_entropy(scores, batch["targets"].flatten(), ignore_index=-100, reduction="sum")
    torch.testing.assert_close(loss.total, want, rtol=1e-12, atol=0)
    chosen = batch["targets"].flatten() != -100
    right = (scores.argmax(-1) == batch["targets"].flatten())[chosen].sum()
    assert int(loss.sums["targets"]) == int(chosen.sum()) == made.count(batch) > 0
    assert int(loss.sums["correct"]) == int(right)
    assert not (chosen & ~valid.flatten()).any()


def test_a_hidden_token_is_predicted_from_both_sides() -> None:
    made, model = task(), bert()
    batch = batch_of(made)
    row, place = map(int, (batch["targets"] != -100).nonzero()[0])
    before = made.loss(model, batch).total
    for other in (0, 11):
        if other != place:
            changed = {**batch, "ids": batch["ids"].clone()}
            changed["ids"][row, other] = (changed["ids"][row, other] + 1) % 200
            assert not torch.equal(made.loss(model, changed).total, before)


def test_packed_documents_dont_see_each_other() -> None:
    made, model = task(), bert()
    documents = torch.tensor([[0] * 5 + [1] * 7]).expand(6, 12).contiguous()
    batch = batch_of(made, documents=documents)
    first = {**batch, "targets": batch["targets"].clone()}
    first["targets"][:, 5:] = -100
    changed = {**first, "ids": first["ids"].clone()}
    changed["ids"][:, 5:] = 3
    assert made.count(first) > 0
    torch.testing.assert_close(made.loss(model, changed).total, made.loss(model, first).total, rtol=1e-12, atol=0)


def test_micro_batches_and_rows_without_targets_change_neither_loss_nor_gradient() -> None:
    made = task()

    def gradient(pieces: list[dict[str, Tensor]]) -> tuple[float, list[Tensor]]:
        model, total = bert(), 0.0
        for piece in pieces:
            loss = made.loss(model, piece).total
            loss.backward()
            total += float(loss.detach())
        return total, [parameter.grad for parameter in model.parameters()]  # type: ignore[misc]

    whole, want = gradient([batch_of(made)])
    pieces = [batch_of(made, cut) for cut in ([0, 1], [-1, -1], [2], [3, 4, 5], [-1])]
    parts, got = gradient(pieces)
    assert parts == pytest.approx(whole, rel=1e-12)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_a_batch_without_a_target_gives_0_and_a_gradient_of_0_to_every_parameter() -> None:
    made, model = task(), bert()
    loss = made.loss(model, batch_of(made, [-1, -1]))
    loss.total.backward()
    assert loss.total.item() == 0 == int(loss.sums["targets"])
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())


def test_metrics_from_sums() -> None:
    found = task().summary({"loss": 6.0, "targets": 4.0, "correct": 1.0})
    assert found == {"loss": 1.5, "perplexity": pytest.approx(math.exp(1.5)), "accuracy": 0.25}
    assert task().summary({"loss": 4000.0, "targets": 4.0, "correct": 0.0})["perplexity"] == math.inf
    with pytest.raises(RunFailed, match="no token was hidden"):
        task().summary({"loss": 0.0, "targets": 0.0, "correct": 0.0})
