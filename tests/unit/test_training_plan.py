"""The batch plan: every sample in its turn, whatever the number of ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from zoo.training.plan import EMPTY, BatchPlan

SIZES = {"size": st.integers(1, 40), "batch_size": st.integers(1, 17), "world": st.integers(1, 5)}


def ranks(size: int, batch_size: int, world: int) -> list[BatchPlan]:
    return [BatchPlan(seed=7, size=size, batch_size=batch_size, rank=rank, world=world) for rank in range(world)]


@given(**SIZES)
def test_a_batch_is_the_same_rows_for_any_number_of_ranks(size: int, batch_size: int, world: int) -> None:
    whole = BatchPlan(seed=7, size=size, batch_size=batch_size)
    for step in range(4):
        shares = [plan.step(step) for plan in ranks(size, batch_size, world)]
        assert len({share.samples.size for share in shares}) == 1
        together = np.stack([share.samples for share in shares], axis=1).ravel()
        epochs = np.stack([share.epochs for share in shares], axis=1).ravel()
        assert together[:batch_size].tolist() == whole.step(step).samples.tolist()
        assert epochs[:batch_size].tolist() == whole.step(step).epochs.tolist()
        assert (together[batch_size:] == EMPTY).all()
        assert together.size - batch_size < world


@given(**SIZES)
def test_steps_visit_every_sample_once_an_epoch(size: int, batch_size: int, world: int) -> None:
    plans = ranks(size, batch_size, world)
    steps = -(-2 * size // batch_size)
    draws = [plan.step(step) for step in range(steps) for plan in plans]
    pairs = [
        (e, s) for draw in draws for s, e in zip(draw.samples.tolist(), draw.epochs.tolist(), strict=True) if s >= 0
    ]
    for epoch in (0, 1):
        assert sorted(sample for e, sample in pairs if e == epoch) == list(range(size))


@given(**SIZES)
def test_one_pass_holds_every_sample_once_in_equally_many_batches(size: int, batch_size: int, world: int) -> None:
    plans = ranks(size, batch_size, world)
    assert len({plan.batches() for plan in plans}) == 1
    draws = [plan.once(batch) for plan in plans for batch in range(plan.batches())]
    assert len({draw.samples.size for draw in draws}) == 1
    assert sorted(s for draw in draws for s in draw.samples.tolist() if s != EMPTY) == list(range(size))


def test_a_pass_visits_samples_in_the_same_order_for_any_batch_size_and_seed() -> None:
    def order(batch_size: int, seed: int) -> list[int]:
        plan = BatchPlan(seed=seed, size=23, batch_size=batch_size)
        return [s for batch in range(plan.batches()) for s in plan.once(batch).samples.tolist() if s != EMPTY]

    assert order(4, seed=1) == order(23, seed=2)
    assert order(4, seed=1) != sorted(order(4, seed=1))  # the first batches of a capped pass come from all over
