"""BART and Marian against the transformers library, both ways, and one block against torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parity import compare, small_recipe
from zoo.builder import build_model
from zoo.contracts.values.mask import Mask
from zoo.errors import UserError
from zoo_builtin.weights.bart import BARTWeights

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 97, "d_model": 32, "max_position_embeddings": 24, "dropout": 0.0}
SIZES |= {f"{side}_layers": layers for side, layers in (("encoder", 2), ("decoder", 3))}
SIZES |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
SIZES |= {f"{side}_ffn_dim": 40 for side in ("encoder", "decoder")}
RECIPE: dict[str, Any] = {
    "vocab_size": 97,
    "max_length": 24,
    "layers": 2,
    "decoder": {"layers": 3},
    "dim": 32,
    "heads": 4,
    "residual": "post",
}
BART = {
    "embedding_norm": True,
    "position": {"name": "learned", "offset": 2},
    "feed_forward": {"name": "mlp", "hidden": 40, "activation": "gelu"},
}
MARIAN = {
    "embedding": {"name": "tokens", "scale": True},
    "position": {"name": "sinusoidal", "layout": "halves"},
    "feed_forward": {"name": "mlp", "hidden": 40, "activation": "silu"},
    "head": {"name": "language_model", "bias": True},
}


def batch() -> dict[str, Tensor]:
    """Padded on the right on both sides; no padding id (1), whose gradient the library leaves out."""
    generator = torch.Generator().manual_seed(1)
    source_BS, ids_BT = (torch.randint(3, 97, (2, length), generator=generator) for length in (13, 11))
    source_valid = torch.arange(13) < torch.tensor([[13], [8]])
    valid = torch.arange(11) < torch.tensor([[5], [11]])
    return {"source": source_BS, "ids": ids_BT, "source_valid": source_valid, "valid": valid}


def ours(model: Any) -> Tensor:
    rows = batch()
    mask = Mask(causal=True, valid_BS=rows["valid"])
    hidden = model(rows["ids"], mask=mask, source_BS=rows["source"], source_valid_BS=rows["source_valid"]).hidden
    return model.head(hidden)[rows["valid"]]


def theirs(model: Any) -> Tensor:
    rows = batch()
    valid = {"attention_mask": rows["source_valid"], "decoder_attention_mask": rows["valid"]}
    return model(rows["source"], decoder_input_ids=rows["ids"], **valid).logits[rows["valid"]]


def test_bart_equals_transformers() -> None:
    other = transformers.BartForConditionalGeneration(transformers.BartConfig(**SIZES))
    compare(small_recipe("encoder_decoder", **RECIPE, **BART), "bart", other, ours=ours, theirs=theirs)


def test_marian_equals_transformers() -> None:
    settings = {"scale_embedding": True, "activation_function": "swish", "pad_token_id": 1}
    other = transformers.MarianMTModel(transformers.MarianConfig(**SIZES, **settings, decoder_start_token_id=1))
    other.final_logits_bias.normal_(0.0, 0.5)
    compare(small_recipe("encoder_decoder", **RECIPE, **MARIAN), "bart", other, ours=ours, theirs=theirs)


def test_a_bias_for_each_token_needs_a_head_that_has_one() -> None:
    model = build_model(small_recipe("encoder_decoder", **RECIPE, **BART))
    format_ = BARTWeights(BARTWeights.Config())
    state = {**format_.save(model), "final_logits_bias": torch.zeros(1, 97)}
    format_.load(model, state)
    state["final_logits_bias"][0, 5] = 1
    with pytest.raises(UserError, match=r"with values for which the model has no place \(final_logits_bias\)"):
        format_.load(model, state)


def test_learned_positions_are_not_taken_for_sines() -> None:
    model = build_model(small_recipe("encoder_decoder", **RECIPE, **MARIAN))
    format_ = BARTWeights(BARTWeights.Config())
    state = {**format_.save(model), "encoder.embed_positions.weight": torch.randn(24, 32)}
    with pytest.raises(UserError, match=r"has no place \(encoder\.embed_positions\.weight\)"):
        format_.load(model, state)


def torch_names(side: str, cross: bool) -> dict[str, str]:
    """Our names of a block's parts by those of torch's ``TransformerEncoderLayer`` or ``TransformerDecoderLayer``."""
    names = {"self_attn": "attention"} | ({"multihead_attn": "cross_attention"} if cross else {})
    pairs = {f"{theirs}.out_proj": f"{ours}.output" for theirs, ours in names.items()}
    pairs |= {"linear1": "feed_forward.up", "linear2": "feed_forward.down"}
    pairs |= {f"norm{place + 1}": f"residual.norms.{place}.norm" for place in range(3 if cross else 2)}
    return {theirs: f"{side}.blocks.0.{ours}" for theirs, ours in pairs.items()}


def filled_like_torch(model: Any, layer: nn.Module, side: str) -> None:
    """Give our block the numbers of torch's."""
    cross, own, given = side == "decoder", dict(model.named_parameters()), dict(layer.named_parameters())
    with torch.no_grad():
        for kind in ("weight", "bias"):
            for theirs, ours in torch_names(side, cross).items():
                own[f"{ours}.{kind}"].copy_(given[f"{theirs}.{kind}"])
            for theirs, ours in {"self_attn": "attention", "multihead_attn": "cross_attention"}.items():
                if f"{theirs}.in_proj_{kind}" in given:
                    parts = given[f"{theirs}.in_proj_{kind}"].chunk(3)
                    for name, part in zip(("query", "key", "value"), parts, strict=True):
                        own[f"{side}.blocks.0.{ours}.{name}.{kind}"].copy_(part)


@pytest.mark.parametrize(("residual", "norm_first"), [("post", False), ("pre", True)])
def test_a_block_of_each_side_equals_torchs(residual: str, norm_first: bool) -> None:
    recipe = small_recipe(
        "encoder_decoder",
        **{**RECIPE, "layers": 1, "decoder": {"layers": 1}, "residual": residual, "final_norm": False},
        position="none",
        feed_forward={"name": "mlp", "hidden": 40, "activation": "relu"},
    )
    model: Any = build_model(recipe).double().eval()
    settings = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first, "dtype": torch.float64}
    encoder = nn.TransformerEncoderLayer(32, 4, 40, **settings)
    decoder = nn.TransformerDecoderLayer(32, 4, 40, **settings)
    for side, layer in (("encoder", encoder), ("decoder", decoder)):
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.3)
        filled_like_torch(model, layer, side)
    rows = batch()
    table, unseen = model.embedding.table, ~rows["source_valid"]
    memory = encoder.train()(
        table[rows["source"]], src_key_padding_mask=unseen
    )  # in eval mode torch has a path of its own
    later = torch.ones(11, 11).triu(1).bool()
    want = decoder(table[rows["ids"]], memory, tgt_mask=later, memory_key_padding_mask=unseen)
    got = model(rows["ids"], source_BS=rows["source"], source_valid_BS=rows["source_valid"]).hidden
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
