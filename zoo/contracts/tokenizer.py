"""Contract of a tokenizer: text to ids and back, with a state that a run folder can keep."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.config import Part
from zoo.errors import UserError

if TYPE_CHECKING:
    import numpy as np


class Tokenizer(Part, ABC):
    """Text to token ids and back. Made as ``Tokenizer(config)``, then either fitted or given a saved state.

    Special tokens (the end of text and ``specials``) have ids but no text: ``encode`` never yields them, whatever
    the text says, and ``decode`` gives them no characters.
    """

    exact: ClassVar[bool] = True
    """Whether ``decode`` gives back every text that ``encode`` took, to the byte. WordPiece, which drops case and
    white space, says False: what it decodes is a normalized text, with the same ids, and ``token_bytes`` are the
    bytes of that."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, special ones included. Known only after ``fit`` or ``restore`` where text decides it."""

    @property
    @abstractmethod
    def end_of_text(self) -> int:
        """Id that separates documents and ends a generated text."""

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of further special tokens by what they are for: ``mask``, ``class``, ``separator``, ``padding``.

        Empty for a tokenizer that has none of them.
        """
        return MappingProxyType({})

    def fit(self, documents: Iterable[str]) -> None:
        """Learn the vocabulary from the training documents. Nothing to learn for a fixed one."""
        del documents

    @abstractmethod
    def encode(self, text: str) -> Sequence[int]:
        """Ids of a text, taken as ordinary text from its first character to its last.

        Raises:
            UserError: a character that the vocabulary can't express (only a character vocabulary has these).
        """

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of several texts, each a 1-D array of integers; override where many go faster than one by one."""
        import numpy as np

        return [np.asarray(self.encode(text), dtype=np.int64) for text in texts]

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one token, possibly a part of a character; empty for special ids and ids out of range.

        A tokenizer that isn't ``exact`` puts the space between two words in front of the second one's bytes.
        """

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of some ids; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", errors="replace")

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What ``fit`` learned, as plain JSON values: goes into a run's tokenizer.json. Empty before that."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` gave.

        Raises:
            UserError: a state that isn't this tokenizer's.
        """

    def fingerprint(self) -> str:
        """Hash of what decides its ids: the class, the knobs, and what it has learned."""
        facts = [type(self).__qualname__, dataclasses.asdict(self.config), self.state()]
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def utf8(text: str) -> bytes:
    """UTF-8 bytes of a text.

    Raises:
        UserError: half of a surrogate pair, which no UTF-8 can hold, with its offset.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"character {error.start} of the text is U+{ord(text[error.start]):04X}, half of a surrogate pair: "
            "it is no character, and UTF-8 can't hold it",
            fix="remove it, or put U+FFFD in its place (data.errors: replace)",
        ) from None
