"""What generation remembers: growth, rolling, reordering, and the history that all layers share."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoo.contracts.values.cache import Cache, LayerCache
from zoo.contracts.values.mask import CAUSAL, Mask


def entries(count: int, start: int) -> torch.Tensor:
    """(2, 1, count, 3), every entry another number."""
    values = torch.arange(start, start + count, dtype=torch.float32)
    return values[None, None, :, None] + torch.tensor([0.0, 1000.0])[:, None, None, None] + torch.zeros(1, 1, 1, 3)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=12), st.none() | st.integers(1, 6))
def test_append_gives_what_concatenation_would(chunks: list[int], keep: int | None) -> None:
    cache, everything, total = LayerCache(), torch.empty(2, 1, 0, 3), 0
    for chunk in chunks:
        new = entries(chunk, total)
        everything = torch.cat([everything, new], 2)
        total += chunk
        live = cache.append("k", new, 2, keep=keep)
        for spare in cache.spare():
            spare.fill_(torch.nan)
        needed = total if keep is None else min(total, keep - 1 + chunk)
        assert torch.equal(live[:, :, -needed:], everything[:, :, -needed:])
        kept = cache.get("k")
        assert torch.equal(kept, live[:, :, live.shape[2] - kept.shape[2] :])
        assert kept.shape[2] >= (total if keep is None else min(total, keep))
        assert keep is None or live.shape[2] <= max(needed, chunks[0])


def test_a_rolling_cache_stays_small() -> None:
    cache = LayerCache()
    for index in range(200):
        live = cache.append("k", entries(1, index), 2, keep=4)
    assert live[0, 0, :, 0].tolist() == [196.0, 197.0, 198.0, 199.0]
    buffers = [spare.shape[2] for spare in cache.spare()]
    assert sum(buffers) + live.shape[2] <= 8


def test_gradients_flow_through_appended_entries() -> None:
    cache = LayerCache()
    first, second = (entries(2, 0).requires_grad_(), entries(1, 2).requires_grad_())
    cache.append("k", first, 2)
    cache.append("k", second, 2).sum().backward()
    assert first.grad.eq(1).all()
    assert second.grad.eq(1).all()


def test_reorder_repeats_rows_of_times_and_states() -> None:
    cache = Cache()
    ids = torch.zeros(2, 3, dtype=torch.int64)
    valid = torch.tensor([[False, True, True], [True, True, True]])
    cache.extend(Mask(causal=True, valid_BS=valid), ids)
    layer = cache.layer((0, "self"))
    layer.append("k", entries(3, 0), 2)
    layer.put("state", torch.tensor([[1.0], [2.0]]))
    cache.reorder(torch.tensor([1, 0, 0, 1, 0]))
    assert layer.get("k")[:, 0, 0, 0].tolist() == [1000, 0, 0, 1000, 0]
    assert layer.get("state")[:, 0].tolist() == [2, 1, 1, 2, 1]
    _, at, _ = cache.extend(CAUSAL, torch.zeros(5, 1, dtype=torch.int64))
    assert at[:, 0, 0].tolist() == [3, 2, 2, 3, 2]


def test_bytes_are_those_of_the_live_parts() -> None:
    cache = Cache()
    layer = cache.layer((0, "self"))
    layer.append("k", entries(3, 0), 2)
    layer.append("k", entries(1, 3), 2)
    layer.put("state", torch.zeros(2, 5))
    assert cache.bytes() == (2 * 4 * 3 + 2 * 5) * 4


def test_positions_go_on_after_left_padding() -> None:
    cache = Cache()
    valid = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    _, at, _ = cache.extend(Mask(causal=True, valid_BS=valid), torch.zeros(2, 5, dtype=torch.int64))
    assert at[..., 0].tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    mask, at, keys = cache.extend(CAUSAL, torch.zeros(2, 1, dtype=torch.int64))
    assert at[..., 0].tolist() == [[3], [5]]
    assert keys[..., 0].tolist() == [[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    assert mask.valid_BS[0].tolist() == [False, False, True, True, True, True]
    assert (mask.start, mask.queries, mask.keys) == (5, 1, 6)


def test_new_tokens_continue_the_last_document() -> None:
    cache = Cache()
    documents = torch.tensor([[4, 4, 7]])
    cache.extend(Mask(causal=True, documents_BS=documents), torch.zeros(1, 3, dtype=torch.int64))
    mask, at, _ = cache.extend(CAUSAL, torch.zeros(1, 2, dtype=torch.int64))
    assert mask.documents_BS.tolist() == [[4, 4, 7, 7, 7]]
    assert mask.documents_BT.tolist() == [[7, 7]]
    assert at[0, :, 0].tolist() == [1, 2]


def test_given_positions_stand_and_go_on() -> None:
    cache = Cache()
    cache.extend(CAUSAL, torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[[10], [20]]]))
    _, at, _ = cache.extend(CAUSAL, torch.zeros(1, 2, dtype=torch.int64))
    assert at[0, :, 0].tolist() == [21, 22]


def test_tokens_after_right_padding_are_refused() -> None:
    cache = Cache()
    valid = torch.tensor([[True, True, False]])
    cache.extend(Mask(causal=True, valid_BS=valid), torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="pad on the left"):
        cache.extend(CAUSAL, torch.zeros(1, 1, dtype=torch.int64))


def test_a_prefix_must_lie_within_the_first_call() -> None:
    ids = torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="prefix must lie within the first call"):
        Cache().extend(Mask(causal=True, prefix_B=torch.tensor([3])), ids)


def test_a_mask_over_another_number_of_tokens_is_named() -> None:
    valid = torch.ones(1, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"the mask covers \(1, 4\) tokens, the batch has \(1, 3\)"):
        Cache().extend(Mask(causal=True, valid_BS=valid), torch.zeros(1, 3, dtype=torch.int64))
