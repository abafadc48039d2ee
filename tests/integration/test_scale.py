"""A small ladder for real: nine runs and their law."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from small_runs import RECIPE
from zoo.cli import main
from zoo.scaling.law import Law
from zoo.scaling.request import read_rule

pytestmark = pytest.mark.slow

LADDER = """
base: small.yaml
compare:
  vary:
    architecture:
      - {layers: 1, dim: 8, heads: 2}
      - {layers: 1, dim: 16, heads: 2}
      - {layers: 2, dim: 32, heads: 4}
    trainer.max_steps: [4, 12, 36]
  seeds: [7]
  verdicts: false
training: {validate_every: 1000, save_every: 1000, keep: 1}
"""


def test_a_ladder_is_trained_and_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(RECIPE)
    Path("ladder.yaml").write_text(LADDER)
    assert main(["scale", "ladder.yaml", "--run", "out", "--draws", "100"]) == 0
    found = json.loads(Path("out/scaling.json").read_text())
    assert len(found["runs"]) == 9 and found["left_out"] == {}
    cells = json.loads(Path("out/results.json").read_text())["cells"]
    results = [json.loads((Path(cell["run"]) / "result.json").read_text()) for cell in cells]
    assert [(run["parameters"], run["tokens"], run["loss"]) for run in found["runs"]] == [
        (result["parameters"], result["tokens"], result["metrics"]["val_loss"]) for result in results
    ]
    assert len({run["parameters"] for run in found["runs"]}) == len({run["tokens"] for run in found["runs"]}) == 3
    gaps = [math.log(run["fitted"] / run["loss"]) for run in found["runs"]]
    assert found["residual"] == pytest.approx(math.sqrt(sum(gap**2 for gap in gaps) / 4))
    for name, (low, high) in found["intervals"].items():
        assert low <= high and math.isfinite(found["law"][name])
    assert read_rule(fit="out").law == Law(**found["law"])

    # once more: nothing is run, the same is found
    before = {file: file.stat().st_mtime_ns for file in Path("out/cells").rglob("result.json")}
    assert main(["scale", "ladder.yaml", "--run", "out", "--draws", "100"]) == 0
    assert {file: file.stat().st_mtime_ns for file in Path("out/cells").rglob("result.json")} == before
    assert json.loads(Path("out/scaling.json").read_text()) == found
