"""Files that are replaced whole or not at all."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from zoo.errors import RunFailed
from zoo.training.files import link_or_copy, replacing, write_bytes, write_json


def test_a_failure_halfway_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"ne")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_message_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(RunFailed, match=r"can't write .*file: File too large"):
            write_bytes(path, b"new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_gone_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="No such file or directory"):
        write_json(tmp_path / "gone" / "file", {})


def test_a_link_replaces_what_was_there_and_survives_its_source(tmp_path: Path) -> None:
    first, second, best = tmp_path / "first", tmp_path / "second", tmp_path / "best"
    write_bytes(first, b"1")
    write_bytes(second, b"2")
    for source, content in ((first, b"1"), (first, b"1"), (second, b"2")):
        link_or_copy(source, best)
        assert best.read_bytes() == content
    second.unlink()
    assert best.read_bytes() == b"2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "first"]


def test_a_copy_is_made_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    write_bytes(tmp_path / "first", b"1")
    link_or_copy(tmp_path / "first", tmp_path / "best")
    assert (tmp_path / "best").read_bytes() == b"1"
    assert (tmp_path / "best").stat().st_ino != (tmp_path / "first").stat().st_ino
