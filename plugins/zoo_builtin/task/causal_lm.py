"""Predict each next token from the ones before it.

    loss = - sum over t of log p(token t+1 | tokens 0..t)

The data shifts, once: ``targets`` of a batch are its ``ids`` moved by one, -100 where nothing is to be
predicted. Radford et al. 2018, "Improving language understanding by generative pre-training", equation 1.
Nats per byte don't depend on the tokenizer, so they compare models with different ones. Cost beside the
model's: a (D x V) product a token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast, final

import torch
from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data
from zoo.contracts.head import TokenHead
from zoo.contracts.task import Batch, Loss, Task
from zoo.contracts.values.mask import mask_of
from zoo.errors import RunFailed
from zoo.nn.loss import NO_TARGET, summed_cross_entropy

__all__ = ["CausalLM"]


@final
class CausalLM(Task):
    """Next-token prediction over ``ids`` and ``targets``, and optionally ``documents`` and ``valid``."""

    metrics = {  # noqa: RUF012
        "loss": "lower",
        "nats_per_byte": "lower",
        "perplexity": "lower",
        "accuracy": "higher",
    }
    needs = frozenset({"causal", "tokens", "token_scores"})
    keys = frozenset({"ids", "targets"})

    def __init__(self, config: Any, *, data: Data) -> None:
        super().__init__(config, data=data)
        self._bytes_V: Tensor | None = None

    def count(self, batch: Batch) -> int:
        """Number of tokens to predict."""
        return int((batch["targets"] != NO_TARGET).sum())

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed loss in nats; the sums are ``loss``, ``targets``, ``correct`` and ``bytes`` of the targets."""
        output, head = model(batch["ids"], mask=mask_of(batch, causal=True)), cast(TokenHead, model.head)
        targets_N = batch["targets"].flatten()
        states_ND = head.states(output.hidden).flatten(0, 1)
        loss, correct = summed_cross_entropy(states_ND, head.weight, head.bias, targets_N)
        there_N = targets_N != NO_TARGET
        sums = {"loss": loss.detach(), "targets": there_N.sum(), "correct": correct}
        if (bytes_V := self._token_bytes(targets_N.device)) is not None:
            sums["bytes"] = (bytes_V[targets_N.clamp(min=0)] * there_N).sum()
        return Loss(output.joined(loss, sums["targets"]), sums)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """``loss`` in nats per token, ``perplexity``, ``accuracy``, and ``nats_per_byte`` where there is a tokenizer.

        Raises:
            RunFailed: no target.
        """
        if not sums["targets"]:
            raise RunFailed("there is no target in all of the data, so there is no loss to speak of")
        loss = sums["loss"] / sums["targets"]
        metrics = {"loss": loss}
        if sums.get("bytes"):
            metrics["nats_per_byte"] = sums["loss"] / sums["bytes"]
        metrics["perplexity"] = math.exp(loss) if loss < 700 else math.inf
        metrics["accuracy"] = sums["correct"] / sums["targets"]
        return metrics

    def _token_bytes(self, device: torch.device) -> Tensor | None:
        """(V,) UTF-8 bytes of each token; ``None`` where tokens don't hold the bytes of the text."""
        tokenizer = self.data.tokenizer()
        if tokenizer is None or not tokenizer.exact:
            return None
        if self._bytes_V is None or self._bytes_V.device != device:
            sizes = [len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)]
            self._bytes_V = torch.tensor(sizes, device=device)
        return self._bytes_V
