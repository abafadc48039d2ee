"""``pytest --zoo my_attention.py``: component files are collected as tests, one for each check.

Files and folders are given as to any run of pytest. What isn't a component file is collected as usual. Nothing
heavy is imported until a component file is met.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from zoo.component import KINDS
from zoo.scan import scan_file


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options ``--zoo`` and ``--zoo-full``."""
    group = parser.getgroup("zoo", "conformance checks of the zoo")
    group.addoption("--zoo", action="store_true", help="collect component files of the zoo, one test for each check")
    group.addoption("--zoo-full", action="store_true", help="with --zoo: also the checks that take longer")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Generator[None, Any, Any]:
    """A component file becomes a collector of checks, in place of a module of tests."""
    collectors = yield
    if parent.config.getoption("--zoo") and _is_component(file_path):
        return [ComponentFile.from_parent(parent, path=file_path)]
    return collectors


def _is_component(path: Path) -> bool:
    if path.suffix != ".py" or b"zoo.contracts" not in path.read_bytes():
        return False
    record = scan_file(path)
    return record.kind in KINDS and "__all__" in path.read_text(encoding="utf-8")


class ComponentFile(pytest.File):
    """A component file: its tests are the checks of its kind."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each check."""
        from zoo.testing.check import examine

        examination = examine(self.path)
        for check in examination.checks(self.config.getoption("--zoo-full")):
            yield CheckItem.from_parent(self, name=check.name, examination=examination, check=check)


class CheckItem(pytest.Item):
    """One check of one component."""

    def __init__(self, *, examination: Any, check: Any, **others: Any) -> None:
        super().__init__(**others)
        self.examination, self.check = examination, check

    def runtest(self) -> None:
        """Run the check."""
        from zoo.testing.conformance import conclude

        conclude(self.examination.run(self.check))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The file, and the check's name."""
        return self.path, None, self.name
