"""A time budget: steps from a measured speed, which is measured once and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.comparison import budget
from zoo.comparison.budget import _Stopwatch, calibrate, speed
from zoo.comparison.cells import Cell
from zoo.errors import Diverged, UserError
from zoo.recipe import Recipe
from zoo.registry import Registry

REGISTRY = Registry.discover()


def recipe(tmp_path: Path, *overrides: str, **architecture: Any) -> Recipe:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(99)))
    data = {"name": "text", "source": "files", "files": [str(text)], "tokenizer": "byte", "length": 16}
    sizes = {"name": "gpt2", "layers": 1, "dim": 16, "heads": 2, **architecture}
    trainer = {"max_steps": 2, "accelerator": "cpu", "devices": 1}
    values = {"data": data, "architecture": sizes, "task": "causal_lm", "trainer": trainer}
    return Recipe.from_dict(values, overrides, registry=REGISTRY)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Stands in for training: 10 steps a second for each layer; notes layers and threads."""
    asked: list[tuple[int, int]] = []

    def made_up(made: Recipe, threads: int) -> float:
        layers = made.tree["architecture"]["layers"]
        asked.append((layers, threads))
        return 10.06 * layers

    monkeypatch.setattr(budget, "speed", made_up)
    return asked


def test_steps_are_seconds_times_speed_and_are_kept(tmp_path: Path, timed: list[tuple[int, int]]) -> None:
    cells = [
        Cell(variant, "t", seed, recipe(tmp_path, layers=layers), threads=2)
        for variant, layers in (("a", 1), ("b", 2))
        for seed in (1, 2)
    ]
    said: list[str] = []
    assert calibrate(cells, tmp_path, 60, said.append) == {("a", "t"): 603, ("b", "t"): 1207}
    assert timed == [(1, 2), (2, 2)]
    assert said[0] == "a on t: 10.1 steps/s, 603 steps in 60 s"
    assert calibrate(cells, tmp_path, 60) == {("a", "t"): 603, ("b", "t"): 1207}
    assert calibrate([Cell("c", "t", 1, recipe(tmp_path, layers=3)), *cells], tmp_path, 60)[("c", "t")] == 1810
    assert timed == [(1, 2), (2, 2), (3, 1)]
    kept = json.loads((tmp_path / "budget.json").read_text())
    assert kept["seconds"] == 60
    assert [(one["variant"], one["max_steps"]) for one in kept["speeds"]] == [("a", 603), ("b", 1207), ("c", 1810)]


def test_another_budget_needs_no_new_timing_and_another_recipe_does(
    tmp_path: Path, timed: list[tuple[int, int]]
) -> None:
    calibrate([Cell("a", "t", 1, recipe(tmp_path))], tmp_path, 60)
    assert calibrate([Cell("a", "t", 7, recipe(tmp_path, "seed=7", "trainer.max_steps=9"))], tmp_path, 30) == {
        ("a", "t"): 301
    }
    assert len(timed) == 1
    calibrate([Cell("a", "t", 1, recipe(tmp_path, dim=32))], tmp_path, 30)
    calibrate([Cell("a", "t", 1, recipe(tmp_path), threads=2)], tmp_path, 30)
    assert len(timed) == 3


def test_what_cannot_run_is_passed_over_and_no_folder_keeps_nothing(
    tmp_path: Path, timed: list[tuple[int, int]]
) -> None:
    cells = [Cell("a", "t", 1, status="invalid"), Cell("b", "t", 1, recipe(tmp_path))]
    assert calibrate(cells, None, 0.01) == {("b", "t"): 1}
    assert not (tmp_path / "budget.json").exists() and len(timed) == 1


def test_what_diverges_or_ends_in_an_error_keeps_its_own_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {1: Diverged(2, "loss is nan"), 2: RuntimeError("a bug of a plugin")}

    def failing(made: Recipe, threads: int) -> float:
        if error := ends.get(made.tree["architecture"]["layers"]):
            raise error
        return 3.0

    monkeypatch.setattr(budget, "speed", failing)
    said: list[str] = []
    cells = [Cell(f"{n}", "t", seed, recipe(tmp_path, layers=n)) for n in (1, 2, 3) for seed in (1, 2)]
    assert calibrate(cells, tmp_path, 10, said.append) == {("3", "t"): 30}
    assert [line.partition(", ")[2] for line in said[:2]] == [
        "so it keeps its steps: diverged at step 2: loss is nan",
        "so it keeps its steps: a bug of a plugin",
    ]
    assert len(said) == 3


def test_only_steps_behind_the_warm_up_count(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = _Stopwatch()
    watch._times = [0.0, 10.0, 11.0, 11.5, 12.0, 12.5]
    assert watch.rate() == 2.0


@pytest.mark.slow
def test_real_steps_are_timed_and_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS", 0.3)
    monkeypatch.chdir(tmp_path)
    made, before = recipe(tmp_path), torch.get_num_threads()
    found = speed(made, 1)
    deep = speed(recipe(tmp_path, layers=16), 1)
    assert found > 1.5 * deep > 1
    assert torch.get_num_threads() == before
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]


def test_several_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a time budget is for runs on one device, this one has 2"):
        speed(recipe(tmp_path, "trainer.devices=2", "trainer.strategy=ddp"), 1)
