"""A report's page taken apart by the standard library's parser, which forgives nothing here."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "link", "hr", "img", "input"}


class Page(HTMLParser):
    """Elements of a page in order; refuses one that is closed out of turn, or not at all.

    Attributes:
        elements: name and attributes of each.
        texts: by name of the innermost element around them.
        tables: for each table its rows, for each row its cells: text and the value of a ``data`` in it.
        titles: text of each heading, and how many tables stood before it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.tables: list[list[list[tuple[str, str | None]]]] = []
        self.titles: list[tuple[str, int]] = []
        self.feed(text)
        self.close()
        assert not self.stack, f"never closed: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice: {attrs}"
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append(("", None))
        elif tag == "data":
            self.tables[-1][-1][-1] = ("", dict(attrs)["value"])
        elif tag in ("h1", "h2", "h3"):
            self.titles.append(("", len(self.tables)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack[-1] == tag, f"</{tag}> closes {self.stack[-3:]}"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((self.stack[-1] if self.stack else "", data))
        if {"td", "th"} & {*self.stack}:
            text, value = self.tables[-1][-1][-1]
            self.tables[-1][-1][-1] = (text + data, value)
        elif {"h1", "h2", "h3"} & {*self.stack}:
            text, place = self.titles[-1]
            self.titles[-1] = (text + data, place)

    def attributes(self, *names: str) -> list[str]:
        """All values of some attributes."""
        return [value or "" for _, found in self.elements for name, value in found.items() if name in names]

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of all elements with a name."""
        return [attributes for name, attributes in self.elements if name == tag]

    def table_under(self, title: str) -> list[list[tuple[str, str | None]]]:
        """The first table below a heading."""
        return self.tables[dict(reversed(self.titles))[title]]
