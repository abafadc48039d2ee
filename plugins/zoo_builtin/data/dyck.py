"""Close all brackets that are open: the Dyck language of some kinds of brackets, to a bounded depth.

    prompt   the beginning of a well-nested word, of n brackets, then a token that asks
    answer   the brackets that close it, the innermost first

What is to be written is the whole stack that the prompt left behind. Where the depth has a bound, a recurrence needs a
state that grows with depth times log(kinds) (Hewitt et al. 2020, "RNNs can generate bounded hierarchical languages with
optimal memory", arXiv:2010.07515). At depth 0 a bracket opens, at the greatest depth one closes, and in between
each is as likely as the other.

Chance: 1 / kinds.
Axes: B rows, P tokens of a prompt, L levels of depth.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, final

import numpy as np

from zoo.contracts.data import Split
from zoo.data.growing import Growing, ends
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import Made, written_out

__all__ = ["Dyck"]


@final
class Dyck(Growing):
    """Brackets to close; a sample's length is the number of brackets in its prompt."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Growing.Config):
        """How many kinds of brackets, and how deep they are nested."""

        kinds: int = 4
        """Kinds of brackets."""
        depth: int = 6
        """Brackets that may be open at once in training."""
        test_depth: int | None = None
        """The same of validation and test; null means ``depth``."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        test_depth = config.depth if config.test_depth is None else config.test_depth
        if config.kinds < 2:
            raise ValueError(f"with {config.kinds} kinds of brackets there is nothing to know; give at least 2")
        if not 1 <= config.depth <= test_depth:
            raise ValueError(f"depth must be at least 1 and at most test_depth, got {config.depth} and {test_depth}")
        self.depths = {"train": config.depth, "validation": test_depth, "test": test_depth}
        self.vocab_size, self.blank = 2 * config.kinds + 1, 2 * config.kinds
        self.widths = {split: longest + self._levels(split) for split, (_, longest) in self.ranges.items()}
        deepest = min(test_depth, max(longest for _, longest in self.ranges.values()))
        self.bins = {"length": self.length_bins, "depth": ends(1, deepest)}

    def _levels(self, split: Split) -> int:
        return min(self.depths[split], self.ranges[split][1])

    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples, each with its answer; one that leaves nothing open has none."""
        kinds, levels, longest = self.config.kinds, self._levels(split), self.ranges[split][1]
        length_B = self.draw_lengths(random, split)
        kind_BP, opens_BP = random.below(kinds, longest), random.below(2, longest) == 1
        stack_BL, depth_B = np.zeros((random.rows, levels), dtype=np.int64), np.zeros(random.rows, dtype=np.int64)
        prompt_BP, row_B = np.zeros((random.rows, longest + 1), dtype=np.int64), np.arange(random.rows)
        for place in range(longest):
            goes_on_B = place < length_B
            opens_B = (depth_B == 0) | ((depth_B < levels) & opens_BP[:, place])
            top_B = stack_BL[row_B, (depth_B - 1).clip(min=0)]
            prompt_BP[:, place] = np.where(opens_B, kind_BP[:, place], kinds + top_B)
            begins_B = np.flatnonzero(opens_B & goes_on_B)
            stack_BL[begins_B, depth_B[begins_B]] = kind_BP[begins_B, place]
            depth_B += np.where(opens_B, 1, -1) * goes_on_B
        prompt_BP[row_B, length_B] = self.blank
        closing_BL = kinds + np.take_along_axis(
            stack_BL, (depth_B[:, None] - 1 - np.arange(levels)).clip(min=0), axis=1
        )
        made = written_out(prompt_BP, length_B + 1, closing_BL, depth_B, self.widths[split])
        return Made(**made, chance=1 / kinds, facts={"length": length_B, "depth": depth_B})

    def answer(self, ids: list[int]) -> list[int]:
        """What is still open before the token that asks, the innermost first, written from there on."""
        ask, still_open = ids.index(self.blank), list[int]()
        for token in ids[:ask]:
            if token < self.config.kinds:
                still_open.append(token)
            else:
                still_open.pop()
        return [0] * ask + [self.config.kinds + token for token in reversed(still_open)]
