"""The vision transformer as a whole: sizes of images, pooling, registers, what is refused, what training drops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.builder import build_model, check_buildable
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import load_recipe


def vit(tmp_path: Path, *, name: str = "vit", **settings: Any) -> Architecture:
    """A small model of 16 x 24 pixels in patches of 4 x 8: 4 rows, 3 columns."""
    sizes = {"image_size": [16, 24], "channels": 1, "classes": 5, "layers": 2, "dim": 16, "heads": 2}
    patches = {"name": "patches", "patch_size": [4, 8], **settings.pop("patches", {})}
    file = tmp_path / "preset" / "vit.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"architecture": {"name": name, **sizes, "embedding": patches, **settings}}))
    model = build_model(load_recipe(file)).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=0.2)
    return model


def images(height: int = 16, width: int = 24, batch: int = 2) -> Tensor:
    return torch.randn(batch, 1, height, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def scores(model: Architecture, pixels: Tensor) -> Tensor:
    return model.head(model(pixels).hidden)


@pytest.mark.parametrize("position", ["rotary_2d", "sinusoidal_2d", "none"])
@pytest.mark.parametrize("size", [(8, 8), (32, 16), (24, 40)])
def test_positions_without_a_bound_take_images_of_any_size(
    tmp_path: Path, position: str, size: tuple[int, int]
) -> None:
    found = scores(vit(tmp_path, position=position), images(*size))
    assert found.shape == (2, 5)
    assert found.isfinite().all()


@pytest.mark.parametrize("size", [(32, 24), (8, 24), (24, 16), (8, 48)])
def test_learned_positions_refuse_images_of_another_size(tmp_path: Path, size: tuple[int, int]) -> None:
    """8 x 48 has as many patches as 16 x 24, in other places."""
    told = f"images of {size[0]} x {size[1]} pixels have patches in other places than the learned ones.*16 x 24"
    with pytest.raises(ValueError, match=told):
        scores(vit(tmp_path), images(*size))


@pytest.mark.parametrize("position", ["relative_2d", "learned_2d", "continuous_2d"])
def test_tables_of_rows_and_columns_take_smaller_images_and_refuse_larger_ones(tmp_path: Path, position: str) -> None:
    model = vit(tmp_path, position=position)
    assert scores(model, images(8, 16)).isfinite().all()
    with pytest.raises(ValueError, match="column 3 is past the last learned one, 2"):
        scores(model, images(16, 32))


def test_rotary_scores_depend_on_offsets_so_a_moved_window_sees_the_same(tmp_path: Path) -> None:
    """Without class tokens hidden states don't depend on where patches are counted from."""
    model = vit(tmp_path, position="rotary_2d", patches={"class_tokens": 0}, head="pixels")
    places = model.embedding.positions
    before = model(images()).hidden
    model.embedding.positions = lambda inputs, axes: places(inputs, axes) + 5  # type: ignore[method-assign]
    torch.testing.assert_close(model(images()).hidden, before)


def test_rows_and_columns_are_not_swapped(tmp_path: Path) -> None:
    """An image turned on its side, its positions turned with it, has the same class token."""
    model = vit(tmp_path, position="sinusoidal_2d", patches={"patch_size": [4, 4]})
    pixels = images()
    turned = vit(tmp_path, position="sinusoidal_2d", patches={"patch_size": [4, 4]})
    weight_DRC = model.embedding.project.weight.unflatten(1, (4, 4))
    with torch.no_grad():
        turned.embedding.project.weight.copy_(weight_DRC.mT.flatten(1))
    places = turned.embedding.positions
    turned.embedding.positions = lambda inputs, axes: places(inputs, axes).flip(-1)  # type: ignore[method-assign]
    torch.testing.assert_close(scores(turned, pixels.mT), scores(model, pixels))


def test_the_mean_leaves_out_class_tokens_and_registers(tmp_path: Path) -> None:
    head = {"name": "classification", "pool": "mean"}
    model = vit(tmp_path, head=head, patches={"class_tokens": 1, "registers": 2})
    hidden = model(images()).hidden
    assert hidden.shape == (2, 15, 16)
    torch.testing.assert_close(model.head(hidden), model.head.scores(hidden[:, 3:].mean(1)))


def test_a_class_token_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pool: first reads a class token, and the embedding has none") as caught:
        vit(tmp_path, patches={"class_tokens": 0})
    assert "architecture.head" in str(caught.value)


def test_a_distilled_head_averages_two_classifiers_and_needs_two_class_tokens(tmp_path: Path) -> None:
    model = vit(tmp_path, head="distilled", patches={"class_tokens": 2})
    hidden = model(images()).hidden
    first, second = model.head.label(hidden[:, 0]), model.head.teacher(hidden[:, 1])
    torch.testing.assert_close(model.head(hidden), (first + second) / 2)
    with pytest.raises(UserError, match="a distilled head reads two class tokens, the embedding has 1"):
        vit(tmp_path, head="distilled")


@pytest.mark.parametrize("class_position", [True, False])
def test_every_learned_position_is_used(tmp_path: Path, class_position: bool) -> None:
    """Registers have no place, so there is no row for them that would get no gradient."""
    patches = {"class_tokens": 1, "registers": 2, "class_position": class_position}
    model = vit(tmp_path, patches=patches)
    scores(model, images()).square().sum().backward()
    table = model.stack.positions[0].table.weight
    assert len(table) == 12 + class_position
    assert table.grad.abs().sum(1).min() > 0


def test_every_parameter_has_a_gradient(tmp_path: Path) -> None:
    model = vit(tmp_path, residual={"name": "pre", "layer_scale": 0.1}, patches={"registers": 1}).train()
    scores(model, images()).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for name, p in model.named_parameters() if "key.bias" not in name)


def test_patches_run_through_the_causal_model_too(tmp_path: Path) -> None:
    model = vit(tmp_path, name="gpt2", head="pixels")
    pixels = images()
    moved = pixels.clone()
    moved[:, :, 8:, :] += 1  # the last two rows of patches
    before, after = model(pixels).hidden, model(moved).hidden
    torch.testing.assert_close(after[:, :7], before[:, :7])
    assert (after[:, 7:] - before[:, 7:]).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"image_size": [220, 224]}, "patches of 16 x 16 don't fill an image of 220 x 224"),
        ({"heads": 5}, "width 768 is not divisible by 5 heads"),
        ({"position": "rotary_2d", "heads": 128}, "rotary_2d needs a head dim divisible by 4, got 6"),
        ({"position": "sinusoidal_2d", "dim": 6, "heads": 2}, "need a width divisible by 4, got 6"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_data_is_read(
    tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    file = tmp_path / "images.yaml"
    data = {"name": "images", "source": "folder", "root": str(tmp_path / "absent"), "size": [224, 224]}
    architecture = {"name": "vit", "image_size": [224, 224], **settings}
    trainer = {"max_steps": 1}
    recipe = {"architecture": architecture, "data": data, "task": "image_classification", "trainer": trainer}
    file.write_text(json.dumps(recipe))
    with pytest.raises(UserError, match=told) as caught:
        check_buildable(load_recipe(file))
    assert "architecture" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("vit_digits", ()),
        ("vit_mnist1d", ()),
        ("gpt2_patches", ()),
        ("vit_masked_patches", ()),
        ("vit_small_imagefolder", ("data.root=absent",)),
        ("vit_base_imagefolder", ("data.root=absent",)),
    ],
)
def test_recipes_of_images_can_be_built(name: str, needed: tuple[str, ...]) -> None:
    check_buildable(load_recipe(name, needed))


def test_the_full_size_recipe_is_the_published_model(tmp_path: Path) -> None:
    """DeiT-S with the 1,000 classes that ImageNet's folder has."""
    recipe = load_recipe("vit_small_imagefolder", [f"data.root={tmp_path}"])
    model = build_model(recipe, Description(image_size=(224, 224), channels=3, classes=1000), device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == 22_050_664
    assert model.stack.blocks[11].residual.drop_path == 0.1
