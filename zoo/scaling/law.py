"""How the loss of a language model falls with its size and its data, and what that says about spending compute.

    L(N, D) = E + A / N^a + B / D^b                 N parameters, D training tokens, loss in nats per token
    C = 6 N D                                       FLOPs of training: 2 forward and 4 backward a parameter and token
    least L for a given C:   N = G (C/6)^(b/(a+b)),   D = (C/6)^(a/(a+b)) / G,   G = (a A / (b B))^(1/(a+b))

Hoffmann et al. 2022, "Training compute-optimal large language models", equations 2 to 4 and 10, arXiv:2203.15556.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy as np

from zoo.errors import UserError

Numbers = TypeVar("Numbers", float, np.ndarray)

FLOPS_PER_PARAMETER_AND_TOKEN = 6
TOKENS_PER_PARAMETER = 20.0
"""The rule of thumb of the same paper, from its other two approaches (article, notes, Scaling)."""


class Allocation(NamedTuple):
    """How compute is spent."""

    parameters: float
    """N."""
    tokens: float
    """D."""

    @property
    def ratio(self) -> float:
        """Tokens per parameter."""
        return self.tokens / self.parameters


@dataclasses.dataclass(frozen=True)
class Law:
    """The five constants."""

    E: float
    """Loss that no size and no amount of data gets under."""
    A: float
    """Factor of what a finite size costs."""
    B: float
    """Factor of what finite data cost."""
    a: float
    """Exponent of the size."""
    b: float
    """Exponent of the data."""

    def loss(self, parameters: Numbers, tokens: Numbers) -> Numbers:
        """L(N, D)."""
        return self.E + self.A * parameters**-self.a + self.B * tokens**-self.b

    def allocate(self, flops: float) -> Allocation:
        """The N and D of least loss for 6 N D FLOPs."""
        pairs = flops / FLOPS_PER_PARAMETER_AND_TOKEN
        factor = (self.a * self.A / (self.b * self.B)) ** (1 / (self.a + self.b))
        parameters = factor * pairs ** (self.b / (self.a + self.b))
        return Allocation(parameters, pairs / parameters)

    @property
    def size_exponent(self) -> float:
        """The power of the compute with which the best size grows."""
        return self.b / (self.a + self.b)

    def plain(self) -> dict[str, float]:
        """The constants by name."""
        return dataclasses.asdict(self)


def by_ratio(flops: float, ratio: float) -> Allocation:
    """The N and D of 6 N D FLOPs with D = ratio N."""
    parameters = math.sqrt(flops / (FLOPS_PER_PARAMETER_AND_TOKEN * ratio))
    return Allocation(parameters, ratio * parameters)


PUBLISHED: Mapping[str, Law] = {
    # Hoffmann et al. 2022, equation 10: the exponents are rounded to two digits.
    "hoffmann-2022": Law(E=1.69, A=406.4, B=410.7, a=0.34, b=0.28),
    # The same fit as the paper's source has it: exp(0.5267228), exp(6.0073404), exp(6.0179186) and the exponents.
    "hoffmann-2022-unrounded": Law(
        E=math.exp(0.5267228), A=math.exp(6.0073404), B=math.exp(6.0179186), a=0.33917084, b=0.2849083
    ),
    # Besiroglu et al. 2024, "Chinchilla scaling: a replication attempt", table 1, arXiv:2404.10102.
    "besiroglu-2024": Law(E=1.8172, A=482.01, B=2085.43, a=0.3478, b=0.3658),
}
"""Laws by the name that ``zoo plan --fit`` takes; N counts embeddings in all of them."""


def law_from(values: object, where: str) -> Law:
    """The law that plain values stand for.

    Raises:
        UserError: a constant that is missing or that no law can have.
    """
    given = values if isinstance(values, Mapping) else {}
    numbers = {}
    for field in dataclasses.fields(Law):
        number = given.get(field.name)
        if not _is_number(number) or number < 0 or (field.name != "E" and number == 0):
            raise UserError(
                f"{field.name} is {number!r}; a law has five constants, E not below 0 and A, B, a and b above 0",
                where=where,
                fix="give a scaling.json that zoo scale wrote",
            )
        numbers[field.name] = float(number)
    return Law(**numbers)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
