"""Train, validation and test parts of a set of documents, decided by what the documents say and nothing else.

Documents are put in the order of their SHA-256, which is as good as a shuffle and depends on no seed, path or
order of files. The first make up the validation part, the next the test part, the rest is for training. Equal
documents have equal hashes and stay together.

Where that can't work, with fewer than ten different documents or one that outweighs a quarter of everything,
every document is cut instead: the beginning is for training, then comes validation, then test.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from zoo.contracts.data import Split
from zoo.data.documents import Document
from zoo.errors import UserError

FEWEST_DOCUMENTS = 10
"""Different documents that it takes to deal them out whole."""

LARGEST_SHARE = 0.25
"""A document with more than this share of all bytes isn't dealt out whole."""

Item = TypeVar("Item")


class Piece(NamedTuple):
    """Characters ``begin`` to ``end`` of a document; usually all of them."""

    document: Document
    begin: int
    end: int


def split_documents(documents: Sequence[Document], *, validation: float, test: float) -> dict[Split, list[Piece]]:
    """Deal documents out to the three parts.

    Args:
        documents: in any order.
        validation: share of all bytes, at least, in whole documents; 0 for none.
        test: the same.

    Returns:
        the pieces of each part, in the order of the documents' hashes.
    """
    ordered = sorted(documents, key=lambda document: document.digest)
    groups = [list(group) for _, group in itertools.groupby(ordered, key=lambda document: document.digest)]
    total = sum(document.size for document in ordered)
    largest = max((sum(document.size for document in group) for group in groups), default=0)
    if len(groups) < FEWEST_DOCUMENTS or largest > LARGEST_SHARE * total:
        return _cut(ordered, validation, test)
    dealt = deal(groups, {"validation": validation * total, "test": test * total}, lambda document: document.size)
    return {split: [_whole(document) for document in part] for split, part in dealt.items()}


def check_shares(validation: float, test: float) -> None:
    """Refuse shares of validation and test that leave nothing for training.

    Raises:
        UserError: a negative share, or shares that make up everything.
    """
    if min(validation, test) < 0 or validation + test >= 1:
        raise UserError(
            f"validation ({validation}) and test ({test}) are shares of the whole; something must be left for training",
            where="data.validation, data.test",
        )


def deal(
    groups: Iterable[Sequence[Item]], wanted: Mapping[Split, float], weigh: Callable[[Item], float]
) -> dict[Split, list[Item]]:
    """Give each part groups until it has what is wanted; what is left is for training.

    Args:
        groups: what must stay together, in the order in which it is dealt out.
        wanted: the least weight of each part but the train part; 0 for none.
        weigh: the weight of an item.
    """
    parts: dict[Split, list[Item]] = {"train": [], "validation": [], "test": []}
    rest = iter(groups)
    for split, weight in wanted.items():
        while weight > 0 and (group := next(rest, None)):
            parts[split] += group
            weight -= sum(map(weigh, group))
    parts["train"] = [item for group in rest for item in group]
    return parts


def content_hash(documents: Sequence[Document]) -> str:
    """Hash of what all documents say together, whatever their order."""
    return hashlib.sha256(b"".join(sorted(document.digest for document in documents))).hexdigest()


def _whole(document: Document) -> Piece:
    return Piece(document, 0, document.characters)


def _cut(documents: Sequence[Document], validation: float, test: float) -> dict[Split, list[Piece]]:
    parts: dict[Split, list[Piece]] = {"train": [], "validation": [], "test": []}
    for document in documents:
        for split, piece in zip(parts, _cut_one(document, validation, test), strict=True):
            if piece.begin < piece.end:
                parts[split].append(piece)
    return parts


def _cut_one(document: Document, validation: float, test: float) -> Iterator[Piece]:
    length = document.characters
    first = round(length * (1 - validation - test))
    second = first + round((length - first) * validation / (validation + test)) if validation + test else length
    yield Piece(document, 0, first)
    yield Piece(document, first, second)
    yield Piece(document, second, length)
