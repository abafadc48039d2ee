"""What a component can be told: its knobs (``Config``) and its slots (parts of other kinds that it takes).

Both are data, read by recipes, by the docs and by ``zoo new``; nothing here imports torch.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, get_type_hints


@dataclasses.dataclass(frozen=True)
class Slot:
    """A place in a component for a part of another kind.

    Attributes:
        kind: the kind of component that fits, for example ``attention``.
        default: the short name that a recipe gets when it says nothing.
        cycled: whether a list is allowed, dealt out over the layers in turn.
        needs: words that a part must offer to be used here (``zoo.contracts.values.capabilities``).
        like: the slot whose parts are taken where this one, which has no default, is left empty.
    """

    kind: str
    default: str
    cycled: bool = False
    needs: frozenset[str] = frozenset()
    like: str = ""


@dataclasses.dataclass(frozen=True)
class Knob:
    """One field of a Config: ``name``, its ``type``, its ``default`` and its docstring ``text``."""

    name: str
    type: Any
    default: Any
    text: str


class Part:
    """Base of all contracts: a component with a ``Config``, optional ``slots``, and a way to be made by hand."""

    @dataclasses.dataclass(kw_only=True)
    class Config:
        """No knobs."""

    slots: ClassVar[Mapping[str, Slot]] = {}

    @classmethod
    def part(cls, **knobs: Any) -> Callable[..., Self]:
        """A factory of this component with its knobs set, as an architecture takes it.

        ``MultiHead.part(bias=False)`` is what the recipe ``attention: {name: multi_head, bias: false}`` builds.

        Raises:
            TypeError: a knob that the Config doesn't have.
        """
        made: Callable[..., Self] = cls
        return functools.partial(made, cls.Config(**knobs))


def knobs(config: type) -> list[Knob]:
    """The fields of a Config class in order, inherited ones first, each with the docstring under it."""
    types = get_type_hints(config)
    texts = _field_texts(config)
    result = []
    for field in dataclasses.fields(config):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        result.append(Knob(field.name, types[field.name], default, texts.get(field.name, "")))
    return result


def _field_texts(config: type) -> dict[str, str]:
    """Docstrings under the fields of a dataclass and its bases; Python drops them, the source has them."""
    texts: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        if dataclasses.is_dataclass(owner):
            texts.update(_own_field_texts(owner))
    return texts


def _own_field_texts(owner: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    texts = {}
    for field, text in itertools.pairwise(body):
        is_field = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if is_field and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[field.target.id] = inspect.cleandoc(str(text.value.value))
    return texts
