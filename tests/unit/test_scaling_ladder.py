"""From a comparison to a law: sizes and data of its runs, what is left out, and the three files. Runs are made up."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from zoo.cli import main
from zoo.contracts.data import Description
from zoo.errors import RunFailed, UserError
from zoo.recipe import Comparison, load_comparison
from zoo.recipe.source import write_text
from zoo.scaling import scale as module
from zoo.scaling.figure import figure
from zoo.scaling.fit import fit_law
from zoo.scaling.ladder import count, planned_rungs, read_ladder
from zoo.scaling.law import Law
from zoo.scaling.report import page
from zoo.scaling.scale import plan_ladder, scale
from zoo.training.files import write_json
from zoo.training.run import RunFolder

LADDER = """
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 16, batch_size: 4, validation: 0.2}
architecture: {name: gpt2}
task: causal_lm
compare:
  vary:
    architecture:
      - {layers: 1, dim: 16, heads: 2}
      - {layers: 2, dim: 24, heads: 2}
      - {layers: 2, dim: 48, heads: 4}
      - {layers: 4, dim: 64, heads: 4}
    trainer.max_steps: [10, 50, 250]
  seeds: [1]
trainer: {accelerator: cpu, devices: 1}
"""
LAW = Law(E=0.8, A=20, B=9, a=0.35, b=0.4)


Cells = list[dict[str, Any]]


class Runs:
    """Stands in for ``compare_variants``: what made-up cells come to, with some changes."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.changed: dict[int, dict[str, Any]] = {}
        self.metric = "val_loss"

    def __call__(self, comparison: Comparison, run: Path | None = None, *others: Any, **more: Any) -> dict[str, Any]:
        del comparison, others, more
        folder = (run or Path("runs")).absolute()
        folder.mkdir(exist_ok=True)
        cells = [
            {**cell, "metrics": {self.metric: cell["loss"]}, **self.changed.get(number, {})}
            for number, cell in enumerate(self.cells)
        ]
        return {"folder": str(folder), "cells": cells, "verdicts": []}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Cells]:
    """A folder with a ladder, and its runs, whose losses follow the law of all parameters up to a thousandth."""
    folder = tmp_path_factory.mktemp("ladder")
    (folder / "ladder.yaml").write_text(LADDER)
    text = "\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(99))
    (folder / "text.txt").write_text(text)
    comparison = load_comparison(folder / "ladder.yaml")
    cells = []
    for number, variant in enumerate(comparison.variants):
        recipe = comparison.recipe(variant, "ladder", 1)
        run = RunFolder(folder / "cells" / str(number))
        run.path.mkdir(parents=True)
        sizes = Description(vocab_size=257, max_length=16)
        run.recipe.write_text(recipe.to_yaml())
        run.lock.write_text(write_text({**recipe.lock(), "sizes": vars(sizes)}))
        parameters, tokens = count(recipe, sizes).total, recipe.trainer["max_steps"] * 64
        write_json(run.result, {"parameters": parameters, "tokens": tokens})
        loss = LAW.loss(float(parameters), float(tokens)) * (1 + 0.001 * (-1) ** (number // 2))
        place = {"variant": variant, "task": "ladder", "seed": 1, "status": "completed"}
        cells.append({**place, "run": str(run.path), "loss": loss})
    return folder, cells


@pytest.fixture
def runs(made: tuple[Path, Cells], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A working directory with the ladder."""
    monkeypatch.chdir(tmp_path)
    for name in ("ladder.yaml", "text.txt"):
        (tmp_path / name).write_bytes((made[0] / name).read_bytes())
    runs = Runs(made[1])
    monkeypatch.setattr(module, "compare_variants", runs)
    return runs


def comparison(*overrides: str) -> Comparison:
    return load_comparison("ladder.yaml", overrides)


def scaled(**options: Any) -> dict[str, Any]:
    return scale(comparison(), Path("out"), **{"draws": 20, **options})


def test_the_planted_law_comes_back(runs: Runs) -> None:
    found = scaled()
    assert len(found["runs"]) == 12 and not found["left_out"]
    for name in ("a", "b"):
        low, high = found["intervals"][name]
        assert low <= getattr(LAW, name) <= high
        assert found["law"][name] == pytest.approx(getattr(LAW, name), rel=0.15)
    assert found == json.loads(Path("out/scaling.json").read_text())
    assert found["range"]["tokens"] == [640, 16000]
    run = found["runs"][0]
    assert run["flops"] == 6 * run["parameters"] * run["tokens"]
    assert run["fitted"] == pytest.approx(run["loss"], rel=0.01)


def test_embeddings_are_counted_or_not(runs: Runs) -> None:
    found = scaled(counted="without-embeddings")
    for run in found["runs"]:
        dim = int(run["variant"].split("dim: ")[1][:2])
        assert run["parameters"] - run["without_embeddings"] == 257 * dim + 16 * dim
        assert run["flops"] == 6 * run["without_embeddings"] * run["tokens"]
    assert found["counted"] == "without-embeddings"
    assert found["range"]["parameters"][0] == min(run["without_embeddings"] for run in found["runs"])


def test_runs_that_ended_badly_are_left_out_and_counted(runs: Runs) -> None:
    runs.changed = {0: {"status": "diverged", "metrics": {}}, 5: {"metrics": {"val_loss": None, "val_accuracy": 0.5}}}
    found = scaled()
    assert len(found["runs"]) == 10
    assert found["left_out"] == {"diverged": 1, "without a finite val_loss": 1}
    assert "left out: 1 diverged, 1 without a finite val_loss" in Path("out/scaling.md").read_text()


def test_too_few_that_completed_are_a_failure_with_their_number(runs: Runs) -> None:
    runs.changed = {number: {"status": "failed", "metrics": {}} for number in range(4)}
    with pytest.raises(RunFailed, match=r"8 runs of 3 sizes and 3 amounts(.|\n)*failed"):
        scaled()
    runs.changed = {number: {"status": "failed", "metrics": {}} for number in range(12)}
    with pytest.raises(RunFailed, match="no run of the ladder completed"):
        scaled()


def test_a_tuned_ladder_is_fitted_to_the_test_part(runs: Runs) -> None:
    runs.metric = "test_loss"
    assert scaled()["metric"] == "test_loss"
    with pytest.raises(UserError, match="no run has the metric val_loss"):
        scaled(metric="val_loss")


def test_cells_that_only_tune_are_no_rungs(runs: Runs) -> None:
    document = runs(comparison(), Path("out"))
    tuning = [{**cell, "phase": "tune"} for cell in document["cells"]]
    assert read_ladder({**document, "cells": [*tuning, *document["cells"]]}).rungs == read_ladder(document).rungs


def test_the_figure_is_a_drawing_and_the_same_each_time(runs: Runs) -> None:
    fit = fit_law(read_ladder(runs(comparison(), Path("out"))).points("all"), draws=20)
    first, again = (figure({"metric": "val_loss", "counted": "all"}, fit) for _ in range(2))
    assert first == again
    root = ElementTree.fromstring(first)
    text = " ".join(root.itertext())
    assert root.tag.endswith("svg")
    for word in ("640 tokens", "parameters", "FLOPs, 6 N D", "best by the law", "beyond the runs"):
        assert word in text


def test_the_page_has_the_law_its_intervals_and_its_warning(runs: Runs) -> None:
    found = scaled()
    text = page(found)
    assert text == Path("out/scaling.md").read_text()
    law = found["law"]
    assert f"L(N, D) = {law['E']:.4f} + {law['A']:.4g} / N^{law['a']:.4f}" in text
    low, high = found["intervals"]["E"]
    assert f"{low:.4g} to {high:.4g}" in text
    assert "More than 10 times beyond" in text and "The largest run, predicted from the others" in text
    assert text.count("layers: ") == 12


# Before anything runs


def test_the_sizes_are_known_before(runs: Runs) -> None:
    planned = planned_rungs(comparison())
    assert [rung.tokens for rung in planned[:3]] == [640, 3200, 16000]
    made = read_ladder(runs(comparison(), Path("out"))).rungs
    assert [(rung.parameters.total, rung.tokens) for rung in planned] == [
        (rung.parameters, rung.tokens) for rung in made
    ]


def test_a_dry_run_lists_the_runs(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan_ladder(comparison())
    assert [rung["statuses"] for rung in found["rungs"]] == [{"planned": 1}] * 12
    assert main(["scale", "ladder.yaml", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"{found['rungs'][0]['parameters']:,}" in out and "12 runs, " in out
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["ladder.yaml", "text.txt"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("compare.vary.architecture=[{layers: 1},{layers: 2}]", "6 runs of 2 sizes and 3 amounts of data"),
        ("compare.vary.architecture=[{layers: 1}]", "3 runs of 1 sizes and 3 amounts of data"),
    ],
)
def test_too_small_a_ladder_is_refused_with_the_count(
    runs: Runs, capsys: pytest.CaptureFixture[str], override: str, message: str
) -> None:
    assert main(["scale", "ladder.yaml", override]) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_ladder_has_one_task(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        Path(f"{name}.yaml").write_text(LADDER.partition("compare:")[0])
    assert main(["scale", "ladder.yaml", "compare.tasks=[one,two]"]) == 2
    assert "a ladder has one task, ladder has 2: one, two" in capsys.readouterr().err


def test_the_command_prints_the_page_or_the_document(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "ladder.yaml", "--run", "out", "--draws", "100"]) == 0
    out = capsys.readouterr().out
    assert "| a " in out and out.rstrip().endswith("ladder: out/scaling.md")
    assert main(["scale", "ladder.yaml", "--run", "out", "--draws", "100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("out/scaling.json").read_text())


def test_the_ladder_of_the_zoo_is_one() -> None:
    found = load_comparison("scale/text")
    assert len(found.variants) == 15 and len(found.seeds) == 1
