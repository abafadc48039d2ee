"""What is to be continued, checked against the model that continues it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, cast

from torch import nn

from zoo.contracts.architecture import Architecture
from zoo.contracts.attention import Attention
from zoo.contracts.head import TokenHead
from zoo.errors import UserError

Stop = Literal["eos", "length"]


@dataclasses.dataclass(frozen=True)
class Generated:
    """What one prompt was continued with.

    Attributes:
        tokens: the new ids; the last one is the end of text if ``stop`` is ``eos``.
        stop: ``eos``, or ``length`` where the asked number or the model's longest input was reached.
        score: of a beam search, log p(tokens) / length^penalty; ``None`` where nothing was searched.
    """

    tokens: list[int]
    stop: Stop
    score: float | None = None


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A prompt that fits its model: its place among the others, its ids, its source, at most ``limit`` new ids."""

    index: int
    ids: list[int]
    source: list[int] | None
    limit: int


def checked_prompts(
    model: Architecture,
    prompts: Sequence[Sequence[int]],
    sources: Sequence[Sequence[int]] | None,
    *,
    max_new_tokens: int,
    end_of_text: int | None,
) -> list[Prompt]:
    """The prompts of a model.

    Args:
        model: what will continue them.
        prompts: ids of each; an empty one starts from ``end_of_text``.
        sources: ids of each one's source, for an encoder-decoder and for nothing else.
        max_new_tokens: most new ids.
        end_of_text: what an empty prompt starts from.

    Raises:
        UserError: no new id asked for, an id that the model doesn't have, a prompt or source that is too long or empty.
    """
    if max_new_tokens < 1:
        raise UserError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    _check_sources(model, prompts, sources)
    made = []
    for index, given in enumerate(prompts):
        ids = list(given) or _start(end_of_text)
        _check_ids(model, f"prompt {index + 1}", ids, model.max_length)
        source = None if sources is None else list(sources[index])
        if source is not None:
            _check_ids(model, f"source {index + 1}", source, model.max_source)
        limit = max_new_tokens
        if model.max_length is not None:
            limit = min(limit, model.max_length - len(ids) + 1)  # the last new id is no input any more
        made.append(Prompt(index, ids, source, limit))
    return made


def _check_sources(
    model: Architecture, prompts: Sequence[Sequence[int]], sources: Sequence[Sequence[int]] | None
) -> None:
    name = type(model).__name__
    if ("cross" in model.offers) != (sources is not None):
        raise UserError(f"{name} reads no source" if sources is not None else f"{name} needs a source for each prompt")
    if sources is None:
        return
    if len(sources) != len(prompts):
        raise UserError(f"there are {len(prompts)} prompts and {len(sources)} sources")
    if empty := [index for index, source in enumerate(sources, start=1) if not len(source)]:
        raise UserError(f"source {empty[0]} is empty", fix="give it at least one token")


def _check_ids(model: Architecture, name: str, ids: list[int], longest: int | None) -> None:
    vocabulary = len(cast(TokenHead, model.head).weight)
    if outside := [token for token in ids if not 0 <= token < vocabulary]:
        raise UserError(f"{name} holds the id {outside[0]}; the model's ids are below {vocabulary}")
    if longest is not None and len(ids) > longest:
        raise UserError(
            f"{name} has {len(ids)} tokens, the model takes at most {longest}",
            fix=f"shorten it by {len(ids) - longest} tokens",
        )


def _start(end_of_text: int | None) -> list[int]:
    if end_of_text is None:
        raise UserError("an empty prompt needs an end of text to start from", fix="give a prompt of at least one token")
    return [end_of_text]


def check_model(model: Architecture, cache: bool) -> None:
    """Refuse a model that can't generate.

    Raises:
        UserError: it isn't causal, it scores no tokens, or it has no cache where one is asked for.
    """
    if not can_generate(model):
        raise UserError(
            f"{type(model).__name__} isn't a causal model with a head that scores tokens, so it can't generate",
            fix="use a run of a causal task",
        )
    if cache and (names := _without_cache(model)):
        raise UserError(f"{names[0]} has no cache", fix="generate without it: --no-cache, cache=False")


def can_generate(model: Architecture) -> bool:
    """Whether a model gives scores for the next token from those before it."""
    return "causal" in model.offers and "token_scores" in model.head.offers


def has_cache(model: Architecture) -> bool:
    """Whether a model can generate with a cache: it and each of its attentions keeps keys and values."""
    return not _without_cache(model)


def _without_cache(model: Architecture) -> list[str]:
    """Parts that keep nothing, though they must: an attention that is good for an encoder alone needn't."""
    decoding = (attention for attention in _attentions(model) if attention.offers & {"causal", "cross"})
    parts: list[Architecture | Attention] = [model, *decoding]
    return [type(part).__name__ for part in parts if "cache" not in part.offers]


def _attentions(model: Architecture) -> Iterator[Attention]:
    return (module for module in model.modules() if isinstance(module, Attention))


def batches(model: Architecture, prompts: Sequence[Prompt]) -> list[list[Prompt]]:
    """All prompts at once; those of one length at a time where an attention can't take padding."""
    if all("padding" in attention.offers for attention in _attentions(model)):
        return [list(prompts)] if prompts else []
    found: dict[tuple[int, int], list[Prompt]] = {}
    for prompt in prompts:
        found.setdefault((len(prompt.ids), len(prompt.source or [])), []).append(prompt)
    return list(found.values())


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off, and every module back in its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
