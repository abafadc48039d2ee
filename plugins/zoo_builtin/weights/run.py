"""A run of the zoo's own: the weights of its last step, or of one of its checkpoints.

``{name: run, path: runs/x}`` takes model.safetensors out of the folder, ``path: runs/x/checkpoints/best.ckpt`` the best
step's. Names are the model's own. The run's tokenizer comes with its weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import final

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights, model_tensors
from zoo.errors import UserError

__all__ = ["RunWeights"]


@final
class RunWeights(Weights):
    """Every tensor under its own name, for any architecture."""

    architecture = "gpt2"

    def fits(self, architecture: str) -> bool:
        """Any: what doesn't fit has other names."""
        del architecture
        return True

    def file(self, path: Path) -> Path:
        """The weights of a folder's last step, or the file itself.

        Raises:
            UserError: a folder without them.
        """
        if not path.is_dir():
            return path
        found = path / "model.safetensors"
        if not found.is_file():
            raise UserError(
                "there is no model.safetensors, so this is no run that has ended",
                where=str(path),
                fix="give the folder of a run, or one of its checkpoints: checkpoints/best.ckpt",
            )
        return found

    def run(self, path: Path) -> Path:
        """The folder, that of its weights, or that of its checkpoints."""
        if path.is_dir():
            return path
        return path.parent.parent if path.suffix == ".ckpt" else path.parent

    def matches(self, model: Architecture) -> Iterator[Match]:
        """Each tensor is itself."""
        for name in model_tensors(model):
            yield Match(name, (name,))
