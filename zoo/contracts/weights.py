"""Contract of foreign weights: what another library calls and how it lays out a model's tensors, both ways."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.config import Part
from zoo.contracts.architecture import Architecture
from zoo.errors import UserError


@dataclasses.dataclass(frozen=True)
class Match:
    """One tensor of theirs, and the tensors of ours that it is made of.

    Attributes:
        theirs: its name.
        ours: our names; several are stacked along the first axis, as a fused projection of queries, keys and values.
        transposed: whether theirs is (inputs, outputs), as GPT-2's ``Conv1D`` has it.
        shape: shape of theirs where it is another view of the same numbers, as a convolution's kernel.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    shape: tuple[int, ...] | None = None

    def to_ours(self, tensor: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
        """Our tensors, of these shapes, out of theirs."""
        tensor = tensor.T if self.transposed else tensor
        sizes = [shape[0] for shape in shapes]
        return list((tensor.reshape(sum(sizes), *shapes[0][1:]) if self.shape else tensor).split(sizes))

    def to_theirs(self, tensors: list[Tensor]) -> Tensor:
        """Their tensor out of ours."""
        tensor = torch.cat(tensors)
        tensor = tensor.T if self.transposed else tensor
        return (tensor.reshape(self.shape) if self.shape else tensor).contiguous()


class Weights(Part, ABC):
    """A format of weights. A component says the matches; ``load`` and ``save`` are the same for all."""

    architecture: ClassVar[str]
    """Name of the architecture that it is for."""
    sample: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Settings of the architecture, beside small sizes, of a model that it fits: the parts it was written for."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def matches(self, model: Architecture) -> Iterable[Match]:
        """All tensors that such a model can have, biases and heads too; ``found`` leaves out what this one hasn't.

        Names of theirs come without a prefix that only some of their files have.
        """

    def found(self, model: Architecture) -> list[Match]:
        """The matches of tensors that a model has."""
        ours = {name for name, _ in model.named_parameters()}
        return [match for match in self.matches(model) if ours.issuperset(match.ours)]

    def ignored(self, name: str) -> bool:
        """Whether a tensor of theirs holds nothing of ours, whatever its values: a mask in a buffer."""
        del name
        return False

    def implied(self, model: Architecture, theirs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Tensors of theirs that a file may have or not, with the values that they must have then.

        Second names of tied tensors, biases that are 0, tables that are computed.
        """
        del model, theirs
        return {}

    def normalized(self, name: str) -> str:
        """A name of theirs without the prefix of a wrapper, so that all their files read alike."""
        return name

    def load(self, model: Architecture, state: Mapping[str, Tensor], *, where: str = "") -> None:
        """Fill a model in place; every tensor of both sides must be used exactly once.

        Args:
            model: with parameters on a real device.
            state: their tensors by name.
            where: what messages call the file.

        Raises:
            UserError: a tensor is missing, left over, or of another shape; nothing is filled then.
        """
        theirs = {self.normalized(name): tensor for name, tensor in state.items()}
        theirs = {name: tensor for name, tensor in theirs.items() if not self.ignored(name)}
        for name, values in self.implied(model, theirs).items():
            self._check_implied(name, theirs.pop(name, values), values, where)
        ours = dict(model.named_parameters())
        filled: dict[str, Tensor] = {}
        for match in self.found(model):
            if match.theirs not in theirs:
                raise self._refused(f"has no tensor {match.theirs}, which the model needs", where)
            filled |= self._pieces(match, theirs.pop(match.theirs), ours, where)
        if theirs:
            raise self._refused(f"has tensors that the model has no place for: {', '.join(sorted(theirs)[:5])}", where)
        if missing := ours.keys() - filled.keys():
            raise self._refused(f"holds nothing for {', '.join(sorted(missing)[:5])} of the model", where)
        with torch.no_grad():
            for name, tensor in filled.items():
                ours[name].copy_(tensor)

    def _pieces(self, match: Match, tensor: Tensor, ours: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        targets = [ours[name] for name in match.ours]
        expected = match.to_theirs([target.detach() for target in targets]).shape
        if tensor.shape != expected:
            raise self._refused(
                f"has {match.theirs} of shape {tuple(tensor.shape)}, the model needs {tuple(expected)}", where
            )
        return dict(zip(match.ours, match.to_ours(tensor, [target.shape for target in targets]), strict=True))

    def _check_implied(self, name: str, tensor: Tensor, values: Tensor, where: str) -> None:
        if tensor.shape != values.shape or not torch.allclose(tensor.to(values), values, rtol=0, atol=1e-6):
            raise self._refused(f"has {name} with values for which the model has no place", where)

    def save(self, model: Architecture) -> dict[str, Tensor]:
        """The model's tensors as theirs, ready for a file."""
        ours = dict(model.named_parameters())
        return {
            match.theirs: match.to_theirs([ours[name].detach() for name in match.ours]) for match in self.found(model)
        }

    def _refused(self, what: str, where: str) -> UserError:
        return UserError(
            f"the weights, read as {type(self).__name__}, {what}",
            where=where or None,
            fix="give the architecture the sizes and parts that the weights were made with, or name another format",
        )
