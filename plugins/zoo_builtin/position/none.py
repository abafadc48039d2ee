"""No positions: a causal model can still count, a bidirectional one sees a set.

Acts nowhere. Self-attention alone is permutation equivariant, Sa(XP) = Sa(X)P (article, section 3). Causal masking
breaks that symmetry: Kazemnejad et al. 2023, "The impact of positional encoding on length generalization",
arXiv:2305.19466.
"""

from __future__ import annotations

from typing import final

from zoo.contracts.position import Position

__all__ = ["NoPosition"]


@final
class NoPosition(Position):
    """The neutral scheme."""
