"""The checks of ``zoo check`` as tests, one each, for a plugin's own test file.

from zoo.testing.conformance import Conformance

class TestMine(Conformance):
    target = Mine
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from zoo.testing.check import Examination, Target, examine
from zoo.testing.report import Finding


class Conformance:
    """Inherit, set ``target``; pytest then collects a test for each check, and reports it by its name."""

    target: ClassVar[Target]
    """A component class, a file, a component's name, or a recipe: whatever ``zoo check`` takes."""
    full: ClassVar[bool] = False
    """Whether to run the checks that take longer, too."""
    plugins: ClassVar[Sequence[Path | str]] = ()
    """More plugin files and folders, in which the target or a recipe's parts may be."""

    _found: ClassVar[Examination]

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """One test for each check of the target's kind."""
        if "zoo_check" in metafunc.fixturenames:
            checks = self._examination().checks(self.full)
            metafunc.parametrize("zoo_check", checks, ids=[check.name for check in checks])

    def test_contract(self, zoo_check: Any) -> None:
        """The component keeps its contract."""
        conclude(self._examination().run(zoo_check))

    @classmethod
    def _examination(cls) -> Examination:
        if "_found" not in vars(cls):
            cls._found = examine(cls.target, plugins=cls.plugins)
        return cls._found


def conclude(finding: Finding) -> None:
    """Turn a finding into a test's outcome."""
    if finding.status == "failed":
        pytest.fail(finding.message, pytrace=False)
    if finding.status == "skipped":
        pytest.skip(finding.message)
