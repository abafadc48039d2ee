"""What a report's figures and tables are computed from, value by value."""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report_sample import Sample
from zoo.comparison import best
from zoo.report.bars import interval_bars
from zoo.report.caps import STEPS, VARIANTS, left_out, spaced
from zoo.report.curves import read_curve
from zoo.report.differences import ABSENT, difference, flat_recipe
from zoo.report.findings import Entry, TaskFindings, read_findings
from zoo.report.markdown import literal
from zoo.report.pareto import front
from zoo.report.plain import LONGEST_NAME, clean, number, short, short_names, some
from zoo.report.series import COLOURS, panels, styles
from zoo.report.slices import slices
from zoo.report.tags import Markup, tag
from zoo.report.tuning import is_edge
from zoo.report.tuning_curves import expected_best, scores

POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(POINTS, st.sampled_from([1, -1]), st.sampled_from([1, -1]))
def test_the_front_holds_those_that_no_other_beats(points: list[tuple[float, float]], x_sign: int, y_sign: int) -> None:
    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        sides = [x_sign * (one[0] - other[0]), y_sign * (one[1] - other[1])]
        return max(sides) <= 0 and min(sides) < 0

    best = {place for place, point in enumerate(points) if not any(beats(other, point) for other in points)}
    found = front(points, x_sign, y_sign)
    assert {*found} == best
    assert len(found) == len(best)
    along = [x_sign * points[place][0] for place in found]
    assert along == sorted(along)


@given(st.integers(0, 3000), st.integers(2, 300))
def test_spaced_places_reach_both_ends(count: int, most: int) -> None:
    places = spaced(count, most)
    assert places == sorted({*places})
    assert len(places) == min(count, most)
    if count:
        assert (places[0], places[-1]) == (0, count - 1)
        gaps = [after - before for before, after in itertools.pairwise(places)]
        assert not gaps or max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234, "1,234"),
        (1.23456, "1.235"),
        (-0.00012345, "-0.0001234"),
        (12345.6, "12,346"),
        (1234.0, "1234"),
        (1e20, "1.000e+20"),
        (0.0, "0.000"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (True, "yes"),
    ],
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_signs_and_digits_can_be_asked_for() -> None:
    assert number(0.5, signed=True) == "+0.5000"
    assert number(7, signed=True) == "+7"
    assert number(0.012345, 2) == "0.012"


@given(st.text())
def test_cleaned_text_can_be_written_and_is_left_alone_after_that(text: str) -> None:
    found = clean(text)
    assert found.encode() is not None
    assert clean(found) == found
    assert not {*found} & {*"\x00\x1b\u202e\u2067"}


def test_short_names_fit_and_differ() -> None:
    names = ["x" * 30 + middle + "y" * 30 for middle in "abc"] + ["plain", "two\nlines", ""]
    labels = short_names(names)
    assert len({*labels.values()}) == len(names)
    assert all(len(label) <= LONGEST_NAME + 5 for label in labels.values())
    assert short("two\nlines") == "two lines"
    assert some("abc", 2) == "a, b and 1 more"


@given(st.text())
def test_markdown_of_a_text_is_one_line_without_html(text: str) -> None:
    line = literal(text)
    assert "\n" not in line
    assert "<" not in line


def test_tags_escape_what_is_no_markup() -> None:
    assert tag("b", "<i>", Markup("<i>"), class_='"x"', aria_label="a&b", hidden=True, title=False) == (
        '<b class="&quot;x&quot;" aria-label="a&amp;b" hidden>&lt;i&gt;<i></b>'
    )


def test_bars_stand_on_one_scale_with_zero() -> None:
    lines = interval_bars([("up", 1.0, 0.5, 1.5), ("down", -1.0, -1.5, -0.5)])
    assert lines == [
        "up                            |       --------o--------",
        "down  --------o--------       |",
        "      -1.500                                     +1.500",
    ]


def test_left_out_is_said_only_where_something_is() -> None:
    assert left_out(3, 3, "rows") == ""
    assert left_out(3, 4000, "rows") == "Shown are 3 of 4,000 rows; results.json has all."


def test_a_curve_is_the_mean_and_spread_of_its_seeds(tmp_path: Path) -> None:
    folder = Sample(tasks=["text"], seeds=(1, 2, 3), steps=6).write(tmp_path / "cmp")
    findings = read_findings(folder)
    entry = findings.tasks[0].entries["plain"]
    runs = [findings.run(cell) for cell in entry.cells]
    last = runs[2]
    assert last is not None
    lines = (last / "metrics.csv").read_text().splitlines()
    (last / "metrics.csv").write_text("\n".join([*lines[:5], "50,500,0.5,1.0,nan", ""]))  # ends after step 40
    curve = read_curve(entry, findings, "val_loss")
    assert curve is not None
    levels = [cell["metrics"]["val_loss"] for cell in entry.cells]
    values = {step: [level + math.exp(-5 * step / 60) for level in levels] for step in (20, 40, 60)}
    values[60].pop()
    assert list(curve.steps) == [20, 40, 60]
    assert list(curve.seeds) == [3, 3, 2]
    assert curve.means == pytest.approx([statistics.fmean(values[step]) for step in curve.steps])
    assert curve.spreads == pytest.approx([statistics.stdev(values[step]) for step in curve.steps])


def test_a_long_curve_is_thinned(tmp_path: Path) -> None:
    findings = read_findings(Sample(tasks=["text"], seeds=(1,), steps=1000).write(tmp_path / "cmp"))
    curve = read_curve(findings.tasks[0].entries["plain"], findings, "val_loss")
    assert curve is not None
    assert len(curve.steps) == STEPS
    assert (curve.steps[0], curve.steps[-1]) == (20, 10_000)
    assert {*curve.spreads} == {0.0}


def test_slices_are_grouped_by_what_their_names_end_in() -> None:
    metrics = {"val_accuracy_pairs_16": 0.1, "val_accuracy_pairs_4": 0.2, "val_top5": 0.3, "val_loss_length_8": 0.4}
    entry = Entry("a", "t", [{"status": "completed", "metrics": metrics, "costs": {}}])
    assert slices(TaskFindings("t", "val_loss", "lower", "a", {"a": entry})) == {"val_accuracy_pairs": [4, 16]}


def test_recipes_differ_by_dotted_keys(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("a: {b: 1, c: [1, 2]}\nd: text\ngone: {}\n")
    (tmp_path / "two.yaml").write_text("a: {b: 1.0, c: [1, 3]}\nd: text\nnew: null\n")
    one, two = flat_recipe(tmp_path / "one.yaml"), flat_recipe(tmp_path / "two.yaml")
    assert difference(one, two) == [
        ("a.b", "1", "1.0"),
        ("a.c", "[1, 2]", "[1, 3]"),
        ("gone", "{}", ABSENT),
        ("new", ABSENT, "null"),
    ]
    assert difference(one, one) == []


def entries(count: int) -> dict[str, Entry]:
    return {
        f"v{number}": Entry(f"v{number}", "t", [{"status": "completed", "metrics": {"m": float(number)}, "costs": {}}])
        for number in range(count)
    }


def test_of_many_variants_the_best_and_the_baseline_are_drawn() -> None:
    task = TaskFindings("t", "m", "lower", "v90", entries(100))
    assert [entry.variant for entry in task.drawn()] == [*(f"v{number}" for number in range(VARIANTS - 1)), "v90"]
    task.better = "higher"
    assert "v99" in [entry.variant for entry in task.drawn()]


def test_variants_of_a_figure_differ_in_colour_and_marker_and_within_a_panel_in_each() -> None:
    task = TaskFindings("t", "m", "lower", "v0", entries(VARIANTS))
    looks = styles(task, task.drawn())
    assert len({(look.colour, look.marker) for look in looks.values()}) == VARIANTS
    shown = {*looks} - {"v3"}
    groups = panels(task, task.drawn(), shown)
    assert {entry.variant for group in groups for entry in group} == shown
    for group in groups:
        assert group[0].variant == "v0"
        assert len(group) <= 1 + len(COLOURS)
        for field in range(3):
            assert len({looks[entry.variant][field] for entry in group[1:]}) == len(group) - 1


def test_the_edge_of_a_grid_is_its_least_or_largest_number() -> None:
    assert [is_edge(value, [3, 1, 2]) for value in (1, 2, 3)] == [True, False, True]
    assert not is_edge(1, [1])
    assert not is_edge("a", ["a", "b"])


def test_costs_are_means_and_a_count_stays_whole(tmp_path: Path) -> None:
    entry = read_findings(Sample(tasks=["text"]).write(tmp_path / "cmp")).tasks[0].entries["deep"]
    assert repr(entry.cost("parameters")) == "2000"
    assert repr(entry.cost("macs")) == "5001"
    assert entry.cost("train_tokens_per_s") == 900.5
    assert entry.cost("energy_gpu_j") is None


def test_tuning_scores_are_means_by_point_and_missing_where_a_seed_is() -> None:
    def cell(lr: float, value: float | None, status: str = "completed") -> dict[str, object]:
        return {
            "phase": "tune",
            "point": {"lr": lr},
            "status": status,
            "metrics": {} if value is None else {"m": value},
        }

    cells = [cell(1, 2.0), cell(1, 4.0), cell(2, 5.0), cell(2, None), cell(3, 1.0, "diverged"), cell(4, 7.0)]
    assert scores(Entry("a", "t", tuning=cells), "m") == [3.0, None, None, 7.0]


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_the_expected_best_score_is_that_of_the_comparison(better: Literal["lower", "higher"]) -> None:
    tried = [3.0, None, 2.5, 7.0, 2.5]
    assert expected_best(tried, better) == pytest.approx(best.expected_best(tried, better).expected)
    assert expected_best([1.0, 2.0], "higher") == pytest.approx([1.5, 1.75])
    assert expected_best([None, None], better) == []
