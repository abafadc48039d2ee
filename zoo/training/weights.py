"""model.safetensors: the weights of a model under its own names, and into a model again, all or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from zoo.errors import UserError, counted
from zoo.training.files import write_bytes

_WRAPPER = re.compile(r"(^|\.)(_orig_mod|module)\.")


def plain_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors without the prefixes that torch.compile and data-parallel wrappers put into names."""
    return {unwrapped(name): tensor for name, tensor in state.items()}


def unwrapped(name: str) -> str:
    """``a.b`` of ``module._orig_mod.a.b``, however deep they are nested."""
    while (shorter := _WRAPPER.sub(r"\1", name)) != name:
        name = shorter
    return name


def save_weights(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a file in place of ``path``; a tensor that has several names is written under the first."""
    seen: dict[tuple[int, tuple[int, ...], tuple[int, ...]], str] = {}
    tensors = {}
    for name, tensor in plain_names(state).items():
        place = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        if tensor.numel() and seen.setdefault(place, name) != name:
            continue
        own = tensor.detach().cpu().contiguous()
        tensors[name] = own if own.untyped_storage().nbytes() == own.nbytes else own.clone()  # a view of a larger one
    write_bytes(path, save(tensors, metadata=dict(metadata)))


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file.

    Raises:
        UserError: a file that isn't there or is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"the weights can't be read: {error}", where=str(path)) from error


@torch.no_grad()
def load_weights(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Copy weights into a model that has exactly these, whatever wrappers their names went through.

    Args:
        model: its parameters and saved buffers are overwritten.
        state: tensors by name; of a tensor that the model has under several names, one is enough.
        source: what messages call their origin.

    Raises:
        UserError: a name or shape that only one of them has, or two names of one tensor that disagree. The
            model is as it was.
    """
    given, own = plain_names(state), _names(model)
    known = {name for names, _ in own for name in names}
    found = [[given[name] for name in names if name in given] for names, _ in own]
    fitting = sum(
        bool(values) and values[0].shape == tensor.shape for values, (_, tensor) in zip(found, own, strict=True)
    )
    problems = [
        *counted("missing", [names[0] for values, (names, _) in zip(found, own, strict=True) if not values]),
        *counted("not in the model", [name for name in given if name not in known]),
        *counted("of another shape", _misshapen(given, own)),
        *counted("one tensor with different values", _disagreeing(given, own)),
    ]
    if problems:
        raise UserError(
            f"loaded {fitting} of {len(own)} tensors: {'; '.join(problems)}",
            where=source,
            fix="give the weights of this architecture, or the recipe that they were trained with",
        )
    for values, (_, tensor) in zip(found, own, strict=True):
        tensor.copy_(values[0])


def _names(model: nn.Module) -> list[tuple[list[str], Tensor]]:
    """Each parameter and saved buffer with its names; a tied one has several."""
    found: dict[int, tuple[list[str], Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), ([], tensor))[0].append(unwrapped(name))
    return list(found.values())


def _misshapen(given: Mapping[str, Tensor], own: list[tuple[list[str], Tensor]]) -> list[str]:
    return [
        f"{name} {tuple(given[name].shape)} instead of {tuple(tensor.shape)}"
        for names, tensor in own
        for name in names
        if name in given and given[name].shape != tensor.shape
    ]


def _disagreeing(given: Mapping[str, Tensor], own: list[tuple[list[str], Tensor]]) -> list[str]:
    result = []
    for names, _ in own:
        present = [name for name in names if name in given]
        if any(not torch.equal(given[present[0]], given[name]) for name in present[1:]):
            result.append(" and ".join(present))
    return result
