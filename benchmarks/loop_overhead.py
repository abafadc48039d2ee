"""What Lightning's loop, with progress bar, metrics and all, costs a step over the bare loop.

    python benchmarks/loop_overhead.py         # a model of 1 to 2 ms a step, and one of 6 layers, width 384

The bare loop is that of plain_loop.py, with no bar and no file. Blocks of either are run in turn; the figures are
medians over blocks, in CPU time of the process, since a machine that does other things has no wall time to
speak of. A block is run for few steps and for many, and the difference is the steps', without what a run costs
once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from plain_loop import Sizes, plain_steps, recipe_of

from zoo.training.train import train

SMALL = Sizes(steps=510, layers=2, dim=32, heads=2, length=32, batch_size=2)
LARGE = Sizes(steps=20, layers=6, dim=384, heads=6, length=256, batch_size=2)
FEW = 10
"""Steps of a run that is there to be subtracted."""


class Terminal(io.StringIO):
    """A terminal that nobody looks at, so that the progress bar is on."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def bare_run(sizes: Sizes) -> None:
    """The bare loop, as it runs in a process without Lightning, which sets this variable when it is imported."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"
    for _ in plain_steps(sizes):
        pass


def zoo_run(sizes: Sizes) -> None:
    """The same steps by ``zoo train``, a row of metrics every 10 steps."""
    with tempfile.TemporaryDirectory() as folder, watched():
        train(recipe_of(sizes, log_every=10, validation=False), Path(folder) / "run")


def milliseconds(run: Callable[[Sizes], None], sizes: Sizes) -> float:
    """CPU time of a step."""
    costs = []
    for steps in (FEW, sizes.steps):
        started = time.process_time()
        run(dataclasses.replace(sizes, steps=steps, warmup=FEW))
        costs.append(time.process_time() - started)
    return 1e3 * (costs[1] - costs[0]) / (sizes.steps - FEW)


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Standard error as a terminal."""
    with contextlib.redirect_stderr(Terminal()):
        yield


def measure(name: str, sizes: Sizes, blocks: int) -> None:
    """Print the cost of a step in both loops."""
    pairs = [(milliseconds(bare_run, sizes), milliseconds(zoo_run, sizes)) for _ in range(blocks)]
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
