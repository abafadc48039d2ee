"""Mixtures of experts: a loop over tokens, Mixtral's, Switch's and DeepSeek's blocks, the balance loss, capacity."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.contracts.values.notes import Notes
from zoo.info.operations import count_products
from zoo.initialization import initialize
from zoo_builtin.feed_forward.mixture import Mixture

DIM, TOKENS = 8, 7


def made(layer: int = 0, **knobs: Any) -> Mixture:
    """In float64, with weights large enough that the router prefers some experts clearly."""
    module = Mixture(Mixture.Config(**{"experts": 4, "hidden": 12} | knobs), dim=DIM, layer=layer)
    initialize(module, 0, std=0.7, branch_std=0.7)
    return module.double()


def noise(batch: int = 2, tokens: int = TOKENS, seed: int = 1) -> Tensor:
    return torch.randn(batch, tokens, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def one_expert(experts: nn.Module, index: int, x_D: Tensor, function: Any) -> Tensor:
    up_F = experts.up.weight[index] @ x_D
    hidden_F = function(up_F) if experts.gate is None else function(experts.gate.weight[index] @ x_D) * up_F
    return experts.down.weight[index] @ hidden_F


def by_loop(module: Mixture, x_BTD: Tensor, dropped: set[tuple[int, int]] = frozenset()) -> Tensor:
    """One token after the other; ``dropped`` are (token, place among its choices)."""
    function = {"silu": F.silu, "relu": F.relu, "gelu": F.gelu}[module.config.activation]
    rows = []
    for token, x_D in enumerate(x_BTD.flatten(0, 1)):
        p_E = (module.router.weight @ x_D).softmax(-1)
        best = sorted(range(len(p_E)), key=lambda e, p=p_E: -p[e].item())[: module.config.top_k]
        total = sum(p_E[e] for e in best) if module.config.renormalize else 1.0
        row_D = torch.zeros_like(x_D)
        for place, e in enumerate(best):
            if (token, place) not in dropped:
                row_D = row_D + p_E[e] / total * one_expert(module.experts, e, x_D, function)
        rows.append(row_D if module.shared is None else row_D + one_expert(module.shared, 0, x_D, function))
    return torch.stack(rows).view(x_BTD.shape)


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"top_k": 3, "activation": "gelu"},
        {"top_k": 4, "experts": 4, "gated": False, "activation": "relu"},
        {"top_k": 1, "renormalize": False},
        {"renormalize": False, "shared": 2},
        {"experts": 16},
    ],
    ids=str,
)
def test_a_mixture_is_a_loop_over_tokens(knobs: dict[str, Any]) -> None:
    module, x_BTD = made(**knobs), noise().requires_grad_()
    got_BTD, want_BTD = module(x_BTD), by_loop(module, x_BTD)
    torch.testing.assert_close(got_BTD, want_BTD, atol=1e-13, rtol=1e-13)
    weights_BTD = noise(seed=5)
    tensors = [x_BTD, *module.parameters()]
    got = torch.autograd.grad((got_BTD * weights_BTD).sum(), tensors)
    want = torch.autograd.grad((want_BTD * weights_BTD).sum(), tensors, allow_unused=True)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, atol=1e-12, rtol=1e-12)


def test_one_expert_is_a_gated_mlp() -> None:
    module, x_BTD = made(experts=1, top_k=1, renormalize=False), noise()
    gate, up, down = (getattr(module.experts, name).weight[0] for name in ("gate", "up", "down"))
    torch.testing.assert_close(module(x_BTD), (F.silu(x_BTD @ gate.T) * (x_BTD @ up.T)) @ down.T)


def load(module: Mixture, other: nn.Module) -> None:
    """Weights of a block of the transformers library."""
    with torch.no_grad():
        module.router.weight.copy_(other.gate.weight)
        gate, up = other.experts.gate_up_proj.chunk(2, 1)
        module.experts.gate.weight.copy_(gate)
        module.experts.up.weight.copy_(up)
        module.experts.down.weight.copy_(other.experts.down_proj)


def scattered(other: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return other.double().eval()


def test_the_block_of_mixtral(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    monkeypatch.setattr(Tensor, "float", Tensor.double)  # their router would round to float32
    config = theirs.MixtralConfig(hidden_size=DIM, intermediate_size=12, num_local_experts=6, num_experts_per_tok=2)
    config._experts_implementation = "eager"
    other, module = scattered(theirs.MixtralSparseMoeBlock(config)), made(experts=6)
    load(module, other)
    x_BTD, weights_BTD = noise(), noise(seed=5)
    torch.testing.assert_close(module(x_BTD), other(x_BTD), atol=1e-13, rtol=0)
    (module(x_BTD) * weights_BTD).sum().backward()
    (other(x_BTD) * weights_BTD).sum().backward()
    gate_up = torch.cat([module.experts.gate.weight.grad, module.experts.up.weight.grad], 1)
    torch.testing.assert_close(gate_up, other.experts.gate_up_proj.grad, atol=1e-12, rtol=0)
    torch.testing.assert_close(module.experts.down.weight.grad, other.experts.down_proj.grad, atol=1e-12, rtol=0)
    torch.testing.assert_close(module.router.weight.grad, other.gate.weight.grad, atol=1e-12, rtol=0)


def test_the_block_of_deepseek_has_shared_experts_and_weights_that_are_not_renormalized() -> None:
    theirs = pytest.importorskip("transformers.models.deepseek_v2.modeling_deepseek_v2")
    config = theirs.DeepseekV2Config(
        hidden_size=DIM,
        num_attention_heads=2,
        moe_intermediate_size=12,
        num_experts_per_tok=3,
        n_shared_experts=2,
        n_routed_experts=8,
        topk_method="greedy",
        routed_scaling_factor=1.0,
    )
    config._experts_implementation = "eager"
    other, module = scattered(theirs.DeepseekV2Moe(config)), made(experts=8, top_k=3, shared=2, renormalize=False)
    load(module, other)
    with torch.no_grad():
        for name in ("gate", "up", "down"):
            getattr(module.shared, name).weight[0].copy_(getattr(other.shared_experts, f"{name}_proj").weight)
    x_BTD = noise()
    torch.testing.assert_close(module(x_BTD), other(x_BTD), atol=2e-6, rtol=0)


def test_the_block_of_switch_drops_tokens_for_which_their_expert_has_no_room() -> None:
    theirs = pytest.importorskip("transformers.models.switch_transformers.modeling_switch_transformers")
    config = theirs.SwitchTransformersConfig(d_model=DIM, d_ff=12, num_experts=4, expert_capacity=2, dropout_rate=0.0)
    other = scattered(theirs.SwitchTransformersSparseMLP(config))
    knobs = {"top_k": 1, "renormalize": False, "gated": False, "activation": "relu"}
    module = made(**knobs, capacity=2 * 4 / 12)  # 2 of 12 tokens for each of 4 experts
    with torch.no_grad():
        module.router.weight.copy_(other.router.classifier.weight)
        for index in range(4):
            module.experts.up.weight[index].copy_(other.experts[f"expert_{index}"].wi.weight)
            module.experts.down.weight[index].copy_(other.experts[f"expert_{index}"].wo.weight)
    x_BTD = noise(1, 12)
    got_BTD = module.train()(x_BTD)
    torch.testing.assert_close(got_BTD, other(x_BTD), atol=2e-6, rtol=0)
    assert int((got_BTD == 0).all(-1).sum()) >= 4  # 12 tokens, room for 8
    assert not (module.eval()(x_BTD) == 0).all(-1).any()


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 9),
    top_k=st.integers(1, 4),
    capacity=st.sampled_from([0.1, 0.5, 1.0, 1.25, 4.0]),
    padding=st.lists(st.booleans(), min_size=9, max_size=9),
    seed=st.integers(0, 99),
)
def test_first_choices_and_earlier_tokens_are_kept(
    tokens: int, top_k: int, capacity: float, padding: list[bool], seed: int
) -> None:
    module = made(top_k=top_k, capacity=capacity, renormalize=False).train()
    x_BTD, valid_BT = noise(1, tokens, seed), torch.tensor([padding[:tokens]])
    p_TE = (x_BTD[0] @ module.router.weight.T).softmax(-1)
    choices = p_TE.argsort(-1, descending=True)
    room = math.ceil(capacity * top_k * sum(padding[:tokens]) / 4)
    taken, dropped = [0] * 4, set()
    for place in range(top_k):
        for token in (token for token in range(tokens) if padding[token]):
            expert = int(choices[token, place])
            if taken[expert] >= room:
                dropped.add((token, place))
            taken[expert] += 1
    got_BTD, want_BTD = module(x_BTD, valid_BT=valid_BT), by_loop(module, x_BTD, dropped)
    torch.testing.assert_close(got_BTD[valid_BT], want_BTD[valid_BT], atol=1e-12, rtol=0)
    assert not got_BTD[~valid_BT].any()
    torch.testing.assert_close(module.eval()(x_BTD), by_loop(module, x_BTD), atol=1e-12, rtol=0)


def total_of(notes: Notes) -> float:
    total = notes.auxiliary_total()
    assert total is not None
    return total.item()


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_the_balance_loss_is_that_of_the_library(top_k: int, padded: bool) -> None:
    theirs = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    module, x_BTD, notes = made(top_k=top_k, renormalize=top_k > 1, balance=0.3), noise(3, 5), Notes()
    valid_BT = torch.arange(5) < torch.tensor([[5], [2], [4]])
    module(x_BTD, valid_BT=valid_BT if padded else None, notes=notes)
    logits_NE = (x_BTD @ module.router.weight.T).flatten(0, 1)
    mask_BT = valid_BT.long() if padded else None
    want = theirs.load_balancing_loss_func((logits_NE,), num_experts=4, top_k=top_k, attention_mask=mask_BT)
    tokens = 11 if padded else 15
    assert total_of(notes) == pytest.approx(0.3 * want.item() * tokens, rel=1e-6)  # theirs is float32
    assert notes._auxiliary["balance.0"][1] == tokens


def test_the_balance_loss_is_least_where_all_experts_are_used_alike() -> None:
    """Equal probabilities cost ``balance * top_k`` a token, whatever the ties; one expert for all costs E times it."""
    module = made(top_k=1, renormalize=False, balance=1.0)
    x_BTD = torch.ones(1, 10, DIM, dtype=torch.float64)
    costs = []
    for preference in (0.0, 100.0):
        with torch.no_grad():
            module.router.weight.zero_()
            module.router.weight[2].fill_(preference)
        notes = Notes()
        module(x_BTD, notes=notes)
        costs.append(total_of(notes))
    assert costs == pytest.approx([10.0, 40.0])


def test_losses_of_several_layers_add_up_and_none_are_left_without_a_factor() -> None:
    notes, x_BTD = Notes(), noise()
    made(layer=0)(x_BTD, notes=notes)
    one = total_of(notes)
    made(layer=1)(x_BTD, notes=notes)
    assert total_of(notes) == pytest.approx(2 * one)
    notes = Notes()
    made(balance=0.0)(x_BTD, notes=notes)
    assert notes.auxiliary_total() is None


def test_padding_that_is_no_number_stays_where_it_is() -> None:
    module, x_BTD, notes = made(), noise(), Notes()
    valid_BT = torch.arange(TOKENS) < torch.tensor([[TOKENS], [3]])
    spoiled_BTD = x_BTD.masked_fill(~valid_BT[..., None], torch.nan)
    got_BTD = module(spoiled_BTD, valid_BT=valid_BT, notes=notes)
    torch.testing.assert_close(got_BTD[valid_BT], module(x_BTD)[valid_BT], atol=1e-13, rtol=0)
    assert math.isfinite(total_of(notes))


def test_the_router_decides_in_float32_under_autocast_and_in_bfloat16() -> None:
    module = made(experts=16).bfloat16()
    x_BTD = noise(8, 64).bfloat16()
    exact = made(experts=16)
    exact.load_state_dict({name: value.double() for name, value in module.state_dict().items()})
    want_NE = exact._probabilities(x_BTD.double().flatten(0, 1))
    half_NE = module._probabilities(x_BTD.flatten(0, 1))
    with torch.autocast("cpu", torch.bfloat16):
        auto_NE = exact.float()._probabilities(x_BTD.float().flatten(0, 1))
    for got_NE in (half_NE, auto_NE):
        assert got_NE.dtype == torch.float32
        torch.testing.assert_close(got_NE.double(), want_NE, atol=1e-6, rtol=0)


def test_experts_begin_as_linear_layers_do() -> None:
    """A weight of 16,384 elements: its deviation is known to 0.6 %."""
    module = Mixture(Mixture.Config(hidden=64), dim=32)
    initialize(module, 0, std=0.02, branch_std=0.005)
    deviations = {name: value.std().item() for name, value in module.experts.named_parameters()}
    expected = {"gate.weight": 0.02, "up.weight": 0.02, "down.weight": 0.005}
    assert deviations == pytest.approx(expected, rel=0.03)
    assert not torch.equal(module.experts.up.weight[0], module.experts.up.weight[1])


def test_only_chosen_experts_are_paid_for() -> None:
    """Router D E, and three matrices of D F for each of the two experts and the shared one."""
    with torch.device("meta"):
        module = Mixture(Mixture.Config(hidden=24, shared=1), dim=16)
        x_BTD = torch.empty(1, 10, 16)
    assert count_products(lambda: module(x_BTD)) == (10 * (16 * 8 + 3 * 3 * 16 * 24), [])
    assert sum(parameter.numel() for parameter in module.parameters()) == 16 * 8 + 9 * 3 * 16 * 24
    assert module.idle_parameters() == 6 * 3 * 16 * 24


def test_default_sizes() -> None:
    assert Mixture(Mixture.Config(), dim=768).experts.up.weight.shape == (8, 2048, 768)
    plain = Mixture(Mixture.Config(gated=False, shared=2), dim=8)
    assert (plain.experts.up.weight.shape, plain.shared.up.weight.shape) == ((8, 32, 8), (1, 64, 8))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"top_k": 5}, "top_k must be between 1 and the number of experts, 4; got 5"),
        ({"top_k": 0}, "top_k must be between 1"),
        ({"top_k": 1}, "set renormalize to false"),
        ({"capacity": 0.0}, "capacity must be above 0, got 0.0; null drops no token"),
        ({"shared": -1}, "shared must be at least 0, got -1"),
    ],
)
def test_what_makes_no_sense_is_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**knobs)
