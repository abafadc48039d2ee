"""Position schemes: published values, both layouts of pairs, precision of the phases, odd sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zoo.contracts.values.place import Place
from zoo_builtin.position.learned import Learned
from zoo_builtin.position.none import NoPosition
from zoo_builtin.position.rotary import Rotary
from zoo_builtin.position.sinusoidal import Sinusoidal


def rotary(size: int = 4, **knobs: Any) -> Rotary:
    return Rotary(Rotary.Config(**knobs), dim=size, heads=1, size=size)


def turned(scheme: Rotary, x: torch.Tensor, position: int) -> torch.Tensor:
    at = torch.full((1, 1, 1), position)
    return scheme.rotate(x[None, None, None], scheme.prepare(at, at))[0, 0, 0]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("half", [-1.984111, 1.959901, 2.462378, 4.0198]),
        ("interleaved", [-1.14264, 1.922076, 2.959851, 4.029799]),
    ],
)
def test_both_layouts_of_pairs(pairs: str, expected: list[float]) -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    result = turned(rotary(pairs=pairs), x, 1)
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=0)


def test_a_permutation_maps_one_layout_into_the_other() -> None:
    x, order = torch.randn(4, dtype=torch.float64), [0, 2, 1, 3]
    half = turned(rotary(pairs="half"), x, 7)
    interleaved = turned(rotary(pairs="interleaved"), x[order], 7)
    torch.testing.assert_close(interleaved, half[order])


def test_a_part_of_the_head_is_rotated() -> None:
    x = torch.randn(8, dtype=torch.float64)
    result = turned(rotary(8, fraction=0.5), x, 3)
    assert torch.equal(result[4:], x[4:])
    torch.testing.assert_close(result[:4], turned(rotary(4), x[:4], 3))


def test_learned_positions_can_begin_at_a_later_row() -> None:
    """RoBERTa's and BART's tables have two rows more than there are positions."""
    scheme = Learned.part(offset=2)(dim=4, heads=1, size=4, length=6)
    assert scheme.table.weight.shape == (8, 4)
    at = torch.tensor([[[0], [5]]])
    assert torch.equal(scheme.embed(torch.zeros(1, 2, 4), at)[0], scheme.table.weight[[2, 7]])
    with pytest.raises(ValueError, match="position 6 is past the last learned one, 5"):
        scheme.embed(torch.zeros(1, 1, 4), torch.tensor([[[6]]]))
    with pytest.raises(ValueError, match="offset must be at least 0, got -1"):
        Learned.part(offset=-1)(dim=4, heads=1, size=4, length=6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_phases_are_never_in_half_precision(dtype: torch.dtype, autocast: bool) -> None:
    """In bfloat16, positions 256 and 257 are the same number; tables must be within 1e-3 of float64 anyway."""
    scheme = rotary(64).to(dtype)
    at = torch.arange(4096)[None, :, None]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        cos, sin = scheme.prepare(at, at)
        ones = torch.ones(1, 1, 4096, 64, dtype=dtype)
        result = scheme.rotate(ones, (cos, sin))
    pair = torch.arange(32, dtype=torch.float64)
    phase = torch.arange(4096, dtype=torch.float64)[:, None] * 10000.0 ** (-pair / 32)
    torch.testing.assert_close(cos[0, 0].double(), phase.cos(), atol=1e-3, rtol=0)
    torch.testing.assert_close(sin[0, 0].double(), phase.sin(), atol=1e-3, rtol=0)
    budget = 1e-3 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(result[0, 0, :, :32].double(), phase.cos() - phase.sin(), atol=budget, rtol=0)
    assert result.dtype == dtype
    assert not scheme.state_dict()


def test_sinusoids_keep_their_phases_in_half_precision() -> None:
    scheme = Sinusoidal(Sinusoidal.Config(), dim=64, heads=1, size=64)
    at = torch.arange(4096)[None, :, None]
    exact = scheme.embed(torch.zeros(1, 4096, 64, dtype=torch.float64), at)
    half = scheme.embed(torch.zeros(1, 4096, 64, dtype=torch.bfloat16), at)
    torch.testing.assert_close(half.double(), exact, atol=2**-8, rtol=0)


def test_odd_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="rotary needs an even head dim, got 15 = 30/2"):
        Rotary(Rotary.Config(), dim=30, heads=2, size=15)
    with pytest.raises(ValueError, match="sinusoidal positions need an even width, got 5"):
        Sinusoidal(Sinusoidal.Config(), dim=5, heads=1, size=5)
    with pytest.raises(ValueError, match=r"rotary fraction must be above 0 and at most 1, got 1\.5"):
        rotary(8, fraction=1.5)
    with pytest.raises(ValueError, match=r"learned positions need a length; set architecture\.max_length"):
        Learned(Learned.Config(), dim=4, heads=1, size=4)


def test_what_each_scheme_needs_of_an_attention() -> None:
    assert [cls.needs() for cls in (NoPosition, Learned, Sinusoidal, Rotary)] == [
        frozenset(),
        frozenset(),
        frozenset(),
        {"rotate"},
    ]


def test_tokens_that_stand_nowhere_are_left_alone() -> None:
    at = torch.tensor([[[-1], [0], [5]]])
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    sinusoidal = Sinusoidal(Sinusoidal.Config(), dim=8, heads=1, size=8)
    embedded = Place(sinusoidal, at, at, nowhere=True).embed(x)
    assert torch.equal(embedded[:, 0], x[:, 0])
    torch.testing.assert_close(embedded[:, 1:], sinusoidal.embed(x[:, 1:], at[:, 1:]))
    heads = torch.randn(1, 2, 3, 8, dtype=torch.float64)
    rotated = Place(rotary(8), at, at, nowhere=True).rotate(heads)
    assert torch.equal(rotated[:, :, 0], heads[:, :, 0])
    assert not torch.equal(rotated[:, :, 2], heads[:, :, 2])


def test_axes_of_positions_are_checked() -> None:
    with pytest.raises(ValueError, match="Rotary takes positions with 1 axes, got 2"):
        Place(rotary(), torch.zeros(1, 3, 2, dtype=torch.int64), torch.zeros(1, 3, 2, dtype=torch.int64))
