"""Distributions built from the tree, and environments of their own to install them into."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = ("zoo", "plugins", "recipes", "pyproject.toml", "setup.py", "README.md", "LICENSE")
"""What a distribution is built from."""


def run(*command: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Standard output of a command that succeeds."""
    ended = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(map(str, command))}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


class Environment:
    """A virtual environment that sees the libraries of this one, but not what is installed here in editable mode.

    A folder named in a .pth file joins ``sys.path`` without its own .pth files being read, and after the
    environment's own packages; so nothing is downloaded, and the zoo that is found is the one installed here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False, symlinks=os.name != "nt")
        self.scripts = folder / ("Scripts" if os.name == "nt" else "bin")
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        shared = dict.fromkeys([*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
        (self.packages / "shared_libraries.pth").write_text("".join(f"{path}\n" for path in shared))

    def install(self, wheel: Path) -> None:
        """Install a wheel and nothing else."""
        pip = (sys.executable, "-m", "pip", "--python", self.folder, "install", "--quiet")
        run(*pip, "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=self.folder)

    def run(self, script: str, *arguments: object, cwd: Path) -> str:
        """Standard output of a script of the environment, ``python`` or ``zoo``, that succeeds."""
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        return run(self.scripts / script, *arguments, cwd=cwd, env=env)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what distributions are built from, so that building leaves nothing behind in the checkout."""
    folder = tmp_path_factory.mktemp("tree")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in BUILT:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            shutil.copy(source, folder / name)
    return folder


@pytest.fixture(scope="session")
def build_wheel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Builds the wheel of a source tree with the build tools that are installed here."""

    def build(source: Path) -> Path:
        folder = tmp_path_factory.mktemp("wheel")
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
        run(*pip, "--wheel-dir", folder, source, cwd=folder)
        (wheel,) = folder.glob("*.whl")
        return wheel

    return build


@pytest.fixture(scope="session")
def wheel(tree: Path, build_wheel: Callable[[Path], Path]) -> Path:
    """The zoo's own wheel."""
    return build_wheel(tree)


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    """Makes a fresh environment with some wheels installed."""

    def make(*wheels: Path) -> Environment:
        environment = Environment(tmp_path_factory.mktemp("environment"))
        for each in wheels:
            environment.install(each)
        return environment

    return make
