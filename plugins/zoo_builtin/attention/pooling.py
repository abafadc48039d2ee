"""PoolFormer's token mixer: the mean of near tokens minus the token itself. No parameters.

    out_t = mean of the x_s that t may see, |s - t| <= size // 2,  - x_t

The mean is over the tokens that are there: at the ends of a sequence or of a document, and beside padding, they are
fewer. Under a causal mask these are the last ``size`` tokens, t included, so that the first output is 0: nothing is
before it. Order is built in, as nearness. A cache keeps ``size`` tokens.
Yu et al. 2022, "MetaFormer is actually what you need for vision", section 3.2, equation 4, arXiv:2111.11418, over
patches of a grid; here over tokens in a row.
Cost: T D times about 4/3 size, whatever the heads.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import no_autocast
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place

__all__ = ["Pooling"]


@final
class Pooling(Attention):
    """A control: the residual stream is blurred, a little more in each layer."""

    offers = frozenset({"causal", "bidirectional", "cache", "padding", "documents", "window", "prefix"})
    ordered = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Attention.Config):
        """Knobs of the pooling."""

        size: int = 3
        """Tokens of a mean, its own included, an odd number: half on each side, or all before where causal."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.size < 3 or config.size % 2 == 0:
            raise ValueError(f"size must be an odd number from 3 on, got {config.size}")

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
        """(B, T, D) from (B, T, D), the mean taken in float32 or wider."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        x_BSD = x_BTD if cache is None else cache.append("x", x_BTD, 1, keep=self.config.size)
        mask = mask.suffix(x_BSD.shape[1])
        mask = mask.narrow(window=self.config.size if mask.causal else self.config.size // 2 + 1)
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        with no_autocast(x_BTD.device):
            sums_BTD, counts_BT1 = _sums(x_BSD.to(wide), mask)
            out_BTD = sums_BTD / counts_BT1.clamp(min=1) - x_BTD
        return out_BTD.masked_fill(counts_BT1 == 0, 0.0).to(x_BTD.dtype)


def _sums(x_BSD: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """(B, T, D) sums over what each query may see, and (1|B, T, 1) how many they are; in blocks where T is long."""
    if mask.pattern is None and (band := mask.band()) is not None:
        allowed_BLQK = mask.blocks(x_BSD.device).to(x_BSD.dtype)
        sums_BLQD = allowed_BLQK @ band.of_keys(x_BSD, 0.0)
        return band.merged(sums_BLQD), band.merged(allowed_BLQK.sum(-1, keepdim=True))
    allowed = mask.dense(x_BSD.device)
    if allowed is None:
        allowed = torch.ones(1, 1, mask.queries, mask.keys, dtype=torch.bool, device=x_BSD.device)
    allowed_BTS = allowed[:, 0].to(x_BSD.dtype)
    return allowed_BTS @ x_BSD, allowed_BTS.sum(-1, keepdim=True)
