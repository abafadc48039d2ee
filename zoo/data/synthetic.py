"""Data that is made, not read: each sample a pure function of (part, sample id, knobs), on any machine, unstored.

    sample = the first of the attempts 0, 1, 2, ... whose content belongs to the part and asks for something
    attempt a is drawn with the key hash64(draw, part, sample id, a)
    part of a content = hash64(its tokens and their places) mod 8: 0 to 5 train, 6 validation, 7 test

So the parts are disjoint by construction, whatever the knobs, sizes and ``draw`` of the sets are that they belong to: a
sequence that is in one part of any set is in no other part of any set. What a part holds is a fair sample of the
task, as the hash has nothing to do with the answer.

Nothing is asked but the answers: every other target is -100. An answer of several tokens that is written out stands in
``ids`` as well, one place late; ``blanked`` is the same without it, for models that look ahead.

Axes: B rows, T tokens, S slices, A tokens of an answer, P tokens of a prompt.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo.contracts.data import Data, Description, Draw, Split
from zoo.data.permutation import hash64
from zoo.data.row_random import RowRandom
from zoo.errors import UserError

PARTS: tuple[Split, ...] = ("train", "validation", "test")

NO_TARGET = -100

BILLION = 10**9
"""A chance level is a whole number of billionths, so that sums of it are exact."""

_SALT = 0x5A3D  # parts a content's hash from every other use of hash64
_LOOKED_AT = 256  # samples of each part that ``prepare`` makes
_FEWEST = 16  # different ones that must be among them
_ATTEMPTS: Mapping[Split, int] = {"train": 3, "validation": 16, "test": 16}  # made at once: most samples need no more
_MOST_ATTEMPTS = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """Samples as a task draws them, a row each."""

    ids: np.ndarray
    """(B, T) int64."""
    targets: np.ndarray
    """(B, T) int64, -100 where nothing is asked; a row without any target is drawn again."""
    chance: np.ndarray | float
    """(B,) or one for all: accuracy of the best guess that knows only where a target stands."""
    facts: Mapping[str, np.ndarray]
    """(B,) int64 each: what the samples are told apart by."""
    lengths: np.ndarray | None = None
    """(B,) tokens of each row; ``None`` where all are T."""
    written: np.ndarray | None = None
    """(B, T) bool, which ids are an answer's own; ``None`` where answers are not written out."""

    def valid(self) -> np.ndarray:
        """(B, T) bool: which ids are tokens."""
        if self.lengths is None:
            return np.ones_like(self.ids, dtype=bool)
        return np.arange(self.ids.shape[1]) < self.lengths[:, None]

    def content(self) -> np.ndarray:
        """(B,) uint64, a hash of the tokens and their places, padding left out."""
        words_BT = hash64(self.ids, np.arange(self.ids.shape[1])[None], _SALT)
        return hash64(np.where(self.valid(), words_BT, np.uint64(0)).sum(axis=1, dtype=np.uint64))

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, batch first, by name."""
        chance_B = np.broadcast_to(np.rint(np.asarray(self.chance) * BILLION).astype(np.int64), len(self.ids))
        found = {"ids": self.ids, "targets": self.targets, "chance": chance_B, "content": self.content()}
        found |= {f"fact {name}": values_B for name, values_B in self.facts.items()}
        if self.lengths is not None:
            found["valid"] = self.valid()
        if self.written is not None:
            found["written"] = self.written
        return found


class Synthetic(Data):
    """A task that is made. A subclass says ``vocab_size``, ``blank``, ``widths``, ``bins``, ``make`` and ``answer``.

    Attributes:
        vocab_size: number of token ids.
        blank: the id that stands in ``blanked`` where an answer is written.
        widths: tokens of a row, by part.
        bins: for each fact the largest value of each slice, in rising order; a fact with one slice isn't told apart.
    """

    vocab_size: int
    blank: int
    widths: Mapping[Split, int]
    bins: Mapping[str, list[int]]

    @dataclasses.dataclass(kw_only=True)
    class Config(Data.Config):
        """How much is made."""

        samples: int = 100_000
        """Samples of the training part."""
        validation: int = 1000
        """Samples of the validation part; 0 for none."""
        test: int = 1000
        """Samples of the test part; 0 for none."""
        draw: int = 0
        """Another number gives other samples of the same task. No training sample of one is a test sample of
        another."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        for name, least in {"samples": 1, "validation": 0, "test": 0, "draw": 0}.items():
            if getattr(config, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(config, name)}")

    @abstractmethod
    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples of a part, a row for each key of ``random``, ``widths[split]`` wide; any content, in any part."""

    @abstractmethod
    def answer(self, ids: list[int]) -> list[int]:
        """The oracle: what is right at each place of a row without padding, any number where nothing is asked.

        It reads the prompt alone, so blanks in place of a written answer don't disturb it.
        """

    def prepare(self) -> None:
        """Make some samples of each part.

        Raises:
            UserError: these knobs allow so few different samples that a part has hardly any.
        """
        for split in PARTS:
            looked_at = min(self.size(split), _LOOKED_AT)
            different = len(np.unique(self._rows(np.arange(looked_at), split)["content"])) if looked_at else 0
            if different < min(looked_at, _FEWEST):
                raise self._too_few(split, f"{looked_at} samples are {different} different ones")

    def describe(self) -> Description:
        """Vocabulary, and the widest row of any part."""
        return Description(vocab_size=self.vocab_size, max_length=max(self.widths.values()))

    def size(self, split: Split) -> int:
        """Number of samples in a part."""
        return int(self.config.samples if split == "train" else getattr(self.config, split))

    def slices(self) -> tuple[str, ...]:
        """``length_8``, ``pairs_4`` and so on: a fact, and the largest value that belongs to the slice."""
        return tuple(f"{name}_{last}" for name, bins in self.bins.items() if len(bins) > 1 for last in bins)

    def batch(self, draw: Draw, split: Split) -> dict[str, torch.Tensor]:
        """Samples of a part.

        Returns:
            ids: (B, T) int64.
            targets: (B, T) int64, the answers; -100 everywhere else.
            chance: (B,) int64, see ``chance``, in billionths.
            slices: (B, S) bool, only where there are slices.
            valid: (B, T) bool, only where rows differ in length.
            blanked: (B, T) int64, the ids without the answers, only where answers are written out.
        """
        samples = draw.samples
        if samples.size and samples.max() >= self.size(split):
            raise IndexError(f"sample {samples.max()} of {self.size(split)} in the {split} part")
        rows, there_B = self._rows(samples.clip(min=0), split), samples >= 0
        there_B1 = there_B[:, None]
        found = {"ids": rows["ids"], "targets": np.where(there_B1, rows["targets"], NO_TARGET)}
        found["chance"] = rows["chance"] * there_B
        if self.slices():
            found["slices"] = self._slices_of(rows) & there_B1
        if "valid" in rows:
            found["valid"] = rows["valid"] & there_B1
        if "written" in rows:
            found["blanked"] = np.where(rows["written"], self.blank, rows["ids"])
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in found.items()}

    def chance(self, split: Split) -> float:
        """Accuracy of the best guess that knows where a target stands and not what the input says, over a part.

        The mean over the part's first 1,000 samples, where it depends on the sample.
        """
        rows = self._rows(np.arange(min(self.size(split), 1000)), split)
        asked_B = (rows["targets"] != NO_TARGET).sum(axis=1)
        return float((rows["chance"] * asked_B).sum()) / float(asked_B.sum() * BILLION)

    def oracle(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """(B, T) int64: the right answer wherever one is asked for, worked out without a model."""
        ids_BT = batch["ids"]
        lengths = batch["valid"].sum(1).tolist() if "valid" in batch else [ids_BT.shape[1]] * len(ids_BT)
        found_BT = torch.zeros_like(ids_BT)
        for row, length in enumerate(lengths):
            if length:
                found_BT[row, :length] = torch.tensor(self.answer(ids_BT[row, :length].tolist()))
        return found_BT

    def fingerprint(self) -> str:
        """Hash of the class and of the knobs that shape a sample."""
        knobs = {name: value for name, value in dataclasses.asdict(self.config).items() if name != "batch_size"}
        return hashlib.sha256(json.dumps([type(self).__qualname__, knobs], sort_keys=True).encode()).hexdigest()

    def _slices_of(self, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """(B, S) bool."""
        columns = []
        for name, bins in self.bins.items():
            if len(bins) > 1:
                place_B = np.searchsorted(bins, rows[f"fact {name}"])
                columns += [place_B == number for number in range(len(bins))]
        return np.stack(columns, axis=1)

    def _rows(self, samples: np.ndarray, split: Split) -> dict[str, np.ndarray]:
        """The samples as arrays: for each the first attempt that is in the part and has a target."""
        pending, first, batch = np.arange(samples.size), 0, _ATTEMPTS[split]
        places: list[np.ndarray] = []
        pieces: list[dict[str, np.ndarray]] = []
        while pending.size or not pieces:
            if first >= _MOST_ATTEMPTS:
                raise self._too_few(split, f"sample {samples[pending[0]]} found none in {first} attempts")
            attempts = np.arange(first, first + batch)[None]
            keys = hash64(self.config.draw, PARTS.index(split), samples[pending][:, None], attempts)
            made = self.make(RowRandom(keys.ravel()), split).arrays()
            fits = (_part_of(made["content"]) == PARTS.index(split)) & (made["targets"] != NO_TARGET).any(axis=1)
            fits = fits.reshape(pending.size, batch)
            found = fits.any(axis=1)
            chosen = np.flatnonzero(found) * batch + fits.argmax(axis=1)[found]
            places.append(pending[found])
            pieces.append({name: array[chosen] for name, array in made.items()})
            pending, first = pending[~found], first + batch
        order = np.concatenate(places).argsort()
        return {name: np.concatenate([piece[name] for piece in pieces])[order] for name in pieces[0]}

    def _too_few(self, split: Split, what: str) -> UserError:
        return UserError(
            f"these knobs allow too few different samples for three parts: of the {split} part, {what}",
            where="data",
            fix="make the task larger: longer samples, or more symbols",
        )


def written_out(
    prompt_BP: np.ndarray, prompt_B: np.ndarray, answer_BA: np.ndarray, answer_B: np.ndarray, width: int
) -> dict[str, np.ndarray]:
    """``ids``, ``targets``, ``lengths`` and ``written`` of prompts, each followed by its answer but for the last token.

    Args:
        prompt_BP: prompts; the last token of each is where the first one of the answer is asked for.
        prompt_B: how long each of them is.
        answer_BA: answers.
        answer_B: how long each of them is; one of 0 tokens makes a row without a target.
        width: T, at least the longest prompt and answer together, less 1.
    """
    place_BT = np.arange(width)[None] - prompt_B[:, None]
    told_BT = _at(answer_BA, place_BT + 1)
    written_BT = (place_BT >= 0) & (place_BT + 1 < answer_B[:, None])
    asked_BT = (place_BT >= -1) & (place_BT + 1 < answer_B[:, None])
    ids_BT = np.where(place_BT < 0, _at(prompt_BP, place_BT + prompt_B[:, None]), _at(answer_BA, place_BT))
    lengths_B = prompt_B + (answer_B - 1).clip(min=0)
    return {
        "ids": np.where(np.arange(width) < lengths_B[:, None], ids_BT, 0),
        "targets": np.where(asked_BT, told_BT, NO_TARGET),
        "lengths": lengths_B,
        "written": written_BT,
    }


def _at(rows_BN: np.ndarray, places_BT: np.ndarray) -> np.ndarray:
    """(B, T) values at some places of each row; places outside of it give its first or last value."""
    return np.take_along_axis(rows_BN, places_BT.clip(0, rows_BN.shape[1] - 1), axis=1)


def _part_of(content_B: np.ndarray) -> np.ndarray:
    """(B,) place in ``PARTS``: three quarters for training, an eighth for each of the others."""
    return np.clip(content_B % np.uint64(8), 5, 7).astype(np.int64) - 5
