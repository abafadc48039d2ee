"""Tables of a comparison: every column within 80, whatever the names and numbers are."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from made_up_cells import BETTER, CLOSE, PLAIN, comparison, row, shifted
from zoo.comparison.cells import Cell
from zoo.comparison.tables import result_tables
from zoo.comparison.verdicts import verdicts


def printed(plan: Any, cells: list[Cell]) -> str:
    """What the terminal shows."""
    keys = ("variant", "task", "seed", "phase", "status", "reason", "metrics")
    records = [{key: getattr(cell, key) for key in keys} for cell in cells]
    file = io.StringIO()
    console = Console(file=file, width=80, highlight=False)
    for part in result_tables({"cells": records, "verdicts": verdicts(plan, cells)}):
        console.print(part)
    return file.getvalue()


def three(*variants: str, **more: Any) -> str:
    """Variants that are better, close, and better but diverged once."""
    plan = comparison(*variants, **more)
    values = [PLAIN, BETTER, CLOSE, [*BETTER[:3], "diverged"]]
    rows = [*zip(plan.variants, values, strict=True)]
    return printed(plan, [cell for task in plan.tasks for name, numbers in rows for cell in row(name, numbers, task)])


def words(text: str, first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(first + " "))


def test_the_columns_are_those_that_the_verdict_rests_on() -> None:
    text = three("other", "near", "lost")
    assert "task text: val_loss, lower is better" in text
    assert words(text, "variant") == ["variant", "mean", "difference", "interval", "p", "verdict"]
    assert words(text, "plain") == ["plain", "2.150", "baseline"]
    (verdict, *_) = verdicts(
        comparison("other", "near"), row("plain", PLAIN) + row("other", BETTER) + row("near", CLOSE)
    )
    assert words(text, "other")[:3] == ["other", "1.645", f"{verdict['difference']:+#.4g}"]
    assert words(text, "other")[-1] == "better"
    assert words(text, "near")[-1] == "undecided"
    assert words(text, "lost")[-2:] == ["-", "undecided"]


def test_lines_below_say_noise_margin_notes_and_what_columns_mean() -> None:
    text = three("other", "near", "lost", equivalence={"text": 0.005})
    assert "noise floor: with other seeds plain differs from itself by up to 0.2905" in text
    assert "differences within ±0.005 are equivalent" in text
    assert "near: undecided: " in text and "more seeds, about " in text
    assert "lost: variant: 1 diverged" in text
    assert "p: Holm over 3 verdicts; intervals of " in text
    assert "found with probability 0.8" in text


def test_every_line_fits_80_columns() -> None:
    name = "grouped_query(kv_heads=2)+sliding_window+learned"
    text = three(name, name + "+rotary", "x" * 60, tasks=("text", "a_task_with_a_long_name" * 3))
    assert max(map(len, text.splitlines())) <= 80
    assert words(text, "plain")[-1] == "baseline"


def test_small_differences_are_not_broken_into_lines() -> None:
    tiny = shifted(-1.2345e-5, 2.3456e-5, -0.98765e-5, 1.1e-5)
    text = printed(comparison("other"), row("plain", PLAIN) + row("other", tiny))
    assert max(map(len, text.splitlines())) <= 80
    found = next(line for line in text.splitlines() if line.startswith("other "))
    assert "undecided" in found and "e-06" in found and "e-05" in found


def test_cells_of_tuning_have_no_part_in_the_mean() -> None:
    cells = row("plain", PLAIN) + row("other", BETTER)
    tuning = row("plain", [99.0])
    tuning[0].phase = "tune"
    assert words(printed(comparison("other"), tuning + cells), "plain")[1] == "2.150"


@pytest.mark.parametrize("state", ["planned", "diverged", "invalid"])
def test_a_comparison_without_numbers_has_a_table_too(state: str) -> None:
    text = printed(comparison("other"), row("plain", [state] * 4) + row("other", [state] * 4))
    assert words(text, "other")[-1] == "undecided" and "Holm" not in text
