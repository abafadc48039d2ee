"""What a masked language model must beat: guesses that don't look at the text, on the very tokens that it must predict.

- `unigram`: the share of each token in the training part, with one added to every count. Its guess is always the most
  frequent token; its loss is what a model has that knows frequencies and nothing else.
- `neighbours`: the token seen most often between the token on the left and the one on the right, both as the model
  sees them, masks included; where the pair is unknown, after the left one alone, and else the unigram's guess.

    python benchmarks/masked_baseline.py bert_code
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from zoo.contracts.data import Draw, Split
from zoo.contracts.task import Task
from zoo.recipe import load_recipe
from zoo.training.job import prepare_task

NO_TARGET = -100
ROWS = 256
"""Windows that are read at a time."""
OUTSIDE = -1
"""The neighbour of a window's first or last token."""


class Baseline(NamedTuple):
    """Guesses over all hidden tokens of a part."""

    targets: int
    """How many tokens are hidden."""
    loss: float
    """Mean nats of the unigram."""
    unigram: float
    """Share of the tokens that the most frequent one is."""
    neighbours: float
    """Share that the neighbours' guess is right about."""


def main() -> None:
    """Print the baselines of a recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    arguments = parser.parse_args()
    found = baseline(prepare_task(load_recipe(arguments.recipe, arguments.overrides)), arguments.split)
    print(f"{found.targets:,} hidden tokens of the {arguments.split} part")
    print(f"unigram: {found.loss:.4f} nats, {found.unigram:.4f} of them right")
    print(f"neighbours: {found.neighbours:.4f} of them right")


def baseline(task: Task, split: Split) -> Baseline:
    """The guesses of the training part on the hidden tokens of another."""
    counts: Counter[int] = Counter()
    between: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    after: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for shown, targets in rows(task, "train"):
        whole = np.where(targets == NO_TARGET, shown, targets)
        left, right = neighbours(shown)
        for token, before, behind in zip(whole.flat, left.flat, right.flat, strict=True):
            counts[token] += 1
            between[before, behind][token] += 1
            after[before][token] += 1
    size = task.describe().vocab_size
    assert size is not None
    total, (most, _) = counts.total() + size, counts.most_common(1)[0]
    loss, hits, near, number = 0.0, 0, 0, 0
    for shown, targets in rows(task, split):
        hidden = targets != NO_TARGET
        left, right = neighbours(shown)
        for token, before, behind in zip(targets[hidden], left[hidden], right[hidden], strict=True):
            known = between.get((before, behind)) or after.get(before) or counts
            loss -= math.log((counts[token] + 1) / total)
            hits += token == most
            near += token == known.most_common(1)[0][0]
            number += 1
    return Baseline(number, loss / number, hits / number, near / number)


def rows(task: Task, split: Split) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(B, T) tokens as the model sees them, and what was hidden, of one pass over a part."""
    size = task.data.size(split)
    for first in range(0, size, ROWS):
        samples = np.arange(first, min(first + ROWS, size))
        draw = Draw(samples, np.zeros_like(samples), 0)
        found = task.prepare(task.data.batch(draw, split), draw, split)
        yield found["ids"].numpy(), found["targets"].numpy()


def neighbours(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(B, T) tokens on the left and on the right of each."""
    edge = np.full_like(ids[:, :1], OUTSIDE)
    return np.concatenate([edge, ids[:, :-1]], 1), np.concatenate([ids[:, 1:], edge], 1)


if __name__ == "__main__":
    main()
