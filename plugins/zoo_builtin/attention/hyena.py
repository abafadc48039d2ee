"""Hyena: convolutions as long as the sequence, whose filters a small network makes, between gates.

    z_1 = v,   z_{n+1} = x_n * (h_n * z_n + d_n z_n) with a causal convolution inside the brackets,   out = W_o z_{M+1}
    h_n(t) = window(t) FFN(features(t)),   window_c(t) = exp(-a_c t / L) + shift

v and the M gates x_n are linear in the input and pass a short convolution. L is the length, so that a filter is a
function of how far back a token is, of any distance.
Poli et al. 2023, "Hyena hierarchy", section 3 and appendix A.3, arXiv:2302.10866.
Cost for T tokens: of order M T D log T by fast Fourier transforms. It has no state of fixed size: the cache holds
M D numbers a token, and a new token costs M T D multiply-adds and the filters.

Dimension legend: B batch, T new tokens, S all tokens, D width, M order, W taps.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import no_autocast
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output
from zoo.nn.recurrence import steps_of
from zoo.nn.short_convolution import ShortConvolution

__all__ = ["Hyena"]


@final
class Hyena(Attention):
    """Gated long convolutions. Documents aren't offered: a convolution over a packed row sees all of them."""

    offers = frozenset({"causal", "cache", "padding"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Knobs of Hyena."""

        order: int = 2
        """Long convolutions M, each followed by a gate."""
        taps: int = 3
        """Tokens that the short convolutions see, the own included."""
        length: int | None = None
        """Tokens L that the features of a filter span; null means the longest sequence, or 1024 if it has no bound."""
        bands: int = 16
        """Frequencies among the features of a place in a filter."""
        hidden: int = 64
        """Units of each hidden layer of the filters' network."""
        depth: int = 3
        """Hidden layers of the filters' network."""
        frequency: float = 1.0
        """Factor inside the sines that the hidden layers pass, at first; 10 to 14 in the paper's language models."""
        shift: float = 0.05
        """What the window falls to."""
        bias: bool = True
        """Biases in the projections and short convolutions."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        if config.order < 1 or config.depth < 1 or config.bands < 1:
            raise ValueError(
                f"order, depth and bands must be at least 1, got {config.order}, {config.depth} and {config.bands}"
            )
        self.period = config.length or self.length or 1024
        self.inputs = nn.Linear(dim, (config.order + 1) * dim, bias=config.bias)
        self.convolution = ShortConvolution((config.order + 1) * dim, config.taps, bias=config.bias)
        widths = [2 * config.bands + 1] + [config.hidden] * config.depth
        self.hidden = nn.ModuleList(_Hidden(before, after) for before, after in itertools.pairwise(widths))
        self.frequency = nn.Parameter(torch.empty(config.hidden))
        self.filters = _Hidden(config.hidden, config.order * dim, bias=False)
        self.skip = nn.Parameter(torch.empty(config.order * dim))
        self.output = branch_output(nn.Linear(dim, dim, bias=config.bias))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """The factor in the sines, and ones for what goes past the convolutions."""
        parameter.fill_(self.config.frequency if name == "frequency" else 1.0)

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Place = NOWHERE,
        cache: LayerCache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D), see ``Attention.forward``."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        call = self.call(x_BTD, mask=mask, place=place, cache=cache, notes=notes, dtype=x_BTD.dtype)
        steps = steps_of(call.tokens())
        mixed_BTX = self.convolution(self.inputs(x_BTD), steps, cache, "inputs")
        z_BDT, *gates = mixed_BTX.transpose(1, 2).chunk(self.config.order + 1, 1)
        if steps.valid_BT is not None:
            z_BDT = z_BDT.masked_fill(~steps.valid_BT[:, None], 0.0)
        wide = torch.promote_types(z_BDT.dtype, torch.float32)
        with no_autocast(x_BTD.device):
            filters_MDS = self._filters(mask.keys, x_BTD.device, wide)
            skips_MD1 = self.skip.to(wide).unflatten(0, (self.config.order, -1))[..., None]
            for index, (gate_BDT, filter_DS, skip_D1) in enumerate(zip(gates, filters_MDS, skips_MD1, strict=True)):
                whole_BDS = z_BDT if cache is None else cache.append(f"past.{index}", z_BDT, 2)
                mixed_BDT = _convolved(whole_BDS.to(wide), filter_DS, z_BDT.shape[2]) + skip_D1 * z_BDT
                z_BDT = (gate_BDT * mixed_BDT).to(gate_BDT.dtype)
        return self.output(call.emptied(z_BDT.transpose(1, 2)[:, None])[:, 0])

    def _filters(self, tokens: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """(M, D, S): what is taken of the token that is S back."""
        back_S = torch.arange(tokens, device=device, dtype=dtype) / self.period
        bands = torch.linspace(1e-4, self.config.bands - 1, self.config.bands, device=device, dtype=dtype)
        angles_SK = 2 * math.pi * back_S[:, None] * bands
        hidden_SX = torch.cat([back_S[:, None], angles_SK.cos(), angles_SK.sin()], -1)
        for layer in self.hidden:
            assert isinstance(layer, _Hidden)
            hidden_SX = F.linear(hidden_SX, layer.weight.to(dtype), layer.bias.to(dtype))
            hidden_SX = (self.frequency.to(dtype) * hidden_SX).sin()
        filters_MDS = (self.filters.weight.to(dtype) @ hidden_SX.T).unflatten(0, (self.config.order, -1))
        # the fastest channels fall to 1 / 100 in 0.3 lengths, the slowest in 1.5
        fall_D = torch.linspace(math.log(100) / 1.5, math.log(100) / 0.3, self.dim, device=device, dtype=dtype)
        return filters_MDS * ((-fall_D[:, None] * back_S).exp() + self.config.shift)


class _Hidden(nn.Linear):
    """A linear layer that begins as PyTorch's do: the filters' scale must not depend on the width of the model."""

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Uniform within 1 / sqrt(inputs)."""
        bound = self.in_features**-0.5
        parameter.uniform_(-bound, bound, generator=generator)


def _convolved(whole_BDS: Tensor, filter_DS: Tensor, new: int) -> Tensor:
    """(B, D, T): the causal convolution at the last T tokens, without wrapping around."""
    total = whole_BDS.shape[2]
    if new == 1:
        return (whole_BDS * filter_DS.flip(1)).sum(2, keepdim=True)
    spectrum = torch.fft.rfft(whole_BDS, n=2 * total) * torch.fft.rfft(filter_DS, n=2 * total)
    return torch.fft.irfft(spectrum, n=2 * total)[..., total - new : total]
