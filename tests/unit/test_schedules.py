"""Learning-rate schedules: factors that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.contracts.schedule import Schedule
from zoo_builtin.schedule.constant import Constant
from zoo_builtin.schedule.cosine import Cosine
from zoo_builtin.schedule.inverse_sqrt import InverseSqrt
from zoo_builtin.schedule.linear import Linear
from zoo_builtin.schedule.warmup_stable_decay import WarmupStableDecay

ALL: list[type[Schedule]] = [Constant, Cosine, InverseSqrt, Linear, WarmupStableDecay]


def factors(kind: type[Schedule], steps: int, **knobs: Any) -> list[float]:
    schedule = kind(kind.Config(**knobs), steps=steps)
    return [schedule.factor(step) for step in range(steps + 1)]


@pytest.mark.parametrize("kind", ALL)
def test_warmup_reaches_the_peak_at_its_last_step(kind: type[Schedule]) -> None:
    assert factors(kind, 10, warmup_steps=4)[:4] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("kind", ALL)
@given(steps=st.integers(1, 300), share=st.floats(0, 1))
def test_factors_stay_between_0_and_1_and_never_rise_after_the_warmup(
    kind: type[Schedule], steps: int, share: float
) -> None:
    warmup = int(share * (steps - round(0.2 * steps)))
    values = factors(kind, steps, warmup_steps=warmup)
    assert all(0 <= value <= 1 for value in values)
    after = values[max(0, warmup - 1) :]
    assert after == sorted(after, reverse=True)


def test_constant_stays() -> None:
    assert factors(Constant, 3) == [1.0, 1.0, 1.0, 1.0]


def test_cosine_falls_along_half_a_period() -> None:
    assert factors(Cosine, 4, final=0.0) == pytest.approx([1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0])
    assert factors(Cosine, 6, warmup_steps=2, final=0.1) == pytest.approx(
        [0.5, 1, 1, 0.1 + 0.9 * (0.5 + 0.5**1.5), 0.55, 0.1 + 0.9 * (0.5 - 0.5**1.5), 0.1]
    )


def test_linear_falls_by_equal_amounts() -> None:
    assert factors(Linear, 4) == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    assert factors(Linear, 4, final=0.5) == pytest.approx([1, 0.875, 0.75, 0.625, 0.5])


@pytest.mark.parametrize(("dim", "warmup"), [(512, 4000), (64, 10)])
def test_inverse_sqrt_is_the_published_rate(dim: int, warmup: int) -> None:
    schedule = InverseSqrt(InverseSqrt.Config(warmup_steps=warmup), steps=100_000)
    peak = (dim * warmup) ** -0.5
    for number in (1, 2, warmup - 1, warmup, warmup + 1, 3 * warmup, 100_000):
        published = dim**-0.5 * min(number**-0.5, number * warmup**-1.5)
        assert peak * schedule.factor(number - 1) == pytest.approx(published, rel=1e-12)
    assert factors(InverseSqrt, 4)[:4] == pytest.approx([1, 2**-0.5, 3**-0.5, 0.5])


def test_warmup_stable_decay_falls_only_at_the_end() -> None:
    assert factors(WarmupStableDecay, 10, decay=0.4) == pytest.approx([1] * 6 + [1, 0.75, 0.5, 0.25, 0])
    assert factors(WarmupStableDecay, 5, decay=0.0) == [1.0] * 6


@pytest.mark.parametrize("kind", [Cosine, Linear, WarmupStableDecay])
def test_past_the_end_the_final_factor_stays(kind: type[Schedule]) -> None:
    schedule = kind(kind.Config(final=0.25), steps=4)
    assert [schedule.factor(step) for step in (4, 5, 400)] == pytest.approx([0.25] * 3)


def test_warmup_longer_than_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup_steps is 11; it must be from 0 to max_steps = 10"):
        Constant(Constant.Config(warmup_steps=11), steps=10)


def test_warmup_that_reaches_into_the_fall_is_refused() -> None:
    with pytest.raises(ValueError, match=r"warmup_steps \(9\) reach into the fall, from step 8 of 10"):
        WarmupStableDecay(WarmupStableDecay.Config(warmup_steps=9, decay=0.2), steps=10)
    with pytest.raises(ValueError, match=r"decay is 1\.5"):
        WarmupStableDecay(WarmupStableDecay.Config(decay=1.5), steps=10)
