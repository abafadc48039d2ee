"""Work out a nested expression over digits: the largest, smallest, median or sum modulo 10 of its arguments.

    [MAX 4 [SM 7 8 ] 2 ]   is asked for at its last bracket: max(4, (7 + 8) mod 10, 2) = 5

Nangia and Bowman 2018, "ListOps", arXiv:1804.06028, section 2, which the Long Range Arena took over; operators, digits
and brackets are tokens, the median of an even number of arguments is rounded down. Each argument is an expression with
the probability ``nesting``, as far as depth and length allow. A sample's length is its number of tokens, and its depth
that of its innermost expression.

Chance: the share of the most frequent answer among the first 5,000 that are drawn for a part, before it is known which
part they belong to; a tenth and a little.
Axes: B rows, T tokens, L levels of depth, V the ten digits.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, final

import numpy as np

from zoo.contracts.data import Split
from zoo.data.growing import Growing, ends
from zoo.data.permutation import hash64
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import NO_TARGET, Made

__all__ = ["ListOps"]

_MAX, _MIN, _MEDIAN, _SUM, _CLOSE = range(10, 15)
_COUNTED = 5000


@final
class ListOps(Growing):
    """Expressions and their values; a sample's length is its number of tokens."""

    vocab_size, blank = 15, _CLOSE
    least = 4

    @dataclasses.dataclass(kw_only=True)
    class Config(Growing.Config):
        """How large expressions are."""

        shortest: int = 4
        """Fewest tokens of a training sample."""
        length: int = 40
        """Most tokens of a training sample."""
        depth: int = 3
        """Expressions that may stand inside of each other in training."""
        test_depth: int | None = None
        """The same of validation and test; null means ``depth``."""
        arguments: int = 5
        """Most arguments of an operator; the fewest are 2."""
        nesting: float = 0.4
        """Probability that an argument is an expression, where there is room for one."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        test_depth = config.depth if config.test_depth is None else config.test_depth
        if not 1 <= config.depth <= test_depth:
            raise ValueError(f"depth must be at least 1 and at most test_depth, got {config.depth} and {test_depth}")
        if config.arguments < 2:
            raise ValueError(f"an operator has at least 2 arguments, got {config.arguments}")
        if not 0 <= config.nesting <= 1:
            raise ValueError(f"nesting is a probability, got {config.nesting}")
        if config.depth == 1 and config.shortest > config.arguments + 2:
            raise ValueError(
                f"at depth 1 an expression has at most {config.arguments + 2} tokens, shortest is {config.shortest}"
            )
        self.depths = {"train": config.depth, "validation": test_depth, "test": test_depth}
        self.widths = {split: longest for split, (_, longest) in self.ranges.items()}
        self.bins = {"length": self.length_bins, "depth": ends(1, test_depth)}
        self._chances: dict[Split, float] = {}

    def prepare(self) -> None:
        """Make some samples of each part, and count their answers.

        Raises:
            UserError: hardly any expression has these lengths at this depth.
        """
        super().prepare()
        if not self._chances:
            parts: tuple[Split, ...] = ("train", "validation")
            train, other = (self._most_frequent(split) for split in parts)
            self._chances = {"train": train, "validation": other, "test": other}

    def _most_frequent(self, split: Split) -> float:
        """Share of the most frequent answer."""
        targets_BT = self.make(RowRandom(hash64(np.arange(_COUNTED))), split).targets
        counts_V = np.bincount(targets_BT[targets_BT != NO_TARGET])
        return float(counts_V.max() / counts_V.sum())

    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples, padded on the right; one that came out shorter than it should has no target."""
        width, levels = self.widths[split], self.depths[split]
        nests_BT, digit_BT = random.uniform(width) < self.config.nesting, random.below(10, width)
        operator_BT = _MAX + random.below(4, width)
        arguments_BT = 2 + random.below(self.config.arguments - 1, width)
        arguments_BT[:, 0] = arguments_BT[:, 0].clip(max=width - 2)
        row_B = np.arange(random.rows)
        depth_B, deepest_B, lengths_B = (np.zeros(random.rows, dtype=np.int64) for _ in range(3))
        left_BL = np.zeros((random.rows, levels + 1), dtype=np.int64)  # arguments to come, of each open expression
        left_BL[:, 0] = 1  # the whole expression
        operator_BL = np.zeros_like(left_BL)
        counts_BLV = np.zeros((*left_BL.shape, 10), dtype=np.int64)  # of the arguments that are there
        ids_BT = np.zeros((random.rows, width), dtype=np.int64)
        owed_B = np.ones(random.rows, dtype=np.int64)  # tokens that it takes at least to come to an end
        for place in range(width):
            active_B = owed_B > 0
            if not active_B.any():
                break
            closes_B = active_B & (left_BL[row_B, depth_B] == 0)
            room_B = place + 1 + owed_B + arguments_BT[:, place] <= width
            wants_B = (nests_BT[:, place] & (depth_B < levels) & room_B) | (place == 0)
            opens_B = active_B & ~closes_B & wants_B
            argument_B, closing, opening = digit_BT[:, place], np.flatnonzero(closes_B), np.flatnonzero(opens_B)
            ids_BT[:, place] = (
                np.where(closes_B, _CLOSE, np.where(opens_B, operator_BT[:, place], argument_B)) * active_B
            )
            at = depth_B[closing]
            argument_B[closing] = _value(operator_BL[closing, at], counts_BLV[closing, at])
            left_BL[row_B, depth_B] -= active_B & ~closes_B
            lengths_B += active_B
            owed_B -= active_B
            owed_B[opening] += arguments_BT[opening, place] + 1
            depth_B[closing] -= 1
            depth_B[opening] += 1
            deepest_B = np.maximum(deepest_B, depth_B)
            at = depth_B[opening]
            left_BL[opening, at] = arguments_BT[opening, place]
            operator_BL[opening, at] = operator_BT[opening, place]
            counts_BLV[opening, at] = 0
            given = np.flatnonzero(active_B & ~opens_B)
            counts_BLV[given, depth_B[given], argument_B[given]] += 1
        targets_BT = np.full_like(ids_BT, NO_TARGET)
        fits = np.flatnonzero(lengths_B >= self.ranges[split][0])
        targets_BT[fits, lengths_B[fits] - 1] = counts_BLV[fits, 0].argmax(axis=1)
        return Made(
            ids=ids_BT,
            targets=targets_BT,
            lengths=lengths_B,
            chance=self._chances.get(split, 0.0),
            facts={"length": lengths_B, "depth": deepest_B},
        )

    def answer(self, ids: list[int]) -> list[int]:
        """The value of the whole expression, read from left to right with a stack."""
        stack: list[list[int]] = [[]]
        for token in ids:
            if token == _CLOSE:
                operator, *arguments = stack.pop()
                ordered, count = sorted(arguments), len(arguments)
                median = (ordered[(count - 1) // 2] + ordered[count // 2]) // 2
                values = {_MAX: ordered[-1], _MIN: ordered[0], _MEDIAN: median, _SUM: sum(arguments) % 10}
                stack[-1].append(values[operator])
            elif token < _MAX:
                stack[-1].append(token)
            else:
                stack.append([token])
        return [0] * (len(ids) - 1) + stack[0]


def _value(operator_B: np.ndarray, counts_BV: np.ndarray) -> np.ndarray:
    """(B,) value of each operator over the digits that there are so many of; any number where there is none."""
    reached_BV, digit_V = counts_BV.cumsum(axis=1), np.arange(10)
    count_B1 = reached_BV[:, -1:]
    below_B, above_B = ((reached_BV <= rank_B1).sum(axis=1) for rank_B1 in ((count_B1 - 1) // 2, count_B1 // 2))
    values = {
        _MAX: 9 - (counts_BV[:, ::-1] > 0).argmax(axis=1),
        _MIN: (counts_BV > 0).argmax(axis=1),
        _MEDIAN: (below_B + above_B) // 2,
        _SUM: (counts_BV * digit_V).sum(axis=1) % 10,
    }
    return np.select([operator_B == operator for operator in values], list(values.values()))
