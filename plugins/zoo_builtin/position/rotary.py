"""Queries and keys are rotated by their positions, so that scores depend on distances only (RoPE).

    (R(m theta) k_m)^T (R(n theta) q_n) = k_m^T R((n - m) theta) q_n          (article, equation 12.7)

Acts on queries and keys; no parameters. The elements are paired, pair i of H/2 turns by p theta^(-2i/H).
Su et al. 2021, "RoFormer", section 3.2.2, arXiv:2104.09864, pairs neighbours (``pairs: interleaved``); GPT-NeoX and
the Llama weights in circulation pair element i with element i + H/2 (``pairs: half``).
``scaling`` slows the rotation, so that a model goes on past the length that it was trained with. Its rules turn a pair
by a fixed angle for each position, whatever the input's length: dynamic NTK, whose angles follow the longest position
seen, is not among them, because keys in a cache would stay turned by the angles of before.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, final

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.nn.rotation import Pairs, turned

__all__ = ["Rotary"]


@dataclasses.dataclass(kw_only=True)
class Scaling:
    """How the rotation is slowed, wavelengths stretched.

    linear: all alike (Chen et al. 2023, arXiv:2306.15595). ntk: a larger theta, so that short ones stay and the longest
    is stretched by the factor (bloc97 2023). llama3, yarn: not the short ones, the long ones by the factor, those
    between by a part of it; llama3 tells them by turns in the original length (Grattafiori et al. 2024, section 3.4.2,
    arXiv:2407.21783, and its code), yarn by their number (Peng et al. 2023, sections 3.2 and 3.4, arXiv:2309.00071).
    longrope: each by a factor of its own (Ding et al. 2024, arXiv:2402.13753). yarn and longrope also lengthen what
    they rotate, queries and keys alike, so that scores grow by the square of ``lengthened``.
    """

    rule: Literal["llama3", "linear", "ntk", "yarn", "longrope"] = "llama3"
    """Who stretches which."""
    factor: float = 8.0
    """What long wavelengths are multiplied by (Llama 3.1: 8, Llama 3.2: 32); longrope: new length / original length."""
    original_length: int = 8192
    """Positions that the model was trained with before (not for linear, ntk)."""
    low_frequency_factor: float = 1.0
    """llama3: a wavelength is long where it fits fewer times than this into the original length."""
    high_frequency_factor: float = 4.0
    """llama3: a wavelength is short where it fits more often than this."""
    fast: float = 32.0
    """yarn: pairs that turn as often as this within the original length are the last short ones (beta_fast)."""
    slow: float = 1.0
    """yarn: pairs that turn as often as this are the first long ones (beta_slow)."""
    whole: bool = True
    """yarn: whether these two bounds are rounded to whole pairs, outwards (truncate)."""
    lengthened: float | None = None
    """yarn, longrope: what the rotated part is multiplied by (attention_factor); null means 1 + 0.1 log(factor) for
    yarn, sqrt(1 + log(factor) / log(original_length)) for longrope."""
    short: list[float] | None = None
    """longrope: factor of each pair where architecture.max_length is at most the original length."""
    long: list[float] | None = None
    """longrope: factor of each pair in longer models, also for their short inputs, which keeps a cache right."""


@final
class Rotary(Position):
    """Rotary position embedding, whole or partial, in both layouts of pairs."""

    relative = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the rotary scheme."""

        theta: float = 10000.0
        """Base of the wavelengths."""
        fraction: float = 1.0
        """Part of each head, from its first element, that is rotated; the rest is left alone (GPT-NeoX: 0.25)."""
        pairs: Pairs = "half"
        """Which elements turn together: i with i + H/2, or 2i with 2i + 1."""
        scaling: Scaling | None = None
        """How wavelengths are stretched: rule (llama3, linear, ntk, yarn or longrope), factor, original_length and what
        the rule needs besides; null means that they are not."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.rotated = round(self.size * config.fraction)
        if not 0 < config.fraction <= 1:
            raise ValueError(f"rotary fraction must be above 0 and at most 1, got {config.fraction}")
        if self.rotated % 2 or not self.rotated:
            raise ValueError(
                f"rotary needs an even head dim, got {self.rotated} = {self.dim}/{self.dim // self.size}"
                + (f" x fraction {config.fraction}" if config.fraction != 1 else "")
            )
        if config.scaling is not None:
            _refuse(config.scaling, self.rotated)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """(1|B, 1, T, rotated/2) cosines and sines, in float64: half precision would lose whole turns."""
        del keys_BSA  # keys are rotated when they are new, and cached so
        phase = at_BTA[:, None, :, :1].double() * self.frequencies(at_BTA.device)
        length = 1.0 if self.config.scaling is None else lengthened(self.config.scaling)
        return phase.cos() * length, phase.sin() * length

    def frequencies(self, device: torch.device) -> Tensor:
        """(rotated/2,) float64: by how much each pair turns from a position to the next, in radians."""
        pair = torch.arange(0, self.rotated, 2, dtype=torch.float64, device=device)
        scaling, theta = self.config.scaling, self.config.theta
        if scaling is not None and scaling.rule == "ntk":
            theta *= scaling.factor ** (self.rotated / (self.rotated - 2))
        frequency = theta ** (-pair / self.rotated)
        if scaling is None or scaling.rule == "ntk":
            return frequency
        if scaling.rule == "longrope":
            fits = self.length is not None and self.length <= scaling.original_length
            return frequency / torch.tensor(scaling.short if fits else scaling.long, dtype=pair.dtype, device=device)
        unstretched: Tensor | float = 0.0
        if scaling.rule == "llama3":
            turns = scaling.original_length * frequency / (2 * math.pi)  # within the original length
            low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
            unstretched = ((turns - low) / (high - low)).clamp(0, 1)
        elif scaling.rule == "yarn":
            first, last = self._ramp(scaling)
            unstretched = 1 - ((pair / 2 - first) / (last - first)).clamp(0, 1)
        return frequency * (unstretched + (1 - unstretched) / scaling.factor)

    def _ramp(self, scaling: Scaling) -> tuple[float, float]:
        """Where among the pairs stretching begins, and from where on it is whole."""
        first, last = (
            self.rotated * math.log(scaling.original_length / (2 * math.pi * turns)) / (2 * math.log(self.config.theta))
            for turns in (scaling.fast, scaling.slow)
        )
        if scaling.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.rotated - 1)
        return first, last + 0.001 * (first == last)

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """(B, N, T, H) with its first ``rotated`` elements turned, computed in float32 or wider."""
        return turned(x_BNTH, *prepared, self.config.pairs)


def lengthened(scaling: Scaling) -> float:
    """What rotated queries and keys are multiplied by."""
    if scaling.rule not in ("yarn", "longrope"):
        return 1.0
    if scaling.lengthened is not None:
        return scaling.lengthened
    if scaling.rule == "yarn":
        return 1 + 0.1 * math.log(scaling.factor)
    return math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.original_length))


def _refuse(scaling: Scaling, rotated: int) -> None:
    if scaling.factor < 1:
        raise ValueError(f"rotary scaling needs a factor of at least 1, got {scaling.factor}")
    if scaling.original_length < 2:
        raise ValueError(f"rotary scaling needs an original_length of at least 2, got {scaling.original_length}")
    if scaling.rule == "llama3" and not 0 < scaling.low_frequency_factor < scaling.high_frequency_factor:
        raise ValueError(
            "rotary scaling needs a low_frequency_factor between 0 and high_frequency_factor, "
            f"got {scaling.low_frequency_factor} and {scaling.high_frequency_factor}"
        )
    if scaling.rule == "yarn" and not 0 < scaling.slow < scaling.fast:
        raise ValueError(f"rotary scaling yarn needs slow between 0 and fast, got {scaling.slow} and {scaling.fast}")
    if scaling.rule == "ntk" and rotated < 4:
        raise ValueError(f"rotary scaling ntk needs at least 4 rotated elements, got {rotated}")
    given = (scaling.short, scaling.long)
    if scaling.rule == "longrope" and any(factors is None or len(factors) != rotated // 2 for factors in given):
        counts = [None if factors is None else len(factors) for factors in given]
        raise ValueError(
            f"rotary scaling longrope needs {rotated // 2} factors in short and as many in long, got {counts}"
        )
