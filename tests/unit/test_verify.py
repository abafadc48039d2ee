"""Published results as data: what is read, what is refused, and when a figure passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zoo.builder import check_buildable
from zoo.cli import main
from zoo.errors import Interrupted, RunFailed, UserError
from zoo.recipe.find import RecipeFolders
from zoo.registry import Registry
from zoo.verification import verify as module
from zoo.verification.entries import Check, Entry, assignments, find_entries
from zoo.verification.tables import minutes
from zoo.verification.verify import verify

RECIPE = """
data: {name: images}
architecture: {name: vit, layers: 1, dim: 8, heads: 2, embedding: {name: patches, patch_size: [4, 4]}}
task: image_classification
trainer: {max_steps: 1}
"""
ENTRY = """
claim: Digits can be told apart.
source: Somebody 2020, arXiv:0000.00000
checks:
  model: {recipe: small, overrides: {architecture.dim: 16}, at_least: 0.9, why: it is easy, seconds: 90}
  line: {recipe: ../small.yaml, classifier: logistic_regression, at_most: 0.99, why: it is a line, seconds: 1}
"""
WHOLE_HOUR = 3600


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of recipes with one entry, in place of those that are installed."""
    (tmp_path / "verify").mkdir()
    (tmp_path / "small.yaml").write_text(RECIPE)
    (tmp_path / "verify" / "digits.yaml").write_text(ENTRY)
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RecipeFolders, "__init__", lambda self, registry: vars(self).update(folders=[tmp_path]))
    return tmp_path


def check(**values: Any) -> Check:
    return Check(**{"recipe": "r", "why": "w", "seconds": 1, "file": Path("r.yaml"), **values})


# What is shipped


def test_every_shipped_entry_has_a_source_bounds_and_recipes_that_can_be_built() -> None:
    registry = Registry.discover(environment={})
    entries = find_entries((), registry)
    assert entries
    for entry in entries:
        assert "arXiv:" in entry.source, entry.name
        for name, each in entry.checks.items():
            assert each.why and each.published is not None, f"{entry.name}: {name}"
            check_buildable(each.load(registry))


def test_all_that_is_shipped_takes_less_than_an_hour() -> None:
    entries = find_entries((), Registry.discover(environment={}))
    assert sum(entry.seconds for entry in entries) < WHOLE_HOUR


# Reading


def test_an_entry_is_read_with_its_recipes_by_name_and_by_path(recipes: Path) -> None:
    (entry,) = find_entries((), Registry.discover(environment={}))
    assert (entry.name, entry.seconds) == ("digits", 91)
    assert {each.file.resolve() for each in entry.checks.values()} == {recipes / "small.yaml"}
    recipe = entry.checks["model"].load(Registry.discover(environment={}))
    assert recipe.config("architecture").dim == 16


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("claim: Digits can be told apart.\n", "", r"claim is missing\n  at: verify/digits.yaml"),
        ("at_least: 0.9", "at_lest: 0.9", r"checks.model.at_lest is no key here; did you mean 'at_least'"),
        (", at_most: 0.99", "", r"checks.line has no bound\n  at: verify/digits.yaml:6"),
        ("seconds: 90", "seconds: long", r"checks.model.seconds expects a number, got the text 'long'"),
        ("recipe: small", "recipe: smal", r"there is no recipe 'smal'"),
        ("logistic_regression", "logistic", r"choose one of logistic_regression, mlp"),
        ("  model: {recipe: small, ", "  other: 3\n  model: {recipe: small, ", r"checks.other takes a mapping"),
    ],
)
def test_a_mistake_in_an_entry_is_one_message_with_its_line(
    recipes: Path, old: str, new: str, message: str, request: pytest.FixtureRequest
) -> None:
    assert old in ENTRY
    (recipes / "verify" / "digits.yaml").write_text(ENTRY.replace(old, new))
    with pytest.raises(UserError, match=message):
        find_entries((), Registry.discover(environment={}))


def test_an_entry_without_checks_is_refused(recipes: Path) -> None:
    (recipes / "verify" / "digits.yaml").write_text("claim: c\nsource: s\nchecks: {}\n")
    with pytest.raises(UserError, match="the entry has no checks"):
        find_entries((), Registry.discover(environment={}))


def test_an_unknown_name_is_refused_with_near_ones(recipes: Path) -> None:
    with pytest.raises(UserError, match="no published result 'digit'; did you mean 'digits'") as caught:
        find_entries(["digit"], Registry.discover(environment={}))
    assert caught.value.fix is not None and caught.value.fix.startswith("choose one of digits")


def test_values_are_written_as_overrides() -> None:
    values = {"optimizer.lr": 1e-05, "training.clip_norm": None, "data.source": "digits", "a.b": [1, 2], "c": False}
    assert assignments(values) == [
        "optimizer.lr=1e-05",
        "training.clip_norm=null",
        'data.source="digits"',
        "a.b=[1, 2]",
        "c=false",
    ]


# Bounds


@pytest.mark.parametrize(
    ("low", "high", "passing", "failing", "said"),
    [
        (0.5, None, [0.5, 1.0], [0.49, float("nan")], ">= 0.5"),
        (None, 0.5, [0.5, 0.0], [0.51, float("nan")], "<= 0.5"),
        (0.25, 0.5, [0.25, 0.4, 0.5], [0.2, 0.6], "0.25 to 0.5"),
    ],
)
def test_a_value_passes_between_its_bounds(
    low: float | None, high: float | None, passing: list[float], failing: list[float], said: str
) -> None:
    made = check(at_least=low, at_most=high)
    assert all(map(made.passes, passing)) and not any(map(made.passes, failing))
    assert made.bounds == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min"), (200, "3 min 20 s"), (3900, "1 h 5 min")]
)
def test_times_are_said_in_minutes(seconds: float, said: str) -> None:
    assert minutes(seconds) == said


# Measuring


class Stage:
    """In place of training and measuring: what each run is called, and what it measures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, accuracy: float | BaseException) -> None:
        self.accuracy, self.trained, self.measured = accuracy, [], []  # type: ignore[var-annotated]
        monkeypatch.setattr(module, "train", self.train)
        monkeypatch.setattr(module, "evaluate", self.evaluate)

    def train(self, recipe: Any) -> dict[str, str]:
        self.trained.append(recipe.name)
        if isinstance(self.accuracy, BaseException):
            raise self.accuracy
        return {"run": f"runs/{recipe.name}-1"}

    def evaluate(self, run: Path, overrides: list[str], split: str) -> dict[str, Any]:
        self.measured.append((str(run), tuple(overrides), split))
        return {"metrics": {"test_loss": 1.0, "test_accuracy": self.accuracy}}


@pytest.fixture
def entry(recipes: Path) -> Entry:
    shared = {"recipe": "small", "file": recipes / "small.yaml", "at_least": 0.9, "why": "w", "seconds": 1}
    checks = {
        "near": Check(**shared),  # type: ignore[arg-type]
        "far": Check(**shared, measured_on={"data.batch_size": 4}),  # type: ignore[arg-type]
    }
    return Entry(name="digits", claim="c", source="s", checks=checks)


def test_two_figures_of_one_model_cost_one_training(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, lines = Stage(monkeypatch, 0.95), []  # type: ignore[var-annotated]
    found = verify([entry], Registry.discover(environment={}), lines.append)
    assert (found["passed"], found["failed"]) == (2, 0)
    assert stage.trained == ["verify-digits-near"]
    run = "runs/verify-digits-near-1"
    assert stage.measured == [(run, (), "test"), (run, ("data.batch_size=4",), "test")]
    assert lines[0] == "digits: near (about 1 s)"
    assert lines[1].startswith("digits: near PASS: accuracy 0.95, to be >= 0.9 (")
    assert len(lines) == 4
    (document,) = found["entries"]
    assert document["status"] == "pass" and [each["value"] for each in document["checks"]] == [0.95, 0.95]
    assert all(each["seconds"] >= 0 and each["reason"] is None for each in document["checks"])


def test_a_value_outside_its_bounds_fails(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    Stage(monkeypatch, 0.89)
    found = verify([entry], Registry.discover(environment={}))
    assert (found["passed"], found["failed"], found["entries"][0]["status"]) == (0, 2, "fail")


def test_a_run_that_came_to_a_bad_end_fails_with_its_reason_and_the_rest_goes_on(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, RunFailed("diverged at step 7"))
    found = verify([entry, entry], Registry.discover(environment={}))
    assert found["failed"] == 4 and len(stage.trained) == 2
    assert {each["reason"] for each in found["entries"][0]["checks"]} == {"diverged at step 7"}
    assert found["entries"][0]["checks"][0]["value"] is None


def test_an_interruption_ends_all(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    Stage(monkeypatch, Interrupted(2, 5))
    with pytest.raises(Interrupted):
        verify([entry], Registry.discover(environment={}))


def test_a_metric_that_the_task_lacks_is_refused_before_training(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, recipes: Path
) -> None:
    stage = Stage(monkeypatch, 1.0)
    wrong = check(metric="bleu", at_least=0.5, file=recipes / "small.yaml")
    with pytest.raises(UserError, match="asks for the metric bleu, which the task doesn't have"):
        verify([entry, Entry(name="w", claim="c", source="s", checks={"x": wrong})], Registry.discover(environment={}))
    assert stage.trained == []


def test_a_metric_that_no_run_has_is_refused(entry: Entry, monkeypatch: pytest.MonkeyPatch, recipes: Path) -> None:
    Stage(monkeypatch, 1.0)
    wrong = check(metric="accuracy_pairs_9", at_least=0.5, file=recipes / "small.yaml")
    with pytest.raises(UserError, match="the run has no metric accuracy_pairs_9"):
        verify([Entry(name="w", claim="c", source="s", checks={"x": wrong})], Registry.discover(environment={}))


# The command


def test_the_command_fits_classifiers_and_exits_by_their_figures(
    recipes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Stage(monkeypatch, 0.95)
    assert main(["verify", "digits"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "PASS digits: Digits can be told apart."
    assert lines[-1].startswith("2 passed, 0 failed, in ")
    assert "digits: line (about 1 s)" in captured.err
    Stage(monkeypatch, 0.5)
    assert main(["verify", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["status"] for each in document["entries"][0]["checks"]] == ["fail", "pass"]
    assert 0.9 < document["entries"][0]["checks"][1]["value"] < 0.99  # a line on digits


def test_the_command_lists_without_torch_or_training(recipes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--list"]) == 0
    text = capsys.readouterr().out
    assert "Somebody 2020, arXiv:0000.00000" in text and ">= 0.9" in text and "1 min 30 s" in text
    assert main(["verify", "--list", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["checks"]["model"]["why"] == "it is easy"


def test_a_knob_that_a_classifier_lacks_is_refused(recipes: Path) -> None:
    from zoo.verification.classifiers import classifier_accuracy

    with pytest.raises(UserError, match="scikit-learn's mlp can't be fitted"):
        recipe = check(file=recipes / "small.yaml").load(Registry.discover(environment={}))
        classifier_accuracy(recipe, "mlp", {"layers": 3}, "test")
