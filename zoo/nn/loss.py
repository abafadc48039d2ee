"""Cross-entropy over a vocabulary without ever keeping all (rows x vocabulary) scores.

``F.linear_cross_entropy`` of torch 2.14.1 has a chunked path, but in bfloat16 it returns a bfloat16 sum (off by
1 to 3 % over some thousand rows), and in float32 on a CPU it takes 1.5 to 5 times as long. So scores are made
by the ordinary path, as wide as float32, all at once where they fit and else in chunks that the backward pass
makes again (4/3 of the head's arithmetic).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

NO_TARGET = -100
"""Target of a position where nothing is to be predicted."""

LARGEST_CHUNK = 2**27
"""Scores that are held at once: 512 MiB in float32."""


def summed_cross_entropy(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    *,
    largest_chunk: int = LARGEST_CHUNK,
) -> tuple[Tensor, Tensor]:
    """Sum of the cross-entropies of rows, in nats, and the number of rows whose best score is their target.

    Args:
        hidden_ND: hidden states.
        weight_VD: weight of the output layer.
        bias_V: its bias.
        targets_N: int64 below V, or ``NO_TARGET``, which counts for nothing.
        largest_chunk: scores to hold at once.

    Returns:
        Two scalars: the loss, float32 or wider, with a gradient (0 where no row has a target), and int64.
    """
    rows = max(1, largest_chunk // weight_VD.shape[0])
    if hidden_ND.shape[0] <= rows:
        return _chunk(hidden_ND, weight_VD, bias_V, targets_N)
    parts = [
        checkpoint(_chunk, hidden, weight_VD, bias_V, targets, use_reentrant=False, preserve_rng_state=False)
        for hidden, targets in zip(hidden_ND.split(rows), targets_N.split(rows), strict=True)
    ]
    losses, hits = zip(*parts, strict=True)
    return torch.stack(losses).sum(), torch.stack(hits).sum()


def _chunk(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    scores_NV = F.linear(hidden_ND, weight_VD, bias_V)
    scores_NV = scores_NV.to(torch.promote_types(scores_NV.dtype, torch.float32))
    loss = F.cross_entropy(scores_NV, targets_N, ignore_index=NO_TARGET, reduction="sum")
    return loss, (scores_NV.detach().argmax(-1) == targets_N).sum()
