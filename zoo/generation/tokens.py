"""Continuing prompts of ids.

Dimension legend: B rows that are still running.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from zoo.contracts.architecture import Architecture
from zoo.generation.beams import Beams, search
from zoo.generation.choice import Chooser
from zoo.generation.context import Context
from zoo.generation.prompts import Generated, Prompt, Stop, batches, check_model, checked_prompts, evaluating
from zoo.initialization import generator_for


def generate(
    model: Architecture,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    sources: Sequence[Sequence[int]] | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    beams: int = 1,
    length_penalty: float = 1.0,
    seed: int = 0,
    end_of_text: int | None = None,
    vocab_size: int | None = None,
    cache: bool = True,
    stream: Callable[[int, int], None] | None = None,
) -> list[Generated]:
    """Continue prompts, each exactly as it would be continued alone.

    A prompt's random numbers belong to (seed, its ids and its source, how many equal ones come before it), so they
    don't depend on what else is in the batch, and equal prompts get different continuations.

    Args:
        model: a causal model; it is put into evaluation mode meanwhile.
        prompts: ids of each prompt; an empty one starts from ``end_of_text``.
        max_new_tokens: most new ids. A model with a longest input L stops earlier, when L tokens were its input.
        sources: ids of the source of each prompt, for an encoder-decoder and for nothing else.
        temperature: divides the scores; 0 is greedy.
        top_k: choose among this many likeliest ids; 0 is off, more than there are is all of them.
        top_p: choose among the fewest likeliest ids that together have this probability; 0 leaves one, 1 is off.
        beams: search for the best text with this many beams, instead of drawing one; 1 is off.
        length_penalty: of a search, see ``zoo.generation.beams``.
        seed: of everything random.
        end_of_text: the id that ends a row; one in the prompt doesn't.
        vocab_size: only ids below it are chosen, for a model whose vocabulary is padded.
        cache: keep keys, values and what was made of the sources; without it everything is computed again for each
            token.
        stream: called with (index of the prompt, new id) as soon as an id is chosen; in a search, when it is over.

    Raises:
        UserError: an option out of range, an empty or too long prompt, a model that can't do what is asked.
        RunFailed: scores that aren't finite.
    """
    chooser = Chooser(temperature=temperature, top_k=top_k, top_p=top_p, vocab_size=vocab_size)
    settings = Beams(beams=beams, length_penalty=length_penalty, end_of_text=end_of_text, vocab_size=vocab_size)
    settings.check(chooser)
    check_model(model, cache)
    given = checked_prompts(model, prompts, sources, max_new_tokens=max_new_tokens, end_of_text=end_of_text)
    rows = _rows(given, seed)
    found: dict[int, Generated] = {}
    with evaluating(model), torch.inference_mode():
        for batch in batches(model, given):
            if beams > 1:
                found |= search(model, batch, settings, cache, stream)
            else:
                chosen = [rows[prompt.index] for prompt in batch]
                _continue(Context(model, batch, cache), chosen, chooser, end_of_text, stream)
    return [found.get(row.index) or Generated(row.new, row.stop or "length") for row in rows]


@dataclasses.dataclass
class _Row:
    """A prompt on its way: ``limit`` new ids at most, its own random numbers."""

    index: int
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


def _rows(prompts: Sequence[Prompt], seed: int) -> list[_Row]:
    copies: Counter[str] = Counter()
    rows = []
    for prompt in prompts:
        key = f"{tuple(prompt.ids)}" + (f" of {tuple(prompt.source)}" if prompt.source else "")
        random = generator_for(seed, f"generation/{key}/{copies[key]}")
        rows.append(_Row(prompt.index, prompt.limit, random))
        copies[key] += 1
    return rows


def _continue(
    context: Context,
    rows: list[_Row],
    chooser: Chooser,
    end_of_text: int | None,
    stream: Callable[[int, int], None] | None,
) -> None:
    """Run a batch to its end; a row that has stopped leaves it, so that the others don't pay for it."""
    while True:
        tokens_B = chooser.choose(context.scores(), [row.random for row in rows])
        for row, token in zip(rows, tokens_B.tolist(), strict=True):
            row.take(token, end_of_text)
            if stream:
                stream(row.index, token)
        running = [place for place, row in enumerate(rows) if row.stop is None]
        if not running:
            return
        context.append(tokens_B)
        if len(running) < len(rows):
            context.keep(running)
            rows = [rows[place] for place in running]
