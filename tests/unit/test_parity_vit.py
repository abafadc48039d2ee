"""ViT against timm and the transformers library: the same weights, images, outputs and gradients, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from parity import compare, small_recipe
from zoo.builder import build_model
from zoo_builtin.weights.vit_hf import HFViTWeights

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")

IMAGES = torch.randn(2, 3, 24, 16, generator=torch.Generator().manual_seed(1))  # 3 x 2 patches of 8 x 8
SIZES = {"img_size": (24, 16), "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4, "num_classes": 7}


def recipe(**settings: Any) -> Any:
    """The same sizes here, with timm's epsilon and GELU."""
    settings = {
        "embedding": {"name": "patches", "patch_size": [8, 8]},
        "feed_forward": {"name": "mlp", "activation": "gelu"},
        "norm": {"name": "layer_norm", "eps": 1e-6},
        **settings,
    }
    sizes = {"image_size": [24, 16], "channels": 3, "classes": 7, "layers": 3, "dim": 32, "heads": 4}
    return small_recipe("vit", **sizes, **settings)


def equal(ours: Any, theirs: torch.nn.Module, weights: str = "vit") -> None:
    compare(
        ours,
        weights,
        theirs,
        ours=lambda model: model.head(model(IMAGES).hidden),
        theirs=lambda model: getattr(scores := model(IMAGES), "logits", scores),
    )


def patches(**knobs: Any) -> dict[str, Any]:
    return {"name": "patches", "patch_size": [8, 8], **knobs}


def vision_transformer(**settings: Any) -> torch.nn.Module:
    return timm.models.vision_transformer.VisionTransformer(**SIZES, **settings)


def test_vit_equals_timm() -> None:
    equal(recipe(), vision_transformer())


def test_registers_and_class_token_without_places_equal_timm() -> None:
    embedding = patches(registers=3, class_position=False)
    equal(recipe(embedding=embedding), vision_transformer(reg_tokens=3, no_embed_class=True))


def test_layer_scale_equals_timm() -> None:
    equal(recipe(residual={"name": "pre", "layer_scale": 0.3}), vision_transformer(init_values=0.3))


def test_the_mean_of_patches_behind_a_norm_equals_timm() -> None:
    head = {"name": "classification", "pool": "mean", "norm": True}
    equal(recipe(head=head, final_norm=False), vision_transformer(global_pool="avg"))
    embedding = patches(class_tokens=0)
    settings = {"global_pool": "avg", "class_token": False}
    equal(recipe(head=head, final_norm=False, embedding=embedding), vision_transformer(**settings))
    settings["fc_norm"] = False
    equal(recipe(head={**head, "norm": False}, embedding=embedding), vision_transformer(**settings))


def test_distilled_deit_equals_timm() -> None:
    distilled = timm.models.deit.VisionTransformerDistilled(**SIZES)
    equal(recipe(embedding=patches(class_tokens=2), head="distilled"), distilled)


def test_rotary_vit_equals_timm() -> None:
    """The published ``vit_base_patch16_rope_224``, narrower: axial rotation, the column first, at theta 100."""
    rotary = timm.create_model("vit_base_patch16_rope_224", **SIZES)
    equal(recipe(position="rotary_2d", residual={"name": "pre", "layer_scale": 1e-5}), rotary)


def relative(position: Any, **settings: Any) -> Any:
    return recipe(
        position=position,
        embedding=patches(class_tokens=0),
        attention={"name": "multi_head", "bias": False, "output_bias": True},
        residual={"name": "pre", "layer_scale": 1e-6},
        head={"name": "classification", "pool": "mean", "norm": True},
        final_norm=False,
        **settings,
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("position", "kind"), [("continuous_2d", "mlp"), ("relative_2d", "bias")])
def test_relative_vit_equals_timm(position: str, kind: str, shared: bool) -> None:
    """The published ``vit_relpos_base_patch16_224``, narrower, with its network or a table of offsets."""
    settings = {"rel_pos_type": kind, "shared_rel_pos": shared}
    theirs = timm.create_model("vit_relpos_base_patch16_224", **SIZES, **settings)
    equal(relative(position if shared else [position] * 3), theirs)


def transformers_config(**settings: Any) -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.ViTConfig(**sizes, **dropout, image_size=(24, 16), patch_size=8, **settings)


def test_vit_equals_transformers() -> None:
    theirs = transformers.ViTForImageClassification(transformers_config(num_labels=7))
    equal(recipe(norm={"name": "layer_norm", "eps": 1e-12}), theirs, "vit_hf")


def test_hidden_states_and_pooler_equal_transformers() -> None:
    ours = recipe(norm={"name": "layer_norm", "eps": 1e-12}, head="pooler")
    compare(
        ours,
        "vit_hf",
        transformers.ViTModel(transformers_config()),
        ours=lambda model: torch.cat([(hidden := model(IMAGES).hidden), model.head(hidden)[:, None]], 1),
        theirs=lambda model: torch.cat([(found := model(IMAGES)).last_hidden_state, found.pooler_output[:, None]], 1),
    )


def test_distilled_deit_equals_transformers() -> None:
    config = transformers.DeiTConfig(**transformers_config(num_labels=7).to_dict())
    ours = recipe(norm={"name": "layer_norm", "eps": 1e-12}, embedding=patches(class_tokens=2), head="distilled")
    equal(ours, transformers.DeiTForImageClassificationWithTeacher(config), "vit_hf")


def test_weights_go_into_a_file_that_transformers_reads(tmp_path: Path) -> None:
    theirs = transformers.ViTForImageClassification(transformers_config(num_labels=7)).eval()
    theirs.save_pretrained(tmp_path)
    model = build_model(recipe(norm={"name": "layer_norm", "eps": 1e-12})).eval()
    translate = HFViTWeights(HFViTWeights.Config())
    translate.load(model, load_file(tmp_path / "model.safetensors"))
    torch.testing.assert_close(model.head(model(IMAGES).hidden), theirs(IMAGES).logits, rtol=0, atol=1e-5)
    model.initialize(3)
    save_file(translate.save(model), tmp_path / "model.safetensors", {"format": "pt"})
    again = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(model.head(model(IMAGES).hidden), again(IMAGES).logits, rtol=0, atol=1e-5)
