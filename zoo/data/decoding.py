"""Bytes of files to texts: UTF-8 and lines of JSON, each mistake named with its file, line and offset."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, BinaryIO, Literal

from zoo.errors import UserError

Errors = Literal["error", "replace"]
"""What to do with bytes that are no UTF-8 and with halves of surrogate pairs: stop, or put U+FFFD in their place."""

JSON_LINES = frozenset({".jsonl", ".ndjson"})
"""Endings of files with a JSON object a line."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")


def open_bytes(path: Path) -> BinaryIO:
    """A file, open for reading.

    Raises:
        UserError: it can't be read.
    """
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}", where="data.files") from None


def decode_utf8(data: bytes, *, where: str, offset: int, errors: Errors) -> tuple[str, int]:
    """The text of some bytes of a file, without the byte order mark at its beginning.

    Args:
        data: the bytes.
        where: how messages call their place.
        offset: where in the file they begin.
        errors: what to do with bytes that are no UTF-8.

    Returns:
        the text, and how many pieces were replaced.

    Raises:
        UserError: bytes that are no UTF-8, with the offset of the first.
    """
    skipped = len(_BYTE_ORDER_MARK) if offset == 0 and data.startswith(_BYTE_ORDER_MARK) else 0
    data = data[skipped:]
    try:
        return data.decode(), 0
    except UnicodeDecodeError as error:
        if errors == "error":
            raise UserError(
                f"byte {offset + skipped + error.start} of the file (0x{data[error.start]:02X}) is no UTF-8 text: "
                f"{error.reason}",
                where=where,
                fix="convert the file to UTF-8, name only text files, or set data.errors: replace",
            ) from None
    text = data.decode(errors="replace")
    return text, text.count("\ufffd") - data.count("\ufffd".encode())


def parse_json(line: str, *, where: str) -> Any:
    """The value of a line of JSON.

    Raises:
        UserError: it is none.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        at = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        fix = "correct or remove the line"
        raise UserError(f"not a line of JSON: {at}", where=where, fix=fix) from None


def text_under(record: Any, field: str, *, knob: str, where: str, errors: Errors) -> tuple[str, int]:
    """The text under a key of a JSON object, and how many halves of surrogate pairs were replaced in it.

    Raises:
        UserError: no object, no such key, or no text under it; ``knob`` is where a recipe names the key.
    """
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        raise UserError(
            f"no text under the key {field!r}; {shape(record)}",
            where=where,
            fix=f"name the key that holds the text: {knob}",
        )
    return _SURROGATE.subn("\ufffd", record[field]) if errors == "replace" else (record[field], 0)


def shape(record: Any) -> str:
    """What a line of JSON holds, for messages."""
    if not isinstance(record, dict):
        return f"the line is a {type(record).__name__}, not an object"
    return "the line has " + (
        ", ".join(f"{key} ({type(value).__name__})" for key, value in record.items()) or "no keys"
    )
