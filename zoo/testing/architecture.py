"""Conformance of an architecture, two layers of width 16 with the default part in each of its slots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from zoo.config import knobs
from zoo.contracts.architecture import Architecture
from zoo.contracts.values.capabilities import WORDS
from zoo.registry import Registry
from zoo.testing.model import model_suite
from zoo.testing.model_case import ModelCase, ModelSubject
from zoo.testing.modules import documented_config
from zoo.testing.numbers import agree
from zoo.testing.suite import Failed, Skipped

_SIZES = {"vocab_size": 61, "max_length": 24, "classes": 7, "image_size": (32, 32), "channels": 1}
_SIZES |= {"layers": 2, "dim": 16, "heads": 4}


class ArchitectureSubject(ModelSubject):
    """An architecture class with small sizes.

    Args:
        component: the class.
        seed: everything random follows from it.
        plugins: where parts for its slots are found, beyond what is installed.
        parts: names of components that take the place of a slot's default.
    """

    def __init__(
        self,
        component: type[Any],
        *,
        seed: int = 0,
        plugins: Sequence[Path | str] = (),
        parts: Mapping[str, str] | None = None,
    ) -> None:
        self.component, self._plugins, self._chosen = component, plugins, parts or {}
        super().__init__(self.build_with, component.offers, seed=seed)

    def build_with(self, device: str, **sizes: Any) -> Architecture:
        """The network on a device; ``sizes`` override fields of the Config."""
        known = {knob.name for knob in knobs(self.component.Config)}
        values = {name: value for name, value in {**_SIZES, **sizes}.items() if name in known}
        with torch.device(device):
            model: Architecture = self.component(self.component.Config(**values), **self._parts())
        if device != "meta":
            model.initialize(self.seed)
        return model

    def _parts(self) -> Mapping[str, Any]:
        registry = Registry.discover(self._plugins)
        named = {name: (slot.kind, slot.default) for name, slot in self.component.slots.items() if slot.default}
        named |= {name: (self.component.slots[name].kind, chosen) for name, chosen in self._chosen.items()}
        return {name: registry.find(*part).load().part() for name, part in named.items()}

    def cases(self, check: Any) -> Any:
        """As for any model, each case knowing the subject."""
        for case in super().cases(check):
            yield ArchitectureCase(build=case.build, tokens=case.tokens, seed=case.seed, subject=self)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ArchitectureCase(ModelCase):
    """A model of which the class is known."""

    subject: ArchitectureSubject

    @property
    def component(self) -> type[Any]:
        """The class."""
        return self.subject.component


SUITE = model_suite("architecture", ArchitectureSubject)


@SUITE.check("needs and offers known words only", tokens=(1,))
def known_words(case: ArchitectureCase) -> str:
    """``needs`` of its slots and ``offers`` to its task are words of ``zoo.contracts.values.capabilities``."""
    said = {"offers": case.component.offers}
    said |= {f"needs of slot {name}": slot.needs for name, slot in case.component.slots.items()}
    for name, words in said.items():
        if not isinstance(words, frozenset) or words - WORDS.keys():
            raise Failed(f"{name} is {words!r}; it must be a frozenset of {', '.join(WORDS)}")
    return f"offers {', '.join(sorted(case.component.offers))}"


@SUITE.check("every knob has a type, a default and a docstring", tokens=(1,))
def documented(case: ArchitectureCase) -> None:
    """What recipes, tables and ``zoo new`` read."""
    documented_config(case)


@SUITE.check("models that share parts begin equal", tokens=(1,))
def shared_parts(case: ArchitectureCase) -> None:
    """With another vocabulary every parameter of unchanged shape has the same initial values: each has its own seed."""
    if not any(knob.name == "vocab_size" for knob in knobs(case.component.Config)):
        raise Skipped("it has no vocabulary")
    one, other = case.subject.build_with("cpu"), case.subject.build_with("cpu", vocab_size=67)
    others = dict(other.named_parameters())
    for name, parameter in one.named_parameters():
        if name in others and others[name].shape == parameter.shape:
            agree(others[name], parameter, f"{name} beside a larger vocabulary", tolerance=0.0)
