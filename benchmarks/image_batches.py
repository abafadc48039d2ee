"""What a batch of images costs on one core: sets in memory, and a folder that is kept decoded or decoded anew.

    python benchmarks/image_batches.py

The folder holds 512 JPEG files of 500 x 375 pixels (quality 90), shown at 224 x 224. A figure is the median over
batches of random training samples, in CPU time. ``prepare`` is wall time, ``again`` in a cache that has everything.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from zoo.contracts.data import Draw
from zoo_builtin.data.images import Images

ROWS = 32
POLICY = "rand-m9-mstd0.5-inc1"


def write_photos(root: Path) -> None:
    """Smooth noise, which compresses like a photo."""
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(256):
            coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), dtype=np.uint8))
            coarse.resize((500, 375), Image.Resampling.BICUBIC).save(root / name / f"{number}.jpg", quality=90)


def timed(act: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a call takes."""
    begin = clock()
    act()
    return clock() - begin


def measure(title: str, cache: Path, batches: int, **knobs: Any) -> None:
    """Print a line of figures."""
    data = Images(Images.Config(**knobs), cache=cache)
    first = timed(data.prepare)
    again = timed(Images(Images.Config(**knobs), cache=cache).prepare)
    generator = np.random.default_rng(0)
    draws = [
        Draw(generator.integers(0, data.size("train"), ROWS), np.zeros(ROWS, np.int64), 0) for _ in range(batches + 3)
    ]
    cost = statistics.median(
        [timed(functools.partial(data.batch, draw, "train"), time.process_time) for draw in draws][3:]
    )
    print(f"{title:34} batch of {ROWS} {1000 * cost:7.2f} ms   prepare {first:5.2f} s   again {again:5.2f} s")


def main() -> None:
    """All figures."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(folder / "photos")
        photos: dict[str, Any] = {"source": "folder", "root": folder / "photos", "size": (224, 224)}
        measure("digits", folder / "a", 300)
        measure("digits, flip and shift", folder / "a", 300, flip=True, shift=1)
        measure(f"digits, {POLICY}", folder / "a", 60, augment=POLICY)
        measure("mnist1d", folder / "a", 300, source="mnist1d")
        measure("photos, kept", folder / "a", 40, **photos)
        measure("photos, kept, flip and shift", folder / "a", 40, flip=True, shift=16, **photos)
        measure(f"photos, kept, {POLICY}", folder / "a", 10, augment=POLICY, **photos)
        measure("photos, decoded anew", folder / "b", 10, cache_gigabytes=0.0, **photos)


if __name__ == "__main__":
    main()
