"""``zoo check`` on tokenizers that aren't exact, and on data of different lengths: seeded faults are found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from zoo.contracts.tokenizer import Tokenizer
from zoo.testing.data import SUITE as DATA
from zoo.testing.data import DataSubject
from zoo.testing.suite import Suite, run_check
from zoo.testing.tokenizer import SUITE as TOKENIZER
from zoo.testing.tokenizer import TokenizerSubject
from zoo_builtin.data.labelled_text import LabelledText
from zoo_builtin.data.pairs import Pairs
from zoo_builtin.tokenizer.wordpiece import Wordpiece


class Few(Pairs):
    """Two years of dates."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Pairs.Config):
        """Few, so that it is quick."""

        locales: list[str] = dataclasses.field(default_factory=lambda: ["en_US", "de_DE"])
        first_year: int = 2020
        last_year: int = 2021


class FewNames(LabelledText):
    """Two languages."""

    @dataclasses.dataclass(kw_only=True)
    class Config(LabelledText.Config):
        """Few, so that it is quick."""

        languages: list[str] = dataclasses.field(default_factory=lambda: ["de", "fr"])


class LengthsUntold(Few):
    def lengths(self, split: Any) -> Any:
        return None


class TooFewLengths(Few):
    def lengths(self, split: Any) -> np.ndarray:
        return super().lengths(split)[1:]


class PaddedOnTheLeft(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        return {name: tensor.flip(1) for name, tensor in super().batch(draw, split).items()}


class PaddingIsLearned(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return {**batch, "targets": torch.where(batch["targets"] < 0, batch["ids"], batch["targets"])}


class WidthMatters(Few):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return {**batch, "source": (batch["source"] + batch["source"].shape[1]) % 20}


class EmptyRowsAreValid(FewNames):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return {**batch, "valid": batch["valid"] | (batch["labels"] < 0)[:, None]}


class Repeated(FewNames):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        return super().batch(draw, "train" if len(draw.samples) > 8 else split)


class NotInexact(Wordpiece):
    exact: ClassVar[bool] = True


class Joined(Wordpiece):
    """Words without a space between them have other ids."""

    def token_bytes(self, token: int) -> bytes:
        return super().token_bytes(token).removeprefix(b" ")


class ClassIsMask(Wordpiece):
    @property
    def specials(self) -> Mapping[str, int]:
        return {**super().specials, "class": super().specials["mask"]}


class OtherNames(Wordpiece):
    @property
    def specials(self) -> Mapping[str, int]:
        return {**super().specials, "cls": super().specials["class"]}


class SpeaksOfMasks(Wordpiece):
    def encode(self, text: str) -> list[int]:
        return [self.specials["mask"] if "[MASK]" in text else token for token in super().encode(text)]

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        return Tokenizer.encode_batch(self, texts)


CAUGHT = [
    (LengthsUntold, "padding is on the right, and lengths are told", "another width, but lengths() is None"),
    (TooFewLengths, "padding is on the right, and lengths are told", "it should hold"),
    (PaddedOnTheLeft, "padding is on the right, and lengths are told", "isn't True on the left"),
    (PaddingIsLearned, "padding is on the right, and lengths are told", "where there is padding"),
    (WidthMatters, "a batch is a function of its draw", "alone has another source"),
    (EmptyRowsAreValid, "an empty row has no target", "something valid"),
    (Repeated, "parts are disjoint", "rows of the validation part are in the training part"),
    (NotInexact, "text comes back exactly", "says exact = False"),
    (Joined, "text comes back exactly", "which has other ids"),
    (ClassIsMask, "special tokens have no text, and no text is special", "are one id"),
    (OtherNames, "special tokens have no text, and no text is special", "specials has cls"),
    (SpeaksOfMasks, "special tokens have no text, and no text is special", "holds the special ids"),
]


def examine(component: type[Any], name: str) -> tuple[str, str]:
    is_data = issubclass(component, Pairs | LabelledText)
    suite: Suite[Any] = DATA if is_data else TOKENIZER
    subject = DataSubject(component) if is_data else TokenizerSubject(component)
    check = next(check for check in suite.checks if check.name == name)
    finding = run_check(check, subject)
    return finding.status, finding.message


@pytest.mark.parametrize(("mutant", "name", "told"), CAUGHT, ids=[mutant.__name__ for mutant, _, _ in CAUGHT])
def test_a_seeded_fault_is_caught_by_its_check(mutant: type[Any], name: str, told: str) -> None:
    status, message = examine(mutant, name)
    assert status == "failed"
    assert told in message
    good = next(base for base in mutant.__mro__ if base in (Few, FewNames, Wordpiece))
    assert examine(good, name)[0] == "passed"
