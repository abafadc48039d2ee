"""One recurrence of a matrix, step by step or in chunks: linear attention, delta rules, state spaces are its cases.

    S_t = Diag(exp(decay_t)) S_{t-1} - erase_t (read_t^T S_{t-1}) + k_t v_t^T,   o_t = S_t^T q_t

The state S holds H x V numbers a head, whatever the length. Step by step is the definition. In chunks of C tokens
everything but the state at the chunks' borders is matrix products: with c the sums of decays since the chunk began,
token j writes to token i with weight exp(c_i - c_j), and what the tokens of a chunk read of each other's writings is
a unit lower triangular system, solved at once (the WY or UT form).
Exponents c_i - c_j are sums of their own, never differences: none is above 0, strong decays don't drown weak ones,
and a decay of minus infinity is allowed: each new document begins with one.

Yang et al. 2023, arXiv:2312.06635, section 4 (decays in chunks); Yang et al. 2024, arXiv:2406.06484, section 3
(erasure in chunks).
Cost for T tokens and a head: T (C (H + V) + 2 H V) multiply-adds, about three times as many with erasure.

Dimension legend: B batch, T tokens, N heads, H size of keys, V size of values, L chunks, C tokens of a chunk,
X is H for a decay of each element or 1 for one of the head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import Tokens, no_autocast

CHUNK = 64
"""Tokens of a chunk, a power of two: fewer mean more steps from chunk to chunk, more mean more pairs of tokens."""


class Steps(NamedTuple):
    """What a recurrence must heed of the new tokens; ``None`` where there is nothing."""

    valid_BT: Tensor | None = None
    """(B, T) bool: False is padding, which neither writes nor decays."""
    segment_BT: Tensor | None = None
    """(B, T) int64: 0 goes on from the state, each change of document begins the next number."""


def steps_of(tokens: Tokens) -> Steps:
    """Padding, and documents numbered by where they change."""
    documents_BT = tokens.documents_BT
    if documents_BT is None:
        return Steps(tokens.valid_BT)
    first_B1 = documents_BT[:, :1] if tokens.before_B1 is None else tokens.before_B1
    before_BT = torch.cat([first_B1, documents_BT[:, :-1]], 1)
    return Steps(tokens.valid_BT, (documents_BT != before_BT).long().cumsum(1))


def recur(
    q_BNTH: Tensor,
    k_BNTH: Tensor,
    v_BNTV: Tensor,
    *,
    decay_BNTX: Tensor | None = None,
    read_BNTH: Tensor | None = None,
    erase_BNTH: Tensor | None = None,
    steps: Steps = Steps(),  # noqa: B008  # immutable
    cache: LayerCache | None = None,
    chunk: int = CHUNK,
) -> Tensor:
    """(B, N, T, V) in float32 or wider; the state is taken from the cache and left there as ``state``.

    Args:
        q_BNTH: queries; they and the keys may have a single head for all heads of the values.
        k_BNTH: keys, what is written to.
        v_BNTV: values.
        decay_BNTX: logarithms of the decays, at most 0; ``None`` for none. Batch and heads may be 1.
        read_BNTH: what is read of the state before it decays, to be erased; ``None`` for no erasure.
        erase_BNTH: where to erase; ``None`` means the keys, which then are multiples of what is read (a delta rule).
        steps: padding and documents.
        cache: the layer's own memory.
        chunk: tokens of a chunk, a power of two.
    """
    wide = torch.promote_types(v_BNTV.dtype, torch.float32)
    batch, heads, tokens, _ = v_BNTV.shape
    with no_autocast(v_BNTV.device):
        q, k, v = (x.to(wide) for x in (q_BNTH, k_BNTH, v_BNTV))
        decay = v.new_zeros(1, 1, tokens, 1) if decay_BNTX is None else decay_BNTX.to(wide)
        read, erase = (None if x is None else x.to(wide) for x in (read_BNTH, erase_BNTH))
        if steps.valid_BT is not None:
            padding_B1T1 = ~steps.valid_BT[:, None, :, None]
            k, decay = k.masked_fill(padding_B1T1, 0.0), decay.masked_fill(padding_B1T1, 0.0)
            erase = None if erase is None else erase.masked_fill(padding_B1T1, 0.0)
        if steps.segment_BT is not None:
            begins_B1T1 = (steps.segment_BT != F.pad(steps.segment_BT, (1, -1)))[:, None, :, None]
            decay = decay.masked_fill(begins_B1T1, -torch.inf)
            read = None if read is None else read.masked_fill(begins_B1T1, 0.0)
        state = None if cache is None else cache.get("state")
        state = v.new_zeros(batch, heads, k.shape[-1], v.shape[-1]) if state is None else state.to(wide)
        if tokens <= 4:
            out, state = stepwise(q, k, v, decay, read, erase, state)
        else:
            out, state = chunked(q, k, v, decay, read, erase, state, min(chunk, 1 << (tokens - 1).bit_length()))
    if cache is not None:
        cache.put("state", state)
    return out


def stepwise(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, read: Tensor | None, erase: Tensor | None, state_BNHV: Tensor
) -> tuple[Tensor, Tensor]:
    """The recurrence token by token; outputs (B, N, T, V) and the state behind the last token."""
    erase, outs, state = k if erase is None else erase, [], state_BNHV
    for t in range(v.shape[2]):
        new = decay[:, :, t, :, None].exp() * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        if read is not None:
            new = new - erase[:, :, t, :, None] * (read[:, :, t, None, :] @ state)
        state = new
        outs.append(q[:, :, t, None, :] @ state)
    return torch.cat(outs, 2), state


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    read: Tensor | None,
    erase: Tensor | None,
    state_BNHV: Tensor,
    size: int,
) -> tuple[Tensor, Tensor]:
    """The same as ``stepwise``, ``size`` tokens at a time, a power of two; spare ones at the end do nothing."""
    tokens = v.shape[2]
    q, k, v, decay = (_cut(x, size) for x in (q, k, v, decay))
    columns = [k] if erase is None else [k, _cut(erase, size)]
    leave, kept = _behind(decay).exp(), decay.sum(3, keepdim=True).exp()
    writes = [(column * leave).transpose(-1, -2) for column in columns]
    if read is None:
        (pairs,) = _pairs([(q, False)], columns, decay)
        states, state = _states(kept, writes[0] @ v, None, state_BNHV)
        out = pairs[0] @ v
    else:
        # what is read, u = read^T S, is linear in the chunk's first state S: (1 + seen[-1]) u = reads S + seen[0] v
        read = _cut(read, size)
        pairs, seen = _pairs([(q, False), (read, True)], columns, decay)
        reads = (read * _before(decay).exp()).expand(*v.shape[:-1], -1)
        known = torch.cat([reads, seen[0] @ v], -1)
        solved = torch.linalg.solve_triangular(seen[-1], known, upper=False, unitriangular=True)
        of_state, alone = solved.split([k.shape[-1], v.shape[-1]], -1)
        states, state = _states(kept, writes[0] @ v - writes[-1] @ alone, writes[-1] @ of_state, state_BNHV)
        out = pairs[0] @ v - pairs[-1] @ (alone + of_state @ states)
    out = out + (q * decay.cumsum(3).exp()) @ states
    return out.flatten(2, 3)[:, :, :tokens], state


def _cut(x_BNTX: Tensor, size: int) -> Tensor:
    """(B, N, L, C, X), zeros behind the last token."""
    spare = -x_BNTX.shape[2] % size
    return (F.pad(x_BNTX, (0, 0, 0, spare)) if spare else x_BNTX).unflatten(2, (-1, size))


def _states(kept: Tensor, written: Tensor, turn: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """(B, N, L, H, V) at the begin of each chunk, and the one behind the last: S' = kept S + written - turn S."""
    turns = [None] * written.shape[2] if turn is None else turn.unbind(2)
    states = []
    # unbind, not indexing: the gradient of an index is a tensor as large as all chunks
    for keep, write, away in zip(kept.transpose(-1, -2).unbind(2), written.unbind(2), turns, strict=True):
        states.append(state)
        state = keep * state + (write if away is None else write - away @ state)
    return torch.stack(states, 2), state


def _before(x: Tensor) -> Tensor:
    """(..., C, X), the sum of what is before each of the C."""
    return F.pad(x[..., :-1, :], (0, 0, 1, 0)).cumsum(-2)


def _behind(x: Tensor) -> Tensor:
    """(..., C, X), the sum of what is behind each of the C."""
    return F.pad(x[..., 1:, :], (0, 0, 0, 1)).flip(-2).cumsum(-2).flip(-2)


def _pairs(rows: list[tuple[Tensor, bool]], columns: list[Tensor], decay: Tensor) -> list[list[Tensor]]:
    """(B, N, L, C, C) for each row and column: what remains at token i of what token j wrote, read with x_i.

    That is the sum over h of x_ih y_jh exp(decays of j + 1 to i), 0 for j > i. Where a row (x, True) reads before the
    token decays, the sum of decays ends at i - 1, and j = i is 0 as well.
    """
    if decay.shape[-1] > 1:
        return _element_pairs(rows, columns, decay)
    return [[(x @ y.transpose(-1, -2)) * _remains(decay, early) for y in columns] for x, early in rows]


def _remains(decay: Tensor, early: bool) -> Tensor:
    """(..., C, C) from (..., C, 1): exp of the decays of j + 1 to i, or to i - 1 if ``early``."""
    size = decay.shape[-2]
    later = torch.ones(size, size, dtype=torch.bool, device=decay.device).tril(-1)
    sums = torch.where(later, decay, 0.0).cumsum(-2)
    return F.pad(sums[..., :-1, :], (0, 0, 1, 0)).exp() * later if early else sums.exp().tril()


def _element_pairs(rows: list[tuple[Tensor, bool]], columns: list[Tensor], decay: Tensor) -> list[list[Tensor]]:
    """As ``_pairs``, each element with a decay of its own: from single tokens to the whole chunk by doubling.

    Two blocks of tokens make one by what the first writes to the second: a product of what remains at their border
    and what remains of that, neither above 1. Rows and columns of a token stand side by side, so that all of them
    are one product.
    """
    x = torch.stack(torch.broadcast_tensors(*(row for row, _ in rows)), -2)  # (B, N, L, C, rows, H)
    y = torch.stack(torch.broadcast_tensors(*columns), -2)
    own = torch.tensor([[not early] for _, early in rows], dtype=x.dtype, device=x.device)
    pairs, block = (x @ y.transpose(-1, -2)) * own, 1  # (B, N, L, C / block, block rows, block columns)
    while block < decay.shape[-2]:
        first, second = decay.unflatten(-2, (-1, 2, block)).unbind(-3)
        since = second.cumsum(-2)
        before = F.pad(since[..., :-1, :], (0, 0, 1, 0))
        reach = torch.stack([before if early else since for _, early in rows], -2).exp()
        below = (x.unflatten(-3, (-1, 2, block))[..., 1, :, :, :] * reach).flatten(-3, -2)
        above = y.unflatten(-3, (-1, 2, block))[..., 0, :, :, :] * _behind(first).exp().unsqueeze(-2)
        across = below @ above.flatten(-3, -2).transpose(-1, -2)
        upper, lower = pairs.unflatten(-3, (-1, 2)).unbind(-3)
        upper, lower = torch.cat([upper, torch.zeros_like(upper)], -1), torch.cat([across, lower], -1)
        pairs, block = torch.cat([upper, lower], -2), 2 * block
    pairs = pairs.squeeze(-3).unflatten(-1, (block, -1)).unflatten(-3, (block, -1))
    return [list(row.unbind(-1)) for row in pairs.unbind(-3)]
