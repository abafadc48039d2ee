"""``zoo doctor``: what is installed, what it costs to import, and what is missing for what."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import options, output

if TYPE_CHECKING:
    from zoo.component import Component

PACKAGES = (
    "transformer-zoo",
    "torch",
    "lightning",
    "omegaconf",
    "pluggy",
    "tokenizers",
    "tiktoken",
    "timm",
    "safetensors",
)
IMPORTS = ("zoo", "zoo.cli.program", "zoo.registry", "zoo.recipe", "torch", "lightning.pytorch")
OPTIONAL = {"tensorboard": "logger: [tensorboard]", "tiktoken": "tokenizer: tiktoken", "timm": "optimizers of timm"}
"""Packages that only one feature needs, and the feature."""


@click.command("doctor")
@options.plugins
@options.as_json
def command(plugins: tuple[str, ...], as_json: bool) -> None:
    """Look at the environment and the plugins.

    Versions, devices, plugins and clashes, import times, caches, and what is missing for what.
    """
    from zoo.registry import Registry

    with output.stdout_kept_for_json(as_json):
        registry = Registry.discover(plugins)
        registry.load_plugins()
        findings: dict[str, dict[str, Any] | list[str]] = {
            "versions": _versions(),
            "devices": _devices(),
            "plugins": _plugins(registry.components()),
            "problems": _problems(registry.components()),
            "import_seconds": {module: _import_seconds(module) for module in IMPORTS},
            "caches": _caches(),
            "missing": _missing(),
        }
    if as_json:
        output.print_json(findings)
        return
    for title, found in findings.items():
        rows = [("", *row) for row in _rows(found)]
        click.echo(f"{title.replace('_', ' ')}\n{output.table(rows, width=output.terminal_width())}\n")


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def _devices() -> dict[str, Any]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    accelerators = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        accelerators.append("mps")
    return {
        "accelerators": ", ".join(accelerators) or "none, training runs on the processor",
        "cores": cores,
        "threads": torch.get_num_threads(),
        "bfloat16": _bfloat16(bool(accelerators)),
    }


def _bfloat16(accelerated: bool) -> str:
    import torch

    if accelerated and torch.cuda.is_available():
        return "on the accelerator" if torch.cuda.is_bf16_supported(including_emulation=False) else "emulated, slow"
    return f"on the processor ({torch.backends.cpu.get_cpu_capability()})"


def _plugins(components: Sequence[Component]) -> dict[str, str]:
    """Each provider with the number of its components by status."""
    counts = Counter((each.provider, each.version or "", each.status) for each in components)
    found: dict[str, str] = {}
    for (provider, version, status), count in counts.items():
        name = f"{provider} {version}".strip()
        found[name] = ", ".join(filter(None, (found.get(name), f"{count} {status}")))
    return found


def _problems(components: Sequence[Component]) -> list[str]:
    """Broken components, and names that several providers offer."""
    broken = [f"{each.title} is broken: {each.error}" for each in components if each.status == "broken"]
    owners: dict[str, list[str]] = {}
    for each in components:
        owners.setdefault(each.key, []).append(each.provider)
    clashes = [
        f"{key} is offered by {' and by '.join(names)}; recipes must say which: {names[0]}:{key.rpartition('/')[2]}"
        for key, names in owners.items()
        if len(names) > 1
    ]
    return broken + clashes


def _import_seconds(module: str) -> float | None:
    """Wall time of importing a module in a fresh interpreter, beyond the interpreter's own start."""
    code = f"import time; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return round(float(done.stdout.split()[-1]), 3) if done.returncode == 0 else None


def _caches() -> dict[str, str]:
    from zoo.training.job import cache_folder

    folder = os.environ.get("TIKTOKEN_CACHE_DIR")
    return {"data": str(cache_folder()), "tiktoken": folder or "not set (TIKTOKEN_CACHE_DIR)"}


def _missing() -> list[str]:
    absent = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    found = [f"{OPTIONAL[name]} needs {name}: pip install {name}" for name in absent]
    folder = os.environ.get("TIKTOKEN_CACHE_DIR")
    if not folder or not any(Path(folder).glob("*")):
        found.append("tokenizer: tiktoken needs its vocabulary's file: set TIKTOKEN_CACHE_DIR, or tokenizer.file")
    return found


def _rows(found: dict[str, Any] | list[str]) -> list[tuple[str, ...]]:
    if isinstance(found, dict):
        return [(name, _shown(value)) for name, value in found.items()]
    return [(line,) for line in found or ["none"]]


def _shown(value: Any) -> str:
    return "missing" if value is None else f"{value:.3f} s" if isinstance(value, float) else str(value)
