"""The docs are outputs: generated pages are fresh, and every command and file in them works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHORT = [
    "trainer.max_steps=3",
    "schedule.warmup_steps=0",
    "training.validate_batches=1",
    "architecture.layers=2",
    "data.batch_size=4",
]
"""Appended to every ``zoo train`` of the docs, so that they take seconds here."""
SHORT_EVAL = [override for override in SHORT if override.startswith("training.validate_batches=")]
"""Appended to every ``zoo eval``."""


class Fence(NamedTuple):
    """A fenced block: what stands behind its opening, and its text."""

    info: str
    text: str


def fences(path: Path) -> Iterator[Fence]:
    for match in re.finditer(r"^```([^\n]+)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S):
        yield Fence(match[1].strip(), match[2])


def commands(path: Path) -> list[str]:
    """Lines that begin with ``$ `` in ``console`` blocks, and the ``zoo`` lines of ``bash`` blocks."""
    found = []
    for fence in fences(path):
        lines = fence.text.splitlines()
        if fence.info == "console":
            found += [line[2:] for line in lines if line.startswith("$ ")]
        elif fence.info == "bash":
            found += [
                line.strip().removeprefix(".venv/bin/") for line in lines if re.match(r"(\.venv/bin/)?zoo ", line)
            ]
    return found


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_of_the_docs_run(page: Path, tmp_path: Path) -> None:
    """In one folder, in the order of the page, with the files that the page says to write."""
    for fence in fences(page):
        if match := re.fullmatch(r"\w+ ([\w./-]+\.\w+)", fence.info):
            (tmp_path / match[1]).write_text(fence.text, encoding="utf-8")
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    for command in commands(page):
        program, *arguments = shlex.split(command)
        module = {"zoo": ["-m", "zoo"], "python": []}[program]
        short = {"train": SHORT, "eval": SHORT_EVAL}.get(arguments[0], [])
        done = subprocess.run(
            [sys.executable, *module, *arguments, *short],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
