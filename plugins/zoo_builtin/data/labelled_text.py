"""Texts with a class each: names in two dozen languages, your files, or a data set of Hugging Face's.

    ids = [class], the text's tokens, [separator]      (of these two, what the tokenizer has)

The names are the CLDR's, by Babel: some 21,000, those that languages share left out. Equal texts are in one part
only. A batch is as wide as its longest row, rounded up; ``valid`` says what is padding, on the right. Cost: 2 s
once, then 1 s; 0.1 ms for a batch of 64.
Axes: B batch, T tokens.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from zoo.config import Slot
from zoo.contracts.data import Data, Description, Draw, Split
from zoo.contracts.tokenizer import Tokenizer
from zoo.data.cldr import NameRecords
from zoo.data.decoding import Errors
from zoo.data.documents import check_source, find_files
from zoo.data.hub import HubRecords, HubSet
from zoo.data.record_files import Field, RecordFiles
from zoo.data.records import PARTS, Dealt, Records, deal_out, nth
from zoo.data.rows import Rows, encode_named, open_rows, part_of, rows_of, width_of
from zoo.data.splits import check_shares
from zoo.data.token_cache import TokenCache
from zoo.errors import UserError

__all__ = ["LabelledText"]

logger = logging.getLogger(__name__)

_NO_LABEL = -100
# fmt: off
_LANGUAGES = (
    "cs", "da", "de", "en", "es", "et", "fi", "fr", "hr", "hu", "id", "it",
    "lt", "lv", "nb", "nl", "pl", "pt", "ro", "sk", "sl", "sv", "tr", "vi",
)
# fmt: on


class LabelledText(Data):
    """Short texts for classification."""

    slots: ClassVar[Mapping[str, Slot]] = {"tokenizer": Slot("tokenizer", "byte")}

    @dataclasses.dataclass(kw_only=True)
    class Config(Data.Config):
        """Where the texts come from, and how long they may be."""

        source: Literal["languages", "files", "hub"] = "languages"
        """``languages``, names of countries, currencies, months and more with the language that they are in;
        ``files``; or ``hub``: a data set of Hugging Face's ``datasets``, an extra."""
        languages: list[str] = dataclasses.field(default_factory=lambda: list(_LANGUAGES))
        """Codes of the languages, all in Latin letters by default."""
        files: list[Path] = dataclasses.field(default_factory=list)
        """Files, folders and globs: ``.csv`` and ``.tsv`` with a line of names, ``.jsonl``."""
        dataset: str | None = None
        """For ``source: hub``, a name on the hub, or a folder that the library's ``save_to_disk`` made."""
        dataset_config: str | None = None
        """Which configuration of the data set, if it has several."""
        dataset_split: str = "train"
        """Which part of the data set; it is split anew, by ``validation`` and ``test``."""
        text_field: str = "text"
        """Key or column of the text."""
        label_field: str = "label"
        """Key or column of the label, a text or a whole number."""
        errors: Errors = "error"
        """What UTF-8 can't hold: stop and say where, or ``replace`` it by U+FFFD and say how much."""
        length: int = 64
        """Most tokens of a row, special ones included; what is longer is cut, and counted."""
        multiple: int = 8
        """The width of a batch is rounded up to a multiple of this."""
        validation: float = 0.05
        """Share of the different texts for validation; 0 for none."""
        test: float = 0.05
        """Share of them for the final test; 0 for none."""

    def __init__(self, config: Any, *, cache: Path, tokenizer: Tokenizer) -> None:
        super().__init__(config, cache=cache)
        _check_config(config)
        self._tokenizer = tokenizer
        self._dealt: Dealt | None = None
        self._tokens: TokenCache | None = None
        self._labels: dict[Split, np.ndarray] = {}
        self._made: dict[Split, Rows] = {}

    def prepare(self) -> None:
        """Read and split the texts, fit the tokenizer on the train part, write the token cache.

        Raises:
            UserError: missing or empty files, a line without text or label, a label that the train part doesn't
                have, an empty part, a single class.
        """
        if self._tokens is not None:
            return
        records = self._records()
        dealt = deal_out(records, validation=self.config.validation, test=self.config.test)
        self._check_labels(records, dealt)
        tokens = open_rows(self.cache, records, dealt, self._tokenizer)
        self._room()
        self._dealt, self._tokens = dealt, tokens
        self._labels = {split: dealt.labels[dealt.of(split)].astype(np.int64) for split in PARTS}
        self._report(records)

    def describe(self) -> Description:
        """Vocabulary, longest row, and number of classes."""
        classes = len(self.labels())
        return Description(vocab_size=self._tokenizer.vocab_size, max_length=self.config.length, classes=classes)

    def size(self, split: Split) -> int:
        """Number of texts in a part."""
        return self._rows(split).lengths.size

    def lengths(self, split: Split) -> np.ndarray:
        """Tokens of each row."""
        return self._rows(split).lengths.clip(max=self._room()) + sum(map(len, self._around()))

    def labels(self) -> tuple[str, ...]:
        """The classes, sorted."""
        return self._prepared().names

    def batch(self, draw: Draw, split: Split) -> dict[str, torch.Tensor]:
        """Texts of a part, as wide as the longest of them.

        Returns:
            ids: (B, T) int64.
            valid: (B, T) bool, False where there is padding.
            labels: (B,) int64, places in ``labels()``; -100 in an empty row.
        """
        rows, samples = self._rows(split), draw.samples
        if samples.size and samples.max() >= rows.lengths.size:
            raise IndexError(f"sample {samples.max()} of {rows.lengths.size} in the {split} part")
        ids = [rows.of(sample)[: self._room()] if sample >= 0 else None for sample in samples.tolist()]
        labels = np.where(samples >= 0, self._labels[split][samples], _NO_LABEL)
        return {**self._padded(ids), "labels": torch.from_numpy(labels)}

    def read_texts(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Texts of one's own as a batch without labels; needs only a tokenizer that has learned.

        Returns:
            ids and valid as in ``batch``.

        Raises:
            UserError: a text that the tokenizer can't express, or of which it leaves nothing.
        """
        places = [f"text {number} of {len(texts)}" for number in range(1, len(texts) + 1)]
        encoded = encode_named(self._tokenizer, list(texts), places)
        if cut := sum(ids.size > self._room() for ids in encoded):
            logger.warning("%d of %d texts are longer than %d tokens and were cut", cut, len(texts), self.config.length)
        return self._padded([ids[: self._room()] for ids in encoded])

    def fingerprint(self) -> str:
        """Hash of the texts and labels, of their split, of the tokenizer and of the length."""
        dealt = self._prepared()
        knobs = [self.config.length, self.config.multiple]
        parts = hashlib.sha256(dealt.parts.tobytes()).hexdigest()
        facts = [dealt.content, parts, self._tokenizer.fingerprint(), knobs]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, fitted on the train part."""
        return self._tokenizer

    def ceiling(self, split: Split) -> float:
        """The best accuracy on a part, from 0 to 1, as far as equal texts have different labels.

        That of an oracle who knows the part by heart: of a text's labels, the most frequent one is right. For the
        names it is 1, as those that languages share are left out.
        """
        labels: dict[str, Counter[str]] = defaultdict(Counter)
        for record in part_of(self._records(), self._prepared(), split):
            labels[record.texts[0]][record.label] += 1
        rows = self.size(split)
        return sum(max(counts.values()) for counts in labels.values()) / rows if rows else 1.0

    def _padded(self, encoded: Sequence[np.ndarray | None]) -> dict[str, torch.Tensor]:
        """Rows with the special ids around them, ``None`` for an empty one."""
        before, after = self._around()
        rows = [np.empty(0, np.int64) if ids is None else np.concatenate([before, ids, after]) for ids in encoded]
        lengths = np.array([row.size for row in rows], dtype=np.int64)
        width = width_of(lengths, multiple=self.config.multiple, most=self.config.length)
        fill = self._tokenizer.specials.get("padding", self._tokenizer.end_of_text)
        valid_BT = np.arange(width) < lengths[:, None]
        ids_BT = np.full(valid_BT.shape, fill, dtype=np.int64)
        ids_BT[valid_BT] = np.concatenate(rows) if rows else []
        return {"ids": torch.from_numpy(ids_BT), "valid": torch.from_numpy(valid_BT)}

    def _around(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids in front of a text and behind it."""
        specials = self._tokenizer.specials
        front, behind = ([specials[name]] if name in specials else [] for name in ("class", "separator"))
        return np.array(front, dtype=np.int64), np.array(behind, dtype=np.int64)

    def _room(self) -> int:
        """Most tokens of a text.

        Raises:
            UserError: the length leaves none.
        """
        specials = sum(map(len, self._around()))
        if specials >= self.config.length:
            raise UserError(
                f"length is {self.config.length}, and {specials} tokens of a row are special",
                where="data.length",
                fix=f"set it to more than {specials}",
            )
        return self.config.length - specials

    def _prepared(self) -> Dealt:
        if self._dealt is None:
            raise RuntimeError("data is read before prepare()")
        return self._dealt

    def _rows(self, split: Split) -> Rows:
        if self._tokens is None:
            raise RuntimeError("data is read before prepare()")
        if split not in self._made:
            (self._made[split],) = rows_of(self._tokens, split, texts=1, end=self._tokenizer.end_of_text)
        return self._made[split]

    def _check_labels(self, records: Records, dealt: Dealt) -> None:
        """Every part has texts, the train part has every label, and there are two at least."""
        shares = {"train": 1.0, "validation": self.config.validation, "test": self.config.test}
        for split in PARTS:
            if not shares[split]:
                logger.info("no %s: data.%s is 0", split, split)
            elif not dealt.of(split).size:
                raise UserError(
                    f"the {split} part has no text; there are {dealt.parts.size} in all",
                    where=self._source_name(),
                    fix="give more texts",
                )
        known = np.isin(dealt.labels, dealt.labels[dealt.of("train")])
        if not known.all():
            first = int(np.argmin(known))
            record, split = nth(records, first), PARTS[dealt.parts[first]]
            raise UserError(
                f"the label {record.label!r} is in the {split} part, but not in the train part",
                where=record.place,
                fix=f"give more texts with this label, remove it, or make data.{split} smaller",
            )
        if len(dealt.names) < 2:
            raise UserError(f"all texts have the label {dealt.names[0]!r}", where=self._source_name())

    def _report(self, records: Records) -> None:
        if isinstance(records, NameRecords):
            count = self._prepared().parts.size
            logger.info("%d names; %d more that several languages share were left out", count, records.shared)
        for split in PARTS:
            lengths = self._rows(split).lengths
            if cut := int((lengths > self._room()).sum()):
                texts = f"{cut} of {lengths.size} texts of the {split} part"
                logger.warning("%s are longer than data.length (%d tokens) and are cut", texts, self.config.length)

    def _records(self) -> Records:
        config = self.config
        if config.source == "languages":
            return NameRecords(config.languages)
        text, label = Field(config.text_field, "data.text_field"), Field(config.label_field, "data.label_field")
        if config.source == "hub":
            return HubRecords(HubSet(config.dataset or "", config.dataset_config, config.dataset_split), text, label)
        return RecordFiles(find_files(config.files), [text], label=label, errors=config.errors)

    def _source_name(self) -> str:
        names = [*map(str, self.config.files), self.config.dataset or ""]
        return f"data.source: {self.config.source} {' '.join(names)}".rstrip()

    def __getstate__(self) -> dict[str, Any]:
        """Another process maps the rows itself."""
        return {**self.__dict__, "_made": {}}


def _check_config(config: LabelledText.Config) -> None:
    check_shares(config.validation, config.test)
    for name in ("length", "multiple"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}", where=f"data.{name}", fix="set it to 1 or more")
    check_source(config.source, config.files, config.dataset)
