"""The report of a comparison: what stands in it, that it is true, and that nothing in it can do harm."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from report_page import Page
from report_sample import Sample
from zoo.errors import UserError
from zoo.registry import Registry
from zoo.report import curves
from zoo.report.caps import LISTED_STEPS, ROWS, VARIANTS
from zoo.report.write import write_report

pytest.importorskip("matplotlib")

HOSTILE = [
    "<script>alert(1)</script>",
    "$x_2$ \\frac{a}{b}",
    '"><img src=x onerror=alert(2)>',
    "a|b*c_d`e`[f](javascript:alert(3))",
    "נוירון-عصبون",
    "long " * 60,
    "&lt;b&gt; ]]> --> {{x}}",
    "\u202egnp.exe",
    "https://example.org/tracker.js",
]


@pytest.fixture(scope="module")
def bare() -> Registry:
    """A registry without plugins."""
    registry = Registry([], [])
    registry.load_plugins()
    return registry


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, bare: Registry) -> Path:
    """A finished comparison with its report."""
    sample = Sample(
        metric="test_loss", slices=(4, 8, 16, 32), failed={"wide": "out of memory <on purpose>"}, tune=(1e-3, 1e-2)
    )
    made = sample.write(tmp_path_factory.mktemp("report") / "cmp")
    write_report(made, bare)
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(read(folder))


def read(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def document(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def made(sample: Sample, folder: Path, registry: Registry) -> Page:
    write_report(sample.write(folder), registry)
    return Page(read(folder))


def test_every_section_is_there_and_linked(page: Page) -> None:
    titles = [title for title, _ in page.titles]
    sections = [
        "Overview",
        "Verdicts",
        "Learning curves",
        "Quality and cost",
        "Slices",
        "Tuning",
        "Failures",
        "Recipes",
    ]
    assert [title for title in titles if title in sections] == sections
    assert titles[-2:] == ["Environment", "How to repeat it"]
    targets = {value for value in page.attributes("href") if value.startswith("#section")}
    assert len(targets) == 10
    assert {f"#{name}" for name in page.attributes("id")} >= targets


def test_nothing_is_fetched_and_only_one_script_may_run(folder: Path, page: Page) -> None:
    text = read(folder)
    assert all(value.startswith("#") for value in page.attributes("href", "src", "xlink:href", "srcset", "action"))
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    assert not [name for _, found in page.elements for name in found if name.startswith("on")]
    (script,) = [data for element, data in page.texts if element == "script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(each["content"] for each in page.named("meta") if "http-equiv" in each)
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert page.elements.index(("script", {})) > page.elements.index(("body", {}))


def test_no_name_is_given_twice(page: Page) -> None:
    names = page.attributes("id")
    assert len(names) == len(set(names)) > 50
    referred = [value[1:] for value in page.attributes("href") if value.startswith("#")]
    referred += re.findall(r"url\(#([^)]*)\)", " ".join(page.attributes("clip-path", "style", "fill")))
    referred += page.attributes("aria-labelledby")
    assert {*referred} <= {*names}


def test_every_figure_says_in_words_and_numbers_what_it_shows(page: Page) -> None:
    drawings = page.named("svg")
    assert len(drawings) == 2 * 5  # forest, curves, costs, slices and tuning of two tasks
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert len(drawing["aria-label"] or "") > 40
        assert "viewbox" in drawing
    names = [element for element, _ in page.elements]
    for place in [place for place, name in enumerate(names) if name == "svg"]:
        rest = names[place:]
        assert rest.index("details") < rest.index("table") < [*rest, "figure"].index("figure", 1)


def test_every_number_of_the_verdict_table_is_that_of_the_results(folder: Path, page: Page) -> None:
    found = document(folder)
    columns = ["difference", "low", "high", "p", "adjusted p", "verdict", "pairs"]
    keys = ["difference", "low", "high", "p", "p_adjusted", "verdict", "seeds"]
    checked = 0
    for task in ("text", "copying"):
        head, *rows = page.table_under(f"Task {task}")
        titles = [text for text, _ in head]
        assert [row[0][0] for row in rows] == ["plain", "deep", "wide"]
        for row in rows:
            cells = dict(zip(titles, row, strict=True))
            values = [
                cell["metrics"]["test_loss"]
                for cell in found["cells"]
                if (cell["task"], cell["variant"]) == (task, row[0][0])
                and cell["phase"] == "report"
                and cell["status"] == "completed"
            ]
            assert cells["runs"][0] == f"{len(values)} of 3"
            assert number(cells["mean test_loss"]) == (statistics.fmean(values) if values else None)
            assert number(cells["spread"]) == (statistics.stdev(values) if values else None)
            verdict = next((v for v in found["verdicts"] if (v["task"], v["variant"]) == (task, row[0][0])), None)
            for column, key in zip(columns, keys, strict=True):
                text, value = cells[column]
                if verdict is None:
                    assert text == ("baseline" if key == "verdict" else "-")
                elif key == "verdict":
                    assert text == verdict[key]
                    assert cells["note"][0] == verdict["note"]
                else:
                    assert number((text, value)) == verdict[key], (row[0][0], column)
                    checked += 1
    assert checked == 2 * 2 * 6


def number(cell: tuple[str, str | None]) -> float | None:
    """The exact number of a cell, after a look at whether its text says the same."""
    text, value = cell
    if value is None:
        assert text == "-"
        return None
    assert float(text.replace(",", "")) == pytest.approx(float(value), rel=0.05)
    return float(value)


def test_tuning_is_told_with_every_result(page: Page) -> None:
    head, *rows = page.table_under("Task text")
    at = [text for text, _ in head].index("tuning runs")
    assert [row[at] for row in rows] == [("2", "2")] * 3
    assert [text for text, _ in rows[0][at + 1 : at + 3]] == ["optimizer.lr 0.001", "optimizer.lr"]


def test_failures_have_their_reasons(page: Page) -> None:
    head, *rows = page.table_under("Failures")
    assert [text for text, _ in head] == ["variant", "task", "status", "cells", "seeds", "reason"]
    said = [[text for text, _ in row] for row in rows]
    assert said == [
        ["wide", task, "failed", "3", "1, 2, 3", "out of memory <on purpose>"] for task in ("text", "copying")
    ]


def test_recipes_differ_in_exactly_what_was_changed(page: Page) -> None:
    _, *rows = page.table_under("Recipes")
    assert [[text for text, _ in row] for row in rows] == [
        ["deep", "architecture.attention.name", '"plain"', '"deep"', "all"]
    ]


def test_versions_and_hashes_are_told(folder: Path, page: Page) -> None:
    assert page.table_under("Environment")[2] == [("torch", None), ("2.14.1", None), ("all", None)]
    text = read(folder)
    assert "c" * 64 in text
    assert "d" * 64 in text
    assert "zoo compare recipes/compare/parts.yaml --run FOLDER" in text


def test_equal_folders_give_equal_bytes(folder: Path, tmp_path: Path, bare: Registry) -> None:
    other = tmp_path / "cmp"
    shutil.copytree(folder, other)
    for name in ("report.html", "report.md"):
        (other / name).unlink()
    write_report(other, bare)
    for name in ("report.html", "report.md"):
        assert (other / name).read_bytes() == (folder / name).read_bytes()


def test_the_user_s_own_settings_of_matplotlib_change_nothing(folder: Path, tmp_path: Path, bare: Registry) -> None:
    import matplotlib

    other = tmp_path / "cmp"
    shutil.copytree(folder, other)
    with matplotlib.rc_context(
        {"axes.facecolor": "red", "font.size": 33, "svg.fonttype": "path", "text.parse_math": True}
    ):
        write_report(other, bare)
        assert matplotlib.rcParams["font.size"] == 33
    assert (other / "report.html").read_bytes() == (folder / "report.html").read_bytes()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, bare: Registry) -> Path:
    """A report on names and a message that want to be more than text."""
    reasons = {HOSTILE[2]: f"\x1b[31m{HOSTILE[2]}\x1b[0m\x00 \ud800"}
    sample = Sample(variants=["plain", *HOSTILE], tasks=[HOSTILE[3], HOSTILE[4]], steps=4, failed=reasons)
    folder = sample.write(tmp_path_factory.mktemp("hostile") / "cmp")
    write_report(folder, bare)
    return folder


def test_hostile_names_stay_text(hostile: Path) -> None:
    text = read(hostile)
    page = Page(text)
    assert len(page.named("script")) == 1
    assert not page.named("img")
    assert all(value.startswith("#") for value in page.attributes("href", "src"))
    assert not [name for _, found in page.elements for name in found if name.startswith("on")]
    shown = [data for element, data in page.texts if element == "bdi"]
    assert {*HOSTILE} - {*shown} == {"\u202egnp.exe"}
    assert "\ufffdgnp.exe" in shown
    assert f"{HOSTILE[2]}\ufffd \ufffd" in shown
    for character in "\u202e\x00\x1b":
        assert character not in text
    drawn = [data for element, data in page.texts if element == "text"]
    assert "$x_2$ \\frac{a}{b}" in drawn
    assert HOSTILE[0] in drawn
    assert HOSTILE[4] in drawn
    assert max(map(len, drawn)) < 120


def test_hostile_names_stay_text_in_markdown(hostile: Path) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse((hostile / "report.md").read_text("utf-8"))
    inline = [token.children or [] for token in tokens if token.type == "inline"]
    blocks = ("heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td")
    allowed = {*(f"{name}_{end}" for name in blocks for end in ("open", "close")), "inline", "fence"}
    assert {token.type for token in tokens} <= allowed
    assert {token.type for children in inline for token in children} <= {"text", "text_special"}
    texts = {"".join(token.content for token in children) for children in inline}
    assert {" ".join(name.split()) for name in HOSTILE} - texts == {"\u202egnp.exe"}


def test_markdown_has_the_same_numbers(folder: Path) -> None:
    text = (folder / "report.md").read_text("utf-8")
    for verdict in document(folder)["verdicts"]:
        if verdict["difference"] is not None:
            assert f"{verdict['difference']:+#.4g}" in text
            assert f"{verdict['high']:+#.4g}" in text
    assert re.search(r"^deep +-+o-+", text, re.MULTILINE) or re.search(r"^deep .*o.*$", text, re.MULTILINE)
    assert "out of memory &lt;on purpose&gt;" in text


def test_forty_variants_have_each_a_look_of_their_own(tmp_path: Path, bare: Registry) -> None:
    names = [f"variant {number}" for number in range(40)]
    page = made(Sample(variants=names, tasks=["text"]), tmp_path / "cmp", bare)
    _, *rows = page.table_under("Task text")
    assert [row[0][0] for row in rows] == names
    drawn = [data for element, data in page.texts if element == "text"]
    assert set(names) <= set(drawn)


def test_a_running_comparison_gives_a_report_of_what_is_there(tmp_path: Path, bare: Registry) -> None:
    page = made(Sample(planned=(2, 3)), tmp_path / "some", bare)
    assert "The comparison isn't finished (33% ended): verdicts may change." in " ".join(text for _, text in page.texts)
    page = made(Sample(planned=(1, 2, 3)), tmp_path / "none", bare)
    assert not page.named("svg")
    only = tmp_path / "begun"
    only.mkdir()
    shutil.copy(tmp_path / "none" / "comparison.yaml", only)
    write_report(only, bare)
    assert "Nothing has been measured yet." in read(only)
    assert "architecture.attention" in read(only)


def test_runs_whose_files_are_missing_or_cut_off_leave_gaps(tmp_path: Path, bare: Registry) -> None:
    folder = Sample(tasks=["text"]).write(tmp_path / "cmp")
    runs = sorted((folder / "cells").glob("*/*"))
    shutil.rmtree(runs[0])
    (runs[1] / "metrics.csv").write_text("step,tokens,wall_s,train_loss,val_lo")
    (runs[2] / "recipe.yaml").write_text("architecture: {attention")
    (runs[3] / "recipe.lock.yaml").write_text("")
    write_report(folder, bare)
    assert len(Page(read(folder)).named("svg")) == 3


def test_a_folder_without_a_comparison_is_refused(tmp_path: Path, bare: Registry) -> None:
    with pytest.raises(UserError, match=r"is no comparison: it has no comparison\.yaml"):
        write_report(tmp_path, bare)
    assert not [*tmp_path.iterdir()]


def test_a_metric_without_numbers_is_no_number(tmp_path: Path, bare: Registry) -> None:
    folder = Sample(tasks=["text"]).write(tmp_path / "cmp")
    found = document(folder)
    for cell in found["cells"][:2]:
        cell["metrics"]["val_loss"] = math.nan
    (folder / "results.json").write_text(json.dumps(found))
    write_report(folder, bare)
    _, plain, *_ = Page(read(folder)).table_under("Task text")
    assert plain[1][1] == repr(found["cells"][2]["metrics"]["val_loss"])


def test_a_large_grid_is_cut_and_says_so(tmp_path: Path, bare: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read and written is bounded but for results.json, which is gone through once: cells cost linear time."""
    seen: list[Path] = []
    real = curves.read_metrics
    monkeypatch.setattr(curves, "read_metrics", lambda file: seen.append(file) or real(file))
    names = [f"v{number}" for number in range(ROWS + 100)]
    sizes = []
    for count in (ROWS // 2, ROWS + 100):
        folder = tmp_path / str(count)
        page = made(Sample(variants=names[:count], tasks=["text"], seeds=(1, 2), steps=4), folder, bare)
        sizes.append(len(read(folder)))
        assert len(seen) == 2 * VARIANTS
        seen.clear()
    text = " ".join(data for _, data in page.texts)
    assert f"Shown are {ROWS} of {ROWS + 100} variants; results.json has all." in text
    assert f"Shown are {VARIANTS} of {ROWS + 100} variants; the table above has more." in text
    assert len(page.table_under("Task text")) == 1 + ROWS
    assert sizes[1] < 2_000_000


def test_curves_have_at_most_two_hundred_points(tmp_path: Path, bare: Registry) -> None:
    page = made(Sample(tasks=["text"], steps=2000, seeds=(1, 2)), tmp_path / "cmp", bare)
    _, *rows = page.table_under("Learning curves")
    assert len(rows) == 3 * LISTED_STEPS
    assert "Shown are 120 of 600 points; metrics.csv of each run has all." in " ".join(text for _, text in page.texts)
