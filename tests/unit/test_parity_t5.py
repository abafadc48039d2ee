"""T5 against the transformers library: the same weights, inputs, outputs and gradients, both ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parity import compare, small_recipe
from zoo.builder import build_model
from zoo.contracts.values.mask import Mask
from zoo.errors import UserError
from zoo_builtin.weights.t5 import T5Weights

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 97, "d_model": 32, "d_kv": 12, "d_ff": 40, "num_layers": 2, "num_heads": 3, "dropout_rate": 0.0}
RECIPE: dict[str, Any] = {
    "vocab_size": 97,
    "layers": 2,
    "dim": 32,
    "heads": 3,
    "attention": {"name": "multi_head", "size": 12, "scale": 1.0, "bias": False},
    "position": "t5",
    "norm": "rms_norm",
    "residual": "pre",
}
V1 = {"feed_forward": {"name": "mlp", "hidden": 40, "activation": "relu", "bias": False}}
V1 |= {"head": {"name": "language_model", "scale": True}}
V11 = {"feed_forward": {"name": "gated", "hidden": 40}, "head": {"name": "language_model", "tied": False}}


def t5(**settings: Any) -> nn.Module:
    made = transformers.T5ForConditionalGeneration(transformers.T5Config(**SIZES, **settings))
    if not settings["tie_word_embeddings"]:  # the library ties them nevertheless
        made.lm_head.weight = nn.Parameter(torch.zeros(97, 32))
        made.tie_weights = lambda: None
    return made


def batch() -> dict[str, Tensor]:
    """150 tokens, so that distances reach the last bucket; both sides are padded on the right."""
    generator = torch.Generator().manual_seed(1)
    source_BS, ids_BT = (torch.randint(97, (2, length), generator=generator) for length in (150, 140))
    lengths = {"source": [[150], [83]], "target": [[77], [140]]}
    valid = {
        side: torch.arange(size) < torch.tensor(lengths[side]) for side, size in {"source": 150, "target": 140}.items()
    }
    return {"source": source_BS, "ids": ids_BT, "source_valid": valid["source"], "valid": valid["target"]}


def ours(model: Any) -> Tensor:
    rows = batch()
    mask = Mask(causal=True, valid_BS=rows["valid"])
    hidden = model(rows["ids"], mask=mask, source_BS=rows["source"], source_valid_BS=rows["source_valid"]).hidden
    return model.head(hidden)[rows["valid"]]


def theirs(model: Any) -> Tensor:
    rows = batch()
    valid = {"attention_mask": rows["source_valid"], "decoder_attention_mask": rows["valid"]}
    return model(rows["source"], decoder_input_ids=rows["ids"], **valid).logits[rows["valid"]]


@pytest.mark.parametrize(
    ("parts", "settings"),
    [
        (V1, {"feed_forward_proj": "relu", "tie_word_embeddings": True}),
        (V11, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ],
    ids=["original", "v1.1"],
)
def test_t5_equals_transformers(parts: dict[str, Any], settings: dict[str, Any]) -> None:
    compare(small_recipe("encoder_decoder", **RECIPE, **parts), "t5", t5(**settings), ours=ours, theirs=theirs)


def test_a_tied_model_refuses_a_head_of_its_own() -> None:
    model = build_model(small_recipe("encoder_decoder", **RECIPE, **V1))
    state = T5Weights(T5Weights.Config()).save(model)
    before = model.embedding.table.clone()
    with pytest.raises(UserError, match=r"with values for which the model has no place \(lm_head\.weight\)"):
        T5Weights(T5Weights.Config()).load(model, {**state, "lm_head.weight": state["shared.weight"] + 1})
    assert torch.equal(model.embedding.table, before)
    T5Weights(T5Weights.Config()).load(model, {**state, "lm_head.weight": state["shared.weight"]})
