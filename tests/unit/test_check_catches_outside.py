"""The kit over the faults of somebody who had not seen it: each is caught, and the oddities beside them pass."""

from __future__ import annotations

from typing import Any

import pytest

from faults_of_an_outsider import FAULTS, GOOD, Fault
from mutants_outside import ESCAPED_AT_FIRST, OUTSIDE, STILL_ESCAPES, table
from zoo.testing.check import check, examine


@pytest.mark.slow
@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS if fault.name in OUTSIDE])
def test_a_fault_of_the_outsider_is_caught(fault: Fault) -> None:
    examination = examine(fault.component)
    named = next(one for one in examination.checks(full=True) if one.name == OUTSIDE[fault.name])
    finding = examination.run(named)
    assert finding.status == "failed", finding.message


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "good"), GOOD, ids=[good.__name__ for _, good in GOOD])
def test_a_right_oddity_passes(kind: str, good: type[Any]) -> None:
    report = check(good)
    assert report.ok, report.text()


def test_the_table_counts_all_faults() -> None:
    names = [fault.name for fault in FAULTS]
    assert set(OUTSIDE) | set(STILL_ESCAPES) == set(names), set(OUTSIDE) ^ set(names)
    assert not set(OUTSIDE) & set(STILL_ESCAPES)
    assert set(ESCAPED_AT_FIRST) <= set(OUTSIDE)
    last = table().splitlines()[-1].strip("| ").split(" | ")
    assert last[0] == "all"
    assert last[4:] == [str(len(names)), str(len(OUTSIDE) - len(ESCAPED_AT_FIRST)), str(len(OUTSIDE))]
