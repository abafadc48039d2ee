"""Faults of position schemes: other positions than the given ones, half precision, tables that remember.

Dimension legend: B batch, T queries, S keys, D width, N heads, H head size, A axes of a position, P pairs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from faults_of_an_outsider.good import Alibi
from zoo.contracts.values.call import Call
from zoo_builtin.position.learned import Learned
from zoo_builtin.position.rotary import Rotary
from zoo_builtin.position.rotary_2d import RotaryGrid
from zoo_builtin.position.sinusoidal import Sinusoidal
from zoo_builtin.position.t5 import RelativeBuckets


def counted(at_BTA: Tensor) -> Tensor:
    """(1, T, 1) 0, 1, 2, ..., whatever the positions are."""
    return torch.arange(at_BTA.shape[1], device=at_BTA.device)[None, :, None]


class RotatesByCounting(Rotary):
    """Positions are counted from 0 in every call: a cached step stands at 0, a padded prompt starts late."""

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        return super().prepare(counted(at_BTA), keys_BSA)


class LearnedByCounting(Learned):
    """Rows of the table are taken in order: packed documents go on counting, a padded prompt starts late."""

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        return super().embed(x_BTD, counted(at_BTA).expand(*at_BTA.shape[:2], 1))


class BucketsOfSlots(RelativeBuckets):
    """Distances are those of slots, counted from the first query and key: with a cache all keys look ahead."""

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        return super().prepare(counted(at_BTA), counted(keys_BSA))


class FirstRowForAll(Learned):
    """The positions of the first row serve the whole batch: prompts that are padded otherwise stand elsewhere."""

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        return super().embed(x_BTD, at_BTA[:1])


class HalfPrecisionPhases(Sinusoidal):
    """Phases are made in the embeddings' dtype: in bfloat16 positions 256 and 257 are the same."""

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        pair = torch.arange(self.dim // 2, dtype=x_BTD.dtype, device=x_BTD.device)
        phase = at_BTA[..., :1].to(x_BTD.dtype) / self.config.theta ** (2 * pair / self.dim)
        parts = [phase.sin(), phase.cos()]
        halves = self.config.layout == "halves"
        return x_BTD + (torch.cat(parts, -1) if halves else torch.stack(parts, -1).flatten(-2))


class FrequenciesInABuffer(Rotary):
    """Frequencies are a float32 buffer that ``bfloat16()`` rounds and ``to_empty`` leaves unfilled: wrong phases."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        made = super().frequencies(torch.empty(0).device).to(torch.float32)
        self.register_buffer("frequency", made, persistent=False)

    def frequencies(self, device: torch.device) -> Tensor:
        return self.frequency.to(device)


class MixedPairs(Rotary):
    """Angles are dealt out to neighbours and elements turned with those half a head away: no rotation at all."""

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        wide = torch.promote_types(x_BNTH.dtype, torch.float32)
        cos, sin = (table.to(wide).repeat_interleave(2, -1) for table in prepared)
        first, rest = x_BNTH[..., : self.rotated].to(wide), x_BNTH[..., self.rotated :]
        a, b = first.chunk(2, -1)
        turned = first * cos + torch.cat([-b, a], -1) * sin
        return torch.cat([turned.to(x_BNTH.dtype), rest], -1)


class RotatesToDouble(Rotary):
    """The float64 tables promote what they multiply: bfloat16 keys are cached in four times the memory."""

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        return super().rotate(x_BNTH.to(prepared[0].dtype), prepared)


class RemembersTheLongest(Rotary):
    """Wavelengths grow with the longest sequence ever seen: one long prompt changes all later answers."""

    longest = 4

    def frequencies(self, device: torch.device) -> Tensor:
        return super().frequencies(device) * 4 / self.longest

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        self.longest = max(self.longest, keys_BSA.shape[1])
        return super().prepare(at_BTA, keys_BSA)


class ClampedAtTheEnd(Learned):
    """Positions past the table are clamped to its last row instead of refused: long texts get worse, and no error."""

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        last = self.table.num_embeddings - self.config.offset - 1
        return super().embed(x_BTD, at_BTA.clamp(max=last))


class BiasMemoized(RelativeBuckets):
    """The bias is kept by length from pass to pass: it goes stale after a step, and a second backward fails."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.made: dict[tuple[int, int], Tensor] = {}

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        key = (at_BTA.shape[1], keys_BSA.shape[1])
        if key not in self.made:
            self.made[key] = super().prepare(at_BTA, keys_BSA)
        return self.made[key]


class DistancesChangedInPlace(Alibi):
    """Each layer multiplies the shared table in place: the slopes of the second layer are squared, and so on."""

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        return super().prepare(at_BTA, keys_BSA).repeat(1, self.heads, 1, 1).to(torch.float32)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        slopes = torch.tensor(self.slopes(self.heads), device=prepared.device)
        return prepared.mul_(-slopes[:, None, None])


class GridTakenForASquare(RotaryGrid):
    """Rows and columns are worked out from a square of as many patches: in 2 x 3 patches they are mixed up."""

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        patches = at_BTA.shape[1]
        number, side = torch.arange(patches, device=at_BTA.device), math.isqrt(patches)
        return super().prepare(torch.stack([number // side, number % side], -1)[None], keys_BSA)


class SlopesOfAPowerOfTwo(Alibi):
    """Slopes are made for the next lower power of two only: three heads get two of them, which is an error."""

    def slopes(self, heads: int) -> list[float]:
        power = 2 ** (heads.bit_length() - 1)
        return [2 ** (-8 * (head + 1) / power) for head in range(power)]
