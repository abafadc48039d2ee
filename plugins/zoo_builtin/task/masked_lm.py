"""Hide some tokens, and predict them from what stands on both sides.

    loss = - sum over chosen t of log p(token t | the others)

Devlin et al. 2019, arXiv:1810.04805, section 3.1 (article, section 8): 15 % of the tokens are chosen; 80 % of these
are replaced by the mask, 10 % by a random token, and 10 % stay, so that the model must understand every token.

Each token is chosen by a draw of its own (Bernoulli), not an exact number of each row: the probability is then the
same in rows of any length, where 15 % of 3 tokens can't be had exactly, and what is hidden in a row doesn't depend on
how far it is padded. The loss is divided by the targets of the step, so that rows needn't have equally many.
A draw is a hash of (seed, epoch, sample, place): other tokens are hidden in each epoch, the same ones on any number
of devices. Validation and test hide the same tokens whatever the recipe's seed is.
Cost beside the model's: the head on 15 % of the tokens.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, cast, final

import numpy as np
import torch

from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data, Description, Draw, Split
from zoo.contracts.head import TokenHead
from zoo.contracts.task import Batch, Loss, Task
from zoo.contracts.tokenizer import Tokenizer
from zoo.contracts.values.mask import mask_of
from zoo.data.permutation import hash64, uniform
from zoo.errors import RunFailed
from zoo.nn.loss import NO_TARGET, summed_cross_entropy

__all__ = ["MaskedLM"]

_CHOOSES, _REPLACES, _DRAWS = range(3)
"""What a random number decides: whether a token is hidden, how, and by which other one."""


@final
class MaskedLM(Task):
    """Prediction of hidden tokens over ``ids``, and optionally ``documents`` and ``valid``."""

    metrics = {"loss": "lower", "perplexity": "lower", "accuracy": "higher"}  # noqa: RUF012
    needs = frozenset({"bidirectional", "tokens", "token_scores"})
    keys = frozenset({"ids"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Task.Config):
        """What is hidden, and how."""

        rate: float = 0.15
        """Probability that a token is chosen; the end of a text, other special tokens and padding never are."""
        masked: float = 0.8
        """Share of the chosen tokens that are replaced by the mask."""
        random: float = 0.1
        """Share of the chosen tokens that are replaced by any ordinary token; the rest stay as they are."""
        whole_word: bool = False
        """Whether all tokens of a word are chosen together; a word begins at a token that begins with white space."""

    def __init__(self, config: Any, *, data: Data) -> None:
        super().__init__(config, data=data)
        if not 0 < config.rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, got {config.rate}")
        if min(config.masked, config.random) < 0 or config.masked + config.random > 1:
            raise ValueError(
                f"masked and random are shares of the chosen tokens, at most 1 together: got {config.masked} and "
                f"{config.random}"
            )
        tokenizer = data.tokenizer()
        if config.whole_word and tokenizer is None:
            raise ValueError("whole_word needs data with a tokenizer, which says where words begin")
        size = data.describe().vocab_size
        if size is None:
            raise ValueError("tokens can't be hidden in data that has none")
        specials = _specials(tokenizer)
        self.mask = specials.get("mask", size)
        self._size = max(size, self.mask + 1)
        self._special = np.zeros(self._size, dtype=bool)
        self._special[[self.mask, *specials.values()]] = True
        self._ordinary = np.flatnonzero(~self._special)
        self._edges = _word_edges(tokenizer, self._size) if tokenizer and config.whole_word else None

    def describe(self) -> Description:
        """The data's sizes, and one id more where its tokenizer has no mask: the id behind its last."""
        return dataclasses.replace(self.data.describe(), vocab_size=self._size)

    def prepare(self, batch: Batch, draw: Draw, split: Split) -> Batch:
        """The batch with some ``ids`` hidden; ``targets`` are what they were, -100 where nothing was chosen."""
        ids = batch["ids"].numpy()
        seed, epochs = (draw.seed, draw.epochs) if split == "train" else (0, np.zeros_like(draw.epochs))
        number = hash64(seed, epochs[:, None], draw.samples[:, None], np.arange(ids.shape[1])[None])
        chosen = uniform(number, _CHOOSES) < self.config.rate
        if self._edges is not None:
            chosen = np.take_along_axis(chosen, self._first_of_word(ids, *self._edges), axis=1)
        chosen &= ~self._special[ids] & (draw.samples >= 0)[:, None]
        if "valid" in batch:
            chosen &= batch["valid"].numpy()
        how, masked = uniform(number, _REPLACES), self.config.masked
        other = self._ordinary[(uniform(number, _DRAWS) * len(self._ordinary)).astype(np.int64)]
        hidden = np.where(how < masked, self.mask, np.where(how < masked + self.config.random, other, ids))
        made = {"ids": np.where(chosen, hidden, ids), "targets": np.where(chosen, ids, NO_TARGET)}
        return {**batch, **{name: torch.from_numpy(array) for name, array in made.items()}}

    def _first_of_word(self, ids: np.ndarray, begins_V: np.ndarray, ends_V: np.ndarray) -> np.ndarray:
        """(B, T) place of the first token of the word that each token is in; a special token is a word by itself."""
        begins = begins_V[ids] | self._special[ids]
        begins[:, 1:] |= ends_V[ids[:, :-1]] | self._special[ids[:, :-1]]
        return np.maximum.accumulate(np.where(begins, np.arange(ids.shape[1]), 0), axis=1)

    def count(self, batch: Batch) -> int:
        """Number of tokens that were chosen."""
        return int((batch["targets"] != NO_TARGET).sum())

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed loss in nats; the sums are ``loss``, ``targets`` and ``correct``."""
        output, head = model(batch["ids"], mask=mask_of(batch, causal=False)), cast(TokenHead, model.head)
        chosen_BT = batch["targets"] != NO_TARGET
        states_ND = head.states(output.hidden[chosen_BT])  # the head sees the chosen tokens only
        targets_N = batch["targets"][chosen_BT]
        loss, correct = summed_cross_entropy(states_ND, head.weight, head.bias, targets_N)
        sums = {"loss": loss.detach(), "targets": chosen_BT.sum(), "correct": correct}
        return Loss(output.joined(loss, sums["targets"]), sums)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """``loss`` in nats for each hidden token, ``perplexity`` and ``accuracy``.

        Raises:
            RunFailed: no target.
        """
        if not sums["targets"]:
            raise RunFailed("no token was hidden in all of the data, so there is no loss to speak of")
        loss = sums["loss"] / sums["targets"]
        perplexity = math.exp(loss) if loss < 700 else math.inf
        return {"loss": loss, "perplexity": perplexity, "accuracy": sums["correct"] / sums["targets"]}


def _specials(tokenizer: Tokenizer | None) -> dict[str, int]:
    """Ids that are no text, by what they are for."""
    return {} if tokenizer is None else {"end_of_text": tokenizer.end_of_text, **tokenizer.specials}


def _word_edges(tokenizer: Tokenizer, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(V,) bool each: which tokens begin with white space, and which end with it, so that the next begins a word."""
    texts = [tokenizer.token_bytes(token) for token in range(size)]
    begins = np.array([text[:1].isspace() for text in texts])
    return begins, np.array([text[-1:].isspace() for text in texts])
