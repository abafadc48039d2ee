"""Comparing tensors, with budgets: exact up to rounding in float64, a few roundings in half precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from zoo.testing.suite import Failed

EXACT = 1e-9
"""Largest difference, relative to the size of the numbers, that rounding in float64 explains."""

_exact = ContextVar("exact", default=EXACT)


@contextmanager
def exactness(tolerance: float) -> Iterator[None]:
    """Inside of it, what rounding explains: for components of others that don't compute in float64."""
    token = _exact.set(tolerance)
    try:
        yield
    finally:
        _exact.reset(token)


def agree(got: Tensor, want: Tensor, what: str, *, tolerance: float | None = None) -> None:
    """Two tensors are equal up to rounding, that of float64 where no tolerance is given.

    Raises:
        Failed: another shape, a number that isn't finite, or a difference, with the place of the largest.
    """
    if got.shape != want.shape:
        raise Failed(f"{what}: shape {tuple(got.shape)} instead of {tuple(want.shape)}")
    finite(got, what)
    if not got.numel():
        return
    got, want = got.detach(), want.detach()
    difference = (got - want).abs()
    worst = float(difference.max())
    tolerance = _exact.get() if tolerance is None else tolerance
    if not worst <= tolerance * max(1.0, float(want.abs().max())):
        place = tuple(int(index) for index in torch.unravel_index(difference.argmax(), difference.shape))
        raise Failed(
            f"{what}: off by {worst:.3g} at {place}: {float(got[place]):.6g} instead of {float(want[place]):.6g}"
        )


def differ(one: Tensor, other: Tensor, what: str) -> None:
    """Two tensors are not equal; raises ``Failed`` with ``what`` if they are."""
    one, other = one.detach(), other.detach()
    if not one.numel() or float((one - other).abs().max()) <= _exact.get() * max(1.0, float(other.abs().max())):
        raise Failed(what)


def finite(value: Tensor, what: str) -> None:
    """Neither NaN nor infinity anywhere; raises ``Failed`` with the number of them."""
    wrong = int((~torch.isfinite(value)).sum())
    if wrong:
        raise Failed(f"{what}: {wrong} of {value.numel()} numbers are NaN or infinite")


def within_rounding(got: Tensor, want: Tensor, dtype: torch.dtype, what: str, *, roundings: int = 8) -> None:
    """Root mean square error of a result in low precision against float64, in units of that precision.

    Raises:
        Failed: more than ``roundings`` times the precision, relative to the root mean square of the result.
    """
    finite(got, what)
    got, want = got.detach(), want.detach()
    error = float((got.double() - want).square().mean().sqrt())
    size = float(want.square().mean().sqrt())
    budget = roundings * torch.finfo(dtype).eps * max(size, 1e-30)
    if error > budget:
        raise Failed(f"{what}: root mean square error {error:.3g}, {roundings} roundings explain {budget:.3g}")


def noise(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers that depend on the seed only."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
