"""YAML files that the zoo has written, as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_tree(file: Path) -> dict[str, Any]:
    """The mapping in a file; empty where there is none, or where it was damaged.

    No limit on its size: the grid of a large comparison is larger than any recipe.
    """
    try:
        found = yaml.load(file.read_bytes(), Loader=_LOADER)
    except (OSError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}
