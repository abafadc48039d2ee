"""Continuing texts, and showing them while they grow."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from zoo.contracts.architecture import Architecture
from zoo.contracts.tokenizer import Tokenizer
from zoo.errors import UserError
from zoo.generation.prompts import Stop
from zoo.generation.tokens import generate


@dataclasses.dataclass(frozen=True)
class Continuation:
    """A prompt, or an encoder-decoder's source, and what was written; ``tokens`` and ``stop`` as in ``Generated``."""

    prompt: str
    text: str
    tokens: list[int]
    stop: Stop


class TextModel(Protocol):
    """A model with its tokenizer, for example a loaded run."""

    @property
    def model(self) -> Architecture:
        """The network."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What made its ids, if it was trained on text."""


def continue_texts(
    source: TextModel,
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    beams: int = 1,
    length_penalty: float = 1.0,
    seed: int = 0,
    cache: bool = True,
    stream: Callable[[int, str], None] | None = None,
) -> list[Continuation]:
    """Continue texts; an empty one starts from the end of text. Options as in ``generate``.

    Args:
        source: the model and its tokenizer.
        prompts: texts, taken as ordinary text from the first character to the last. An encoder-decoder reads each
            as its source, and begins to write at the end of text.
        stream: called with (index of the prompt, piece of text); the pieces make up the text exactly.

    Raises:
        UserError: as ``generate``; a model without tokenizer; a character that the tokenizer doesn't know.
    """
    tokenizer = source.tokenizer
    if tokenizer is None:
        raise UserError("this run has no tokenizer, so it can't write text", fix="train on a text data set")
    streams = [TextStream(tokenizer.token_bytes) for _ in prompts]

    def pass_on(row: int, token: int) -> None:
        piece = streams[row].feed(token)
        if stream and piece:
            stream(row, piece)

    encoded = [list(tokenizer.encode(prompt)) for prompt in prompts]
    reads = "cross" in source.model.offers
    generated = generate(
        source.model,
        [[]] * len(prompts) if reads else encoded,
        sources=encoded if reads else None,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        beams=beams,
        length_penalty=length_penalty,
        seed=seed,
        end_of_text=tokenizer.end_of_text,
        vocab_size=tokenizer.vocab_size,
        cache=cache,
        stream=pass_on,
    )
    for row, text in enumerate(streams):
        if (rest := text.finish()) and stream:
            stream(row, rest)
    texts = [tokenizer.decode(result.tokens) for result in generated]
    return [
        Continuation(prompt, text, result.tokens, result.stop)
        for prompt, text, result in zip(prompts, texts, generated, strict=True)
    ]


class TextStream:
    """Turns ids into text one by one, and never shows a part of a character.

    Args:
        token_bytes: UTF-8 bytes of an id, possibly a part of a character.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """The characters that are complete with this id."""
        return self._decoder.decode(self._token_bytes(token))

    def finish(self) -> str:
        """One U+FFFD if the text ended inside a character, else nothing."""
        return self._decoder.decode(b"", final=True)
