"""Positions count what a head finds worth counting: a key's is the sum of gates from it to the query (CoPE).

    g[t, s] = sigmoid(q_t k_s^T / sqrt(H)),  c[t, s] = g[t, s] + ... + g[t, t]
    score(t, s) = q_t (k_s + e[c[t, s]])^T / sqrt(H)

Acts on scores, reads queries, keys and the mask: what a query doesn't see, it doesn't count. Counts end at the last
position; between two whole ones e is interpolated. Costs a second product of queries and keys. Keys are counted in
the order of their positions, from the last one that the query sees: the query's own under a causal mask.
Golovneva et al. 2024, "Contextual position encoding", section 4, arXiv:2405.18719.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call, no_autocast

__all__ = ["Cope"]


@final
class Cope(Position):
    """Contextual position encoding."""

    relative = True
    content = True
    liftable = False

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the counts."""

        positions: int = 64
        """Vectors, for counts from 0 to one less."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.positions < 2:
            raise ValueError(f"cope needs at least 2 positions to count, got {config.positions}")
        self.table = nn.Parameter(torch.empty(config.positions, self.size))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Zeros, as published: counts mean nothing yet."""
        del name, generator
        parameter.zero_()

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor | None:
        """(1|B, S) int64 order of the keys by position; ``None`` where they are seen to be in order."""
        del at_BTA
        keys_BS = keys_BSA[..., 0]
        may_look = keys_BS.is_cpu and not torch.compiler.is_compiling()  # elsewhere a look stops the device
        return None if may_look and bool((keys_BS.diff() >= 0).all()) else keys_BS.argsort(dim=-1, stable=True)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor | None) -> Tensor:
        """(B, N, T, S) in float32 or wider, scaled like the scores."""
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        q_BNTH, k_BNSH = q_BNTH.to(wide), k_BNSH.to(wide)
        with no_autocast(q_BNTH.device):
            gate_BNTS = (q_BNTH @ k_BNSH.transpose(-1, -2) * call.scale).sigmoid()
            by_count_BNTC = q_BNTH @ self.table.to(wide).T
        counted = call.mask.dense(gate_BNTS.device)
        if call.place.nowhere and call.place.keys_BSA is not None:
            stands = (call.place.keys_BSA >= 0).all(-1)[:, None, None]
            counted = stands if counted is None else counted & stands
        if counted is not None:
            gate_BNTS = gate_BNTS.masked_fill(~counted, 0.0)
        count_BNTS = _summed_from_the_last(gate_BNTS, prepared).clamp(max=self.config.positions - 1)
        below = by_count_BNTC.gather(-1, count_BNTS.floor().long())
        above = by_count_BNTC.gather(-1, count_BNTS.ceil().long())
        return (below + (count_BNTS - count_BNTS.floor()) * (above - below)) * call.scale


def _summed_from_the_last(gate_BNTS: Tensor, order_BS: Tensor | None) -> Tensor:
    """(B, N, T, S) the sum of the gates of each key and of all that come after it in an order."""
    if order_BS is None:
        return gate_BNTS.flip(-1).cumsum(-1).flip(-1)
    order, back = (index[:, None, None].expand_as(gate_BNTS) for index in (order_BS, order_BS.argsort(-1)))
    return gate_BNTS.gather(-1, order).flip(-1).cumsum(-1).flip(-1).gather(-1, back)
