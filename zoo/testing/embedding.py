"""Conformance of an embedding: each input makes its own vectors, and tokens say where they stand.

Dimension legend: B batch, T tokens of the stream, D width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from zoo.contracts.data import Description
from zoo.contracts.values.capabilities import WORDS_OF_MODELS
from zoo.testing.module_case import DIM, scatter
from zoo.testing.modules import check_storable, documented_config, seeded_initialization, trainable
from zoo.testing.numbers import agree, differ, finite
from zoo.testing.suite import Check, Failed, Skipped, Suite
from zoo.testing.variants import Variant, variants

SIZES = Description(vocab_size=29, max_length=12, classes=5, image_size=(32, 32), channels=2)
"""A vocabulary and images of two channels, for embeddings and heads alike."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingCase:
    """One embedding with certain knobs, over streams of T tokens where that is free."""

    component: type[Any]
    variant: Variant
    tokens: int
    seed: int

    @property
    def label(self) -> str:
        """``scale=True, T=5``."""
        return ", ".join(part for part in (self.variant.label, f"T={self.tokens}") if part)

    def build(self, knobs: Any) -> Any:
        """The embedding as its constructor leaves it."""
        return self.component(self.component.Config(**knobs), dim=DIM, sizes=SIZES)

    def make(self, seed: int | None = None) -> Any:
        """The embedding in float64 with scattered values."""
        made = self.build(self.variant.knobs)
        scatter(made, self.seed if seed is None else seed)
        return made.double().eval()

    def inputs(self, module: Any, salt: int = 0) -> Tensor:
        """Two rows of random inputs."""
        made = module.example(2, self.tokens, torch.Generator().manual_seed(self.seed * 1000 + salt))
        return made.double() if made.is_floating_point() else made


class EmbeddingSubject:
    """An embedding of width 16."""

    offers: frozenset[str] = frozenset()

    def __init__(self, component: type[Any], *, seed: int = 0, **others: Any) -> None:
        self.component, self.seed = component, seed

    def cases(self, check: Check) -> Iterator[EmbeddingCase]:
        """One token and five; at five, each knob changed."""
        found = variants(self.component, self._accepts)
        for tokens in check.tokens or (1, 5):
            for variant in found if tokens > 1 else found[:1]:
                yield EmbeddingCase(component=self.component, variant=variant, tokens=tokens, seed=self.seed)

    def _accepts(self, variant: Variant) -> bool:
        try:
            self.component(self.component.Config(**variant.knobs), dim=DIM, sizes=SIZES)
        except ValueError:
            return False
        return True


SUITE = Suite("embedding", EmbeddingSubject)


@SUITE.check("gives finite (B, T, D)")
def runs(case: EmbeddingCase) -> None:
    """Of the length that it says, and no less on the meta device."""
    module = case.make()
    inputs = case.inputs(module)
    out_BTD = module(inputs)
    length = module.length or case.tokens
    if out_BTD.shape != (2, length, DIM):
        raise Failed(f"gives {tuple(out_BTD.shape)}; expected (2, {length}, {DIM})")
    finite(out_BTD, "output")
    with torch.device("meta"):
        empty = case.build(case.variant.knobs)
    shape = empty(inputs.to("meta", torch.float32) if inputs.is_floating_point() else inputs.to("meta")).shape
    if shape != out_BTD.shape:
        raise Failed(f"gives {tuple(shape)} on the meta device")


@SUITE.check("rows apart, and other inputs make other vectors", tokens=(5,))
def rows_apart(case: EmbeddingCase) -> None:
    """No row knows of another, and a second pass gives the same."""
    module = case.make()
    inputs = case.inputs(module)
    out_BTD = module(inputs)
    agree(module(inputs[:1])[0], out_BTD[0], "a row alone")
    agree(module(inputs), out_BTD, "a second pass", tolerance=0.0)
    for name, parameter in case.make().named_parameters():
        agree(dict(module.named_parameters())[name], parameter, f"{name} after three passes", tolerance=0.0)
    differ(module(case.inputs(module, salt=1)), out_BTD, "other inputs make the same vectors")


@SUITE.check("says where its tokens stand", tokens=(5,))
def positions(case: EmbeddingCase) -> str:
    """None where tokens follow each other, else (1, T, axes) int64, -1 only in front."""
    module = case.make()
    inputs = case.inputs(module)
    said = {}
    for axes in (1, 2):
        try:
            said[axes] = module.positions(inputs, axes)
        except ValueError:
            if axes == 1 or "grid" in case.component.offers:
                raise Failed(f"refuses positions with {axes} axes") from None
            continue
        at_BTA = said[axes]
        if at_BTA is None:
            continue
        length = module(inputs).shape[1]
        if at_BTA.shape != (1, length, axes) or at_BTA.dtype != torch.int64:
            raise Failed(f"positions are {tuple(at_BTA.shape)} {at_BTA.dtype}; expected (1, {length}, {axes}) int64")
        if bool((at_BTA[:, module.extra :] < 0).any()):
            raise Failed(f"a token behind the first {module.extra} stands nowhere (-1)")
        if axes == 2 and bool((at_BTA[:, : module.extra] >= 0).all(-1).any()):
            raise Failed(f"one of the first {module.extra} tokens stands on the grid; what stands for no patch has -1")
        if axes == 2:
            _check_places(module, inputs, at_BTA)
    if said.get(2) is not None and "grid" not in case.component.offers:
        raise Failed("gives positions with 2 axes, but doesn't offer 'grid'")
    return f"{module.extra} tokens in front"


def _check_places(module: Any, inputs: Tensor, at_BTA: Tensor) -> None:
    """The token that changes with the pixels of a patch stands at that patch's row and column."""
    (high, wide), base = module.patch_size, module(inputs)
    for row, column in ((0, 1), (1, 0)):
        moved = inputs.clone()
        moved[:, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide] += 1
        changed_T = (module(moved) - base).detach().abs().amax((0, 2)) > 0
        found = at_BTA[0, changed_T].tolist()
        if found != [[row, column]]:
            raise Failed(f"other pixels in row {row}, column {column} of the patches change what stands at {found}")


@SUITE.check("offers and takes known words", tokens=(1,))
def known_words(case: EmbeddingCase) -> str:
    """``offers`` of ``WORDS_OF_MODELS``, ``takes`` of the fields of ``Description``; the smallest data is enough."""
    offers, takes = case.component.offers, case.component.takes
    known = {field.name for field in dataclasses.fields(Description)}
    if offers - WORDS_OF_MODELS.keys() or takes - known:
        raise Failed(
            f"offers {sorted(offers)} and takes {sorted(takes)}; known are {sorted(WORDS_OF_MODELS)}, {sorted(known)}"
        )
    config = case.component.Config()
    case.component(config, dim=DIM, sizes=case.component.smallest(config))
    return f"offers {', '.join(sorted(offers))}"


@SUITE.check("its table, where it has one, is (V, D)", tokens=(1,))
def table(case: EmbeddingCase) -> None:
    """A tied head multiplies by it."""
    found = case.make().table
    if found is None:
        raise Skipped("it has none")
    if found.shape != (SIZES.vocab_size, DIM):
        raise Failed(f"table is {tuple(found.shape)}; expected ({SIZES.vocab_size}, {DIM})")


@SUITE.check("every parameter gets a finite gradient", tokens=(5,))
def gradients(case: EmbeddingCase) -> None:
    """A parameter that nothing uses stops data-parallel training."""
    module = case.make()
    module(case.inputs(module)).square().sum().backward()
    for name, parameter in trainable(module):
        if parameter.grad is None:
            raise Failed(f"{name} has no gradient")
        finite(parameter.grad, f"gradient of {name}")


@SUITE.check("saves and loads", tokens=(5,))
def saves(case: EmbeddingCase) -> None:
    """The state dict holds all that was learned, once."""
    module, other = case.make(), case.make(seed=case.seed + 1)
    inputs = case.inputs(module)
    check_storable(module, module.state_dict())
    other.load_state_dict({name: tensor.clone() for name, tensor in module.state_dict().items()})
    agree(other(inputs), module(inputs), "a module with the state dict loaded", tolerance=0.0)


SUITE.check("initial values follow from the seed", tokens=(1,))(seeded_initialization)
SUITE.check("every knob has a type, a default and a docstring", tokens=(1,))(documented_config)
