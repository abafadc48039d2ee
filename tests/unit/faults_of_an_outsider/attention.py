"""Faults of attentions with heads, each in what ``attend`` makes of what it is given.

Dimension legend: B batch, T queries, S keys, N heads, G key/value heads, H head size, V value size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.attention.sliding_window import SlidingWindow


class Plain(MultiHead):
    """No fault yet: softmax attention by hand, without maps and without a fused kernel."""

    kernels = ("eager",)
    offers = HeadedAttention.offers - {"map"}

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        weights_BNTS = self.weights(q_BNTH, k_BNSH, call).to(v_BNSV.dtype)
        return F.dropout(weights_BNTS, self.dropout, self.training) @ v_BNSV

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        return call.hide(call.scores(q_BNTH, k_BNSH)).softmax(-1)


class ForgottenMask(Plain):
    """``hide`` is taken to work in place and its result is dropped: a token sees the future, padding, everything."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        scores = call.scores(q_BNTH, k_BNSH)
        call.hide(scores)
        return scores.softmax(-1)


class SoftmaxOverQueries(Plain):
    """The softmax runs over the queries: what a token gets depends on the tokens that come after it."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        return call.hide(call.scores(q_BNTH, k_BNSH)).softmax(-2)


class TriangleAtTopLeft(Plain):
    """A triangle of T x S from the top left corner: with a cache, a new token sees only the oldest keys."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        scores = call.hide(call.scores(q_BNTH, k_BNSH))
        if call.mask.causal and call.mask.prefix_B is None:
            past = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~past, torch.finfo(scores.dtype).min)
        return scores.softmax(-1)


class EmptyRowsAreNaN(Plain):
    """-inf instead of the lowest finite number: one row of padding alone makes the gradients of the batch NaN."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        scores = call.hide(call.scores(q_BNTH, k_BNSH))
        return torch.where(scores > torch.finfo(scores.dtype).min, scores, -torch.inf).softmax(-1)


class MaskTooShallow(Plain):
    """What is hidden is put at -100: where all that is visible scores lower, the future comes through."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        return call.hide(call.scores(q_BNTH, k_BNSH)).clamp(min=-100).softmax(-1)


class SoftmaxOverflows(Plain):
    """Exponentials without the maximum taken off: confident scores are infinite, and the output NaN."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        powers = call.hide(call.scores(q_BNTH, k_BNSH)).exp()
        return powers / powers.sum(-1, keepdim=True).clamp(min=torch.finfo(powers.dtype).tiny)


class NoiseInEvaluation(Plain):
    """Exploration noise on the scores is never switched off: the same prompt gives other text each time."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        scores = call.scores(q_BNTH, k_BNSH)
        return call.hide(scores + 0.1 * torch.randn_like(scores)).softmax(-1)


class BiasBeforeScale(Plain):
    """The position scheme's bias is scaled along with the scores: ALiBi and T5 are too weak by sqrt(H)."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        scores, bias = call.scores(q_BNTH, k_BNSH), call.place.bias(q_BNTH, k_BNSH, call)
        if bias is not None:
            scores = (scores - bias) + bias * call.scale
        return call.hide(scores).softmax(-1)


class BiasForgotten(Plain):
    """Scores are made by hand and the bias is left out, though it is offered: the model has no positions at all."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        return call.hide(q_BNTH.to(wide) @ k_BNSH.to(wide).mT * call.scale).softmax(-1)


class KeysNormalizedOverBatch(Plain):
    """Keys are normalized over the rows of the batch: a row's answer depends on who shares the batch with it."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        k_BNSH = k_BNSH / (k_BNSH.square().mean(0, keepdim=True) + 1e-6).sqrt()
        return call.hide(call.scores(q_BNTH, k_BNSH)).softmax(-1)


class KeysScaledByTheFuture(Plain):
    """Keys are divided by the largest element of the whole sequence, the future included: its size leaks back."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        k_BNSH = k_BNSH / k_BNSH.abs().amax((2, 3), keepdim=True).clamp(min=1e-6)
        return call.hide(call.scores(q_BNTH, k_BNSH)).softmax(-1)


class HalfPrecisionSoftmax(Plain):
    """Scores and softmax in the dtype of the queries: in bfloat16 the weights no longer sum to 1."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        scores, bias = q_BNTH @ k_BNSH.mT * call.scale, call.place.bias(q_BNTH, k_BNSH, call)
        return call.hide(scores if bias is None else scores + bias.to(scores.dtype)).softmax(-1)


class WeightsDetached(Plain):
    """A detach left over from debugging: queries and keys never learn, and DDP misses their gradients."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        return super().weights(q_BNTH, k_BNSH, call).detach()


class DropoutInEvaluation(Plain):
    """``F.dropout`` without ``training``: a trained model gives random answers."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        return F.dropout(self.weights(q_BNTH, k_BNSH, call).to(v_BNSV.dtype), self.dropout) @ v_BNSV


class DropoutForgotten(Plain):
    """The parent's dropout is ignored: the variant is compared without the regularization that its rivals have."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        return self.weights(q_BNTH, k_BNSH, call).to(v_BNSV.dtype) @ v_BNSV


class PaddingZeroedNotHidden(Plain):
    """Padding is zeroed instead of hidden: each such key still takes exp(0) of the weights, the more the more pads."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        valid_B1S1 = call.valid_B1S1(k_BNSH)
        scores = call.scores(q_BNTH, k_BNSH * valid_B1S1)
        allowed = call.mask.changed(valid_BS=None).dense(scores.device)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        weights = F.dropout(scores.softmax(-1).to(v_BNSV.dtype), self.dropout, self.training)
        return weights @ (v_BNSV * valid_B1S1)


class SqueezedBatch(Plain):
    """``squeeze()`` of all axes of size 1: a batch of one prompt, or a decoding step, is an error."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        return super().attend(q_BNTH, k_BNSH, v_BNSV, call).squeeze()


class GrowingTriangle(Plain):
    """A buffer that grows with the longest input and is saved: the checkpoint fits no freshly made model."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.register_buffer("triangle", torch.ones(1, 1, dtype=torch.bool))

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        scores, mask = call.hide(call.scores(q_BNTH, k_BNSH)), call.mask
        if mask.causal and mask.prefix_B is None:
            rows, columns = mask.start + mask.queries, mask.first + mask.keys
            if len(self.triangle) < max(rows, columns):
                longest = max(rows, columns)
                self.triangle = torch.ones(longest, longest, dtype=torch.bool, device=scores.device).tril()
            past = self.triangle[mask.start : rows, mask.first : columns]
            scores = scores.masked_fill(~past, torch.finfo(scores.dtype).min)
        return scores.softmax(-1)


class TensorAttribute(Plain):
    """A constant as a plain float32 attribute: it doesn't move with ``to``, and a bfloat16 model fails on it."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.gain = torch.ones(self.heads, 1, 1)

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        return super().attend(q_BNTH, k_BNSH, v_BNSV, call) * self.gain


class ScalarParameter(Plain):
    """A learned number without an axis: the model trains on one device, and sharding refuses it."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.gain = nn.Parameter(torch.ones(()))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        parameter.fill_(1.0)

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        return super().attend(q_BNTH, k_BNSH, v_BNSV, call) * self.gain


class EagerScalesTwice(MultiHead):
    """The eager kernel scales the queries and the scores: a map shows another model than the one that ran fused."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        if call.kernel == "sdpa":
            return call.sdpa(q_BNTH, k_BNSH, v_BNSV)
        return call.softmax(call.scores(q_BNTH * call.scale, k_BNSH)) @ v_BNSV


class FusedCausalFlag(MultiHead):
    """The fused kernel gets ``is_causal``, which aligns to the top left: a cached step repeats the first value."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        if call.kernel != "sdpa" or call.mask.parts() != {"causal"} or call.place.has_bias():
            return super().attend(q_BNTH, k_BNSH, v_BNSV, call)
        call.valid_B1S1(k_BNSH)  # all of them, there is no padding here
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(
            q_BNTH, k_BNSH, v_BNSV, dropout_p=dropout, is_causal=True, scale=call.scale
        )


class FusedWithoutDropout(MultiHead):
    """The fused kernel is called without ``dropout_p``: training is regularized or not, as the kernel happens to be."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        if call.kernel != "sdpa" or call.mask.band() is not None:
            return super().attend(q_BNTH, k_BNSH, v_BNSV, call)
        allowed, bias = call.mask.dense(q_BNTH.device), call.place.bias(q_BNTH, k_BNSH, call)
        call.valid_B1S1(k_BNSH)
        added = q_BNTH.new_zeros(1, 1, q_BNTH.shape[2], k_BNSH.shape[2]) if bias is None else bias.to(q_BNTH.dtype)
        if allowed is not None:
            added = added.masked_fill(~allowed, torch.finfo(added.dtype).min)
        return F.scaled_dot_product_attention(q_BNTH, k_BNSH, v_BNSV, attn_mask=added, scale=call.scale)


class MapOfEverything(MultiHead):
    """The map is taken before the mask: a plot shows weights on the future and on padding that aren't there."""

    kernels = ("eager",)

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        scores = call.scores(q_BNTH, k_BNSH)
        out_BNTV = call.softmax(scores) @ v_BNSV
        if call.notes.wants_maps:
            call.notes.keep(f"map.{call.layer}.{call.kind}", scores.softmax(-1))
        return out_BNTV


class GroupedInTiles(GroupedQuery):
    """Key/value heads are tiled, k0 k1 k0 k1, instead of k0 k0 k1 k1: loaded grouped-query weights give garbage."""

    kernels = ("eager",)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        times = q_BNTH.shape[1] // k_BGSH.shape[1]
        k_BNSH, v_BNSV = k_BGSH.repeat(1, times, 1, 1), v_BGSV.repeat(1, times, 1, 1)
        return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSV


class KeepsOneTooFew(SlidingWindow):
    """The cache keeps window - 1 keys, the query's own forgotten in the count: generation misses the farthest key."""

    def keep(self) -> int:
        return max(1, self.config.window - 1)


class WindowOnlyWithoutCache(SlidingWindow):
    """The window is left out where there is a cache, which is kept whole: generation sees more than training did."""

    def narrow(self, mask: Any) -> Any:
        return mask if mask.start else super().narrow(mask)

    def keep(self) -> None:  # type: ignore[override]
        return None
