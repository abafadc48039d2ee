"""Sequence to sequence: values worked out by hand, label smoothing as torch has it, exact match without decoding."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from parity import small_recipe
from zoo.builder import build_model
from zoo.contracts.architecture import Output
from zoo.contracts.data import Draw
from zoo.errors import RunFailed
from zoo.generation import generate
from zoo.nn.loss import scored_targets
from zoo_builtin.data.pairs import Pairs
from zoo_builtin.task.seq2seq import Seq2Seq
from zoo_builtin.tokenizer.byte import Byte


class Fixed(nn.Module):
    """A model whose scores are a table of its input, whatever the source is."""

    def __init__(self, table_VV: Tensor, auxiliary: Tensor | None = None) -> None:
        super().__init__()
        self.table, self.auxiliary = nn.Parameter(table_VV), auxiliary
        self.head = SimpleNamespace(weight=torch.eye(table_VV.shape[1]), bias=None, states=lambda hidden: hidden)

    def forward(self, ids_BT: Tensor, *, mask: Any, source_BS: Tensor, source_valid_BS: Tensor) -> Output:
        self.given = (mask, source_BS, source_valid_BS)
        return Output(self.table[ids_BT], self.auxiliary)


def task(**knobs: Any) -> Seq2Seq:
    return Seq2Seq(Seq2Seq.Config(**knobs), data=None)  # type: ignore[arg-type]


def batch(ids: list[list[int]], targets: list[list[int]]) -> dict[str, Tensor]:
    targets_BT = torch.tensor(targets)
    source = torch.tensor([[4, 2, 0]] * len(ids))
    return {
        "source": source,
        "source_valid": source > 0,
        "ids": torch.tensor(ids),
        "targets": targets_BT,
        "valid": targets_BT != -100,
    }


THREE_TO_ONE = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])  # after 0: 1/4, 3/4; after 1: 1/2, 1/2
"""Best is 1 after 0, and 0 after 1."""


def test_loss_and_sums_are_those_worked_out_by_hand() -> None:
    rows = batch([[0, 1, 0], [0, 0, 0], [1, 0, 0]], [[1, 0, 1], [1, 0, -100], [-100, -100, -100]])
    loss = task().loss(Fixed(THREE_TO_ONE), rows)
    nats = 2 * math.log(4 / 3) + math.log(2) + math.log(4 / 3) + math.log(4)
    assert loss.total.item() == pytest.approx(nats)
    assert {name: value.item() for name, value in loss.sums.items()} == pytest.approx(
        {"loss": nats, "targets": 5, "correct": 4, "sequences": 2, "exact": 1}
    )
    metrics = task().summary({name: value.item() for name, value in loss.sums.items()})
    assert metrics == pytest.approx(
        {"loss": nats / 5, "perplexity": math.exp(nats / 5), "accuracy": 0.8, "exact_match": 0.5}
    )
    assert metrics.keys() == Seq2Seq.metrics.keys()
    assert next(iter(Seq2Seq.metrics)) == "loss"
    assert task().count(rows) == 5


def test_smoothing_changes_what_is_trained_and_not_what_is_reported() -> None:
    rows = batch([[0]], [[1]])
    loss = task(label_smoothing=0.2).loss(Fixed(THREE_TO_ONE), rows)
    assert loss.total.item() == pytest.approx(0.9 * math.log(4 / 3) + 0.1 * math.log(4))
    assert loss.sums["loss"].item() == pytest.approx(math.log(4 / 3))
    assert loss.total.requires_grad
    assert not any(value.requires_grad for value in loss.sums.values())


@given(smoothing=st.floats(0, 0.99), chunk=st.integers(1, 400), seed=st.integers(0, 5))
def test_smoothing_is_torchs_in_loss_and_gradient(smoothing: float, chunk: int, seed: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        torch.randn(size, generator=numbers, dtype=torch.float64).requires_grad_() for size in ((9, 4), (11, 4), (11,))
    )
    targets = torch.randint(-1, 11, (9,), generator=numbers)
    targets[targets < 0] = -100
    scored = scored_targets(hidden, weight, bias, targets, label_smoothing=smoothing, largest_chunk=chunk)
    scores = F.linear(hidden, weight, bias)
    want = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
    assert scored.loss.item() == pytest.approx(want.item(), rel=1e-12, abs=1e-12)
    assert scored.nats.item() == pytest.approx(F.cross_entropy(scores, targets, reduction="sum").item(), abs=1e-12)
    assert torch.equal(scored.hits_N, scores.argmax(-1) == targets)
    leaves = [hidden, weight, bias]
    for mine, theirs in zip(torch.autograd.grad(scored.loss, leaves), torch.autograd.grad(want, leaves), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_a_smoothing_that_is_no_share_is_refused(smoothing: float) -> None:
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1"):
        task(label_smoothing=smoothing)


def test_both_sides_padding_reaches_the_model() -> None:
    model, rows = Fixed(torch.zeros(2, 2)), batch([[0, 1, 0]], [[1, 0, -100]])
    task().loss(model, rows)
    mask, source_BS, source_valid_BS = model.given
    assert mask.causal
    assert mask.valid_BS.tolist() == [[True, True, False]]
    assert source_BS.tolist() == [[4, 2, 0]]
    assert source_valid_BS.tolist() == [[True, True, False]]


def test_auxiliary_losses_join_the_gradient_and_not_the_metric() -> None:
    loss = task().loss(Fixed(torch.zeros(2, 2), torch.tensor(5.0)), batch([[0]], [[1]]))
    assert loss.total.item() == pytest.approx(5 + math.log(2))
    assert loss.sums["loss"].item() == pytest.approx(math.log(2))


def test_nothing_to_write_is_an_error_and_an_empty_row_no_sequence() -> None:
    with pytest.raises(RunFailed, match="no target in all of the data"):
        task().summary({"loss": 0.0, "targets": 0.0, "correct": 0.0, "sequences": 0.0, "exact": 0.0})


def small() -> Any:
    sizes = {"vocab_size": 300, "layers": 2, "dim": 16, "heads": 2}
    return build_model(small_recipe("encoder_decoder", **sizes))


def test_a_batch_without_a_target_gives_0_and_a_gradient_of_0_to_every_parameter() -> None:
    model = small()
    loss = task(label_smoothing=0.1).loss(model, batch([[1, 2]], [[-100, -100]]))
    loss.total.backward()
    assert loss.total.item() == 0
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def pairs(folder: Path, text: str) -> Pairs:
    file = folder / "pairs.tsv"
    file.write_text(text, encoding="utf-8")
    config = Pairs.Config(source="files", files=[file], validation=0.0, test=0.0)
    data = Pairs(config, cache=folder / "cache", tokenizer=Byte(Byte.Config()))
    data.prepare()
    return data


def rows_of(data: Pairs) -> dict[str, Tensor]:
    ids = np.arange(data.size("train"))
    return data.batch(Draw(ids, np.zeros_like(ids), 0), "train")


def test_there_is_exactly_one_shift_so_a_model_that_echoes_has_a_high_loss(tmp_path: Path) -> None:
    data = pairs(tmp_path, "three\tabc\nfour\tdefg\n")
    rows, end = rows_of(data), Byte(Byte.Config()).end_of_text
    assert rows["ids"][:, 0].tolist() == [end, end]
    assert rows["ids"].min() >= 0
    follows = torch.zeros(257, 257)
    for target in ("abc", "defg"):
        ids = [end, *target.encode(), end]
        follows[ids[:-1], ids[1:]] = 50.0
    follows[end] = 50 * (torch.arange(257) == ord("a")) + 50 * (torch.arange(257) == ord("d"))
    assert task().loss(Fixed(50 * torch.eye(257)), rows).total.item() == pytest.approx(9 * 50)
    right = task().loss(Fixed(follows), rows)
    assert right.total.item() == pytest.approx(2 * math.log(2), abs=1e-6)  # which of the two texts begins


def test_exact_match_is_that_of_greedy_decoding(tmp_path: Path) -> None:
    """A model that has half learned its pairs: what it writes from each source is right where the metric says so."""
    lines = [f"{number}\t{number * number % 50}" for number in range(24)]
    data, model, learned = pairs(tmp_path, "\n".join(lines) + "\n"), small(), task()
    rows = rows_of(data)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(70):
        optimizer.zero_grad()
        learned.loss(model, rows).total.backward()
        optimizer.step()
    sums = learned.loss(model.eval(), rows).sums
    sources = [row[valid].tolist() for row, valid in zip(rows["source"], rows["source_valid"], strict=True)]
    targets = [row[row >= 0].tolist() for row in rows["targets"]]
    end = data.tokenizer().end_of_text
    found = generate(model, [[]] * 24, sources=sources, max_new_tokens=8, temperature=0, end_of_text=end)
    right = sum(result.tokens == target for result, target in zip(found, targets, strict=True))
    assert 0 < right < 24
    assert sums["exact"].item() == right
    assert sums["sequences"].item() == 24
