"""``zoo check`` on data with answers: slices, oracles, chance levels and blanks that are wrong are found."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.data.growing import Growing
from zoo.testing.data import SUITE as DATA
from zoo.testing.data import DataSubject
from zoo.testing.suite import run_check
from zoo.testing.task import SUITE as TASK
from zoo.testing.task import TaskSubject
from zoo.testing.templates import task
from zoo_builtin.data.copying import Copying
from zoo_builtin.task.answers import Answers


class Few(Copying):  # type: ignore[misc]
    """Few symbols, so that a check is quick."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Copying.Config):
        """Short ones."""

        length: int = 8
        """Most symbols."""


def changed(batch: dict[str, Tensor], **values: Tensor) -> dict[str, Tensor]:
    return {**batch, **values}


class SlicesWithoutNumber(Few):
    def slices(self) -> Any:
        return tuple(name.rpartition("_")[0] for name in super().slices())


class SlicesOfEmptyRows(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return changed(batch, slices=torch.ones_like(batch["slices"]))


class SlicesUntold(Few):
    def slices(self) -> Any:
        return () if getattr(self, "asked", False) else super().slices()

    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        self.asked = False
        batch = super().batch(draw, split)
        self.asked = True
        return batch

    def prepare(self) -> None:
        super().prepare()
        self.asked = True


class SlicesMissing(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        del batch["slices"]
        return batch


class NobodysSlices(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return changed(batch, slices=torch.zeros_like(batch["slices"]))


class OracleOffByOne(Few):
    def answer(self, ids: list[int]) -> list[int]:
        return [0, *super().answer(ids)[:-1]]


class OracleReadsTheAnswer(Few):
    """Right as long as the answer stands in the input."""

    def answer(self, ids: list[int]) -> list[int]:
        return [*ids[1:], super().answer(ids)[-1]]


class OracleOfAnotherShape(Few):
    def oracle(self, batch: Any) -> Tensor:
        return super().oracle(batch)[:, :-1]


class NothingBlanked(Few):
    """What should be blanks are the answers."""

    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return changed(batch, blanked=batch["ids"])


class QuestionBlanked(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return changed(batch, blanked=torch.full_like(batch["ids"], self.blank))


class ChanceOfEmptyRows(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return changed(batch, chance=torch.full_like(batch["chance"], 10**9 // 16))


class ChanceInPercent(Few):
    def chance(self, split: Any) -> float:
        return 100 * super().chance(split)


class ChanceUntold(Few):
    def chance(self, split: Any) -> Any:
        return None


class ChanceAsAShare(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return changed(batch, chance=batch["chance"] / 10**9)


class SaysMore(Answers):  # type: ignore[misc]
    """A metric that nobody was told of."""

    def summary(self, sums: Any) -> dict[str, float]:
        return {**super().summary(sums), "luck": 1.0}


class MeasuresOtherThings(task.Mine):
    def measured(self) -> Any:
        return "accuracy", "loss"


SLICES = "slices are told in advance, and each sample says which it is in"
ORACLE = "an oracle is right wherever there is a target"
BLANKED = "a written answer is blanked, and nothing else is"
CHANCE = "the chance level is that of its samples"

CAUGHT = [
    (SlicesWithoutNumber, SLICES, "names that end in a number"),
    (SlicesOfEmptyRows, SLICES, "an empty row is in a slice"),
    (SlicesUntold, SLICES, "slices() names none"),
    (SlicesMissing, SLICES, "is None; it must be bool"),
    (NobodysSlices, SLICES, "is in any of the slices"),
    (OracleOffByOne, ORACLE, "the oracle is wrong at"),
    (OracleReadsTheAnswer, ORACLE, "the oracle is wrong at"),
    (OracleOfAnotherShape, ORACLE, "the oracle's answers are"),
    (NothingBlanked, BLANKED, "different ids stand for written answers"),
    (QuestionBlanked, BLANKED, "where no answer is written"),
    (ChanceOfEmptyRows, CHANCE, "an empty row"),
    (ChanceInPercent, CHANCE, "chance() is 6.25"),
    (ChanceUntold, CHANCE, "chance() is None"),
    (ChanceAsAShare, CHANCE, "in billionths"),
    (SaysMore, "metrics from sums", "summary gives luck, which measured() doesn't tell"),
    (MeasuresOtherThings, "says what it needs and measures", "must begin with the metrics"),
]


def examine(component: type[Any], name: str) -> tuple[str, str]:
    suite: Any = DATA if issubclass(component, Growing) else TASK
    subject: Any = DataSubject(component) if suite is DATA else TaskSubject(component)
    check = next(check for check in suite.checks if check.name == name)
    finding = run_check(check, subject)
    return finding.status, finding.message


@pytest.mark.parametrize(("mutant", "name", "told"), CAUGHT, ids=[mutant.__name__ for mutant, _, _ in CAUGHT])
def test_a_seeded_fault_is_caught_by_its_check(mutant: type[Any], name: str, told: str) -> None:
    status, message = examine(mutant, name)
    assert status == "failed", message
    assert told in message
    good = next(base for base in mutant.__mro__ if base in (Few, Answers, task.Mine))
    assert examine(good, name)[0] == "passed"
