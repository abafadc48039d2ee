"""Continuing prompts of ids.

Dimension legend: B rows that are still running, T tokens, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from zoo.contracts.architecture import Architecture
from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.errors import UserError
from zoo.generation.choice import Chooser
from zoo.initialization import generator_for

Stop = Literal["eos", "length"]


@dataclasses.dataclass(frozen=True)
class Generated:
    """What one prompt was continued with.

    Attributes:
        tokens: the new ids; the last one is the end of text if ``stop`` is ``eos``.
        stop: ``eos``, or ``length`` where the asked number or the model's longest input was reached.
    """

    tokens: list[int]
    stop: Stop


def generate(
    model: Architecture,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    end_of_text: int | None = None,
    vocab_size: int | None = None,
    cache: bool = True,
    stream: Callable[[int, int], None] | None = None,
) -> list[Generated]:
    """Continue prompts, each exactly as it would be continued alone.

    A prompt's random numbers belong to (seed, its ids, how many equal prompts come before it), so they don't
    depend on what else is in the batch, and equal prompts get different continuations.

    Args:
        model: a causal model; it is put into evaluation mode meanwhile.
        prompts: ids of each prompt; an empty one starts from ``end_of_text``.
        max_new_tokens: most new ids. A model with a longest input L stops earlier, when L tokens were its input.
        temperature: divides the scores; 0 is greedy.
        top_k: choose among this many likeliest ids; 0 is off, more than there are is all of them.
        top_p: choose among the fewest likeliest ids that together have this probability; 0 leaves one, 1 is off.
        seed: of everything random.
        end_of_text: the id that ends a row; one in the prompt doesn't.
        vocab_size: only ids below it are chosen, for a model whose vocabulary is padded.
        cache: keep keys and values; without it everything is computed again for each token.
        stream: called with (index of the prompt, new id) as soon as an id is chosen.

    Raises:
        UserError: an option out of range, an empty or too long prompt, a model that can't do what is asked.
        RunFailed: scores that aren't finite.
    """
    chooser = Chooser(temperature=temperature, top_k=top_k, top_p=top_p, vocab_size=vocab_size)
    _check_model(model, cache)
    rows = _rows(model, prompts, max_new_tokens, seed, end_of_text)
    with _evaluating(model), torch.inference_mode():
        for batch in _batches(model, rows):
            _continue(model, batch, chooser, end_of_text, cache, stream)
    return [Generated(row.new, row.stop or "length") for row in rows]


@dataclasses.dataclass
class _Row:
    """A prompt on its way: ``limit`` new ids at most, its own random numbers."""

    index: int
    prompt: list[int]
    limit: int
    random: torch.Generator
    new: list[int] = dataclasses.field(default_factory=list)
    stop: Stop | None = None

    def take(self, token: int, end_of_text: int | None) -> None:
        """Add a new id, and stop if it is the last."""
        self.new.append(token)
        if token == end_of_text:
            self.stop = "eos"
        elif len(self.new) == self.limit:
            self.stop = "length"


def _rows(
    model: Architecture,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    seed: int,
    end_of_text: int | None,
) -> list[_Row]:
    if max_new_tokens < 1:
        raise UserError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    vocabulary, longest = model.head_weight.shape[0], model.max_length
    copies: Counter[tuple[int, ...]] = Counter()
    rows = []
    for index, given in enumerate(prompts):
        prompt = list(given) or _start(end_of_text)
        if outside := [token for token in prompt if not 0 <= token < vocabulary]:
            raise UserError(f"prompt {index + 1} holds the id {outside[0]}; the model's ids are below {vocabulary}")
        limit = max_new_tokens
        if longest is not None:
            if len(prompt) > longest:
                raise UserError(
                    f"prompt {index + 1} has {len(prompt)} tokens, the model takes at most {longest}",
                    fix=f"shorten it by {len(prompt) - longest} tokens",
                )
            limit = min(limit, longest - len(prompt) + 1)  # the last new id is no input any more
        key = tuple(prompt)
        rows.append(_Row(index, prompt, limit, generator_for(seed, f"generation/{key}/{copies[key]}")))
        copies[key] += 1
    return rows


def _start(end_of_text: int | None) -> list[int]:
    if end_of_text is None:
        raise UserError("an empty prompt needs an end of text to start from", fix="give a prompt of at least one token")
    return [end_of_text]


def _check_model(model: Architecture, cache: bool) -> None:
    if "causal" not in model.offers:
        raise UserError(
            f"{type(model).__name__} isn't a causal model, so it can't generate",
            fix="use a run of a causal task",
        )
    if cache and (names := _without_cache(model)):
        raise UserError(f"{names[0]} has no cache", fix="generate without it: --no-cache, cache=False")


def has_cache(model: Architecture) -> bool:
    """Whether a model can generate with a cache: it and each of its attentions keeps keys and values."""
    return not _without_cache(model)


def _without_cache(model: Architecture) -> list[str]:
    parts: list[Architecture | Attention] = [model, *_attentions(model)]
    return [type(part).__name__ for part in parts if "cache" not in part.offers]


def _attentions(model: Architecture) -> Iterator[Attention]:
    return (module for module in model.modules() if isinstance(module, Attention))


def _batches(model: Architecture, rows: list[_Row]) -> list[list[_Row]]:
    """All rows at once; rows of one length at a time where an attention can't take padding."""
    if all("padding" in attention.offers for attention in _attentions(model)):
        return [rows] if rows else []
    lengths = dict.fromkeys(len(row.prompt) for row in rows)
    return [[row for row in rows if len(row.prompt) == length] for length in lengths]


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off, and every module back in its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _continue(
    model: Architecture,
    rows: list[_Row],
    chooser: Chooser,
    end_of_text: int | None,
    cache: bool,
    stream: Callable[[int, int], None] | None,
) -> None:
    """Run a batch to its end; a row that has stopped leaves it, so that the others don't pay for it."""
    context = _Context(model, [row.prompt for row in rows], cache)
    while True:
        tokens_B = chooser.choose(context.scores(), [row.random for row in rows])
        for row, token in zip(rows, tokens_B.tolist(), strict=True):
            row.take(token, end_of_text)
            if stream:
                stream(row.index, token)
        context.append(tokens_B)
        running = [place for place, row in enumerate(rows) if row.stop is None]
        if not running:
            return
        if len(running) < len(rows):
            context.keep(running)
            rows = [rows[place] for place in running]


class _Context:
    """What the rows hold so far, padded on the left, and what the model remembers of it."""

    def __init__(self, model: Architecture, prompts: Sequence[Sequence[int]], cache: bool) -> None:
        self.model, self.device = model, model.head_weight.device
        self.cache = Cache() if cache else None
        longest = max(map(len, prompts))
        padded = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        self.ids_BT = torch.tensor(padded, dtype=torch.int64, device=self.device)
        lengths_B1 = torch.tensor([[len(prompt)] for prompt in prompts], device=self.device)
        valid_BT = torch.arange(longest, device=self.device) >= longest - lengths_B1
        self.valid_BT = None if bool(valid_BT.all()) else valid_BT

    def scores(self) -> Tensor:
        """(B, V) scores of the next id, float32 or wider."""
        seen = self.cache.length if self.cache else 0
        valid_BT = None if self.valid_BT is None else self.valid_BT[:, seen:]
        mask = Mask(causal=True, valid_BS=valid_BT)
        hidden_BTD = self.model(self.ids_BT[:, seen:], mask=mask, cache=self.cache).hidden
        scores_BV = self.model.head(hidden_BTD[:, -1])
        return scores_BV.to(torch.promote_types(scores_BV.dtype, torch.float32))

    def append(self, tokens_B: Tensor) -> None:
        """Put a new id behind each row."""
        self.ids_BT = torch.cat([self.ids_BT, tokens_B[:, None]], 1)
        if self.valid_BT is not None:
            self.valid_BT = torch.cat([self.valid_BT, self.valid_BT.new_ones(len(tokens_B), 1)], 1)

    def keep(self, places: list[int]) -> None:
        """Go on with these rows only."""
        index_B = torch.tensor(places, device=self.device)
        self.ids_BT = self.ids_BT[index_B]
        self.valid_BT = None if self.valid_BT is None else self.valid_BT[index_B]
        if self.cache:
            self.cache.reorder(index_B)
