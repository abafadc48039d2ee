"""What a module costs, derived on the meta device as ``zoo info`` does, against what a run of it costs.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch

from zoo.config import knobs
from zoo.info.operations import Products, count_products
from zoo.testing.module_case import ModuleCase
from zoo.testing.suite import Failed, Skipped

_LENGTHS = (64, 128, 192)
"""Multiples of common chunks, so that costs are a polynomial of the length."""


def counts_on_meta(case: ModuleCase) -> str:
    """Parameters and multiply-adds counted on the meta device are those of a run in float64, at three lengths."""
    case = _eager(case)
    with torch.device("meta"):
        empty = case.build(case.variant.knobs).double().eval()
    module = case.make()
    counts = [sum(parameter.numel() for parameter in made.parameters()) for made in (empty, module)]
    if counts[0] != counts[1]:
        raise Failed(f"{counts[0]} parameters on the meta device, {counts[1]} elsewhere")
    products = []
    for tokens in _LENGTHS:
        expected, ran = _products(case, empty, tokens, "meta"), _products(case, module, tokens, "cpu")
        if ran.multiply_adds is None:
            raise Skipped(f"torch has no formula for {', '.join(ran.unknown)}")
        if expected != ran:
            raise Failed(
                f"T={tokens}: {_told(expected)} multiply-adds on the meta device, {_told(ran)} in a run in float64"
            )
        products.append(ran.multiply_adds)
    return f"{counts[1]:,} parameters, {polynomial(_LENGTHS, products)} multiply-adds for T tokens"


def _eager(case: ModuleCase) -> ModuleCase:
    """The case with the eager kernel: torch's counter has no formula for a fused one on a CPU."""
    if any(knob.name == "kernel" for knob in knobs(case.component.Config)):
        return case.with_knobs(kernel="eager")
    return case


def _products(case: ModuleCase, module: Any, tokens: int, device: str) -> Products:
    x_BTD = dataclasses.replace(case, tokens=tokens).input(1).to(device)
    return count_products(lambda: case.run(module, x_BTD))


def _told(products: Products) -> str:
    return (
        f"unknown ({', '.join(products.unknown)})" if products.multiply_adds is None else f"{products.multiply_adds:,}"
    )


def polynomial(lengths: Sequence[int], values: Sequence[int]) -> str:
    """``768 T + 32 T^2`` through three points."""
    (x0, x1, x2), (y0, y1, y2) = map(Fraction, lengths), map(Fraction, values)
    first, second = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    square = (second - first) / (x2 - x0)
    linear = first - square * (x0 + x1)
    terms = zip((y0 - linear * x0 - square * x0 * x0, linear, square), ("", " T", " T^2"), strict=True)
    told = [f"{float(factor):,.12g}{power}" for factor, power in terms if factor]
    return " + ".join(told).replace("+ -", "- ") or "0"
