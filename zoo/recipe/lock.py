"""The lock of a recipe: which code and which versions it was composed with."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from zoo.component import Component

PACKAGES = ("transformer-zoo", "torch", "lightning", "numpy", "omegaconf", "tokenizers", "tiktoken")
"""Packages whose version can change what a run computes."""


def lock(components: Iterable[Component], seed: int) -> dict[str, Any]:
    """Components with provider, version and source hash, versions of packages, and the seed; plain values."""
    return {
        "seed": seed,
        "components": {component.key: _record(component) for component in sorted(components, key=lambda c: c.key)},
        "packages": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
    }


def _record(component: Component) -> dict[str, str | None]:
    return {
        "provider": component.provider,
        "version": component.version,
        "sha256": component.source_hash() if component.file else None,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
