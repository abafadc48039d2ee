"""Pairs of a source and a target text: dates in many languages and their ISO form, or your files.

    source    = its tokens
    ids       = end of text, target          (what the decoder reads)
    targets   = target, end of text          (what it must say next)

The one shift of the whole pipeline is here. A batch is as wide as its longest row, rounded up; ``valid`` and
``source_valid`` say what is padding, which thus can't change a result. The dates are the CLDR's, by Babel: some
110,000 pairs, of which each calendar date is in one part only. Cost: 5 s once, then 1 s; 0.1 ms for a batch of 64.
Axes: B batch, S source tokens, T target tokens.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from zoo.config import Slot
from zoo.contracts.data import Data, Description, Draw, Split
from zoo.contracts.tokenizer import Tokenizer
from zoo.data.cldr import PATTERNS, DateRecords
from zoo.data.decoding import Errors
from zoo.data.documents import check_source, find_files
from zoo.data.record_files import Field, RecordFiles
from zoo.data.records import PARTS, Dealt, Record, Records, deal_out, nth
from zoo.data.rows import Rows, open_rows, part_of, rows_of, width_of
from zoo.data.splits import check_shares
from zoo.data.token_cache import TokenCache
from zoo.errors import UserError

__all__ = ["Pairs"]

logger = logging.getLogger(__name__)

_NO_TARGET = -100
# fmt: off
_LOCALES = (
    "en_US", "en_GB", "de_DE", "fr_FR", "es_ES", "it_IT", "pt_BR", "nl_NL", "sv_SE", "da_DK", "fi_FI", "pl_PL",
    "cs_CZ", "hu_HU", "ro_RO", "ru_RU", "uk_UA", "el_GR", "tr_TR", "vi_VN", "id_ID", "ja_JP", "ko_KR", "hi_IN",
)
# fmt: on


class Pairs(Data):
    """Source and target texts for encoder-decoder models."""

    slots: ClassVar[Mapping[str, Slot]] = {"tokenizer": Slot("tokenizer", "char")}

    @dataclasses.dataclass(kw_only=True)
    class Config(Data.Config):
        """Where the pairs come from, and how long they may be."""

        source: Literal["dates", "files"] = "dates"
        """``dates``, as ``de_DE 3. März 2021`` and ``2021-03-03``, or ``files``."""
        locales: list[str] = dataclasses.field(default_factory=lambda: list(_LOCALES))
        """Who writes the dates; a source text begins with the locale's identifier."""
        patterns: list[str] = dataclasses.field(default_factory=lambda: list(PATTERNS))
        """How they write: some of short, medium, long, full."""
        first_year: int = 1950
        """Year of the first date. In a hundred years, two digits say which one."""
        last_year: int = 2049
        """Year of the last date."""
        per_date: int = 3
        """Pairs of each date, in different locales or patterns."""
        files: list[Path] = dataclasses.field(default_factory=list)
        """Files, folders and globs: ``.tsv`` with source, tab, target a line; ``.csv`` and ``.jsonl`` with names."""
        source_field: str = "source"
        """Key or column of the source."""
        target_field: str = "target"
        """Key or column of the target."""
        errors: Errors = "error"
        """What UTF-8 can't hold: stop and say where, or ``replace`` it by U+FFFD and say how much."""
        max_source: int = 64
        """Most tokens of a source."""
        max_target: int = 64
        """Most tokens of a target, its end of text included."""
        overlong: Literal["error", "drop"] = "error"
        """A longer pair: stop and say which, or ``drop`` all such and say how many."""
        multiple: int = 8
        """The width of a batch is rounded up to a multiple of this."""
        validation: float = 0.05
        """Share of the dates, or of the different sources, for validation; 0 for none."""
        test: float = 0.05
        """Share of them for the final test; 0 for none."""

    def __init__(self, config: Any, *, cache: Path, tokenizer: Tokenizer) -> None:
        super().__init__(config, cache=cache)
        _check_config(config)
        self._tokenizer = tokenizer
        self._dealt: Dealt | None = None
        self._tokens: TokenCache | None = None
        self._made: dict[Split, tuple[Rows, Rows]] = {}

    def prepare(self) -> None:
        """Read and split the pairs, fit the tokenizer on both sides of the train part, write the token cache.

        Raises:
            UserError: missing or empty files, a line that isn't a pair, a pair that is too long, an empty part.
        """
        if self._tokens is not None:
            return
        records = self._records()
        dealt = deal_out(records, validation=self.config.validation, test=self.config.test)
        tokens = open_rows(self.cache, records, dealt, self._tokenizer)
        self._dealt, self._tokens = dealt, tokens
        self._check_parts(records)

    def describe(self) -> Description:
        """Vocabulary, and the longer of the two sides."""
        longest = max(self.config.max_source, self.config.max_target)
        return Description(vocab_size=self._tokenizer.vocab_size, max_length=longest)

    def size(self, split: Split) -> int:
        """Number of pairs in a part."""
        return self._rows(split)[0].lengths.size

    def lengths(self, split: Split) -> np.ndarray:
        """Tokens of each pair, of both sides."""
        source, target = self._rows(split)
        return source.lengths + target.lengths

    def batch(self, draw: Draw, split: Split) -> dict[str, torch.Tensor]:
        """Pairs of a part, as wide as the longest of them.

        Returns:
            source: (B, S) int64.
            source_valid: (B, S) bool, False where there is padding.
            ids: (B, T) int64, an end of text and the target.
            targets: (B, T) int64, the target and an end of text; -100 where there is padding.
            valid: (B, T) bool.
        """
        samples = draw.samples
        if samples.size and samples.max() >= self.size(split):
            raise IndexError(f"sample {samples.max()} of {self.size(split)} in the {split} part")
        source, target = self._rows(split)
        end, real = self._tokenizer.end_of_text, samples[samples >= 0]
        fill = self._tokenizer.specials.get("padding", end)
        source_width = self._width(source.lengths[real], self.config.max_source)
        width = self._width(target.lengths[real] + 1, self.config.max_target)
        source_BS, source_valid_BS = source.padded(samples, source_width, fill)
        target_BT, filled_BT = target.padded(samples, width, fill)
        valid_BT = np.concatenate([(samples >= 0)[:, None], filled_BT[:, :-1]], axis=1)
        ids_BT = np.where(valid_BT, np.concatenate([np.full((len(samples), 1), end), target_BT[:, :-1]], axis=1), fill)
        targets_BT = np.where(valid_BT, np.where(filled_BT, target_BT, end), _NO_TARGET)
        arrays = {
            "source": source_BS,
            "source_valid": source_valid_BS,
            "ids": ids_BT,
            "targets": targets_BT,
            "valid": valid_BT,
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def fingerprint(self) -> str:
        """Hash of the pairs, of their split, of the tokenizer and of what is too long."""
        dealt = self._prepared()
        knobs = [getattr(self.config, name) for name in ("max_source", "max_target", "overlong", "multiple")]
        parts = hashlib.sha256(dealt.parts.tobytes()).hexdigest()
        facts = [dealt.content, parts, self._tokenizer.fingerprint(), knobs]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of both sides, fitted on the train part."""
        return self._tokenizer

    def ceiling(self, split: Split) -> float:
        """The best exact match that can be expected on a part, from 0 to 1, as far as its texts are ambiguous.

        For dates, that of an oracle who knows how the locales write: see ``DateRecords.ceiling``. For files, of one
        who knows the part by heart: where a source has several targets, the most frequent one is right.
        """
        records = self._records()
        pairs = [(record.texts[0], record.texts[1]) for record in self._kept(records, split)]
        if isinstance(records, DateRecords):
            return records.ceiling(pairs)
        targets: dict[str, Counter[str]] = defaultdict(Counter)
        for source, target in pairs:
            targets[source][target] += 1
        return sum(max(counts.values()) for counts in targets.values()) / len(pairs) if pairs else 1.0

    def _kept(self, records: Records, split: Split) -> Iterator[Record]:
        """The records of a part but those that are dropped."""
        fits = self._fits(*self._all_rows(split))
        for record, fit in zip(part_of(records, self._prepared(), split), fits, strict=True):
            if fit:
                yield record

    def _width(self, lengths: np.ndarray, most: int) -> int:
        return width_of(lengths, multiple=self.config.multiple, most=most)

    def _prepared(self) -> Dealt:
        if self._dealt is None:
            raise RuntimeError("data is read before prepare()")
        return self._dealt

    def _all_rows(self, split: Split) -> tuple[Rows, Rows]:
        """Sources and targets of a part, those that are too long among them."""
        if self._tokens is None:
            raise RuntimeError("data is read before prepare()")
        source, target = rows_of(self._tokens, split, texts=2, end=self._tokenizer.end_of_text)
        return source, target

    def _rows(self, split: Split) -> tuple[Rows, Rows]:
        """Sources and targets of a part that fit."""
        if split not in self._made:
            source, target = self._all_rows(split)
            fits = self._fits(source, target)
            self._made[split] = source.chosen(fits), target.chosen(fits)
        return self._made[split]

    def _fits(self, source: Rows, target: Rows) -> np.ndarray:
        return (source.lengths <= self.config.max_source) & (target.lengths < self.config.max_target)

    def _check_parts(self, records: Records) -> None:
        shares = {"train": 1.0, "validation": self.config.validation, "test": self.config.test}
        for split in PARTS:
            source, target = self._all_rows(split)
            self._check_lengths(records, split, source, target)
            if not shares[split]:
                logger.info("no %s: data.%s is 0", split, split)
            elif not self.size(split):
                raise UserError(
                    f"the {split} part has no pair; there are {self._prepared().parts.size} in all",
                    where=self._source_name(),
                    fix="give more pairs"
                    + ("" if split == "train" else f", or set data.{split} to a larger share, or to 0 for none"),
                )

    def _check_lengths(self, records: Records, split: Split, source: Rows, target: Rows) -> None:
        long = np.flatnonzero(~self._fits(source, target))
        if not long.size:
            return
        first, count = long[0], f"{long.size} of {source.lengths.size} pairs of the {split} part"
        if self.config.overlong == "drop":
            logger.warning("%s are too long and were dropped", count)
            return
        record = nth(records, int(self._prepared().of(split)[first]))
        raise UserError(
            f"{count} are too long; the first one's source has {source.lengths[first]} tokens, at most "
            f"{self.config.max_source} are allowed, and its target has {target.lengths[first] + 1} with its end, at "
            f"most {self.config.max_target} are",
            where=record.place,
            fix=f"set data.max_source to {max(source.lengths[long])} and data.max_target to "
            f"{max(target.lengths[long]) + 1}, or data.overlong: drop",
        )

    def _records(self) -> Records:
        config = self.config
        if config.source == "dates":
            years = (config.first_year, config.last_year)
            return DateRecords(config.locales, config.patterns, years, config.per_date)
        fields = [Field(config.source_field, "data.source_field"), Field(config.target_field, "data.target_field")]
        return RecordFiles(find_files(config.files), fields, header=False, errors=config.errors)

    def _source_name(self) -> str:
        return f"data.source: {self.config.source} {' '.join(map(str, self.config.files))}".rstrip()

    def __getstate__(self) -> dict[str, Any]:
        """Another process maps the rows itself."""
        return {**self.__dict__, "_made": {}}


def _check_config(config: Pairs.Config) -> None:
    check_shares(config.validation, config.test)
    for name, least in {"max_source": 1, "max_target": 2, "multiple": 1}.items():
        if getattr(config, name) < least:
            raise UserError(
                f"{name} is {getattr(config, name)}", where=f"data.{name}", fix=f"set it to {least} or more"
            )
    check_source(config.source, config.files)
