"""Where each fault of a position scheme shows, as in ``proofs``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from faults_of_an_outsider import position
from faults_of_an_outsider.proofs import DIM, HEADS, Situation, apart, in_chunks, made, run, tokens
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.place import Place
from zoo_builtin.attention.multi_head import MultiHead


def scheme_of(cls: type[Any], **more: Any) -> Any:
    scheme = cls(cls.Config(), **{"dim": DIM, "heads": HEADS, "size": DIM // HEADS, "length": 8, **more}).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 2)
    return scheme


def row(*positions: int) -> Tensor:
    return torch.tensor(positions)[None, :, None]


def cached_with(cls: type[Any]) -> float:
    scheme, layer, x = scheme_of(cls), made(MultiHead), tokens()
    return apart(in_chunks(layer, x, [3, 2, 1], scheme=scheme), run(layer, x, scheme=scheme))


def padded_with(cls: type[Any]) -> float:
    """Two rows, the second padded on the left: each against itself alone."""
    scheme, layer, x = scheme_of(cls), made(MultiHead), tokens()
    valid = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    both = run(layer, x, Mask(causal=True, valid_BS=valid), scheme=scheme)
    alone = run(layer, x[:1], scheme=scheme), run(layer, x[1:, 2:], scheme=scheme)
    return max(apart(both[:1], alone[0]), apart(both[1:, 2:], alone[1]))


def embedded_later(cls: type[Any]) -> float:
    scheme, x = scheme_of(cls), tokens()
    at = row(*range(6))
    whole, part = Place(scheme, at, at).embed(x), Place(scheme, at[:, 3:], at).embed(x[:, 3:])
    return apart(whole[:, 3:], part)


def embedded_in_bfloat16(cls: type[Any]) -> float:
    """Position 257 in bfloat16, to the 1/256 that is left of a sine there."""
    at = row(257)
    narrow = scheme_of(cls).embed(torch.zeros(1, 1, DIM, dtype=torch.bfloat16), at)
    exact = scheme_of(cls).embed(torch.zeros(1, 1, DIM, dtype=torch.float64), at)
    return max(0.0, apart(narrow.double(), exact) - 2**-8)


def phases_of_a_bfloat16_model(cls: type[Any]) -> float:
    at, head = row(1000), {"dim": 64, "size": 32}
    exact, narrow = (
        scheme.prepare(at, at)[0] for scheme in (scheme_of(cls, **head), scheme_of(cls, **head).bfloat16())
    )
    return apart(exact, narrow)


def lengths_of_turned_vectors(cls: type[Any]) -> float:
    x, at = tokens()[:, None, :, :4], row(*range(6))
    scheme = scheme_of(cls)
    return apart(scheme.rotate(x, scheme.prepare(at, at)).norm(dim=-1), x.norm(dim=-1))


def bytes_more_in_the_cache(cls: type[Any]) -> float:
    scheme, at = scheme_of(cls), row(0, 1)
    turned = scheme.rotate(torch.ones(1, 1, 2, 4, dtype=torch.bfloat16), scheme.prepare(at, at))
    return turned.element_size() - 2


def after_a_long_sequence(cls: type[Any]) -> float:
    scheme = scheme_of(cls)
    before, _, after = (scheme.prepare(row(*range(length)), row(*range(length)))[0] for length in (3, 50, 3))
    return apart(before, after)


def past_the_end(cls: type[Any]) -> float:
    """1 where position 8 of a table of 8 rows isn't refused."""
    try:
        scheme_of(cls).embed(tokens()[:, :1], row(8))
    except ValueError:
        return 0.0
    return 1.0


def after_a_step_of_training(cls: type[Any]) -> float:
    scheme, at = scheme_of(cls), row(0, 1, 2)
    before = scheme.prepare(at, at).detach().clone()
    with torch.no_grad():
        scheme.table.weight.add_(1)
    return apart(scheme.prepare(at, at), before + 1)


def second_layer(cls: type[Any]) -> float:
    scheme, at = scheme_of(cls), row(0, 1, 2)
    prepared, q = scheme.prepare(at, at), torch.zeros(1, HEADS, 3, 4, dtype=torch.float64)
    first, second = (scheme.bias(q, q, None, prepared).clone() for _ in range(2))
    return apart(first, second)


def offsets_on_a_wide_grid(cls: type[Any]) -> float:
    """Turned by (1, 0) and by (0, 0), the same vector of 2 x 3 patches stands for the fourth and the first."""
    scheme = scheme_of(cls, grid=(2, 3))
    at = torch.tensor([[(r, c) for r in range(2) for c in range(3)]])
    cos, _ = scheme.prepare(at, at)
    alone, _ = scheme.prepare(at[:, 3:4], at[:, 3:4])
    return apart(cos[:, :, 3:4], alone)


def three_heads(cls: type[Any]) -> float:
    """1 where scores of three heads can't take the bias."""
    scheme, at = scheme_of(cls, heads=3), row(0, 1)
    q = torch.zeros(1, 3, 2, 4)
    try:
        torch.zeros(1, 3, 2, 2) + scheme.bias(q, q, None, scheme.prepare(at, at))
    except RuntimeError:
        return 1.0
    return 0.0


PROOFS: dict[type[Any], tuple[Situation, float]] = {
    position.RotatesByCounting: (cached_with, 0.001),
    position.FrequenciesInABuffer: (phases_of_a_bfloat16_model, 0.1),
    position.MixedPairs: (lengths_of_turned_vectors, 0.1),
    position.RotatesToDouble: (bytes_more_in_the_cache, 6),
    position.RemembersTheLongest: (after_a_long_sequence, 0.1),
    position.GridTakenForASquare: (offsets_on_a_wide_grid, 0.001),
    position.LearnedByCounting: (embedded_later, 0.1),
    position.ClampedAtTheEnd: (past_the_end, 1),
    position.HalfPrecisionPhases: (embedded_in_bfloat16, 0.1),
    position.BucketsOfSlots: (cached_with, 0.1),
    position.BiasMemoized: (after_a_step_of_training, 1),
    position.FirstRowForAll: (padded_with, 0.001),
    position.DistancesChangedInPlace: (second_layer, 0.01),
    position.SlopesOfAPowerOfTwo: (three_heads, 1),
}
"""For each fault of a position scheme the situation in which it shows, and how wrong it is there at least."""
