"""Attention by feature maps, in time and memory that grow with T, not with T x S.

    out_t = phi(q_t)^T S / phi(q_t)^T z,  S = sum of phi(k_s) v_s^T,  z = sum of phi(k_s)

over the keys s that query t may attend to. A causal mask goes chunk by chunk: inside a chunk all pairs, from one
chunk to the next the state (S, z). A cache holds the state.

Dimension legend: B batch, T queries, S keys, N heads, G key/value heads, F features, V value size, L chunks,
C tokens of a chunk, X any size.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.values.call import Call, grouped_product, no_autocast
from zoo.nn.recurrence import CHUNK, steps_of

OFFERS: Final = frozenset({"causal", "bidirectional", "cross", "cache", "padding", "documents", "prefix"})
"""What ``kernel_attention`` honours."""


def kernel_attention(
    q_BNTF: Tensor, k_BGSF: Tensor, v_BGSV: Tensor, call: Call, *, fade_BGF1: Tensor | None = None, chunk: int = CHUNK
) -> Tensor:
    """(B, N, T, V) averages of the values with weights phi(q)^T phi(k), in the values' dtype.

    A query whose weights sum to nothing gets 0. With a cache the keys are those of the new tokens only
    (``keeps_keys = False``).

    Args:
        q_BNTF: features of the queries, float32 or wider.
        k_BGSF: features of the keys.
        v_BGSV: values.
        call: mask, documents and cache.
        fade_BGF1: factors that bring what the cache holds to the scale of these features.
        chunk: tokens of a chunk.
    """
    values = F.pad(v_BGSV.to(k_BGSF.dtype), (0, 1), value=1.0)  # the last column sums up the weights
    with no_autocast(q_BNTF.device):
        if call.kind == "cross":
            sums = _of_source(q_BNTF, k_BGSF, values, call)
        else:
            sums = _of_tokens(q_BNTF, k_BGSF, values, call, fade_BGF1, chunk)
    return averages(sums).to(v_BGSV.dtype)


def averages(sums_BNTX: Tensor) -> Tensor:
    """(B, N, T, V) from sums of values and, in the last place, of weights; 0 where weights sum to nothing."""
    total = sums_BNTX[..., -1:]
    limits = torch.finfo(total.dtype)
    nothing = total.abs() < limits.tiny / limits.eps  # else gradients, which divide by it, overflow
    return (sums_BNTX[..., :-1] / total.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)


def _of_source(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
    """Sums over another sequence, whose state the cache keeps."""
    k = k.masked_fill(~call.valid_B1S1(k), 0.0)
    if call.mask.parts() - {"bidirectional", "padding"}:  # each query sees other keys: one pair after the other
        weights, allowed = grouped_product(q, k.mT), call.mask.dense(k.device)
        return grouped_product(weights if allowed is None else weights.masked_fill(~allowed, 0.0), v)
    state = None if call.cache is None else call.cache.get("state")
    if state is None:
        state = k.mT @ v
        if call.cache is not None:
            call.cache.put("state", state)
    return grouped_product(q, state)


def _of_tokens(q: Tensor, k: Tensor, v: Tensor, call: Call, fade: Tensor | None, chunk: int) -> Tensor:
    """Sums over the sequence itself and what the cache holds of it."""
    valid_BT, number_BT = steps_of(call.tokens())
    if valid_BT is not None:
        k = k.masked_fill(~valid_BT[:, None, :, None], 0.0)
    state = None if call.cache is None else call.cache.get("state")
    if state is None:
        state = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    elif fade is not None:
        state = state * fade
    if not call.mask.causal and number_BT is None:
        sums, after = _everything(q, k, v, state)
    else:
        sums, after = _past(q, k, v, number_BT, state, chunk)
        if not call.mask.causal:
            sums = sums + _future(q, k, v, number_BT, chunk)
        elif call.mask.prefix_B is not None:
            slot_T = torch.arange(call.mask.start, call.mask.start + q.shape[2], device=q.device)
            inside = (slot_T < call.mask.prefix_B[:, None])[:, None, :, None]
            ahead = _future(q, k.masked_fill(~inside, 0.0), v, number_BT, chunk)
            sums = torch.where(inside, sums + ahead, sums)
    if call.cache is not None:
        call.cache.put("state", after)
    return sums


def _everything(q: Tensor, k: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    state = state + k.mT @ v
    return grouped_product(q, state), state


def _future(q: Tensor, k: Tensor, v: Tensor, number_BT: Tensor | None, chunk: int) -> Tensor:
    """Sums over later keys of a query's own document."""
    number_BT = None if number_BT is None else number_BT.flip(1)
    state = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    return _past(q.flip(2), k.flip(2), v.flip(2), number_BT, state, chunk, own=False)[0].flip(2)


def _past(
    q: Tensor, k: Tensor, v: Tensor, number_BT: Tensor | None, state: Tensor, chunk: int, *, own: bool = True
) -> tuple[Tensor, Tensor]:
    """Sums over earlier keys of a query's own document, and the state behind the last token.

    Args:
        q, k, v: (B, heads, T, X).
        number_BT: documents, numbered from that of ``state``, which is 0.
        state: (B, G, F, V) what is before the first token.
        chunk: tokens of a chunk.
        own: whether a query's own key counts.
    """
    batch, tokens = q.shape[0], q.shape[2]
    size = min(chunk, tokens)
    count = -(-tokens // size)
    q, k, v = (_chunks(x, count, size) for x in (q, k, v))
    allowed = torch.ones(size, size, dtype=torch.bool, device=q.device).tril(0 if own else -1)
    opened, kept, goes_on_BL = q, k, None
    if number_BT is not None:
        rest_BT = number_BT[:, -1:].expand(-1, count * size - tokens)
        number_BLC = torch.cat([number_BT, rest_BT], 1).unflatten(1, (count, size))
        last_BL = number_BLC[..., -1]
        before_BL = F.pad(last_BL[:, :-1], (1, 0))
        goes_on_BL = last_BL == before_BL
        allowed = allowed & (number_BLC[..., :, None] == number_BLC[..., None, :]).flatten(0, 1)[:, None]
        opened = q.masked_fill(_outside(number_BLC, before_BL), 0.0)  # queries to whom the state before speaks
        kept = k.masked_fill(_outside(number_BLC, last_BL), 0.0)  # keys that the state behind remembers
    added_BL = (kept.mT @ v).unflatten(0, (batch, count))
    states = []
    # unbind, not indexing: the gradient of an index is a tensor as large as all chunks
    for index, added in enumerate(added_BL.unbind(1)):
        states.append(state)
        if goes_on_BL is not None:
            state = state * goes_on_BL[:, index, None, None, None]
        state = state + added
    inside = grouped_product(grouped_product(q, k.mT).masked_fill(~allowed, 0.0), v)
    sums = inside + grouped_product(opened, torch.stack(states, 1).flatten(0, 1))
    return sums.unflatten(0, (batch, count)).transpose(1, 2).flatten(2, 3)[:, :, :tokens], state


def _chunks(x: Tensor, count: int, size: int) -> Tensor:
    """(B L, heads, C, X) from (B, heads, T, X), filled up with zeros."""
    filled = F.pad(x, (0, 0, 0, count * size - x.shape[2]))
    return filled.unflatten(2, (count, size)).transpose(1, 2).flatten(0, 1)


def _outside(number_BLC: Tensor, number_BL: Tensor) -> Tensor:
    """(B L, 1, C, 1) bool: tokens of other documents than the chunk's number says."""
    return (number_BLC != number_BL[..., None]).flatten(0, 1)[:, None, :, None]
