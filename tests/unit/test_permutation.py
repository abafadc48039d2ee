"""The order of samples: a shuffle that is computed by index."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.permutation import LARGEST, epoch_draw, hash64, permute, uniform


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 16, 17, 255, 256, 257, 1021, 4096, 100_003])
def test_every_index_is_met_once(size):
    for key in [(0, 0), (1337, 5), (-3, 2**70)]:
        assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


@given(size=st.integers(1, 3000), seed=st.integers(-(2**63), 2**64), epoch=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_any_key_gives_a_bijection(size, seed, epoch):
    assert len(set(permute(np.arange(size), size, (seed, epoch)).tolist())) == size


def test_the_largest_size_stays_in_range_without_repeats():
    index = np.concatenate([np.arange(1000), LARGEST - 1 - np.arange(1000)])
    found = permute(index, LARGEST, (1, 2))
    assert found.min() >= 0
    assert found.max() < LARGEST
    assert len(set(found.tolist())) == 2000


def test_values_never_change():
    assert permute(np.arange(10), 10, (1337, 0)).tolist() == [0, 4, 7, 8, 2, 3, 1, 5, 6, 9]
    assert permute(np.array([0, 1, 999_999]), 1_000_000, (42, 7)).tolist() == [610379, 532329, 58068]
    assert [int(value) for value in hash64(1, np.arange(2))] == [7434303198761161278, 7310516983963264027]


def test_keys_differ_in_every_part():
    orders = {tuple(permute(np.arange(50), 50, key)) for key in [(0, 0), (0, 1), (1, 0), (1, 1), (0,), (0, 0, 0)]}
    assert len(orders) == 6


@pytest.mark.parametrize("size", [2, 3, 5, 10, 24])
def test_every_item_comes_first_equally_often(size):
    trials = 20_000
    first = permute(np.zeros(trials, dtype=np.int64), size, (7, np.arange(trials)))
    expected = trials / size
    chi_square = ((np.bincount(first, minlength=size) - expected) ** 2 / expected).sum()
    degrees = size - 1
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees) + 4


def test_neighbours_are_not_kept_together():
    order = permute(np.arange(50_000), 50_000, (3,))
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(order, np.arange(50_000))[0, 1]) < 0.02


def test_a_key_for_each_index_equals_one_key_for_all():
    together = permute(np.array([4, 4, 4]), 9, (5, np.array([0, 1, 2])))
    assert together.tolist() == [int(permute(np.array([4]), 9, (5, epoch))[0]) for epoch in range(3)]


@pytest.mark.parametrize(("index", "size"), [([0], 0), ([0], LARGEST + 1), ([3], 3), ([-1], 3)])
def test_sizes_and_indices_out_of_range_are_refused(index, size):
    with pytest.raises(ValueError, match=r"not|outside"):
        permute(np.array(index), size, (0,))


def test_each_epoch_is_a_shuffle_of_its_own():
    samples, epochs = epoch_draw(seed=1, first=0, count=30, size=10)
    assert epochs.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    rows = samples.reshape(3, 10)
    assert np.array_equal(np.sort(rows, axis=1), np.tile(np.arange(10), (3, 1)))
    assert len({tuple(row) for row in rows}) == 3


@given(first=st.integers(0, 10**12), count=st.integers(1, 40), size=st.integers(1, 20), cut=st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_a_draw_does_not_depend_on_how_it_is_cut(first, count, size, cut):
    cut = min(cut, count)
    whole = epoch_draw(9, first, count, size)
    parts = [epoch_draw(9, first, cut, size), epoch_draw(9, first + cut, count - cut, size)]
    for all_at_once, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        assert np.array_equal(all_at_once, np.concatenate(pieces))


def test_uniform_numbers_fill_the_unit_interval_evenly():
    numbers = uniform(3, np.arange(100_000))
    assert numbers.dtype == np.float64
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert abs(counts - 5000).max() < 5 * (5000 * 0.95) ** 0.5
    assert uniform(1, np.arange(2)).tolist() == [0.40301438395063927, 0.39630391980025736]  # for ever
