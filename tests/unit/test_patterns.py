"""Patterns in a mask: the law pair by pair, and blocks, documents apart, crops and caches against it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mask_strategy import Checkered, batch_of, patterned, patterns
from zoo.contracts.values.band import Band, Blocks
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.packing import places_of
from zoo.contracts.values.pattern import Both, Pattern
from zoo_builtin.attention.block_local import NearBlocks
from zoo_builtin.attention.dilated_window import Dilated
from zoo_builtin.attention.global_local import WindowAndFirst

CPU = torch.device("cpu")


def place(valid: list[bool] | None, documents: list[int] | None, slot: int) -> int | None:
    """By walking back to where the document begins, then on to its first token."""
    begin = slot
    while begin and (documents is None or documents[begin - 1] == documents[slot]):
        begin -= 1
    while valid is not None and begin <= slot and not valid[begin]:
        begin += 1
    return slot - begin if begin <= slot else None


def lists(tensor: Tensor | None, batch: int) -> list[list[int]] | list[None]:
    return [None] * batch if tensor is None else tensor.tolist()


def written_out(mask: Mask, batch: int) -> Tensor:
    """The definition, one pair of slots at a time; a suffix is told by the mask that it was cut from."""
    whole, dropped = (mask, 0) if mask._whole is None else (mask._whole[0], mask._whole[2])
    allowed = torch.zeros(batch, mask.queries, mask.keys, dtype=torch.bool)
    valid_B, documents_B = lists(whole.valid_BS, batch), lists(whole.documents_BS, batch)
    pattern = mask.pattern
    assert pattern is not None and whole.first == 0
    for b in range(batch):
        valid, documents = valid_B[b], documents_B[b]
        prefix = 0 if mask.prefix_B is None else int(mask.prefix_B[b])
        places = [place(valid, documents, slot) if pattern.anchored else slot for slot in range(whole.keys)]
        for t in range(mask.queries):
            for s in range(mask.keys):
                i, j = mask.start + t, s + dropped
                p, r = places[i], places[j]
                allowed[b, t, s] = (
                    (not mask.causal or j <= i or j < prefix)
                    and (mask.window is None or abs(i - j) < mask.window)
                    and (valid is None or valid[j])
                    and (documents is None or documents[i] == documents[j])
                    and p is not None
                    and r is not None
                    and bool(pattern.allows(torch.tensor(p), torch.tensor(r)))
                )
    return allowed


def rendered(mask: Mask, batch: int) -> Tensor:
    dense = mask.dense(CPU)
    if dense is None:
        return torch.ones(batch, mask.queries, mask.keys, dtype=torch.bool)
    return dense[:, 0].expand(batch, -1, -1)


@settings(max_examples=80)
@given(patterned(most=9))
def test_dense_is_the_definition(mask: Mask) -> None:
    batch = batch_of(mask)
    assert torch.equal(rendered(mask, batch), written_out(mask, batch))


@settings(max_examples=120)
@given(patterned())
def test_empty_rows_are_those_of_the_dense_mask(mask: Mask) -> None:
    batch = batch_of(mask)
    found, empty_BT = mask.empty_BT(CPU), ~rendered(mask, batch).any(-1)
    assert torch.equal(empty_BT, torch.zeros_like(empty_BT) if found is None else found.expand_as(empty_BT))
    attn_mask, is_causal = mask.sdpa(CPU)
    assert not is_causal
    opened = torch.ones_like(rendered(mask, batch)) if attn_mask is None else attn_mask[:, 0].expand(batch, -1, -1)
    assert torch.equal(opened, rendered(mask, batch) | empty_BT[..., None])


def from_blocks(mask: Mask, batch: int) -> Tensor:
    """(B, T, S) what blocks, and the queries beside them, say of each pair; every query and key once."""
    cut = mask.cut(CPU)
    assert cut is not None
    query_LQ = cut.of_queries(torch.arange(mask.queries)[None], -1)[0]
    key_LK = cut.of_keys(torch.arange(mask.keys)[None], -1)[0]
    whole = torch.zeros(batch, mask.queries + 1, mask.keys + 1, dtype=torch.bool)  # the last ones are nobody
    times = torch.zeros(mask.queries + 1, mask.keys + 1, dtype=torch.int64)
    for block, (query_Q, key_K) in enumerate(zip(query_LQ, key_LK, strict=True)):
        query_Q, key_K = torch.where(query_Q < 0, mask.queries, query_Q), torch.where(key_K < 0, mask.keys, key_K)
        pairs = (query_Q[:, None], key_K)
        whole[:, *pairs] = mask.blocks(CPU)[:, block].expand(batch, -1, -1)
        times.index_put_(pairs, torch.ones((), dtype=torch.int64), accumulate=True)
    assert not whole[:, -1].any() and not whole[:, :, -1].any()
    assert int(times[:-1, :-1].max()) <= 1
    if (head := mask.head(CPU)) is not None:
        whole[:, : head.queries, :-1] = rendered(head, batch)
    return whole[:, :-1, :-1]


@settings(max_examples=120)
@given(patterned())
def test_blocks_are_the_dense_mask(mask: Mask) -> None:
    batch = batch_of(mask)
    if mask.cut(CPU) is not None:
        assert torch.equal(from_blocks(mask, batch), rendered(mask, batch))
        assert torch.equal(mask.sdpa_blocks(CPU), mask.blocks(CPU) | ~mask.blocks(CPU).any(-1, keepdim=True))


@settings(max_examples=120)
@given(patterned() | patterned().map(lambda mask: mask.changed(pattern=None)))
def test_documents_apart_are_the_dense_mask(mask: Mask) -> None:
    packing = mask.packing(CPU)
    if packing is None:
        return
    batch, tokens = batch_of(mask), mask.queries
    total = sum(numbers_RL.numel() for numbers_RL, _ in packing.groups)
    token_P = torch.full((total + 1,), -1)
    token_P[packing.number_BT.flatten()] = torch.arange(batch * tokens)
    token_P[total] = -1  # who belongs nowhere
    whole, done = torch.zeros(batch * tokens, batch * tokens, dtype=torch.bool), 0
    for numbers_RL, group in packing.groups:
        for numbers_L, allowed_LL in zip(numbers_RL, rendered(group, len(numbers_RL)), strict=True):
            token_L = token_P[done : done + numbers_L.numel()]
            done += numbers_L.numel()
            here = token_L >= 0
            assert torch.equal(numbers_L[here], token_L[here])
            assert not allowed_LL[here][:, ~here].any()
            whole[token_L[here][:, None], token_L[here]] = allowed_LL[here][:, here]
    expected = torch.zeros_like(whole)
    for b, allowed_TS in enumerate(rendered(mask, batch).expand(batch, -1, -1)):
        rows = slice(b * tokens, (b + 1) * tokens)
        expected[rows, rows] = allowed_TS
    assert torch.equal(whole, expected)


def test_documents_of_like_length_share_a_group_and_cost_their_squares() -> None:
    documents_BS = torch.repeat_interleave(torch.arange(4), torch.tensor([50, 60, 10, 8]))[None]
    packing = Mask(causal=True, documents_BS=documents_BS).sized(128, 128).packing(CPU)
    assert packing is not None
    assert [tuple(numbers_RL.shape) for numbers_RL, _ in packing.groups] == [(1, 8), (1, 10), (2, 60)]
    assert all(mask.valid_BS is None for _, mask in packing.groups)  # causal: what fills a row up is behind it


def test_what_is_not_taken_apart() -> None:
    one = torch.zeros(2, 8, dtype=torch.int64)
    assert Mask(causal=True, documents_BS=one).sized(8, 8).packing(CPU) is None
    pieces = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 0]])
    assert Mask(documents_BS=pieces).sized(8, 8).packing(CPU) is None
    assert Mask(documents_BS=pieces, pattern=NearBlocks(2, 0)).sized(8, 8).packing(CPU) is None
    halves = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    assert Mask(documents_BS=halves).sized(1, 8, start=7).packing(CPU) is None
    assert Mask(documents_BS=halves, window=2).sized(8, 8).packing(CPU) is None  # the band is narrower
    assert Mask(valid_BS=halves > 0).sized(8, 8).packing(CPU) is None
    assert Mask(documents_BS=halves).sized(8, 8).packing(CPU) is not None


@given(patterned(most=9), st.data())
def test_crop_is_the_block_of_the_dense_mask(mask: Mask, data: st.DataObject) -> None:
    q0 = data.draw(st.integers(0, mask.queries - 1))
    q1 = data.draw(st.integers(q0 + 1, mask.queries))
    k0 = data.draw(st.integers(0, mask.keys - 1))
    k1 = data.draw(st.integers(k0 + 1, mask.keys))
    batch = batch_of(mask)
    assert torch.equal(rendered(mask.crop(q0, q1, k0, k1), batch), rendered(mask, batch)[:, q0:q1, k0:k1])


@given(patterns(), patterns(), st.integers(1, 12))
def test_two_patterns_allow_what_both_allow(one: Pattern, other: Pattern, tokens: int) -> None:
    mask = CAUSAL.sized(tokens, tokens)
    each = [rendered(mask.narrow(pattern=pattern), 1) for pattern in (one, other)]
    assert torch.equal(rendered(mask.narrow(pattern=one).narrow(pattern=other), 1), each[0] & each[1])


def test_a_pattern_is_put_in_once() -> None:
    mask = CAUSAL.sized(9, 9)
    narrow = mask.narrow(pattern=NearBlocks(3, 1))
    assert narrow is mask.narrow(pattern=NearBlocks(3, 1))
    assert narrow.narrow(pattern=NearBlocks(3, 1)).pattern == NearBlocks(3, 1)
    assert narrow.narrow(window=2).pattern == NearBlocks(3, 1)
    assert "window" in narrow.parts()


@pytest.mark.parametrize(
    ("one", "other", "fewest"),
    [(Dilated(3, 2), NearBlocks(4, 1), 5), (Dilated(3, 2), Checkered(), 5), (Checkered(), Checkered(), None)],
)
def test_two_patterns_keep_the_fewer_keys(one: Pattern, other: Pattern, fewest: int | None) -> None:
    assert Both(one, other).keep() == Both(other, one).keep() == fewest


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [(NearBlocks(4, 1), Blocks), (WindowAndFirst(3, 2), Blocks), (Checkered(), type(None)), (None, Band)],
)
def test_who_is_cut_how(pattern: Pattern | None, kind: type) -> None:
    window = 3 if pattern is None else None
    assert isinstance(Mask(pattern=pattern, window=window).sized(64, 64).cut(CPU), kind)
    assert Mask(pattern=pattern, window=window).sized(1, 4, start=3).cut(CPU) is None


@pytest.mark.parametrize("pattern", [Dilated(8, 3), NearBlocks(8, 1), WindowAndFirst(8, 2)])
@pytest.mark.parametrize("causal", [True, False])
def test_blocks_are_linear_in_the_length(pattern: Pattern, causal: bool) -> None:
    pairs = []
    for tokens in (960, 1920):
        cut = Mask(causal=causal, pattern=pattern).sized(tokens, tokens).cut(CPU)
        assert isinstance(cut, Blocks)
        pairs.append(cut.pairs)
    assert pairs[1] == 2 * pairs[0] < 1920 * 80


def test_places_by_hand() -> None:
    valid_BS = torch.tensor([[False, True, False, True, False, False, True]])
    documents_BS = torch.tensor([[7, 7, 7, 7, 9, 9, 9]])
    assert places_of(valid_BS, None).tolist() == [[-1, 0, 1, 2, 3, 4, 5]]
    assert places_of(None, documents_BS).tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    assert places_of(valid_BS, documents_BS).tolist() == [[-1, 0, 1, 2, -1, -1, 0]]


def test_places_need_the_queries_among_the_keys() -> None:
    mask = Mask(valid_BS=torch.ones(1, 4, dtype=torch.bool), pattern=NearBlocks(2, 0)).sized(2, 4, start=4)
    with pytest.raises(ValueError, match="a pattern needs the queries among the keys"):
        mask.dense(CPU)
