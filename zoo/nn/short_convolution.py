"""Each token together with the few before it: short convolutions and the token shift of recurrent mixers.

Dimension legend: B batch, T tokens, C channels, W taps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.values.cache import LayerCache
from zoo.nn.recurrence import Steps


class ShortConvolution(nn.Module):
    """y_t = bias + sum over i of weight_i * x_{t - W + 1 + i}, each channel by itself.

    What is before a document's first token, padding included, counts as 0; a cache keeps the last W - 1 inputs.
    Padding must be on the left or on the right, not in the middle.

    Args:
        channels: C.
        width: taps W, the token's own included; as published for PyTorch's convolutions, that one is the last.
        bias: whether there is one.
    """

    def __init__(self, channels: int, width: int, *, bias: bool = False) -> None:
        super().__init__()
        if width < 2:
            raise ValueError(f"a short convolution needs at least 2 taps, got {width}")
        self.weight = nn.Parameter(torch.empty(channels, width))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Uniform within 1 / sqrt(W), as PyTorch begins a convolution of single channels."""
        bound = self.weight.shape[1] ** -0.5
        parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, x_BTC: Tensor, steps: Steps, cache: LayerCache | None, name: str) -> Tensor:
        """(B, T, C) from (B, T, C); ``name`` is that of the inputs in the cache."""
        past = self.weight.shape[1] - 1
        wide = torch.promote_types(x_BTC.dtype, torch.float32)
        whole_BSC = with_past(x_BTC, past, steps, cache, name).to(wide)
        last_C, *others = self.weight.to(wide).flip(1).unbind(1)
        out_BTC = last_C * earlier(whole_BSC, 0, past, steps)
        if self.bias is not None:
            out_BTC = out_BTC + self.bias.to(wide)
        for back, tap_C in enumerate(others, 1):
            out_BTC = torch.addcmul(out_BTC, tap_C, earlier(whole_BSC, back, past, steps))
        return out_BTC.to(x_BTC.dtype)


def with_past(x_BTC: Tensor, past: int, steps: Steps, cache: LayerCache | None, name: str) -> Tensor:
    """(B, past + T, C): the inputs, 0 where they are padding, behind those of the last ``past`` tokens."""
    batch, _, channels = x_BTC.shape
    if steps.valid_BT is not None:
        x_BTC = x_BTC.masked_fill(~steps.valid_BT[..., None], 0.0)
    before = None if cache is None else cache.get(name)
    before_BPC = x_BTC.new_zeros(batch, past, channels) if before is None else before.to(x_BTC.dtype)
    whole_BSC = torch.cat([before_BPC, x_BTC], 1)
    if cache is not None:
        kept_BPC = whole_BSC[:, -past:]
        if steps.segment_BT is not None:  # of the last document only: the next call goes on with that or with none
            segment_BS = F.pad(steps.segment_BT, (past, 0))
            kept_BPC = kept_BPC.masked_fill((segment_BS[:, -past:] != segment_BS[:, -1:])[..., None], 0.0)
        cache.put(name, kept_BPC.clone())
    return whole_BSC


def earlier(whole_BSC: Tensor, back: int, past: int, steps: Steps) -> Tensor:
    """(B, T, C): what stands ``back`` tokens before each token, of what ``with_past`` gave; 0 in another document."""
    tokens = whole_BSC.shape[1] - past
    shifted_BTC = whole_BSC[:, past - back : past - back + tokens]
    if steps.segment_BT is None or not back:
        return shifted_BTC
    segment_BT = F.pad(steps.segment_BT, (back, 0))[:, :tokens]
    return shifted_BTC.masked_fill((segment_BT != steps.segment_BT)[..., None], 0.0)
