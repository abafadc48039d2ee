"""The structured mask against a mask written out slot by slot, and its renderings against each other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mask_strategy import batch_of, masks
from zoo.contracts.values.mask import CAUSAL, EVERYTHING, Mask, positions_of

CPU = torch.device("cpu")


def written_out(mask: Mask, batch: int) -> Tensor:
    """The definition, one pair at a time."""
    allowed = torch.zeros(batch, mask.queries, mask.keys, dtype=torch.bool)
    for b in range(batch):
        for t in range(mask.queries):
            for s in range(mask.keys):
                i, j = mask.start + t, mask.first + s
                prefix = 0 if mask.prefix_B is None else int(mask.prefix_B[b])
                allowed[b, t, s] = (
                    (not mask.causal or j <= i or j < prefix)
                    and (mask.window is None or abs(i - j) < mask.window)
                    and (mask.valid_BS is None or bool(mask.valid_BS[b, s]))
                    and (mask.documents_BS is None or bool(mask.documents_BT[b, t] == mask.documents_BS[b, s]))
                )
    return allowed


def rendered(mask: Mask, batch: int) -> Tensor:
    dense = mask.dense(CPU)
    if dense is None:
        return torch.ones(batch, mask.queries, mask.keys, dtype=torch.bool)
    return dense[:, 0].expand(batch, -1, -1)


@given(masks())
def test_dense_is_the_definition(mask: Mask) -> None:
    batch = batch_of(mask)
    assert torch.equal(rendered(mask, batch), written_out(mask, batch))


@given(masks())
def test_sdpa_hides_the_same_except_in_empty_rows(mask: Mask) -> None:
    batch = batch_of(mask)
    expected = written_out(mask, batch)
    attn_mask, is_causal = mask.sdpa(CPU)
    if is_causal:
        assert attn_mask is None
        assert torch.equal(expected, torch.ones_like(expected).tril())
        return
    given_mask = torch.ones_like(expected) if attn_mask is None else attn_mask[:, 0].expand_as(expected)
    empty = ~expected.any(-1)
    assert torch.equal(given_mask, expected | empty[..., None])
    found = mask.empty_BT(CPU)
    assert torch.equal(empty, torch.zeros_like(empty) if found is None else found.expand_as(empty))


@given(masks())
def test_blocks_are_the_band_of_the_dense_mask(mask: Mask) -> None:
    band = mask.band()
    if band is None:
        return
    batch = batch_of(mask)
    expected, blocks = written_out(mask, batch), mask.blocks(CPU).expand(batch, -1, -1, -1)
    assert blocks.shape == (batch, band.count, band.size, band.width)
    scattered = torch.zeros_like(expected)
    for t in range(band.count * band.size):
        block, row = divmod(t, band.size)
        first = band.offset + block * band.size - band.behind
        for place, allowed in enumerate(blocks[:, block, row].unbind(-1)):
            s = first + place
            if t < mask.queries and 0 <= s < mask.keys:
                scattered[:, t, s] = allowed
            else:
                assert not allowed.any()
    assert torch.equal(scattered, expected)
    assert torch.equal(mask.sdpa_blocks(CPU), mask.blocks(CPU) | ~mask.blocks(CPU).any(-1, keepdim=True))


@pytest.mark.parametrize("causal", [True, False])
def test_a_band_is_linear_in_the_length(causal: bool) -> None:
    sizes = [Mask(causal=causal, window=8).sized(length, length).blocks(CPU).numel() for length in (64, 128, 256)]
    assert sizes == [64 * (11 if causal else 18), 128 * (11 if causal else 18), 256 * (11 if causal else 18)]


@pytest.mark.parametrize(
    "mask",
    [
        Mask(causal=True).sized(9, 9),
        Mask(causal=True, window=9).sized(9, 9),
        Mask(causal=True, window=3).sized(1, 3, start=8, first=6),
        Mask(window=2).sized(4, 9, start=7),
    ],
    ids=["no window", "one as long as the keys", "one step of a cache", "queries that aren't among the keys"],
)
def test_what_is_not_cut_into_blocks(mask: Mask) -> None:
    assert mask.band() is None


@given(masks(), st.data())
def test_crop_is_the_block_of_the_dense_mask(mask: Mask, data: st.DataObject) -> None:
    q0 = data.draw(st.integers(0, mask.queries - 1))
    q1 = data.draw(st.integers(q0 + 1, mask.queries))
    k0 = data.draw(st.integers(0, mask.keys - 1))
    k1 = data.draw(st.integers(k0 + 1, mask.keys))
    batch = batch_of(mask)
    block = rendered(mask.crop(q0, q1, k0, k1), batch)
    assert torch.equal(block, rendered(mask, batch)[:, q0:q1, k0:k1])


@given(masks(), st.integers(1, 6))
def test_narrow_takes_the_smaller_window(mask: Mask, window: int) -> None:
    narrow = mask.narrow(window=window)
    assert narrow.window == min(window, mask.window or window)
    assert narrow is mask.narrow(window=window)
    batch = batch_of(mask)
    assert not (rendered(narrow, batch) & ~rendered(mask, batch)).any()


@pytest.mark.parametrize(
    ("queries", "keys", "seen"),
    [(1, 8, [[0, 1, 2, 3, 4, 5, 6, 7]]), (2, 5, [[0, 1, 2, 3], [0, 1, 2, 3, 4]])],
)
def test_fewer_queries_than_keys_align_to_the_end(queries: int, keys: int, seen: list[list[int]]) -> None:
    mask = CAUSAL.sized(queries, keys, start=keys - queries)
    attn_mask, is_causal = mask.sdpa(CPU)
    assert not is_causal
    allowed = torch.ones(queries, keys, dtype=torch.bool) if attn_mask is None else attn_mask[0, 0]
    assert [row.nonzero()[:, 0].tolist() for row in allowed] == seen


def test_a_square_padding_mask_is_never_taken_for_a_causal_one() -> None:
    """B = T = S = 2: a (B, S) mask would broadcast as (T, S)."""
    mask = Mask(valid_BS=torch.tensor([[True, True], [True, False]])).sized(2, 2)
    dense = mask.dense(CPU)
    assert dense is not None
    assert dense.shape == (2, 1, 2, 2)
    assert dense[0].all()
    assert dense[1, 0].tolist() == [[True, False], [True, False]]


def test_wrong_ranks_and_lengths_are_named() -> None:
    with pytest.raises(ValueError, match=r"valid_BS must be two-dimensional .* \(3,\)"):
        Mask(valid_BS=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"valid_BS must be .*torch\.int64"):
        Mask(valid_BS=torch.ones(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="valid_BS covers 3 slots, the keys are 4"):
        Mask(valid_BS=torch.ones(1, 3, dtype=torch.bool)).sized(4, 4)
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        Mask(window=0)


def test_parts_are_the_words_that_an_attention_must_offer() -> None:
    assert CAUSAL.parts() == {"causal"}
    assert EVERYTHING.parts() == {"bidirectional"}
    full = Mask(
        causal=True,
        window=2,
        prefix_B=torch.tensor([1]),
        valid_BS=torch.ones(1, 3, dtype=torch.bool),
        documents_BS=torch.zeros(1, 3, dtype=torch.int64),
    )
    assert full.parts() == {"causal", "window", "prefix", "padding", "documents"}


def test_positions_under_left_padding_and_in_documents() -> None:
    valid = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    assert positions_of(valid, None).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    documents = torch.tensor([[7, 7, 9, 9, 9]])
    assert positions_of(None, documents).tolist() == [[0, 1, 0, 1, 2]]
    padded = torch.tensor([[0, 1, 1, 1, 1]]).bool()
    assert positions_of(padded, documents).tolist() == [[0, 0, 0, 1, 2]]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_positions_count_the_tokens_of_each_run(slots: list[tuple[int, bool]]) -> None:
    documents = torch.tensor([[document for document, _ in slots]])
    valid = torch.tensor([[token for _, token in slots]])
    expected, count = [], 0
    for index, (document, token) in enumerate(slots):
        if index and document != slots[index - 1][0]:
            count = 0
        expected.append(count if token else 0)
        count += token
    assert positions_of(valid, documents)[0].tolist() == expected
