"""Time and memory of one attention layer by length, and the power of the length with which they grow.

    python benchmarks/windowed.py                                  # the built-in ones, width 512, 8 heads, one row
    python benchmarks/windowed.py multi_head "sliding_window window=64" my_attention --plugin my_attention.py
    python benchmarks/windowed.py --lengths 1024 2048 --passes 1 --open

A component is its name and, after spaces, its knobs. All have the causal mask (``--open``: none) and the kernel that
they choose themselves; a layer's projections and the rendering of its mask are in the figures. Each length is measured
in a process of its own, on one thread: memory is the peak of the process's resident memory above what it had before
the first pass; time is the least CPU time of the passes after it. Without gradients / forward and backward.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from zoo.contracts.values.mask import Mask
from zoo.initialization import initialize
from zoo.registry import Registry

DEFAULT = (
    "multi_head",
    "sliding_window window=256",
    "dilated_window window=128",
    "block_local block=128",
    "strided",
    "strided pattern=fixed factors=merged",
    "global_local window=129",
    "big_bird",
)
LENGTHS = (1024, 2048, 4096, 8192, 16384)

Figures = tuple[float, float]
"""CPU milliseconds and MiB of one pass."""


def resident(line: str) -> float:
    """``VmRSS``, what the process has now, or ``VmHWM``, the most since it was last asked to forget, in MiB."""
    text = Path("/proc/self/status").read_text()
    return next(int(row.split()[1]) / 1024 for row in text.splitlines() if row.startswith(line))


def measured(run: Callable[[], object], passes: int) -> Figures:
    """Memory of the first pass, least time of the others."""
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    run()
    memory = resident("VmHWM") - before
    times = []
    for _ in range(passes):
        begin = time.process_time()
        run()
        times.append(1000 * (time.process_time() - begin))
    return min(times), memory


def child(asked: argparse.Namespace, component: str, length: int, training: bool, results: Any) -> None:
    """One layer at one length, in a process that did nothing before."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, *knobs = component.split()
    registry = Registry.discover(asked.plugin)
    values = {key: yaml.safe_load(value) for key, _, value in (knob.partition("=") for knob in knobs)}
    shape = {"dim": asked.dim, "heads": asked.heads, "layer": asked.layer, "layers": 2, "length": max(asked.lengths)}
    layer: torch.nn.Module = registry.find("attention", name).load().part(**values)(**shape)
    initialize(layer, seed=0, std=0.02, branch_std=0.02)  # what is left unfilled may be denormal, and slow
    x_BTD = torch.randn(1, length, asked.dim, requires_grad=training)

    def once(x_BTD: Tensor = x_BTD) -> None:
        with torch.set_grad_enabled(training):
            out_BTD = layer(x_BTD, mask=Mask(causal=not asked.open).sized(x_BTD.shape[1], x_BTD.shape[1]))
            if training:
                out_BTD.sum().backward()

    once(x_BTD[:, :64].detach().requires_grad_(training))  # what is made once: thread pools, code, gradients
    results.put(measured(once, asked.passes))


def in_a_child(asked: argparse.Namespace, component: str, length: int, training: bool) -> Figures:
    """The figures of a child, which must not fail."""
    context = multiprocessing.get_context("fork")  # imports are shared, and this process never ran a layer
    results = context.SimpleQueue()
    process = context.Process(target=child, args=(asked, component, length, training, results))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{component} at {length} tokens ended with {process.exitcode}")
    return results.get()


def power(lengths: list[int], values: list[float]) -> float:
    """Slope of log value against log length, by least squares; not a number for a single length."""
    if len(lengths) < 2:
        return math.nan
    points = [(math.log(length), math.log(max(value, 1e-9))) for length, value in zip(lengths, values, strict=True)]
    x, y = (sum(column) / len(points) for column in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def table(asked: argparse.Namespace, title: str, rows: dict[str, list[tuple[float, float]]]) -> None:
    """One Markdown table; the last column has the powers, over the longer half of the lengths."""
    longer = asked.lengths[len(asked.lengths) // 2 - 1 :] if len(asked.lengths) > 2 else asked.lengths
    print(f"\n| {title} | " + " | ".join(f"{length:,}" for length in asked.lengths) + " | power |")
    print("|" + "---|" * (len(asked.lengths) + 2))
    for component, pairs in rows.items():
        powers = [power(longer, [pair[way] for pair in pairs[-len(longer) :]]) for way in (0, 1)]
        cells = [f"{without:,.0f} / {with_gradients:,.0f}" for without, with_gradients in pairs]
        print(f"| `{component}` | " + " | ".join(cells) + f" | {powers[0]:.2f} / {powers[1]:.2f} |", flush=True)


def main() -> None:
    """Measure all, print time and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("components", nargs="*", default=DEFAULT)
    parser.add_argument("--plugin", type=Path, nargs="*", default=[], help="files of components from elsewhere")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--open", action="store_true", help="no causal mask")
    parser.add_argument("--layer", type=int, default=0, choices=[0, 1], help="strided: 0 is near, 1 is far")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--passes", type=int, default=3)
    asked = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {}
    memory: dict[str, list[tuple[float, float]]] = {}
    for component in asked.components:
        for length in asked.lengths:
            plain, trained = (in_a_child(asked, component, length, training) for training in (False, True))
            times.setdefault(component, []).append((plain[0], trained[0]))
            memory.setdefault(component, []).append((plain[1], trained[1]))
            print(f"{component}, {length}: {plain[0]:.0f} / {trained[0]:.0f} ms, {plain[1]:.0f} / {trained[1]:.0f} MiB")
    table(asked, "milliseconds", times)
    table(asked, "MiB", memory)


if __name__ == "__main__":
    main()
