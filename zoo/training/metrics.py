"""metrics.csv: one row for each step that was logged or validated."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from zoo.errors import RunFailed
from zoo.training.files import write_bytes

Row = dict[str, float]
"""Values of one step by column; what wasn't measured is missing."""


def columns(metrics: Iterable[str]) -> list[str]:
    """Columns of the file for a task's metrics."""
    names = list(metrics)
    measured = [f"{part}_{name}" for part in ("train", "val") for name in names]
    return ["step", "tokens", "wall_s", "lr", "grad_norm", *measured]


class MetricsFile:
    """A CSV file that grows by a row at a time; each row is on its way to the disk when ``write`` returns.

    Args:
        path: the file.
        header: its columns.
        before: rows of this step and later ones are dropped: a resumed run writes them again.
    """

    def __init__(self, path: Path, header: list[str], *, before: int) -> None:
        self.path, self.header = path, header
        kept = [row for row in read_metrics(path) if row["step"] < before] if path.exists() else []
        write_bytes(path, _text([dict(zip(header, header, strict=True)), *kept], header).encode())
        self._file = path.open("a", encoding="utf-8", newline="")

    def write(self, row: Row) -> None:
        """Add a row.

        Raises:
            RunFailed: the disk is full.
        """
        try:
            self._file.write(_text([row], self.header))
            self._file.flush()
        except OSError as error:
            raise RunFailed(f"can't write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[Row]:
    """Rows of a file in order; a last line that was cut off by a crash doesn't count."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(io.StringIO(whole))]


def _text(rows: Iterable[Mapping[str, object]], header: list[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writerows({**row, "step": _whole(row["step"]), "tokens": _whole(row["tokens"])} for row in rows)
    return text.getvalue()


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) else value
