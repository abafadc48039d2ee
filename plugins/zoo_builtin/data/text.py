"""Text, cut into windows of equal length: Python's own docs or library, or your files, folders and JSONL.

    part = document, end of text, document, end of text, ...
    sample i of epoch e: inputs part[o + i*stride :][:length], targets one token further on

The offset o is 0 in the first epoch and drawn anew from (seed, epoch) for each later one, so that the windows
don't always break in the same places; the part is a ring, so that every epoch has the same number of samples.
Tokens are made once and mapped from the cache. Cost: about 0.1 ms for a batch of 32 x 256.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from zoo.config import Slot
from zoo.contracts.data import Data, Description, Draw, Split
from zoo.contracts.tokenizer import Tokenizer
from zoo.data.decoding import Errors
from zoo.data.documents import Documents, Files, PythonDocs, check_source, find_files, standard_library
from zoo.data.hub import HubDocuments, HubSet
from zoo.data.permutation import hash64
from zoo.data.rows import fit_tokenizer
from zoo.data.splits import Piece, check_shares, content_hash, split_documents
from zoo.data.token_cache import TokenCache, Tokens, open_or_build
from zoo.errors import UserError

__all__ = ["Text"]

logger = logging.getLogger(__name__)

_NO_TARGET = -100
_GROUP = 4_000_000  # characters that go to the tokenizer at a time


class Text(Data):
    """Windows of text for language models."""

    slots: ClassVar[Mapping[str, Slot]] = {"tokenizer": Slot("tokenizer", "byte")}

    @dataclasses.dataclass(kw_only=True)
    class Config(Data.Config):
        """Where the text comes from and how it is cut."""

        source: Literal["python-docs", "python-stdlib", "files", "hub"] = "python-docs"
        """``python-docs`` (0.5 MB of English), ``python-stdlib`` (10 MB of code), ``files``, or ``hub``: a data set
        of Hugging Face's ``datasets``, an extra."""
        files: list[Path] = dataclasses.field(default_factory=list)
        """Files, folders and globs. A document is a file, or a line of a ``.jsonl`` file."""
        field: str = "text"
        """Key of the text in a line of JSONL, or its column in a data set."""
        dataset: str | None = None
        """For ``source: hub``, a name on the hub, or a folder that the library's ``save_to_disk`` made. A document is
        a row."""
        dataset_config: str | None = None
        """Which configuration of the data set, if it has several."""
        dataset_split: str = "train"
        """Which part of the data set; it is split anew, by ``validation`` and ``test``."""
        errors: Errors = "error"
        """Bytes that are no UTF-8: stop and say where, or ``replace`` them by U+FFFD and say how many."""
        length: int = 256
        """Tokens in a window."""
        stride: int | None = None
        """Tokens from one window to the next; null means ``length``. Where windows overlap, validation and test
        count each target once, with as much context as there is."""
        documents: Literal["joined", "masked"] = "joined"
        """A window may hold the end of one document and the beginning of the next: let the model look across
        (``joined``), or hide them from each other, with no target across (``masked``)."""
        validation: float = 0.05
        """Share of the text for validation, in whole documents; 0 for none."""
        test: float = 0.05
        """Share of the text for the final test, in whole documents; 0 for none."""

    def __init__(self, config: Any, *, cache: Path, tokenizer: Tokenizer) -> None:
        super().__init__(config, cache=cache)
        _check_config(config)
        self._tokenizer = tokenizer
        self._stride = config.stride or config.length
        self._tokens: TokenCache | None = None
        self._content = ""

    def prepare(self) -> None:
        """Read and split the documents, fit the tokenizer, write the token cache; or find all that done.

        Raises:
            UserError: a missing, empty, undecodable or too short text, with its path and numbers.
        """
        if self._tokens is not None:
            return
        source = self._open_source()
        documents = source.scan()
        if not documents:
            what = "the text is empty: no document holds a character"
            raise UserError(what, where=self._source_name(), fix="name files with text in them: data.files")
        pieces = split_documents(documents, validation=self.config.validation, test=self.config.test)
        self._content = content_hash(documents)
        self._fit(source, pieces["train"])
        self._tokens = self._open_tokens(source, pieces)
        self._check_lengths(self._tokens)

    def describe(self) -> Description:
        """Vocabulary and window length."""
        return Description(vocab_size=self._tokenizer.vocab_size, max_length=self.config.length)

    def size(self, split: Split) -> int:
        """Number of windows in a part."""
        return max(0, self._part(split).size - 1 - self.config.length + self._stride) // self._stride

    def batch(self, draw: Draw, split: Split) -> dict[str, torch.Tensor]:
        """Windows of a part.

        Returns:
            ids: (B, T) int64.
            targets: (B, T) int64, the id that follows each; -100 where there is nothing to predict.
            documents: (B, T) int64, only if ``documents: masked``: equal numbers are one document.
        """
        part, samples = self._part(split), draw.samples
        if samples.size and samples.max() >= self.size(split):
            raise IndexError(f"sample {samples.max()} of {self.size(split)} in the {split} part")
        starts = samples.clip(min=0) * self._stride
        if split == "train":
            starts = starts + self._offsets(draw)
        window = part.take(starts[:, None] + np.arange(self.config.length + 1), mode="wrap").astype(np.int64)
        ids, targets = window[:, :-1].copy(), window[:, 1:].copy()
        targets[samples < 0] = _NO_TARGET
        if split != "train":
            targets[samples > 0, : self.config.length - self._stride] = _NO_TARGET
        batch = {"ids": torch.from_numpy(ids), "targets": torch.from_numpy(targets)}
        if self.config.documents == "masked":
            ends = ids == self._tokenizer.end_of_text
            targets[ends] = _NO_TARGET
            batch["documents"] = torch.from_numpy(ends.cumsum(axis=1) - ends)
        return batch

    def fingerprint(self) -> str:
        """Hash of the documents, of their split, of the tokenizer and of the windows."""
        knobs = {name: getattr(self.config, name) for name in ("length", "documents", "validation", "test")}
        facts = [self._content, self._tokenizer.fingerprint(), knobs, self._stride]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, fitted on the train part."""
        return self._tokenizer

    def _offsets(self, draw: Draw) -> np.ndarray:
        drawn = hash64(draw.seed, draw.epochs) % np.uint64(self.config.length)
        return np.where(draw.epochs > 0, drawn.astype(np.int64), 0)

    def _part(self, split: Split) -> np.ndarray:
        if self._tokens is None:
            raise RuntimeError("data is read before prepare()")
        return self._tokens.parts[split]

    def _open_source(self) -> Documents:
        if self.config.source == "python-docs":
            return PythonDocs()
        if self.config.source == "python-stdlib":
            return Files(standard_library())
        if self.config.source == "hub":
            which = HubSet(self.config.dataset or "", self.config.dataset_config, self.config.dataset_split)
            return HubDocuments(which, self.config.field)
        return Files(find_files(self.config.files), field=self.config.field, errors=self.config.errors)

    def _source_name(self) -> str:
        names = [*map(str, self.config.files), self.config.dataset or ""]
        return f"data.source: {self.config.source} {' '.join(names)}".rstrip()

    def _fit(self, source: Documents, train: list[Piece]) -> None:
        def documents() -> Iterator[str]:
            return (_read(source, piece) for piece in train)

        fit_tokenizer(self._tokenizer, self.cache, _cuts(train), documents)

    def _open_tokens(self, source: Documents, pieces: dict[Split, list[Piece]]) -> TokenCache:
        def tokenize() -> Tokens:
            parts: dict[str, Iterator[np.ndarray]] = {
                split: self._encode(source, part) for split, part in pieces.items()
            }
            return Tokens(vocab_size=self._tokenizer.vocab_size, parts=parts)

        identity = {
            "documents": self._content,
            "parts": {split: _cuts(part) for split, part in pieces.items()},
            "tokenizer": self._tokenizer.fingerprint(),
        }
        return open_or_build(self.cache / "tokens", identity, tokenize)

    def _encode(self, source: Documents, pieces: Iterable[Piece]) -> Iterator[np.ndarray]:
        end = np.array([self._tokenizer.end_of_text])
        for group in _groups(pieces):
            texts = [_read(source, piece) for piece in group]
            try:
                encoded = self._tokenizer.encode_batch(texts)
            except UserError:
                self._encode_one_by_one(source, group, texts)
                raise
            for ids in encoded:
                yield ids
                yield end

    def _encode_one_by_one(self, source: Documents, group: list[Piece], texts: list[str]) -> None:
        """Say which document it is that can't be encoded."""
        for piece, text in zip(group, texts, strict=True):
            try:
                self._tokenizer.encode(text)
            except UserError as error:
                raise UserError(error.what, where=source.name(piece.document.place), fix=error.fix) from None

    def _check_lengths(self, cache: TokenCache) -> None:
        shares = {"train": 1.0, "validation": self.config.validation, "test": self.config.test}
        for split, share in shares.items():
            tokens = cache.parts[split].size
            if not share:
                logger.info("no %s: data.%s is 0", split, split)
            elif tokens < self.config.length + 1:
                self._refuse_short(split, tokens)

    def _refuse_short(self, split: str, tokens: int) -> None:
        ways = ["give more text"]
        if tokens > 1:
            ways.insert(0, f"set data.length to at most {tokens - 1}")
        if split != "train":
            ways.append(f"set data.{split} to a larger share, or to 0 for none")
        raise UserError(
            f"the {split} part has {tokens} tokens, and one window of length {self.config.length} takes "
            f"{self.config.length + 1}",
            where=self._source_name(),
            fix=", or ".join(ways),
        )


def _check_config(config: Text.Config) -> None:
    if config.length < 1:
        raise UserError(f"a window has at least 1 token, not {config.length}", where="data.length")
    if config.stride is not None and not 1 <= config.stride <= config.length:
        raise UserError(f"the stride is 1 to length ({config.length}), not {config.stride}", where="data.stride")
    check_shares(config.validation, config.test)
    check_source(config.source, config.files, config.dataset)


def _read(source: Documents, piece: Piece) -> str:
    return source.text(piece.document)[piece.begin : piece.end]


def _cuts(pieces: list[Piece]) -> str:
    """Hash of which characters of which documents these are."""
    facts = [(piece.document.digest.hex(), piece.begin, piece.end) for piece in pieces]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _groups(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces in groups of some 4 million characters; a longer one is a group of its own."""
    group: list[Piece] = []
    characters = 0
    for piece in pieces:
        length = piece.end - piece.begin
        if group and characters + length > _GROUP:
            yield group
            group, characters = [], 0
        group.append(piece)
        characters += length
    if group:
        yield group
