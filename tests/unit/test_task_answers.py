"""The task of giving answers: sums worked out by hand, slices, what each kind of model sees, and sums that add up."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synthetic_samples import draw, made
from zoo.builder import build_model, check_parts
from zoo.contracts.architecture import Architecture, Output
from zoo.contracts.data import Description
from zoo.contracts.task import Batch
from zoo.errors import RunFailed, UserError
from zoo.recipe import Recipe
from zoo_builtin.data.addition import Addition
from zoo_builtin.data.copying import Copying
from zoo_builtin.data.dyck import Dyck
from zoo_builtin.data.induction import Induction
from zoo_builtin.data.listops import ListOps
from zoo_builtin.data.mqar import MQAR
from zoo_builtin.data.needle import Needle
from zoo_builtin.data.parity import Parity
from zoo_builtin.task.answers import Answers

KINDS = [MQAR, Copying, Addition, Parity, Dyck, Induction, ListOps, Needle]


class Fixed(nn.Module):
    """A model whose scores are a table of its input; it keeps what it was given."""

    def __init__(self, table_VV: Tensor, *, causal: bool = True, auxiliary: Tensor | None = None) -> None:
        super().__init__()
        self.table, self.auxiliary = nn.Parameter(table_VV), auxiliary
        self.offers = frozenset({"causal"}) if causal else frozenset({"bidirectional"})
        self.head = SimpleNamespace(weight=torch.eye(table_VV.shape[1]), bias=None, states=lambda hidden: hidden)

    def forward(self, ids_BT: Tensor, mask: Any = None) -> Output:
        self.ids, self.mask = ids_BT, mask
        return Output(self.table[ids_BT], self.auxiliary)


def task(*slices: str, **knobs: Any) -> Answers:
    return Answers(Answers.Config(**knobs), data=SimpleNamespace(slices=lambda: slices))  # type: ignore[arg-type]


def batch(ids: list[list[int]], targets: list[list[int]], **more: Any) -> Batch:
    return {name: torch.tensor(value) for name, value in {"ids": ids, "targets": targets, **more}.items()}


def model_of(data: Any, **architecture: Any) -> Architecture:
    settings = {"layers": 2, "dim": 16, "heads": 2, "position": "learned", **architecture}
    model = build_model(Recipe.from_dict({"architecture": settings}, fragment=True), data.describe()).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
    return model.eval()


NONE = -100


def test_loss_accuracy_and_exact_by_hand() -> None:
    table = torch.tensor([[0.0, math.log(3)], [0.0, math.log(7)]])  # after 0: 1/4, 3/4; after 1: 1/8, 7/8; best is 1
    rows = batch([[0, 1, 0], [1, 0, 0], [0, 0, 0]], [[NONE, 1, 1], [0, NONE, 1], [NONE, NONE, NONE]])
    found = task().loss(Fixed(table), rows)  # type: ignore[arg-type]
    nats = math.log(8 / 7) + math.log(4 / 3) + math.log(8) + math.log(4 / 3)
    assert found.total.item() == pytest.approx(nats)
    assert {name: value.item() for name, value in found.sums.items()} == pytest.approx(
        {"loss": nats, "targets": 4, "correct": 3, "answers": 2, "exact": 1}
    )
    metrics = task().summary({name: value.item() for name, value in found.sums.items()})
    assert metrics == pytest.approx({"accuracy": 0.75, "exact": 0.5, "loss": nats / 4})
    assert next(iter(metrics)) == next(iter(Answers.metrics)) == "accuracy"


def test_slices_and_chance_by_hand() -> None:
    table = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    rows = batch(
        [[0, 1], [1, 0], [0, 0]],
        [[1, 1], [0, 1], [NONE, 0]],
        slices=[[True, False, True], [False, True, True], [False, True, True]],
        chance=[500_000_000, 250_000_000, 250_000_000],
    )
    measured = task("pairs_4", "pairs_8", "all_1", "none_1")
    rows["slices"] = torch.cat([rows["slices"], torch.zeros(3, 1, dtype=torch.bool)], 1)
    sums = {name: value.item() for name, value in measured.loss(Fixed(table), rows).sums.items()}  # type: ignore[arg-type]
    metrics = measured.summary(sums)
    assert (metrics["accuracy_pairs_4"], metrics["exact_pairs_4"]) == (1.0, 1.0)
    assert (metrics["accuracy_pairs_8"], metrics["exact_pairs_8"]) == (pytest.approx(1 / 3), 0.0)
    assert (metrics["accuracy_all_1"], metrics["exact_all_1"]) == (metrics["accuracy"], metrics["exact"])
    assert metrics["chance"] == (2 * 0.5 + 2 * 0.25 + 0.25) / 5
    assert not [name for name in metrics if name.endswith("none_1")]  # no sample of it: nothing to say
    assert set(metrics) < set(measured.measured())
    assert measured.measured()[:4] == ("accuracy", "exact", "loss", "chance")


def test_sums_keep_no_graph_and_auxiliary_losses_join_the_total() -> None:
    model = Fixed(torch.zeros(2, 2), auxiliary=torch.tensor(5.0))
    found = task().loss(model, batch([[0, 0]], [[1, 1]]))  # type: ignore[arg-type]
    assert found.total.item() == pytest.approx(2 * 5 + 2 * math.log(2))
    assert found.total.requires_grad
    assert not any(value.requires_grad for value in found.sums.values())


@pytest.mark.parametrize(("causal", "at_once"), [(True, False), (True, True), (False, False)])
def test_who_sees_an_answer_that_is_written_out(causal: bool, at_once: bool) -> None:
    rows = batch([[0, 1, 1]], [[NONE, 1, 0]], blanked=[[0, 1, 2]], valid=[[True, True, True]])
    model = Fixed(torch.zeros(3, 3), causal=causal)
    task(at_once=at_once).loss(model, rows)  # type: ignore[arg-type]
    assert model.ids.tolist() == ([[0, 1, 1]] if causal and not at_once else [[0, 1, 2]])
    assert model.mask.causal == causal
    assert model.mask.valid_BS.tolist() == [[True] * 3]


def test_nothing_asked_is_loss_0_in_a_batch_and_an_error_in_all() -> None:
    model = Fixed(torch.zeros(2, 2))
    found = task().loss(model, batch([[0, 1]], [[NONE, NONE]]))  # type: ignore[arg-type]
    found.total.backward()
    assert found.total.item() == 0
    assert model.table.grad is not None
    assert not model.table.grad.any()
    with pytest.raises(RunFailed, match="nothing is asked for in all of the data"):
        task().summary({name: value.item() for name, value in found.sums.items()})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("architecture", ["gpt2", "bert"])
def test_metrics_are_the_same_for_any_batches_and_any_ranks(kind: type[Any], architecture: str) -> None:
    data = made(kind, **({"vocab_size": 64} if kind is MQAR else {}))
    asks, model = Answers(Answers.Config(), data=data), model_of(data, name=architecture)
    found = []
    with torch.no_grad():
        for parts in ([range(24)], [range(7), range(7, 24)], [range(0, 24, 2), range(1, 24, 2), [-1, -1]]):
            sums: dict[str, float] = {}
            for samples in parts:
                for name, value in asks.loss(model, data.batch(draw(samples), "validation")).sums.items():
                    sums[name] = sums.get(name, 0.0) + value.item()
            found.append(asks.summary(sums))
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        assert {k: v for k, v in other.items() if k != "loss"} == {k: v for k, v in found[0].items() if k != "loss"}
        assert other["loss"] == pytest.approx(found[0]["loss"], rel=1e-12)  # float64 in another order
    assert found[0]["chance"] > 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("architecture", ["gpt2", "bert"])
def test_no_model_sees_the_answer_that_it_is_asked_for(kind: type[Any], architecture: str) -> None:
    """With other answers in ``ids``, what is said of the first one is the same, and of all of them in an encoder."""
    data = made(kind, **({"vocab_size": 64} if kind is MQAR else {}))
    rows, model = data.batch(draw(range(8)), "train"), model_of(data, name=architecture)
    if "blanked" not in rows:
        pytest.skip("its answers aren't in the input")
    other = {**rows, "ids": torch.where(rows["ids"] != rows["blanked"], (rows["ids"] + 1) % 8, rows["ids"])}
    first = rows["targets"].ne(NONE).int().argmax(1)
    asked = torch.full_like(rows["targets"], NONE)
    asked[torch.arange(8), first] = rows["targets"][torch.arange(8), first]
    targets = asked if architecture == "gpt2" else rows["targets"]
    asks = Answers(Answers.Config(), data=data)
    with torch.no_grad():
        one, two = (asks.loss(model, {**given, "targets": targets}).total for given in (rows, other))
    assert one.item() == pytest.approx(two.item(), rel=1e-12)
    with torch.no_grad():
        shown, hidden = (
            Answers(Answers.Config(at_once=at_once), data=data).loss(model, rows).total for at_once in (False, True)
        )
    assert (shown.item() == pytest.approx(hidden.item(), rel=1e-9)) == (architecture == "bert")


def test_every_parameter_gets_a_gradient() -> None:
    data = made(Copying)
    model = model_of(data, name="gpt2")
    Answers(Answers.Config(), data=data).loss(model, data.batch(draw(range(4)), "train")).total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_an_encoder_decoder_and_a_head_of_classes_are_refused() -> None:
    for architecture, told in (
        ({"name": "encoder_decoder"}, "reads a source beside its input"),
        ({"name": "gpt2", "head": {"name": "classification", "pool": "last"}}, "token_scores"),
    ):
        recipe = Recipe.from_dict({"data": "mqar", "architecture": architecture, "task": "answers"})
        with pytest.raises(UserError, match=told):
            check_parts(recipe)


def test_data_without_slices_has_none() -> None:
    assert Answers(Answers.Config(), data=made(MQAR)).measured() == ("accuracy", "exact", "loss", "chance")
    assert made(MQAR).describe() == Description(vocab_size=8192, max_length=64)
