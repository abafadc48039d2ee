"""What Lightning's loop, with progress bar, metrics and all, costs a step over the bare loop.

    python benchmarks/loop_overhead.py         # a model of 1 to 2 ms a step, and one of 6 layers, width 384

The bare loop is that of plain_loop.py with no clock, bar or file. Blocks of either are run in turn, so that
whatever else the machine does falls on both; the figures are medians over blocks, in wall time.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from plain_loop import Sizes, plain_steps, recipe_of

from zoo.training.metrics import read_metrics
from zoo.training.train import train

SMALL = Sizes(steps=400, layers=2, dim=32, heads=2, length=32, batch_size=2)
LARGE = Sizes(steps=30, layers=6, dim=384, heads=6, length=256, batch_size=2)
SKIPPED = 10
"""Steps at the beginning of a block that aren't timed."""


class Terminal(io.StringIO):
    """A terminal that nobody looks at, so that the progress bar is on."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def bare_block(sizes: Sizes) -> float:
    """Milliseconds a step of the bare loop."""
    started = 0.0
    for step, _ in enumerate(plain_steps(sizes)):
        if step == SKIPPED - 1:
            started = time.monotonic()
    return 1e3 * (time.monotonic() - started) / (sizes.steps - SKIPPED)


def zoo_block(sizes: Sizes) -> float:
    """Milliseconds a step of ``zoo train``, from the clock in its own metrics."""
    with tempfile.TemporaryDirectory() as folder, watched():
        run = Path(folder) / "run"
        train(recipe_of(sizes, log_every=SKIPPED, validation=False), run)
        rows = read_metrics(run / "metrics.csv")
    first, last = rows[0], rows[-1]
    return 1e3 * (last["wall_s"] - first["wall_s"]) / (last["step"] - first["step"])


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Standard error as a terminal."""
    with contextlib.redirect_stderr(Terminal()):
        yield


def measure(name: str, sizes: Sizes, blocks: int) -> None:
    """Print the cost of a step in both loops."""
    pairs = [(bare_block(sizes), zoo_block(sizes)) for _ in range(blocks)]
    bare, zoo = (statistics.median(values) for values in zip(*pairs, strict=True))
    extra = statistics.median(zoo - bare for bare, zoo in pairs)
    print(f"{name}: bare {bare:.2f} ms a step, zoo {zoo:.2f} ms, {extra:+.2f} ms (ratio {zoo / bare:.3f})", flush=True)


def main() -> int:
    """Measure both models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=5, help="how often each loop is run")
    blocks = parser.parse_args().blocks
    measure("2 layers, width 32, length 32, batch 2", SMALL, blocks)
    measure("6 layers, width 384, length 256, batch 2", LARGE, blocks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
