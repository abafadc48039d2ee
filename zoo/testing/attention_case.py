"""An attention layer under examination, called the way an architecture calls it.

Dimension legend: B batch, T queries, S keys, D width.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.testing.masks import plain
from zoo.testing.module_case import DIM, ModuleCase, ModuleSubject, scatter
from zoo.testing.numbers import noise
from zoo.testing.schemes import SCHEMES
from zoo.testing.suite import Check, Failed, Suite


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AttentionCase(ModuleCase):
    """One attention with certain knobs, a position scheme of the kit's (or none), and a length."""

    scheme: str | None = None
    _schemes: dict[Any, Position] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """``kernel=sdpa, rotated, T=5``."""
        return ", ".join(part for part in (self.variant.label, self.scheme, f"T={self.tokens}") if part)

    @property
    def offers(self) -> frozenset[str]:
        """Words that the class offers."""
        return self.component.offers

    @property
    def mixes(self) -> bool:
        """Whether it moves information between positions; a control that doesn't says ``mixes = False``."""
        return self.component.mixes

    @property
    def mask(self) -> Mask:
        """The causal mask, or the open one for an attention that is bidirectional only."""
        return plain(self.offers)[0]

    def run(
        self,
        module: Any,
        x_BTD: Tensor,
        mask: Mask | None = None,
        *,
        positions_BTA: Tensor | None = None,
        cache: Cache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) of self-attention; padding, documents and earlier tokens move the positions as in a model."""
        history = Cache() if cache is None else cache
        mask, at_BTA, keys_BSA = history.extend(self.mask if mask is None else mask, x_BTD[..., 0], positions_BTA)
        layer_cache = None if cache is None else cache.layer((module.layer, "self"))
        place = self.place(module, x_BTD, at_BTA, keys_BSA)
        out_BTD = module(x_BTD, mask=mask, place=place, cache=layer_cache, notes=notes)
        if out_BTD.shape != x_BTD.shape:
            raise Failed(f"gives {tuple(out_BTD.shape)} from {tuple(x_BTD.shape)}")
        return out_BTD

    def cross(
        self,
        module: Any,
        x_BTD: Tensor,
        context_BSD: Tensor,
        valid_BS: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(B, T, D) of cross-attention to a sequence of another length, which may be padded."""
        mask = Mask(valid_BS=valid_BS).sized(x_BTD.shape[1], context_BSD.shape[1])
        layer_cache = None if cache is None else cache.layer((module.layer, "cross"))
        return module(x_BTD, context_BSD=context_BSD, mask=mask, cache=layer_cache)

    def in_chunks(
        self, module: Any, x_BTD: Tensor, chunks: Sequence[int], cache: Cache, masks: Sequence[Mask] = ()
    ) -> Tensor:
        """(B, T, D) of the chunks of a sequence one after the other, through a cache; chunk i has mask i."""
        outs = []
        for index, piece_BTD in enumerate(x_BTD.split(list(chunks), 1)):
            mask = masks[index] if index < len(masks) else self.mask
            with torch.no_grad():
                outs.append(self.run(module, piece_BTD, mask, cache=cache))
        return torch.cat(outs, 1)

    def place(self, module: Any, x_BTD: Tensor, at_BTA: Tensor, keys_BSA: Tensor) -> Place:
        """The case's scheme over some positions, with learned values of its own where it has any."""
        if self.scheme is None:
            return NOWHERE
        key = (x_BTD.dtype, x_BTD.device, module.score_heads, module.score_size)
        if key not in self._schemes:
            made = SCHEMES[self.scheme][1].part()(dim=self.width, heads=module.score_heads, size=module.score_size)
            scatter(made, self.seed)
            self._schemes[key] = made.to(x_BTD.dtype).to(x_BTD.device).requires_grad_(False)
        return Place(self._schemes[key], at_BTA, keys_BSA)


class AttentionSubject(ModuleSubject):
    """An attention class; it is checked at width 16 with as many of 4 heads as it takes."""

    lengths = (1, 5, 8)
    case = AttentionCase

    @property
    def offers(self) -> frozenset[str]:
        """Words that the class offers."""
        return frozenset(self.component.offers)

    @functools.cached_property
    def parent(self) -> Mapping[str, Any]:
        """Width, heads, a place in a stack of two, and a bound on the tokens that all but one check stay below."""
        for heads in (4, 2, 1):
            place = {"layer": 0, "layers": 2, "dropout": 0.0, "length": LENGTH}
            parent = {"dim": DIM, "heads": heads, **place, **self.parts}
            try:
                self.component(self.component.Config(), **parent)
            except ValueError as error:
                refusal = error
            else:
                return parent
        raise Failed(f"refuses a width of {DIM} with 4, 2 and 1 heads: {refusal}")

    def cases(self, check: Check) -> Iterator[AttentionCase]:
        """Every length, without and with each scheme that is offered; at the longest also every other knob."""
        lengths = check.tokens or self.lengths
        schemes = [name for name, (word, _) in SCHEMES.items() if word in self.offers and check.schemes]
        for tokens in lengths:
            for variant in self.variants if check.knobs and tokens == lengths[-1] else self.variants[:1]:
                for scheme in (None, *schemes):
                    yield AttentionCase(
                        component=self.component,
                        variant=variant,
                        parent=self.parent,
                        tokens=tokens,
                        seed=self.seed,
                        scheme=scheme,
                    )


LENGTH = 192
"""Most tokens that an attention is told of."""

SEEN = 1e-12
"""Gradient above which an output depends on an input; below, it is rounding, of a Fourier transform for instance."""

SUITE = Suite("attention", AttentionSubject)
"""All checks of an attention; the modules ``attention_*`` fill it."""


def influence(case: AttentionCase, module: nn.Module, x_BTD: Tensor, mask: Mask) -> Tensor:
    """(B, T, S) largest absolute gradient of output t with respect to input s of the same row.

    Raises:
        Failed: a gradient that isn't finite.
    """
    x_BTD = x_BTD.detach().requires_grad_()
    out_BTD = case.run(module, x_BTD, mask)
    weights_BTD = noise(*out_BTD.shape, seed=case.seed)
    columns = []
    for t in range(x_BTD.shape[1]):
        target = (out_BTD[:, t] * weights_BTD[:, t]).sum()
        (gradient_BSD,) = torch.autograd.grad(target, x_BTD, retain_graph=True, materialize_grads=True)
        if not bool(torch.isfinite(gradient_BSD).all()):
            raise Failed(f"the gradient of output {t} isn't finite")
        columns.append(gradient_BSD.abs().amax(-1))
    return torch.stack(columns, 1)
