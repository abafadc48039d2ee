"""Right components of an unusual build: a fair examination passes them, and some faults are built upon them.

Dimension legend: B batch, T queries, S keys, D width, N heads, H head size, V value size, P pairs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import Attention, HeadedAttention
from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.position import Position
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output


class Ported(Attention):
    """Attention as somebody brings it along: keys and values from one matrix, its own forward, its own mask."""

    offers = frozenset(
        {"causal", "bidirectional", "cross", "cache", "padding", "documents", "window", "prefix"}
        | {"rotate", "bias", "content_bias", "map"}
    )

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        if dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads")
        self.query, self.both = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.output = branch_output(nn.Linear(dim, dim))

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Place = NOWHERE,
        cache: LayerCache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        if context_BSD is None:
            q, k, v = self.own(x_BTD, mask, place, cache)
        else:
            q, k, v = self.looking(x_BTD, context_BSD, place, cache)
        kind = "self" if context_BSD is None else "cross"
        call = self.call(x_BTD, mask=mask, place=place, cache=cache, notes=notes, dtype=v.dtype, kind=kind)
        weights = F.dropout(self.weights(q, k, call).to(v.dtype), self.dropout, self.training)
        return self.output(self.merged(call.emptied(weights @ v)))

    def own(self, x_BTD: Tensor, mask: Mask, place: Place, cache: LayerCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, and the keys and values of all tokens so far."""
        q, k, v = (self.split(x) for x in (self.query(x_BTD), *self.both(x_BTD).chunk(2, -1)))
        q, k = place.rotate(q), place.rotate_keys(k)
        if cache is not None:
            k, v = cache.append("k", k, 2), cache.append("v", v, 2)
        return q, k, v

    def looking(
        self, x_BTD: Tensor, context_BSD: Tensor, place: Place, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, and the keys and values of the other sequence, made once."""
        kv = None if cache is None else cache.get("kv")
        if kv is None:
            kv = self.both(context_BSD)
            if cache is not None:
                cache.put("kv", kv)
        k, v = (self.split(x) for x in kv.chunk(2, -1))
        return place.rotate(self.split(self.query(x_BTD))), k, v

    def split(self, x_BTD: Tensor) -> Tensor:
        """(B, N, T, H)."""
        return x_BTD.unflatten(-1, (-1, self.score_size)).transpose(1, 2)

    def merged(self, out_BNTV: Tensor) -> Tensor:
        """(B, T, D)."""
        return out_BNTV.transpose(1, 2).flatten(2)

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        """(B, N, T, S), left in the notes where somebody wants to see them."""
        scores = call.scores(q_BNTH, k_BNSH)
        weights = scores.masked_fill(~self.allowed(call.mask, scores.device), torch.finfo(scores.dtype).min).softmax(-1)
        if call.notes.wants_maps:
            call.notes.keep(f"map.{call.layer}.{call.kind}", weights)
        return weights

    def allowed(self, mask: Mask, device: torch.device) -> Tensor:
        """(1|B, 1, T, S) bool, made of the mask's parts."""
        query_T1 = torch.arange(mask.start, mask.start + mask.queries, device=device)[:, None]
        key_S = torch.arange(mask.first, mask.first + mask.keys, device=device)
        allowed = torch.ones(1, mask.queries, mask.keys, dtype=torch.bool, device=device)
        if mask.causal:
            allowed = allowed & (key_S <= query_T1)
        if mask.causal and mask.prefix_B is not None:
            allowed = allowed | (key_S < mask.prefix_B[:, None, None])
        if mask.window is not None:
            allowed = allowed & ((key_S - query_T1).abs() < mask.window)
        if mask.valid_BS is not None:
            allowed = allowed & mask.valid_BS[:, None, :]
        if mask.documents_BS is not None and mask.documents_BT is not None:
            allowed = allowed & (mask.documents_BT[:, :, None] == mask.documents_BS[:, None, :])
        if mask.pattern is not None:
            return allowed[:, None] & mask.dense(device)
        return allowed[:, None]


class OnlineSoftmax(HeadedAttention):
    """Softmax attention over a few keys at a time, with a running maximum and a running sum."""

    offers = HeadedAttention.offers - {"map"}

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        scores = call.hide(call.scores(q_BNTH, k_BNSH))
        peak = torch.full_like(scores[..., :1], torch.finfo(scores.dtype).min)
        total, mixed = torch.zeros_like(peak), torch.zeros_like(peak)
        for some, values in zip(scores.split(3, -1), v_BNSV.to(scores.dtype).split(3, 2), strict=True):
            higher = torch.maximum(peak, some.detach().amax(-1, keepdim=True))
            shrink, weights = (peak - higher).exp(), (some - higher).exp()
            total = total * shrink + weights.sum(-1, keepdim=True)
            mixed = mixed * shrink + F.dropout(weights, self.dropout, self.training) @ values
            peak = higher
        return (mixed / total).to(v_BNSV.dtype)


class Decay(HeadedAttention):
    """A recurrence that forgets at a constant rate: S_t = decay S_(t-1) + k_t v_t^T, out_t = scale q_t S_t."""

    offers = frozenset({"causal", "cache", "padding", "documents", "rotate"})
    keeps_keys = False

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs."""

        decay: float = 0.9
        """What is left of the state from one token to the next."""

    def attend(self, q_BNTH: Tensor, k_BNTH: Tensor, v_BNTV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), a token at a time."""
        q, k, v = (x.to(self.wide(v_BNTV.dtype)) for x in (q_BNTH * call.scale, k_BNTH, v_BNTV))
        state = self.before(call)
        if state is None:
            state = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None, :])
        valid_BT, documents_BT, last_B1 = self.heeded(call)
        out = []
        for t in range(q.shape[2]):
            here_B = None if valid_BT is None else valid_BT[:, t, None, None, None]
            if documents_BT is not None:
                now_B1 = documents_BT[:, t : t + 1]
                if valid_BT is not None and last_B1 is not None:
                    now_B1 = torch.where(valid_BT[:, t : t + 1], now_B1, last_B1)
                if last_B1 is not None:
                    state = state * (now_B1 == last_B1)[..., None, None]
                last_B1 = now_B1
            new = self.config.decay * state + k[:, :, t, :, None] * v[:, :, t, None, :]
            state = new if here_B is None else torch.where(here_B, new, self.idle(state))
            out.append((q[:, :, t, None] @ state)[:, :, 0])
        self.remember(state, call)
        return torch.stack(out, 2).to(v_BNTV.dtype)

    def idle(self, state_BNHV: Tensor) -> Tensor:
        """What a token of padding leaves of the state: all of it."""
        return state_BNHV

    def wide(self, dtype: torch.dtype) -> torch.dtype:
        """What the state is kept in."""
        return torch.promote_types(dtype, torch.float32)

    def before(self, call: Call) -> Tensor | None:
        """(B, N, H, V) the state that earlier tokens left."""
        return None if call.cache is None else call.cache.get("state")

    def remember(self, state_BNHV: Tensor, call: Call) -> None:
        """Keep the state for the next tokens."""
        if call.cache is not None:
            call.cache.put("state", state_BNHV)

    def heeded(self, call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Which new tokens are none, their documents, and the document of the token before them."""
        return call.tokens()


class Convolution(Attention):
    """Each channel mixes a token with the few before it, without heads or scores."""

    offers = frozenset({"causal", "cache"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Attention.Config):
        """Knobs."""

        taps: int = 4
        """Tokens that are mixed, the last one included."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.taps = nn.Parameter(torch.empty(config.taps, self.dim))
        self.output = branch_output(nn.Linear(self.dim, self.dim))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Normal, so that the sum has the size of a token."""
        parameter.normal_(0.0, len(parameter) ** -0.5, generator=generator)

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Place = NOWHERE,
        cache: LayerCache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        tail_BKD = None if cache is None else cache.get("tail")
        if tail_BKD is None:
            tail_BKD = torch.zeros_like(x_BTD[:, :1]).expand(-1, self.config.taps - 1, -1)
        long_BUD = self.padded(x_BTD, tail_BKD)
        if cache is not None:
            cache.put("tail", self.tail(x_BTD, tail_BKD))
        windows_BTDK = long_BUD.unfold(1, self.config.taps, 1)
        return self.output((windows_BTDK * self.taps.T).sum(-1))

    def padded(self, x_BTD: Tensor, tail_BKD: Tensor) -> Tensor:
        """(B, T + taps - 1, D) what the filter runs over."""
        return torch.cat([tail_BKD, x_BTD], 1)

    def tail(self, x_BTD: Tensor, tail_BKD: Tensor) -> Tensor:
        """(B, taps - 1, D) the last tokens, for those that come."""
        long_BUD = torch.cat([tail_BKD, x_BTD], 1)
        return long_BUD[:, long_BUD.shape[1] - self.config.taps + 1 :].clone()


class ComplexRotary(Position):
    """Rotary positions as a product of complex numbers; neighbours are the pairs."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.size % 2:
            raise ValueError(f"rotary needs an even head dim, got {self.size}")

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, 1, T, P) complex128 numbers of modulus 1."""
        del keys_BSA
        pair = torch.arange(self.size // 2, dtype=torch.float64, device=at_BTA.device)
        phase = at_BTA[:, None, :, :1].double() * 10000.0 ** (-2 * pair / self.size)
        return torch.polar(torch.ones_like(phase), phase)

    def rotate(self, x_BNTH: Tensor, prepared: Tensor) -> Tensor:
        """(B, N, T, H) turned, in float32 or wider."""
        wide = x_BNTH.to(torch.promote_types(x_BNTH.dtype, torch.float32))
        numbers = torch.view_as_complex(wide.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(numbers * prepared.to(numbers.dtype)).flatten(-2).to(x_BNTH.dtype)


class Alibi(Position):
    """A penalty on distance, on both sides, with the published slope of each head."""

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, 1, T, S) distances."""
        return (at_BTA[:, :, None, 0] - keys_BSA[:, None, :, 0]).abs()[:, None]

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S)."""
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        return -torch.tensor(self.slopes(self.heads), dtype=wide, device=q_BNTH.device)[:, None, None] * prepared

    def slopes(self, heads: int) -> list[float]:
        """Those of the next lower power of two, then every other one of the next higher."""
        power = 2 ** math.floor(math.log2(heads))
        own = [2 ** (-8 * (head + 1) / power) for head in range(power)]
        return own if power == heads else own + self.slopes(2 * power)[0::2][: heads - power]


class Routed(FeedForward):
    """Two networks and a gate that mixes them; large gate scores cost something (router z-loss)."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.gate = nn.Linear(self.dim, 2)
        self.up = nn.ModuleList(nn.Linear(self.dim, 2 * self.dim) for _ in range(2))
        self.down = nn.ModuleList(branch_output(nn.Linear(2 * self.dim, self.dim)) for _ in range(2))

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        gate_BT2 = self.gate(x_BTD)
        gate_BT2 = gate_BT2.to(torch.promote_types(gate_BT2.dtype, torch.float32))
        if notes is not None:
            cost_BT = 1e-3 * gate_BT2.logsumexp(-1).square()
            notes.auxiliary(f"router.{self.layer}", *self.cost(cost_BT, valid_BT))
        share_BT2 = gate_BT2.softmax(-1).to(x_BTD.dtype)
        made = [down(F.silu(up(x_BTD))) for up, down in zip(self.up, self.down, strict=True)]
        return share_BT2[..., :1] * made[0] + share_BT2[..., 1:] * made[1]

    def cost(self, cost_BT: Tensor, valid_BT: Tensor | None) -> tuple[Tensor, int]:
        """The sum over tokens, and their number; padding is none."""
        if valid_BT is None:
            return cost_BT.sum(), cost_BT.numel()
        return torch.where(valid_BT, cost_BT, 0.0).sum(), int(valid_BT.sum())
