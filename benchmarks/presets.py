"""Every preset: its parameters, and up to 400 M of them one forward pass at full size; what `zoo info` costs.

    python benchmarks/presets.py               # about 5 minutes on two cores
    python benchmarks/presets.py bert-tiny t5-small

Each preset is built by the recipe path that trains it. The last lines run `zoo info` on the largest one in a process
of its own and print its time and its greatest resident memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

from zoo.builder import build_model
from zoo.recipe import load_recipe

FOLDER = Path(__file__).parents[1] / "recipes" / "preset"
LARGEST_RUN = 400_000_000
TOKENS = 64


def count(name: str) -> int:
    """Parameters, on the meta device."""
    return parameters(build_model(load_recipe(name), device="meta"))


def parameters(model: nn.Module) -> int:
    """Parameters of a model, each once."""
    return sum(parameter.numel() for parameter in model.parameters())


def run(name: str) -> str:
    """Build at full size with its initial values and pass 64 tokens, or one image, forward."""
    began = time.perf_counter()
    model = build_model(load_recipe(name)).eval()
    built = time.perf_counter()
    generator = torch.Generator().manual_seed(0)
    inputs = model.embedding.example(1, TOKENS, generator)
    with torch.no_grad():
        scores = model.head(model(inputs, **model.context(1, TOKENS, generator)).hidden)
    if not bool(scores.isfinite().all()):
        raise SystemExit(f"{name}: scores aren't finite")
    passed = time.perf_counter()
    return f"built in {built - began:5.1f} s, passed in {passed - built:4.1f} s, scores {tuple(scores.shape)}"


def information(name: str) -> str:
    """Time and memory of `zoo info`."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "zoo", "info", name], check=True, capture_output=True)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return f"zoo info {name}: {seconds:.1f} s, {memory:,.0f} MB resident at most (torch itself included)"


def main() -> int:
    """Count all, run the small ones, look at the largest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=sorted(file.stem for file in FOLDER.glob("*.yaml")))
    counts = {name: count(name) for name in parser.parse_args().presets}
    for name, size in sorted(counts.items(), key=lambda entry: entry[1]):
        print(f"{name:36} {size:>17,}  {run(name) if size <= LARGEST_RUN else 'counted only'}", flush=True)
    print(information(max(counts, key=lambda name: counts[name])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
