"""The page about the conformance kit: its checks by kind, and how it did with faults made to try it."""

from __future__ import annotations

import sys
from pathlib import Path

from zoo.component import KINDS
from zoo.testing.check import suite_of


def page(root: Path, notice: str) -> str:
    """How faults are caught, and every check in a table for each kind."""
    sys.path.insert(0, str(root / "tests" / "unit"))  # the faults are part of the tests
    from mutants_outside import ESCAPED_AT_FIRST, STILL_ESCAPES, table

    lines = [
        "# What `zoo check` finds",
        notice,
        "",
        "The kit examines one component by what it says of itself: each word that it offers is checked, and nothing "
        "else is asked of it. It is itself examined: by faults that its authors seeded into good components, each of "
        "which a named check has to catch, and by faults of somebody who had written plugins but not read the kit, "
        "each with a proof that it does harm. Both are tests of the zoo.",
        "",
        table(),
        "",
        "What the kit learned from the outsider's faults that it let through at first:",
        "",
        "| fault | what was added |",
        "|---|---|",
        *(f"| {name} | {what} |" for name, what in ESCAPED_AT_FIRST.items()),
        "",
        "What it still lets through, and why:",
        "",
        "| fault | why |",
        "|---|---|",
        *(f"| {name} | {why} |" for name, why in STILL_ESCAPES.items()),
        "",
    ]
    for kind in KINDS:
        lines += section(kind)
    return "\n".join(lines).rstrip() + "\n"


def section(kind: str) -> list[str]:
    """The checks of one kind."""
    checks = suite_of(kind).checks
    if not checks:
        return []
    rows = [f"| {check.name}{' (`--full`)' if check.full else ''} | {meaning(check.function)} |" for check in checks]
    return [f"## {kind}", "", "| check | what it does |", "|---|---|", *rows, ""]


def meaning(function: object) -> str:
    """First paragraph of a check's documentation."""
    return " ".join((function.__doc__ or "").partition("\n\n")[0].split()).replace("|", "\\|")
