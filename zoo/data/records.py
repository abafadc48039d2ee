"""Records: the few short texts of one sample, and their split into three parts.

A source is walked as often as it is needed, always in the same order, and holds no text in between, so that it may
be larger than memory; only a hash and a few numbers a record are kept.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from zoo.contracts.data import Split
from zoo.contracts.tokenizer import utf8
from zoo.errors import UserError

PARTS: tuple[Split, ...] = ("train", "validation", "test")
"""The parts in the order of their numbers in ``Dealt.parts``."""


class Record(NamedTuple):
    """One sample."""

    texts: tuple[str, ...]
    """Its texts: one, or source and target."""
    label: str
    """Its class; empty where there are no classes."""
    key: str
    """Equal keys stay in one part."""
    place: str
    """How messages call it: a file and a line."""


class Records(ABC):
    """A source of records."""

    @abstractmethod
    def walk(self) -> Iterator[Record]:
        """Every record, in the same order each time.

        Raises:
            UserError: one that can't be read, with its file and line.
        """


class Dealt(NamedTuple):
    """What is kept of a source between walks, in the order of its records."""

    content: str
    """Hash of what all records say."""
    parts: np.ndarray
    """(n,) int8, the number of each record's part in ``PARTS``."""
    labels: np.ndarray
    """(n,) int32, the number of each record's label in ``names``."""
    names: tuple[str, ...]
    """The labels that occur, sorted."""

    def of(self, split: Split) -> np.ndarray:
        """Numbers of a part's records, in order."""
        return np.flatnonzero(self.parts == PARTS.index(split))


def deal_out(records: Records, *, validation: float, test: float) -> Dealt:
    """Walk a source once, and split it by the hashes of its keys, which is as good as a shuffle.

    Args:
        records: the source.
        validation: share of the different keys, at least; 0 for none.
        test: the same.

    Raises:
        UserError: a record that can't be read, or that UTF-8 can't hold.
    """
    content, keys, numbers = hashlib.sha256(), list[int](), list[int]()
    found: dict[str, int] = {}
    for record in records.walk():
        keys.append(int.from_bytes(hashlib.sha256(_utf8(record.key, record)).digest()[:8], "big"))
        numbers.append(found.setdefault(record.label, len(found)))
        for text in (*record.texts, record.label):
            data = _utf8(text, record)
            content.update(len(data).to_bytes(8, "little") + data)
    names = tuple(sorted(found))
    order = np.array([names.index(name) for name in found], dtype=np.int32)
    parts = split_keys(np.array(keys, dtype=np.uint64), validation=validation, test=test)
    return Dealt(content.hexdigest(), parts, order[np.array(numbers, dtype=np.int64)], names)


def split_keys(keys: np.ndarray, *, validation: float, test: float) -> np.ndarray:
    """Parts of records by the hashes of their keys, whatever their order.

    Args:
        keys: (n,) uint64.
        validation: share of the different keys, rounded up; 0 for none.
        test: the same.

    Returns:
        (n,) int8, numbers of ``PARTS``.
    """
    different, inverse = np.unique(keys, return_inverse=True)
    first = int(np.ceil(validation * different.size))
    second = first + int(np.ceil(test * different.size))
    parts = np.zeros(different.size, dtype=np.int8)
    parts[:first], parts[first:second] = PARTS.index("validation"), PARTS.index("test")
    return parts[inverse]


def nth(records: Records, number: int) -> Record:
    """Record ``number`` of a source, for a message about it."""
    return next(record for at, record in enumerate(records.walk()) if at == number)


def _utf8(text: str, record: Record) -> bytes:
    try:
        return utf8(text)
    except UserError as error:
        raise UserError(error.what, where=record.place, fix=error.fix) from None
