"""GPT-2 as the transformers library stores it: ``GPT2LMHeadModel`` and ``GPT2Model``.

Fused queries, keys and values, and weights as (inputs, outputs).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights

__all__ = ["GPT2Weights"]


@final
class GPT2Weights(Weights):
    """Names and layouts of GPT-2."""

    architecture = "gpt2"
    heads = ("lm_head", "score", "classifier")

    def matches(self, model: Architecture) -> Iterator[Match]:
        """All tensors of a GPT-2 with a tied head."""
        yield Match("wte.weight", ("embedding.tokens.weight",))
        yield Match("wpe.weight", ("stack.positions.0.table.weight",))
        for layer, _ in enumerate(model.block_modules()):
            theirs, ours = f"h.{layer}", f"stack.blocks.{layer}"
            for kind in ("weight", "bias"):
                fused = tuple(f"{ours}.attention.{name}.{kind}" for name in ("query", "key", "value"))
                linear = kind == "weight"
                yield Match(f"{theirs}.attn.c_attn.{kind}", fused, linear)
                yield Match(f"{theirs}.attn.c_proj.{kind}", (f"{ours}.attention.output.{kind}",), linear)
                yield Match(f"{theirs}.mlp.c_fc.{kind}", (f"{ours}.feed_forward.up.{kind}",), linear)
                yield Match(f"{theirs}.mlp.c_proj.{kind}", (f"{ours}.feed_forward.down.{kind}",), linear)
                yield Match(f"{theirs}.ln_1.{kind}", (f"{ours}.residual.norms.0.norm.{kind}",))
                yield Match(f"{theirs}.ln_2.{kind}", (f"{ours}.residual.norms.1.norm.{kind}",))
        for kind in ("weight", "bias"):
            yield Match(f"ln_f.{kind}", (f"stack.final_norm.norm.{kind}",))

    def normalized(self, name: str) -> str:
        """Without the wrapper's ``transformer.``."""
        return name.removeprefix("transformer.")

    def ignored(self, name: str) -> bool:
        """The tied head, and masks that were buffers once."""
        return name == "lm_head.weight" or name.endswith((".attn.bias", ".attn.masked_bias"))
