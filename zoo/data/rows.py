"""Rows: the token ids of records, of different lengths, in one flat array that is mapped from the cache.

Axes: B batch, T tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.contracts.data import Split
from zoo.contracts.tokenizer import Tokenizer
from zoo.data.records import PARTS, Dealt, Record, Records
from zoo.data.token_cache import TokenCache, Tokens, open_or_build
from zoo.errors import UserError

_GROUP = 1_000_000  # characters that go to the tokenizer at a time


class Rows(NamedTuple):
    """Texts of one part as ids."""

    flat: np.ndarray
    """Ids of all of them."""
    starts: np.ndarray
    """(n,) int64, where each one begins."""
    lengths: np.ndarray
    """(n,) int64, how many ids it has."""

    def of(self, sample: int) -> np.ndarray:
        """The ids of one row."""
        return self.flat[self.starts[sample] :][: self.lengths[sample]]

    def padded(self, samples: np.ndarray, width: int, fill: int) -> tuple[np.ndarray, np.ndarray]:
        """Some rows, cut or filled up to one width.

        Args:
            samples: (B,) int64; -1 is an empty row.
            width: T.
            fill: the id that fills a row up.

        Returns:
            ids: (B, T) int64.
            valid: (B, T) bool, which of them are the row's own.
        """
        at = np.arange(width)
        valid_BT = at < np.where(samples < 0, 0, self.lengths[samples])[:, None]
        index_BT = np.where(valid_BT, self.starts[samples][:, None] + at, 0)
        return np.where(valid_BT, self.flat[index_BT].astype(np.int64), fill), valid_BT

    def chosen(self, mask: np.ndarray) -> Rows:
        """Those of the rows that a mask, (n,) bool, says."""
        return Rows(self.flat, self.starts[mask], self.lengths[mask])


def rows_of(tokens: TokenCache, split: Split, *, texts: int, end: int) -> list[Rows]:
    """The rows of a part, one ``Rows`` for each text of a record.

    Args:
        tokens: ids of each text, an end of text after each.
        split: the part.
        texts: texts of a record.
        end: id of the end of text.
    """
    flat = tokens.parts[split]
    ends = np.flatnonzero(flat == end)
    starts = np.concatenate([np.zeros(min(1, ends.size), dtype=np.int64), ends[:-1] + 1])
    return [Rows(flat, starts[text::texts], (ends - starts)[text::texts]) for text in range(texts)]


def width_of(lengths: np.ndarray, *, multiple: int, most: int) -> int:
    """Width of a batch: its longest row, rounded up to a multiple, but never more than ``most``."""
    longest = max(1, int(lengths.max(initial=0)))
    return min(-(-longest // multiple) * multiple, most)


def fit_tokenizer(tokenizer: Tokenizer, folder: Path, train: str, documents: Callable[[], Iterable[str]]) -> None:
    """Fit a tokenizer, unless it has learned before: here, in an earlier run, or in a run it comes from.

    Args:
        tokenizer: takes what it learns, or what it has learned before.
        folder: the cache folder of the data.
        train: hash of the training texts.
        documents: the training texts.
    """
    if tokenizer.state():
        return

    def learn() -> Tokens:
        tokenizer.fit(documents())
        return Tokens(vocab_size=tokenizer.vocab_size, parts={}, notes=tokenizer.state())

    identity = {"tokenizer": tokenizer.fingerprint(), "train": train}
    learned = open_or_build(folder / "tokenizers", identity, learn).notes
    if learned and not tokenizer.state():
        tokenizer.restore(learned)


def open_rows(folder: Path, records: Records, dealt: Dealt, tokenizer: Tokenizer) -> TokenCache:
    """The token file of all records; the tokenizer is fitted and the file written if need be.

    Raises:
        UserError: a text that the tokenizer can't express, or of which it leaves nothing, with its place.
    """
    parts = hashlib.sha256(dealt.parts.tobytes()).hexdigest()
    train = hashlib.sha256(json.dumps([dealt.content, parts]).encode()).hexdigest()
    fit_tokenizer(tokenizer, folder, train, lambda: _texts(records, dealt))

    def tokenize() -> Tokens:
        encoded: dict[str, Iterator[np.ndarray]] = {
            split: _encode(part_of(records, dealt, split), tokenizer) for split in PARTS
        }
        return Tokens(vocab_size=tokenizer.vocab_size, parts=encoded)

    identity = {"records": dealt.content, "parts": parts, "tokenizer": tokenizer.fingerprint()}
    return open_or_build(folder / "tokens", identity, tokenize)


def part_of(records: Records, dealt: Dealt, split: Split) -> Iterator[Record]:
    """The records of one part, in order."""
    wanted = dealt.parts == PARTS.index(split)
    for record, here in zip(records.walk(), wanted, strict=True):
        if here:
            yield record


def _texts(records: Records, dealt: Dealt) -> Iterator[str]:
    for record in part_of(records, dealt, "train"):
        yield from record.texts


def _encode(records: Iterable[Record], tokenizer: Tokenizer) -> Iterator[np.ndarray]:
    end = np.array([tokenizer.end_of_text])
    for group in _groups(records):
        places = [record.place for record in group for _ in record.texts]
        texts = [text for record in group for text in record.texts]
        encoded = encode_named(tokenizer, texts, places)
        yield np.concatenate([piece for ids in encoded for piece in (ids, end)])


def encode_named(tokenizer: Tokenizer, texts: list[str], places: list[str]) -> list[np.ndarray]:
    """Ids of several texts, each at least one.

    Raises:
        UserError: a text that the tokenizer can't express, or of which it leaves nothing, with its place.
    """
    try:
        encoded = tokenizer.encode_batch(texts)
    except UserError:
        _encode_one_by_one(tokenizer, texts, places)
        raise
    for ids, text, place in zip(encoded, texts, places, strict=True):
        if not ids.size:
            raise UserError(
                f"the text {text[:40]!r} has no token" if text else "the text is empty",
                where=place,
                fix="remove the line, or give it a text",
            )
    return encoded


def _encode_one_by_one(tokenizer: Tokenizer, texts: list[str], places: list[str]) -> None:
    """Say which text it is that can't be encoded."""
    for text, place in zip(texts, places, strict=True):
        try:
            tokenizer.encode(text)
        except UserError as error:
            raise UserError(error.what, where=place, fix=error.fix) from None


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Records in groups of some million characters."""
    group: list[Record] = []
    characters = 0
    for record in records:
        group.append(record)
        characters += sum(map(len, record.texts))
        if characters > _GROUP:
            yield group
            group, characters = [], 0
    if group:
        yield group
