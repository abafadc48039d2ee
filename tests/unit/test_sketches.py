"""Sketches of what comes later, tried against the contracts: checked by the kit, some against published values."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.place import Place
from zoo.testing.check import examine
from zoo.testing.conformance import conclude
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.none import NoPosition
from zoo_builtin.position.sinusoidal import Sinusoidal
from zoo_builtin.residual.pre import Pre

SKETCHES = Path(__file__).parents[1] / "sketches"
sys.path.insert(0, str(SKETCHES))

import alibi  # noqa: E402
import axial_rotary  # noqa: E402
import cross_decoder  # noqa: E402
import differential  # noqa: E402
import latent  # noqa: E402
import linear  # noqa: E402
import t5  # noqa: E402

FILES = sorted(SKETCHES.glob("*.py"))
EXAMINATIONS = {file.stem: examine(file) for file in FILES}
CHECKS = [
    pytest.param(
        name, check, id=f"{name}: {check.name}", marks=[pytest.mark.slow] if found.suite.kind == "attention" else []
    )
    for name, found in EXAMINATIONS.items()
    for check in found.checks()
    if check.needs <= found.subject.offers
]


@pytest.mark.parametrize(("name", "check"), CHECKS)
def test_a_sketch_keeps_its_contract(name: str, check) -> None:
    conclude(EXAMINATIONS[name].run(check))


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [0.00390625]),
        (2, [0.0625, 0.00390625]),
        (3, [0.0625, 0.00390625, 0.25]),
        (4, [0.25, 0.0625, 0.015625, 0.00390625]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (8, [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]),
        (12, [2.0**-k for k in range(1, 9)] + [0.707107, 0.353553, 0.176777, 0.088388]),
    ],
)
def test_alibi_slopes_are_the_published_ones(heads: int, slopes: list[float]) -> None:
    assert alibi.slopes(heads) == pytest.approx(slopes, rel=1e-5)


def alibi_bias(queries: int, keys: int) -> torch.Tensor:
    scheme = alibi.Alibi.part()(dim=8, heads=2, size=4)
    at_BTA, keys_BSA = (torch.arange(keys)[None, :, None][:, keys - count :] for count in (queries, keys))
    prepared = scheme.prepare(at_BTA, keys_BSA)
    return scheme.bias(torch.zeros(1, 2, queries, 4), torch.zeros(1, 2, keys, 4), None, prepared)[0]


def test_alibi_falls_with_the_distance_on_both_sides_and_a_cached_step_is_the_last_row() -> None:
    whole = alibi_bias(5, 5)
    assert whole[0].tolist() == [[-0.0625 * abs(t - s) for s in range(5)] for t in range(5)]
    assert torch.equal(alibi_bias(1, 5)[:, 0], whole[:, 4])


def bucket_table(*, causal: bool) -> torch.Tensor:
    slots = torch.arange(10)
    return t5.buckets(slots[None, :] - slots[:, None], 32, 128, causal=causal)


def test_t5_buckets_are_the_published_ones() -> None:
    both, causal = bucket_table(causal=False), bucket_table(causal=True)
    assert both[0].tolist() == [0, 17, 18, 19, 20, 21, 22, 23, 24, 24]
    assert both[9].tolist() == [8, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert causal[9].tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert causal[0].tolist() == [0] * 10


@pytest.mark.parametrize(("causal", "expected"), [(False, [15, 31, 15, 15, 14]), (True, [31, 0, 31, 31, 26])])
def test_t5_buckets_far_away(causal: bool, expected: list[int]) -> None:
    far = torch.tensor([-200, 200, -128, -127, -64])
    assert t5.buckets(far, 32, 128, causal=causal).tolist() == expected


def test_axial_rotary_knows_rows_from_columns_and_leaves_a_register_alone() -> None:
    scheme = axial_rotary.AxialRotary.part()(dim=16, heads=2, size=8)
    grid = torch.tensor([[-1, -1], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]])[None]
    x_BNTH = torch.ones(1, 2, 7, 8, dtype=torch.float64)
    turned = Place(scheme, grid, grid, nowhere=True).rotate(x_BNTH)[0, 0]
    rows, columns = turned.chunk(2, -1)
    assert torch.equal(turned[0], x_BNTH[0, 0, 0])
    assert torch.equal(rows[1], rows[2])
    assert torch.equal(rows[1], rows[3])
    assert torch.equal(columns[1], columns[4])
    assert not torch.equal(columns[1], columns[2])
    assert not torch.equal(rows[1], rows[4])


def test_the_cache_of_latent_attention_holds_the_latent_and_the_shared_rotated_key_only() -> None:
    module = latent.Latent.part(rank=6, rotated=4)(dim=16, heads=4)
    cache = Cache()
    mask, _, _ = cache.extend(Mask(causal=True), torch.zeros(1, 5))
    module(torch.randn(1, 5, 16), mask=mask, cache=cache.layer((0, "self")))
    assert {name: tuple(tensor.shape) for name, tensor in cache.layer((0, "self")).tensors()} == {
        "latent": (1, 5, 6),
        "rotated": (1, 1, 5, 4),
    }
    assert cache.bytes() == 5 * (6 + 4) * 4


def test_the_state_of_linear_attention_does_not_grow() -> None:
    module, cache, sizes = linear.Linear.part()(dim=16, heads=4), Cache(), []
    for _ in range(3):
        mask, _, _ = cache.extend(Mask(causal=True), torch.zeros(1, 4))
        module(torch.randn(1, 4, 16), mask=mask, cache=cache.layer((0, "self")))
        sizes.append(cache.bytes())
    assert sizes == [4 * 4 * 5 * 4] * 3


def test_differential_attention_is_its_equation() -> None:
    module = differential.Differential.part(bias=False)(dim=8, heads=2).double()
    torch.nn.init.constant_(module.balance, 0.3)
    x_BTD = torch.randn(1, 5, 8, dtype=torch.float64)
    q, k, v = (layer(x_BTD)[0] for layer in (module.query, module.key, module.value))
    heads = []
    for head in range(2):
        maps = []
        for part in (head, head + 2):
            columns = slice(2 * part, 2 * part + 2)
            scores = q[:, columns] @ k[:, columns].T / 2**0.5
            maps.append(scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1))
        mixed = (maps[0] - 0.3 * maps[1]) @ v[:, 4 * head : 4 * head + 4]
        heads.append(mixed / (mixed.square().mean(-1, keepdim=True) + 1e-5).sqrt())
    want = module.output(torch.cat(heads, -1))
    got = module(x_BTD, mask=Mask(causal=True).sized(5, 5))[0]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def translator() -> cross_decoder.CrossDecoder:
    config = cross_decoder.CrossDecoder.Config(vocab_size=31, max_length=16)
    model = cross_decoder.CrossDecoder(
        config,
        attention=MultiHead.part(),
        position=Sinusoidal.part(),
        feed_forward=MLP.part(),
        norm=LayerNorm.part(),
        residual=Pre.part(),
    )
    model.initialize(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model.double().eval()


def test_a_cross_decoder_ignores_the_sources_padding_and_generates_as_it_reads() -> None:
    model, source = translator(), torch.tensor([[5, 6, 7, 8, 9], [4, 3, 0, 0, 0]])
    valid, target = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool(), torch.tensor([[1, 2, 3, 4]] * 2)
    whole = model(target, source_BS=source, source_valid_BS=valid).hidden
    alone = model(target[1:], source_BS=source[1:, :2]).hidden
    torch.testing.assert_close(whole[1:], alone, rtol=0, atol=1e-12)
    assert (whole[0] - whole[1]).abs().max() > 1e-3

    cache = Cache()
    first = model(target[:, :2], source_BS=source, source_valid_BS=valid, cache=cache).hidden
    cache.reorder(torch.tensor([1, 0, 1]))
    rest = model(target[[1, 0, 1], 2:], cache=cache).hidden
    torch.testing.assert_close(first, whole[:, :2], rtol=0, atol=1e-12)
    torch.testing.assert_close(rest, whole[[1, 0, 1], 2:], rtol=0, atol=1e-12)


def test_a_model_of_the_sketches_can_do_without_positions() -> None:
    assert not NoPosition.needs()
    assert t5.T5.needs() == {"bias"}
    assert axial_rotary.AxialRotary.needs() == {"rotate"}
