"""The page about which parts work together, from the matrix that is shipped beside the components."""

from __future__ import annotations

from collections import Counter

from zoo.matrix.results import Cell, Matrix, shipped
from zoo.matrix.run import Axes
from zoo.registry import Registry


def page(registry: Registry, notice: str) -> str:
    """Counts by attention and job, what was trained, and why the others don't go together."""
    axes, matrix = Axes(registry), shipped(registry)
    jobs = [job.name for job in axes.jobs if job.refusal is None]
    lines = [
        "# What works with what",
        notice,
        "",
        introduction(axes, matrix),
        "",
        f"Of {len(axes.names('position'))} position schemes, tested with each attention:",
        "",
        f"| attention | {' | '.join(job.replace('/', ' ') for job in jobs)} |",
        f"|---|{'--:|' * len(jobs)}",
        *(row(attention, axes, matrix, jobs) for attention in axes.names("attention")),
        "",
        "Why attentions and position schemes don't go together, by the number of combinations:",
        "",
        "| combinations | why |",
        "|--:|---|",
        *(f"| {count:,} | {reason} |" for reason, count in reasons(axes, matrix)),
        "",
        "Architectures and tasks that don't go together, whatever the parts:",
        "",
        "| | why |",
        "|---|---|",
        *(f"| {job.name} | {job.refusal} |" for job in axes.jobs if job.refusal is not None),
    ]
    return "\n".join(lines) + "\n"


def introduction(axes: Axes, matrix: Matrix) -> str:
    """Totals, and what they mean."""
    totals = matrix.totals(axes.cells())
    trained = Counter(outcome.status for outcome in matrix.rows.values())
    return (
        f"Every attention with every position scheme in every architecture and task, {sum(totals.values()):,} "
        f"combinations: {totals['tested']:,} tested, {totals['unsupported']:,} declared unsupported, "
        f"{totals['failed']:,} failed, {totals['unknown']:,} unknown. Tested means that a model of width 16 was built, "
        "that a batch of the task passed forward and backward with finite gradients everywhere, and that it was "
        "probed for look-ahead and for leaks of padding. "
        f"In {trained['tested']:,} further models norm, feed-forward and residual arrangement vary too, so that any "
        "two parts that can be together are in one of them; each was trained for 20 steps "
        f"({trained['unsupported']:,} such rows are declared unsupported). "
        "`zoo matrix NAME` shows the combinations of one part with their reasons, `zoo matrix --run FILE` runs what "
        "isn't known, yours too."
    )


def row(attention: str, axes: Axes, matrix: Matrix, jobs: list[str]) -> str:
    """One attention's counts."""
    schemes = axes.names("position")
    found = [matrix.totals(Cell(attention, scheme, job) for scheme in schemes)["tested"] for job in jobs]
    return f"| `{attention}` | {' | '.join(map(str, found))} |"


def reasons(axes: Axes, matrix: Matrix) -> list[tuple[str, int]]:
    """Each reason with how often it is given, the most frequent first."""
    refused = {job.name for job in axes.jobs if job.refusal is not None}
    outcomes = (matrix.of(cell) for cell in axes.cells() if cell.job not in refused)
    counts = Counter(outcome.reason for outcome in outcomes if outcome.status == "unsupported")
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
