"""The same learning rate at every step after the warm-up.

    factor = 1

Cost: none.
"""

from __future__ import annotations

from typing import final

from zoo.contracts.schedule import Schedule

__all__ = ["Constant"]


@final
class Constant(Schedule):
    """No change after the warm-up."""

    def after_warmup(self, step: int) -> float:
        """1."""
        del step
        return 1.0
