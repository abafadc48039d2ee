"""Beam search: the K likeliest beginnings grow together, and the best text that has ended wins.

    score(text) = log p(text) / length^penalty, its end of text counted in both

Each step extends every beam by every id. Of the 2 K likeliest extensions, an end of text among the first K ends a
text, and the K likeliest others are the next beams. A prompt is done when no beam can still beat its best text: log p
only falls, so log p / n^penalty at the best length n from here to the limit bounds all that a beam can become (Huang
et al. 2017, "When to finish?", arXiv:1809.00069, with the bound of a penalty on lengths). Dividing by a power of the
length: Wu et al. 2016, arXiv:1609.08144, section 7, simplified as is usual. Cost: K forward passes a token.

Dimension legend: R beams of all prompts, L beams of one prompt, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.errors import RunFailed, UserError
from zoo.generation.choice import Chooser
from zoo.generation.context import Context
from zoo.generation.prompts import Generated, Prompt, Stop


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beams:
    """How to search: K beams, the power of the length, what ends a text, how many ids there are."""

    beams: int
    length_penalty: float
    end_of_text: int | None
    vocab_size: int | None

    def check(self, chooser: Chooser) -> None:
        """Refuse what makes no search, and what would be left out of one.

        Raises:
            UserError: an option out of range, or one that has nothing to do with the others.
        """
        if self.beams < 1:
            raise UserError(f"beams is {self.beams}; it must be at least 1 (1 is no search)")
        if not math.isfinite(self.length_penalty):
            raise UserError(f"length_penalty is {self.length_penalty}; it must be a number")
        if self.beams == 1 and self.length_penalty != 1:
            raise UserError("length_penalty belongs to a beam search, and beams is 1", fix="set beams, 4 for instance")
        if self.beams > 1 and (chooser.temperature not in (0, 1) or chooser.top_k or chooser.top_p != 1):
            raise UserError(
                "a beam search draws nothing at random", fix="leave out temperature, top_k and top_p, or beams"
            )


def search(
    model: Architecture,
    prompts: Sequence[Prompt],
    settings: Beams,
    cache: bool,
    stream: Callable[[int, int], None] | None = None,
) -> dict[int, Generated]:
    """The best continuation of each prompt, by its index; prompts that are done leave the batch.

    Raises:
        RunFailed: scores that aren't finite.
    """
    context = Context(model, prompts, cache)
    searches = [_Search(prompt, settings) for prompt in prompts]
    running = searches
    while running:
        chosen = list(_extended(running, _log_probabilities(context.scores(), settings.vocab_size)))
        running = [one for one in running if one.beams]
        if running:
            context.keep([place for place, _ in chosen])
            context.append(torch.tensor([token for _, token in chosen], device=context.device))
    found = {one.prompt.index: one.result() for one in searches}
    for index, result in found.items():
        for token in result.tokens if stream else ():
            assert stream is not None
            stream(index, token)
    return found


def _log_probabilities(scores_RV: Tensor, vocab_size: int | None) -> Tensor:
    """(R, V) float64."""
    scores_RV = scores_RV[:, :vocab_size].double()
    if not bool(scores_RV.amax(-1).isfinite().all()):
        raise RunFailed("the model's scores aren't finite, so no token can be chosen; the run may have diverged")
    return scores_RV.log_softmax(-1)


def _extended(searches: Sequence[_Search], log_p_RV: Tensor) -> Iterator[tuple[int, int]]:
    """Row and next id of each new beam, over all prompts in order."""
    first = 0
    for one in searches:
        rows = slice(first, first + len(one.beams))
        yield from ((first + beam, token) for beam, token in one.extend(log_p_RV[rows]))
        first = rows.stop


@dataclasses.dataclass
class _Beam:
    tokens: list[int]
    log_p: float


class _Search:
    """The beams of one prompt, likeliest first, and the best of its texts that have ended."""

    def __init__(self, prompt: Prompt, settings: Beams) -> None:
        self.prompt, self.settings = prompt, settings
        self.beams = [_Beam([], 0.0)]
        self._best: Generated | None = None
        self._best_score = -math.inf

    def result(self) -> Generated:
        """The best text, when there are no beams any more."""
        assert self._best is not None
        return self._best

    def extend(self, log_p_LV: Tensor) -> list[tuple[int, int]]:
        """Go one id further; gives (beam that is extended, id) of each beam from now on, none where the end is."""
        totals_LV = log_p_LV + log_p_LV.new_tensor([[beam.log_p] for beam in self.beams])
        width, vocabulary = self.settings.beams, totals_LV.shape[1]
        values, places = (found.tolist() for found in totals_LV.flatten().topk(min(2 * width, totals_LV.numel())))
        beams: list[_Beam] = []
        chosen: list[tuple[int, int]] = []
        for rank, (value, place) in enumerate(zip(values, places, strict=True)):
            parent, token = divmod(place, vocabulary)
            extended = _Beam([*self.beams[parent].tokens, token], value)
            if value == -math.inf:
                break
            if token == self.settings.end_of_text:
                if rank < width:
                    self._end(extended, "eos")
            elif len(beams) < width:
                beams.append(extended)
                chosen.append((parent, token))
        if beams and len(beams[0].tokens) == self.prompt.limit:
            self._end(beams[0], "length")  # the others are as long and less likely
            beams = []
        self.beams = beams if beams and self._can_improve(beams[0]) else []
        return chosen if self.beams else []

    def _end(self, beam: _Beam, stop: Stop) -> None:
        score = self._score(beam.log_p, len(beam.tokens))
        if score > self._best_score:
            self._best, self._best_score = Generated(beam.tokens, stop, score), score

    def _can_improve(self, likeliest: _Beam) -> bool:
        """Whether a beam can still become better than the best text, were all its further ids certain."""
        lengths = (len(likeliest.tokens) + 1, self.prompt.limit)
        return max(self._score(likeliest.log_p, length) for length in lengths) > self._best_score

    def _score(self, log_p: float, length: int) -> float:
        return log_p / length**self.settings.length_penalty
