"""The kit over attentions that nobody here wrote: what it finds in them, and what it doesn't."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from zoo.testing.attention_case import AttentionSubject
from zoo.testing.numbers import exactness
from zoo.testing.report import Finding
from zoo.testing.suite import run_check

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import examine_others

AHEAD, CACHED = "no look-ahead, by perturbation", "cache = full pass, token by token"
PADDED, STEPS = "left padding changes nothing", "parallel = recurrent over many chunks"


def findings(component: type[examine_others.Wrapped], *names: str) -> dict[str, Finding]:
    """Outcomes of some checks."""
    subject = AttentionSubject(component)
    with exactness(1e-4):
        return {check.name: run_check(check, subject) for check in examine_others.behaviour() if check.name in names}


@pytest.fixture(scope="module")
def registered() -> dict[str, type[examine_others.Wrapped]]:
    """Llamas of transformers by the attention function that they use."""
    return {name.partition(", ")[2]: component for name, component in examine_others.transformers_subjects()}


@pytest.mark.parametrize("name", ["eager", "sdpa", "a registered function, with a mask function"])
def test_a_llama_of_transformers_keeps_what_it_offers(
    registered: dict[str, type[examine_others.Wrapped]], name: str
) -> None:
    found = findings(registered[name], AHEAD, CACHED, PADDED, STEPS)
    assert {check: finding.status for check, finding in found.items()} == dict.fromkeys(found, "passed"), found
    assert len(found) == 4


def test_a_function_registered_without_a_mask_function_sees_the_future(
    registered: dict[str, type[examine_others.Wrapped]],
) -> None:
    found = findings(registered["a registered function, without a mask function"], AHEAD, CACHED, PADDED)
    assert {finding.status for finding in found.values()} == {"failed"}
    assert found[AHEAD].message.startswith("T=5: output 0 moves by ")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("plain", set()),
        ("rotary", set()),
        ("alibi", set()),
        ("rotary and alibi", {CACHED, STEPS}),
        ("data-dependent alibi", {CACHED, STEPS}),
        ("shifted tokens", {CACHED, STEPS, PADDED}),
    ],
)
def test_what_x_transformers_does_with_a_cache(name: str, wrong: set[str]) -> None:
    pytest.importorskip("x_transformers")
    component = dict(examine_others.x_transformers_subjects())[f"x-transformers Decoder, {name}"]
    found = findings(component, AHEAD, CACHED, PADDED, STEPS)
    assert {check for check, finding in found.items() if finding.status == "failed"} == wrong, found
