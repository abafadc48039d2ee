"""Variants of exact attention: each is its equation, written as loops, and a known attention in the limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attention_samples import EXACT, HEADS, MASKS, T, held_to_loops, made, run, scores, tokens, weights_of
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.initialization import initialize
from zoo_builtin.attention.additive import Additive
from zoo_builtin.attention.differential import Differential
from zoo_builtin.attention.forgetting import Forgetting
from zoo_builtin.attention.gated_output import GatedOutput
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.query_key_norm import QueryKeyNorm
from zoo_builtin.attention.relu import Relu
from zoo_builtin.attention.sigmoid import Sigmoid
from zoo_builtin.attention.sink import Sink
from zoo_builtin.attention.soft_capped import SoftCapped
from zoo_builtin.attention.talking_heads import TalkingHeads
from zoo_builtin.attention.top_k import TopK
from zoo_builtin.attention.value_residual import ValueResidual

CAUSAL = ("causal", "padded documents", "window")
# Equations


def additive(layer: Additive) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        sums = [(layer.hidden[n] * torch.tanh(q[n, t] + k[n, s])).sum() for s in seen]
        return (torch.stack(sums) / 2).softmax(0)  # 2 is the root of the head size

    return weigh


def talking_heads(layer: TalkingHeads) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        own = [scores(head, t, seen, q, k) for head in range(HEADS)]
        before, after = layer.talk_before, layer.talk_after
        heard = [sum(before[other, head] * own[other] for other in range(HEADS)) for head in range(HEADS)]
        return sum(after[other, n] * heard[other].softmax(0) for other in range(HEADS))  # type: ignore

    return weigh


def gated_heads(layer: GatedOutput) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        return scores(n, t, seen, q, k).softmax(0) * layer.gate(x[t])[n].sigmoid()

    return weigh


def forgetting(layer: Forgetting) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        def kept(s: int) -> Tensor:
            return sum((layer.forget(x[l])[n].sigmoid().log() for l in range(s + 1, t + 1)), x.new_zeros(()))  # noqa: E741

        return (scores(n, t, seen, q, k) + torch.stack([kept(int(s)) for s in seen])).softmax(0)

    return weigh


def sink(layer: Sink) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        shares = scores(n, t, seen, q, k).exp()
        return shares / (shares.sum() + (layer.sink[n].exp() if layer.config.learned else 1))

    return weigh


def sigmoid(layer: Sigmoid) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        offset = -math.log(len(seen)) if layer.config.offset is None else layer.config.offset
        return 1 / (1 + (-scores(n, t, seen, q, k) - offset).exp())

    return weigh


def relu(layer: Relu) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        return scores(n, t, seen, q, k).clamp(min=0) / len(seen) ** layer.config.exponent

    return weigh


def query_key_norm(layer: QueryKeyNorm) -> Callable[..., Tensor]:
    def rms(vector: Tensor, gamma: Tensor) -> Tensor:
        return gamma * vector / (vector.square().mean() + 1e-6).sqrt()

    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        if layer.config.learned_scale:
            cosines = [q[n, t] @ k[n, s] / (q[n, t].norm() * k[n, s].norm()) for s in seen]
            return (layer.learned_scale * torch.stack(cosines)).softmax(0)
        products = [rms(q[n, t], layer.query_norm.weight) @ rms(k[n, s], layer.key_norm.weight) / 2 for s in seen]
        return torch.stack(products).softmax(0)

    return weigh


def soft_capped(layer: SoftCapped) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        cap = layer.config.cap
        return (cap * (scores(n, t, seen, q, k) / cap).tanh()).softmax(0)

    return weigh


def top_k(layer: TopK) -> Callable[..., Tensor]:
    def weigh(n: int, t: int, seen: Tensor, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        own = scores(n, t, seen, q, k)
        order = sorted(range(len(seen)), key=lambda index: -float(own[index].detach()))
        chosen = torch.tensor(sorted(order[: layer.config.keys]))
        return torch.zeros_like(own).index_put((chosen,), own[chosen].softmax(0))

    return weigh


EQUATIONS = [
    pytest.param(cls, knobs, equation, mask, id=f"{cls.__name__} {knobs} {mask}")
    for cls, knobs, equation in [
        (Additive, {}, additive),
        (TalkingHeads, {"kv_heads": 2}, talking_heads),
        (GatedOutput, {"per": "head", "kv_heads": 2}, gated_heads),
        (Forgetting, {"kv_heads": 2}, forgetting),
        (Sink, {"kv_heads": 2}, sink),
        (Sink, {"learned": False, "kernel": "eager"}, sink),
        (Sink, {"learned": False}, sink),
        (Sigmoid, {}, sigmoid),
        (Sigmoid, {"offset": -1.5, "kv_heads": 2}, sigmoid),
        (Relu, {"kv_heads": 1}, relu),
        (Relu, {"exponent": 0.5}, relu),
        (QueryKeyNorm, {"kv_heads": 2}, query_key_norm),
        (QueryKeyNorm, {"learned_scale": True, "initial_scale": 3.0}, query_key_norm),
        (SoftCapped, {"cap": 1.5}, soft_capped),
        (TopK, {"keys": 2, "kv_heads": 2}, top_k),
    ]
    for mask in (CAUSAL if cls is Forgetting else MASKS)
]


@pytest.mark.parametrize(("cls", "knobs", "equation", "mask"), EQUATIONS)
def test_it_is_its_equation(cls: type[Any], knobs: dict[str, Any], equation: Any, mask: str) -> None:
    layer = made(cls, **knobs)
    held_to_loops(layer, MASKS[mask], equation(layer))


def test_a_token_of_padding_forgets_nothing() -> None:
    """In the middle of a row too, where a cache would not allow it."""
    layer, valid_BS = made(Forgetting), torch.tensor([[True, True, False, False, True, True]] * 2)
    x_BTD = tokens()
    want = run(layer, x_BTD[:, valid_BS[0]], Mask(causal=True))
    got = run(layer, torch.where(valid_BS[..., None], x_BTD, 1e6), Mask(causal=True, valid_BS=valid_BS))
    torch.testing.assert_close(got[:, valid_BS[0]], want, rtol=0, atol=EXACT)


def test_gates_of_elements_multiply_what_grouped_query_gives() -> None:
    layer, plain = made(GatedOutput), made(GroupedQuery)
    plain.load_state_dict({name: value for name, value in layer.state_dict().items() if "gate" not in name})
    layer.output = plain.output = torch.nn.Identity()
    x_BTD = tokens()
    want = run(plain, x_BTD, Mask(causal=True)) * layer.gate(x_BTD).sigmoid()
    torch.testing.assert_close(run(layer, x_BTD, Mask(causal=True)), want, rtol=0, atol=EXACT)


@pytest.mark.parametrize("norm_scale", [True, False])
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_differential_attention_is_its_equation(norm_scale: bool, kernel: str) -> None:
    layer = made(Differential, layer=2, norm_scale=norm_scale, kernel=kernel, bias=False)
    x_TD = tokens(1)[0]
    q, k, v = (project(x_TD) for project in (layer.query, layer.key, layer.value))
    first, second = layer.lambda_q1 @ layer.lambda_k1, layer.lambda_q2 @ layer.lambda_k2
    lambda_0 = 0.8 - 0.6 * math.exp(-0.6)
    balance = first.exp() - second.exp() + lambda_0
    heads = []
    for head in range(HEADS):
        maps = []
        for part in (head, head + HEADS):
            columns = slice(2 * part, 2 * part + 2)
            products = q[:, columns] @ k[:, columns].T / 2**0.5
            maps.append(products.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf).softmax(-1))
        mixed = (maps[0] - balance * maps[1]) @ v[:, 4 * head : 4 * head + 4]
        normed = mixed / (mixed.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        heads.append((1 - lambda_0) * normed * (layer.norm.weight if norm_scale else 1))
    want = layer.output(torch.cat(heads, -1))
    torch.testing.assert_close(run(layer, x_TD[None], Mask(causal=True))[0], want, rtol=0, atol=EXACT)


# Limits and numbers


def plain_twin(layer: Any) -> GroupedQuery:
    """Grouped-query attention with a layer's projections."""
    plain = made(GroupedQuery, kv_heads=layer.config.kv_heads, kernel="eager")
    plain.load_state_dict({name: value for name, value in layer.state_dict().items() if name in plain.state_dict()})
    return plain


@torch.no_grad()
def opened(layer: Any) -> Any:
    """Values at which a variant does nothing."""
    for name, value in layer.named_parameters():
        if name in ("gate.weight", "forget.weight"):
            value.zero_()
        elif name in ("gate.bias", "forget.bias"):
            value.fill_(60.0)  # sigmoid(60) is 1 to 1e-26
        elif name == "sink":
            value.fill_(-60.0)
        elif name == "shares":
            value.copy_(torch.tensor([0.0, 1.0]))
        elif name.startswith("talk"):
            value.copy_(torch.eye(HEADS))
    return layer


@pytest.mark.parametrize(
    ("cls", "knobs"),
    [
        (Forgetting, {}),
        (GatedOutput, {"per": "head"}),
        (GatedOutput, {}),
        (Sink, {"kernel": "eager"}),
        (Sink, {}),
        (SoftCapped, {"cap": 1e7}),  # a score of 3 is bent by 3 (3e-7)^2 / 3
        (TalkingHeads, {}),
        (TopK, {"keys": T}),
        (ValueResidual, {"layer": 1}),
        (ValueResidual, {"layer": 0}),
    ],
)
def test_where_it_does_nothing_it_is_grouped_query(cls: type[Any], knobs: dict[str, Any]) -> None:
    layer = opened(made(cls, kv_heads=2, **knobs))
    for mask in (MASKS[name] for name in (CAUSAL if cls is Forgetting else MASKS)):
        want = run(plain_twin(layer), tokens(), mask)
        torch.testing.assert_close(run(layer, tokens(), mask), want, rtol=0, atol=EXACT)


def test_with_one_key_and_score_zero_the_weights_are_known() -> None:
    """exp(0) / (exp(0) + exp(0)) with a sink at 0, sigmoid(0 - log 1), relu(0) / 1."""
    for cls, weight in ((Sink, 0.5), (Sigmoid, 0.5), (Relu, 0.0)):
        layer = made(cls)
        torch.nn.init.zeros_(layer.query.weight)
        torch.nn.init.zeros_(layer.query.bias)
        if cls is Sink:
            torch.nn.init.zeros_(layer.sink)
        assert weights_of(layer, Mask(causal=True))[:, :, 0, 0].unique().tolist() == [weight]


def test_sigmoid_weights_begin_with_a_sum_of_about_one() -> None:
    """With scores of 0 each of n weights is 1 / (n + 1)."""
    layer = made(Sigmoid)
    torch.nn.init.zeros_(layer.query.weight)
    torch.nn.init.zeros_(layer.query.bias)
    weights_BNTS = weights_of(layer, Mask(causal=True))
    want = torch.tensor([n / (n + 1) for n in range(1, T + 1)], dtype=torch.float64)
    torch.testing.assert_close(weights_BNTS.sum(-1), want.expand(2, HEADS, T), rtol=0, atol=EXACT)


def test_all_keys_that_share_the_last_place_stay() -> None:
    """Three keys are one token: with keys=2 the largest and all three of the second place are attended to."""
    layer = made(TopK, keys=2, heads=1)
    with torch.no_grad():
        for project in (layer.query, layer.key):
            project.weight.copy_(torch.eye(16))
            project.bias.zero_()
    x_BTD = torch.zeros(1, 5, 16, dtype=torch.float64)
    x_BTD[0, :, 0] = torch.tensor([2.0, 3.0, 2.0, 1.0, 2.0])
    notes = Notes(maps=True)
    run(layer, x_BTD, Mask(), notes=notes)
    weights_TS = notes.maps(0)[0, 0]
    assert (weights_TS > 0).tolist() == [[True, True, True, False, True]] * 5
    torch.testing.assert_close(weights_TS.sum(-1), torch.ones(5, dtype=torch.float64))


def test_the_sink_takes_what_no_key_should_have() -> None:
    layer = made(Sink, kernel="eager")
    with torch.no_grad():
        layer.sink.copy_(torch.tensor([-60.0, 0.0, 1.0, 60.0]))
    sums_BNT = weights_of(layer, Mask(causal=True)).sum(-1)
    torch.testing.assert_close(sums_BNT[:, 0], torch.ones(2, T, dtype=torch.float64), rtol=0, atol=EXACT)
    assert bool((sums_BNT[:, 2] < sums_BNT[:, 1].amax()).any() and (sums_BNT[:, 1:3] < 1).all())
    assert bool((sums_BNT[:, 3] < 1e-20).all())


def test_the_learned_scale_begins_where_henry_put_it() -> None:
    for length, want in ((1024, 19.998591), (None, 19.998591), (128, 13.988684), (1, 1.0)):
        layer = QueryKeyNorm.part(learned_scale=True)(dim=16, heads=4, length=length)
        layer.initial("learned_scale", layer.learned_scale.data, torch.Generator())
        assert layer.learned_scale.item() == pytest.approx(want, abs=1e-5)


def test_scores_between_normalized_heads_do_not_grow_with_their_input() -> None:
    """Weights times 1000 give the same map, up to the eps of 1e-6; scores stay below the root of the head size."""
    for knobs in ({"eps": 1e-30}, {"learned_scale": True, "initial_scale": 3.0}):
        layer, loud = made(QueryKeyNorm, bias=False, **knobs), made(QueryKeyNorm, bias=False, **knobs)
        with torch.no_grad():
            for project in (loud.query, loud.key):
                project.weight.mul_(1000)
        torch.testing.assert_close(weights_of(loud, Mask()), weights_of(layer, Mask()), rtol=0, atol=EXACT)


def test_published_initial_values() -> None:
    layers = {cls: made(cls, dim=256, layer=1) for cls in (Differential, Sink, TalkingHeads, ValueResidual)}
    for layer in layers.values():
        initialize(layer, 0, std=0.02, branch_std=0.01)
    assert layers[Sink].sink.tolist() == [0.0] * HEADS
    assert torch.equal(layers[TalkingHeads].talk_before, torch.eye(HEADS, dtype=torch.float64))
    assert layers[ValueResidual].shares.tolist() == [0.5, 0.5]
    vectors = torch.stack([getattr(layers[Differential], f"lambda_{name}") for name in ("q1", "k1", "q2", "k2")])
    assert 0.07 < float(vectors.detach().std()) < 0.13  # 128 draws: 0.1 within four deviations of its estimate


# Mistakes


@pytest.mark.parametrize(
    ("cls", "knobs", "message"),
    [
        (SoftCapped, {"cap": 0.0}, "cap must be above 0, got 0.0"),
        (TopK, {"keys": 0}, "a query must attend to at least 1 key, got 0"),
        (QueryKeyNorm, {"learned_scale": True, "scale": 1.0}, "the scale is learned, so it can't be 1.0"),
        (QueryKeyNorm, {"initial_scale": 2.0}, "initial_scale is 2.0, but no scale is learned"),
        (Sigmoid, {"kernel": "sdpa"}, "Sigmoid has no kernel sdpa; it has auto, eager"),
        (Differential, {"dim": 12}, "head size 3 of 4 heads can't be shared by 8 score heads"),
    ],
)
def test_what_can_not_be_made_is_named(cls: type[Any], knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(cls, **knobs)


@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True, prefix_B=torch.tensor([1]))])
def test_forgetting_refuses_what_has_no_direction(mask: Mask) -> None:
    with pytest.raises(ValueError, match=r"Forgetting was asked for (bidirectional|prefix)"):
        run(made(Forgetting), tokens(1), mask)
