"""FNet: the real part of the Fourier transform over tokens and elements, in place of attention. No parameters.

    out = scale Re(F_T X F_D),  (F_n)[j, k] = exp(-2 pi i j k / n)

Each output sees all tokens, later ones too: no causal form, no cache. A transform belongs to a length: where rows
are padded or hold several documents, each document is transformed by itself, with matrices over its own tokens. The
published model lets padding in instead, so that the two agree only where there is none.
Lee-Thorp et al. 2021, "FNet", section 3.2, arXiv:2105.03824.
Cost: T D log(T D) by the fast transform; with padding or documents 2 T^2 D multiply-adds, as much as attention.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import no_autocast
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place

__all__ = ["Fourier"]


@final
class Fourier(Attention):
    """A control: fixed mixing of everything with everything. Order is built in."""

    offers = frozenset({"bidirectional", "padding", "documents"})
    ordered = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Attention.Config):
        """Knobs of the Fourier transform."""

        scale: float | None = None
        """Factor on the transform; null means 1 / sqrt(T D), so that it keeps lengths; 1.0 is the published one."""

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
        """(B, T, D) from (B, T, D), computed in float32 or wider."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        with no_autocast(x_BTD.device):
            if mask.valid_BS is None and mask.documents_BS is None:
                out_BTD = torch.fft.fft2(x_BTD.to(wide)).real * self._factor(x_BTD.shape[1])
            else:
                out_BTD = self._by_document(torch.fft.fft(x_BTD.to(wide)), mask)
        return out_BTD.to(x_BTD.dtype)

    def _by_document(self, z_BTD: Tensor, mask: Mask) -> Tensor:
        """Re(F z) with each document's own matrix over its tokens, which are counted from 0; 0 for padding."""
        together_BTT = mask.dense(z_BTD.device)[:, 0]  # type: ignore[index]  # something is hidden
        if mask.valid_BS is not None:
            together_BTT = together_BTT & mask.valid_BS[:, :, None]
        count_BT1, place_BT = together_BTT.sum(-1, keepdim=True).clamp(min=1), together_BTT.tril(-1).sum(-1)
        length_BT1 = count_BT1.to(z_BTD.real.dtype)
        # Whole turns are taken off while the numbers are whole, so that long documents lose no digits.
        angle_BTT = (place_BT[:, :, None] * place_BT[:, None] % count_BT1) / length_BT1 * (2 * math.pi)
        cos_BTT, sin_BTT = (turn * together_BTT for turn in (angle_BTT.cos(), angle_BTT.sin()))
        return (cos_BTT @ z_BTD.real + sin_BTT @ z_BTD.imag) * self._factor(length_BT1)

    def _factor(self, length: Any) -> Any:
        return (length * self.dim) ** -0.5 if self.config.scale is None else self.config.scale
