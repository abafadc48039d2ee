"""The exact difference between the recipe of each variant and that of the baseline: changed keys, both values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.report.caps import ROWS, left_out
from zoo.report.findings import Entry, Findings, TaskFindings
from zoo.report.plain import some
from zoo.report.section import Section, Table, Value
from zoo.report.trees import read_tree

ABSENT = "(not there)"
Change = tuple[str, str, str]
"""A key and its value in the baseline and in the variant."""


def difference_section(findings: Findings) -> Section:
    """A row for each variant and key; tasks on which a variant differs in the same way share it."""
    tasks: dict[tuple[str, Change], list[str]] = {}
    compared: dict[str, list[str]] = {}
    for task in findings.tasks:
        for variant, changes in _changes(task, findings):
            compared.setdefault(variant, []).append(task.name)
            for change in changes or [("", "", "")]:
                tasks.setdefault((variant, change), []).append(task.name)
    ranks = {variant: rank for rank, variant in enumerate(compared)}
    rows: list[list[Value]] = [
        [variant, key or "no key differs", before, after, _where(found, compared[variant])]
        for (variant, (key, before, after)), found in sorted(tasks.items(), key=lambda row: ranks[row[0][0]])
    ]
    if not rows:
        return Section("Recipes", ["No recipe has been written yet.", *_asked(findings)])
    drawn = dict.fromkeys(entry.variant for task in findings.tasks for entry in task.drawn())
    bare = [variant for variant in drawn if variant not in compared and variant != findings.tasks[0].baseline]
    notes = [
        left_out(ROWS, len(rows), "rows", "each run has its recipe.yaml"),
        left_out(len(drawn), len(findings.variants), "variants", "each run has its recipe.yaml"),
        f"No run of {some(bare)} has a recipe to compare." if bare else "",
    ]
    text = (
        "What the recipe of a variant has otherwise than the baseline's with the same task and seed, as they were "
        "run, every default filled in. Keys that aren't listed are equal."
    )
    table = Table(["variant", "key", "baseline", "variant's", "tasks"], rows[:ROWS], note=" ".join(filter(None, notes)))
    return Section("Recipes", [text, table])


def _where(found: list[str], compared: list[str]) -> str:
    return "all" if found == compared else ", ".join(found)


def _changes(task: TaskFindings, findings: Findings) -> Iterator[tuple[str, list[Change]]]:
    """Each variant of a task that has a recipe on a seed that the baseline has one on."""
    baseline = task.entries.get(task.baseline)
    if baseline is None:
        return
    against = _recipes(baseline, findings)
    read: dict[Path, dict[str, str]] = {}
    for entry in task.drawn():
        files = _recipes(entry, findings)
        seed = next((seed for seed in files if seed in against), None)
        if entry.variant == task.baseline or seed is None:
            continue
        if against[seed] not in read:
            read[against[seed]] = flat_recipe(against[seed])
        yield entry.variant, difference(read[against[seed]], flat_recipe(files[seed]))


def _recipes(entry: Entry, findings: Findings) -> dict[Any, Path]:
    """Recipes by seed."""
    runs = {cell["seed"]: findings.run(cell) for cell in entry.cells}
    return {seed: run / "recipe.yaml" for seed, run in runs.items() if run and (run / "recipe.yaml").is_file()}


def flat_recipe(file: Path) -> dict[str, str]:
    """Values of a recipe as JSON, by dotted key; empty for a file that can't be read."""
    return dict(_flat(read_tree(file), ""))


def _flat(tree: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", json.dumps(value, ensure_ascii=False, default=str)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Keys that two recipes don't agree on, in the order of the first and then of the second."""
    return [
        (key, before.get(key, ABSENT), after.get(key, ABSENT))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def _asked(findings: Findings) -> Iterator[Table]:
    """What comparison.yaml asks for, as long as nothing has begun."""
    variants = findings.comparison.get("variants") or {}
    rows: list[list[Value]] = [[name, key, value] for name, tree in variants.items() for key, value in _flat(tree, "")]
    if rows:
        note = left_out(ROWS, len(rows), "rows", "comparison.yaml has all")
        yield Table(["variant", "key", "value"], rows[:ROWS], note=note)
