"""Plugins written on the spot: component files, and packages that look installed to ``importlib.metadata``."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

PACKAGE = '"""A package of components."""\nzoo_api = 1\n'


def schedule(class_name: str = "Flat", summary: str = "The same factor at every step.") -> str:
    """Source of a component that loads without torch."""
    return dedent(f'''
        """{summary}

        Factor 1 after the warm-up.
        """

        import dataclasses

        from zoo.contracts.schedule import Schedule

        __all__ = ["{class_name}"]


        class {class_name}(Schedule):
            """A schedule."""

            @dataclasses.dataclass(kw_only=True)
            class Config(Schedule.Config):
                """Knobs."""

                height: float = 1.0
                """Factor."""

            def after_warmup(self, step: int) -> float:
                return self.config.height
    ''').lstrip()


def write(path: Path, text: str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class Site:
    """A folder on ``sys.path`` into which plugins are installed, as pip would leave them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        monkeypatch.syspath_prepend(folder)
        self._monkeypatch = monkeypatch

    def install(self, distribution: str, package: str, files: dict[str, str], init: str = PACKAGE) -> Path:
        """Install a package with files (path → source) and an entry point, and return its folder."""
        for name in [module for module in sys.modules if module.split(".")[0] == package]:
            self._monkeypatch.delitem(sys.modules, name)
        write(self.folder / package / "__init__.py", dedent(init))
        for path, source in files.items():
            write(self.folder / package / path, dedent(source))
        self.declare(distribution, package)
        return self.folder / package

    def declare(self, distribution: str, value: str) -> None:
        """Write the metadata of a distribution whose entry point has this value."""
        about = self.folder / f"{distribution.replace('-', '_')}-1.5.dist-info"
        write(about / "METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        write(about / "entry_points.txt", f"[zoo]\n{distribution} = {value}\n")
