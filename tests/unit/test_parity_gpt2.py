"""GPT-2 against the transformers library: the same weights, inputs, outputs and gradients, both ways."""

from __future__ import annotations

import torch

from parity import compare, small_recipe

transformers = __import__("pytest").importorskip("transformers")


def test_gpt2_equals_transformers() -> None:
    config = transformers.GPT2Config(
        vocab_size=97, n_positions=32, n_embd=32, n_layer=3, n_head=4, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0
    )
    recipe = small_recipe("gpt2", vocab_size=97, max_length=32, layers=3, dim=32, heads=4)
    ids_BT = torch.randint(97, (2, 11), generator=torch.Generator().manual_seed(1))
    compare(
        recipe,
        "gpt2",
        transformers.GPT2LMHeadModel(config),
        ours=lambda model: model.head(model(ids_BT).hidden),
        theirs=lambda model: model(ids_BT).logits,
    )
