"""Values of the first layer in later ones: through a whole model, its cache, its recomputation, its two sides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attention_samples import EXACT, made, run, tokens
from parity import small_recipe
from zoo.builder import build_model
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.testing.module_case import scatter
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.value_residual import ValueResidual

SIZES: dict[str, Any] = {"vocab_size": 31, "layers": 3, "dim": 16, "heads": 4, "max_length": 32}


def model_of(attention: Any, architecture: str = "gpt2", **settings: Any) -> Any:
    model = build_model(small_recipe(architecture, **{**SIZES, "attention": attention, **settings}))
    scatter(model, 1)
    return model.double().eval()


def ids(batch: int, count: int) -> Tensor:
    return torch.randint(31, (batch, count), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("learned", [True, False])
def test_three_layers_are_the_equation(learned: bool, kernel: str) -> None:
    """Layer l attends as grouped_query does, with first v_0 + own v_l in place of its values."""
    layers = [
        made(ValueResidual, layer=layer, learned=learned, first=0.3, own=0.9, kernel=kernel) for layer in range(3)
    ]
    plain = made(GroupedQuery)
    x_BTD, notes, mask = tokens(), Notes(), Mask(causal=True)
    first_BTD = layers[0].value(x_BTD)
    want = x_BTD
    for layer in layers:
        first, own = (0.3, 0.9) if not learned else (None, None) if layer.layer == 0 else layer.shares.tolist()
        own_BTD = layer.value(want)
        plain.load_state_dict({name: value for name, value in layer.state_dict().items() if name != "shares"})
        v_BTD = own_BTD if layer.layer == 0 else first * first_BTD + own * own_BTD
        q, k, v = (y_BTD.unflatten(-1, (4, 4)).transpose(1, 2) for y_BTD in (layer.query(want), layer.key(want), v_BTD))
        weights = (q @ k.mT / 2).masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf).softmax(-1)
        want = layer.output((weights @ v).transpose(1, 2).flatten(2))
    got = x_BTD
    for layer in layers:
        got = run(layer, got, mask, notes=notes)
    torch.testing.assert_close(got, want, rtol=0, atol=EXACT)


@pytest.mark.parametrize("attention", ["value_residual", ["grouped_query", "value_residual"]])
def test_a_cached_model_is_the_full_pass(attention: Any) -> None:
    model, ids_BT = model_of(attention), ids(2, 9)
    want, cache, outs = model(ids_BT).hidden, Cache(), []
    with torch.no_grad():
        for piece in ids_BT.split([3, 1, 1, 4], 1):
            outs.append(model(piece, cache=cache).hidden)
    torch.testing.assert_close(torch.cat(outs, 1), want, rtol=0, atol=EXACT)


def test_the_cache_holds_as_much_as_that_of_grouped_query() -> None:
    sizes = []
    for name in ("value_residual", "grouped_query"):
        cache = Cache()
        model_of(name)(ids(1, 5), cache=cache)
        sizes.append(cache.bytes())
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("attention", ["value_residual", ["multi_head", "value_residual"]])
def test_every_parameter_has_a_gradient(attention: Any) -> None:
    """The bottom layer has no shares, and the first of its kind above it mixes its values with themselves."""
    model = model_of(attention)
    model(ids(2, 6)).hidden.square().sum().backward()
    without = [name for name, parameter in model.stack.named_parameters() if parameter.grad is None]
    assert not without
    has_shares = [hasattr(block.attention, "shares") for block in model.stack.blocks]
    assert has_shares == ([False, True, True] if attention == "value_residual" else [False, True, False])


def test_cross_attention_has_first_values_of_its_own() -> None:
    """Source and target differ in length, so that values of the wrong side would not even fit."""
    model = model_of("value_residual", "encoder_decoder", layers=2)
    notes, source_BS, target_BT = Notes(), ids(2, 7), ids(2, 4)
    whole = model(target_BT, source_BS=source_BS, notes=notes).hidden
    kept = {kind: notes.get(f"value_residual.{kind}").shape[2] for kind in ("self", "cross")}
    assert kept == {"self": 4, "cross": 7}
    assert notes.part("encoder").get("value_residual.self").shape[2] == 7
    cache, outs = Cache(), []
    with torch.no_grad():
        for piece in target_BT.split([1, 2, 1], 1):
            outs.append(model(piece, source_BS=source_BS, cache=cache).hidden)
    torch.testing.assert_close(torch.cat(outs, 1), whole, rtol=0, atol=EXACT)


def test_recomputed_blocks_have_the_same_gradients() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    gradients = []
    for recompute in (False, True):
        model = model_of("value_residual").train()
        if recompute:
            blocks = set(model.stack.blocks)
            apply_activation_checkpointing(model, check_fn=lambda module, blocks=blocks: module in blocks)
        model(ids(2, 6)).hidden.square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert len(gradients[0]) == len(gradients[1])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_layers_whose_values_do_not_fit_are_named() -> None:
    parts = [{"name": "value_residual", "kv_heads": heads} for heads in (4, 2)]
    with pytest.raises(ValueError, match=r"layer 1 has values \(1, 2, 3, 4\) and the first layer \(1, 4, 3, 4\)"):
        model_of(parts)(ids(1, 3))
