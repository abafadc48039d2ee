"""Schemes around schemes: lifted to a grid, or at random places; built by recipes and examined by the kit."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from zoo.builder import build_model
from zoo.config import Slot
from zoo.contracts.position import Position
from zoo.contracts.values.place import Place
from zoo.errors import UserError
from zoo.initialization import initialize
from zoo.recipe import load_recipe
from zoo.testing.check import check
from zoo_builtin.position.alibi import Alibi
from zoo_builtin.position.axial import Axial
from zoo_builtin.position.convolutional import Convolutional
from zoo_builtin.position.cope import Cope
from zoo_builtin.position.learned import Learned
from zoo_builtin.position.randomised import Randomised
from zoo_builtin.position.rotary import Rotary
from zoo_builtin.position.rotary_2d import RotaryGrid
from zoo_builtin.position.shaw import Shaw
from zoo_builtin.position.sinusoidal import Sinusoidal
from zoo_builtin.position.sinusoidal_2d import SinusoidalGrid
from zoo_builtin.position.t5 import RelativeBuckets
from zoo_builtin.position.transformer_xl import TransformerXL
from zoo_builtin.position.xpos import XPos

GRID = (3, 4)
RASTER = torch.cartesian_prod(torch.arange(3), torch.arange(4))[None]


def axial(cls: type[Position], *, dim: int = 16, first: str = "row", grid: Any = GRID, **knobs: Any) -> Any:
    scheme = Axial.part(first=first)(scheme=cls.part(**knobs), dim=dim, heads=2, size=dim // 2, grid=grid)
    initialize(scheme, 0, std=0.5, branch_std=0.5)
    return scheme.double()


def randomised(
    cls: type[Position], *, range: int | None = 64, stride: int = 1, length: int | None = 8, **knobs: Any
) -> Any:
    made = Randomised.part(range=range, stride=stride)
    scheme = made(scheme=cls.part(**knobs), dim=16, heads=2, size=8, length=length)
    initialize(scheme, 0, std=0.5, branch_std=0.5)
    return scheme.double()


def heads_of(tokens: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 1, 2, tokens, 8, dtype=torch.float64)


def scores_of(scheme: Position, q: Tensor, k: Tensor, at_BTA: Tensor, *, scale: float = 0.7) -> Tensor:
    """(B, N, T, S) of rotated queries and keys, with the bias."""
    place = Place(scheme, at_BTA, at_BTA)
    call: Any = type("AnyCall", (), {"scale": scale})
    bias = place.bias(q, k, call)
    return scale * place.rotate(q) @ place.rotate_keys(k).transpose(-1, -2) + (0 if bias is None else bias)


# A grid


def test_axial_rotary_is_rotary_2d() -> None:
    knobs = {"theta": 100.0, "pairs": "interleaved"}
    ours, x = Place(axial(Rotary, first="column", **knobs), RASTER, RASTER), heads_of(12)[0]
    grid = Place(RotaryGrid.part()(dim=16, heads=2, size=8), RASTER, RASTER)
    torch.testing.assert_close(ours.rotate(x), grid.rotate(x), rtol=0, atol=1e-14)
    assert not torch.allclose(Place(axial(Rotary, **knobs), RASTER, RASTER).rotate(x), grid.rotate(x))


def test_axial_sinusoids_are_those_of_mae() -> None:
    x = torch.zeros(1, 12, 16, dtype=torch.float64)
    ours = axial(Sinusoidal, first="column", layout="halves").embed(x, RASTER)
    torch.testing.assert_close(
        ours, SinusoidalGrid.part()(dim=16, heads=2, size=8).embed(x, RASTER), rtol=0, atol=1e-14
    )


def test_axial_learned_has_a_table_of_half_the_width_for_rows_and_one_for_columns() -> None:
    scheme = axial(Learned)
    table = scheme.embed(torch.zeros(1, 12, 16, dtype=torch.float64), RASTER)[0]
    rows, columns = (part.table.weight for part in scheme.schemes)
    assert (rows.shape, columns.shape) == ((3, 8), (4, 8)) and scheme.bounded
    assert torch.equal(table[7], torch.cat([rows[1], columns[3]]))
    with pytest.raises(ValueError, match="position 3 is past the last learned one, 2"):
        scheme.embed(torch.zeros(1, 1, 16), torch.tensor([[[3, 0]]]))


def test_axial_alibi_takes_off_the_distance_along_the_streets() -> None:
    scores = scores_of(axial(Alibi), *torch.zeros(2, 1, 2, 12, 8, dtype=torch.float64), RASTER)[0]
    streets = (RASTER[0, :, None] - RASTER[0, None]).abs().sum(-1)
    assert torch.equal(scores, -torch.tensor([0.0625, 0.00390625], dtype=torch.float64)[:, None, None] * streets)


@pytest.mark.parametrize(
    ("cls", "knobs"),
    [(Shaw, {"reach": 2}), (TransformerXL, {"reach": 2}), (RelativeBuckets, {}), (XPos, {}), (Rotary, {})],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_scores_are_the_sum_of_both_halves(cls: type[Position], knobs: dict[str, Any]) -> None:
    """Each half of a head is a head of its own, in rows or in columns; neither is told that a model is causal."""
    scheme, (q, k) = axial(cls, **knobs), heads_of(12)
    assert [part.causal for part in scheme.schemes] == [False, False]
    want = sum(
        scores_of(part, q[..., half], k[..., half], RASTER[..., axis : axis + 1])
        for axis, (part, half) in enumerate(zip(scheme.schemes, (slice(4), slice(4, 8)), strict=True))
    )
    torch.testing.assert_close(scores_of(scheme, q, k, RASTER), want, rtol=0, atol=1e-12)


def test_what_can_not_be_lifted_is_named() -> None:
    for cls, message in [
        (RotaryGrid, "axial can't lift RotaryGrid, which stands on a grid already; choose another scheme"),
        (Cope, "axial can't lift Cope, which counts keys in a row"),
    ]:
        with pytest.raises(ValueError, match=message):
            axial(cls)
    with pytest.raises(ValueError, match="learned positions need a length"):
        axial(Learned, grid=None)
    with pytest.raises(ValueError, match="rotary needs an even head dim, got 3"):
        axial(Rotary, dim=12)


# Random places


def test_places_are_sorted_and_drawn_from_the_whole_range_without_repeats() -> None:
    scheme, at_BTA = randomised(Learned), torch.arange(8)[None, :, None]
    torch.manual_seed(0)
    drawn = torch.stack([scheme._drawn(8, at_BTA)[0][0, :, 0] for _ in range(2000)])
    assert (drawn.diff(dim=1) > 0).all() and int(drawn.min()) == 0 and int(drawn.max()) == 63
    # The t-th of 8 out of 64, counted from 0, is at (t + 1) 65 / 9 - 1 on average, give or take 10 / sqrt(2000).
    want = (torch.arange(8) + 1) * 65 / 9 - 1
    torch.testing.assert_close(drawn.double().mean(0), want.double(), rtol=0, atol=1.0)


@pytest.mark.parametrize("cls", [Learned, Rotary, Shaw, Alibi])
def test_the_scheme_gets_the_places_that_were_drawn(cls: type[Position]) -> None:
    scheme, at_BTA, (q, k) = randomised(cls), torch.tensor([0, 1, 2, 0, 1, 5])[None, :, None], heads_of(6)
    x_BTD, inner = torch.randn(1, 6, 16, dtype=torch.float64), scheme.schemes[0]
    torch.manual_seed(3)
    (drawn_BTA,) = scheme._drawn(6, at_BTA)
    assert torch.equal(drawn_BTA[:, :2], drawn_BTA[:, 3:5])  # the same places in both documents
    torch.manual_seed(3)
    if scheme.acts("embed"):
        assert torch.equal(scheme.embed(x_BTD, at_BTA), inner.embed(x_BTD, drawn_BTA))
    else:
        assert torch.equal(scores_of(scheme, q, k, at_BTA), scores_of(inner, q, k, drawn_BTA))


def test_a_token_past_all_others_goes_on_past_the_range() -> None:
    (drawn_BTA,) = randomised(Rotary)._drawn(6, torch.tensor([0, 5, 6, 100])[None, :, None])
    assert drawn_BTA[0, :, 0].tolist()[2:] == [64, 64 + 94] and int(drawn_BTA[0, 1]) < 64


def test_evaluation_draws_nothing() -> None:
    scheme, at_BTA, (q, k) = randomised(Rotary, stride=8).eval(), torch.arange(6)[None, :, None], heads_of(6)
    assert torch.equal(scores_of(scheme, q, k, at_BTA), scores_of(scheme.schemes[0], q, k, 8 * at_BTA))
    scheme.train()
    torch.manual_seed(0)
    assert not torch.equal(scores_of(scheme, q, k, at_BTA), scores_of(scheme, q, k, at_BTA))


def test_ranges_that_are_too_short_are_named() -> None:
    with pytest.raises(
        ValueError, match="randomised can't place 8 tokens 10 apart in a range of 64; make range larger"
    ):
        randomised(Rotary, stride=10)
    with pytest.raises(ValueError, match="randomised can't place 65 tokens in a range of 64"):
        randomised(Rotary, length=None)._drawn(65, torch.zeros(1, 1, 1))
    with pytest.raises(ValueError, match="randomised draws places in a row, and RotaryGrid takes a grid"):
        randomised(RotaryGrid)
    with pytest.raises(ValueError, match=r"how far places go; set its range, or architecture\.max_length"):
        randomised(Rotary, range=None, length=None)
    assert randomised(Learned, range=None).schemes[0].table.num_embeddings == 8 * 8
    with pytest.raises(ValueError, match="position 8 is past the last learned one, 7"):
        randomised(Learned).embed(torch.zeros(1, 1, 16), torch.tensor([[[8]]]))


# Recipes and the kit


def built(preset: str, position: str, **sizes: Any) -> Any:
    changes = {"layers": 2, "dim": 16, "heads": 2, **sizes}
    overrides = [
        f"architecture.position={position}",
        *(f"architecture.{key}={value}" for key, value in changes.items()),
    ]
    return build_model(load_recipe(preset, overrides))


def test_a_recipe_says_what_is_in_the_slot() -> None:
    model = built("preset/gpt2", "{name: randomised, range: 100, scheme: {name: rotary, fraction: 0.5}}", max_length=16)
    (scheme,) = model.stack.positions
    assert isinstance(scheme, Randomised) and scheme.schemes[0].rotated == 4
    recipe = load_recipe("preset/gpt2", ["architecture.position=randomised"])
    assert recipe.component("architecture.position.scheme").name == "rotary"
    stacked = "{name: randomised, range: 100, scheme: {name: randomised, range: 100, scheme: alibi}}"
    (scheme,) = built("preset/gpt2", stacked, max_length=16).stack.positions
    assert isinstance(scheme.schemes[0].schemes[0], Alibi)


def test_an_image_model_has_a_lifted_scheme_in_each_layer() -> None:
    position = "[{name: axial, scheme: {name: shaw, reach: 3}}, {name: axial, first: column, scheme: alibi}]"
    model = built("preset/vit_base_patch16_224", position, image_size="[32,48]", classes=3)
    first, second = model.stack.positions
    assert isinstance(first.schemes[0], Shaw) and first.content and isinstance(second.schemes[1], Alibi)
    assert model(torch.randn(1, 3, 32, 48)).hidden.shape == (1, 7, 16)
    assert (
        not built("preset/vit_base_patch16_224", "{name: axial, scheme: none}", classes=3)
        .stack.positions[0]
        .acts("bias")
    )


def test_needs_of_the_scheme_in_the_slot_are_those_of_the_recipe() -> None:
    with pytest.raises(
        UserError, match=r"position shaw needs an attention that offers '(content_)?bias'; linear offers"
    ):
        load = ["architecture.attention=linear", "architecture.position={name: randomised, scheme: shaw}"]
        build_model(load_recipe("preset/gpt2", load))


def test_a_mistake_in_the_slot_is_told_with_its_place() -> None:
    with pytest.raises(UserError) as caught:
        built("preset/vit_base_patch16_224", "{name: axial, scheme: {name: shaw, reach: 0}}", classes=3)
    assert "reach must be at least 1, got 0" in str(caught.value)
    assert "architecture.position.scheme" in caught.value.where
    with pytest.raises(UserError, match="axial can't lift Cope, which counts keys in a row"):
        built("preset/vit_base_patch16_224", "{name: axial, scheme: cope}", classes=3)


def wrapped(cls: type[Position], name: str, part: type[Position]) -> type[Position]:
    """The component with another default in its slot, as a class that the kit can examine."""

    class Of(cls):  # type: ignore[misc, valid-type]
        slots: ClassVar[Any] = {"scheme": Slot("position", name)}
        content = part.content
        bounded = part.bounded

    return Of


INSIDE = {"learned": Learned, "shaw": Shaw, "sinusoidal": Sinusoidal, "t5": RelativeBuckets}
"""One that is bound, one that reads content, one that adds to embeddings, one that asks whether a model is causal."""


@pytest.mark.slow
@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("cls", [Axial, Randomised])
def test_the_kit_passes_whatever_is_in_the_slot(cls: type[Position], name: str) -> None:
    report = check(wrapped(cls, name, INSIDE[name]))
    assert not report.count("failed"), report.text()


def test_a_scheme_that_mixes_tokens_is_not_for_causal_models() -> None:
    with pytest.raises(ValueError, match="convolutional looks at patches on all sides, which a causal model must not"):
        Convolutional.part()(dim=4, heads=1, size=4, grid=GRID, causal=True)
