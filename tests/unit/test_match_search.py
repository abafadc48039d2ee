"""The search for whole numbers alone, on made-up quantities, against trying everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.comparison import search
from zoo.comparison.search import Search, Sizes, crossing, last_at_most

Quantity = Callable[[Sizes], float | None]


@given(
    steps=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    most=st.integers(-5, 300),
    start=st.integers(1, 60),
)
def test_the_last_place_below_a_value_is_found_on_any_rising_line(steps: list[int], most: int, start: int) -> None:
    line = [sum(steps[: place + 1]) for place in range(len(steps))]
    expected = max((place for place, value in enumerate(line, start=1) if value <= most), default=0)
    assert last_at_most(lambda place: line[place - 1], 1, len(line), most) == expected
    assert crossing(lambda place: line[place - 1], min(start, len(line)), len(line), most) == expected


def test_a_straight_line_is_asked_four_times() -> None:
    asked = []

    def line(place: int) -> float:
        asked.append(place)
        return 7.0 * place + 3

    assert last_at_most(line, 1, 10_000, 7 * 1234 + 5) == 1234
    assert len(set(asked)) == 4


@st.composite
def problems(draw: st.DrawFn) -> tuple[Quantity, Sizes, float, float, int]:
    """A quantity that never falls in width and feed-forward size, a start, a value, a tolerance, a quantum of heads."""
    quantum, heads = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3, 4]))
    groups = draw(st.sampled_from([group for group in (1, 2) if heads % group == 0]))
    dim = quantum * heads * draw(st.integers(1, 8))
    hidden = draw(st.sampled_from([0, dim, 4 * dim, draw(st.integers(1, 40))]))
    layers, vocabulary, square, block = (draw(st.integers(0, most)) for most in (3, 60, 6, 16))
    kind = draw(st.sampled_from(["parameters", "keys", "state"]))

    def quantity(sizes: Sizes) -> float | None:
        if sizes.heads % groups or sizes.dim % (sizes.heads * quantum):
            return None
        if kind == "keys":
            return 8.0 * sizes.dim * groups / sizes.heads
        if kind == "state":
            return 4.0 * sizes.dim**2 / sizes.heads
        rough = -(-sizes.dim // block) * block if block else 0  # as a rank that goes up in steps
        return float(
            (vocabulary + 1 + rough) * sizes.dim + layers * (square * sizes.dim**2 + 2 * sizes.dim * sizes.hidden)
        )

    start = Sizes(hidden, dim, heads)
    own = quantity(start)
    assert own is not None
    share, tolerance = draw(st.floats(0.15, 6)), draw(st.sampled_from([0.0001, 0.003, 0.01, 0.05]))
    return quantity, start, own * share, tolerance, quantum


def looking(quantity: Quantity, start: Sizes, value: float, tolerance: float) -> Search:
    return Search(quantity, lambda sizes: quantity(sizes) is not None, start, value, tolerance)


def everything(quantity: Quantity, looked: Search, start: Sizes, value: float) -> list[float]:
    """Values of all sizes within bounds, but for widths beyond those that can only be further off."""
    found = []
    for heads in range(1, 2 * start.heads + 1):
        for dim in range(1, search.WIDEST * start.dim + 1):
            least, most = looked._bounds(dim)
            ends = quantity(Sizes(least, dim, heads)), quantity(Sizes(most, dim, heads))
            if ends[0] is None or ends[1] is None:
                continue
            found += ends
            if ends[0] <= value <= ends[1]:
                found += [quantity(Sizes(hidden, dim, heads)) or 0.0 for hidden in range(least, most + 1)]
            if ends[0] > value:
                break
    return found


@settings(max_examples=60)
@given(problems())
def test_what_is_found_is_near_enough_and_what_is_refused_has_the_nearest_neighbours(
    problem: tuple[Quantity, Sizes, float, float, int],
) -> None:
    quantity, start, value, tolerance, _ = problem
    looked = looking(quantity, start, value, tolerance)
    sizes = looked.run()
    if sizes is not None:
        found = quantity(sizes)
        assert found is not None and abs(found - value) <= tolerance * value
        least, most = looked._bounds(sizes.dim)
        assert least <= sizes.hidden <= most
        if abs(looked.measured[start] - value) <= tolerance * value:  # type: ignore[operator]
            assert sizes == start
    elif len(looked.measured) < search.MOST:
        values = everything(quantity, looked, start, value)
        below, above = looked.neighbours()
        assert (below and quantity(below)) == max((one for one in values if one <= value), default=None)
        assert (above and quantity(above)) == min((one for one in values if one >= value), default=None)


def parameters(sizes: Sizes) -> float | None:
    return None if sizes.dim % sizes.heads else 100.0 * sizes.dim + 2 * sizes.dim * (2 * sizes.dim + sizes.hidden)


def test_the_feed_forward_size_is_changed_first_and_alone_while_it_is_enough() -> None:
    start = Sizes(64, 16, 4)
    own = parameters(start)
    assert own is not None
    for share in (0.8, 1.05, 1.3):
        sizes = looking(parameters, start, share * own, 0.01).run()
        assert sizes is not None and sizes[1:] == start[1:] and sizes.hidden != 64
    assert looking(parameters, start, 1.009 * own, 0.01).run() == start


def test_then_the_width_in_steps_of_the_heads_with_the_feed_forward_size_near_its_proportion() -> None:
    start = Sizes(64, 16, 4)
    sizes = looking(parameters, start, 40_000, 0.001).run()
    assert sizes is not None and sizes.heads == 4 and sizes.dim % 4 == 0
    assert 0.9 < sizes.hidden / (4 * sizes.dim) < 1.2


def test_then_the_heads() -> None:
    def keys(sizes: Sizes) -> float | None:
        return None if sizes.dim % sizes.heads else 16.0 * sizes.dim

    assert looking(keys, Sizes(64, 16, 4), 16 * 24, 0.01).run() == Sizes(96, 24, 4)
    assert looking(keys, Sizes(64, 16, 4), 16 * 21, 0.01).run() == Sizes(84, 21, 3)


def test_few_models_are_built() -> None:
    looked = looking(parameters, Sizes(64, 16, 4), 1e6, 0.01)
    assert looked.run() is not None and len(looked.measured) < 25
    looked = looking(parameters, Sizes(64, 16, 4), 1.2 * parameters(Sizes(64, 16, 4)), 0.01)  # type: ignore[operator]
    assert looked.run() is not None and len(looked.measured) <= 5


@pytest.mark.parametrize(("value", "sides"), [(0.5, (False, True)), (1e12, (True, False))])
def test_a_value_outside_of_all_has_a_neighbour_on_one_side(value: float, sides: tuple[bool, bool]) -> None:
    looked = looking(parameters, Sizes(64, 16, 4), value, 0.01)
    assert looked.run() is None
    assert tuple(side is not None for side in looked.neighbours()) == sides
