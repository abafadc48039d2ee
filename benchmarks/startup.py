"""How long ``zoo --help`` and ``zoo list`` take, and what that time is made of.

    python benchmarks/startup.py [--runs 15]

Each command runs in fresh interpreters, in turn with a bare one; the wall time of a run is that of the whole process.
What it is made of comes from ``python -X importtime``: the time that each package's own modules took to import,
in the run with the smallest sum, and the rest, which is the command's own work and the interpreter's end.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections import defaultdict

COMMANDS = {"python": ["-c", "pass"], "zoo --help": ["-m", "zoo", "--help"], "zoo list": ["-m", "zoo", "list"]}
FORBIDDEN = ("torch", "lightning", "omegaconf", "rich")
LIMIT = 0.35
"""Seconds that help and listing may take, on an idle core."""


def wall(arguments: list[str]) -> float:
    """Seconds of one fresh process."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def import_seconds(arguments: list[str]) -> dict[str, float]:
    """Seconds that each top-level package's own modules took; Python's own are one entry."""
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True)
    seconds: dict[str, float] = defaultdict(float)
    for line in done.stderr.splitlines():
        microseconds, _, name = line.removeprefix("import time:").replace("|", " ", 1).partition("|")
        if own := microseconds.split()[:1]:
            top = name.strip().partition(".")[0]
            if own[0].isdigit():
                seconds["the standard library" if top in sys.stdlib_module_names else top] += int(own[0]) / 1e6
    return dict(seconds)


def report(runs: int) -> None:
    """Print the two tables."""
    walls: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        for name, arguments in COMMANDS.items():
            walls[name].append(wall(arguments))
    print(f"{'seconds of ' + str(runs) + ' runs':<24}{'best':>8}{'median':>8}")
    for name, times in walls.items():
        print(f"{name:<24}{min(times):>8.3f}{statistics.median(times):>8.3f}")
    for name in ("zoo --help", "zoo list"):
        parts = min((import_seconds(COMMANDS[name]) for _ in range(5)), key=lambda found: sum(found.values()))
        print(f"\n{name} is made of, in milliseconds (limit {LIMIT * 1000:.0f})")
        for part, seconds in sorted(parts.items(), key=lambda entry: -entry[1]):
            if seconds >= 0.0005:
                print(f"  import {part:<24}{seconds * 1000:>7.1f}")
        print(f"  {'everything else':<31}{max(0.0, min(walls[name]) - sum(parts.values())) * 1000:>7.1f}")
        print(f"  never imported: {', '.join(name for name in FORBIDDEN if name not in parts) or 'none of these'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    report(parser.parse_args().runs)
