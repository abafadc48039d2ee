"""Batches of like lengths: every sample in its turn still, the same for any number of ranks, and little padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.training.plan import EMPTY, BatchPlan

SIZES = {"size": st.integers(1, 90), "batch_size": st.integers(1, 17), "seed": st.integers(0, 3)}


def lengths(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(1, 60, size)


def bucketed(size: int, batch_size: int, seed: int = 7, **ranks: int) -> BatchPlan:
    return BatchPlan(seed=seed, size=size, batch_size=batch_size, lengths=lengths(size), **ranks)


def padding(plan: BatchPlan, samples: np.ndarray) -> float:
    """Share of a batch that is padding."""
    found = lengths(plan.size)[samples]
    return 1 - found.sum() / (found.size * found.max())


@pytest.mark.slow
@given(**SIZES)
def test_windows_hold_what_the_plain_plan_holds(size: int, batch_size: int, seed: int) -> None:
    """So every sample comes once an epoch: the plain plan's tests say so of the plain plan."""
    plan = bucketed(size, batch_size, seed)
    plain = BatchPlan(seed=seed, size=size, batch_size=batch_size)
    for number in range(3):
        steps = range(number * plan.window, (number + 1) * plan.window)
        got, want = ([(p.step(step).samples, p.step(step).epochs) for step in steps] for p in (plan, plain))
        pairs = [
            sorted(pair for s, e in rows for pair in zip(s.tolist(), e.tolist(), strict=True)) for rows in (got, want)
        ]
        assert pairs[0] == pairs[1]


@given(**SIZES)
def test_an_epoch_of_whole_windows_holds_every_sample_once(size: int, batch_size: int, seed: int) -> None:
    plan = bucketed(size, batch_size, seed)
    steps = plan.window * (-(-2 * size // (batch_size * plan.window)))
    drawn = [plan.step(step) for step in range(steps)]
    for epoch in (0, 1):
        samples = np.concatenate([draw.samples[draw.epochs == epoch] for draw in drawn])
        assert sorted(samples.tolist()) == list(range(size))


@given(world=st.integers(1, 5), **SIZES)
def test_a_batch_is_the_same_rows_for_any_number_of_ranks(size: int, batch_size: int, seed: int, world: int) -> None:
    whole = bucketed(size, batch_size, seed)
    for step in (0, 1, whole.window, 3 * whole.window - 1):
        shares = [bucketed(size, batch_size, seed, rank=rank, world=world).step(step) for rank in range(world)]
        together = np.stack([share.samples for share in shares], axis=1).ravel()
        assert together[:batch_size].tolist() == whole.step(step).samples.tolist()
        assert (together[batch_size:] == EMPTY).all()


@given(**SIZES)
def test_no_batch_holds_a_sample_twice_in_an_epoch(size: int, batch_size: int, seed: int) -> None:
    plan = bucketed(size, batch_size, seed)
    for step in range(2 * plan.window):
        draw = plan.step(step)
        assert len(set(zip(draw.samples.tolist(), draw.epochs.tolist(), strict=True))) == batch_size


def test_a_step_is_a_function_of_seed_and_step() -> None:
    plan = bucketed(1000, 8)
    later = plan.step(77).samples.tolist()
    plan.step(3)
    assert bucketed(1000, 8).step(77).samples.tolist() == later
    assert bucketed(1000, 8, seed=8).step(77).samples.tolist() != later
    assert plan.step(77 + 125).samples.tolist() != later  # the next epoch has other batches


def test_little_is_padded_and_lengths_come_in_no_order() -> None:
    plan = bucketed(5000, 16)
    plain = BatchPlan(seed=7, size=5000, batch_size=16)
    steps = range(128)
    assert np.mean([padding(plan, plan.step(step).samples) for step in steps]) < 0.03
    assert np.mean([padding(plan, plain.step(step).samples) for step in steps]) > 0.4
    longest = [int(lengths(5000)[plan.step(step).samples].max()) for step in range(64)]
    assert abs(np.corrcoef(longest, np.arange(64))[0, 1]) < 0.3


def test_a_pass_that_is_cut_short_is_a_fair_sample() -> None:
    plan = bucketed(5000, 16)
    plain = BatchPlan(seed=7, size=5000, batch_size=16)
    assert plan.once(0).samples.tolist() == plain.once(0).samples.tolist()


def test_equal_lengths_keep_whole_batches_of_the_plain_plan() -> None:
    plan = BatchPlan(seed=1, size=64, batch_size=4, lengths=np.ones(64, dtype=np.int64))
    plain = BatchPlan(seed=1, size=64, batch_size=4)
    batches = {tuple(plain.step(step).samples.tolist()) for step in range(16)}
    assert {tuple(plan.step(step).samples.tolist()) for step in range(16)} == batches
