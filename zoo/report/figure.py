"""Figures as SVG within a page: the same bytes for the same numbers, nothing to run and nothing to fetch.

Texts stay texts, so that a reader's browser finds glyphs and directions for every script, and search and copying work.
None of them is read as a formula: ``$x_2$`` may be the name of a variant.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from zoo.report.plain import clean
from zoo.report.tags import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.0
"""Inches of a figure across; a page of A4 has as many between its margins."""

LOOK: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "zoo",
    "text.parse_math": False,
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.0,
}
KEPT = ("svg", "g", "defs", "path", "rect", "circle", "text", "tspan", "use", "clipPath", "pattern", "image")
"""Elements that a figure needs; a link is left with what it holds, others go with all they hold."""

_DIGITS = re.compile(r"-?\d+\.\d{3,}")
_OWN_FONT = re.compile(r"font-family: 'DejaVu Sans',[^;]*;? ?")
_OWN = re.compile(r"url\(#([^)]*)\)")


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Settings that every figure is made and written under, whatever the user's own are."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(LOOK)
        warnings.filterwarnings("ignore", message="Glyph")  # a reader's browser has them
        yield


def new_figure(rows: int, columns: int, height: float, *, share_x: bool = False, share_y: bool = False) -> Any:
    """A figure with so many axes, and a list of them.

    Args:
        rows, columns: of axes.
        height: inches of a row.
        share_x, share_y: whether all axes have the same limits.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=share_x, sharey=share_y)
    return figure, [*axes.flat]


def legend_below(figure: Figure, axes: Iterable[Axes], columns: int = 3) -> None:
    """What is drawn in some axes, each name once, under the figure."""
    named: dict[str, Any] = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if named:
        figure.legend([*named.values()], [*named], loc="outside lower left", ncols=columns)


def svg(figure: Figure, key: str, label: str) -> Markup:
    """A figure as an element of a page.

    Args:
        figure: any figure; what only makes sense in a file of its own, and links, are left out.
        key: no other figure of the page has it; every name inside begins with it.
        label: what it shows, in words.
    """
    file = io.StringIO()
    bounds = "tight" if figure.get_layout_engine() is None else None  # a layout has put everything inside
    with drawing():
        figure.savefig(file, format="svg", bbox_inches=bounds, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(file.getvalue())
    _tidy(root, key)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": clean(label)}
    root.tail = None
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _tidy(element: ElementTree.Element, key: str) -> None:
    element.tag = _bare(element.tag)
    element.attrib = {name: value for old, text in element.attrib.items() for name, value in _attribute(old, text, key)}
    is_text = element.tag in ("text", "tspan")
    if not is_text:
        element.text = None
    for child in [*element]:
        if not is_text:
            child.tail = None
        if _bare(child.tag) == "a":
            child.tag, child.attrib = "g", {}
        if _bare(child.tag) in KEPT:
            _tidy(child, key)
        else:
            element.remove(child)


def _bare(name: Any) -> str:
    """A name without its namespace, which a page doesn't need; comments have none."""
    return str(name).rpartition("}")[2]


def _attribute(name: str, value: str, key: str) -> Iterator[tuple[str, str]]:
    name = _bare(name)
    if name.lower().startswith("on"):
        return
    if name == "href" and not value.startswith(("#", "data:image/png;")):
        return
    if name == "id":
        value = f"{key}-{value}"
    elif name == "href" and value.startswith("#"):
        value = f"#{key}-{value[1:]}"
    elif name == "style":
        value = _OWN_FONT.sub("", value)  # the page's style says it once
    elif name in ("d", "x", "y"):
        value = _DIGITS.sub(lambda found: f"{float(found[0]):.2f}", value)
    elif name == "transform" and value.startswith("rotate(-0 "):
        return
    yield name, _OWN.sub(lambda found: f"url(#{key}-{found[1]})", value)
