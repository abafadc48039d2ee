"""HTML from plain values: everything that isn't markup already is escaped."""

from __future__ import annotations

import html

from zoo.report.plain import clean

VOID = ("meta", "br", "link", "hr")


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | bool) -> Markup:
    """An element. ``class_`` and ``aria_label`` are attributes ``class`` and ``aria-label``; ``True`` is a bare one."""
    start = name + "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(str(value))}"')
        for key, value in attributes.items()
        if value is not False
    )
    return Markup(f"<{start}>" if name in VOID else f"<{start}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Elements and texts one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else escaped(child) for child in children))


def escaped(text: str) -> Markup:
    """A text that means itself, in an element or an attribute."""
    return Markup(html.escape(clean(text)))
