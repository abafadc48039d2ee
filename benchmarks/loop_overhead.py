"""What Lightning's loop, with progress bar, metrics and all, costs a step over the bare loop.

    python benchmarks/loop_overhead.py         # a model of 1 to 2 ms a step, and one of 6 layers, width 384

The bare loop is that of plain_loop.py, with no bar and no file. Both run in one process, a step of one, then a
step of the other, so that whatever else the machine does falls on both; a step's cost is the CPU time of its
thread, on one core. The figures are medians over steps. The control runs the bare loop in the zoo's place: what
it costs over itself is what this way of measuring can't tell apart. A second figure is taken from inside: the CPU time
of a step of the zoo less that of the calls which the bare loop makes too (batch, loss, backward pass, norm and
scaling of the gradient, optimizer).

Where glibc hands freed activations back to the system, a step takes page faults for them again, or not, by where in
its heap they lay: up to 10 ms of a step of 200, to one loop or the other by chance. So the program starts itself
again with an allocator that keeps them (``KEPT``).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from plain_loop import Sizes, Text, plain_steps, recipe_of

from zoo.training.gradients import Gradient
from zoo.training.train import train
from zoo_builtin.task.causal_lm import CausalLM

SMALL = Sizes(steps=500, layers=2, dim=32, heads=2, length=32, batch_size=2)
LARGE = Sizes(steps=110, layers=6, dim=384, heads=6, length=256, batch_size=1)
KEPT = {"MALLOC_TRIM_THRESHOLD_": str(2**32 - 1), "MALLOC_MMAP_MAX_": "0", "MALLOC_ARENA_MAX": "1"}
"""glibc: freed memory stays, and both threads share one heap."""
SKIPPED = 10
"""Steps at the beginning that don't count."""


class Turns:
    """Two threads that take turns, each until it asks for its next batch, and what each of its turns cost."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._resumed: dict[str, float] = {}
        self.costs: dict[str, list[float]] = {"zoo": [], "bare": []}
        self.done: set[str] = set()

    def next(self) -> None:
        """End this thread's turn and wait for its next one."""
        me, other = self._names()
        if me in self._resumed:
            self.costs[me].append(time.thread_time() - self._resumed[me])
        with self._changed:
            self._waiting.append(me)
            self._changed.notify_all()
            self._changed.wait_for(lambda: other in self.done or (other in self._waiting and self._waiting[0] == me))
            self._waiting.remove(me)
        self._resumed[me] = time.thread_time()

    def leave(self) -> None:
        """Let the other thread go on alone."""
        with self._changed:
            self.done.add(self._names()[0])
            self._changed.notify_all()

    @staticmethod
    def _names() -> tuple[str, str]:
        return ("zoo", "bare") if threading.current_thread() is threading.main_thread() else ("bare", "zoo")


class Terminal(io.StringIO):
    """A terminal that nobody looks at, so that the progress bar is on."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@contextlib.contextmanager
def taking_turns(turns: Turns) -> Iterator[None]:
    """Make every batch of text begin a turn."""
    read = Text.batch

    @functools.wraps(read)
    def batch(self: Text, *arguments: Any) -> Any:
        turns.next()
        return read(self, *arguments)

    Text.batch = batch  # type: ignore[method-assign]
    try:
        yield
    finally:
        Text.batch = read  # type: ignore[method-assign]


def run_bare(sizes: Sizes, turns: Turns) -> None:
    """The bare loop."""
    torch.set_num_threads(1)
    try:
        for _ in plain_steps(sizes):
            pass
    finally:
        turns.leave()


def run_zoo(sizes: Sizes, turns: Turns) -> None:
    """The same steps by ``zoo train``, a row of metrics every 10 steps."""
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(Terminal()):
            train(recipe_of(sizes, log_every=10, validation=False), Path(folder) / "run")
    finally:
        turns.leave()


def measure(name: str, sizes: Sizes) -> None:
    """Print what a step of the zoo's loop costs over the bare one, and what the bare loop costs over itself."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = (
        "0"  # Lightning sets it when it is imported; the bare loop has no such
    )
    for label, run in (("zoo", run_zoo), ("control, bare again", run_bare)):
        turns = Turns()
        bare = threading.Thread(target=run_bare, args=(sizes, turns))
        with taking_turns(turns):
            bare.start()
            run(sizes, turns)
            bare.join()
        print(f"{name}: {compared(turns, label)}", flush=True)


def compared(turns: Turns, label: str) -> str:
    """Medians over steps of the bare loop, and of the difference of a step to the bare one beside it."""
    first, bare = (turns.costs[key][SKIPPED:] for key in ("zoo", "bare"))
    extra = [mine - other for mine, other in zip(first, bare, strict=False)]
    low, middle, high = (1e3 * value for value in statistics.quantiles(extra, n=4))
    median = 1e3 * statistics.median(bare)
    return (
        f"bare {median:.2f} ms a step; {label} {middle:+.2f} ms "
        f"(half of the steps {low:+.2f} to {high:+.2f}), ratio {1 + middle / median:.3f}"
    )


class Shared:
    """CPU time spent in calls that both loops make; outermost calls only."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time added up."""

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            self._depth += 1
            started = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.thread_time() - started

        return call


@contextlib.contextmanager
def shared_calls_timed(shared: Shared) -> Iterator[None]:
    """Time the calls that the bare loop makes too, wherever the zoo makes them."""
    calls = [(Text, "batch"), (CausalLM, "loss"), (torch.Tensor, "backward"), (torch.optim.AdamW, "step")]
    calls += [(torch.optim.AdamW, "zero_grad"), (Gradient, "norm"), (Gradient, "scale")]
    kept = [(owner, name, getattr(owner, name)) for owner, name in calls]
    for owner, name, function in kept:
        setattr(owner, name, shared.timed(function))
    try:
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def measure_inside(name: str, sizes: Sizes) -> None:
    """Print what a step of the zoo's loop costs beside the calls that the bare loop makes too."""
    shared, marks = Shared(), []
    read = Text.batch

    @functools.wraps(read)
    def batch(self: Text, *arguments: Any) -> Any:
        marks.append((time.thread_time(), shared.seconds))
        return read(self, *arguments)

    Text.batch = batch  # type: ignore[method-assign]
    try:
        with (
            shared_calls_timed(shared),
            tempfile.TemporaryDirectory() as folder,
            contextlib.redirect_stderr(Terminal()),
        ):
            train(recipe_of(sizes, log_every=10, validation=False), Path(folder) / "run")
    finally:
        Text.batch = read  # type: ignore[method-assign]
    steps = [(now - then, calls - before) for (then, before), (now, calls) in itertools.pairwise(marks[SKIPPED:])]
    rest = [1e3 * (whole - calls) for whole, calls in steps]
    whole = 1e3 * statistics.median(whole for whole, _ in steps)
    low, middle, high = statistics.quantiles(rest, n=4)
    print(
        f"{name}: zoo {whole:.2f} ms a step, of which {middle:.2f} ms (half of the steps {low:.2f} to {high:.2f}) "
        "outside the calls of the bare loop",
        flush=True,
    )


def main() -> int:
    """Measure both models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if not KEPT.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})
    torch.set_num_threads(1)
    measure("2 layers, width 32, length 32, batch 2", SMALL)
    measure("6 layers, width 384, length 256, batch 1", LARGE)
    measure_inside("2 layers, width 32, length 32, batch 2", SMALL)
    measure_inside("6 layers, width 384, length 256, batch 1", LARGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
