"""The command line. ``main`` is the console script; each command is a thin file of its own."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's own, and return its exit code."""
    from zoo.cli.program import run

    return run(arguments)
