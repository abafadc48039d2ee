"""Write the target that belongs to a source, each token from the source and the true ones before it.

    loss = - sum over t of log p(target t | source, targets 0..t-1)            (teacher forcing)

The data shifts, once: ``ids`` are the ``targets`` one place late, behind a start token. With label smoothing e the
model is trained towards 1 - e for the target and e / V for every token (Szegedy et al. 2016, arXiv:1512.00567,
section 7; Vaswani et al. 2017, section 5.4); what is reported is without it. A greedy decoder writes exactly the
target where every best score under the true beginning is the target's next token, and only there, so ``exact_match``
is that of greedy decoding and needs no decoding. Sutskever et al. 2014, arXiv:1409.3215. Cost beside the model's: a
(D x V) product for each target token.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, cast, final

from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data
from zoo.contracts.head import TokenHead
from zoo.contracts.task import Batch, Loss, Task
from zoo.contracts.values.mask import Mask
from zoo.errors import RunFailed
from zoo.nn.loss import NO_TARGET, scored_targets

__all__ = ["Seq2Seq"]


@final
class Seq2Seq(Task):
    """Translation and all that is like it: ``source`` and ``source_valid``, ``ids``, ``targets`` and ``valid``."""

    metrics = {  # noqa: RUF012
        "loss": "lower",
        "perplexity": "lower",
        "accuracy": "higher",
        "exact_match": "higher",
    }
    needs = frozenset({"cross", "tokens", "token_scores"})
    gives_source = True
    keys = frozenset({"source", "source_valid", "ids", "targets", "valid"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Task.Config):
        """Knobs of the task."""

        label_smoothing: float = 0.0
        """Share of a target's weight that all tokens get alike, at least 0 and below 1."""

    def __init__(self, config: Any, *, data: Data) -> None:
        super().__init__(config, data=data)
        if not 0 <= config.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, got {config.label_smoothing}")

    def count(self, batch: Batch) -> int:
        """Number of target tokens, ends of text included."""
        return int((batch["targets"] != NO_TARGET).sum())

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed loss in nats; the sums are ``loss``, ``targets``, ``correct``, ``sequences`` and ``exact``."""
        mask, head = Mask(causal=True, valid_BS=batch["valid"]), cast(TokenHead, model.head)
        source = {"source_BS": batch["source"], "source_valid_BS": batch["source_valid"]}
        output = model(batch["ids"], mask=mask, **source)
        targets_BT = batch["targets"]
        states_ND = head.states(output.hidden).flatten(0, 1)
        smoothing = self.config.label_smoothing
        scored = scored_targets(states_ND, head.weight, head.bias, targets_BT.flatten(), label_smoothing=smoothing)
        there_BT, hits_BT = targets_BT != NO_TARGET, scored.hits_N.unflatten(0, targets_BT.shape)
        written_B = there_BT.any(1)
        sums = {
            "loss": scored.nats,
            "targets": there_BT.sum(),
            "correct": hits_BT.sum(),
            "sequences": written_B.sum(),
            "exact": ((hits_BT | ~there_BT).all(1) & written_B).sum(),
        }
        return Loss(output.joined(scored.loss, sums["targets"]), sums)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """``loss`` in nats per target token, ``perplexity``, ``accuracy`` of tokens, ``exact_match`` of sequences.

        Raises:
            RunFailed: no target.
        """
        if not sums["targets"]:
            raise RunFailed("there is no target in all of the data, so there is no loss to speak of")
        loss = sums["loss"] / sums["targets"]
        return {
            "loss": loss,
            "perplexity": math.exp(loss) if loss < 700 else math.inf,
            "accuracy": sums["correct"] / sums["targets"],
            "exact_match": sums["exact"] / sums["sequences"],
        }
