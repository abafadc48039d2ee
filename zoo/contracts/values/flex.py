"""FlexAttention's renderings, apart from the rest because importing it costs a second.

Dimension legend: B batch, T queries, S keys.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from zoo.contracts.values.mask import Mask


def block_mask(mask: Mask, device: torch.device, batch: int) -> Any:
    """Blocks of 128 by 128 pairs in which a mask allows something, and its rule for the pairs of the others."""
    from torch.nn.attention.flex_attention import create_block_mask

    def allows(b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        del h
        parts = mask.pairs(
            device,
            lambda x_BT, _: x_BT[b if x_BT.shape[0] > 1 else 0, t],
            lambda x_BS, _: x_BS[b if x_BS.shape[0] > 1 else 0, s],
            lambda x_B: x_B[b],
        )
        return functools.reduce(torch.logical_and, parts, t >= 0)

    if mask.pattern is not None and mask.pattern.anchored:
        mask.places(device)  # made here, not inside of torch's vmap
    return create_block_mask(allows, batch, None, mask.queries, mask.keys, device=str(device))


@functools.cache
def flex_kernel(plain: bool) -> Callable[..., Any]:
    """torch's FlexAttention, compiled unless it shall run as it is written."""
    from torch.nn.attention.flex_attention import flex_attention

    kernel: Callable[..., Any] = flex_attention

    def unfused(*tensors: Tensor, **options: Any) -> Any:
        with warnings.catch_warnings():  # that it isn't compiled is what was asked for
            warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
            return kernel(*tensors, **options)

    return unfused if plain else torch.compile(kernel)
