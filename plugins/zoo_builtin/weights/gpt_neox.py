"""GPT-NeoX and Pythia as the transformers library stores them: ``GPTNeoXForCausalLM`` and ``GPTNeoXModel``.

Queries, keys and values are fused head by head. Rotary positions turn the first quarter of each head, in halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights

__all__ = ["GPTNeoXWeights"]


@final
class GPTNeoXWeights(Weights):
    """Names and layouts of GPT-NeoX."""

    architecture = "gpt2"
    heads = ("embed_out", "score", "classifier", "qa_outputs")
    sample = {  # noqa: RUF012
        "position": {"name": "rotary", "fraction": 0.5},
        "feed_forward": {"name": "mlp", "activation": "gelu"},
        "residual": "parallel",
        "head": {"name": "language_model", "tied": False},
    }

    def matches(self, model: Architecture) -> Iterator[Match]:
        """All tensors of a GPT-NeoX."""
        yield Match("embed_in.weight", ("embedding.tokens.weight",))
        heads = model.config.heads
        for layer, _ in enumerate(model.block_modules()):
            theirs, ours = f"layers.{layer}", f"stack.blocks.{layer}"
            for kind in ("weight", "bias"):
                fused = tuple(f"{ours}.attention.{name}.{kind}" for name in ("query", "key", "value"))
                yield Match(f"{theirs}.attention.query_key_value.{kind}", fused, groups=heads)
                yield Match(f"{theirs}.attention.dense.{kind}", (f"{ours}.attention.output.{kind}",))
                yield Match(f"{theirs}.mlp.dense_h_to_4h.{kind}", (f"{ours}.feed_forward.up.{kind}",))
                yield Match(f"{theirs}.mlp.dense_4h_to_h.{kind}", (f"{ours}.feed_forward.down.{kind}",))
                yield Match(f"{theirs}.input_layernorm.{kind}", (f"{ours}.residual.norms.0.norm.{kind}",))
                yield Match(f"{theirs}.post_attention_layernorm.{kind}", (f"{ours}.residual.norms.1.norm.{kind}",))
        for kind in ("weight", "bias"):
            yield Match(f"final_layer_norm.{kind}", (f"stack.final_norm.norm.{kind}",))
        yield Match("embed_out.weight", ("head.untied.weight",))

    def normalized(self, name: str) -> str:
        """Without the wrapper's ``gpt_neox.``; what files call ``embed_out`` is ``lm_head`` in the library's model."""
        return "embed_out.weight" if name == "lm_head.weight" else name.removeprefix("gpt_neox.")

    def ignored(self, name: str) -> bool:
        """Masks and wavelengths that were buffers once."""
        return name.endswith(("attention.bias", "attention.masked_bias", "rotary_emb.inv_freq"))
