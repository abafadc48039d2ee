"""The article's own numbers: every equation, table, figure and problem that the zoo implements.

Each test says with ``@pytest.mark.article`` what it holds; docs/article.md is made from these marks. The article
writes tokens as columns; the tensors here have them as rows, so its matrices appear transposed.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, EVERYTHING, Mask
from zoo.contracts.values.notes import Notes
from zoo_builtin.architecture.gpt2 import GPT2
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.attention.single_head import SingleHead
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.position.none import NoPosition
from zoo_builtin.position.rotary import Rotary
from zoo_builtin.position.sinusoidal import Sinusoidal
from zoo_builtin.residual.pre import Pre

X = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]], dtype=torch.float64)
QUERY = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
KEY = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
VALUE = torch.eye(2)


def example(scale: float | None = 1.0) -> SingleHead:
    """The layer of section 2: D = 2, no biases."""
    layer = SingleHead(SingleHead.Config(bias=False, scale=scale), dim=2).double()
    with torch.no_grad():
        layer.query.weight.copy_(QUERY)
        layer.key.weight.copy_(KEY)
        layer.value.weight.copy_(VALUE)
    return layer


def attend(layer: SingleHead, mask: Mask = EVERYTHING) -> tuple[Tensor, Tensor]:
    """Weights (queries as rows) and outputs for the three tokens."""
    notes = Notes(maps=True)
    out = layer(X, mask=mask.sized(3, 3), notes=notes)
    return notes.maps(0)[0, 0], out[0]


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def close(actual: Tensor, expected: Any, digits: int = 4) -> None:
    """Equal to the article's rounding."""
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), atol=0.5 * 10**-digits, rtol=0)


@pytest.mark.article("equation 12.2", "table of scores, section 2", "figure 12.1a")
def test_scores_of_the_worked_example() -> None:
    layer = example()
    queries, keys = layer.query(X)[0], layer.key(X)[0]
    assert queries.tolist() == [[1, 1], [0, 2], [1, 3]]
    assert keys.tolist() == [[1, 0], [1, 1], [2, 1]]
    assert (keys @ queries.T).tolist() == [[1, 0, 1], [2, 2, 4], [3, 2, 5]]


@pytest.mark.article("equation 12.1", "equation 12.3", "figure 12.1b", "problem 12.1")
def test_weights_and_outputs_of_the_worked_example() -> None:
    weights, outputs = attend(example())
    close(weights, [[0.0900, 0.2447, 0.6652], [0.0634, 0.4683, 0.4683], [0.0132, 0.2654, 0.7214]])
    close(outputs, [[0.7553, 0.9100], [0.5317, 0.9366], [0.7346, 0.9868]])


@pytest.mark.article("equation 12.1")
def test_the_layer_takes_any_number_of_tokens_and_is_not_linear() -> None:
    layer = example()
    four = torch.cat([X, X[:, :1]], 1)
    assert layer(four, mask=EVERYTHING.sized(4, 4)).shape == (1, 4, 2)
    weights, _ = attend(layer)
    assert not torch.allclose(weights, weights.T)
    doubled = layer(2 * X, mask=EVERYTHING.sized(3, 3))
    assert not torch.allclose(doubled, 2 * layer(X, mask=EVERYTHING.sized(3, 3)), atol=1e-3)


@pytest.mark.article("equation 12.5")
def test_scaling_softens_the_second_column() -> None:
    weights, _ = attend(example(scale=None))
    close(weights[1], [0.1084, 0.4458, 0.4458])


@pytest.mark.article("causal mask, section 8", "figure 12.1c", "problem 12.5")
def test_causal_mask_of_the_worked_example() -> None:
    weights, _ = attend(example(), CAUSAL)
    close(weights, [[1, 0, 0], [0.1192, 0.8808, 0], [0.0132, 0.2654, 0.7214]])


@pytest.mark.article("permutation equivariance, section 3")
def test_reordering_the_tokens_reorders_the_outputs() -> None:
    layer = example()
    order = torch.tensor([2, 0, 1])
    moved = layer(X[:, order], mask=EVERYTHING.sized(3, 3))
    torch.testing.assert_close(moved, layer(X, mask=EVERYTHING.sized(3, 3))[:, order])


@pytest.mark.article("parameters, section 3", "problem 12.2")
def test_parameters_of_a_single_head() -> None:
    layer = SingleHead(SingleHead.Config(size=64), dim=512)
    assert parameters(layer) == 2 * 64 * 512 + 512**2 + 2 * 64 + 512 == 328_320
    assert parameters(SingleHead(SingleHead.Config(), dim=512)) == 3 * 512**2 + 3 * 512


@pytest.mark.article("equation 12.4", "problem 12.3")
def test_variance_of_a_score_is_the_query_size() -> None:
    """Sample variance of 200,000 scores: its relative standard error is sqrt((2 + 6/128) / n) < 0.004."""
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 200_000, 128, generator=generator).unbind()
    scores = (queries * keys).sum(-1)
    assert scores.var().item() == pytest.approx(128, rel=0.016)
    assert round(math.sqrt(128), 1) == 11.3
    assert (scores / math.sqrt(128)).std().item() == pytest.approx(1.0, rel=0.008)


@pytest.mark.article("figure 12.2")
def test_largest_of_sixteen_weights() -> None:
    """Averages of 2,000 draws have a standard error below 0.006; the tolerance is three of them and the rounding."""
    generator = torch.Generator().manual_seed(0)
    for size, expected in ((1, 0.21), (16, 0.69), (256, 0.92), (1024, 0.96)):
        layer = SingleHead(SingleHead.Config(bias=False, scale=1.0), dim=size)
        layer_scaled = SingleHead(SingleHead.Config(bias=False), dim=size)
        queries = torch.randn(2_000, 1, 1, size, generator=generator)
        keys = torch.randn(2_000, 1, 16, size, generator=generator)
        largest = {
            scale: torch.softmax((queries @ keys.transpose(-1, -2)) * scale, -1).max(-1).values.mean().item()
            for scale in (layer.scale, layer_scaled.scale)
        }
        assert largest[layer.scale] == pytest.approx(expected, abs=0.023)
        assert 0.19 <= largest[layer_scaled.scale] <= 0.27


@pytest.mark.article("derivative of softmax, section 4")
def test_derivative_of_softmax() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    weights = scores.softmax(0)
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(0), scores)
    torch.testing.assert_close(jacobian, torch.diag(weights) - torch.outer(weights, weights))
    saturated = torch.autograd.functional.jacobian(lambda s: s.softmax(0), 20 * scores)
    assert saturated.abs().max() < 1e-8


def scheme(cls: Any, dim: int = 4, size: int = 4, **knobs: Any) -> Any:
    return cls(cls.Config(**knobs), dim=dim, heads=1, size=size)


@pytest.mark.article("equation 12.6")
def test_sinusoid_of_position_one() -> None:
    at = torch.tensor([[[1]]])
    table = scheme(Sinusoidal).embed(torch.zeros(1, 1, 4, dtype=torch.float64), at)
    close(table[0, 0], [0.841, 0.540, 0.010, 1.000], digits=3)


@pytest.mark.article("learned positions, section 5")
def test_learned_positions_have_a_row_each_and_an_end() -> None:
    layer = Learned(Learned.Config(), dim=768, heads=12, size=64, length=1024)
    assert parameters(layer) == 786_432
    with pytest.raises(ValueError, match="position 1024 is past the last learned one, 1023"):
        layer.embed(torch.zeros(1, 1, 768), torch.tensor([[[1024]]]))


def rotated_score(rotary: Rotary, q: Tensor, k: Tensor, n: int, m: int) -> float:
    at = torch.tensor([[[n], [m]]])
    turned = rotary.rotate(torch.stack([q, k])[None, None], rotary.prepare(at, at))[0, 0]
    return float(turned[0] @ turned[1])


@pytest.mark.article("equation 12.7", "problem 12.4")
@pytest.mark.parametrize("pairs", ["half", "interleaved"])
def test_rotated_scores_depend_on_distance_only(pairs: str) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 8, generator=generator, dtype=torch.float64).unbind()
    rotary = scheme(Rotary, dim=8, size=8, pairs=pairs)
    base = rotated_score(rotary, q, k, n=5, m=2)
    for shift in (1, 50, 100_000):
        assert rotated_score(rotary, q, k, n=5 + shift, m=2 + shift) == pytest.approx(base, abs=1e-9)
    assert rotated_score(rotary, q, k, n=6, m=2) != pytest.approx(base, abs=1e-3)


@pytest.mark.article("equation 12.7")
def test_rotation_in_two_dimensions_is_the_rotation_matrix() -> None:
    rotary = scheme(Rotary, dim=2, size=2)
    q, k = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([0.5, -1.0], dtype=torch.float64)
    n, m = 3, 1
    angle = torch.tensor(float(n - m), dtype=torch.float64)
    matrix = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    assert rotated_score(rotary, q, k, n=n, m=m) == pytest.approx(float(k @ matrix @ q), abs=1e-12)


@pytest.mark.article("equation 12.8", "parameters, section 6")
def test_multi_head_stacks_single_heads_and_projects() -> None:
    assert parameters(MultiHead(MultiHead.Config(), dim=768, heads=12)) == 2_362_368
    torch.manual_seed(0)
    layer = MultiHead(MultiHead.Config(), dim=8, heads=2).double()
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    heads = []
    for head in range(2):
        rows = slice(4 * head, 4 * head + 4)
        q, k, v = (x[0] @ linear.weight[rows].T + linear.bias[rows] for linear in (layer.query, layer.key, layer.value))
        heads.append(torch.softmax(q @ k.T / 2.0, -1) @ v)
    expected = torch.cat(heads, -1) @ layer.output.weight.T + layer.output.bias
    torch.testing.assert_close(layer(x, mask=EVERYTHING.sized(5, 5))[0], expected)


def gpt2(**sizes: Any) -> GPT2:
    return GPT2(
        GPT2.Config(**sizes),
        attention=MultiHead.part(),
        position=Learned.part(),
        feed_forward=MLP.part(),
        norm=LayerNorm.part(),
        residual=Pre.part(),
        embedding=Tokens.part(),
        head=LanguageModel.part(),
    )


@pytest.mark.article("equation 12.9", "figure 12.3")
def test_transformer_layer() -> None:
    model = gpt2(vocab_size=11, max_length=8, layers=1, dim=8, heads=2).double()
    model.initialize(0)
    block = model.stack.blocks[0]
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    norms = block.residual.norms
    mask = CAUSAL.sized(4, 4)
    middle = x + block.attention(norms[0](x), mask=mask)
    expected = middle + block.feed_forward(norms[1](middle))
    place = model.stack.places(model.embedding, torch.zeros(1, 4), *[torch.arange(4)[None, :, None]] * 2)[0]
    torch.testing.assert_close(block(x, mask=mask, place=place), expected)


@pytest.mark.article("table of section 7, Counting a real model", "token embeddings, section 1")
def test_counting_a_real_model() -> None:
    with torch.device("meta"):
        model = gpt2(vocab_size=50_257, max_length=1_024)
    block = model.stack.blocks[0]
    assert parameters(block.attention) == 2_362_368
    assert parameters(block.feed_forward) == 4_722_432
    assert parameters(block.residual) == 3_072
    assert parameters(block) == 7_087_872
    assert parameters(model.stack.blocks) == 85_054_464
    assert parameters(model.embedding) == 38_597_376
    assert parameters(model.stack.positions) == 786_432
    assert parameters(model.stack.final_norm) == 1_536
    assert parameters(model) == 124_439_808


@pytest.mark.article("problem 12.6")
def test_layers_of_a_wider_model() -> None:
    with torch.device("meta"):
        model = gpt2(vocab_size=1, max_length=1, layers=24, dim=1_024, heads=16)
    assert parameters(model.stack.blocks) == 24 * (12 * 1_024**2 + 13 * 1_024) == 302_309_376


@pytest.mark.article("KV cache, section 8")
def test_a_new_token_costs_one_column() -> None:
    """What earlier positions left in the cache doesn't change when a token is appended, and the result is the same."""
    model = gpt2(vocab_size=11, max_length=8, layers=2, dim=8, heads=2).double().eval()
    model.initialize(0)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    cache = Cache()
    with torch.no_grad():
        model(ids[:, :4], cache=cache)
        before = cache.layer((0, "self")).get("k").clone()
        last = model(ids[:, 4:], cache=cache).hidden
        after = cache.layer((0, "self")).get("k")
    assert torch.equal(after[:, :, :4], before)
    assert after.shape[2] == 5
    torch.testing.assert_close(last[:, 0], model(ids).hidden[:, 4])


@pytest.mark.article("next-token training, section 8")
def test_output_at_a_position_never_sees_the_next_token() -> None:
    model = gpt2(vocab_size=11, max_length=8, layers=2, dim=8, heads=2).double().eval()
    model.initialize(0)
    first, second = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[3, 1, 4, 9, 2]])
    a, b = model.head(model(first).hidden), model.head(model(second).hidden)
    assert torch.equal(a[:, :3], b[:, :3])
    assert (a[:, 3:] - b[:, 3:]).abs().min() > 1e-6


@pytest.mark.article("permutation equivariance, section 3")
def test_without_positions_a_bidirectional_layer_sees_a_set() -> None:
    torch.manual_seed(0)
    layer = MultiHead(MultiHead.Config(), dim=8, heads=2).double()
    x, order = torch.randn(2, 6, 8, dtype=torch.float64), torch.randperm(6)
    mask = EVERYTHING.sized(6, 6)
    torch.testing.assert_close(layer(x[:, order], mask=mask), layer(x, mask=mask)[:, order])
    assert not NoPosition.needs()


@pytest.mark.article("scores at 8,192 tokens, section 10")
def test_scores_of_a_long_text() -> None:
    mask = CAUSAL.sized(8_192, 8_192)
    assert mask.queries * mask.keys == 67_108_864
