"""A module under examination, and how one of a component is made: with certain knobs, at a certain length.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from zoo.config import Part
from zoo.initialization import generator_for, initialize
from zoo.registry import Registry
from zoo.testing.numbers import noise
from zoo.testing.suite import Check
from zoo.testing.variants import Variant, variants

DIM = 16


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ModuleCase(ABC):
    """A module with certain knobs at a certain length; a kind says how it is made and run.

    Attributes:
        component: the class.
        variant: knobs that differ from the defaults.
        parent: what the parent tells the constructor (width, heads, ...).
        tokens: length T.
        seed: everything random follows from it.
    """

    component: type[Any]
    variant: Variant
    parent: Mapping[str, Any]
    tokens: int
    seed: int

    @property
    def label(self) -> str:
        """``kv_heads=1, T=5``."""
        return ", ".join(part for part in (self.variant.label, f"T={self.tokens}") if part)

    def make(
        self, *, dtype: torch.dtype = torch.float64, seed: int | None = None, training: bool = False, **parent: Any
    ) -> Any:
        """The module with scattered values; ``parent`` overrides what the constructor is told."""
        made = self.build(self.variant.knobs, **parent)
        scatter(made, self.seed if seed is None else seed)
        return made.to(dtype).train(training)

    def build(self, knobs: Mapping[str, Any], **parent: Any) -> nn.Module:
        """The module as its constructor leaves it."""
        parts = {name: part.part() for name, part in self.variant.parts.items()}
        return self.component(self.component.Config(**knobs), **{**self.parent, **parts, **parent})

    def with_knobs(self, **knobs: Any) -> Self:
        """The same case, with other knobs."""
        return dataclasses.replace(
            self, variant=dataclasses.replace(self.variant, knobs={**self.variant.knobs, **knobs})
        )

    @property
    def width(self) -> int:
        """Width D of the input."""
        return self.parent.get("dim", DIM)

    def input(self, batch: int = 2, *, salt: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        """(B, T, D) noise; another ``salt`` is other noise."""
        return noise(batch, self.tokens, self.width, seed=self.seed * 1000 + salt, dtype=dtype)

    def surround(self, x_BTD: Tensor) -> Any:
        """What ``run`` needs beside the module, for an input like this: made before anything traces it, then kept."""
        del x_BTD

    @abstractmethod
    def run(self, module: Any, x_BTD: Tensor) -> Tensor:
        """All that the module makes of an input, as one tensor of which the first dimension is B."""


class ModuleSubject(ABC):
    """A module class under examination.

    Args:
        component: the class.
        seed: everything random follows from it.
        plugins: where parts for its slots are found, beyond what is installed.
    """

    lengths: tuple[int, ...] = (1, 5)
    case: type[ModuleCase]

    def __init__(self, component: type[Any], *, seed: int = 0, plugins: Sequence[Path | str] = ()) -> None:
        self.component, self.seed, self._plugins = component, seed, plugins

    @property
    def offers(self) -> frozenset[str]:
        """Words that choose among the checks."""
        return frozenset()

    @functools.cached_property
    def parent(self) -> Mapping[str, Any]:
        """What the constructor is told: its surroundings, and the default part of each of its slots."""
        return {**self.surroundings, **self.parts}

    @property
    def surroundings(self) -> Mapping[str, Any]:
        """Width, place in the stack and the like, as a kind has them."""
        return {"dim": DIM}

    @functools.cached_property
    def parts(self) -> Mapping[str, Any]:
        """Slot → the part that a recipe gets there when it says nothing."""
        if not self.component.slots:
            return {}
        registry = Registry.discover(self._plugins)
        slots = self.component.slots.items()
        return {name: registry.find(slot.kind, slot.default).load().part() for name, slot in slots if slot.default}

    @functools.cached_property
    def variants(self) -> list[Variant]:
        """The defaults, each knob changed, and each part of the kit's own in a slot."""
        return variants(self.component, self.accepts, self.fitting)

    def accepts(self, variant: Variant) -> bool:
        """Whether the module can be made so."""
        case = self.case(component=self.component, variant=variant, parent=self.parent, tokens=1, seed=self.seed)
        try:
            case.build(variant.knobs)
        except ValueError:
            return False
        return True

    @property
    def fitting(self) -> Mapping[str, Sequence[type[Part]]]:
        """Kind → parts of the kit's own for slots of that kind."""
        return {}

    def cases(self, check: Check) -> Iterator[Any]:
        """Every length with the default knobs, and the longest with every other."""
        lengths = check.tokens or self.lengths
        for tokens in lengths:
            for variant in self.variants if check.knobs and tokens == lengths[-1] else self.variants[:1]:
                yield self.case(
                    component=self.component, variant=variant, parent=self.parent, tokens=tokens, seed=self.seed
                )


@torch.no_grad()
def scatter(module: nn.Module, seed: int) -> None:
    """Give every parameter values that matter: gates that begin closed and scales that begin at 1 would hide faults."""
    # A module that can't be initialized is a finding of its own check; the constructor's values do here.
    with contextlib.suppress(TypeError):
        initialize(module, seed, std=0.3, branch_std=0.3)
    for name, parameter in module.named_parameters():
        generator = generator_for(seed, f"scatter/{name}")
        parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype), alpha=0.2)


class Runner(nn.Module):
    """A module together with the way in which a case runs it, for what wants a module of one argument."""

    def __init__(self, case: Any, module: nn.Module) -> None:
        super().__init__()
        self._case, self.module = dataclasses.replace(case), module

    def forward(self, x: Tensor) -> Tensor:
        """All that the module makes of an input."""
        made: Tensor = self._case.run(self.module, x)
        return made
