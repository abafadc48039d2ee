"""Something is taken off each score for distance, by a curve that each head learns: a logarithm or a power.

    log:    score(t, s) - r1 log(1 + r2 |p_t - p_s|),   r1, r2 > 0
    power:  score(t, s) - r1 |p_t - p_s|^r2,            r1 > 0, 0 < r2 <= 2

Acts on scores; 2 parameters a head, any length. The power 1 is ALiBi. Chi et al. 2022, "KERPLE: kernelized relative
positional embedding for length extrapolation", arXiv:2205.09921, which prefers the logarithm. Its code keeps r1 and r2
positive by cutting them off at 0.01; here they are softplus of what is learned (2 sigmoid for the power), so that no
gradient ends.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call

__all__ = ["Kerple"]


@final
class Kerple(Position):
    """Learned decay with distance."""

    relative = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the curve."""

        curve: Literal["log", "power"] = "log"
        """How the penalty grows."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.height, self.shape = (nn.Parameter(torch.empty(self.heads)) for _ in range(2))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """r1 uniform up to 2, r2 up to 1, none below 0.01: as published."""
        value = parameter.uniform_(0.01, 2.0 if name == "height" else 1.0, generator=generator)
        is_power = name == "shape" and self.config.curve == "power"
        parameter.copy_((value / 2).logit() if is_power else value.expm1().log())

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) the bias, in float32 or wider."""
        wide = torch.promote_types(self.height.dtype, torch.float32)
        distance_B1TS = (at_BTA[:, None, :, None, 0] - keys_BSA[:, None, None, :, 0]).abs().to(wide)
        height, shape = (parameter.to(wide)[:, None, None] for parameter in (self.height, self.shape))
        if self.config.curve == "log":
            return -F.softplus(height) * (F.softplus(shape) * distance_B1TS).log1p()
        return -F.softplus(height) * distance_B1TS ** (2 * shape.sigmoid())

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S), the same for all queries and keys."""
        del q_BNTH, k_BNSH, call
        return prepared
