"""The faults of an outsider are faults, each in the situation that it names, and the oddities beside them are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from faults_of_an_outsider import FAULTS, GOOD, Fault, good, proofs, proofs_mixers, proofs_others, proofs_position
from mask_strategy import batch_of, masks
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.position.rotary import Rotary

PROOFS = proofs.PROOFS | proofs_mixers.PROOFS | proofs_position.PROOFS | proofs_others.PROOFS
ROUNDING = 1e-12
"""What a right component may be off by, in float64; the largest is 7e-15."""


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_is_one_where_it_says_so_and_its_reference_is_right(fault: Fault) -> None:
    wrong, at_least = PROOFS[fault.component]
    assert wrong(fault.reference) <= ROUNDING
    assert wrong(fault.component) >= at_least


def test_every_fault_has_a_proof_and_a_sentence_of_its_own() -> None:
    components = [fault.component for fault in FAULTS]
    assert len(components) == len(set(components)) == len({fault.name for fault in FAULTS})
    assert set(components) == set(PROOFS)
    assert all(vars(component).get("__doc__", "").count("\n") == 0 for component in components)
    assert len({component.__doc__ for component in components}) == len(components)
    assert {kind for kind, _ in GOOD} <= {fault.kind for fault in FAULTS}


def as_multi_head(layer: Any) -> MultiHead:
    """A ``MultiHead`` with the parameters of a ``Ported`` or of another attention with heads."""
    whole = MultiHead(MultiHead.Config(), dim=layer.dim, heads=layer.heads).double()
    state = layer.state_dict()
    for name in ("weight", "bias"):
        if (both := state.pop(f"both.{name}", None)) is not None:
            state[f"key.{name}"], state[f"value.{name}"] = both.chunk(2)
    whole.load_state_dict(state)
    return whole


@settings(max_examples=60)
@given(masks().filter(lambda mask: mask.queries == mask.keys), st.sampled_from([good.Ported, good.OnlineSoftmax]))
def test_odd_softmax_attentions_are_multi_head_under_every_mask(mask: Mask, cls: type[Any]) -> None:
    layer, x = proofs.made(cls), proofs.tokens(batch_of(mask), mask.keys)
    torch.testing.assert_close(layer(x, mask=mask), as_multi_head(layer)(x, mask=mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cls", [cls for kind, cls in GOOD if kind == "attention"])
@pytest.mark.parametrize("sizes", [[6], [3, 2, 1], [1] * 6, [2, 4]])
def test_odd_attentions_go_on_where_they_stopped(cls: type[Any], sizes: list[int]) -> None:
    layer, x = proofs.made(cls), proofs.tokens()
    whole = proofs.run(layer, x)
    assert proofs.apart(proofs.in_chunks(layer, x, sizes), whole) < 1e-12


def test_the_decay_is_a_sum_over_the_past() -> None:
    """out_t = scale sum over s <= t of decay^(t - s) (q_t k_s) v_s, over tokens of the same document that are any."""
    layer, x = proofs.made(good.Decay, decay=0.7), proofs.tokens(1)
    documents, valid = torch.tensor([[1, 1, 1, 2, 2, 2]]), torch.tensor([[True, False, True, True, True, True]])
    mask = Mask(causal=True, documents_BS=documents, valid_BS=valid).sized(6, 6)
    q, k, v = (part(x)[0].unflatten(-1, (2, 4)) for part in (layer.query, layer.key, layer.value))
    order = valid[0].cumsum(0)
    want = torch.zeros(6, 2, 4, dtype=torch.float64)
    for t in range(6):
        for s in range(t + 1):
            if valid[0, s] and documents[0, s] == documents[0, t]:
                want[t] += 0.5 * 0.7 ** int(order[t] - order[s]) * (q[t] * k[s]).sum(-1, keepdim=True) * v[s]
    torch.testing.assert_close(layer(x, mask=mask)[0], layer.output(want.flatten(1)), rtol=0, atol=1e-12)


def test_the_convolution_is_torchs() -> None:
    layer, x = proofs.made(good.Convolution), proofs.tokens()
    want = F.conv1d(F.pad(x.mT, (3, 0)), layer.taps.T[:, None], groups=proofs.DIM).mT
    got = layer(x, mask=CAUSAL.sized(6, 6))
    torch.testing.assert_close(got, layer.output(want), rtol=0, atol=1e-12)


def test_a_product_of_complex_numbers_is_a_rotation_of_neighbours() -> None:
    at, x = torch.tensor([[[0], [5], [900]]]), proofs.tokens(2, 3)[:, None, :, :4]
    parent = {"dim": 8, "heads": 2, "size": 4}
    mine, theirs = good.ComplexRotary.part()(**parent), Rotary.part(pairs="interleaved")(**parent)
    torch.testing.assert_close(Place(mine, at, at).rotate(x), Place(theirs, at, at).rotate(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("heads", "slopes"), [(2, [2**-4, 2**-8]), (3, [2**-4, 2**-8, 2**-2]), (4, [2**-2, 2**-4, 2**-6, 2**-8])]
)
def test_alibi_has_the_published_slopes(heads: int, slopes: list[float]) -> None:
    scheme, at = good.Alibi.part()(dim=12, heads=heads, size=4), torch.tensor([[[0], [3]]])
    q = torch.zeros(1, heads, 2, 4)
    bias = scheme.bias(q, q, None, scheme.prepare(at, at))  # type: ignore[arg-type]
    assert bias[0, :, 1, 0].tolist() == pytest.approx([-3 * slope for slope in slopes])
    assert torch.equal(bias, bias.mT)


def test_the_cost_of_a_router_leaves_padding_out_and_adds_up() -> None:
    layer, x = proofs_others.part_of(good.Routed), proofs.tokens()
    valid, notes = torch.tensor([[True] * 6, [True] * 2 + [False] * 4]), Notes()
    layer(x, valid_BT=valid, notes=notes)
    want = 1e-3 * layer.gate(x).logsumexp(-1).square()[valid].sum()
    torch.testing.assert_close(notes.auxiliary_total(), want, rtol=0, atol=1e-12)


def test_a_ported_attention_is_rotated_and_biased_by_its_place() -> None:
    layer, x, at = proofs.made(good.Ported), proofs.tokens(), torch.arange(6)[None, :, None]
    for scheme in (good.ComplexRotary, good.Alibi):
        place = Place(scheme.part()(dim=8, heads=2, size=4), at, at)
        got, mask = layer(x, mask=CAUSAL.sized(6, 6), place=place), CAUSAL.sized(6, 6)
        torch.testing.assert_close(got, as_multi_head(layer)(x, mask=mask, place=place), rtol=0, atol=1e-12)
        assert proofs.apart(got, layer(x, mask=mask, place=NOWHERE)) > 1e-3
