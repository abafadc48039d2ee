"""What the runs were made with: versions, sources of components and data by their hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.report.caps import ROWS, left_out
from zoo.report.findings import Findings
from zoo.report.plain import some
from zoo.report.section import Section, Table, Value
from zoo.report.trees import read_tree

Lock = Mapping[str, Any]


def environment_section(findings: Findings) -> Section:
    """Tables of packages, components and data from the locks of the runs."""
    locks = [*_locks(findings)]
    if not locks:
        return Section("Environment", ["No run has written its lock yet."])
    packages = _versions(locks)
    mixed = [name for name, versions in packages.items() if len(versions) > 1]
    text = f"From {len(locks):,} locks, the first run of each variant and task."
    if mixed:
        text += f" Runs were not all made with the same versions: {some(mixed)}."
    threads = findings.comparison.get("threads")
    if threads is not None:
        text += f" Each run had {threads} thread{'s' if threads != 1 else ''} of torch."
    return Section("Environment", [text, _packages(packages, len(locks)), _components(locks), _data(findings, locks)])


def _locks(findings: Findings) -> Iterator[Lock]:
    for task in findings.tasks:
        for entry in task.drawn():
            runs = (run for cell in entry.cells if (run := findings.run(cell)))
            file = next((run / "recipe.lock.yaml" for run in runs if (run / "recipe.lock.yaml").is_file()), None)
            if file and (lock := read_tree(file)):
                yield {"task": task.name, **lock}


def _versions(locks: list[Lock]) -> dict[str, dict[str, int]]:
    """How many runs had each version of a package."""
    found: dict[str, dict[str, int]] = {}
    for lock in locks:
        for name, version in (lock.get("packages") or {}).items():
            counts = found.setdefault(name, {})
            counts[str(version)] = counts.get(str(version), 0) + 1
    return found


def _packages(versions: Mapping[str, Mapping[str, int]], locks: int) -> Table:
    rows: list[list[Value]] = [
        [name, version, count if count < locks else "all"]
        for name, counts in versions.items()
        for version, count in counts.items()
    ]
    return Table(["package", "version", "runs"], rows)


def _components(locks: list[Lock]) -> Table:
    runs: dict[tuple[str, ...], int] = {}
    for lock in locks:
        for key, record in (lock.get("components") or {}).items():
            said = tuple(str(record.get(field)) for field in ("provider", "version", "sha256"))
            runs[key, *said] = runs.get((key, *said), 0) + 1
    rows: list[list[Value]] = [[*said, count if count < len(locks) else "all"] for said, count in sorted(runs.items())]
    note = left_out(ROWS, len(rows), "components", "each run has its recipe.lock.yaml")
    return Table(["component", "provider", "version", "sha256 of its source", "runs"], rows[:ROWS], note=note)


def _data(findings: Findings, locks: list[Lock]) -> Table:
    said = dict.fromkeys((lock["task"], str((lock.get("data") or {}).get("sha256"))) for lock in locks)
    return Table(["task", "sha256 of its data"], [[*row] for row in said])
