"""Two runs or recipes held against each other: what differs, where it begins, and one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.cli import main
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.recipe.source import write_text
from zoo.training.metrics import MetricsFile, columns
from zoo.training.weights import save_weights
from zoo.verification.difference import diff, lock_changes, outcome
from zoo.verification.rows import Mismatch, compare_rows
from zoo.verification.subjects import find_subject
from zoo.verification.weights import Weights, compare_weights, newest_weights

RECIPE: dict[str, Any] = {
    "data": {"name": "images"},
    "architecture": {"name": "vit", "layers": 1, "dim": 8, "heads": 2, "embedding": {"name": "patches"}},
    "task": "image_classification",
    "trainer": {"max_steps": 3},
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row(step: int, loss: float = 1.5, **others: float) -> dict[str, float]:
    return {"step": step, "tokens": 10 * step, "wall_s": 0.1 * step, "train_loss": loss, **others}


def write_run(
    path: Path,
    *overrides: str,
    rows: Sequence[Mapping[str, float]] = (),
    weights: Mapping[str, torch.Tensor] | None = None,
    step: int = 3,
    **lock: Any,
) -> Path:
    """A run folder as training would leave it, without the training."""
    path.mkdir(parents=True)
    recipe = Recipe.from_dict(RECIPE, overrides)
    (path / "recipe.yaml").write_text(recipe.to_yaml())
    written = {**recipe.lock(), "data": {"sha256": "d" * 64}, **lock}
    (path / "recipe.lock.yaml").write_text(write_text(written))
    file = MetricsFile(path / "metrics.csv", columns({"loss": "lower"}), before=0)
    for each in rows:
        file.write(dict(each))
    file.close()
    if rows:
        metrics = {name: value for name, value in rows[-1].items() if name.startswith("train_")}
        (path / "result.json").write_text(json.dumps({"status": "completed", "metrics": metrics, "best": None}))
    if weights is not None:
        save_weights(path / "model.safetensors", weights, {"recipe": "x", "step": str(step)})
    return path


def compared(first: str | Path, second: str | Path) -> dict[str, Any]:
    return diff(find_subject(str(first)), find_subject(str(second)))


# Rows


def test_the_first_step_that_differs_is_found_with_its_columns() -> None:
    ours = [row(1), row(2, 1.25, lr=0.5), row(3, 9.0)]
    theirs = [row(1), row(2, 1.0, lr=0.5), row(3, 8.0)]
    found = compare_rows(ours, theirs)
    assert (found.step, found.equal_to, found.shared) == (2, 1, 3)
    assert found.mismatches == [Mismatch("train_loss", 1.25, 1.0)]
    assert found.mismatches[0].relative == pytest.approx(0.2, abs=1e-15)


def test_the_clock_is_no_difference() -> None:
    assert compare_rows([{**row(1), "wall_s": 7.0}], [row(1)]).step is None


def test_one_bit_is_a_difference_and_a_zero_has_a_sign() -> None:
    for first, second in ((1.0, 1.0 + 2**-52), (0.0, -0.0)):
        found = compare_rows([row(1, first)], [row(1, second)])
        assert found.step == 1
    assert compare_rows([row(1, 0.0)], [row(1, -0.0)]).mismatches[0].relative == 0


def test_what_is_no_number_equals_itself_and_has_no_relative_difference() -> None:
    assert compare_rows([row(1, float("nan"))], [row(1, float("nan"))]).step is None
    found = compare_rows([row(1, float("inf"))], [row(1, 2.0)])
    assert found.step == 1 and found.mismatches[0].relative is None


def test_rows_and_values_that_only_one_run_has_are_counted_and_not_compared() -> None:
    found = compare_rows([row(1), row(2), row(4, val_loss=3.0)], [row(2), row(4), row(6), row(8)])
    assert (found.step, found.shared, found.alone, found.ends, found.equal_to) == (None, 2, (1, 2), (4, 8), 4)


def test_runs_without_a_common_row_say_so() -> None:
    found = compare_rows([], [row(1)])
    assert (found.shared, found.step, found.equal_to, found.ends) == (0, None, None, (None, 1))
    assert outcome(found, None) == "no step was logged by both"


# Weights


def test_weights_are_compared_byte_by_byte() -> None:
    values = torch.tensor([1.0, 2.0, float("nan")])
    ours = {"a": values, "b": torch.tensor(4.0), "c": torch.zeros(0)}
    same = compare_weights(Weights(3, ours), Weights(3, {name: value.clone() for name, value in ours.items()}))
    assert (same.differing, same.tensors, same.relative) == ([], 3, 0.0)
    theirs = {**ours, "b": torch.tensor(5.0)}
    found = compare_weights(Weights(3, ours), Weights(3, theirs))
    assert found.differing == ["b"] and found.relative == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("other", "share"),
    [
        (torch.tensor([0.0, 1.0]), 0.0),
        (torch.tensor([-0.0, 1.0]), 0.0),
        (torch.tensor([0.0, 1.0], dtype=torch.float64), 0.0),
        (torch.tensor([[0.0, 1.0]]), float("inf")),
        (torch.tensor([0.0, float("nan")]), float("inf")),
    ],
)
def test_sign_type_shape_and_what_is_no_number_count(other: torch.Tensor, share: float) -> None:
    mine = torch.tensor([0.0, 1.0])
    found = compare_weights(Weights(1, {"a": mine}), Weights(1, {"a": other}))
    same = other.dtype == mine.dtype and str(other) == str(mine)
    assert found.differing == ([] if same else ["a"])
    assert found.relative == share


def test_a_tensor_that_only_one_has_is_named() -> None:
    found = compare_weights(Weights(1, {"a": torch.ones(1)}), Weights(1, {"b": torch.ones(1)}))
    assert (found.differing, found.tensors) == (["a", "b"], 2)


def test_a_run_without_weights_has_none(here: Path) -> None:
    assert newest_weights(find_subject(str(write_run(here / "run"))).folder) is None


# The whole


def test_equal_runs_are_equal_to_the_last_bit(here: Path) -> None:
    rows, weights = [row(1), row(3)], {"a": torch.ones(2)}
    write_run(here / "one", rows=rows, weights=weights)
    write_run(here / "two", rows=[{**each, "wall_s": 99.0} for each in rows], weights=weights)
    found = compared("one", "two")
    assert found["sentence"] == "same recipe, same code, same data: equal to the last bit"
    assert (found["equal"], found["recipe"], found["lock"]) == (True, [], [])


def test_a_key_of_the_recipe_is_named_with_both_values_and_the_step_that_shows_it(here: Path) -> None:
    write_run(here / "one", rows=[row(1), row(2, 2.0)])
    write_run(here / "two", "optimizer.lr=0.25", rows=[row(1), row(2, 1.0)])
    found = compared("one", "two")
    (change,) = found["recipe"]
    assert (change["path"], change["b"], change["a_origin"]) == ("optimizer.lr", 0.25, None)
    assert found["equal"] is False
    assert found["rows"]["first_difference"]["step"] == 2
    assert found["sentence"] == (
        "another recipe (optimizer.lr), same code, same data: "
        "differ from step 2 on, train_loss 2.0 and 1.0 (relative 5.0e-01)"
    )


def test_equal_metrics_with_other_weights_are_told_apart(here: Path) -> None:
    for name, value in (("one", 1.0), ("two", 1.5)):
        write_run(here / name, rows=[row(3)], weights={"a": torch.full((2,), value), "b": torch.ones(1)})
    found = compared("one", "two")
    assert found["equal"] is False
    assert found["sentence"].endswith("equal metrics, and other weights (1 of 2 tensors, relative 3.3e-01)")


def test_weights_of_another_step_say_nothing(here: Path) -> None:
    write_run(here / "one", rows=[row(1), row(2)], weights={"a": torch.ones(2)}, step=2)
    write_run(here / "two", rows=[row(1)], weights={"a": torch.zeros(2)}, step=1)
    found = compared("one", "two")
    assert found["equal"] is True
    assert found["sentence"].endswith("equal to the last bit up to step 1, the last that both logged")


def test_code_versions_and_data_are_named(here: Path) -> None:
    write_run(here / "one", rows=[row(1)])
    lock = Recipe.from_dict(RECIPE).lock()
    components = {key: dict(record) for key, record in lock["components"].items()}
    components["architecture/vit"]["sha256"] = "0" * 64
    packages = {**lock["packages"], "torch": "1.0"}
    write_run(here / "two", rows=[row(1)], components=components, packages=packages, data={"sha256": "e" * 64})
    found = compared("one", "two")
    assert {change["path"] for change in found["lock"]} == {
        "components.architecture/vit.sha256",
        "packages.torch",
        "data.sha256",
    }
    said = "same recipe, other code (architecture/vit), other versions (torch), other data: "
    assert found["sentence"].startswith(said)


def test_sections_that_one_lock_lacks_are_not_known_to_differ() -> None:
    ours = {"seed": 1, "components": {"norm/a": {"sha256": "x"}}, "data": {"sha256": "y"}}
    theirs = {"seed": 2, "components": {"norm/b": {"sha256": "z"}}}
    assert lock_changes(ours, theirs) == [{"path": "seed", "a": 1, "b": 2}]


def test_recipes_are_compared_with_the_origin_of_each_value(here: Path) -> None:
    (here / "one.yaml").write_text(write_text(RECIPE))
    (here / "two.yaml").write_text("base: one.yaml\noptimizer: {lr: 0.25}\nlogger: [csv, tensorboard]\n")
    found = compared("one.yaml", "two.yaml")
    changes = {change["path"]: change for change in found["recipe"]}
    assert changes["optimizer.lr"]["a_origin"] == "default of optimizer adamw"
    assert changes["optimizer.lr"]["b_origin"] == "two.yaml:2"
    assert changes["logger.1"]["a"] == "(absent)" and changes["logger.1"]["a_origin"] is None
    assert (found["rows"], found["equal"]) == (None, None)
    assert found["sentence"] == "another recipe (optimizer.lr), same code, data unread: not both were run"


def test_a_run_can_be_held_against_its_recipe(here: Path) -> None:
    (here / "one.yaml").write_text(write_text(RECIPE))
    write_run(here / "run", rows=[row(1)])
    found = compared("one.yaml", "run")
    assert found["sentence"] == "same recipe, same code, data unread: not both were run"
    assert (found["a"]["kind"], found["b"]["kind"]) == ("recipe", "run")


# Cells of a comparison


@pytest.fixture
def comparison(here: Path) -> Path:
    """The folder of a comparison, whose recorded paths are those of where it once was."""
    folder = here / "grid"
    write_run(folder / "cells" / "aa" / "aaaa", rows=[row(1)])
    write_run(folder / "cells" / "bbbb", "optimizer.lr=0.25", rows=[row(1, 2.0)])
    (folder / "comparison.yaml").write_text("{}")
    runs = {"x:y": "/elsewhere/cells/grid/cells/aa/aaaa", "b": str(folder / "cells" / "bbbb"), "c": None, "d": "/gone"}
    others: dict[str, dict[str, Any]] = {
        "c": {"status": "invalid", "reason": "no heads"},
        "d": {"phase": "tune", "point": {"lr": 0.1}},
    }
    cells = [
        {"variant": name, "task": "vit", "seed": 1, "status": "completed", "run": run, **others.get(name, {})}
        for name, run in runs.items()
    ]
    (folder / "results.json").write_text(json.dumps({"cells": cells}))
    return folder


def test_cells_are_found_by_name_even_in_a_folder_that_was_moved(comparison: Path) -> None:
    found = compared(f"{comparison}:x:y/vit/1", f"{comparison}:b/vit/1")
    assert [change["path"] for change in found["recipe"]] == ["optimizer.lr"]
    assert found["a"]["run"] == str(comparison / "cells" / "aa" / "aaaa")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "is a comparison of several runs"),
        (":b/vit/2", "has no cell 'b/vit/2'; did you mean 'b/vit/1'"),
        (":c/vit/1", "cell c/vit/1 has no run, it is invalid: no heads"),
        (":d/vit/1/lr=0.1", "the run of cell d/vit/1/lr=0.1 isn't there"),
    ],
)
def test_what_is_no_cell_is_one_message(comparison: Path, cell: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        find_subject(f"{comparison}{cell}")


def test_damaged_results_are_one_message(comparison: Path) -> None:
    (comparison / "results.json").write_text("{")
    with pytest.raises(UserError, match="the results of the comparison can't be read"):
        find_subject(f"{comparison}:b/vit/1")


def test_what_is_neither_run_nor_recipe_is_one_message() -> None:
    with pytest.raises(UserError, match="there is no recipe 'nowhere'"):
        find_subject("nowhere")


# The command


def test_the_command_prints_tables_of_at_most_80_columns_and_ends_with_the_sentence(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(here / "one", rows=[row(1), row(2, 2.0)])
    write_run(here / "two", "optimizer.lr=0.25", rows=[row(1), row(2, 2.0 + 2**-51), row(3)])
    assert main(["diff", "one", "two"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "optimizer.lr" in text and "first step that differs: 2" in text
    assert "2.0000000000000004" in text  # all digits where fewer look the same
    assert "B has 1 row of steps that the other didn't log" in text
    assert " ".join(lines[-2:]).replace("  ", " ").startswith("another recipe (optimizer.lr), same code, same data:")


def test_the_command_prints_one_document(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(here / "one", rows=[row(1)])
    assert main(["diff", "one", "one", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["equal"] is True
    assert document.keys() == {
        *("a", "b", "recipe", "lock", "result", "metrics", "best", "rows", "weights", "equal", "sentence")
    }


def test_the_command_refuses_what_isnt_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "nowhere", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("error: there is no recipe 'nowhere'")
