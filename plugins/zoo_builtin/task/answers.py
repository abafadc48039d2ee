"""Give the answers that the data asks for; nothing else is predicted.

    loss = - sum over asked t of log p(answer at t | tokens 0..t)

The data says by ``targets`` what is asked where, -100 elsewhere. A causal model sees the earlier tokens of an answer
that is written out (teacher forcing), and a greedy decoder writes exactly the answer where all of its tokens are
right so: that is ``exact``. A model that looks ahead gets blanks in their place (``blanked``) and gives the whole
answer at once; so does a causal one with ``at_once``, as selective copying and others are posed in Poli et al. 2024,
"Mechanistic design and scaling of hybrid architectures", arXiv:2403.17844.

``accuracy_pairs_8`` and ``exact_pairs_8`` are the same of samples with up to 8 pairs, if the data has such slices, and
``chance`` is the accuracy of a guess that doesn't read the input. All are quotients of sums over samples, so that
neither the batch size nor the number of devices changes them. Cost beside the model's: the head on the asked tokens.

Axes: B rows, T tokens, S slices, N asked tokens, D width.
"""

from __future__ import annotations

import dataclasses
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
from zoo.nn.loss import NO_TARGET, scored_targets

__all__ = ["Answers"]

_BILLION = 10**9


@final
class Answers(Task):
    """Answers over ``ids`` and ``targets``, and optionally ``blanked``, ``valid``, ``slices`` and ``chance``."""

    metrics = {  # noqa: RUF012
        "accuracy": "higher",
        "exact": "higher",
        "loss": "lower",
    }
    needs = frozenset({"tokens", "token_scores"})
    keys = frozenset({"ids", "targets"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Task.Config):
        """Knobs of the task."""

        at_once: bool = False
        """Whether a causal model, too, gets blanks in place of an answer's earlier tokens; needs data with
        answers that are written out, for others it changes nothing."""

    def __init__(self, config: Any, *, data: Data) -> None:
        super().__init__(config, data=data)
        self.slices = tuple(data.slices())

    def measured(self) -> tuple[str, ...]:
        """``metrics``, ``chance``, and ``accuracy`` and ``exact`` of each slice."""
        parts = [f"{name}_{part}" for name in ("accuracy", "exact") for part in self.slices]
        return (*self.metrics, "chance", *parts)

    def count(self, batch: Batch) -> int:
        """Number of tokens that are asked for."""
        return int((batch["targets"] != NO_TARGET).sum())

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed loss in nats.

        The sums are ``loss``, ``chance`` in billionths, ``targets``, ``correct``, ``answers`` (rows) and ``exact``, and
        the last four for each slice, as ``correct_pairs_8``.
        """
        causal, targets_BT = "causal" in model.offers, batch["targets"]
        ids_BT = batch["ids"] if causal and not self.config.at_once else batch.get("blanked", batch["ids"])
        output, head = model(ids_BT, mask=mask_of(batch, causal=causal)), cast(TokenHead, model.head)
        asked_BT = targets_BT != NO_TARGET
        states_ND = head.states(output.hidden[asked_BT])  # the head sees the asked tokens only
        scored = scored_targets(states_ND, head.weight, head.bias, targets_BT[asked_BT])
        hits_BT = torch.zeros_like(asked_BT).masked_scatter(asked_BT, scored.hits_N)
        sums = {"loss": scored.nats, **self._counts(asked_BT, hits_BT, batch)}
        return Loss(output.joined(scored.loss, sums["targets"]), sums)

    def _counts(self, asked_BT: Tensor, hits_BT: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Whole numbers, over all rows and over those of each slice; without waiting for the device."""
        asked_B, correct_B = asked_BT.sum(1), hits_BT.sum(1)
        counts = {"targets": asked_B, "correct": correct_B, "answers": asked_B > 0}
        counts["exact"] = counts["answers"] & (correct_B == asked_B)
        sums = {name: count_B.sum() for name, count_B in counts.items()}
        if self.slices:
            for name, count_B in counts.items():
                parts_S = (count_B[:, None] * batch["slices"]).sum(0)
                sums |= {f"{name}_{part}": value for part, value in zip(self.slices, parts_S.unbind(), strict=True)}
        if "chance" in batch:
            sums["chance"] = (batch["chance"] * asked_B).sum()
        return sums

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """``accuracy`` of tokens, ``exact`` of whole answers, ``loss`` in nats a token, ``chance`` where it's known.

        A slice of which there is no sample is left out.

        Raises:
            RunFailed: no target.
        """
        if not sums["targets"]:
            raise RunFailed("nothing is asked for in all of the data, so there is no loss to speak of")
        metrics = self._shares(sums, "") | {"loss": sums["loss"] / sums["targets"]}
        if "chance" in sums:
            metrics["chance"] = sums["chance"] / (sums["targets"] * _BILLION)
        parts = [self._shares(sums, f"_{part}") for part in self.slices]
        return metrics | {name: value for part in parts for name, value in part.items()}

    def _shares(self, sums: Mapping[str, float], part: str) -> dict[str, float]:
        """``accuracy`` and ``exact`` of everything or of a slice."""
        if not sums[f"targets{part}"]:
            return {}
        return {
            f"accuracy{part}": sums[f"correct{part}"] / sums[f"targets{part}"],
            f"exact{part}": sums[f"exact{part}"] / sums[f"answers{part}"],
        }
