"""Initial values are a pure function of the seed and each parameter's name; ties are never lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from zoo.initialization import NotFilledError, initialize
from zoo.nn.single_stack import published_std
from zoo_builtin.architecture.gpt2 import GPT2
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mixture import Mixture
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.residual.deep_norm import DeepNorm
from zoo_builtin.residual.pre import Pre


def gpt2(attention: Any = None, layers: int = 2, residual: Any = None, feed_forward: Any = None, **sizes: Any) -> GPT2:
    return GPT2(
        GPT2.Config(**{"vocab_size": 40, "max_length": 16, "layers": layers, "dim": 64, "heads": 4} | sizes),
        attention=attention or MultiHead.part(),
        position=Learned.part(),
        feed_forward=feed_forward or MLP.part(),
        norm=LayerNorm.part(),
        residual=residual or Pre.part(),
        embedding=Tokens.part(),
        head=LanguageModel.part(),
    )


def started(model: GPT2, seed: int = 0) -> GPT2:
    model.initialize(seed)
    return model


def test_same_seed_same_values_whatever_the_generator_did() -> None:
    first = started(gpt2()).state_dict()
    torch.rand(7)
    second, other = started(gpt2()).state_dict(), started(gpt2(), seed=1).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["embedding.tokens.weight"], other["embedding.tokens.weight"])


def test_models_that_share_a_part_start_equal_in_it() -> None:
    one, two = started(gpt2()).state_dict(), started(gpt2(GroupedQuery.part(kv_heads=2))).state_dict()
    shared = [name for name in one if one[name].shape == two[name].shape]
    assert "stack.blocks.1.feed_forward.up.weight" in shared
    assert "stack.blocks.0.attention.key.weight" not in shared
    assert all(torch.equal(one[name], two[name]) for name in shared)


def test_deviations_are_the_published_ones() -> None:
    """32,768 samples: the sample deviation is within 2 % of the true one by more than five standard errors."""
    state = started(gpt2(dim=256, layers=3, initial_std=0.02)).state_dict()
    assert state["stack.blocks.0.feed_forward.up.weight"].std().item() == pytest.approx(0.02, rel=0.02)
    assert state["stack.blocks.2.feed_forward.down.weight"].std().item() == pytest.approx(0.02 / 6**0.5, rel=0.02)
    assert state["stack.blocks.2.attention.output.weight"].std().item() == pytest.approx(0.02 / 6**0.5, rel=0.02)
    assert not state["stack.blocks.0.attention.query.bias"].any()
    assert state["stack.final_norm.norm.weight"].eq(1).all()


def test_a_residual_arrangement_may_scale_the_branches_of_its_block() -> None:
    """DeepNorm's beta for 3 layers, 24^(-1/4), in place of GPT-2's smaller outputs; deviations as sure as above."""
    sizes = {"dim": 256, "layers": 3, "initial_std": 0.02}
    before, state = (started(gpt2(**sizes, residual=cls.part())).state_dict() for cls in (Pre, DeepNorm))
    for name in ("attention.value", "attention.output", "feed_forward.up", "feed_forward.down"):
        deviation = state[f"stack.blocks.1.{name}.weight"].std().item()
        assert deviation == pytest.approx(0.02 * 24**-0.25, rel=0.02), name
        assert not state[f"stack.blocks.1.{name}.bias"].any()
    unchanged = [name for name in state if "query" in name or "key" in name or "blocks" not in name]
    assert len(unchanged) == 14
    assert all(torch.equal(before[name], state[name]) for name in unchanged)
    assert state["stack.blocks.2.residual.norms.1.norm.weight"].eq(1).all()


def test_experts_begin_as_other_feed_forwards_do() -> None:
    model = started(gpt2(dim=256, layers=3, initial_std=0.02, feed_forward=Mixture.part(experts=4, hidden=64)))
    state = model.state_dict()
    experts = "stack.blocks.0.feed_forward.experts"
    assert state[f"{experts}.up.weight"].std().item() == pytest.approx(0.02, rel=0.02)
    assert state[f"{experts}.down.weight"].std().item() == pytest.approx(0.02 / 6**0.5, rel=0.02)


@pytest.mark.parametrize(("dim", "std"), [(768, 0.02), (192, 0.04), (3072, 0.01)])
def test_a_sum_over_the_width_begins_as_large_at_any_width(dim: int, std: float) -> None:
    assert published_std(dim) == pytest.approx(std)


def test_a_model_from_the_meta_device_equals_one_made_in_place() -> None:
    with torch.device("meta"):
        model = gpt2()
    model.to_empty(device="cpu")
    state, expected = started(model).state_dict(), started(gpt2()).state_dict()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


def test_the_tie_survives_everything() -> None:
    """The head has no tensor of its own, so nothing can separate it from the token table."""
    with torch.device("meta"):
        model = gpt2()
    model.to_empty(device="cpu")
    model.load_state_dict(started(gpt2()).state_dict(), assign=True)
    model = copy.deepcopy(model).to(torch.bfloat16).to(torch.float64)
    assert model.head.weight is model.embedding.tokens.weight
    assert "head.untied.weight" not in model.state_dict()
    ids = torch.tensor([[1, 2, 3]])
    model.head(model(ids).hidden).sum().backward()
    hidden = model(ids).hidden.detach()
    through_head = hidden.sum((0, 1)).expand_as(model.embedding.tokens.weight)
    unused = [row for row in range(40) if row not in (1, 2, 3)]
    torch.testing.assert_close(model.embedding.tokens.weight.grad[unused], through_head[unused])
    assert not torch.allclose(model.embedding.tokens.weight.grad[1:4], through_head[1:4])


def test_a_parameter_that_nobody_fills_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(3))

    with pytest.raises(NotFilledError, match=r"Odd has a parameter gain of its own and no method initial\("):
        initialize(Odd(), 0, std=0.02, branch_std=0.02)


def test_a_parameter_that_is_left_out_is_named() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain, self.shift = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

        def initial(self, name: str, parameter: torch.Tensor, generator: torch.Generator) -> None:
            if name == "shift":
                parameter.zero_()

    with pytest.raises(NotFilledError, match=r"Forgetful\.initial left gain unfilled"):
        initialize(Forgetful(), 0, std=0.02, branch_std=0.02)
