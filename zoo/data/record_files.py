"""Records in files: JSON lines, comma-separated values, and lines with tabs."""

from __future__ import annotations

import csv
import difflib
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data.decoding import JSON_LINES, Errors, decode_utf8, open_bytes, parse_json, shape, text_under
from zoo.data.records import Record, Records
from zoo.errors import UserError

logger = logging.getLogger(__name__)


class Field(NamedTuple):
    """A field of a line: what it is called there, and the knob that says so."""

    name: str
    knob: str


class RecordFiles(Records):
    """Records of ``.jsonl``, ``.csv`` and ``.tsv`` files.

    A ``.csv`` file begins with a line of names and has quotation marks around what holds a comma or a line end; a
    ``.tsv`` file has a tab between two fields and knows no quotation marks. Empty lines are passed over.

    Args:
        paths: the files.
        texts: the fields of the texts; the first one is the key.
        label: the field of the label, if there is one; in JSON it may be a whole number, or true or false.
        header: whether ``.tsv`` files begin with a line of names; without one, a line has the fields in their order.
        errors: what to do with what UTF-8 can't hold.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        texts: Sequence[Field],
        *,
        label: Field | None = None,
        header: bool = True,
        errors: Errors = "error",
    ) -> None:
        self.paths, self.texts, self.label, self.header, self.errors = paths, texts, label, header, errors
        self.fields = [*texts, *([label] if label else [])]
        self._replaced = 0

    def walk(self) -> Iterator[Record]:
        """Records in the order of files and lines."""
        self._replaced = 0
        for path in self.paths:
            ending = path.suffix.lower()
            if ending not in {*JSON_LINES, ".csv", ".tsv"}:
                raise UserError(
                    f"{path} is none of .jsonl, .ndjson, .csv and .tsv",
                    where="data.files",
                    fix="give it the ending that says what it holds",
                )
            for place, values in self._json(path) if ending in JSON_LINES else self._table(path, ending):
                texts = tuple(values[: len(self.texts)])
                yield Record(texts, values[-1] if self.label else "", texts[0], place)
        if self._replaced:
            logger.warning("%d pieces that are no UTF-8 were replaced by U+FFFD", self._replaced)

    def _lines(self, path: Path) -> Iterator[tuple[str, str]]:
        """Place and text of each line, with its line end."""
        offset = 0
        with open_bytes(path) as lines:
            for number, line in enumerate(lines, start=1):
                place = f"{path}:{number}"
                text, replaced = decode_utf8(line, where=place, offset=offset, errors=self.errors)
                self._replaced += replaced
                offset += len(line)
                yield place, text

    def _json(self, path: Path) -> Iterator[tuple[str, list[str]]]:
        for place, line in self._lines(path):
            if not line.strip():
                continue
            record, values = parse_json(line, where=place), []
            for field in self.texts:
                text, replaced = text_under(record, field.name, knob=field.knob, where=place, errors=self.errors)
                self._replaced += replaced
                values.append(text)
            yield place, values + ([_label(record, self.label, place)] if self.label else [])

    def _table(self, path: Path, ending: str) -> Iterator[tuple[str, list[str]]]:
        rows = _quoted(path, self._lines(path)) if ending == ".csv" else _tabbed(self._lines(path))
        chosen, width = list(range(len(self.fields))), len(self.fields)
        if self.header or ending == ".csv":
            place, names = next(rows, (f"{path}:1", list[str]()))
            chosen, width = [_column(names, field, place) for field in self.fields], len(names)
        for place, cells in rows:
            if len(cells) != width:
                raise UserError(
                    f"the line has {len(cells)} fields instead of {width}",
                    where=place,
                    fix="correct the line; in a .csv file, put quotation marks around a field that holds a comma",
                )
            yield place, [cells[at] for at in chosen]


def _tabbed(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    for place, line in lines:
        text = line.removesuffix("\n").removesuffix("\r")
        if text:
            yield place, text.split("\t")


def _quoted(path: Path, lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    reader = csv.reader((line for _, line in lines), strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            where = f"{path}:{begin}"
            raise UserError(f"not a line of comma-separated values: {error}", where=where, fix="correct it") from None
        if cells is None:
            return
        if cells:
            yield f"{path}:{begin}", cells


def _column(names: Sequence[str], field: Field, place: str) -> int:
    if names.count(field.name) == 1:
        return names.index(field.name)
    near = difflib.get_close_matches(field.name, names)
    raise UserError(
        f"{names.count(field.name) or 'no'} columns are called {field.name!r}"
        + (f"; did you mean {', '.join(near)}?" if near else f"; there are {', '.join(names) or 'none'}"),
        where=place,
        fix=f"name the column: {field.knob}",
    )


def _label(record: Any, field: Field, place: str) -> str:
    value = record.get(field.name)
    if not isinstance(value, str | int):  # a bool is an int, too
        raise UserError(
            f"no label under the key {field.name!r}; {shape(record)}",
            where=place,
            fix=f"name the key that holds the label, a text or a whole number: {field.knob}",
        )
    return str(value)
