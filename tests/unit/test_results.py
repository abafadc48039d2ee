"""results.csv, results.parquet and the document: what is in them, and what their bytes don't depend on."""

from __future__ import annotations

import csv
import io
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from zoo.comparison import results
from zoo.comparison.cells import Cell
from zoo.comparison.costs import COUNTED
from zoo.comparison.folder import CompareFolder
from zoo.comparison.results import document, table, write_results
from zoo.comparison.rows import csv_text
from zoo.recipe import Comparison, Recipe, load_comparison
from zoo.registry import Registry

SMALL = """
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 16, batch_size: 4}
architecture: {name: gpt2, layers: 1, dim: 16, heads: 2}
task: causal_lm
trainer: {max_steps: 4, accelerator: cpu, devices: 1}
"""
REGISTRY = Registry.discover()


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return Recipe.from_dict({"data": "text", "architecture": "gpt2", "task": "causal_lm"}, registry=REGISTRY)


def cell(variant: str = "a", task: str = "t", seed: int = 1, loss: float = 0.1 + 0.2, **more: Any) -> Cell:
    metrics = {"train_loss": 9.0, "val_loss": loss, "val_accuracy_pairs_8": 0.5, "test_loss": loss + 1}
    result = {"metrics": metrics, "parameters": 10, "steps": 4, "tokens": 64, "wall_s": 1.25}
    counted = {"parameters": 10, "macs": 20.5, "cache_bytes": None, "wall_s": 1.25, "energy_cpu_j": 3.0}
    given = {"status": "completed", "address": f"{variant}{seed}", "result": result, "costs": counted, **more}
    return Cell(variant, task, seed, **given)


def text(cells: list[Cell]) -> str:
    return csv_text(*table(cells))


def read(cells: list[Cell]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text(cells))))


# results.csv


def test_a_row_holds_where_a_cell_stands_what_it_counts_and_its_metrics(recipe: Recipe) -> None:
    header, row = text([cell(base=recipe)]).splitlines()
    declared = ["val_accuracy", "val_loss", "val_nats_per_byte", "val_perplexity"]
    assert header.split(",") == [
        *("variant", "task", "seed", "status", "steps", "tokens"),
        *COUNTED,
        *sorted([*declared, "test_loss", "val_accuracy_pairs_8"]),
    ]
    assert row == "a,t,1,completed,4,64,10,,,,20.5,,,1.3,,0.5,0.30000000000000004,,"


def test_nothing_that_was_timed_is_in_it() -> None:
    fast, slow = cell(), cell()
    slow.costs |= {"wall_s": 99.0, "energy_cpu_j": 7.0, "train_tokens_per_s": 1.0, "peak_bytes": 5}
    slow.result = {**slow.result, "wall_s": 99.0}
    assert text([fast]) == text([slow])


def test_no_order_changes_a_byte(recipe: Recipe) -> None:
    cells = [cell(variant, task, seed, base=recipe) for variant in "ab" for task in "tu" for seed in (1, 2)]
    expected = text(cells)
    for order in itertools.islice(itertools.permutations(cells), 0, 40_320, 4_001):
        assert text([*order]) == expected
    alone = text([each for each in cells if each.variant == "a"]).splitlines()
    assert alone == [line for line in expected.splitlines() if line.startswith(("variant", "a,"))]


def test_every_digit_is_kept_and_what_is_not_finite_is_said() -> None:
    found = read([cell(loss=2 / 3), cell(seed=2, loss=float("nan"), status="diverged")])
    assert [row["val_loss"] for row in found] == ["0.6666666666666666", "nan"]
    assert float(found[0]["val_loss"]) == 2 / 3


def test_a_cell_without_a_run_has_an_empty_row() -> None:
    planned = Cell("b", "t", 1)
    found = read([cell(), planned])[1]
    assert found.pop("status") == "planned"
    assert {name: value for name, value in found.items() if value} == {"variant": "b", "task": "t", "seed": "1"}


def test_what_was_counted_for_one_seed_holds_for_all() -> None:
    """A worker that is killed before it has written the costs of a run leaves no other table than one that isn't."""
    whole = [cell(seed=1), cell(seed=2)]
    assert text([cell(seed=1), cell(seed=2, costs={})]) == text(whole)
    assert read([cell(costs={})])[0]["parameters"] == "10"


def test_unknown_multiply_adds_are_said_to_be_unknown() -> None:
    unknown = [cell(costs={"parameters": 10, "macs": None})]
    assert read(unknown)[0]["macs"] == "n/a" and read([Cell("a", "t", 1)])[0]["macs"] == ""
    assert parquet.read_table(io.BytesIO(results.parquet(*table(unknown)))).to_pylist()[0]["macs"] is None


def test_tuned_cells_have_a_phase_and_a_column_for_each_tuned_value() -> None:
    tuned = [cell(phase="tune", point={"optimizer.lr": lr, "data.kind": "x"}, seed=9) for lr in (0.1, 0.01)]
    found = read([cell(point={"optimizer.lr": 0.01, "data.kind": "x"}), *tuned])
    assert list(found[0])[:7] == ["variant", "task", "seed", "phase", "data.kind", "optimizer.lr", "status"]
    assert [(row["phase"], row["optimizer.lr"]) for row in found] == [
        ("tune", "0.01"),
        ("tune", "0.1"),
        ("report", "0.01"),
    ]


# results.parquet


def test_the_parquet_file_is_the_same_table(recipe: Recipe) -> None:
    cells = [cell(base=recipe, loss=1 / 3), cell("b", seed=2**32 - 1, base=recipe), Cell("c", "t", 1)]
    cells[0].point = {"optimizer.lr": 0.1, "architecture.attention": {"name": "linear"}}
    columns, rows = table(cells)
    made = results.parquet(columns, rows)
    found = parquet.read_table(io.BytesIO(made))
    assert found.column_names == columns
    for written, kept in zip(rows, found.to_pylist(), strict=True):
        for name, value in kept.items():
            expected = written.get(name)
            assert value == (json.dumps(expected) if isinstance(expected, dict) else expected), name
    assert {str(found.schema.field(name).type) for name in ("seed", "steps")} == {"int64"}
    assert {str(found.schema.field(name).type) for name in ("val_loss", "macs", "optimizer.lr")} == {"double"}
    assert results.parquet(*table(cells[::-1])) == made


# The document


@pytest.fixture
def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.yaml").write_text(SMALL)
    (tmp_path / "both.yaml").write_text(
        "compare: {variants: {a: {}, b: {architecture.layers: 2}}, tasks: [t], seeds: 2}\n"
    )
    return load_comparison("both.yaml", registry=REGISTRY)


def test_the_document_has_the_fields_that_scripts_rely_on(
    comparison: Comparison, tmp_path: Path, recipe: Recipe
) -> None:
    cells = [cell(base=recipe), Cell("b", "t", 1, base=recipe), Cell("a", "t", 2, base=recipe)]
    found = document(tmp_path, comparison, cells)
    assert set(found) == {"folder", "cells", "verdicts", "tuning"}
    first, second, _ = found["cells"]
    assert first == {
        "variant": "a",
        "task": "t",
        "seed": 1,
        "phase": "report",
        "point": {},
        "status": "completed",
        "reason": None,
        "metrics": cells[0].metrics,
        "costs": {"steps": 4, "tokens": 64, **cells[0].costs},
        "run": str(CompareFolder(tmp_path).run("a1").path),
    }  # fmt: skip
    assert (second["status"], second["run"]) == ("planned", None)
    assert document(None, comparison, cells)["cells"][0]["run"] is None
    assert json.loads(json.dumps(found)) == found


def test_four_files_are_written(comparison: Comparison, tmp_path: Path, recipe: Recipe) -> None:
    cells = [cell(base=recipe), cell("b", base=recipe)]
    folder = CompareFolder(tmp_path)
    found = write_results(folder, comparison, cells)
    assert json.loads((tmp_path / "results.json").read_text()) == found
    assert (tmp_path / "results.csv").read_text() == text(cells)
    assert "wall_s" in (tmp_path / "costs.csv").read_text()
    assert parquet.read_table(tmp_path / "results.parquet").num_rows == 2


@pytest.mark.slow
def test_a_hundred_thousand_cells_take_seconds(
    comparison: Comparison, tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "verdicts", lambda comparison, cells: [])  # which has a test of its own
    some = [cell(variant, "t", seed, base=recipe) for variant in map(str, range(100)) for seed in range(1000)]
    began = time.process_time()
    document(tmp_path, comparison, some)
    assert time.process_time() - began < 3
    csv_text(*table(some))
    assert time.process_time() - began < 15
