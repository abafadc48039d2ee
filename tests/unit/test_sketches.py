"""Sketches of what comes later, tried against the contracts: checked by the kit, some against published values."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.testing.check import examine
from zoo.testing.conformance import conclude
from zoo_builtin.position.none import NoPosition

SKETCHES = Path(__file__).parents[1] / "sketches"
sys.path.insert(0, str(SKETCHES))

import alibi  # noqa: E402
import differential  # noqa: E402
import latent  # noqa: E402
import linear  # noqa: E402

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


def test_a_model_of_the_sketches_can_do_without_positions() -> None:
    assert not NoPosition.needs()
    assert alibi.Alibi.needs() == {"bias"}
