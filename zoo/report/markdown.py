"""report.md: the same sections as text, with tables in place of figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from zoo.report.plain import clean, shown
from zoo.report.section import Code, Plot, Section, Table, Value

_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]|~$#])")
_LIST = re.compile(r"^(\d*)([-+=.)])(?=\s|[-=\s]*$)")


def markdown(title: str, sections: Sequence[Section]) -> str:
    """The whole file."""
    parts = [f"# {literal(title)}", *(part for section in sections for part in _section(section, 2))]
    return "\n\n".join(parts) + "\n"


def literal(text: str) -> str:
    """A text in one line that means itself."""
    line = " ".join(clean(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LIST.sub(r"\1\\\2", _MEANS_SOMETHING.sub(r"\\\1", line))


def _section(section: Section, level: int) -> Iterator[str]:
    yield f"{'#' * min(level, 6)} {literal(section.title)}"
    for part in section.parts:
        if isinstance(part, Section):
            yield from _section(part, level + 1)
        elif isinstance(part, Table):
            yield from _table(part)
        elif isinstance(part, Plot):
            yield f"{literal(part.title)}. {literal(part.text)}"
            if part.bars:
                yield _code("\n".join(part.bars))
            elif part.table:
                yield from _table(part.table)
        elif isinstance(part, Code):
            yield _code(part.text)
        else:
            yield literal(str(part))


def _table(table: Table) -> Iterator[str]:
    lines = [_line([literal(name) for name in table.columns])]
    numeric = [any(isinstance(row[place], int | float) for row in table.rows) for place in range(len(table.columns))]
    lines.append(_line(["---:" if is_number else "---" for is_number in numeric]))
    lines += [
        _line([_cell(name, value, table) for name, value in zip(table.columns, row, strict=True)]) for row in table.rows
    ]
    yield "\n".join(lines)
    if table.note:
        yield literal(table.note)


def _cell(name: str, value: Value, table: Table) -> str:
    text = shown(value, table.digits.get(name, 4), signed=name in table.signed)
    return text if value is None or isinstance(value, int | float) else literal(text)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """A block that no line of the text can end."""
    lines = clean(text)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", lines)), 3)
    return f"{fence}text\n{lines}\n{fence}"
