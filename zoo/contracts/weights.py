"""Contract of foreign weights: what another library calls and how it lays out a model's tensors, both ways."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.architecture import Architecture
from zoo.errors import UserError, counted


@dataclasses.dataclass(frozen=True)
class Match:
    """One tensor of theirs, and the tensors of ours that it is made of.

    Attributes:
        theirs: its name.
        ours: our names; several are stacked along the first axis, as a fused projection of queries, keys and values.
        transposed: whether theirs is (inputs, outputs), as GPT-2's ``Conv1D`` has it.
        shape: shape of theirs where it is another view of the same numbers, as a convolution's kernel.
        groups: into how many groups the rows of each are dealt; theirs has the first group of each of ours, then the
            second of each, ..., as GPT-NeoX keeps queries, keys and values head by head.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    shape: tuple[int, ...] | None = None
    groups: int = 1

    def to_ours(self, tensor: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
        """Our tensors, of these shapes, out of theirs."""
        tensor = tensor.T if self.transposed else tensor
        sizes = [shape[0] for shape in shapes]
        tensor = tensor.reshape(sum(sizes), *shapes[0][1:]) if self.shape else tensor
        pieces = tensor.unflatten(0, (self.groups, -1)).split([size // self.groups for size in sizes], 1)
        return [piece.flatten(0, 1) for piece in pieces]

    def to_theirs(self, tensors: list[Tensor]) -> Tensor:
        """Their tensor out of ours."""
        tensor = torch.cat([piece.unflatten(0, (self.groups, -1)) for piece in tensors], 1).flatten(0, 1)
        tensor = tensor.T if self.transposed else tensor
        return (tensor.reshape(self.shape) if self.shape else tensor).contiguous()


def same(theirs: str, ours: str) -> Iterator[Match]:
    """A layer's weight and bias, the same in both."""
    for kind in ("weight", "bias"):
        yield Match(f"{theirs}.{kind}", (f"{ours}.{kind}",))


Resize = Callable[[str, Tensor, int], "Tensor | None"]
"""Makes a table of ours, by name, have another number of rows: (rows, D) out of (others, D), or ``None``."""


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What became of the tensors of a model and a file.

    Attributes:
        taken: ours that were filled.
        fresh: ours that are as they were.
        unused: theirs that were passed over.
    """

    taken: list[str]
    fresh: list[str]
    unused: list[str]


@dataclasses.dataclass
class Faults:
    """Names of tensors that keep weights from being loaded; false while there are none."""

    missing: list[str] = dataclasses.field(default_factory=list)
    left_over: list[str] = dataclasses.field(default_factory=list)
    misshapen: list[str] = dataclasses.field(default_factory=list)
    valued: list[str] = dataclasses.field(default_factory=list)
    nameless: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        parts = [
            *counted("missing", self.missing),
            *counted("not in the model", self.left_over),
            *counted("of another shape", self.misshapen),
            *counted("with values for which the model has no place", self.valued),
            *counted("of the model without a name there", self.nameless),
        ]
        return "; ".join(parts)

    def __bool__(self) -> bool:
        return bool(str(self))


class Weights(Part, ABC):
    """A format of weights. A component says the matches; ``load`` and ``save`` are the same for all."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Weights that a recipe starts from."""

        path: Path | None = None
        """The file: ``.safetensors``, or ``.bin``, ``.pt`` or ``.pth`` with tensors alone."""
        skip: list[str] = dataclasses.field(default_factory=lambda: ["head"])
        """Parts of the model (``head``, ``stack.positions``) that keep their initial values where the file has
        nothing that fits, and tensors of the file, by the beginning of their names, that may be left over; with
        ``head``, those of its own head. Empty means that everything must fit."""

    architecture: ClassVar[str]
    """Name of the architecture that it is for."""
    heads: ClassVar[tuple[str, ...]] = ()
    """Beginnings of names of theirs that belong to a head, which a file may have and a model may not."""
    sample: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Settings of the architecture, beside small sizes, of a model that it fits: the parts it was written for."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def fits(self, architecture: str) -> bool:
        """Whether an architecture, by name, can have such weights."""
        return architecture == self.architecture

    def file(self, path: Path) -> Path:
        """The file with the tensors, for formats that are named by a folder.

        Raises:
            UserError: the folder hasn't it.
        """
        return path

    def run(self, path: Path) -> Path | None:
        """The run folder that the weights belong to, whose tokenizer comes with them; ``None`` for foreign ones."""
        del path
        return None

    @abstractmethod
    def matches(self, model: Architecture) -> Iterable[Match]:
        """All tensors that such a model can have, biases and heads too; ``found`` leaves out what this one hasn't.

        Names of theirs come without a prefix that only some of their files have.
        """

    def found(self, model: Architecture) -> list[Match]:
        """The matches of tensors that a model has."""
        ours = model_tensors(model).keys()
        return [match for match in self.matches(model) if ours >= set(match.ours)]

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

    def load(
        self,
        model: Architecture,
        state: Mapping[str, Tensor],
        *,
        where: str = "",
        skip: Sequence[str] = (),
        resize: Resize | None = None,
    ) -> Loaded:
        """Fill a model in place; every tensor of both sides must be used exactly once, but for what may be skipped.

        Args:
            model: with parameters on a real device.
            state: their tensors by name.
            where: what messages call the file.
            skip: parts of the model, or beginnings of names of theirs, that needn't fit; see ``Config.skip``.
            resize: makes a table with another number of rows fit, where it can.

        Raises:
            UserError: a tensor is missing, left over, or of another shape, or nothing fits; nothing is filled then.
        """
        theirs = {self.normalized(name): tensor for name, tensor in state.items()}
        theirs = {name: tensor for name, tensor in theirs.items() if not self.ignored(name)}
        ours, faults = model_tensors(model), Faults()
        unused: list[str] = []
        for name, values in self.implied(model, theirs).items():
            if not _agrees(theirs.pop(name, values), values):
                (unused if self._skippable(name, skip) else faults.valued).append(name)
        filled: dict[str, Tensor] = {}
        for match in self.found(model):
            optional = all(below(name, skip) for name in match.ours)
            tensor = theirs.pop(match.theirs, None)
            if tensor is None:
                faults.missing += [] if optional else [match.theirs]
            elif (fit := _fitted(match, tensor, ours, resize)) is not None:
                filled |= fit
            elif optional:
                unused.append(match.theirs)
            else:
                faults.misshapen.append(f"{match.theirs} {tuple(tensor.shape)} instead of {_shape(match, ours)}")
        unused += [name for name in theirs if self._skippable(name, skip)]
        faults.left_over += [name for name in theirs if not self._skippable(name, skip)]
        fresh = [name for name in ours if name not in filled]
        matched = {name for match in self.found(model) for name in match.ours}
        faults.nameless += [name for name in fresh if name not in matched and not below(name, skip)]
        if faults or not filled:
            raise self._refused(f"fit {len(filled)} of {len(ours)} tensors: {faults or 'none is of use'}", where)
        with torch.no_grad():
            for name, tensor in filled.items():
                ours[name].copy_(tensor)
        return Loaded([*filled], fresh, unused)

    def _skippable(self, theirs: str, skip: Sequence[str]) -> bool:
        """Whether a tensor of theirs may be passed over: by its own name, or as one of a head where ours may differ."""
        return below(theirs, skip) or ("head" in skip and below(theirs, self.heads))

    def save(self, model: Architecture) -> dict[str, Tensor]:
        """The model's tensors as theirs, ready for a file."""
        ours = model_tensors(model)
        return {
            match.theirs: match.to_theirs([ours[name].detach() for name in match.ours]) for match in self.found(model)
        }

    def _refused(self, what: str, where: str) -> UserError:
        return UserError(
            f"the weights, read as {type(self).__name__}, {what}",
            where=where or None,
            fix="give the architecture the sizes and parts that the weights were made with, list under weights.skip "
            "what may differ, or name another format",
        )


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers of a model by name."""
    return model.state_dict(keep_vars=True)


def below(name: str, parts: Collection[str]) -> bool:
    """Whether a tensor's name is one of some parts, or of a tensor inside one: ``head.scores.bias`` of ``head``."""
    return any(name == part or name.startswith(f"{part.removesuffix('.')}.") for part in parts)


def _fitted(
    match: Match, tensor: Tensor, ours: Mapping[str, Tensor], resize: Resize | None
) -> dict[str, Tensor] | None:
    """Our tensors out of theirs; ``None`` where the shapes differ."""
    shapes = [ours[name].shape for name in match.ours]
    if tensor.shape != _shape(match, ours):
        resized = _resized(match, tensor, shapes[0], resize) if resize and len(shapes) == 1 else None
        return None if resized is None else {match.ours[0]: resized}
    return dict(zip(match.ours, match.to_ours(tensor, shapes), strict=True))


def _resized(match: Match, tensor: Tensor, shape: torch.Size, resize: Resize) -> Tensor | None:
    """A table with other rows, of the same width, as one of a shape."""
    width = shape[-1]
    if len(shape) != 2 or tensor.shape[-1] != width:
        return None
    return resize(match.ours[0], tensor.reshape(-1, width), shape[0])


def _shape(match: Match, ours: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Shape of theirs that a model needs."""
    return tuple(match.to_theirs([ours[name].detach() for name in match.ours]).shape)


def _agrees(tensor: Tensor, values: Tensor) -> bool:
    """Whether a tensor of theirs has the values that it must have."""
    return tensor.shape == values.shape and torch.allclose(tensor.to(values), values, rtol=0, atol=1e-6)
