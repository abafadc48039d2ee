"""Names of an encoder's tensors in the transformers library, which BERT and RoBERTa share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, same


def encoder_matches(model: Architecture) -> Iterator[Match]:
    """Embeddings and blocks, without the prefix of the model that has a head."""
    yield Match("embeddings.word_embeddings.weight", ("embedding.tokens.weight",))
    yield Match("embeddings.token_type_embeddings.weight", ("embedding.types.weight",))
    yield Match("embeddings.position_embeddings.weight", ("stack.positions.0.table.weight",))
    yield from same("embeddings.LayerNorm", "stack.embedding_norm.norm")
    for layer, _ in enumerate(model.block_modules()):
        theirs, ours = f"encoder.layer.{layer}", f"stack.blocks.{layer}"
        for name in ("query", "key", "value"):
            yield from same(f"{theirs}.attention.self.{name}", f"{ours}.attention.{name}")
        yield from same(f"{theirs}.attention.output.dense", f"{ours}.attention.output")
        yield from same(f"{theirs}.attention.output.LayerNorm", f"{ours}.residual.norms.0.norm")
        yield from same(f"{theirs}.intermediate.dense", f"{ours}.feed_forward.up")
        yield from same(f"{theirs}.output.dense", f"{ours}.feed_forward.down")
        yield from same(f"{theirs}.output.LayerNorm", f"{ours}.residual.norms.1.norm")


def token_head_matches(theirs: str, *, dense: str, norm: str) -> Iterator[Match]:
    """The head for hidden tokens, tied or not; ``dense`` and ``norm`` are its inner layers, behind ``theirs``."""
    yield from same(f"{theirs}.{dense}", "head.transform.dense")
    yield from same(f"{theirs}.{norm}", "head.transform.norm.norm")
    yield from same(f"{theirs}.decoder", "head.untied")
    yield Match(f"{theirs}.bias", ("head.tied_bias.bias",))


def second_names(theirs: str, model: Architecture, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of that head that a file holds twice: its bias, and the token table where it is tied."""
    if "head.tied_bias.bias" in dict(model.named_parameters()):
        first = {f"{theirs}.decoder.weight": "embeddings.word_embeddings.weight"}
        first |= {f"{theirs}.decoder.bias": f"{theirs}.bias"}
    else:
        first = {f"{theirs}.bias": f"{theirs}.decoder.bias"}
    return {second: state[name] for second, name in first.items() if name in state}
