"""One attention call: the only way in which a variant gets at the mask, the bias and the cache.

Dimension legend: B batch, T queries, S keys, D width, N heads, G key/value heads, H head size.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.values.band import Band, Blocks
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.flex import flex_kernel
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.packing import Packing
from zoo.contracts.values.pattern import Pattern
from zoo.contracts.values.place import Place


class Tokens(NamedTuple):
    """The new tokens of a call, as a recurrence sees them. ``None`` where there is nothing to heed."""

    valid_BT: Tensor | None
    """(B, T) bool: False is padding, which neither reads nor writes."""
    documents_BT: Tensor | None
    """(B, T) int64: a state is forgotten where the document changes."""
    before_B1: Tensor | None
    """(B, 1) int64: the document of the last token before these, whose state is in the cache."""


class Call:
    """What the frame knows when an attention is called.

    The shortest right body of a variant is ``call.softmax(call.scores(q, k)) @ v``.

    Attributes:
        mask, place: over exactly the keys that ``attend`` is given.
        history: the mask over all that came before, also where ``attend`` isn't given it.
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
        history: Mask | None = None,
    ) -> None:
        self.mask, self.place, self.scale, self.x_BTD = mask, place, scale, x_BTD
        self.history = mask if history is None else history
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
        if not self.place.has_bias():
            return None
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
        self.keep_map(weights)
        return self.drop(weights)

    def keep_map(self, weights_BNTS: Tensor) -> None:
        """Leave weights for ``Notes.maps`` where somebody wants to look at them, 0 for queries that see nothing."""
        if self.notes.wants_maps:
            self.notes.keep(f"map.{self.layer}.{self.kind}", self.emptied(weights_BNTS))

    def drop(self, weights_BNTS: Tensor) -> Tensor:
        """Weights in the values' dtype, after dropout."""
        return F.dropout(weights_BNTS.to(self._dtype), self._dropout)

    def apply(self, weights_BNTS: Tensor, v_BGSV: Tensor) -> Tensor:
        """(B, N, T, V) the values in proportions that a variant made by itself, 0 where ``hide`` hides.

        They become the layer's map, and are dropped out, as those of ``softmax``.
        """
        self.keep_map(weights_BNTS)
        return self.mix(self.drop(weights_BNTS), v_BGSV)

    def visible_keys(self, scores_BNTS: Tensor) -> Tensor:
        """(1|B, 1, 1|T, 1) how many keys each query may attend to, at least 1, in the scores' dtype."""
        allowed = self.mask.dense(scores_BNTS.device)
        if allowed is None:
            return scores_BNTS.new_full((1, 1, 1, 1), self.mask.keys)
        return allowed.sum(-1, keepdim=True).clamp(min=1).to(scores_BNTS.dtype)

    def mix(self, weights_BNTS: Tensor, v_BGSV: Tensor) -> Tensor:
        """(B, N, T, V) ``weights @ v`` where G value heads serve N heads, without repeating the values."""
        return grouped_product(weights_BNTS, v_BGSV)

    def attention(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor) -> Tensor:
        """(B, N, T, V) scaled dot-product attention (equation 12.5), eager or fused as ``kernel`` says."""
        if self.kernel == "sdpa":
            return self.sdpa(q_BNTH, k_BGSH, v_BGSV)
        if self.kernel == "flex":
            return self.flex(q_BNTH, k_BGSH, v_BGSV)
        return self.mix(self.softmax(self.scores(q_BNTH, k_BGSH)), v_BGSV)

    def sdpa(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor) -> Tensor:
        """(B, N, T, V) the same function as ``mix(softmax(scores(q, k)), v)``, fused by torch.

        Under a window or a pattern it goes block by block, in time and memory that grow with T times the keys that
        a query sees, and packed documents cost the squares of their lengths; unless a position scheme adds a bias,
        which has T x S elements itself.
        """
        self.masked = True
        bias = self._bias(q_BNTH, k_BGSH)
        if bias is None:
            return self._sdpa(self.mask, q_BNTH, k_BGSH, v_BGSV)
        attn_mask, is_causal = self.mask.sdpa(q_BNTH.device)
        allowed = self.mask.dense(q_BNTH.device) if is_causal else attn_mask
        bias = bias.to(q_BNTH.dtype)
        attn_mask = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
        return self._fused(q_BNTH, k_BGSH, v_BGSV, attn_mask)

    def flex(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor) -> Tensor:
        """(B, N, T, V) the same function by FlexAttention; on a CPU torch runs it unfused, and forward only.

        Raises:
            ValueError: gradients on a CPU, or dropout of weights.
        """
        self.masked = True
        if q_BNTH.is_cpu and torch.is_grad_enabled() and any(x.requires_grad for x in (q_BNTH, k_BGSH, v_BGSV)):
            raise ValueError("the flex kernel has no backward pass on a CPU: train with kernel sdpa, or under no_grad")
        if self._dropout:
            raise ValueError(
                f"the flex kernel has no dropout of weights, it is {self._dropout}: use sdpa, or set it to 0"
            )
        bias = self._bias(q_BNTH, k_BGSH)
        if bias is not None:
            bias = bias.expand(q_BNTH.shape[0], q_BNTH.shape[1], -1, -1)

        def biased(score: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
            assert bias is not None
            return score + bias[b, h, t, s]

        return flex_kernel(q_BNTH.is_cpu)(
            q_BNTH,
            k_BGSH,
            v_BGSV,
            score_mod=None if bias is None else biased,
            block_mask=self.mask.flex(q_BNTH.device, q_BNTH.shape[0]),
            scale=self.scale,
            enable_gqa=k_BGSH.shape[1] != q_BNTH.shape[1],
        )

    def narrowed(self, pattern: Pattern) -> Call:
        """The same call under a pattern more, for a variant that treats some pairs in another way."""
        self.masked = True
        other = copy.copy(self)
        other.mask = self.mask.narrow(pattern=pattern)
        return other

    def _sdpa(self, mask: Mask, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor) -> Tensor:
        """The way that a mask suggests: documents apart, in blocks, or all at once."""
        if (packing := mask.packing(q_BNTH.device)) is not None:
            return self._sdpa_documents(packing, q_BNTH, k_BGSH, v_BGSV)
        if (cut := mask.cut(q_BNTH.device)) is not None:
            return self._sdpa_blocks(mask, cut, q_BNTH, k_BGSH, v_BGSV)
        attn_mask, is_causal = mask.sdpa(q_BNTH.device)
        return self._fused(q_BNTH, k_BGSH, v_BGSV, attn_mask, is_causal=is_causal)

    def _sdpa_documents(self, packing: Packing, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor) -> Tensor:
        """Each group of documents as a batch of its own."""
        rows = [x_BNTH.transpose(1, 2) for x_BNTH in (q_BNTH, k_BGSH, v_BGSV)]
        outs = []
        for numbers_RL, mask in packing.groups:
            q, k, v = (packing.spread(x_BTNH, numbers_RL).transpose(1, 2) for x_BTNH in rows)
            outs.append(self._sdpa(mask, q, k, v).transpose(1, 2))
        return packing.merged(outs).transpose(1, 2)

    def _sdpa_blocks(self, mask: Mask, cut: Band | Blocks, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor) -> Tensor:
        """All blocks as rows of one batch: B times L rows of Q queries and K keys; queries that see all, apart."""
        batch = q_BNTH.shape[0]
        rows = [cut.of_queries(q_BNTH.transpose(1, 2), 0)]
        rows += [cut.of_keys(x_BGSH.transpose(1, 2), 0) for x_BGSH in (k_BGSH, v_BGSV)]
        q, k, v = (x.flatten(0, 1).transpose(1, 2) for x in rows)
        allowed = mask.sdpa_blocks(q.device).expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
        out = cut.merged(self._fused(q, k, v, allowed).transpose(1, 2).unflatten(0, (batch, cut.count))).transpose(1, 2)
        if (head := mask.head(q.device)) is None:
            return out
        first = self._sdpa(head, q_BNTH[:, :, : head.queries], k_BGSH, v_BGSV)
        return torch.cat([first, out[:, :, head.queries :]], 2)

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

    def tokens(self) -> Tokens:
        """What a recurrence over the new tokens must heed: padding, and where documents begin."""
        self.masked = True
        whole, new = self.history, self.mask.queries
        before = whole.start - whole.first
        documents_BS = whole.documents_BS
        return Tokens(
            whole.valid_BT(),
            None if documents_BS is None else documents_BS[:, before : before + new],
            None if documents_BS is None or before == 0 else documents_BS[:, before - 1 : before],
        )

    def emptied(self, out_BNTV: Tensor) -> Tensor:
        """The output with 0 for queries that may attend to nothing."""
        empty_BT = self.mask.empty_BT(out_BNTV.device)
        return out_BNTV if empty_BT is None else out_BNTV.masked_fill(empty_BT[:, None, :, None], 0.0)


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
