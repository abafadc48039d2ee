"""Attentions with one fault each: a small mutation of a good one, as people make them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.testing.templates.attention import Mine


class MaskForgotten(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.scores(q, k).softmax(-1) @ v


class MaskAsked(HeadedAttention):
    """Comes by the mask, so that the frame is content, and doesn't use it."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        scores = call.scores(q, k)
        call.hide(scores)
        return scores.softmax(-1) @ v


class OneMapUnmasked(HeadedAttention):
    def __init__(self, config: Any, *, heads: int, **parent: Any) -> None:
        super().__init__(config, heads=heads, score_heads=2 * heads, **parent)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        scores = call.scores(q, k)
        first, second = call.softmax(scores).chunk(2, 1)[0], scores.softmax(-1).chunk(2, 1)[1]
        return (first - 0.2 * second) @ v


class MaskAfterSoftmax(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        scores = call.scores(q, k)
        return (scores.softmax(-1) * (call.hide(scores) == scores)) @ v


class SoftmaxOverQueries(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.hide(call.scores(q, k)).softmax(-2) @ v


class SeesOneAhead(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.mask.causal:
            call.mask = dataclasses.replace(call.mask, start=call.mask.start + 1, _memo={})
        return call.softmax(call.scores(q, k)) @ v


class TriangleTopLeft(HeadedAttention):
    """``is_causal`` of the fused kernel, whatever is in the cache."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.mask.parts() == {"causal"} and call.place.scheme is None:
            call.masked = True
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=call.scale)
        return call.softmax(call.scores(q, k)) @ v


def without(part: str) -> type[HeadedAttention]:
    """An attention that drops one part of the mask."""

    class PartIgnored(HeadedAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
            call.mask = dataclasses.replace(call.mask, **{part: None}, _memo={})
            return call.softmax(call.scores(q, k)) @ v

    PartIgnored.__name__ = f"Without{part.title().replace('_', '')}"
    return PartIgnored


class WindowOffByOne(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.mask.window is not None:
            call.mask = dataclasses.replace(call.mask, window=call.mask.window + 1, _memo={})
        return call.softmax(call.scores(q, k)) @ v


class MinusInfinity(HeadedAttention):
    """Rows that see nothing are NaN before the frame sets them to 0: their gradients stay NaN."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        scores = call.scores(q, k)
        return scores.masked_fill(call.hide(scores) != scores, -torch.inf).softmax(-1) @ v


class NoiseInEvaluation(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return F.dropout(call.softmax(call.scores(q, k)), self.dropout) @ v


class ScaledTwice(HeadedAttention):
    kernels = ("eager", "sdpa")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.kernel == "sdpa":
            return call.sdpa(q * call.scale, k, v)
        return call.softmax(call.scores(q, k)) @ v


class KernelWithoutBias(HeadedAttention):
    kernels = ("eager", "sdpa")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.kernel == "sdpa":
            attn_mask, is_causal = call.mask.sdpa(q.device)
            call.masked = True
            return F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal, scale=call.scale)
        return call.softmax(call.scores(q, k)) @ v


class HeadsTiled(HeadedAttention):
    """[k0, k1, k0, k1] where [k0, k0, k1, k1] is meant."""

    grouped = True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        times = q.shape[1] // k.shape[1]
        return call.softmax(call.scores(q, k.repeat(1, times, 1, 1))) @ v.repeat(1, times, 1, 1)


class HalvesSplitAfterRotation(HeadedAttention):
    """Differential attention that cuts each rotated head in two."""

    offers = HeadedAttention.offers - {"content_bias"}

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        maps = [call.softmax(call.scores(*halves)) for halves in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)]
        return (maps[0] - 0.3 * maps[1]) @ v


class RowsMixed(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.softmax(call.scores(q, k - k.mean(0, keepdim=True))) @ v


class OrderBuiltIn(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        far = torch.arange(k.shape[2], dtype=v.dtype, device=v.device)
        return call.softmax(call.scores(q, k) + 0.1 * far.to(torch.float32)) @ v


class SinglePrecisionInside(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return (call.softmax(call.scores(q, k).float()).float() @ v.float()).to(v.dtype)


class ValuesDetached(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.softmax(call.scores(q, k)) @ (0.5 * v.detach() + 0.5 * v)


class NothingToSee(HeadedAttention):
    """Offers ``map`` and keeps none."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.hide(call.scores(q, k)).softmax(-1).to(v.dtype) @ v


class KeysRotatedAfterCaching(Mine):
    def _own_heads(self, x_BTD: Tensor, place: Any, cache: Any) -> tuple[Tensor, Tensor]:
        k, v = (self._split(layer(x_BTD), self.score_size) for layer in (self.key, self.value))
        if cache is not None:
            k, v = cache.append("k", k, 2), cache.append("v", v, 2)
        turned = place.rotate(k[:, :, -x_BTD.shape[1] :])
        return torch.cat([k[:, :, : -x_BTD.shape[1]], turned], 2), v


class TimeFirst(Mine):
    def _own_heads(self, x_BTD: Tensor, place: Any, cache: Any) -> tuple[Tensor, Tensor]:
        k, v = super()._own_heads(x_BTD, place, None)
        if cache is None:
            return k, v
        k, v = (cache.append(name, new.permute(2, 1, 0, 3), 0) for name, new in (("k", k), ("v", v)))
        return k.permute(2, 1, 0, 3), v.permute(2, 1, 0, 3)


class StateOnSelf(Mine):
    """Keeps its keys on the module instead of in the cache, from the first call of a cache on."""

    def _own_heads(self, x_BTD: Tensor, place: Any, cache: Any) -> tuple[Tensor, Tensor]:
        k, v = super()._own_heads(x_BTD, place, None)
        if cache is None:
            return k, v
        if cache.get("started") is not None:
            k, v = torch.cat([self.kept[0], k], 2), torch.cat([self.kept[1], v], 2)
        cache.put("started", x_BTD[:, :0])
        self.kept = (k, v)
        return k, v


class ReadsSpareRoom(Mine):
    """Multiplies the whole buffer by weights that are 0 where nothing is yet."""

    def _own_heads(self, x_BTD: Tensor, place: Any, cache: Any) -> tuple[Tensor, Tensor]:
        k, v = super()._own_heads(x_BTD, place, cache)
        return k, v if cache is None else v + 0.0 * cache._buffers["v"].sum()


class CacheDropsFirst(Mine):
    """A window of the cache that the mask knows nothing of."""

    def keep(self) -> int:
        return 4


class NeverUsed(Mine):
    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.gate = nn.Linear(self.dim, self.dim)


class ScalarParameter(HeadedAttention):
    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.gain = nn.Parameter(torch.ones(()))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        parameter.fill_(1.0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return self.gain * (call.softmax(call.scores(q, k)) @ v)


class TwoNames(Mine):
    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.key.weight.shape == self.query.weight.shape:
            self.key.weight = self.query.weight


class NoInitialValues(ScalarParameter):
    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.gain = nn.Parameter(torch.ones(1))

    initial = None  # type: ignore[assignment]


class UnseededInitialValues(ScalarParameter):
    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.gain = nn.Parameter(torch.ones(1))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        parameter.normal_()


class KernelInNameOnly(HeadedAttention):
    kernels = ("eager", "sdpa")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.softmax(call.scores(q, k)) @ v


class UntypedKnob(Mine):
    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs."""

        gain = 1.0
        """No annotation, so no field."""


class UntypedDefault(Mine):
    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs; ``bias`` stays true."""

        bias = False


class UndocumentedKnob(Mine):
    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs."""

        gain: float = 1.0


class OwnDevice(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.softmax(call.scores(q, k) + torch.zeros(k.shape[2])) @ v


class HalfPrecisionScores(HeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        scores = (64 * q @ (64 * k).transpose(-1, -2)) / 4096 * call.scale
        scores = scores.masked_fill(call.hide(scores) != scores, -1e9)
        return scores.softmax(-1).to(v.dtype) @ v


class NeverDrops(HeadedAttention):
    """Weights are never dropped."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        weights = call.hide(call.scores(q, k)).softmax(-1)
        call.notes.keep(f"map.{call.layer}.{call.kind}", weights)
        return weights.to(v.dtype) @ v


class LeavesTooMuch(Mine):
    """Leaves the mean of all values to the layer above, later tokens included."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        out, below = super().attend(q, k, v, call), call.notes.get("below")
        call.notes.keep("below", v.mean(2, keepdim=True))
        return out if below is None else out + 0.1 * below


class PastIntoTheNext(Mine):
    """Counts on the module how often it was continued."""

    continued = 0

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        self.continued += call.cache is not None
        return super().attend(q, k, v, call) * (1 + 1e-3 * (self.continued // 3))


class QueriesTogether(Mine):
    """In cross-attention queries are compared less their mean."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return super().attend(q - q.mean(2, keepdim=True) if call.kind == "cross" else q, k, v, call)


class SourcePaddingRead(Mine):
    """The source is read with its padding."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.kind == "cross":
            call.mask = dataclasses.replace(call.mask, valid_BS=None, _memo={})
        return super().attend(q, k, v, call)


class SourceOfTheFirst(Mine):
    """Keeps the source's heads on the module, in the order of the first call."""

    def _context_heads(self, context_BSD: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
        if cache is None:
            return super()._context_heads(context_BSD, None)
        if cache.get("k") is None:
            self.source = super()._context_heads(context_BSD, cache)
        return tuple(x[:1].expand(context_BSD.shape[0], -1, -1, -1) for x in self.source)  # type: ignore[return-value]


class BiasForgotten(HeadedAttention):
    """Leaves out what a position scheme adds."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        return call.softmax(q.to(wide) @ k.to(wide).mT * call.scale) @ v


class WidensOutput(Mine):
    """Gives float64 whatever it gets."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return super().attend(q, k, v, call).double()


class DrawsAlways(Mine):
    """Noise in every pass."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return super().attend(q, k, v, call) + 1e-6 * torch.randn_like(v[:, :, :1])


class AutocastUnawares(HeadedAttention):
    """Large scores, small differences: products that autocast narrows."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        scores = (q + 64) @ (k + 64).mT - 64 * 64 * q.shape[-1]
        return call.softmax(scores * call.scale) @ v


class ForgetsAPart(Mine):
    """The window is forgotten where a prefix and padding come with it."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.mask.parts() >= {"window", "prefix", "padding"}:
            call.mask = dataclasses.replace(call.mask, window=None, _memo={})
        return super().attend(q, k, v, call)


class ShallowMask(HeadedAttention):
    """Hides at -50, which visible scores can fall below."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.hide(call.scores(q, k)).clamp(min=-50).softmax(-1).to(v.dtype) @ v
