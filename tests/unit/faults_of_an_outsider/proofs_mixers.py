"""Where each fault of a mixer with its own forward or state shows, as in ``proofs``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from faults_of_an_outsider import mixers
from faults_of_an_outsider.proofs import (
    DIM,
    HEADS,
    Situation,
    apart,
    chunks,
    differs,
    in_chunks,
    made,
    packed,
    padding_in_front,
    run,
    single_steps,
    the_future,
    tokens,
    twice,
)
from zoo.contracts.values.cache import Cache, LayerCache
from zoo.contracts.values.mask import EVERYTHING, Mask
from zoo.initialization import initialize
from zoo_builtin.position.rotary import Rotary


def counting(cls: type[Any]) -> float:
    """A state that counts 300 tokens in bfloat16, which holds no 257 to go on from 256."""
    layer = cls(cls.Config(decay=1.0, bias=False), dim=1, heads=1).bfloat16().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1.0)
    return 300 - run(layer, torch.ones(1, 300, 1, dtype=torch.bfloat16))[0, -1, 0].item()


def two_conversations(cls: type[Any]) -> float:
    layer, first, second = made(cls), tokens()[:1], tokens()[1:]
    caches = Cache(), Cache()
    for cache, x in zip(caches, (first, second), strict=True):
        run(layer, x[:, :-1], cache=cache)
    return apart(run(layer, first[:, -1:], cache=caches[0]), run(layer, first)[:, -1:])


def swapped_beams(cls: type[Any]) -> float:
    layer, x, cache, swap = made(cls), tokens(), Cache(), torch.tensor([1, 0])
    run(layer, x[:, :-1], cache=cache)
    cache.reorder(swap)
    return apart(run(layer, x[swap, -1:], cache=cache), run(layer, x)[swap, -1:])


def its_input(cls: type[Any]) -> float:
    x = tokens()
    valid = torch.tensor([[False, False, True, True, True, True]] * 2)
    run(made(cls), x, Mask(causal=True, valid_BS=valid))
    return apart(x, tokens())


def looked_at(layer: Any, x_BTD: Tensor, context_BSD: Tensor, mask: Mask, cache: LayerCache | None = None) -> Tensor:
    with torch.no_grad():
        sized = mask.sized(x_BTD.shape[1], context_BSD.shape[1])
        return layer(x_BTD, context_BSD=context_BSD, mask=sized, cache=cache)


def padding_of_the_source(cls: type[Any]) -> float:
    layer, x, context = made(cls), tokens()[:, :3], tokens()
    mask, other = Mask(valid_BS=torch.tensor([[True] * 5 + [False]] * 2)), context.clone()
    other[:, -1] += 3
    return apart(looked_at(layer, x, context, mask), looked_at(layer, x, other, mask))


def steps_over_a_source(cls: type[Any]) -> float:
    layer, x, context, cache = made(cls), tokens()[:, :3], tokens(), LayerCache()
    steps = [looked_at(layer, step, context, EVERYTHING, cache) for step in x.split([2, 1], 1)]
    return apart(torch.cat(steps, 1), looked_at(layer, x, context, EVERYTHING))


def padding_in_a_prefix(cls: type[Any]) -> float:
    valid = torch.ones(2, 6, dtype=torch.bool)
    valid[:, 1] = False
    return differs(cls, 1, slice(2, None), Mask(causal=True, prefix_B=torch.tensor([3, 2]), valid_BS=valid))


def ahead_of_the_window(cls: type[Any]) -> float:
    return differs(cls, -1, slice(0, -2), Mask(window=2))


def padding_between(cls: type[Any]) -> float:
    """Tokens with two of padding between them are what they are without."""
    layer, x, valid = made(cls), tokens(1), torch.tensor([[True, True, False, False, True, True]])
    return apart(run(layer, x, Mask(causal=True, valid_BS=valid))[:, valid[0]], run(layer, x[:, valid[0]]))


def two_starts(cls: type[Any]) -> float:
    """Two layers that are filled from one seed."""
    layers = made(cls), made(cls)
    for layer in layers:
        initialize(layer, 1, std=0.02, branch_std=0.02)
    return max(apart(*pair) for pair in zip(*(layer.parameters() for layer in layers), strict=True))


def padding_behind(cls: type[Any]) -> float:
    valid = torch.tensor([[True] * 5 + [False]] * 2)
    return differs(cls, -1, slice(0, -1), Mask(valid_BS=valid))


def behind_the_window(cls: type[Any]) -> float:
    return differs(cls, 0, slice(2, None), Mask(causal=True, window=2))


def packed_at_the_cut(cls: type[Any]) -> float:
    layer, x, cache = made(cls), tokens(1), Cache()
    documents = torch.tensor([[7, 7, 7, 7, 9, 9]])
    parts = zip(x.split([4, 2], 1), documents.split([4, 2], 1), strict=True)
    outs = [run(layer, part, Mask(causal=True, documents_BS=of), cache=cache) for part, of in parts]
    return apart(outs[1], run(layer, x[:, 4:]))


def rotated_single_steps(cls: type[Any]) -> float:
    layer, x = made(cls), tokens()
    scheme = Rotary(Rotary.Config(), dim=DIM, heads=HEADS, size=DIM // HEADS)
    return apart(in_chunks(layer, x, [1] * 6, scheme=scheme), run(layer, x, scheme=scheme))


PROOFS: dict[type[Any], tuple[Situation, float]] = {
    mixers.WindowOneTooWide: (behind_the_window, 0.1),
    mixers.WindowOnOneSide: (ahead_of_the_window, 0.1),
    mixers.PrefixOpensPadding: (padding_in_a_prefix, 0.1),
    mixers.DocumentsIgnored: (packed, 0.1),
    mixers.ContextPaddingIgnored: (padding_of_the_source, 0.1),
    mixers.PaddedQueriesHidden: (padding_behind, 0.1),
    mixers.PositionOfTheChunk: (chunks, 0.1),
    mixers.MergedWithoutTranspose: (the_future, 0.1),
    mixers.CachedBeforeRotation: (rotated_single_steps, 0.01),
    mixers.PastOnModule: (two_conversations, 0.1),
    mixers.CachedByTheFirstHead: (swapped_beams, 0.1),
    mixers.CachedKeysScaledInPlace: (chunks, 0.01),
    mixers.InputZeroedInPlace: (its_input, 1),
    mixers.CrossCachesQueries: (steps_over_a_source, 0.1),
    mixers.CrossReadsItself: (steps_over_a_source, 0.1),
    mixers.StateAcrossDocuments: (packed, 0.1),
    mixers.StateAcrossTheCut: (packed_at_the_cut, 0.1),
    mixers.PaddingWrites: (padding_in_front, 0.1),
    mixers.PaddingDecays: (padding_between, 0.1),
    mixers.StateOfTheFirstRow: (chunks, 0.1),
    mixers.StateOnModule: (twice, 0.1),
    mixers.StateInHalfPrecision: (counting, 44),
    mixers.StateOfTheFirstCall: (chunks, 0.1),
    mixers.FilterSeesAhead: (the_future, 0.1),
    mixers.TailOfTheChunk: (single_steps, 0.1),
    mixers.RandomStart: (two_starts, 0.1),
}
"""For each fault of a mixer the situation in which it shows, and how wrong it is there at least."""
