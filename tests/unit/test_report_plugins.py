"""Sections of reports that plugins add, and what becomes of them when they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from report_page import Page
from report_sample import Sample
from sample_plugins import PACKAGE, Site
from zoo.registry import Registry
from zoo.report.write import write_report

pytest.importorskip("matplotlib")

HOOK = (
    PACKAGE
    + """
from zoo.hookspecs import hookimpl
from zoo.report.section import Code, Plot, Section, Table
@hookimpl
def zoo_report_sections(document, folder):
"""
)

GOOD = """
    from matplotlib.figure import Figure
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2], label="$x_2$").pop().set_url("https://example.org")
    axes.set_title("<script>alert(1)</script>", url="javascript:alert(1)")
    axes.legend()
    table = Table(["cell", "value"], [["<b>n</b>", len(document["cells"])], [folder.name, None]])
    inner = Section("Inner", [Code("zoo <x>"), table])
    return [Section("Extra <i>", ["Some <b>words</b>.", Plot(figure, "A title", "A line.", table), inner])]
"""

WRONG = {
    "raises": ("    raise RuntimeError('no <way>')\n", "RuntimeError: no <way>"),
    "no section": ("    return ['<b>']\n", "TypeError: it returned '<b>', which is no zoo.report.section.Section"),
    "a part": (
        "    return [Section('S', [7])]\n",
        "TypeError: section 'S' holds 7; parts are texts, Table, Plot, Code and Section",
    ),
    "a row": ("    return [Section('S', [Table(['a', 'b'], [[1]])])]\n", "TypeError: section 'S' has a row [1]"),
    "a figure": ("    return [Section('S', [Plot(None, 'T', 't')])]\n", "AttributeError: 'NoneType' object"),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path / "site", monkeypatch)


def report(site: Site, tmp_path: Path, body: str) -> tuple[Page, str]:
    site.install("acme-zoo", "acme", {}, init=HOOK + body)
    folder = Sample(tasks=["text"], steps=4).write(tmp_path / "cmp")
    write_report(folder, Registry.discover(environment={}))
    text = (folder / "report.html").read_text(encoding="utf-8")
    return Page(text), text


def test_a_plugin_s_section_is_plain_values_made_safe(site: Site, tmp_path: Path) -> None:
    page, text = report(site, tmp_path, GOOD)
    assert "Extra <i>" in [title for title, _ in page.titles]
    said = [data for _, data in page.texts]
    assert "Some <b>words</b>." in said
    assert "From the plugin acme." in said
    assert "$x_2$" in said
    assert "zoo <x>" in said
    assert page.table_under("Inner")[1:] == [[("<b>n</b>", None), ("9", "9")], [("cmp", None), ("-", None)]]
    assert len(page.named("script")) == 1
    assert "example.org" not in text
    assert "javascript:" not in text
    assert "img-src" not in text
    assert len(page.attributes("id")) == len({*page.attributes("id")})


def test_a_picture_of_pixels_is_carried_within_the_page(site: Site, tmp_path: Path) -> None:
    body = """
    from matplotlib.figure import Figure
    figure = Figure()
    figure.subplots().imshow([[0, 1], [1, 0]])
    return [Section("Map", [Plot(figure, "A map", "Four squares.")])]
"""
    page, text = report(site, tmp_path, body)
    (image,) = page.named("image")
    assert str(image["href"]).startswith("data:image/png;base64,")
    assert "img-src data:; style-src" in text


@pytest.mark.parametrize("kind", WRONG)
def test_a_section_that_is_wrong_is_named_and_the_rest_stands(site: Site, tmp_path: Path, kind: str) -> None:
    body, message = WRONG[kind]
    page, _ = report(site, tmp_path, body)
    said = [data for _, data in page.texts]
    assert any(text.startswith(f"Its hook zoo_report_sections failed: {message}") for text in said)
    assert "Plugin acme" in [title for title, _ in page.titles]
    assert "How to repeat it" in [title for title, _ in page.titles]


def test_a_hook_may_want_less_and_give_nothing(site: Site, tmp_path: Path) -> None:
    init = PACKAGE + "from zoo.hookspecs import hookimpl\n@hookimpl\ndef zoo_report_sections(folder): return None\n"
    site.install("acme-zoo", "acme", {}, init=init)
    folder = Sample(tasks=["text"], steps=4).write(tmp_path / "cmp")
    write_report(folder, Registry.discover(environment={}))
    assert "acme" not in (folder / "report.html").read_text(encoding="utf-8")
