"""What a ladder leaves behind: scaling.json, scaling.md and scaling.svg."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.scaling.figure import figure
from zoo.scaling.fit import CONFIDENCE, Fit
from zoo.scaling.ladder import Counted, Ladder
from zoo.scaling.law import FLOPS_PER_PARAMETER_AND_TOKEN
from zoo.scaling.outlook import FARTHEST, Hindsight, Outlook, ahead
from zoo.training.files import write_bytes, write_json

NAMES = ("E", "A", "B", "a", "b")
DOCUMENT, PAGE, FIGURE = "scaling.json", "scaling.md", "scaling.svg"


def document(
    ladder: Ladder, fit: Fit, past: Hindsight | None, *, counted: Counted, seed: int, task: str, folder: Path
) -> dict[str, Any]:
    """All that was found, as plain values."""
    law = fit.law
    return {
        "folder": str(folder),
        "task": task,
        "metric": ladder.metric,
        "counted": counted,
        "runs": [
            {
                **rung._asdict(),
                "flops": FLOPS_PER_PARAMETER_AND_TOKEN * rung.size(counted) * rung.tokens,
                "fitted": law.loss(float(rung.size(counted)), float(rung.tokens)),
            }
            for rung in ladder.rungs
        ],
        "left_out": ladder.left_out,
        "law": law.plain(),
        "intervals": {name: list(fit.interval(operator.attrgetter(name))) for name in NAMES},
        "size_exponent": law.size_exponent,
        "size_exponent_interval": list(fit.interval(lambda law: law.size_exponent)),
        "residual": fit.residual,
        "confidence": CONFIDENCE,
        "bootstrap": {"draws": len(fit.draws), "seed": seed},
        "range": {
            "parameters": [float(fit.points.parameters.min()), float(fit.points.parameters.max())],
            "tokens": [float(fit.points.tokens.min()), float(fit.points.tokens.max())],
        },
        "ahead": [found._asdict() for found in ahead(fit)],
        "hindsight": past and {**past.predicted._asdict(), "measured": past.measured},
        "notes": [*fit.notes],
    }


def write(folder: Path, found: Mapping[str, Any], fit: Fit) -> None:
    """Put the three files into the folder of the comparison."""
    write_bytes(folder / FIGURE, figure(found, fit))
    write_bytes(folder / PAGE, page(found).encode())
    write_json(folder / DOCUMENT, dict(found))


def page(found: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    parts = [
        f"# Scaling of {Path(found['folder']).name}",
        f"![losses and the fitted law]({FIGURE})",
        *lines(found),
        "## Runs",
        "\n".join(_runs(found)),
    ]
    return "\n\n".join(parts) + "\n"


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What there is to say, a paragraph or table each, in Markdown that a terminal shows well too."""
    law, left = found["law"], found["left_out"]
    share = f"{100 * found['confidence']:.0f} %"
    what = "all parameters" if found["counted"] == "all" else "parameters without embeddings"
    missing = f"; left out: {', '.join(f'{count} {status}' for status, count in left.items())}" if left else ""
    yield f"{len(found['runs'])} runs on {found['task']}; N: {what}; L: {found['metric']}, nats per token{missing}."
    a, b = f"{law['a']:.4f}", f"{law['b']:.4f}"
    yield f"    L(N, D) = {law['E']:.4f} + {law['A']:.4g} / N^{a} + {law['B']:.4g} / D^{b}"
    yield _table(
        ("constant", "value", f"{share} interval"),
        [(name, f"{law[name]:.4g}", _interval(*found["intervals"][name])) for name in NAMES],
    )
    low, high = found["size_exponent_interval"]
    yield (
        f"For C = 6 N D the best N grows as C^{found['size_exponent']:.3f} ({_interval(low, high)}), "
        f"the best D as C^{1 - found['size_exponent']:.3f}. Runs are off the law by {100 * found['residual']:.2f} % "
        f"(root mean square). Intervals: Bayesian bootstrap over runs, {found['bootstrap']['draws']:,} draws."
    )
    yield _table(
        ("FLOPs", "N", "D", "D/N", "L", f"{share} interval", "beyond"),
        [_ahead(Outlook(**place)) for place in found["ahead"]],
    )
    yield from _warnings(found)


def _warnings(found: Mapping[str, Any]) -> Iterator[str]:
    if any(place["beyond"] > FARTHEST for place in found["ahead"]):
        yield (
            f"! More than {FARTHEST:g} times beyond the sizes or amounts of data that were fitted, the interval holds "
            "only if the law does, which no run here can tell."
        )
    if past := found["hindsight"]:
        inside = "inside" if past["low"] <= past["measured"] <= past["high"] else "OUTSIDE"
        yield (
            f"The largest run, predicted from the others: {past['loss']:.4f} ({_interval(past['low'], past['high'])}); "
            f"measured {past['measured']:.4f}, {inside} the interval of the law."
        )
    for note in found["notes"]:
        yield f"! {note}."


def _ahead(place: Outlook) -> tuple[str, ...]:
    mark = "" if place.beyond <= 1 else f"x{place.beyond:,.1f}" + (" !" if place.beyond > FARTHEST else "")
    sizes = (
        f"{number:.3g}" for number in (place.flops, place.parameters, place.tokens, place.tokens / place.parameters)
    )
    return (*sizes, f"{place.loss:.4f}", _interval(place.low, place.high), mark)


def _runs(found: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (
            run["variant"],
            str(run["seed"]),
            f"{run['parameters']:,}",
            f"{run['without_embeddings']:,}",
            f"{run['tokens']:,}",
            f"{run['loss']:.4f}",
            f"{run['fitted']:.4f}",
        )
        for run in found["runs"]
    ]
    yield _table(("variant", "seed", "parameters", "without embeddings", "tokens", "loss", "fitted"), rows)


def _interval(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are aligned in the source too."""
    escaped = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
    widths = [max(3, *(len(row[column]) for row in (header, *escaped))) for column in range(len(header))]
    ruled = [header, tuple("-" * width for width in widths), *escaped]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in ruled
    )
