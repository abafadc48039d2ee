"""Accelerators: how fast they multiply in bf16 at best, and how much they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

UTILISATION = 0.4
"""Share of the peak that training reaches, unless another is said. Runs of billions of parameters report 0.3 to 0.5:
0.46 in Chowdhery et al. 2022, table 3, arXiv:2204.02311, and 0.38 to 0.43 in Grattafiori et al. 2024, table 4,
arXiv:2407.21783. Models under 100 million parameters reach less."""


class Device(NamedTuple):
    """One accelerator."""

    title: str
    """As its maker calls it."""
    peak: float
    """FLOPs a second: dense products of bf16 matrices, summed in float32."""
    memory: float
    """Bytes."""


# Makers' data sheets. Those of NVIDIA since Ampere print rates with sparsity first, twice the dense ones given here.
DEVICES: Mapping[str, Device] = {
    "v100": Device("NVIDIA V100 SXM2 32 GB", 125e12, 32e9),  # V100 data sheet; fp16, it has no bf16
    "rtx-3090": Device("NVIDIA RTX 3090", 71e12, 24e9),  # GA102 white paper, appendix A
    "rtx-4090": Device("NVIDIA RTX 4090", 165.2e12, 24e9),  # Ada white paper, appendix A
    "a10": Device("NVIDIA A10", 125e12, 24e9),  # A10 data sheet
    "a40": Device("NVIDIA A40", 149.7e12, 48e9),  # A40 data sheet
    "a100-40gb": Device("NVIDIA A100 40 GB", 312e12, 40e9),  # A100 data sheet
    "a100": Device("NVIDIA A100 80 GB", 312e12, 80e9),  # A100 data sheet
    "l4": Device("NVIDIA L4", 121e12, 24e9),  # L4 data sheet: 242 with sparsity
    "l40s": Device("NVIDIA L40S", 362e12, 48e9),  # L40S data sheet
    "h100-pcie": Device("NVIDIA H100 PCIe", 756e12, 80e9),  # H100 data sheet: 1,513 with sparsity
    "h100": Device("NVIDIA H100 SXM", 989e12, 80e9),  # H100 data sheet: 1,979 with sparsity
    "h200": Device("NVIDIA H200 SXM", 989e12, 141e9),  # H200 data sheet: 1,979 with sparsity
    "b200": Device("NVIDIA B200", 2250e12, 180e9),  # DGX B200 data sheet, an eighth of it, without sparsity
    "mi250x": Device("AMD Instinct MI250X", 383e12, 128e9),  # MI250X data sheet
    "mi300x": Device("AMD Instinct MI300X", 1307e12, 192e9),  # MI300X data sheet
}
"""By the name that ``zoo plan --device`` takes."""
