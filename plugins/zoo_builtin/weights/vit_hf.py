"""Vision transformers as the transformers library stores them: ``ViTModel``, ``ViTForImageClassification``, and DeiT.

``ViTModel`` with its pooler is the head ``pooler``, ``DeiTForImageClassificationWithTeacher`` the head ``distilled``.
Their epsilon is 1e-12. Names are those of files; version 5 of the library has others in memory, which are read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights, same
from zoo.nn.vit_weights import kernel_match, row_matches

__all__ = ["HFViTWeights"]

_IN_MEMORY = {
    "layers.": "encoder.layer.",
    ".attention.q_proj.": ".attention.attention.query.",
    ".attention.k_proj.": ".attention.attention.key.",
    ".attention.v_proj.": ".attention.attention.value.",
    ".attention.o_proj.": ".attention.output.dense.",
    ".mlp.fc1.": ".intermediate.dense.",
    ".mlp.fc2.": ".output.dense.",
}


@final
class HFViTWeights(Weights):
    """Names of transformers."""

    architecture = "vit"
    heads = ("pooler", "classifier", "cls_classifier", "distillation_classifier")

    def matches(self, model: Architecture) -> Iterator[Match]:
        """The encoder and each head that there is."""
        yield kernel_match(model, "embeddings.patch_embeddings.projection.weight")
        yield Match("embeddings.patch_embeddings.projection.bias", ("embedding.project.bias",))
        yield from row_matches(
            model,
            classes=("embeddings.cls_token", "embeddings.distillation_token"),
            registers="embeddings.register_tokens",
            table="embeddings.position_embeddings",
        )
        for layer, _ in enumerate(model.block_modules()):
            yield from _block(f"encoder.layer.{layer}", f"stack.blocks.{layer}")
        yield from same("layernorm", "stack.final_norm.norm")
        yield from same("pooler.dense", "head.pooler.dense")
        yield from same("classifier", "head.scores")
        yield from same("cls_classifier", "head.label")
        yield from same("distillation_classifier", "head.teacher")

    def normalized(self, name: str) -> str:
        """Without the wrapper's ``vit.`` or ``deit.``, and as in a file."""
        name = name.removeprefix("vit.").removeprefix("deit.")
        if not name.startswith("layers."):
            return name
        for in_memory, in_file in _IN_MEMORY.items():
            name = name.replace(in_memory, in_file, 1)
        return name


def _block(theirs: str, ours: str) -> Iterator[Match]:
    for name in ("query", "key", "value"):
        yield from same(f"{theirs}.attention.attention.{name}", f"{ours}.attention.{name}")
    yield from same(f"{theirs}.attention.output.dense", f"{ours}.attention.output")
    yield from same(f"{theirs}.intermediate.dense", f"{ours}.feed_forward.up")
    yield from same(f"{theirs}.output.dense", f"{ours}.feed_forward.down")
    yield from same(f"{theirs}.layernorm_before", f"{ours}.residual.norms.0.norm")
    yield from same(f"{theirs}.layernorm_after", f"{ours}.residual.norms.1.norm")
