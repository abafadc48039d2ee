"""Small attentions with values that matter, masks of every part, and attention by loops to hold them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.testing.masks import may_attend, padding
from zoo.testing.module_case import scatter
from zoo.testing.numbers import noise

DIM, HEADS, T = 16, 4, 6
EXACT = 1e-12
"""Thousands of roundings of float64: sums over a few dozen numbers near 1, taken in another order."""

MASKS = {
    "causal": Mask(causal=True),
    "open": Mask(),
    "padded documents": Mask(
        causal=True, valid_BS=padding([6, 4], T, left=True), documents_BS=torch.tensor([[0, 0, 0, 1, 1, 1], [2] * 6])
    ),
    "padded on the right": Mask(valid_BS=padding([3, 5], T, left=False)),
    "window": Mask(causal=True, window=3),
    "prefix": Mask(causal=True, prefix_B=torch.tensor([3, 0])),
}


def made(cls: Callable[..., Any], *, dtype: torch.dtype = torch.float64, training: bool = False, **told: Any) -> Any:
    """A module with scattered values; ``told`` are the parent's words where it knows them, else knobs."""
    parent = {"dim": DIM, "heads": HEADS, "layer": 0, "layers": 2, "dropout": 0.0, "length": None}
    parent |= {name: told.pop(name) for name in list(told) if name in parent}
    layer = cls.part(**told)(**parent)  # type: ignore[attr-defined]
    scatter(layer, 3)
    return layer.to(dtype).train(training)


def tokens(batch: int = 2, count: int = T, *, salt: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """(B, T, D) noise."""
    return noise(batch, count, DIM, seed=100 + salt, dtype=dtype)


def run(layer: Any, x_BTD: Tensor, mask: Mask, **others: Any) -> Tensor:
    """Self-attention under a caller's mask."""
    sized, at_BTA, keys_BSA = Cache().extend(mask, x_BTD)
    scheme = others.pop("scheme", None)
    place = NOWHERE if scheme is None else Place(scheme, at_BTA, keys_BSA)
    return layer(x_BTD, mask=sized, place=place, **others)


def in_chunks(layer: Any, x_BTD: Tensor, chunks: list[int], mask: Mask, **others: Any) -> Tensor:
    """The same piece by piece through a cache."""
    cache, outs, start = Cache(), [], 0
    for piece_BTD in x_BTD.split(chunks, 1):
        end = start + piece_BTD.shape[1]
        parts = {
            name: None if (tensor := getattr(mask, name)) is None else tensor[:, start:end]
            for name in ("valid_BS", "documents_BS")
        }
        sized, at_BTA, keys_BSA = cache.extend(Mask(causal=True, window=mask.window, **parts), piece_BTD)
        place = NOWHERE if (scheme := others.get("scheme")) is None else Place(scheme, at_BTA, keys_BSA)
        with torch.no_grad():
            outs.append(layer(piece_BTD, mask=sized, place=place, cache=cache.layer((layer.layer, "self"))))
        start = end
    return torch.cat(outs, 1)


def outcome(out_BTD: Tensor, x_BTD: Tensor, layer: nn.Module) -> list[Tensor]:
    """The output, and the gradients of the input and of all parameters."""
    target = (out_BTD * noise(*out_BTD.shape, seed=9, dtype=out_BTD.dtype)).sum()
    gradients = torch.autograd.grad(target, [x_BTD, *layer.parameters()], materialize_grads=True)
    return [out_BTD.detach(), *gradients]


def held_to_loops(layer: HeadedAttention, mask: Mask, weigh: Callable[..., Tensor], **others: Any) -> None:
    """A layer is, forward and backward, what loops over rows, heads and queries make of its equation.

    Args:
        layer: a module with query, key, value and output projections.
        mask: the caller's.
        weigh: ``weigh(n, t, seen, q_NTH, k_NSH, x_TD)``: the weights of head n's query t on the keys ``seen``.
    """
    x_BTD = tokens().requires_grad_()
    allowed_BTS = may_attend(mask, *x_BTD.shape[:2])
    rows = []
    for x_TD, allowed_TS in zip(x_BTD, allowed_BTS, strict=True):
        q_NTH, k_NSH, v_NSV = (split(project(x_TD), layer.heads) for project in (layer.query, layer.key, layer.value))
        mixed_TNV = [
            [_mixed(weigh, n, t, allowed_TS[t], q_NTH, k_NSH, v_NSV, x_TD) for n in range(layer.heads)]
            for t in range(len(x_TD))
        ]
        rows.append(torch.stack([torch.cat(mixed_NV) for mixed_NV in mixed_TNV]))
    want = outcome(layer.output(torch.stack(rows)), x_BTD, layer)
    got = outcome(run(layer, x_BTD, mask, **others), x_BTD, layer)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=EXACT)


def _mixed(
    weigh: Callable[..., Tensor],
    n: int,
    t: int,
    allowed_S: Tensor,
    q_NTH: Tensor,
    k_NSH: Tensor,
    v_NSV: Tensor,
    x_TD: Tensor,
) -> Tensor:
    seen = allowed_S.nonzero()[:, 0]
    if not len(seen):
        return v_NSV.new_zeros(v_NSV.shape[-1])
    weights_S = weigh(n, t, seen, q_NTH, k_NSH, x_TD)
    return sum(weight * v_NSV[n, s] for weight, s in zip(weights_S, seen, strict=True))  # type: ignore[return-value]


def split(x_TX: Tensor, heads: int) -> Tensor:
    """(N, T, X / N), heads that are shared repeated for those that share them."""
    size = DIM // HEADS
    x_GTH = x_TX.unflatten(-1, (-1, size)).transpose(0, 1)
    return x_GTH[[n * len(x_GTH) // heads for n in range(heads)]]


def scores(n: int, t: int, seen: Tensor, q_NTH: Tensor, k_NSH: Tensor) -> Tensor:
    """Scaled inner products with the keys that are seen."""
    return torch.stack([q_NTH[n, t] @ k_NSH[n, s] for s in seen]) / q_NTH.shape[-1] ** 0.5


def weights_of(layer: Any, mask: Mask) -> Tensor:
    """(B, N, T, S) the map that a layer shows, 0 wherever the mask hides, in rows that see anything."""
    notes = Notes(maps=True)
    x_BTD = tokens()
    shown = run(layer, x_BTD, mask, notes=notes)
    torch.testing.assert_close(shown, run(layer, x_BTD, mask), rtol=0, atol=EXACT)
    weights_BNTS = notes.maps(layer.layer)
    allowed_BTS = may_attend(mask, *x_BTD.shape[:2])
    hidden_BTS = ~allowed_BTS & allowed_BTS.any(-1, keepdim=True)
    assert bool((weights_BNTS.masked_select(hidden_BTS[:, None]) == 0).all())
    return weights_BNTS
