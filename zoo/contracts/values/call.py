"""One attention call: the only way in which a variant gets at the mask, the bias and the cache.

Dimension legend: B batch, T queries, S keys, D width, N heads, G key/value heads, H head size.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.values.band import Band
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import Place


class Call:
    """What the frame knows when an attention is called.

    The shortest right body of a variant is ``call.softmax(call.scores(q, k)) @ v``.

    Attributes:
        mask, place: over exactly the keys that ``attend`` is given.
        scale: multiplies the scores; a bias is added after it.
        x_BTD: the attention's input, for gates and the like.
        cache: the layer's own memory while generating, else ``None``.
        notes: the forward pass's scratch paper.
        layer: index of the layer, from 0.
        kind: ``self`` or ``cross``.
        kernel: ``eager`` or a fused one that the class lists in ``kernels``.
    """

    def __init__(
        self,
        *,
        mask: Mask,
        place: Place,
        scale: float,
        x_BTD: Tensor,
        cache: LayerCache | None,
        notes: Notes,
        layer: int,
        kind: Literal["self", "cross"],
        kernel: str,
        dropout: float,
        dtype: torch.dtype,
    ) -> None:
        self.mask, self.place, self.scale, self.x_BTD = mask, place, scale, x_BTD
        self.cache, self.notes, self.layer, self.kind, self.kernel = cache, notes, layer, kind, kernel
        self._dropout, self._dtype = dropout, dtype
        self.masked = False  # whether the variant has come by the mask at all

    def scores(self, q_BNTH: Tensor, k_BGSH: Tensor) -> Tensor:
        """(B, N, T, S) ``scale * q k^T + bias`` (equations 12.1, 12.5), float32 or wider, not masked yet."""
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        with no_autocast(q_BNTH.device):
            scores = grouped_product(q_BNTH.to(wide), k_BGSH.to(wide).transpose(-1, -2)) * self.scale
        bias = self._bias(q_BNTH, k_BGSH)
        return scores if bias is None else scores + bias

    def _bias(self, q_BNTH: Tensor, k_BGSH: Tensor) -> Tensor | None:
        return self.place.bias(q_BNTH, repeat_heads(k_BGSH, q_BNTH.shape[1]), self)

    def hide(self, scores_BNTS: Tensor) -> Tensor:
        """Scores with what the mask hides at the lowest finite value of their own dtype.

        Finite, so that a row that may attend to nothing makes no NaN; the frame then sets its output to 0.
        """
        self.masked = True
        allowed = self.mask.dense(scores_BNTS.device)
        if allowed is None:
            return scores_BNTS
        return scores_BNTS.masked_fill(~allowed, torch.finfo(scores_BNTS.dtype).min)

    def softmax(self, scores_BNTS: Tensor) -> Tensor:
        """(B, N, T, S) attention weights in the values' dtype: hide, softmax over the keys, dropout."""
        weights = self.hide(scores_BNTS).softmax(-1)
        if self.notes.wants_maps:
            self.notes.keep(f"map.{self.layer}.{self.kind}", weights)
        return F.dropout(weights.to(self._dtype), self._dropout)

    def mix(self, weights_BNTS: Tensor, v_BGSV: Tensor) -> Tensor:
        """(B, N, T, V) ``weights @ v`` where G value heads serve N heads, without repeating the values."""
        return grouped_product(weights_BNTS, v_BGSV)

    def sdpa(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor) -> Tensor:
        """(B, N, T, V) the same function as ``mix(softmax(scores(q, k)), v)``, fused by torch.

        Under a window it goes block by block, in time and memory that grow with T times the window, unless a
        position scheme adds a bias, which has T x S elements itself.
        """
        self.masked = True
        if (band := self.mask.band()) is not None and not self.place.has_bias():
            return self._sdpa_band(band, q_BNTH, k_BGSH, v_BGSV)
        attn_mask, is_causal = self.mask.sdpa(q_BNTH.device)
        bias = self._bias(q_BNTH, k_BGSH)
        if bias is not None:
            allowed = self.mask.dense(q_BNTH.device) if is_causal else attn_mask
            bias = bias.to(q_BNTH.dtype)
            attn_mask = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
            is_causal = False
        return self._fused(q_BNTH, k_BGSH, v_BGSV, attn_mask, is_causal=is_causal)

    def _sdpa_band(self, band: Band, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor) -> Tensor:
        """All blocks as rows of one batch: B times L rows of ``size`` queries and ``width`` keys."""
        batch = q_BNTH.shape[0]
        rows = [band.of_queries(q_BNTH.transpose(1, 2), 0)]
        rows += [band.of_keys(x_BGSH.transpose(1, 2), 0) for x_BGSH in (k_BGSH, v_BGSV)]
        q, k, v = (x.flatten(0, 1).transpose(1, 2) for x in rows)
        allowed = self.mask.sdpa_blocks(q.device).expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
        out = self._fused(q, k, v, allowed).transpose(1, 2).unflatten(0, (batch, band.count))
        return band.merged(out).transpose(1, 2)

    def _fused(
        self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, attn_mask: Tensor | None, *, is_causal: bool = False
    ) -> Tensor:
        return F.scaled_dot_product_attention(
            q_BNTH,
            k_BGSH,
            v_BGSV,
            attn_mask=attn_mask,
            dropout_p=self._dropout,
            is_causal=is_causal,
            scale=self.scale,
            enable_gqa=k_BGSH.shape[1] != q_BNTH.shape[1],
        )

    def valid_B1S1(self, keys: Tensor) -> Tensor:
        """(1|B, 1, S, 1) bool: which keys are tokens, for mixers that have no scores to hide."""
        self.masked = True
        if self.mask.valid_BS is None:
            return torch.ones(1, 1, self.mask.keys, 1, dtype=torch.bool, device=keys.device)
        return self.mask.valid_BS[:, None, :, None]


def no_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast off; the meta device has none, and refuses to be asked."""
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else nullcontext()


def repeat_heads(x_BGSH: Tensor, heads: int) -> Tensor:
    """(B, N, S, H): head n of N reads key/value head n // (N / G), as grouped-query attention is published."""
    groups = x_BGSH.shape[1]
    return x_BGSH if groups == heads else x_BGSH.repeat_interleave(heads // groups, dim=1)


def grouped_product(left_BNTX: Tensor, right_BGXY: Tensor) -> Tensor:
    """(B, N, T, Y) product in which N / G heads in turn share a right-hand head; a view, no copies."""
    heads, groups = left_BNTX.shape[1], right_BGXY.shape[1]
    if heads == groups:
        return left_BNTX @ right_BGXY
    left = left_BNTX.unflatten(1, (groups, heads // groups))
    return (left @ right_BGXY[:, :, None]).flatten(1, 2)
