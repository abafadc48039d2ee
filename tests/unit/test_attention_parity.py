"""Attentions of published models against the implementations of other libraries, on the same weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attention_samples import EXACT, HEADS, MASKS, made, outcome, run, tokens
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.testing.module_case import scatter
from zoo_builtin.attention.differential import Differential
from zoo_builtin.attention.gated_output import GatedOutput
from zoo_builtin.attention.latent import Latent
from zoo_builtin.attention.query_key_norm import QueryKeyNorm
from zoo_builtin.attention.sink import Sink
from zoo_builtin.attention.soft_capped import SoftCapped
from zoo_builtin.attention.talking_heads import TalkingHeads
from zoo_builtin.position.rotary import Rotary

T = 6
FLOAT32 = 3e-6
"""Where they compute a softmax or a norm in float32: some roundings of 6e-8 in sums of a few dozen numbers near 1,
relative to the largest number of a tensor."""
MASK = Mask(causal=True, valid_BS=torch.tensor([[True] * T, [False, False] + [True] * (T - 2)]))
NAMES = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "output",
    "q_norm": "query_norm",
    "k_norm": "key_norm",
    "sinks": "sink",
    "q_a_proj": "query_latent",
    "q_a_layernorm": "query_norm",
    "q_b_proj": "query",
    "kv_a_proj_with_mqa": "latent",
    "kv_a_layernorm": "latent_norm",
    "kv_b_proj": "key_value",
}


def transformers_model(name: str, **settings: Any) -> tuple[Any, Any]:
    """The module of a model's source, and a small configuration that computes eagerly."""
    pytest.importorskip("transformers")
    from importlib import import_module

    short = re.sub("_", "", name)
    modeling = import_module(f"transformers.models.{name}.modeling_{name}")
    configuration = import_module(f"transformers.models.{name}.configuration_{name}")
    made_of = next(value for key, value in vars(configuration).items() if key.lower() == f"{short}config")
    small = {"hidden_size": 16, "num_attention_heads": HEADS, "num_key_value_heads": 2, "num_hidden_layers": 3}
    config = made_of(**{**small, **settings}, attn_implementation="eager")
    return modeling, config


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors under our names."""
    pattern = re.compile("^(" + "|".join(map(re.escape, NAMES)) + r")(?=\.|$)")
    return {pattern.sub(lambda found: NAMES[found[1]], name): value for name, value in state.items()}


def positions(mask: Mask) -> Tensor:
    return Cache().extend(mask, torch.zeros(2, T))[1][..., 0]


def added(mask: Mask, dtype: torch.dtype) -> Tensor:
    """The mask as they take it: a number added to the scores."""
    allowed = mask.sized(T, T).dense(torch.device("cpu"))
    assert allowed is not None
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)


def equal(ours: Any, theirs: nn.Module, tables: Any, scheme: Rotary, *, budget: float = FLOAT32) -> None:
    """Outputs of tokens, and gradients of the input and of every parameter, in the dtype of the modules."""
    dtype = next(theirs.parameters()).dtype
    x_BTD = tokens(dtype=dtype).requires_grad_()
    tokens_BT1 = MASK.valid_BS[..., None].to(dtype)  # they let queries of padding see everything
    got = run(ours, x_BTD, MASK, scheme=scheme)
    want, _ = theirs(x_BTD, position_embeddings=tables, attention_mask=added(MASK, dtype))
    got, want = (outcome(out * tokens_BT1, x_BTD, layer) for out, layer in ((got, ours), (want, theirs)))
    names = list(renamed(dict(theirs.named_parameters())))
    by_name = dict(zip(names, want[2:], strict=True))
    own_names = [name for name, _ in ours.named_parameters()]
    assert sorted(by_name) == sorted(own_names)
    pairs = [("output", got[0], want[0]), ("input", got[1], want[1])]
    pairs += [(name, value, by_name[name]) for name, value in zip(own_names, got[2:], strict=True)]
    errors = {name: float((a - b).abs().max()) / max(1.0, float(b.abs().max())) for name, a, b in pairs}
    assert max(errors.values()) <= budget, errors


def scattered(theirs: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    scatter(theirs, 3)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "sinks" in name:
                parameter.copy_(torch.linspace(-1, 2, HEADS))
    return theirs.to(dtype).eval()


def loaded(ours: Any, theirs: nn.Module) -> Any:
    ours.load_state_dict(renamed(theirs.state_dict()))
    return ours


def rotary(layer: Any, config: Any, **knobs: Any) -> Rotary:
    theta = config.rope_parameters["rope_theta"]
    return Rotary.part(theta=theta, **knobs)(dim=16, heads=layer.score_heads, size=layer.score_size)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_qwen_3(kernel: str) -> None:
    module, config = transformers_model("qwen3", head_dim=6)
    theirs = scattered(module.Qwen3Attention(config, 0))
    ours = made(QueryKeyNorm, dtype=torch.float32, kv_heads=2, size=6, bias=False, kernel=kernel)
    tables = module.Qwen3RotaryEmbedding(config)(tokens().float(), positions(MASK))
    equal(loaded(ours, theirs), theirs, tables, rotary(ours, config))


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_the_gate_of_qwen_3_next(kernel: str) -> None:
    """Its norms of queries and keys are another part, so they are left out."""
    module, config = transformers_model("qwen3_next", head_dim=8)
    theirs = module.Qwen3NextAttention(config, 0)
    theirs.q_norm = theirs.k_norm = nn.Identity()
    scattered(theirs)
    ours = made(GatedOutput, dtype=torch.float32, kv_heads=2, size=8, bias=False, kernel=kernel)
    query, gate = theirs.q_proj.weight.unflatten(0, (HEADS, 2, 8)).unbind(1)  # per head: query, gate
    parts = {"query.weight": query.flatten(0, 1), "gate.weight": gate.flatten(0, 1)}
    others = {name: value for name, value in renamed(theirs.state_dict()).items() if name != "query.weight"}
    ours.load_state_dict({**others, **parts})
    x_BTD = tokens(dtype=torch.float32)
    tables = module.Qwen3NextRotaryEmbedding(config)(x_BTD, positions(MASK))
    got = run(ours, x_BTD, MASK, scheme=rotary(ours, config, fraction=0.25))
    want, _ = theirs(x_BTD, position_embeddings=tables, attention_mask=added(MASK, torch.float32))
    torch.testing.assert_close(got[MASK.valid_BS], want[MASK.valid_BS], rtol=0, atol=FLOAT32)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("layer", [0, 2])
def test_differential_llama(layer: int, kernel: str) -> None:
    """Our value head j is their heads j and j + G side by side."""
    module, config = transformers_model("diffllama", num_attention_heads=8, num_key_value_heads=4)
    theirs = scattered(module.DiffLlamaAttention(config, layer))
    ours = made(Differential, dtype=torch.float32, layer=layer, kv_heads=2, bias=False, norm_scale=False, kernel=kernel)
    state = renamed(theirs.state_dict())
    state["value.weight"] = state["value.weight"].unflatten(0, (2, 2, 2)).transpose(0, 1).flatten(0, 2)
    ours.load_state_dict(state)
    x_BTD = tokens(dtype=torch.float32)
    tables = module.DiffLlamaRotaryEmbedding(config)(x_BTD, positions(MASK))
    got = run(ours, x_BTD, MASK, scheme=rotary(ours, config))
    want, _ = theirs(x_BTD, position_embeddings=tables, attention_mask=added(MASK, torch.float32))
    torch.testing.assert_close(got[MASK.valid_BS], want[MASK.valid_BS], rtol=0, atol=FLOAT32)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_gpt_oss(kernel: str) -> None:
    """In float64: they compute the whole of it in the dtype of the input, but for the angles."""
    module, config = transformers_model(
        "gpt_oss", head_dim=6, rope_parameters={"rope_type": "default", "rope_theta": 1e4}
    )
    theirs = scattered(module.GptOssAttention(config, 1), torch.float64)
    ours = made(Sink, kv_heads=2, size=6, kernel=kernel)
    scheme = rotary(ours, config)
    at_BTA = positions(MASK)[..., None]
    tables = [table[:, 0] for table in scheme.prepare(at_BTA, at_BTA)]
    equal(loaded(ours, theirs), theirs, tables, scheme, budget=EXACT)


def test_gemma_2() -> None:
    module, config = transformers_model("gemma2", head_dim=6, query_pre_attn_scalar=5, attn_logit_softcapping=0.7)
    theirs = scattered(module.Gemma2Attention(config, 1))
    ours = made(SoftCapped, dtype=torch.float32, kv_heads=2, size=6, bias=False, scale=5**-0.5, cap=0.7)
    tables = module.Gemma2RotaryEmbedding(config)(tokens().float(), positions(MASK))
    equal(loaded(ours, theirs), theirs, tables, rotary(ours, config))


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("absorb", ["never", "always"])
@pytest.mark.parametrize("query_rank", [None, 7])
@pytest.mark.parametrize("version", [2, 3])
def test_deepseek(version: int, query_rank: int | None, absorb: str, kernel: str) -> None:
    """Versions 2 and 3, with neighbours as pairs; attention_bias is on, though the published models have none."""
    name = f"deepseek_v{version}"
    sizes = {"kv_lora_rank": 8, "q_lora_rank": query_rank, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6}
    module, config = transformers_model(
        name, num_key_value_heads=HEADS, v_head_dim=5, head_dim=4, attention_bias=True, **sizes
    )
    theirs = scattered(getattr(module, f"DeepseekV{version}Attention")(config, 0))
    ours = made(
        Latent,
        dtype=torch.float32,
        rank=8,
        query_rank=query_rank,
        rotated=4,
        size=6,
        value_size=5,
        bias=True,
        absorb=absorb,
        kernel=kernel,
    )
    tables = getattr(module, f"DeepseekV{version}RotaryEmbedding")(config)(tokens().float(), positions(MASK))
    equal(loaded(ours, theirs), theirs, tables, rotary(ours, config, pairs="interleaved"))


@pytest.mark.parametrize("mask", ["open"])
def test_the_talking_heads_of_timm(mask: str) -> None:
    """CaiT adds biases over the heads, which the paper doesn't have; they are 0 here."""
    cait = pytest.importorskip("timm.models.cait")
    theirs = scattered(cait.TalkingHeadAttn(16, num_heads=HEADS, qkv_bias=True), torch.float64)
    for talk in (theirs.proj_l, theirs.proj_w):
        nn.init.zeros_(talk.bias)
    ours = made(TalkingHeads)
    state = {f"output.{name}": value for name, value in theirs.proj.state_dict().items()}
    for kind in ("weight", "bias"):
        parts = getattr(theirs.qkv, kind).chunk(3)
        state |= {f"{name}.{kind}": part for name, part in zip(("query", "key", "value"), parts, strict=True)}
    ours.load_state_dict({**state, "talk_before": theirs.proj_l.weight.T, "talk_after": theirs.proj_w.weight.T})
    torch.testing.assert_close(run(ours, tokens(), MASKS[mask]), theirs(tokens()), rtol=0, atol=EXACT)
