"""Data sets of Hugging Face's ``datasets``, mapped into memory: by a name on the hub, or a folder on this machine."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data.documents import Documents
from zoo.data.record_files import Field
from zoo.data.records import Record, Records
from zoo.errors import UserError


class HubSet(NamedTuple):
    """Which data set it is."""

    dataset: str
    """Its name on the hub, or a folder that ``save_to_disk`` made."""
    config: str | None
    """The name of one of its configurations, if it has several."""
    split: str
    """Which of its parts."""

    def load(self) -> Any:
        """The data set, with random access by number.

        Raises:
            UserError: ``datasets`` isn't installed, there is no such set, or the hub can't be reached.
        """
        try:
            import datasets
        except ImportError:
            raise UserError(
                "source: hub needs the library datasets, which isn't installed",
                where="data.source",
                fix="pip install 'transformer-zoo[hf]'",
            ) from None
        folder = Path(self.dataset).expanduser()
        try:
            if folder.is_dir():
                found = datasets.load_from_disk(str(folder))
                return self._part(found) if isinstance(found, datasets.DatasetDict) else found
            return datasets.load_dataset(self.dataset, self.config, split=self.split)
        except UserError:
            raise
        except Exception as error:  # what it raises is of many classes, most of them of other libraries
            raise UserError(
                f"can't load the data set {self.dataset!r}: {_first_line(error)}",
                where="data.dataset",
                fix="check the name, dataset_config and dataset_split; without a network, load it once on a machine "
                "that has one, save it with save_to_disk, and name the folder",
            ) from None

    def _part(self, parts: Any) -> Any:
        if self.split in parts:
            return parts[self.split]
        raise UserError(
            f"the data set {self.dataset!r} has no part {self.split!r}; it has {', '.join(parts)}",
            where="data.dataset_split",
        )

    def name(self, row: int) -> str:
        """How messages call a row."""
        return f"{self.dataset}, {self.split}, row {row}"


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class HubDocuments(Documents):
    """Documents of a data set, one a row.

    Args:
        which: the data set.
        field: the column of the text.
    """

    def __init__(self, which: HubSet, field: str) -> None:
        self.which, self.field = which, field
        rows = which.load()
        _check_column(rows, Field(field, "data.field"))
        self.rows = rows.select_columns([field])

    def walk(self) -> Iterator[tuple[int, str]]:
        """Rows in order."""
        for number, row in enumerate(self.rows):
            yield number, _text(row, self.field, self.name(number))

    def read(self, place: int) -> str:
        """The text of a row."""
        return _text(self.rows[place], self.field, self.name(place))

    def name(self, place: int) -> str:
        """The data set, its part, and the row's number from 0."""
        return self.which.name(place)


class HubRecords(Records):
    """Labelled texts of a data set, one a row.

    Args:
        which: the data set.
        text: the column of the text.
        label: the column of the label: a class of ``datasets``, a text, or a whole number.
    """

    def __init__(self, which: HubSet, text: Field, label: Field) -> None:
        self.which, self.text, self.label = which, text, label
        rows = which.load()
        _check_column(rows, text)
        _check_column(rows, label)
        self.rows = rows.select_columns([text.name, label.name])

    def walk(self) -> Iterator[Record]:
        """Rows in order."""
        names = getattr(self.rows.features[self.label.name], "names", None)
        for number, row in enumerate(self.rows):
            place = self.which.name(number)
            text = _text(row, self.text.name, place)
            yield Record((text,), _label(row[self.label.name], names, place), text, place)


def _check_column(rows: Any, field: Field) -> None:
    columns = rows.column_names
    if field.name not in columns:
        near = difflib.get_close_matches(field.name, columns)
        raise UserError(
            f"the data set has no column {field.name!r}; it has {', '.join(columns)}",
            where=field.knob,
            fix=f"did you mean {', '.join(near)}?" if near else "name one of them",
        )


def _text(row: Any, field: str, place: str) -> str:
    if not isinstance(row[field], str):
        raise UserError(f"{field} is a {type(row[field]).__name__}, not a text", where=place)
    return row[field]


def _label(value: Any, names: list[str] | None, place: str) -> str:
    if names is not None and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if names is not None or not isinstance(value, str | int):  # -1 stands for a label that is kept secret
        raise UserError(f"the row has no label, but {value!r}", where=place, fix="choose a part that has labels")
    return str(value)
