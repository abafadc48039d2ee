"""Feed-forward networks and residual arrangements: published values and counts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from zoo.nn.activations import activate
from zoo_builtin.feed_forward.gated import Gated
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.feed_forward.swiglu import SwiGLU
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.residual.post import Post
from zoo_builtin.residual.pre import Pre


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("gelu", 0.841344746), ("gelu_tanh", 0.841191991), ("relu", 1.0), ("squared_relu", 1.0), ("silu", 0.731058579)],
)
def test_activations_at_one(activation: str, expected: float) -> None:
    layer = MLP(MLP.Config(activation=activation, hidden=1, bias=False), dim=1).double()
    torch.nn.init.ones_(layer.up.weight)
    torch.nn.init.ones_(layer.down.weight)
    result = layer(torch.ones(1, 1, 1, dtype=torch.float64))
    assert result.item() == pytest.approx(expected, abs=1e-9)


def test_gap_between_the_two_gelus() -> None:
    x = torch.linspace(-6, 6, 120_001, dtype=torch.float64)
    gap = (F.gelu(x) - F.gelu(x, approximate="tanh")).abs()
    assert gap.max().item() == pytest.approx(4.73e-4, abs=1e-6)
    assert abs(x[gap.argmax()].item()) == pytest.approx(2.699, abs=1e-3)


@pytest.mark.article("MLP parameters, section 7")
def test_parameters_of_an_mlp() -> None:
    assert sum(p.numel() for p in MLP(MLP.Config(), dim=768).parameters()) == 4_722_432


def test_swiglu_is_its_equation() -> None:
    layer = SwiGLU(SwiGLU.Config(), dim=12).double()
    assert layer.up.out_features == 32
    x = torch.randn(2, 3, 12, dtype=torch.float64)
    gate, up = x @ layer.gate.weight.T, x @ layer.up.weight.T
    torch.testing.assert_close(layer(x), (gate * torch.sigmoid(gate) * up) @ layer.down.weight.T)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("gelu", F.gelu),
        ("gelu_tanh", lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))),
        ("relu", lambda x: x.clamp(min=0)),
        ("silu", lambda x: x / (1 + (-x).exp())),
        ("sigmoid", lambda x: 1 / (1 + (-x).exp())),
        ("none", lambda x: x),
    ],
)
def test_a_gated_mlp_is_its_equation(activation: str, function) -> None:
    layer = Gated(Gated.Config(activation=activation), dim=12).double()
    assert layer.up.out_features == 32
    x = torch.randn(2, 3, 12, dtype=torch.float64)
    gate, up = x @ layer.gate.weight.T, x @ layer.up.weight.T
    torch.testing.assert_close(layer(x), (function(gate) * up) @ layer.down.weight.T)


def test_swiglu_is_the_gated_mlp_of_that_activation() -> None:
    """Under either name a sweep over the family starts from the same values."""
    named, chosen = SwiGLU(SwiGLU.Config(), dim=12), Gated(Gated.Config(activation="silu"), dim=12)
    chosen.load_state_dict(named.state_dict())
    x = torch.randn(2, 3, 12)
    assert torch.equal(named(x), chosen(x))


@pytest.mark.parametrize(("ours", "theirs"), [("squared_relu", "relu2"), ("gelu", "gelu"), ("gelu_tanh", "gelu_new")])
def test_activations_of_the_transformers_library(ours: str, theirs: str) -> None:
    activations = pytest.importorskip("transformers.activations")
    x = torch.linspace(-6, 6, 10_001, dtype=torch.float64)
    torch.testing.assert_close(activate(ours, x), activations.ACT2FN[theirs](x), atol=1e-14, rtol=1e-12)


def test_residual_arrangements_are_their_equations() -> None:
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    branches = (lambda h: 2 * h + 1, lambda h: h.square())
    pre, post = (cls(cls.Config(), dim=8, norm=LayerNorm.part(), branches=2).double() for cls in (Pre, Post))

    def norm(h: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(h, (8,))

    middle = x + 2 * norm(x) + 1
    torch.testing.assert_close(pre(x, branches), middle + norm(middle).square())
    middle = norm(x + 2 * x + 1)
    torch.testing.assert_close(post(x, branches), norm(middle + middle.square()))
    assert (Pre.final_norm, Post.final_norm) == (True, False)
