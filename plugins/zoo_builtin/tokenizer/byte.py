"""The 256 bytes of UTF-8, and an end of text: no vocabulary to learn, nothing it can't express.

    id = byte, 0 to 255; end of text = 256

ByT5 (arXiv:2105.13626) and GPT-like byte models. Cost: one token a byte, so that a text is about four times as
long as with a trained vocabulary, and the embedding is as small as can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.contracts.tokenizer import Tokenizer, utf8
from zoo.errors import UserError

__all__ = ["Byte"]


class Byte(Tokenizer):
    """UTF-8 bytes as tokens."""

    @property
    def vocab_size(self) -> int:
        """257."""
        return 257

    @property
    def end_of_text(self) -> int:
        """256."""
        return 256

    def encode(self, text: str) -> list[int]:
        """The bytes of a text."""
        return list(utf8(text))

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The bytes of several texts, uint8, without a copy."""
        return [np.frombuffer(utf8(text), dtype=np.uint8) for text in texts]

    def token_bytes(self, token: int) -> bytes:
        """The byte; none for the end of text and for ids out of range."""
        return bytes([token]) if 0 <= token < 256 else b""

    def state(self) -> dict[str, Any]:
        """Nothing: the bytes are always the same."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to take.

        Raises:
            UserError: a state of another tokenizer.
        """
        if state:
            raise UserError(f"a byte tokenizer has no state, but this one has {', '.join(state)}")
