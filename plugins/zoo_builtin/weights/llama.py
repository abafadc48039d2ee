"""Llama and its relatives as the transformers library stores them: ``Llama``, ``Mistral`` and ``Qwen2ForCausalLM``.

All three have the same names. Rotary positions pair element i of a head with element i + H/2 (``pairs: half``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights

__all__ = ["LlamaWeights"]

_PROJECTIONS = {"q": "query", "k": "key", "v": "value", "o": "output"}
_FEED_FORWARD = {"gate": "gate", "up": "up", "down": "down"}


@final
class LlamaWeights(Weights):
    """Names of Llama."""

    architecture = "gpt2"
    heads = ("lm_head", "score", "classifier", "qa_outputs")
    sample = {  # noqa: RUF012
        "attention": {"name": "grouped_query", "kv_heads": 2, "bias": False},
        "position": "rotary",
        "feed_forward": "swiglu",
        "norm": "rms_norm",
        "head": {"name": "language_model", "tied": False},
    }

    def matches(self, model: Architecture) -> Iterator[Match]:
        """All tensors of a Llama, the biases of a Qwen 2, and the head where it is not tied."""
        yield Match("embed_tokens.weight", ("embedding.tokens.weight",))
        for layer, _ in enumerate(model.block_modules()):
            theirs, ours = f"layers.{layer}", f"stack.blocks.{layer}"
            for kind in ("weight", "bias"):
                for their, our in _PROJECTIONS.items():
                    yield Match(f"{theirs}.self_attn.{their}_proj.{kind}", (f"{ours}.attention.{our}.{kind}",))
                for their, our in _FEED_FORWARD.items():
                    yield Match(f"{theirs}.mlp.{their}_proj.{kind}", (f"{ours}.feed_forward.{our}.{kind}",))
            yield Match(f"{theirs}.input_layernorm.weight", (f"{ours}.residual.norms.0.norm.weight",))
            yield Match(f"{theirs}.post_attention_layernorm.weight", (f"{ours}.residual.norms.1.norm.weight",))
        yield Match("norm.weight", ("stack.final_norm.norm.weight",))
        yield Match("lm_head.weight", ("head.untied.weight",))

    def normalized(self, name: str) -> str:
        """Without the wrapper's ``model.``."""
        return name.removeprefix("model.")

    def implied(self, model: Architecture, theirs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The head, where it is tied."""
        tied = "head.untied.weight" not in dict(model.named_parameters())
        return {"lm_head.weight": theirs["embed_tokens.weight"]} if tied and "embed_tokens.weight" in theirs else {}

    def ignored(self, name: str) -> bool:
        """Wavelengths that were a buffer once."""
        return name.endswith("rotary_emb.inv_freq")
