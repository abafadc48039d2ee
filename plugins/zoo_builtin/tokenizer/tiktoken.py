"""Published byte-pair vocabularies, by the name that tiktoken gives them: gpt2, cl100k_base, o200k_base, ...

    words by the encoding's pattern, then merges in the order of the published list

GPT-2 (Radford and others 2019) and its successors, from https://github.com/openai/tiktoken. The vocabulary is a
file that is looked for in tiktoken's cache folder or under ``file``, and checked against the hash that tiktoken
carries; there is no network access unless ``download: true``. Cost: some 7 MB of text a second and core.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, Literal

from zoo.contracts.tokenizer import Tokenizer
from zoo.data.byte_pair import BytePairTokenizer, Vocabulary, byte_alphabet
from zoo.errors import UserError

__all__ = ["Tiktoken"]

_FOLDER_VARIABLES = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")


class Tiktoken(BytePairTokenizer):
    """A published vocabulary, read when it is first needed."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Tokenizer.Config):
        """Which vocabulary, and where it lies."""

        encoding: Literal["gpt2", "r50k_base", "cl100k_base", "o200k_base"] = "gpt2"
        """Name of the encoding."""
        file: Path | None = None
        """The vocabulary's file, or the folder that holds it; null looks in TIKTOKEN_CACHE_DIR."""
        download: bool = False
        """Let tiktoken fetch the file from the network if it isn't found."""

    def vocabulary(self) -> Vocabulary:
        """The published vocabulary, or the one that ``restore`` gave.

        Raises:
            UserError: the file isn't there, or isn't the published one.
        """
        if self._vocabulary is None:
            return self.take(_published(self.config.encoding, self._fetch))
        return self._vocabulary

    def state(self) -> dict[str, Any]:
        """The whole vocabulary, so that a run needs no other file."""
        self.vocabulary()
        return super().state()

    def fingerprint(self) -> str:
        """Hash of the vocabulary alone: where its file lies decides no id."""
        return hashlib.sha256(json.dumps(self.state(), sort_keys=True).encode()).hexdigest()

    def _fetch(self, url: str, expected_hash: str) -> bytes:
        """The bytes of a published file."""
        candidates = _candidates(url, self.config.file)
        for path in candidates:
            if path.is_file():
                return _read_checked(path, expected_hash)
        if self.config.download:
            return _download(url, expected_hash)
        places = ", ".join(map(str, candidates))
        raise UserError(
            f"the encoding {self.config.encoding!r} needs {url.rsplit('/', 1)[-1]}, which isn't on this machine",
            where=f"tokenizer.file is {self.config.file or 'null'}; looked for {places}",
            fix=f"get {url} (sha256 {expected_hash}) and name it in tokenizer.file, or put it into the folder "
            "that TIKTOKEN_CACHE_DIR names, or set tokenizer.download: true; byte, char and bpe need no file",
        )


def _published(encoding: str, fetch: Callable[[str, str], bytes]) -> Vocabulary:
    """Run tiktoken's own definition of an encoding, with our reader of files in place of its."""
    from tiktoken_ext import openai_public

    def read_ranks(url: str, expected_hash: str) -> dict[bytes, int]:
        lines = (line.split() for line in fetch(url, expected_hash).splitlines() if line)
        return {base64.b64decode(token): int(rank) for token, rank in lines}

    def read_gpt2(encoder_json_file: str, encoder_json_hash: str, **_merges: str) -> dict[bytes, int]:
        # Ids are in the order of merges, so that the file of merges (vocab.bpe) says nothing new.
        alphabet = byte_alphabet()
        entries = json.loads(fetch(encoder_json_file, encoder_json_hash)).items()
        return {
            bytes(map(alphabet.__getitem__, token)): rank for token, rank in entries if token != openai_public.ENDOFTEXT
        }

    readers = {"load_tiktoken_bpe": read_ranks, "data_gym_to_mergeable_bpe_ranks": read_gpt2}
    definition = openai_public.ENCODING_CONSTRUCTORS[encoding]
    facts = FunctionType(definition.__code__, {**definition.__globals__, **readers})()
    ranks, special = facts["mergeable_ranks"], facts["special_tokens"]
    return Vocabulary(
        facts["pat_str"],
        sorted(ranks, key=ranks.__getitem__),
        end_of_text=special[openai_public.ENDOFTEXT],
        size=max(len(ranks) - 1, *special.values()) + 1,
    )


def _candidates(url: str, file: Path | None) -> list[Path]:
    """Where a published file may lie: under its own name, or under the name that tiktoken's cache gives it."""
    names = (url.rsplit("/", 1)[-1], hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest())
    if file is not None and not file.is_dir():
        return [file]
    folders = (os.environ[variable] for variable in _FOLDER_VARIABLES if os.environ.get(variable))
    folder = file or Path(next(folders, Path(tempfile.gettempdir()) / "data-gym-cache"))
    return [folder / name for name in names]


def _read_checked(path: Path, expected_hash: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}", where="tokenizer") from None
    found = hashlib.sha256(data).hexdigest()
    if found != expected_hash:
        raise UserError(
            f"{path} is damaged, or another file: its sha256 is {found}, not {expected_hash}",
            where="tokenizer",
            fix="delete it and get it again",
        )
    return data


def _download(url: str, expected_hash: str) -> bytes:
    from tiktoken.load import read_file_cached

    try:
        return read_file_cached(url, expected_hash)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise UserError(
            f"can't download {url}: {type(error).__name__}",
            where="tokenizer.download",
            fix=f"get the file (sha256 {expected_hash}) on another machine and name it in tokenizer.file",
        ) from error
