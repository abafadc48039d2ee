"""The kit is examined itself: each seeded fault is caught, by the check that is there for it.

Every mutant still passes the first check of its kind: it runs, and gives the right shapes.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import mutants_attention as attention
import mutants_models as models
import mutants_modules as modules
import mutants_others as others
import mutants_recurrent as recurrent
from mutants_catalogue import CAUGHT
from mutants_executor import CAUGHT as CAUGHT_EXECUTOR
from test_check_catches_answers import CAUGHT as CAUGHT_ANSWERS
from test_check_catches_text import CAUGHT as CAUGHT_TEXT
from zoo.component import KINDS
from zoo.testing.check import Examination, check, examine, suite_of
from zoo.testing.suite import Check

GOOD = {recurrent.Chunked, modules.WithAttribute, others.TurnsBy}
"""Right components that mutants derive from."""


def status(examination: Examination, name: str) -> tuple[str, str]:
    finding = examination.run(named(examination, name))
    return finding.status, finding.message


def named(examination: Examination, name: str) -> Check:
    return next(check for check in examination.checks(full=True) if check.name == name)


def cases() -> list[Any]:
    return [
        pytest.param(
            mutant,
            name,
            id=f"{mutant.__name__}: {name}",
            marks=[pytest.mark.slow] if named(examine(mutant), name).full else [],
        )
        for mutant, name in CAUGHT
    ]


@pytest.mark.parametrize(("mutant", "name"), cases())
def test_a_seeded_fault_is_caught_by_its_check(mutant: type[Any], name: str) -> None:
    examination = examine(mutant)
    found, message = status(examination, name)
    assert found == "failed", message
    assert message
    first = examination.checks()[0].name
    if name != first:
        assert status(examination, first)[0] == "passed", status(examination, first)[1]


def test_a_mask_that_is_forgotten_altogether_stops_everything() -> None:
    examination = examine(attention.MaskForgotten)
    report = examination.suite.run(examination.subject)
    assert report[0].status == "failed"
    assert "never asked for the mask" in report[0].message
    assert {finding.status for finding in report[1:]} == {"skipped"}


@pytest.mark.parametrize(
    ("mutant", "name", "told"),
    [
        (attention.UntypedKnob, "every knob has a type, a default and a docstring", "Config.gain has no type"),
        (attention.KernelInNameOnly, "each kernel is a path of its own", "kernels declares sdpa, which does the same"),
        (others.SumsWithGraph, "a loss is a scalar sum with a gradient", "loss in sums has a gradient"),
    ],
)
def test_a_fault_is_named(mutant: type[Any], name: str, told: str) -> None:
    assert told in status(examine(mutant), name)[1]


@pytest.mark.parametrize("kind", sorted({examine(mutant).suite.kind for mutant, _ in CAUGHT}))
def test_the_good_component_passes_every_check_that_catches_its_mutants(kind: str) -> None:
    names = {name for mutant, name in CAUGHT if examine(mutant).suite.kind == kind}
    examination = examine(importlib.import_module(f"zoo.testing.templates.{kind}").Mine)
    for name in sorted(name for name in names if not named(examination, name).full):
        found, message = status(examination, name)
        assert found != "failed", f"{name}: {message}"


def test_every_mutant_is_in_the_list() -> None:
    listed = {mutant for mutant, _ in CAUGHT} | {attention.MaskForgotten} | GOOD
    for module in (attention, models, modules, recurrent, others):
        classes = [
            value for _, value in inspect.getmembers(module, inspect.isclass) if value.__module__ == module.__name__
        ]
        missing = [value.__name__ for value in classes if value not in listed]
        assert not missing


FIRST = {kind: suite_of(kind).checks[0].name for kind in KINDS}
"""A component that fails the first check of its kind is told only that; mutants are those that pass it."""


def test_every_check_has_a_mutant_that_it_catches() -> None:
    caught = {name for _, name in [*CAUGHT, *CAUGHT_EXECUTOR]}
    caught |= {name for _, name, _ in [*CAUGHT_TEXT, *CAUGHT_ANSWERS]}
    for kind in KINDS:
        idle = [check.name for check in suite_of(kind).checks if check.name not in caught | {FIRST[kind]}]
        assert not idle, kind


@pytest.mark.slow
@pytest.mark.parametrize("good", sorted(GOOD, key=lambda good: good.__name__))
def test_what_mutants_derive_from_is_right(good: type[Any]) -> None:
    report = check(good)
    assert report.ok, report.text()


def test_every_check_of_the_quick_examination_has_a_name_of_its_own() -> None:
    for kind in (
        "attention",
        "position",
        "feed_forward",
        "norm",
        "residual",
        "architecture",
        "tokenizer",
        "data",
        "task",
    ):
        names = [check.name for check in suite_of(kind).checks]
        assert len(names) == len(set(names))
