"""The first section: how far the comparison is, and every verdict in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from zoo.report.caps import ROWS, left_out
from zoo.report.findings import Findings, TaskFindings
from zoo.report.plain import number
from zoo.report.section import Section, Table, Value

UNEQUAL = 0.05
"""Variants that differ by more than this share in their parameters are worth a warning."""


def overview_section(findings: Findings) -> Section:
    """Counts of cells and verdicts; with more than one task, verdicts by variant and task."""
    statuses = Counter(cell["status"] for cell in findings.cells)
    ended = sum(statuses.values()) - statuses["planned"]
    said = [f"{sum(statuses.values()):,} cells: {_counted(statuses) or 'none has been planned yet'}."]
    if statuses["planned"]:
        said.append(f"The comparison isn't finished ({ended / sum(statuses.values()):.0%} ended): verdicts may change.")
    verdicts = Counter(verdict["verdict"] for verdict in findings.document["verdicts"])
    if verdicts:
        said.append(f"{sum(verdicts.values()):,} verdicts: {_counted(verdicts)}.")
    terms = _terms(findings.comparison)
    sizes = "" if findings.comparison.get("match") else " ".join(filter(None, map(_sizes, findings.tasks)))
    return Section("Overview", [" ".join(said), *filter(None, [terms, sizes]), *_matrix(findings)])


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def _terms(comparison: Mapping[str, Any]) -> str:
    """What the variants have been given alike."""
    said = []
    if match := comparison.get("match"):
        said.append(f"Variants have equal {match.get('quantity')}: {match.get('value')} ± {match.get('tolerance')}.")
    if tune := comparison.get("tune"):
        grid = "; ".join(f"{key} of {', '.join(map(str, values))}" for key, values in tune.items())
        said.append(f"Each was tuned over {grid}, on the validation part.")
    if seconds := (comparison.get("budget") or {}).get("seconds"):
        said.append(f"Each run had {number(seconds)} seconds of training.")
    return " ".join(said)


def _sizes(task: TaskFindings) -> str:
    """What to know where variants aren't of one size."""
    counted = {name: cost for name, entry in task.entries.items() if (cost := entry.cost("parameters"))}
    if not counted:
        return ""
    least, most = (pick(counted, key=lambda name: counted[name]) for pick in (min, max))
    more = counted[most] / counted[least] - 1
    if more <= UNEQUAL:
        return ""
    return f"Variants on {task.name} aren't of one size: {most} has {more:.0%} more parameters than {least}."


def _matrix(findings: Findings) -> Iterable[Table]:
    tasks = findings.tasks
    if len(tasks) < 2 or not findings.document["verdicts"]:
        return
    rows: list[list[Value]] = [
        [variant, *(_verdict(task, variant) for task in tasks)] for variant in findings.variants[:ROWS]
    ]
    notes = [
        left_out(ROWS, len(findings.variants), "variants"),
        left_out(len(tasks), findings.all_tasks, "tasks"),
    ]
    yield Table(["variant", *(task.name for task in tasks)], rows, note=" ".join(filter(None, notes)))


def _verdict(task: TaskFindings, variant: str) -> str:
    if variant == task.baseline:
        return "baseline"
    verdict = task.entries[variant].verdict
    if verdict is None:
        return "no verdict"
    difference = verdict.get("difference")
    return (
        f"{verdict['verdict']} ({number(difference, 3, signed=True)})" if difference is not None else verdict["verdict"]
    )
