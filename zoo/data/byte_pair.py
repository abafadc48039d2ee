"""Byte-pair tokenizers: a list of byte strings in the order in which they were merged, run by tiktoken's core.

A text is cut into words by a pattern; in each word the two neighbours whose joined bytes come first in the list
are merged, again and again. Sennrich, Haddow and Birch 2016 (arXiv:1508.07909), over bytes as in GPT-2.
"""

from __future__ import annotations

import base64
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.contracts.tokenizer import Tokenizer, utf8
from zoo.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import tiktoken

GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
"""How GPT-2 cuts a text into words, in tiktoken's faster writing."""

# tiktoken's core gives up (a panic, not an exception) on some 500,000 spaces before a word.
_LONGEST_SPACE = 100_000
_ENDLESS_SPACE = re.compile(rf"(?<!\s)\s{{{_LONGEST_SPACE},}}")


class Vocabulary(NamedTuple):
    """What a byte-pair tokenizer has learned."""

    pattern: str
    """Regular expression that cuts a text into words."""
    tokens: list[bytes]
    """Bytes of each id, earlier merges first."""
    end_of_text: int
    """Id of the separator, at or above ``len(tokens)``."""
    size: int
    """Number of ids."""


class BytePairTokenizer(Tokenizer):
    """Base of the byte-pair tokenizers: everything but where the vocabulary comes from."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._vocabulary: Vocabulary | None = None
        self._made: tiktoken.Encoding | None = None

    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """The vocabulary: ``self._vocabulary`` if there is one by now."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, the end of text included."""
        return self.vocabulary().size

    @property
    def end_of_text(self) -> int:
        """Id that separates documents."""
        return self.vocabulary().end_of_text

    def encode(self, text: str) -> list[int]:
        """Ids of a text, all of it ordinary text."""
        utf8(text)  # tiktoken would put U+FFFD in place of a lone surrogate and say nothing
        encoding = self._encoding()
        return [token for piece in _pieces(text) for token in encoding.encode_ordinary(piece)]

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of several texts, on all cores."""
        if len(texts) < 2:
            return [self._encode_array(text) for text in texts]
        self._encoding()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self._encode_array, texts))

    def token_bytes(self, token: int) -> bytes:
        """Bytes of one token; none for the end of text and for ids out of range."""
        tokens = self.vocabulary().tokens
        return tokens[token] if 0 <= token < len(tokens) else b""

    def state(self) -> dict[str, Any]:
        """Pattern, and tokens in base64; empty before there is a vocabulary."""
        if self._vocabulary is None:
            return {}
        texts = [base64.b64encode(token).decode() for token in self._vocabulary.tokens]
        return {**self._vocabulary._asdict(), "tokens": texts}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state.

        Raises:
            UserError: a state that isn't a byte-pair tokenizer's.
        """
        try:
            tokens = [base64.b64decode(text, validate=True) for text in state["tokens"]]
            vocabulary = Vocabulary(state["pattern"], tokens, int(state["end_of_text"]), int(state["size"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"this is no state of a byte-pair tokenizer: {type(error).__name__}: {error}") from None
        self.take(vocabulary)

    def take(self, vocabulary: Vocabulary) -> Vocabulary:
        """Use a vocabulary from now on, and give it back.

        Raises:
            UserError: two equal tokens, a byte that is no token, or an end of text that is one.
        """
        tokens = set(vocabulary.tokens)
        if len(tokens) != len(vocabulary.tokens) or not tokens.issuperset(bytes([byte]) for byte in range(256)):
            raise UserError("a byte-pair vocabulary holds each of the 256 bytes, and no token twice; this one doesn't")
        if not len(tokens) <= vocabulary.end_of_text < vocabulary.size:
            raise UserError(
                f"the end of text is id {vocabulary.end_of_text}; with {len(tokens)} tokens and "
                f"{vocabulary.size} ids it must be between them"
            )
        self._vocabulary, self._made = vocabulary, None
        return vocabulary

    def _encoding(self) -> tiktoken.Encoding:
        if self._made is None:
            import tiktoken

            vocabulary = self.vocabulary()
            ranks = {token: rank for rank, token in enumerate(vocabulary.tokens)}
            name = type(self).__name__
            self._made = tiktoken.Encoding(name, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens={})
        return self._made

    def _encode_array(self, text: str) -> np.ndarray:
        import numpy as np

        utf8(text)
        encoding = self._encoding()
        arrays = [encoding.encode_to_numpy(piece, disallowed_special=()) for piece in _pieces(text)]
        return np.concatenate(arrays)

    def __getstate__(self) -> dict[str, Any]:
        """Another process makes tiktoken's object itself."""
        return {**self.__dict__, "_made": None}


def _pieces(text: str) -> Iterator[str]:
    """The text, cut only inside endless runs of spaces."""
    begin = 0
    runs = _ENDLESS_SPACE.finditer(text) if len(text) > _LONGEST_SPACE else ()
    for run in runs:
        for end in range(run.start() + _LONGEST_SPACE, run.end(), _LONGEST_SPACE):
            yield text[begin:end]
            begin = end
    yield text[begin:]


def byte_alphabet() -> dict[str, int]:
    """GPT-2's way to write bytes as printable characters, as its vocabulary files and ``tokenizers`` have them.

    Returns:
        the byte of each of the 256 characters: itself where it is printable Latin-1, else U+0100 onward.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}
