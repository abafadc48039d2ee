"""T5 as the transformers library stores it: ``T5ForConditionalGeneration``, the original and v1.1.

No biases, one table of distances for each side; v1.1 has a gated feed-forward and a head of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights, model_tensors

__all__ = ["T5Weights"]

_ATTENTIONS = {
    "encoder": {"SelfAttention": "attention"},
    "decoder": {"SelfAttention": "attention", "EncDecAttention": "cross_attention"},
}
_PROJECTIONS = {"q": "query", "k": "key", "v": "value", "o": "output"}


@final
class T5Weights(Weights):
    """Names of T5."""

    architecture = "encoder_decoder"
    sample = {  # noqa: RUF012
        "attention": {"name": "multi_head", "bias": False, "scale": 1.0},
        "position": "t5",
        "feed_forward": {"name": "gated", "hidden": 24},
        "norm": "rms_norm",
        "residual": "pre",
        "head": {"name": "language_model", "tied": False},
    }

    def matches(self, model: Architecture) -> Iterator[Match]:
        """All tensors of a T5."""
        names = model_tensors(model).keys()
        yield Match("shared.weight", ("embedding.tokens.weight",))
        yield Match("lm_head.weight", ("head.untied.weight",))
        for side in ("encoder", "decoder"):
            table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            yield Match(table, (f"{side}.positions.0.table.weight",))
            for layer, _ in enumerate(getattr(model, side).blocks):
                theirs, ours = f"{side}.block.{layer}.layer", f"{side}.blocks.{layer}"
                gated = f"{ours}.feed_forward.gate.weight" in names
                yield from _block(theirs, ours, _ATTENTIONS[side], gated=gated)
            yield Match(f"{side}.final_layer_norm.weight", (f"{side}.final_norm.norm.weight",))

    def implied(self, model: Architecture, theirs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The table's other names; the head is one of them where it is tied."""
        names = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
        if "head.untied.weight" not in model_tensors(model):
            names.append("lm_head.weight")
        return dict.fromkeys(names, theirs["shared.weight"]) if "shared.weight" in theirs else {}


def _block(theirs: str, ours: str, attentions: Mapping[str, str], *, gated: bool) -> Iterator[Match]:
    for place, (their, our) in enumerate(attentions.items()):
        for short, long in _PROJECTIONS.items():
            yield Match(f"{theirs}.{place}.{their}.{short}.weight", (f"{ours}.{our}.{long}.weight",))
    place = len(attentions)
    layers = {"wi_0": "gate", "wi_1": "up"} if gated else {"wi": "up"}
    for short, long in {**layers, "wo": "down"}.items():
        yield Match(f"{theirs}.{place}.DenseReluDense.{short}.weight", (f"{ours}.feed_forward.{long}.weight",))
    for norm in range(place + 1):
        yield Match(f"{theirs}.{norm}.layer_norm.weight", (f"{ours}.residual.norms.{norm}.norm.weight",))
