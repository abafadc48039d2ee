"""plugins/zoo_example as a stranger's package: installed, listed, checked and trained, with no edit to the zoo."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TINY = (
    "architecture.layers=2",
    "architecture.dim=32",
    "architecture.heads=2",
    "data.tokenizer=byte",
    "data.length=32",
    "data.batch_size=4",
    "training.validate_every=3",
    "training.validate_batches=1",
    "training.log_every=2",
    "schedule.warmup_steps=2",
    "trainer.max_steps=6",
    "trainer.accelerator=cpu",
    "trainer.precision=32-true",
)


@pytest.fixture(scope="module")
def source(tree: Path) -> Path:
    return tree / "plugins" / "zoo_example"


@pytest.fixture(scope="module")
def environment(
    source: Path, wheel: Path, build_wheel: Callable[[Path], Path], make_environment: Callable[..., Any]
) -> Any:
    return make_environment(wheel, build_wheel(source))


@pytest.fixture(scope="module")
def trained(environment: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run folder of the package's recipe, and what ``zoo train --json`` said."""
    folder = tmp_path_factory.mktemp("training")
    said = environment.run("zoo", "train", "gated_text", *TINY, "--run", folder / "run", "--json", cwd=folder)
    return folder / "run", json.loads(said)


def offered(environment: Any, folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What ``zoo list`` shows of the package, by kind and name."""
    records = json.loads(environment.run("zoo", "list", "--json", cwd=folder))
    return {(each["kind"], each["name"]): each for each in records if each["provider"] == "zoo-example"}


def test_it_is_listed_without_being_imported(environment: Any, tmp_path: Path) -> None:
    records = offered(environment, tmp_path)
    assert set(records) == {("attention", "gated"), ("plugin", "example")}
    gated, package = records["attention", "gated"], records["plugin", "example"]
    assert (gated["status"], gated["version"]) == ("ok", "0.1.0")
    assert gated["summary"].startswith("Multi-head attention whose heads are each opened or closed by a gate")
    assert package["status"] == "unloaded"


def test_its_hooks_offer_two_schedules_once_it_is_loaded(environment: Any, tmp_path: Path) -> None:
    program = """
import json
from zoo.registry import Registry
registry = Registry.discover()
registry.load_plugins()
print(json.dumps([[each.name, each.provider, each.load().__name__] for each in registry.components("schedule")]))
"""
    schedules = json.loads(environment.run("python", "-c", program, cwd=tmp_path))
    assert [each for each in schedules if each[1] == "zoo-example"] == [
        ["triangular", "zoo-example", "Triangular"],
        ["warm_restarts", "zoo-example", "WarmRestarts"],
    ]


def test_its_attention_passes_the_zoo_s_checks(environment: Any, tmp_path: Path) -> None:
    report = json.loads(environment.run("zoo", "check", "attention/gated", "--json", cwd=tmp_path))
    assert report["failed"] == 0
    assert report["passed"] >= 10
    assert {check["status"] for check in report["checks"]} <= {"passed", "skipped"}


def test_its_recipe_is_found_by_name_and_names_its_parts(environment: Any, tmp_path: Path) -> None:
    recipe = json.loads(environment.run("zoo", "show", "gated_text", "--json", cwd=tmp_path))
    assert recipe["architecture"]["attention"]["name"] == "gated"
    assert recipe["schedule"] == {"name": "triangular", "warmup_steps": 100, "cycle_steps": 500, "low": 0.1}


def test_it_trains(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, said = trained
    assert (said["status"], said["steps"]) == ("completed", 6)
    assert 3.0 < said["metrics"]["val_loss"] < 6.0  # 256 bytes, hardly trained: ln 256 is 5.5
    assert "gated" in (folder / "recipe.yaml").read_text()


def test_the_lock_names_its_version_and_source(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = trained
    assert "zoo-example" in (folder / "recipe.lock.yaml").read_text()


def test_its_callback_writes_the_norm_of_every_weight(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = trained
    with (folder / "weight_norms.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert sorted({int(row["step"]) for row in rows}) == [2, 4, 6]
    gates = [row for row in rows if "attention.gate.weight" in row["parameter"]]
    assert len(gates) == 3 * 2  # steps times layers
    assert all(0.01 < float(row["norm"]) < 10 for row in gates)


def test_its_trained_model_writes_text(environment: Any, trained: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = trained
    said = environment.run(
        "zoo", "generate", folder, "--prompt", "The ", "--max-new-tokens", "5", "--json", cwd=folder.parent
    )
    (written,) = json.loads(said)
    assert written["prompt"] == "The "
    assert len(written["tokens"]) == 5


def test_its_own_tests_pass(environment: Any, source: Path, tmp_path: Path) -> None:
    said = environment.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", source / "tests", cwd=tmp_path)
    assert " passed" in said
