"""The figure of a ladder: its runs, the law through them, and the band of the law beyond them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zoo.scaling.fit import Fit
from zoo.scaling.law import FLOPS_PER_PARAMETER_AND_TOKEN
from zoo.scaling.outlook import AHEAD, FARTHEST

SETTINGS: Any = {"svg.hashsalt": "zoo", "svg.fonttype": "none", "font.size": 9.0}
"""Names inside the file, its text and its size: equal runs give equal bytes."""
# Okabe and Ito's colours, which the colour-blind can tell apart; shapes tell them apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PLACES = 60


def figure(found: Mapping[str, Any], fit: Fit) -> bytes:
    """An SVG file of two plots: loss by size for each amount of data, and by compute with the best that there is."""
    with matplotlib.rc_context(SETTINGS):
        drawn = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = drawn.subplots(1, 2)
        _by_size(left, found, fit)
        _by_compute(right, found, fit)
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_ylabel(f"{found['metric']}, nats per token")
            axes.grid(alpha=0.3)
        text = io.BytesIO()
        drawn.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _by_size(axes: Axes, found: Mapping[str, Any], fit: Fit) -> None:
    points = fit.points
    sizes = np.geomspace(points.parameters.min(), points.parameters.max(), PLACES)
    for index, amount in enumerate(np.unique(points.tokens)):
        colour = COLOURS[index % len(COLOURS)]
        runs = points.tokens == amount
        marker = MARKERS[index % len(MARKERS)]
        axes.plot(points.parameters[runs], points.losses[runs], marker, label=f"{amount:.3g} tokens", color=colour)
        low, high = fit.band(sizes, np.full_like(sizes, amount))
        axes.fill_between(sizes, low, high, alpha=0.15, linewidth=0, color=colour)
        axes.plot(sizes, fit.law.loss(sizes, np.full_like(sizes, amount)), color=colour)
    axes.set_xlabel("parameters" if found["counted"] == "all" else "parameters without embeddings")
    axes.set_title("runs and the fitted law")
    axes.legend(frameon=False)


def _by_compute(axes: Axes, found: Mapping[str, Any], fit: Fit) -> None:
    points = fit.points
    compute = FLOPS_PER_PARAMETER_AND_TOKEN * points.parameters * points.tokens
    flops = np.geomspace(compute.min(), compute.max() * AHEAD[-1], PLACES)
    sizes = np.array([fit.law.allocate(float(each)).parameters for each in flops])
    amounts = flops / FLOPS_PER_PARAMETER_AND_TOKEN / sizes
    axes.plot(compute, points.losses, "o", color=COLOURS[0], label="runs")
    axes.fill_between(flops, *fit.band(sizes, amounts), color=COLOURS[1], alpha=0.2, linewidth=0, label="interval")
    axes.plot(flops, fit.law.loss(sizes, amounts), color=COLOURS[1], label="best by the law")
    beyond = np.maximum(sizes / points.parameters.max(), amounts / points.tokens.max())
    if far := [float(each) for each, factor in zip(flops, beyond, strict=True) if factor > FARTHEST]:
        axes.axvspan(far[0], flops[-1], color="0.85", zorder=0)
        axes.annotate(
            f"more than x{FARTHEST:g} beyond the runs ", (1, 0.97), xycoords="axes fraction", ha="right", va="top"
        )
    axes.set_xlabel("FLOPs, 6 N D")
    axes.set_title("compute-optimal loss, and beyond the runs")
    axes.legend(frameon=False, loc="lower left")
