"""Positions on a grid of patches: published layouts, timm's rotary and relative schemes, grids that aren't square."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from timm.layers.pos_embed_rel import RelPosBias, RelPosMlp
from timm.layers.pos_embed_sincos import RotaryEmbeddingCat, RotaryEmbeddingMixed, apply_rot_embed_cat
from timm.models.twins import PosConv
from torch import Tensor

from zoo.contracts.position import Position
from zoo.contracts.values.place import Place
from zoo.initialization import initialize
from zoo.nn.block import Stack
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.latent import Latent
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.norm.rms_norm import RMSNorm
from zoo_builtin.position.alibi_2d import AlibiGrid
from zoo_builtin.position.continuous_2d import ContinuousGrid
from zoo_builtin.position.convolutional import Convolutional
from zoo_builtin.position.learned_2d import LearnedGrid
from zoo_builtin.position.relative_2d import RelativeGrid
from zoo_builtin.position.rotary_2d import RotaryGrid
from zoo_builtin.position.rotary_mixed import RotaryMixed
from zoo_builtin.position.sinusoidal_2d import SinusoidalGrid
from zoo_builtin.residual.pre import Pre

SCHEMES = [
    AlibiGrid,
    ContinuousGrid,
    Convolutional,
    LearnedGrid,
    RelativeGrid,
    RotaryGrid,
    RotaryMixed,
    SinusoidalGrid,
]


def raster(rows: int, columns: int, *, extra: int = 0) -> Tensor:
    """(1, extra + rows * columns, 2) positions of patches row by row, those in front nowhere."""
    patches = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).reshape(-1, 2)
    return torch.cat([torch.full((extra, 2), -1), patches])[None]


def made(cls: type[Position], grid: tuple[int, int] | None, *, dim: int = 16, heads: int = 2, **knobs: Any) -> Position:
    torch.manual_seed(0)
    scheme = cls.part(**knobs)(dim=dim, heads=heads, size=dim // heads, grid=grid)
    initialize(scheme, 0, std=0.5, branch_std=0.5)
    return scheme


def bias_of(scheme: Position, at_BTA: Tensor) -> Tensor:
    heads = torch.zeros(1, scheme.heads, at_BTA.shape[1], scheme.size)
    bias = Place(scheme, at_BTA, at_BTA, nowhere=True).bias(heads, heads, None)  # type: ignore[arg-type]
    assert bias is not None
    return bias


def test_sinusoids_are_in_the_published_order_on_a_grid_of_2_by_3() -> None:
    scheme = made(SinusoidalGrid, (2, 3), dim=8)
    table = scheme.embed(torch.zeros(1, 6, 8, dtype=torch.float64), raster(2, 3))[0]
    expected = {1: [0.8415, 0.01, 0.5403, 1, 0, 0, 1, 1], 3: [0, 0, 1, 1, 0.8415, 0.01, 0.5403, 1]}
    for index, values in expected.items():
        torch.testing.assert_close(table[index], torch.tensor(values).double(), atol=1e-4, rtol=0)
    columns, rows = table.chunk(2, -1)
    assert torch.equal(rows[0], rows[1]) and torch.equal(rows[0], rows[2])
    assert torch.equal(columns[0], columns[3])


def test_learned_rows_and_columns_are_told_apart_on_a_grid_of_2_by_3() -> None:
    scheme = made(LearnedGrid, (2, 3))
    table = scheme.embed(torch.zeros(1, 6, 16), raster(2, 3))[0]
    assert torch.equal(table[5], scheme.rows.weight[1] + scheme.columns.weight[2])
    assert sum(parameter.numel() for parameter in scheme.parameters()) == (2 + 3) * 16


@pytest.mark.parametrize("grid", [(14, 14), (2, 3)])
@pytest.mark.parametrize(
    ("knobs", "options"),
    [
        ({}, {"temperature": 100.0, "grid_indexing": "xy"}),
        ({"theta": 10000.0, "first": "row"}, {"temperature": 10000.0}),
        ({"pairs": "half"}, {"temperature": 100.0, "grid_indexing": "xy", "rotate_half": True}),
        ({"first": "row", "reference": (16, 12)}, {"temperature": 100.0, "ref_feat_shape": [16, 12]}),
        ({"reference": (16, 12)}, {"temperature": 100.0, "ref_feat_shape": [16, 12], "grid_indexing": "xy"}),
    ],
    ids=["vit_base_patch16_rope_224", "row first", "half", "a reference grid", "a reference grid, column first"],
)
def test_rotation_is_that_of_timm(grid: tuple[int, int], knobs: dict[str, Any], options: dict[str, Any]) -> None:
    """timm's tables are float32: angles up to 16 radians are off by 2e-6 at most, times elements of up to 5."""
    scheme, at_BTA = made(RotaryGrid, grid, dim=128, **knobs), raster(*grid)
    x_BNTH = torch.randn(2, 2, at_BTA.shape[1], 64)
    table = RotaryEmbeddingCat(64, in_pixels=False, feat_shape=list(grid), **options).get_embed()
    want = apply_rot_embed_cat(x_BNTH, table, half=options.get("rotate_half", False))
    torch.testing.assert_close(Place(scheme, at_BTA, at_BTA).rotate(x_BNTH), want, atol=2e-5, rtol=0)


def test_rotated_scores_depend_on_offsets_in_rows_and_columns() -> None:
    scheme, at_BTA = made(RotaryGrid, None), raster(4, 5)
    q, k = torch.randn(2, 1, 2, 1, 8, dtype=torch.float64).expand(2, 1, 2, 20, 8)
    place = Place(scheme, at_BTA, at_BTA)
    scores = (place.rotate(q) @ place.rotate(k).transpose(-1, -2))[0, 0]
    moved = Place(scheme, at_BTA + torch.tensor([3, 7]), at_BTA + torch.tensor([3, 7]))
    torch.testing.assert_close((moved.rotate(q) @ moved.rotate(k).transpose(-1, -2))[0, 0], scores, atol=1e-10, rtol=0)
    assert scores[0, 1] == pytest.approx(float(scores[7, 8]))  # one column to the right
    assert scores[0, 1] != pytest.approx(float(scores[0, 5]))  # one row down


@pytest.mark.parametrize("grid", [(14, 14), (2, 3)])
def test_mixed_rotation_is_that_of_timm(grid: tuple[int, int]) -> None:
    """timm's tables are float32: angles up to 18 radians are off by 2e-6 at most, times elements of up to 5."""
    scheme, at_BTA = made(RotaryMixed, grid, dim=128), raster(*grid)
    theirs = RotaryEmbeddingMixed(128, depth=1, num_heads=2, feat_shape=list(grid))
    with torch.no_grad():
        scheme.frequency.copy_(theirs.freqs[:, 0].flatten())
    x_BNTH = torch.randn(2, 2, at_BTA.shape[1], 64)
    want = apply_rot_embed_cat(x_BNTH, theirs.get_embed()[0])
    torch.testing.assert_close(Place(scheme, at_BTA, at_BTA).rotate(x_BNTH), want, atol=2e-5, rtol=0)


def test_mixed_frequencies_begin_as_two_crossed_waves_in_a_direction_of_each_head() -> None:
    """As timm's: of each wavelength theta^(-4 i / H) one wave in some direction, and one at a right angle to it."""
    x, y = made(RotaryMixed, None, dim=6 * 16, heads=6).frequency.detach().view(2, 6, 8)
    theirs = RotaryEmbeddingMixed(6 * 16, depth=1, num_heads=6).freqs[:, 0].detach()
    torch.testing.assert_close((x**2 + y**2).sqrt(), (theirs**2).sum(0).sqrt(), atol=1e-6, rtol=0)
    torch.testing.assert_close(x[:, :4] * x[:, 4:] + y[:, :4] * y[:, 4:], torch.zeros(6, 4), atol=1e-6, rtol=0)
    directions = torch.atan2(y, x)
    turned = directions[:, 4:] - directions[:, :4]
    torch.testing.assert_close(turned.remainder(2 * torch.pi), torch.full((6, 4), torch.pi / 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(directions[:, :1].expand(-1, 4), directions[:, :4], atol=1e-5, rtol=0)
    assert len(directions[:, 0].unique()) == 6


def test_the_distance_of_alibi_2d_is_the_root_of_squares() -> None:
    """A grid of 4 by 5 has the triangle of sides 3, 4, 5; slopes of 2 heads are 2^-4 and 2^-8."""
    bias, at_TA = bias_of(made(AlibiGrid, (4, 5)), raster(4, 5))[0], raster(4, 5)[0].tolist()
    assert bias[:, 0, 19].tolist() == [-5 * 2**-4, -5 * 2**-8]
    for t, (row, column) in enumerate(at_TA):
        for s, (other_row, other_column) in enumerate(at_TA):
            distance = ((row - other_row) ** 2 + (column - other_column) ** 2) ** 0.5
            assert float(bias[0, t, s]) == pytest.approx(-distance / 16, rel=1e-6)
    assert torch.equal(bias, bias.transpose(1, 2))


@pytest.mark.parametrize("grid", [(14, 14), (2, 3), (1, 4)])
def test_the_convolution_is_that_of_timm(grid: tuple[int, int]) -> None:
    scheme, theirs, at_BTA = made(Convolutional, grid), PosConv(16, 16), raster(*grid)
    with torch.no_grad():
        scheme.weight.copy_(theirs.proj[0].weight)
        scheme.shift.copy_(theirs.proj[0].bias)
    x_BTD, order = torch.randn(2, at_BTA.shape[1], 16), torch.randperm(at_BTA.shape[1])
    want = theirs(x_BTD, grid)
    torch.testing.assert_close(scheme.embed(x_BTD, at_BTA), want, atol=1e-6, rtol=0)
    reordered = scheme.embed(x_BTD[:, order], at_BTA[:, order])
    torch.testing.assert_close(reordered, want[:, order], atol=1e-6, rtol=0)


def test_patches_that_are_not_there_are_zeros_to_their_neighbours() -> None:
    scheme, at_BTA, x_BTD = made(Convolutional, (3, 3)), raster(3, 3), torch.randn(1, 9, 16)
    some = [0, 1, 4, 8]
    there = torch.zeros(9, 1)
    there[some] = 1
    want = scheme.embed(x_BTD * there, at_BTA)[:, some]
    torch.testing.assert_close(scheme.embed(x_BTD[:, some], at_BTA[:, some]), want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("grid", [(14, 14), (2, 3), (1, 4)])
def test_the_relative_bias_is_that_of_timm(grid: tuple[int, int]) -> None:
    scheme, theirs = made(RelativeGrid, grid), RelPosBias(window_size=grid, num_heads=2)
    assert scheme.table.weight.shape == theirs.relative_position_bias_table.shape
    with torch.no_grad():
        scheme.table.weight.copy_(theirs.relative_position_bias_table)
    assert torch.equal(bias_of(scheme, raster(*grid)), theirs.get_bias())


@pytest.mark.parametrize("grid", [(14, 14), (2, 3), (1, 4)])
def test_the_continuous_bias_is_that_of_timm(grid: tuple[int, int]) -> None:
    scheme, theirs = made(ContinuousGrid, grid), RelPosMlp(window_size=grid, num_heads=2).eval()
    scheme.up.load_state_dict(theirs.mlp.fc1.state_dict())
    scheme.down.load_state_dict(theirs.mlp.fc2.state_dict())
    torch.testing.assert_close(bias_of(scheme, raster(*grid)), theirs.get_bias(), atol=1e-6, rtol=0)


def test_the_networks_dropout_acts_in_training() -> None:
    scheme = made(ContinuousGrid, (2, 3), dropout=0.5)
    torch.manual_seed(0)
    assert not torch.equal(bias_of(scheme, raster(2, 3)), bias_of(scheme, raster(2, 3)))
    scheme.eval()
    assert torch.equal(bias_of(scheme, raster(2, 3)), bias_of(scheme, raster(2, 3)))


@pytest.mark.parametrize("cls", SCHEMES)
def test_class_tokens_and_registers_are_left_alone(cls: type[Position]) -> None:
    scheme, at_BTA = made(cls, (2, 3)), raster(2, 3, extra=2)
    place, patches = Place(scheme, at_BTA, at_BTA, nowhere=True), Place(scheme, raster(2, 3), raster(2, 3))
    x_BTD, x_BNTH = torch.randn(1, 8, 16), torch.randn(1, 2, 8, 8)
    assert torch.equal(place.embed(x_BTD)[:, :2], x_BTD[:, :2])
    assert torch.equal(place.embed(x_BTD)[:, 2:], patches.embed(x_BTD[:, 2:]))
    assert torch.equal(place.rotate(x_BNTH)[:, :, :2], x_BNTH[:, :, :2])
    assert torch.equal(place.rotate(x_BNTH)[:, :, 2:], patches.rotate(x_BNTH[:, :, 2:]))
    if cls.overrides("bias"):
        bias = bias_of(scheme, at_BTA)
        assert not bias[:, :, :2].any() and not bias[:, :, :, :2].any()
        assert torch.equal(bias[:, :, 2:, 2:], bias_of(scheme, raster(2, 3)))


@pytest.mark.parametrize("cls", [ContinuousGrid, Convolutional, LearnedGrid, RelativeGrid])
def test_places_outside_the_grid_are_named(cls: type[Position]) -> None:
    for grid, message in (((2, 3), "row 2 is past the last learned one, 1"), ((3, 2), "column 2 is past .* one, 1")):
        at_BTA = raster(3, 3)
        with pytest.raises(ValueError, match=message):
            Place(made(cls, grid), at_BTA, at_BTA).embed(torch.zeros(1, 9, 16))


def test_what_a_grid_scheme_can_not_do_is_named() -> None:
    for cls in (ContinuousGrid, Convolutional, LearnedGrid, RelativeGrid):
        with pytest.raises(ValueError, match="needs a grid, the rows and columns of an image's patches"):
            made(cls, None)
    with pytest.raises(ValueError, match="rotary_2d can't stretch to a reference grid without knowing the grid"):
        made(RotaryGrid, None, reference=(2, 2))
    with pytest.raises(ValueError, match="rotary_2d needs a head dim divisible by 4, got 6"):
        made(RotaryGrid, (2, 3), dim=12)
    with pytest.raises(ValueError, match="sinusoidal_2d positions need a width divisible by 4, got 6"):
        made(SinusoidalGrid, (2, 3), dim=6)
    with pytest.raises(ValueError, match="rotary_mixed needs a head dim divisible by 4, got 6"):
        made(RotaryMixed, (2, 3), dim=12)
    with pytest.raises(ValueError, match="side must be an odd number of patches, got 2"):
        made(Convolutional, (2, 3), side=2)
    assert {cls.axes for cls in SCHEMES} == {2}
    needs = [sorted(cls.needs()) for cls in SCHEMES]
    assert needs == [["bias"], ["bias"], [], [], ["bias"], ["rotate"], ["rotate"], []]


@pytest.mark.parametrize(
    ("attention", "shared"),
    [(GroupedQuery.part(kv_heads=2), "GroupedQuery has 4 .* share 2"), (Latent.part(), "share 1")],
)
def test_heads_that_share_a_key_can_not_be_turned_each_by_itself(attention: Any, shared: str) -> None:
    parts = {"feed_forward": MLP.part(), "norm": RMSNorm.part(), "residual": Pre.part()}
    sizes: dict[str, Any] = {"dim": 32, "heads": 4, "layers": 1, "length": 6, "causal": False, "grid": (2, 3)}
    with pytest.raises(ValueError, match=f"RotaryMixed turns each head by angles of its own.*{shared}"):
        Stack(**sizes, attention=attention, position=RotaryMixed.part(), **parts)  # type: ignore[arg-type]
    Stack(**sizes, attention=attention, position=RotaryGrid.part(), **parts)  # type: ignore[arg-type]
