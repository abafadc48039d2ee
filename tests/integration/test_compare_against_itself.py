"""A variant against itself, with real runs: chance alone leads to a verdict no oftener than it may."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scipy.stats import binom

import zoo
from small_runs import RECIPE
from zoo.comparison.statistics import ALPHA

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from comparison_errors import against_itself

pytestmark = pytest.mark.slow

TIMES = 20
SEEDS = 3
ITSELF = f"""
base: small.yaml
compare:
  variants: {{one: {{}}, same: {{}}}}
  seeds: {TIMES * 2 * SEEDS}
training: {{validate_every: 10, save_every: 10}}
trainer: {{max_steps: 10}}
"""


def test_a_variant_differs_from_itself_no_oftener_than_5_in_100(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.yaml").write_text(RECIPE)
    (tmp_path / "itself.yaml").write_text(ITSELF)
    monkeypatch.chdir(tmp_path)
    result = zoo.compare("itself.yaml", run="itself")
    values = [cell["metrics"]["val_loss"] for cell in result["cells"] if cell["variant"] == "one"]
    assert len(set(values)) == TIMES * 2 * SEEDS
    said = [answer.verdict for answer in against_itself(values, SEEDS)]
    assert len(said) == TIMES
    assert TIMES - said.count("undecided") <= binom.ppf(0.999, TIMES, ALPHA)
    # that it can fail: every second half made worse by what the runs differ by anyhow
    apart = max(values) - min(values)
    worse = [value - apart * (place // SEEDS % 2) for place, value in enumerate(values)]
    assert [answer.verdict for answer in against_itself(worse, SEEDS)].count("worse") > TIMES / 2
    # with the same seeds the two are the same runs
    (verdict,) = result["verdicts"]
    assert verdict["verdict"] == "undecided" and verdict["note"].startswith("identical runs")
