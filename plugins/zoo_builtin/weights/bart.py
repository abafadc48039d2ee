"""BART and its relatives as the transformers library stores them: ``BartForConditionalGeneration``, mBART, Marian.

They differ in what a model has: learned positions or computed ones, a norm over the embeddings or none, a norm at
the end of each side or none, a bias for each token (``final_logits_bias``) or zeros in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

import torch
from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.position import Position
from zoo.contracts.weights import Match, Weights, model_tensors

__all__ = ["BARTWeights"]

_PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


@final
class BARTWeights(Weights):
    """Names of BART."""

    architecture = "encoder_decoder"
    sample = {  # noqa: RUF012
        "embedding_norm": True,
        "position": {"name": "learned", "offset": 2},
        "feed_forward": {"name": "mlp", "activation": "gelu"},
        "final_norm": True,
        "head": {"name": "language_model", "bias": True},
    }

    def matches(self, model: Architecture) -> Iterator[Match]:
        """All tensors of such a model with a tied head."""
        yield Match("shared.weight", ("embedding.tokens.weight",))
        vocabulary = len(model_tensors(model)["embedding.tokens.weight"])
        yield Match("final_logits_bias", ("head.tied_bias.bias",), shape=(1, vocabulary))
        for side, norms in _NORMS.items():
            yield Match(f"{side}.embed_positions.weight", (f"{side}.positions.0.table.weight",))
            for layer, _ in enumerate(getattr(model, side).blocks):
                yield from _block(f"{side}.layers.{layer}", f"{side}.blocks.{layer}", norms)
            yield from _both(f"{side}.layernorm_embedding", f"{side}.embedding_norm.norm")
            yield from _both(f"{side}.layer_norm", f"{side}.final_norm.norm")

    def normalized(self, name: str) -> str:
        """Without the wrapper's ``model.``."""
        return name.removeprefix("model.")

    def implied(self, model: Architecture, theirs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The table's other names, a bias of 0, and sines where positions are computed."""
        names = model_tensors(model)
        known: dict[str, Tensor] = {}
        if "shared.weight" in theirs:
            tied = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
            known |= dict.fromkeys(tied, theirs["shared.weight"])
        if "head.tied_bias.bias" not in names:
            known["final_logits_bias"] = torch.zeros(1, len(names["embedding.tokens.weight"]))
        for side in ("encoder", "decoder"):
            name = f"{side}.embed_positions.weight"
            if f"{side}.positions.0.table.weight" not in names and name in theirs:
                known[name] = _computed(getattr(model, side).positions[0], *theirs[name].shape)
        return known


def _computed(scheme: Position, length: int, dim: int) -> Tensor:
    """(P, D) what a scheme without parameters adds to the embeddings."""
    at_BTA = torch.arange(length)[None, :, None]
    return scheme.embed(torch.zeros(1, length, dim, dtype=torch.float64), at_BTA)[0].float()


def _block(theirs: str, ours: str, norms: tuple[str, ...]) -> Iterator[Match]:
    attentions = {"self_attn": "attention"} | ({"encoder_attn": "cross_attention"} if len(norms) == 3 else {})
    for their, our in attentions.items():
        for short, long in _PROJECTIONS.items():
            yield from _both(f"{theirs}.{their}.{short}", f"{ours}.{our}.{long}")
    yield from _both(f"{theirs}.fc1", f"{ours}.feed_forward.up")
    yield from _both(f"{theirs}.fc2", f"{ours}.feed_forward.down")
    for place, norm in enumerate(norms):
        yield from _both(f"{theirs}.{norm}", f"{ours}.residual.norms.{place}.norm")


def _both(theirs: str, ours: str) -> Iterator[Match]:
    for kind in ("weight", "bias"):
        yield Match(f"{theirs}.{kind}", (f"{ours}.{kind}",))
