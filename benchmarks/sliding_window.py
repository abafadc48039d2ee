"""Time of one attention layer by length: every key (multi_head) against the nearest ones (sliding_window).

    python benchmarks/sliding_window.py                       # width 512, 8 heads, one row
    python benchmarks/sliding_window.py --kernel eager --lengths 1024 2048

Both have the causal mask and the same kernel; a layer's four projections are in the figures. Each is the median over
passes of the CPU time on one thread, in milliseconds: without gradients, and forward and backward. The layers take
turns, so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.mask import CAUSAL
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.attention.sliding_window import SlidingWindow


def milliseconds(run: Callable[[], object]) -> float:
    """CPU time of one call."""
    begin = time.process_time()
    run()
    return 1000 * (time.process_time() - begin)


def measured(layers: dict[str, HeadedAttention], x_BTD: Tensor, passes: int) -> dict[str, tuple[float, float]]:
    """Median of a forward pass, and of a forward and backward pass, of each layer."""
    forward: dict[str, list[float]] = {name: [] for name in layers}
    both: dict[str, list[float]] = {name: [] for name in layers}
    for _ in range(passes + 1):
        for name, layer in layers.items():
            with torch.no_grad():
                forward[name].append(milliseconds(lambda layer=layer: out_of(layer, x_BTD)))  # type: ignore[misc]
            both[name].append(milliseconds(lambda layer=layer: out_of(layer, x_BTD).sum().backward()))  # type: ignore[misc]
    return {name: (statistics.median(forward[name][1:]), statistics.median(both[name][1:])) for name in layers}


def out_of(layer: HeadedAttention, x_BTD: Tensor) -> Tensor:
    """A pass under a mask of its own, so that rendering the mask is in the figures."""
    return layer(x_BTD, mask=CAUSAL.sized(x_BTD.shape[1], x_BTD.shape[1]))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--windows", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--kernel", choices=["eager", "sdpa"], default="sdpa")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--passes", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = {"dim": asked.dim, "heads": asked.heads}
    layers: dict[str, HeadedAttention] = {"multi_head": MultiHead.part(kernel=asked.kernel)(**shape)}
    for window in asked.windows:
        layers[f"window {window}"] = SlidingWindow.part(kernel=asked.kernel, window=window)(**shape)
    print(f"{asked.kernel}, ms: forward / forward and backward")
    print("T".rjust(6), *(name.rjust(16) for name in layers))
    for length in asked.lengths:
        x_BTD = torch.randn(1, length, asked.dim, requires_grad=True)
        times = measured(layers, x_BTD, asked.passes)
        print(f"{length:6}", *(f"{forward:.0f} / {both:.0f}".rjust(16) for forward, both in times.values()), flush=True)


if __name__ == "__main__":
    main()
