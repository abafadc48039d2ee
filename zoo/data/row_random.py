"""Random numbers of many rows at once: each row has a key, and its numbers depend on the key and on nothing else.

    number i of request c in the row with key k = hash64(k, c, i)

A counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): no state, so that any
row can be made alone, in any order, on any machine. All is arithmetic on whole numbers, or a float64 product, which
IEEE 754 fixes to the bit; no logarithm or cosine of a library is asked, and no generator of numpy, whose streams may
change with its version.

Axes: B rows, N numbers of a row.
"""

from __future__ import annotations

import numpy as np

from zoo.data.permutation import hash64, permute


class RowRandom:
    """Numbers for B rows. Requests are counted, so the same requests in the same order give the same numbers.

    Args:
        keys_B: uint64, a key for each row.
    """

    def __init__(self, keys_B: np.ndarray) -> None:
        self.keys_B = keys_B
        self._requests = 0

    @property
    def rows(self) -> int:
        """B."""
        return self.keys_B.size

    def uniform(self, count: int) -> np.ndarray:
        """(B, N) float64 in [0, 1)."""
        words_BN = hash64(self._fresh()[:, None], np.arange(count)[None])
        return (words_BN >> np.uint64(11)) * 2.0**-53

    def below(self, limit: int | np.ndarray, count: int) -> np.ndarray:
        """(B, N) int64 from 0 to ``limit`` - 1, each as likely as any other; a limit of (B, 1) is a row's own."""
        return (self.uniform(count) * limit).astype(np.int64)

    def distinct(self, count: int, limit: int) -> np.ndarray:
        """(B, N) int64 from 0 to ``limit`` - 1, in a row no number twice, in random order."""
        index_BN = np.broadcast_to(np.arange(count), (self.rows, count))
        keys_BN = np.broadcast_to(self._fresh()[:, None], index_BN.shape)
        return permute(index_BN, limit, (keys_BN,))

    def subset(self, count_B: np.ndarray, size_B: np.ndarray, width: int) -> np.ndarray:
        """(B, width) bool: ``count_B`` of the first ``size_B`` places of each row, any choice as likely as another."""
        number_BN = np.where(np.arange(width) < size_B[:, None], self.uniform(width), 2.0)
        rank_BN = number_BN.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        return rank_BN < count_B[:, None]

    def weighted(self, count: int, weights_BN: np.ndarray) -> np.ndarray:
        """(B, count) int64 places, in a row none twice, each drawn with its share of the weights that are left.

        Args:
            count: places to draw; those that a row can't have, for want of weight, are any number.
            weights_BN: whole numbers, less than 2**52 a row.
        """
        left_BN, rows_B = weights_BN.copy(), np.arange(self.rows)
        places = np.zeros((self.rows, count), dtype=np.int64)
        for number in range(count):
            sums_BN = left_BN.cumsum(axis=1)
            drawn_B1 = self.below(sums_BN[:, -1:], 1)
            places[:, number] = (sums_BN <= drawn_B1).sum(axis=1).clip(max=weights_BN.shape[1] - 1)
            left_BN[rows_B, places[:, number]] = 0
        return places

    def _fresh(self) -> np.ndarray:
        """(B,) a key for the next request."""
        self._requests += 1
        return hash64(self.keys_B, self._requests)
