"""Cross-entropy over a vocabulary without ever keeping all (rows x vocabulary) scores.

``F.linear_cross_entropy`` of torch 2.14.1 has a chunked path, but in bfloat16 it returns a bfloat16 sum (off by
1 to 3 % over some thousand rows), and in float32 on a CPU it takes 1.5 to 5 times as long. So scores are made
by the ordinary path, as wide as float32, all at once where they fit and else in chunks that the backward pass
makes again (4/3 of the head's arithmetic).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

NO_TARGET = -100
"""Target of a position where nothing is to be predicted."""

LARGEST_CHUNK = 2**27
"""Scores that are held at once: 512 MiB in float32."""


class Scored(NamedTuple):
    """What the scores of some rows cost, and which of them are right."""

    loss: Tensor
    """Scalar, float32 or wider, with a gradient: the summed loss, smoothed where that was asked for."""
    nats: Tensor
    """Scalar without a gradient: the summed cross-entropy of the targets themselves."""
    hits_N: Tensor
    """(N,) bool: whether a row's best score is its target's; False where there is none."""


def scored_targets(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    *,
    label_smoothing: float = 0.0,
    largest_chunk: int = LARGEST_CHUNK,
) -> Scored:
    """Losses of rows of hidden states through a linear head.

    Args:
        hidden_ND: hidden states.
        weight_VD: weight of the output layer.
        bias_V: its bias.
        targets_N: int64 below V, or ``NO_TARGET``, which counts for nothing.
        label_smoothing: share e of the target's weight that all V tokens get alike, as in torch's cross-entropy:
            a row's loss is (1 - e) (-log p(target)) + e / V sum over v of (-log p(v)).
        largest_chunk: scores to hold at once.
    """
    rows = max(1, largest_chunk // weight_VD.shape[0])
    if hidden_ND.shape[0] <= rows:
        return Scored(*_chunk(hidden_ND, weight_VD, bias_V, targets_N, label_smoothing))
    parts = [
        checkpoint(
            _chunk, hidden, weight_VD, bias_V, targets, label_smoothing, use_reentrant=False, preserve_rng_state=False
        )
        for hidden, targets in zip(hidden_ND.split(rows), targets_N.split(rows), strict=True)
    ]
    losses, nats, hits = zip(*parts, strict=True)
    return Scored(torch.stack(losses).sum(), torch.stack(nats).sum(), torch.cat(hits))


def summed_cross_entropy(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    *,
    largest_chunk: int = LARGEST_CHUNK,
) -> tuple[Tensor, Tensor]:
    """Sum of the cross-entropies of rows, in nats, and the number of rows whose best score is their target.

    Arguments as in ``scored_targets``.

    Returns:
        Two scalars: the loss, float32 or wider, with a gradient (0 where no row has a target), and int64.
    """
    scored = scored_targets(hidden_ND, weight_VD, bias_V, targets_N, largest_chunk=largest_chunk)
    return scored.loss, scored.hits_N.sum()


def _chunk(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    scores_NV = F.linear(hidden_ND, weight_VD, bias_V)
    scores_NV = scores_NV.to(torch.promote_types(scores_NV.dtype, torch.float32))
    given: dict[str, Any] = {"ignore_index": NO_TARGET, "reduction": "sum"}
    loss = F.cross_entropy(scores_NV, targets_N, label_smoothing=label_smoothing, **given)
    nats = F.cross_entropy(scores_NV.detach(), targets_N, **given) if label_smoothing else loss.detach()
    return loss, nats, scores_NV.detach().argmax(-1) == targets_N
