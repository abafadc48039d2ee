"""Vision transformers as timm stores them: ``vit_*``, ``deit_*``, distilled or not, ``vit_*_rope_*``, ``vit_relpos_*``.

timm fuses queries, keys and values, keeps the patches' projection as the kernel of a convolution, and has two names
for LayerScale: ``ls1.gamma``, and ``gamma_1`` in models with rotary positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights, same
from zoo.nn.vit_weights import kernel_match, row_matches, schemes

__all__ = ["ViTWeights"]


@final
class ViTWeights(Weights):
    """Names of timm."""

    architecture = "vit"
    heads = ("head", "head_dist", "fc_norm")

    def matches(self, model: Architecture) -> Iterator[Match]:
        """All tensors of a vision transformer, its positions and its classifier among them."""
        yield kernel_match(model, "patch_embed.proj.weight")
        yield Match("patch_embed.proj.bias", ("embedding.project.bias",))
        yield from row_matches(model, classes=("cls_token", "dist_token"), registers="reg_token", table="pos_embed")
        rotary = any(scheme.acts("rotate") for scheme in schemes(model))
        for layer, _ in enumerate(model.block_modules()):
            yield from _block(f"blocks.{layer}", f"stack.blocks.{layer}", "gamma_{}" if rotary else "ls{}.gamma")
        yield from _relative(model)
        yield from same("norm", "stack.final_norm.norm")
        yield from same("fc_norm", "head.norm.norm")
        yield from same("head", "head.scores")
        yield from same("head", "head.label")
        yield from same("head_dist", "head.teacher")


def _block(theirs: str, ours: str, scale: str) -> Iterator[Match]:
    for kind in ("weight", "bias"):
        fused = tuple(f"{ours}.attention.{name}.{kind}" for name in ("query", "key", "value"))
        yield Match(f"{theirs}.attn.qkv.{kind}", fused)
    yield from same(f"{theirs}.attn.proj", f"{ours}.attention.output")
    yield from same(f"{theirs}.mlp.fc1", f"{ours}.feed_forward.up")
    yield from same(f"{theirs}.mlp.fc2", f"{ours}.feed_forward.down")
    for branch in (0, 1):
        yield from same(f"{theirs}.norm{branch + 1}", f"{ours}.residual.norms.{branch}.norm")
        yield Match(f"{theirs}.{scale.format(branch + 1)}", (f"{ours}.residual.scales.{branch}.weight",))


def _relative(model: Architecture) -> Iterator[Match]:
    """A bias by offsets in each layer, or one that all layers share."""
    found = schemes(model)
    for index, scheme in enumerate(found):
        theirs = "shared_rel_pos" if len(found) == 1 else f"blocks.{index}.attn.rel_pos"
        ours = f"stack.positions.{index}"
        yield from same(f"{theirs}.mlp.fc1", f"{ours}.up")
        yield from same(f"{theirs}.mlp.fc2", f"{ours}.down")
        if scheme.acts("bias"):
            yield Match(f"{theirs}.relative_position_bias_table", (f"{ours}.table.weight",))
