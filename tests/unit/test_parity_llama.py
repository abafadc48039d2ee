"""Llama, Mistral, Qwen 2 and GPT-NeoX against the transformers library, both ways, with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from parity import compare, small_recipe

transformers = pytest.importorskip("transformers")

V, T = 97, 13
IDS_BT = torch.randint(V, (2, T), generator=torch.Generator().manual_seed(1))
SIZES: dict[str, Any] = {"vocab_size": V, "max_length": 64, "layers": 3, "dim": 32, "heads": 4}
THEIRS: dict[str, Any] = {
    "vocab_size": V,
    "max_position_embeddings": 64,
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 4,
}
GATED: dict[str, Any] = {"intermediate_size": 88, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}


def llama(**parts: Any) -> Any:
    """Llama's parts at small sizes."""
    return small_recipe(
        "gpt2",
        **{
            **SIZES,
            "attention": {"name": "grouped_query", "kv_heads": 2, "bias": False},
            "position": "rotary",
            "feed_forward": {"name": "swiglu", "hidden": 88},
            "norm": {"name": "rms_norm", "eps": 1e-5},
            "head": {"name": "language_model", "tied": False},
            **parts,
        },
    )


def equal(recipe: Any, weights: str, other: Any) -> None:
    def ours(model: Any) -> Tensor:
        return model.head(model(IDS_BT).hidden)

    compare(recipe, weights, other, ours=ours, theirs=lambda model: model(IDS_BT).logits)


def test_llama_2() -> None:
    config = transformers.LlamaConfig(**THEIRS, **GATED)
    equal(llama(), "llama", transformers.LlamaForCausalLM(config))


def test_llama_3_2_with_stretched_wavelengths_and_a_tied_head() -> None:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    config = transformers.LlamaConfig(**THEIRS, **GATED, rope_parameters=scaling, tie_word_embeddings=True)
    stretched = {"factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0, "original_length": 16}
    recipe = llama(position={"name": "rotary", "theta": 500.0, "scaling": stretched}, head="language_model")
    equal(recipe, "llama", transformers.LlamaForCausalLM(config))


def test_mistral_with_a_window_shorter_than_the_text() -> None:
    config = transformers.MistralConfig(**THEIRS, **GATED, sliding_window=4, attn_implementation="eager")
    attention = {"name": "sliding_window", "window": 4, "kv_heads": 2, "bias": False}
    equal(llama(attention=attention), "llama", transformers.MistralForCausalLM(config))


def test_qwen2_with_biases_on_queries_keys_and_values_only() -> None:
    config = transformers.Qwen2Config(**THEIRS, **GATED, tie_word_embeddings=True)
    attention = {"name": "grouped_query", "kv_heads": 2, "output_bias": False}
    equal(llama(attention=attention, head="language_model"), "llama", transformers.Qwen2ForCausalLM(config))


@pytest.mark.parametrize("parallel", [True, False])
def test_gpt_neox_with_half_of_each_head_rotated(parallel: bool) -> None:
    rotary = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    config = transformers.GPTNeoXConfig(
        **THEIRS, intermediate_size=128, rope_parameters=rotary, use_parallel_residual=parallel
    )
    recipe = small_recipe(
        "gpt2",
        **SIZES,
        position={"name": "rotary", "fraction": 0.5},
        feed_forward={"name": "mlp", "activation": "gelu"},
        residual="parallel" if parallel else "pre",
        head={"name": "language_model", "tied": False},
    )
    equal(recipe, "gpt_neox", transformers.GPTNeoXForCausalLM(config))
