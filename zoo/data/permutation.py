"""Random order without a list: a seeded shuffle of ``range(size)`` that is computed one index at a time.

An index is a cell of a grid of at least ``size`` cells. A few rounds move it along its column by an amount
that its row decides, then along its row by an amount that its column decides: each round can be undone, so
the whole is a bijection of the grid (a Feistel network on a x b instead of on bits; Black and Rogaway 2002,
"Ciphers with arbitrary finite domains", section 5). Cells outside ``range(size)`` walk on until they are
inside. No memory, no state: sample k of epoch e is the same whoever asks, in whatever order.
"""

from __future__ import annotations

import math

import numpy as np

LARGEST = 2**50
"""Largest size: rows and columns then stay far below 2**64."""

_ROUNDS = 8
_WORD = 2**64 - 1


def permute(index: np.ndarray, size: int, key: tuple[int | np.ndarray, ...]) -> np.ndarray:
    """Where the shuffle of ``range(size)`` that ``key`` names puts each index.

    Args:
        index: integers in ``range(size)``, any shape.
        size: number of items, 1 to 2**50.
        key: what the shuffle depends on, for example (seed, epoch). An array, shaped like ``index``, gives every
            index a key of its own.

    Returns:
        int64, shaped like ``index``: for one key and all of ``range(size)``, each value once.

    Raises:
        ValueError: a size or an index out of range.
    """
    if not 1 <= size <= LARGEST:
        raise ValueError(f"a shuffle has 1 to {LARGEST} items, not {size}")
    index = np.asarray(index)
    if index.size and not 0 <= index.min() <= index.max() < size:
        raise ValueError(f"index {index.min()} to {index.max()} is outside range({size})")
    flat = index.ravel().astype(np.uint64)
    keys = np.broadcast_to(hash64(*key), index.shape).ravel()
    cells = _shuffle_grid(flat, size, keys)
    while (outside := cells >= size).any():
        cells[outside] = _shuffle_grid(cells[outside], size, keys[outside])
    return cells.astype(np.int64).reshape(index.shape)


def epoch_draw(seed: int, first: int, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples at positions ``first`` to ``first + count - 1`` of the endless row of epochs, each one a shuffle.

    Returns:
        samples: (count,) int64, below ``size``.
        epochs: (count,) int64, how many whole epochs lie before each position.
    """
    positions = np.arange(first, first + count, dtype=np.int64)
    epochs, index = np.divmod(positions, size)
    return permute(index, size, (seed, epochs)), epochs


def hash64(*parts: int | np.ndarray) -> np.ndarray:
    """A 64-bit hash of integers, over arrays element by element: the same on every machine and for ever.

    Returns:
        uint64, in the shape that the parts broadcast to, at least 1-D.
    """
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        word = np.atleast_1d(_to_word(part))
        state = _scramble(state ^ _scramble(word))
    return state


def uniform(*parts: int | np.ndarray) -> np.ndarray:
    """A number in [0, 1) for each 64-bit hash of integers, float64, in the shape that the parts broadcast to."""
    return (hash64(*parts) >> np.uint64(11)) * 2.0**-53


def _to_word(part: int | np.ndarray) -> np.ndarray:
    if isinstance(part, np.ndarray):
        return part.astype(np.uint64)
    return np.array([int(part) & _WORD], dtype=np.uint64)


def _shuffle_grid(cells: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    rows = math.isqrt(size - 1) + 1
    height, width = np.uint64(rows), np.uint64(-(-size // rows))
    row, column = np.divmod(cells, width)
    round_keys = _scramble(keys + np.arange(_ROUNDS, dtype=np.uint64)[:, None])
    for number in range(0, _ROUNDS, 2):
        row = (row + _scramble(column ^ round_keys[number]) % height) % height
        column = (column + _scramble(row ^ round_keys[number + 1]) % width) % width
    return row * width + column


def _scramble(word: np.ndarray) -> np.ndarray:
    """One step of splitmix64 (Steele, Lea and Flood 2014): every input bit changes half of the output bits."""
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
