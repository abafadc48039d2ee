"""Attentions with one fault each that shows only in other hands: of a compiler, another process, another device."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.attention import Attention, HeadedAttention
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.place import NOWHERE
from zoo.testing.templates.attention import Mine


class WithAttribute(HeadedAttention):
    """Right, with a place for something to be kept on the module."""

    offers = frozenset({"causal", "padding", "cache"})

    def mixed(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.softmax(call.scores(q, k)) @ v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return self.mixed(q, k, v, call)


class MemoByAddress(WithAttribute):
    """Remembers by the address of a tensor, which a compiler can't know."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return self.mixed(q, k, v, call) * (1.0 if q.data_ptr() >= 0 else 2.0)


@functools.lru_cache
def ones(tokens: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(tokens, 1, dtype=dtype, device=device)


class TableKeptForGood(WithAttribute):
    """A table made once for each length; one made while exporting is of no use afterwards."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return self.mixed(q, k * ones(k.shape[2], k.dtype, k.device), v, call)


class FunctionOnSelf(WithAttribute):
    """A lambda among its attributes, which no process can hand to another."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.finish = lambda out: 1.0 * out

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return self.finish(self.mixed(q, k, v, call))


class BatchStatisticsInTraining(WithAttribute):
    """Keys less their mean over the batch, in training only."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return self.mixed(q, k - 0.5 * k.mean(0, keepdim=True) if self.training else k, v, call)


@torch.library.custom_op("zoo_mutants::turned", mutates_args=())
def turned(x: Tensor) -> Tensor:
    """The same numbers, the last two dimensions laid out the other way round."""
    return x.mT.clone(memory_format=torch.contiguous_format).mT


@turned.register_fake
def _turned_in_theory(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


turned.register_autograd(lambda context, gradient: gradient.clone())


class StridesMisdeclared(WithAttribute):
    """An operation of its own whose shapes are as declared and whose layout isn't."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return 1.0 * turned(self.mixed(q, k, v, call))


class FreeOnMeta(WithAttribute):
    """Costs nothing where costs are counted."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if q.is_meta:
            call.tokens()
            return torch.zeros_like(v)
        return self.mixed(q, k, v, call)


class TableInABuffer(WithAttribute):
    """A table that only the constructor fills."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.register_buffer("gain", torch.linspace(1, 2, self.heads), persistent=False)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return self.gain[:, None, None].to(v.dtype) * self.mixed(q, k, v, call)


class StartsLarge(WithAttribute):
    """A matrix of its own that begins with a deviation of 1, whatever the width."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.turn = nn.Parameter(torch.empty(self.dim, self.dim))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        parameter.normal_(generator=generator)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        out = self.mixed(q, k, v, call)
        merged = out.transpose(1, 2).flatten(2) @ self.turn
        return merged.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class OutputUnmarked(Attention):
    """A running mean, its last layer not known as the end of a branch."""

    offers = frozenset({"causal"})

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.value, self.output = nn.Linear(self.dim, self.dim), nn.Linear(self.dim, self.dim)

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Any = NOWHERE,
        cache: Any = None,
        notes: Any = None,
    ) -> Tensor:
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        count_T1 = torch.arange(1, x_BTD.shape[1] + 1, device=x_BTD.device)[:, None]
        return self.output(self.value(x_BTD).cumsum(1) / count_T1)


class UnitKeysWithoutEpsilon(WithAttribute):
    """Keys over their length, which may be 0."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return self.mixed(q, k / k.norm(dim=-1, keepdim=True), v, call)


class SoftmaxWithoutMaximum(WithAttribute):
    """Exponentials that overflow where scores are large."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        weights = call.hide(call.scores(q, k)).exp()
        return (weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)).to(v.dtype) @ v


class SaysThatItMixesNothing(WithAttribute):
    """A control that is none."""

    mixes = False


class SeesItselfOnly(WithAttribute):
    """Hides everything but the query's own key."""

    def narrow(self, mask: Mask) -> Mask:
        return mask.narrow(window=1)


class AlwaysCausal(HeadedAttention):
    """Offers both ways, and looks back only."""

    offers = frozenset({"bidirectional"})

    def narrow(self, mask: Mask) -> Mask:
        return Mask(causal=True).sized(mask.queries, mask.keys)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        return call.softmax(call.scores(q, k)) @ v


class EndsWithItsTable(HeadedAttention):
    """A gain for each slot, and an IndexError behind the last one."""

    offers = frozenset({"causal"})

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.gains = nn.Embedding(self.length or 8, 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        slots = torch.arange(k.shape[2], device=k.device)
        return call.softmax(call.scores(q, k)) @ (v * self.gains(slots).to(v.dtype))


class StepSeesAll(Mine):
    """A single query sees every key, windows or not."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.mask.queries == 1 and call.mask.window is not None:
            call.mask = Mask(causal=True, valid_BS=call.mask.valid_BS, documents_BS=call.mask.documents_BS).sized(
                1, call.mask.keys, start=call.mask.start
            )
        return super().attend(q, k, v, call)


class KeepsItsScores(WithAttribute):
    """A cache that grows with the square of the tokens."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        if call.cache is not None:
            call.cache.put("scores", k @ k.mT)
        return self.mixed(q, k, v, call)


class RefusesNothing(Attention):
    """Offers little, and says nothing when asked for more."""

    offers = frozenset({"causal"})

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Any = NOWHERE,
        cache: Any = None,
        notes: Any = None,
    ) -> Tensor:
        return x_BTD.cumsum(1)


class UnknownWord(WithAttribute):
    """Offers a word that nobody knows."""

    offers = frozenset({"causal", "casual"})


class OddWidthCrashes(Attention):
    """Heads that don't divide the width are found out by the first batch."""

    offers = frozenset({"causal"})

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Any = NOWHERE,
        cache: Any = None,
        notes: Any = None,
    ) -> Tensor:
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        heads_BTNH = x_BTD.unflatten(-1, (self.heads, -1))
        return heads_BTNH.cumsum(1).flatten(2)


class BiasScaledToo(HeadedAttention):
    """Adds the bias to the products, and scales both."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        bias = call.place.bias(q, k, call)
        scores = call.scores(q, k)
        return call.softmax(scores if bias is None else scores - bias + call.scale * bias) @ v


class NarrowScores(WithAttribute):
    """Scores in the dtype of the queries."""

    offers = frozenset({"causal", "bias"})

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        scores, bias = q @ k.mT * call.scale, call.place.bias(q, k, call)
        return call.hide(scores if bias is None else scores + bias.to(scores.dtype)).softmax(-1) @ v
