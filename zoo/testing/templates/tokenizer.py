"""The bytes of UTF-8, and an end of text; change what ``encode`` and ``token_bytes`` say.

    id = byte, 0 to 255; end of text = 256

A tokenizer that learns overrides ``fit``, and keeps what it has learned in ``state``.
"""

from __future__ import annotations

from typing import Any

from zoo.contracts.tokenizer import Tokenizer, utf8
from zoo.errors import UserError

__all__ = ["Mine"]


class Mine(Tokenizer):
    """Nothing to learn, nothing it can't express."""

    vocab_size = 257
    end_of_text = 256

    def encode(self, text: str) -> list[int]:
        """Ids of a text, all of it ordinary."""
        return list(utf8(text))

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 of one token; none for the end of text and for ids out of range."""
        return bytes([token]) if 0 <= token < 256 else b""

    def state(self) -> dict[str, Any]:
        """What ``fit`` learned."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take what ``state`` gave."""
        if state:
            raise UserError(f"this tokenizer has no state, it was given {', '.join(state)}")
