"""report.html: sections as one page that fetches nothing and, but for sorting tables, runs nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from zoo.report.figure import svg
from zoo.report.plain import shown
from zoo.report.section import Code, Plot, Section, Table, Value
from zoo.report.tags import Markup, escaped, joined, tag

LONG = 40
"""Characters from which on a text in a table has a column that may be broken."""
LONG_NAME = 24
"""The same for the name of a row."""
VERDICTS = ("better", "worse", "equivalent")

_STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
_SCRIPT = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole file."""
    body = _Body()
    main = [body.section(section, f"section-{place}", level=2) for place, section in enumerate(sections, start=1)]
    links = [
        tag("li", tag("a", section.title, href=f"#section-{place}")) for place, section in enumerate(sections, start=1)
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(body.has_images)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title}: report"),
        tag("style", Markup(_STYLE)),
    )
    whole = tag(
        "body",
        tag("header", tag("h1", tag("bdi", title)), tag("p", "Report of a comparison made by the zoo.")),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *main),
        tag("script", Markup(_SCRIPT)),
    )
    return f"<!doctype html>\n{tag('html', head, whole, lang='en')}\n"


def _policy(has_images: bool) -> str:
    """What a browser may do with the page: apply its style, and run the one script that has this hash."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    images = "img-src data:; " if has_images else ""
    return (
        f"default-src 'none'; {images}style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


class _Body:
    """Writes sections, and counts figures and tables as it goes."""

    def __init__(self) -> None:
        self.figures = self.tables = 0
        self.has_images = False

    def section(self, section: Section, key: str, level: int) -> Markup:
        parts = [self.part(part, f"{key}-{place}", level) for place, part in enumerate(section.parts, start=1)]
        heading = tag(f"h{min(level, 6)}", tag("bdi", section.title), id=key)
        return joined(tag("section", heading, *parts, aria_labelledby=key), Markup("\n"))

    def part(self, part: object, key: str, level: int) -> Markup:
        if isinstance(part, Section):
            return self.section(part, key, level + 1)
        if isinstance(part, Table):
            return self.table(part)
        if isinstance(part, Plot):
            return self.plot(part)
        if isinstance(part, Code):
            return tag("pre", tag("code", part.text))
        return tag("p", str(part))

    def plot(self, plot: Plot) -> Markup:
        self.figures += 1
        name = f"Figure {self.figures}"
        drawn = svg(plot.figure, f"f{self.figures}", f"{plot.title}. {plot.text}")
        self.has_images |= "<image" in drawn
        numbers = (
            [tag("details", tag("summary", f"Numbers of {name.lower()}"), self.table(plot.table))] if plot.table else []
        )
        caption = tag("figcaption", f"{name}. ", tag("bdi", plot.title))
        return tag("figure", _scrolled(drawn, name), caption, *numbers)

    def table(self, table: Table) -> Markup:
        self.tables += 1
        numeric = [
            any(isinstance(row[place], int | float) for row in table.rows) for place in range(len(table.columns))
        ]
        heads = map(_head, table.columns, numeric)
        rows = [joined(_row(row, table, numeric), Markup("\n")) for row in table.rows]
        whole = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="sortable")
        note = [tag("p", table.note, class_="note")] if table.note else []
        return joined(_scrolled(whole, f"Table {self.tables}"), *note)


def _scrolled(content: Markup, label: str) -> Markup:
    """What may be wider than the screen; the keyboard reaches it to scroll."""
    return tag("div", content, class_="wide", role="region", tabindex="0", aria_label=label)


def _head(name: str, is_number: bool) -> Markup:
    kind = "number" if is_number else "long" if len(name) > LONG else ""
    return tag("th", tag("bdi", name), scope="col", class_=kind or False)


def _row(row: Sequence[Value], table: Table, numeric: Sequence[bool]) -> Markup:
    cells = []
    for place, (name, value, is_number) in enumerate(zip(table.columns, row, numeric, strict=True)):
        text = shown(value, table.digits.get(name, 4), signed=name in table.signed)
        if isinstance(value, int | float):
            inner = tag("data", text, value=repr(+value))
        else:
            inner = tag("bdi", text) if text else escaped("")
        if place == 0:
            cells.append(tag("th", inner, scope="row", class_="long" if len(text) > LONG_NAME else False))
            continue
        kinds = ["number"] if is_number else ["long"] if len(text) > LONG else []
        kinds += [text] if name == "verdict" and text in VERDICTS else []
        cells.append(tag("td", inner, class_=" ".join(kinds) or False))
    return tag("tr", *cells)
