"""The characters of the training text, in the order of their code points, and an end of text.

    id = place of the character among the sorted characters of the training part

As in char-rnn and nanoGPT's shakespeare_char. Cost: one token a character; a character that the training text
doesn't have can't be expressed, unless ``unknown: replace`` gives all of them one id.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from zoo.contracts.tokenizer import Tokenizer, utf8
from zoo.errors import UserError

__all__ = ["Char"]

logger = logging.getLogger(__name__)


class Char(Tokenizer):
    """Characters as tokens."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Tokenizer.Config):
        """Knobs of the character vocabulary."""

        unknown: Literal["error", "replace"] = "error"
        """A character that the training text doesn't have: stop, or give it an id that decodes to U+FFFD."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._codes = np.empty(0, dtype=np.uint32)

    @property
    def vocab_size(self) -> int:
        """Number of characters, plus one for the end of text, plus one for the unknown if it has an id."""
        return len(self._codes) + 1 + (self.config.unknown == "replace")

    @property
    def end_of_text(self) -> int:
        """The id after the last character."""
        return len(self._codes)

    def fit(self, documents: Iterable[str]) -> None:
        """Collect the characters of all documents."""
        characters: set[str] = set()
        for document in documents:
            characters.update(document)
        self.restore({"characters": "".join(sorted(characters))})

    def encode(self, text: str) -> list[int]:
        """The id of each character."""
        return self.encode_batch([text])[0].tolist()

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of several texts; reports how many characters had to be replaced."""
        found = [self._look_up(text) for text in texts]
        replaced = sum(int(unknown.sum()) for _, unknown in found)
        if replaced:
            logger.warning("%d characters that the vocabulary doesn't have were replaced", replaced)
        return [ids for ids, _ in found]

    def _look_up(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids and which of them are unknown, both (characters,)."""
        if not self._codes.size:
            raise RuntimeError("a char tokenizer has no vocabulary before fit or restore")
        utf8(text)
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        ids = np.searchsorted(self._codes, codes).clip(max=self._codes.size - 1)
        unknown = self._codes[ids] != codes
        if unknown.any() and self.config.unknown == "error":
            self._refuse(text, int(unknown.argmax()))
        ids[unknown] = self.end_of_text + 1
        return ids, unknown

    def _refuse(self, text: str, offset: int) -> None:
        raise UserError(
            f"character {offset} of the text is {text[offset]!r} (U+{ord(text[offset]):04X}), which none of the "
            f"{self._codes.size} characters of the vocabulary is",
            fix="set tokenizer.unknown: replace, or take the byte tokenizer, which can express every text",
        )

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 of the character; U+FFFD for the unknown, nothing for the end of text and ids out of range."""
        if 0 <= token < self._codes.size:
            return chr(self._codes[token]).encode()
        is_unknown = self.config.unknown == "replace" and token == self.end_of_text + 1
        return "\ufffd".encode() if is_unknown else b""

    def state(self) -> dict[str, Any]:
        """The characters, as one text."""
        return {"characters": "".join(map(chr, self._codes))} if self._codes.size else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take the characters.

        Raises:
            UserError: no text of characters, each once and sorted.
        """
        characters = state.get("characters")
        if not isinstance(characters, str) or sorted(set(characters)) != list(characters):
            raise UserError("this is no state of a character tokenizer: it needs 'characters', sorted, each once")
        utf8(characters)
        self._codes = np.frombuffer(characters.encode("utf-32-le"), dtype="<u4")
