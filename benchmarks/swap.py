"""The swap: each attention and position, in each architecture that takes it, trains 20 steps and is examined.

    python benchmarks/swap.py                  # about 3 minutes on one core
    python benchmarks/swap.py --no-check       # trains only

A combination that the builder refuses is listed with the word that it lacks; anything else that fails is a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zoo.builder import check_buildable
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.registry import Registry
from zoo.testing.check import check as check_conformance
from zoo.training.train import train

SIZES: dict[str, Any] = {"layers": 2, "dim": 32}
TEXT = {"name": "text", "length": 24, "batch_size": 4, "tokenizer": "byte"}
PATCHES = {"name": "patches", "patch_size": [2, 2]}
JOBS: dict[str, dict[str, Any]] = {
    "gpt2": {"data": TEXT, "task": "causal_lm", "architecture": {"name": "gpt2"}},
    "bert": {"data": TEXT, "task": "masked_lm", "architecture": {"name": "bert"}},
    "encoder_decoder": {
        "data": {"name": "pairs", "source": "dates", "batch_size": 4},
        "task": "seq2seq",
        "architecture": {"name": "encoder_decoder"},
    },
    "vit": {
        "data": {"name": "images", "source": "digits", "batch_size": 8},
        "task": "image_classification",
        "architecture": {"name": "vit", "embedding": PATCHES},
    },
    "gpt2 of patches": {
        "data": {"name": "images", "source": "digits", "batch_size": 8},
        "task": "patch_lm",
        "architecture": {"name": "gpt2", "embedding": PATCHES, "head": "pixels"},
    },
}
"""What each architecture is trained on."""
KNOBS = {"sliding_window": {"window": 5}, "grouped_query": {"kv_heads": 2}}
"""Knobs that make a small variant interesting."""


WITHOUT_CROSS = ("sliding_window",)
"""Attentions that look at their own sequence only; a decoder has another one for the source."""


class Combination(NamedTuple):
    """One cell of the matrix."""

    architecture: str
    attention: str
    position: str

    def recipe(self, steps: int) -> Recipe:
        """A recipe that trains it for some steps."""
        job = JOBS[self.architecture]
        parts: dict[str, Any] = {"attention": {"name": self.attention, **KNOBS.get(self.attention, {})}}
        parts |= {"position": self.position, "heads": 1 if self.attention == "single_head" else 4}
        if self.architecture == "encoder_decoder" and self.attention in WITHOUT_CROSS:
            parts["decoder"] = {"cross_attention": "multi_head"}
        return Recipe.from_dict(
            {
                **job,
                "architecture": {**job["architecture"], **SIZES, **parts},
                "training": {"validate_batches": 2, "validate_every": steps, "save_every": steps},
                "trainer": {"max_steps": steps, "accelerator": "cpu", "devices": 1},
            }
        )


def combinations(registry: Registry) -> Iterator[Combination]:
    """All of them, refused ones included."""
    names = {kind: [record.name for record in registry.components(kind)] for kind in ("attention", "position")}
    for cell in itertools.product(JOBS, names["attention"], names["position"]):
        yield Combination(*cell)


def tried(cell: Combination, steps: int, *, check: bool) -> str:
    """``trained``, or ``refused: ...``, or ``FAILED: ...``."""
    recipe = cell.recipe(steps)
    try:
        check_buildable(recipe)
    except UserError as error:
        return f"refused: {error.what}"
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as words:
        try:
            train(recipe, Path(folder) / "run")
        except Exception as error:
            return f"FAILED: {type(error).__name__}: {error} {words.getvalue()[-200:]}"
        file = Path(folder) / "swap.yaml"
        file.write_text(recipe.to_yaml())
        if check and not (report := check_conformance(file)).ok:
            return f"FAILED: {report.text()}"
    return "trained and examined" if check else "trained"


def main() -> int:
    """Try all combinations; 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--no-check", action="store_true", help="train only")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for cell in combinations(Registry.discover(environment={})):
        began = time.perf_counter()
        outcome = tried(cell, arguments.steps, check=not arguments.no_check)
        counts[outcome.partition(":")[0]] += 1
        print(f"{' x '.join(cell):60} {time.perf_counter() - began:5.1f} s  {outcome}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
