"""``zoo check``: its targets, its report, and every built-in through it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

import mutants_attention
from zoo.component import KINDS
from zoo.errors import UserError
from zoo.registry import Registry
from zoo.testing import templates
from zoo.testing.attention_case import AttentionSubject
from zoo.testing.check import check, examine, suite_of
from zoo.testing.report import Finding, Report
from zoo.testing.schemes import SCHEMES
from zoo.testing.suite import Failed, Skipped, Suite, run_check
from zoo_builtin.attention.multi_head import MultiHead

BUILTIN = [
    record
    for record in Registry.discover(environment={}).components()
    if record.module.startswith("zoo_builtin.") and record.kind in KINDS
]
TEMPLATES = Path(templates.__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("record", BUILTIN, ids=lambda record: record.key)
def test_every_built_in_passes(record) -> None:
    report = check(record.key)
    assert report.ok or not report.count("failed"), report.text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_template_passes(kind: str) -> None:
    began = time.process_time()
    report = check(template(kind))
    assert report.ok, report.text()
    assert time.process_time() - began < 60


def template(kind: str) -> type:
    return importlib.import_module(f"zoo.testing.templates.{kind}").Mine


@pytest.mark.parametrize("name", SCHEMES)
def test_the_kits_own_position_schemes_pass(name: str) -> None:
    report = check(SCHEMES[name][1])
    assert report.ok, report.text()


def test_the_text_task_is_checked_over_a_model_and_not_skipped() -> None:
    report = check("task/causal_lm")
    assert (report.count("failed"), report.count("skipped")) == (0, 0), report.text()


def test_a_file_is_checked_by_the_contract_that_its_class_implements(tmp_path: Path) -> None:
    file = tmp_path / "unit_length.py"
    file.write_text((TEMPLATES / "norm.py").read_text().replace("Mine", "UnitLength"))
    report = check(file)
    assert report.ok
    assert report.target == f"norm/unit_length in {file}"


def test_a_name_may_leave_out_its_kind() -> None:
    assert check("layer_norm").json() == check("norm/layer_norm").json()


def test_json_counts_what_the_checks_say() -> None:
    document = json.loads(json.dumps(check("norm/rms_norm").json()))
    assert set(document) == {"target", "passed", "failed", "skipped", "checks"}
    statuses = [entry["status"] for entry in document["checks"]]
    for status in ("passed", "failed", "skipped"):
        assert document[status] == statuses.count(status)
    assert document["failed"] == 0
    assert document["passed"] > 10
    assert all(set(entry) == {"name", "status", "message"} for entry in document["checks"])


def test_a_failure_names_the_smallest_case_and_its_numbers() -> None:
    report = check(mutants_attention.MaskAsked)
    assert not report.ok
    failed = {finding.name: finding.message for finding in report.checks if finding.status == "failed"}
    message = failed["no look-ahead, by perturbation"]
    assert message.startswith("T=5: output 0 moves by ")
    assert message.endswith(" when the later input 1 is replaced")
    assert report.text().index("no look-ahead, by perturbation") < report.text().index("  ok ")


def test_an_exception_of_the_plugin_is_a_finding_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "crashes.py"
    file.write_text((TEMPLATES / "norm.py").read_text().replace("(-1, keepdim=True)", "(7)"))
    report = check(file)
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if "(7)" in text)
    assert report.count("failed") == 1
    assert report.checks[0].message.startswith("T=3: raised IndexError: ")
    assert report.checks[0].message.endswith(f"(crashes.py:{line})")
    assert {finding.status for finding in report.checks[1:]} == {"skipped"}


def test_the_same_seed_gives_the_same_report_and_another_seed_other_numbers() -> None:
    def messages(seed: int) -> list[Finding]:
        examination = examine(mutants_attention.RowsMixed, seed=seed)
        return [examination.run(one) for one in examination.checks() if "alone" in one.name]

    assert messages(3) == messages(3) != messages(4)


SKIPPED = {
    "no look-ahead, by perturbation": "it doesn't offer causal",
    "cache = full pass, in chunks": "it doesn't offer cache, causal",
}


def test_what_is_not_offered_is_skipped_and_says_so() -> None:
    class Encoder(MultiHead):  # type: ignore[misc]
        offers = frozenset({"bidirectional", "padding"})

    examination = examine(Encoder)
    found = {one.name: examination.run(one) for one in examination.checks() if one.name in ("sees both ways", *SKIPPED)}
    assert {name: finding.message for name, finding in found.items() if finding.status == "skipped"} == SKIPPED
    assert found["sees both ways"].status == "passed"


def test_an_attention_is_checked_at_each_length_scheme_and_knob() -> None:
    subject = AttentionSubject(MultiHead)
    labels = [case.label for case in subject.cases(suite_of("attention").checks[0])]
    assert labels[:4] == ["T=1", "rotated, T=1", "biased, T=1", "biased by content, T=1"]
    assert "kernel=sdpa, rotated, T=8" in labels
    assert "bias=False, T=8" in labels
    assert not any("kv_heads" in label for label in labels)


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("multi_hed", "did you mean 'multi_head'?"),
        ("attention/multi_hed", "did you mean 'multi_head'?"),
        ("nothing_like_it.yaml", "nothing_like_it.yaml"),
        ("missing.py", "there is no file missing.py"),
        ("attention", "attention is a kind of component, not one of them"),
        ("attention", "attention/multi_head"),
    ],
)
def test_a_target_that_names_nothing_is_the_users_mistake(target: str, what: str) -> None:
    with pytest.raises(UserError) as error:
        check(target)
    assert what in str(error.value)


def test_a_broken_file_is_the_users_mistake(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def f(:\n")
    with pytest.raises(UserError, match="syntax error") as error:
        check(file)
    assert error.value.what.startswith(f"{file} can't be checked: syntax error: ")
    assert error.value.where == f"{file}:1"


def test_a_file_that_isnt_there_is_refused_with_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "attention_mine.py").touch()
    with pytest.raises(UserError, match=r"there is no file .*atention_mine\.py; did you mean 'attention_mine\.py'\?"):
        check(tmp_path / "atention_mine.py")


RECIPE = """
data: {name: text, length: 16}
architecture: {name: gpt2, layers: 2, dim: 16, heads: 4, attention: [multi_head, grouped_query], position: rotary}
task: causal_lm
optimizer: adamw
schedule: constant
trainer: {max_steps: 3}
"""


def test_a_recipe_is_checked_by_its_own_model(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(RECIPE)
    report = check(file)
    assert report.ok, report.text()
    assert report.target == "recipe small"
    names = {finding.name for finding in report.checks if finding.status == "passed"}
    assert {"no look-ahead through all layers", "cache = full pass", "every parameter gets a finite gradient"} <= names


def test_overrides_change_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(RECIPE)
    subject = examine(tmp_path / "small.yaml", overrides=["architecture.layers=3"]).subject
    assert sum(1 for _ in subject.build_on("meta").block_modules()) == 3


@pytest.mark.parametrize("target", [MultiHead, "multi_head", TEMPLATES / "norm.py"])
def test_overrides_of_a_component_are_refused(target: str | type | Path) -> None:
    with pytest.raises(UserError, match="is a component, and KEY=VALUE changes a recipe") as error:
        check(target, overrides=["attention.heads=3"])
    assert error.value.where == "override 1: attention.heads=3"


def test_a_recipe_with_a_faulty_part_fails(tmp_path: Path) -> None:
    (tmp_path / "peeks.py").write_text(
        (TEMPLATES / "attention.py")
        .read_text()
        .replace(
            "return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSH",
            "call.hide(q_BNTH @ k_BNSH.mT)\n        return call.scores(q_BNTH, k_BNSH).softmax(-1) @ v_BNSH",
        )
    )
    file = tmp_path / "peeking.yaml"
    file.write_text("plugins: [./peeks.py]\n" + RECIPE.replace("[multi_head, grouped_query]", "[multi_head, peeks]"))
    report = check(file)
    failed = {finding.name for finding in report.checks if finding.status == "failed"}
    assert "no look-ahead through all layers" in failed
    assert "cache = full pass" in failed


def test_a_model_too_large_for_a_check_is_refused_with_its_size(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(RECIPE.replace("layers: 2, dim: 16, heads: 4", "layers: 24, dim: 1024, heads: 16"))
    with pytest.raises(UserError, match=r"has 30\d,\d{3},\d{3} parameters"):
        check(file)


def test_cases_run_from_the_smallest_and_stop_at_the_first_failure() -> None:
    ran: list[int] = []

    class Numbered:
        def __init__(self, size: int) -> None:
            self.size, self.label = size, f"T={size}"

    class Subject:
        offers = frozenset({"even"})

        def cases(self, check):
            return map(Numbered, (1, 2, 3))

    suite: Suite = Suite("numbers", Subject)

    @suite.check("at most one", "even")
    def at_most_one(case: Numbered) -> None:
        ran.append(case.size)
        if case.size > 1:
            raise Failed(f"{case.size} is more than one")

    @suite.check("even ones", "even")
    def even_ones(case: Numbered) -> str:
        if case.size % 2:
            raise Skipped("odd")
        return "half of it"

    @suite.check("odd ones", "odd")
    def odd_ones(case: Numbered) -> None: ...

    findings = [examine_one(suite, check) for check in suite.checks]
    assert ran == [1, 2]
    assert findings == [
        Finding("at most one", "failed", "T=2: 2 is more than one"),
        Finding("even ones", "passed", "half of it"),
        Finding("odd ones", "skipped", "it doesn't offer odd"),
    ]
    assert [finding.status for finding in suite.run(Subject())] == ["failed", "skipped", "skipped"]


def examine_one(suite: Suite, one) -> Finding:
    return run_check(one, suite.subject())


def test_a_report_is_a_table_with_failures_first() -> None:
    report = Report(
        "norm/mine", [Finding("a", "passed", "fine"), Finding("b", "failed", "off by 3"), Finding("c", "skipped")]
    )
    assert report.text() == dedent("""\
        norm/mine
          FAILED b
                   off by 3
          ok     a: fine
          -      c
        1 passed, 1 failed, 1 skipped""")


def test_a_class_that_is_no_component_is_refused() -> None:
    with pytest.raises(UserError, match="implements no contract"):
        examine(dict)


def test_the_pytest_plugin_imports_nothing_heavy() -> None:
    program = "import sys, zoo.testing.pytest_plugin; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
