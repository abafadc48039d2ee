"""The machine's meters before and after a run: memory, and energy where it is reported.

Memory on a CPU: one process may serve many cells, so what counts is by how much its resident memory grew above what it
was before the run, after memory that nobody uses has been given back; Linux resets the high-water mark on request.
Energy: of whole processor packages (RAPL, which counts in a ring) and whole GPUs (NVML), others' use of them included.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch

from zoo.recipe import Recipe

PROCESS = Path("/proc/self")
POWER = Path("/sys/class/powercap")

RESET_PEAK = "5"
"""What Linux takes in clear_refs for: forget the high-water mark."""
HIGHEST_POWER = 500e6
"""Microwatts that a package takes at most, where it doesn't say itself."""


class Readings(NamedTuple):
    """The meters at one time."""

    seconds: float
    """Of a clock that never goes back."""
    resident: int | None
    """Bytes of the process in memory, where its high-water mark was reset."""
    packages: Mapping[str, int] = MappingProxyType({})
    """Microjoules of each processor package that can be read."""
    gpu: int | None = None
    """Millijoules of the GPU that is used."""
    on_gpu: bool = False
    """Whether the run uses a GPU, whose peak was reset."""


def on_gpu(recipe: Recipe) -> bool:
    """Whether a recipe trains on a GPU of this machine."""
    return torch.cuda.is_available() and recipe.trainer.get("accelerator", "auto") in ("auto", "gpu", "cuda")


def read_meters(recipe: Recipe) -> Readings:
    """Read the meters before a run, and forget peaks of what came before it."""
    uses_gpu = on_gpu(recipe)
    gc.collect()
    if uses_gpu:
        torch.cuda.reset_peak_memory_stats()
    resident = None if uses_gpu else _resident_after_reset()
    return Readings(time.monotonic(), resident, _packages(POWER), _gpu_energy() if uses_gpu else None, uses_gpu)


def spent(before: Readings) -> dict[str, float | None]:
    """``peak_bytes``, ``energy_cpu_j`` and ``energy_gpu_j`` since a reading; ``None`` where there is no meter."""
    highest = None if before.resident is None else _status("VmHWM", PROCESS)
    peak = None if highest is None or before.resident is None else max(0, highest - before.resident)
    gpu = _gpu_energy() if before.gpu is not None else None
    return {
        "peak_bytes": torch.cuda.max_memory_allocated() if before.on_gpu else peak,
        "energy_cpu_j": _package_energy(before, POWER, time.monotonic()),
        "energy_gpu_j": None if gpu is None or before.gpu is None else (gpu - before.gpu) / 1e3,
    }


# Memory ----------------------------------------------------------------------------------------------------------


def _resident_after_reset() -> int | None:
    """Bytes in memory once what is free has been given back; ``None`` where the high-water mark can't be reset."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # of glibc alone
    try:
        (PROCESS / "clear_refs").write_text(RESET_PEAK)
    except OSError:
        return None
    return _status("VmRSS", PROCESS)


def _status(name: str, process: Path) -> int | None:
    """A line of a process's status, in bytes."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith(f"{name}:")]
    return 1024 * int(found[0][1]) if found else None


# Energy ----------------------------------------------------------------------------------------------------------


def _packages(root: Path) -> dict[str, int]:
    """Counter of each processor package; those of parts of a package, and second names of one, are left out."""
    found = {}
    for zone in sorted(root.glob("intel-rapl:*")):
        counted = _number(zone / "energy_uj")
        if zone.name.count(":") == 1 and counted is not None:
            found[zone.name] = counted
    return found


def _package_energy(before: Readings, root: Path, now: float) -> float | None:
    """Joules of all packages; ``None`` where there are none, or where a counter may have gone round more than once."""
    total = 0
    after = _packages(root)
    if not before.packages or after.keys() != before.packages.keys():
        return None
    for name, count in after.items():
        ring = _number(root / name / "max_energy_range_uj") or 0
        limits = [_number(root / name / f"constraint_{place}_power_limit_uw") or 0 for place in (0, 1)]
        if (now - before.seconds) * (max(limits) or HIGHEST_POWER) >= ring:
            return None
        total += (count - before.packages[name]) % ring
    return total / 1e6


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # it may be root's alone
        return None


def _gpu_energy() -> int | None:
    """Millijoules of the current GPU since its driver was loaded, by NVML; ``None`` where it doesn't say."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    device, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
    name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}".encode()
    if nvml.nvmlInit_v2():
        return None
    try:
        failed = nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(device))
        failed = failed or nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy))
    finally:
        nvml.nvmlShutdown()
    return None if failed else energy.value
