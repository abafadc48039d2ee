"""Parameters by part, read off the module tree; a parameter that serves twice counts once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch import nn

from zoo.contracts.architecture import Architecture
from zoo.contracts.attention import Attention
from zoo.contracts.embedding import Embedding
from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.head import Head
from zoo.contracts.norm import Norm
from zoo.contracts.position import Position

_KINDS: Mapping[type, str] = {Attention: "attention", FeedForward: "feed_forward", Norm: "norm", Position: "position"}
_TITLES = {"attention": "attention", "feed_forward": "feed-forward", "norm": "norm", "position": "position embeddings"}


class Line(NamedTuple):
    """A line of the table: what, and how many parameters."""

    label: str
    parameters: int


class Part(NamedTuple):
    """Parameters that belong together: one component, embedding or loose layer of the model.

    Attributes:
        kind: ``attention``, ``feed_forward``, ``norm``, ``position``, ``token_embedding``, ``head`` or ``other``.
        title: what a reader calls it.
        layer: index of its block, or ``None`` outside the blocks.
        parameters: how many.
        embeds: whether it is a table of token or position embeddings.
    """

    kind: str
    title: str
    layer: int | None
    parameters: int
    embeds: bool = False


def parts(model: Architecture, names: Mapping[type, str]) -> list[Part]:
    """All parts that have parameters, in the order of the module tree.

    Args:
        model: on any device, the meta device included.
        names: the short name of each component class.
    """
    seen: set[int] = set()
    found = []
    for path, module, layer in _owners(model):
        new = {id(parameter): parameter for parameter in module.parameters() if id(parameter) not in seen}
        seen |= new.keys()
        if count := sum(parameter.numel() for parameter in new.values()):
            shape = " x ".join(f"{size:,}" for size in next(iter(new.values())).shape) if len(new) == 1 else ""
            found.append(_part(model, path, module, layer, count, shape, names))
    return found


def _owners(model: Architecture) -> Iterator[tuple[str, nn.Module, int | None]]:
    """The outermost components, and loose modules with parameters of their own, with their path and block."""
    blocks = {id(block): layer for layer, block in enumerate(model.block_modules())}

    def walk(path: str, module: nn.Module, layer: int | None) -> Iterator[tuple[str, nn.Module, int | None]]:
        layer = blocks.get(id(module), layer)
        if isinstance(module, (*_KINDS, Embedding, Head)) or not any(True for _ in module.children()):
            yield path, module, layer
            return
        for name, child in module.named_children():
            yield from walk(f"{path}.{name}" if path else name, child, layer)
        if any(True for _ in module.parameters(recurse=False)):
            yield path, module, layer  # last, so that only what no child owns is left for it

    return walk("", model, None)


def _part(
    model: Architecture,
    path: str,
    module: nn.Module,
    layer: int | None,
    count: int,
    shape: str,
    names: Mapping[type, str],
) -> Part:
    words = path.rpartition(".")[2].replace("_", " ") or type(module).__name__
    sized = f" ({shape})" if shape else ""
    name = names.get(type(module), type(module).__name__)
    for contract, kind in _KINDS.items():
        if not isinstance(module, contract):
            continue
        if isinstance(module, Position):
            embeds = module.acts("embed")
            return Part(kind, f"{_TITLES[kind] if embeds else 'position'} {name}{sized}", layer, count, embeds)
        return Part(kind, f"{_TITLES[kind] if layer is not None else words} {name}", layer, count)
    if isinstance(module, Embedding):
        embeds = module.table is not None
        title = f"token embeddings{sized}" if embeds else f"embedding {name}"
        return Part("token_embedding" if embeds else "embedding", title, layer, count, embeds)
    if isinstance(module, Head):
        return Part("head", f"head{sized}" if sized else f"head {name}", layer, count)
    return Part("other", f"{words}{sized}", layer, count)


def by_part(found: list[Part]) -> dict[str, int]:
    """Number of parameters of each kind; together they are all."""
    counts: dict[str, int] = defaultdict(int)
    for part in found:
        counts[part.kind] += part.parameters
    return dict(counts)


def table(model: Architecture, found: list[Part]) -> list[Line]:
    """The article's "Counting a real model": a layer's parts, a layer, all layers, what is outside, the total."""
    layers = len(list(model.block_modules()))
    outside = [Line(part.title, part.parameters) for part in found if part.layer is None]
    total = sum(part.parameters for part in found)
    lines = [line for group in _alike(found, layers) for line in _layer_lines(found, group, layers)]
    if layers:
        inside = sum(part.parameters for part in found if part.layer is not None)
        lines.append(Line(f"{layers} layer{'s' * (layers > 1)}", inside))
    return [*lines, *outside, Line("total", total)]


def _alike(found: list[Part], layers: int) -> list[list[int]]:
    """Layers grouped by what they are made of."""
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for layer in range(layers):
        made_of = tuple((part.title, part.parameters) for part in found if part.layer == layer)
        groups.setdefault(made_of, []).append(layer)
    return list(groups.values())


def _layer_lines(found: list[Part], group: list[int], layers: int) -> Iterator[Line]:
    """The lines of one layer of a group, in the order: attention, feed-forward, norms, others."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(list)
    for part in found:
        if part.layer == group[0]:
            counts[part.kind, part.title].append(part.parameters)
    every = len(group) == layers
    suffix = "per layer" if every else f"in each of layers {_ranges(group)}"
    for (_, title), each in sorted(counts.items(), key=lambda entry: _order(entry[0][0])):
        yield Line(f"{title if len(each) == 1 else f'{len(each)} x {title}'}, {suffix}", sum(each))
    yield Line("one layer" if every else f"one of layers {_ranges(group)}", sum(map(sum, counts.values())))


def _order(kind: str) -> int:
    known = list(_KINDS.values())
    return known.index(kind) if kind in known else len(known)


def _ranges(layers: list[int]) -> str:
    """``0, 2, 4`` for a few layers, ``0-5`` where they follow each other."""
    ranges: list[list[int]] = []
    for layer in layers:
        if ranges and layer == ranges[-1][-1] + 1:
            ranges[-1].append(layer)
        else:
            ranges.append([layer])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges)
