"""Small components for tests of recipes, and a registry that knows only these; no torch."""

from __future__ import annotations

import dataclasses
import enum
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest

from zoo.component import Component, did_you_mean
from zoo.config import Part, Slot
from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe


class Side(enum.Enum):
    left = 1
    right = 2


class MultiHead(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        bias: bool = True
        kv_heads: int | None = None
        scale: float | None = None
        kernel: Literal["auto", "eager", "sdpa"] = "auto"


class Grouped(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        kv_heads: int = 1
        bias: bool = True


class Window(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        window: int


class Rotary(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        theta: float = 10000.0
        sides: tuple[int, int] = (1, 2)


class NoPosition(Part):
    pass


class Stack(Part):
    @dataclasses.dataclass(kw_only=True)
    class Group:
        layers: int | None = None
        rate: float = 0.5

    @dataclasses.dataclass(kw_only=True)
    class Config:
        layers: int = 6
        encoder: Stack.Group = dataclasses.field(default_factory=lambda: Stack.Group(rate=0.25))

    slots: ClassVar[Mapping[str, Slot]] = {
        "attention": Slot("attention", "multi_head", cycled=True),
        "encoder.attention": Slot("attention", "", cycled=True),
    }


class Network(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        layers: int = 12
        dim: int = 768
        dropout: float = 0.0
        vocab_size: int | None = None
        label: str = "plain"
        side: Side = Side.left
        sizes: list[float] = dataclasses.field(default_factory=lambda: [1.0])
        extra: dict[str, float] = dataclasses.field(default_factory=lambda: {"a": 1.0})
        start: str | float = 1.0
        seed_of: Any = None

        def __post_init__(self) -> None:
            if self.layers < 1:
                raise ValueError(f"layers is {self.layers}; it must be at least 1")

    slots: ClassVar[Mapping[str, Slot]] = {
        "attention": Slot("attention", "multi_head", cycled=True),
        "position": Slot("position", "rotary"),
    }


class Bytes(Part):
    pass


class Pieces(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        vocab_size: int = 512


class Text(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        source: str = "python-docs"
        files: list[Path] = dataclasses.field(default_factory=list)
        cache: Path | None = None
        length: int = 256
        token: str = ""

    slots: ClassVar[Mapping[str, Slot]] = {"tokenizer": Slot("tokenizer", "byte")}


class Needy(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        path: Path
        rows: int


class CausalLM(Part):
    pass


class Adam(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        lr: float = 1e-3
        weight_decay: float = 0.1


class Constant(Part):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        warmup_steps: int = 0


CLASSES: dict[tuple[str, str], type[Part]] = {
    ("attention", "multi_head"): MultiHead,
    ("attention", "grouped_query"): Grouped,
    ("attention", "window"): Window,
    ("position", "rotary"): Rotary,
    ("position", "none"): NoPosition,
    ("architecture", "gpt2"): Network,
    ("architecture", "pair"): Stack,
    ("tokenizer", "byte"): Bytes,
    ("tokenizer", "bpe"): Pieces,
    ("data", "text"): Text,
    ("data", "needy"): Needy,
    ("task", "causal_lm"): CausalLM,
    ("optimizer", "adamw"): Adam,
    ("schedule", "constant"): Constant,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made(Component):
    """A record whose class is at hand."""

    made: type[Part]

    def load(self, where: str | None = None) -> type[Any]:
        del where
        return self.made


class SmallRegistry:
    """Stands in for ``zoo.registry.Registry``: fixed components, one recipe folder, no plugins."""

    def __init__(self, *folders: Path, classes: Mapping[tuple[str, str], type[Part]] = CLASSES) -> None:
        self.classes = dict(classes)
        self.hook = SimpleNamespace(zoo_recipe_paths=lambda: [list(folders)])

    def find(self, kind: str, name: str, where: str | None = None) -> Component:
        if (kind, name) not in self.classes:
            names = [other for other_kind, other in self.classes if other_kind == kind]
            raise UserError(f"no {kind} {name!r}{did_you_mean(name, names)}", where=where, fix=", ".join(names))
        made = self.classes[kind, name]
        return Made(kind=kind, name=name, provider="tests", version="1", file=Path(__file__), made=made)

    def environment(self) -> dict[str, str]:
        return {}

    def discover(self, plugins: Sequence[Path]) -> SmallRegistry:
        raise UserError(f"plugin {plugins[0]} doesn't exist")


MINIMAL = """\
data: {name: text, length: 64}
architecture: {name: gpt2, layers: 2, dim: 32}
task: causal_lm
"""


def write(folder: Path, **files: str) -> Path:
    """Files of a folder, ``__`` in a name being a slash; the first one's path."""
    paths = []
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        paths.append(path)
    return paths[0]


def load(folder: Path, *overrides: str, **files: str) -> Recipe:
    return load_recipe(write(folder, **files), overrides, registry=SmallRegistry(folder))


def refused(folder: Path, *overrides: str, **files: str) -> str:
    with pytest.raises(UserError) as error:
        load(folder, *overrides, **files)
    return str(error.value)
