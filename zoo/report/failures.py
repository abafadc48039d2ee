"""Cells that didn't complete, with their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.report.caps import ROWS, left_out
from zoo.report.findings import Findings
from zoo.report.plain import some
from zoo.report.section import Section, Table, Value

WELL = ("completed", "planned")
LONGEST_REASON = 2000
"""Characters; a traceback's end says what went wrong, so its beginning goes."""


def failure_section(findings: Findings) -> Section:
    """A row for each variant, task and reason."""
    seeds: dict[tuple[str, str, str, str], list[str]] = {}
    for cell in findings.cells:
        if cell["status"] not in WELL:
            place = cell["variant"], cell["task"], cell["status"], _reason(cell)
            seeds.setdefault(place, []).append(str(cell["seed"]))
    if not seeds:
        return Section("Failures", ["No cell has failed, diverged or been invalid."])
    rows: list[list[Value]] = [
        [variant, task, status, len(found), some(found), reason]
        for (variant, task, status, reason), found in [*seeds.items()][:ROWS]
    ]
    note = left_out(ROWS, len(seeds), "kinds of failure")
    text = "These cells keep their place: a variant that lost a seed is never better by those that are left."
    return Section(
        "Failures", [text, Table(["variant", "task", "status", "cells", "seeds", "reason"], rows, note=note)]
    )


def _reason(cell: Mapping[str, Any]) -> str:
    reason = str(cell.get("reason") or "no reason was given")
    return reason if len(reason) <= LONGEST_REASON else f"… {reason[-LONGEST_REASON:]}"
