"""A run once more: what has drifted, where the replay ends, what it is called."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.recipe.source import read_file, write_text
from zoo.training.job import build_job
from zoo.training.metrics import MetricsFile, columns
from zoo.training.run import RunFolder
from zoo.training.signals import Signals
from zoo.verification.replay import Drift, Watch, find_drift, replay

PLUGIN = '''
"""A norm that does nothing."""

import torch

from zoo.contracts.norm import Norm

__all__ = ["Nothing"]


class Nothing(Norm):
    """Gives what it gets."""

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """The input."""
        return x_BTD
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def run(here: Path) -> RunFolder:
    """What a run writes when it begins."""
    (here / "nothing.py").write_text(PLUGIN)
    values = {
        "plugins": ["nothing.py"],
        "data": {"name": "images"},
        "architecture": {"name": "vit", "layers": 1, "dim": 8, "heads": 2, "norm": "nothing"},
        "task": "image_classification",
        "trainer": {"max_steps": 3},
    }
    values["architecture"]["embedding"] = {"name": "patches", "patch_size": [2, 2]}  # type: ignore[index]
    folder = RunFolder(here / "run")
    folder.path.mkdir()
    folder.begin(build_job(Recipe.from_dict(values)))
    return folder


def drift(run: RunFolder) -> list[Drift]:
    return list(find_drift(run, load_recipe(run.recipe)))


def edit_lock(run: RunFolder, **changes: Any) -> None:
    lock: dict[str, Any] = read_file(run.lock, "recipe").plain()
    run.lock.write_text(write_text({**lock, **changes}))


def test_nothing_has_drifted_from_a_fresh_run(run: RunFolder) -> None:
    assert drift(run) == []


def test_versions_sources_and_data_that_changed_are_named_each(run: RunFolder, here: Path) -> None:
    packages = {**run.locked()["packages"], "torch": "1.0", "tokenizers": None}
    edit_lock(run, packages=packages, data={"sha256": "0" * 64})
    (here / "nothing.py").write_text(PLUGIN + "# edited\n")
    found = {each.what: each for each in drift(run)}
    assert found.keys() == {"package torch", "package tokenizers", "source of norm/nothing", "data"}
    assert (found["package torch"].then, found["package tokenizers"].then) == ("1.0", "none")
    assert found["data"].then == "0" * 12 and len(found["data"].now) == 12


def test_weights_to_start_from_that_changed_are_named(run: RunFolder, here: Path) -> None:
    edit_lock(run, weights={"path": str(here / "gone.pt"), "sha256": "a" * 64})
    assert drift(run) == [Drift(f"weights {here / 'gone.pt'}", "a" * 12, "none")]


def test_a_package_that_an_older_lock_does_not_name_is_no_drift(run: RunFolder) -> None:
    edit_lock(run, packages={"python": run.locked()["packages"]["python"]})
    assert drift(run) == []


def test_a_component_that_the_recipe_no_longer_names_is_drift(run: RunFolder) -> None:
    run.recipe.write_text(run.recipe.read_text().replace("name: nothing", "name: none"))
    (found,) = drift(run)
    assert found.what == "source of norm/nothing" and found.now == "not in recipe.yaml"


def test_a_run_that_drifted_is_refused_before_anything_is_written(run: RunFolder, here: Path) -> None:
    write_rows(run)
    edit_lock(run, packages={"torch": "1.0"})
    before = set(here.rglob("*"))
    with pytest.raises(UserError, match=r"has changed since:\n  package torch: 1\.0 -> ") as it:
        replay(run.path)
    assert it.value.fix is not None and "--anyway" in it.value.fix
    assert {path for path in here.rglob("*") if "cache" not in path.parts} <= before


def write_rows(run: RunFolder) -> None:
    file = MetricsFile(run.metrics, columns({"loss": "lower"}), before=0)
    file.write({"step": 1, "tokens": 4, "train_loss": 2.0})
    file.close()


def test_a_run_that_left_nothing_to_compare_with_is_refused(run: RunFolder) -> None:
    with pytest.raises(UserError, match="the run has no row of metrics to compare with"):
        replay(run.path)


def test_what_is_no_run_is_refused(here: Path) -> None:
    with pytest.raises(UserError, match="is no run folder"):
        replay(here)


# Where it ends


@pytest.fixture
def signals() -> Iterator[Signals]:
    installed = Signals()
    installed.install()
    yield installed
    installed.restore()


def watched(watch: Watch, folder: Path, step: int) -> None:
    trainer: Any = SimpleNamespace(is_global_zero=True, default_root_dir=str(folder), global_step=step)
    if watch.file is None:
        watch.setup(trainer, trainer, "fit")
    watch.on_train_batch_start(trainer, trainer, None, 0)


def test_the_watch_asks_for_the_end_in_the_last_step(run: RunFolder, signals: Signals) -> None:
    watch = Watch([], 5, stop_at_first=False)
    watched(watch, run.path, 3)
    assert not watch.stopped and not signals.number(*signals.flags())
    watched(watch, run.path, 4)
    assert watch.stopped and signals.number(*signals.flags()) == signal.SIGTERM


@pytest.mark.parametrize(("loss", "stops"), [(2.0, False), (2.5, True)])
def test_the_watch_asks_for_the_end_after_a_row_that_differs(
    run: RunFolder, signals: Signals, loss: float, stops: bool
) -> None:
    write_rows(run)
    watch = Watch([{"step": 1, "tokens": 4, "train_loss": loss}], None, stop_at_first=True)
    watched(watch, run.path, 1)
    assert watch.stopped == stops == bool(signals.number(*signals.flags()))
