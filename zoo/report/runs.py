"""Where in a comparison's folder the run of a cell stands, wherever the whole has been moved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

SHARD = 2
"""Digits of an address that name a folder in between, where there is one."""


def run_folder(folder: Path, cell: Mapping[str, Any]) -> Path | None:
    """The run's folder; ``None`` for a cell that has none.

    Args:
        folder: of the comparison.
        cell: as results.json has it.
    """
    if not cell.get("run"):
        return None
    address = Path(cell["run"]).name
    places = (folder / "cells" / address[:SHARD] / address, folder / "cells" / address)
    return next((place for place in places if place.is_dir()), None)
