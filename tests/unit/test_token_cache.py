"""The token cache: right width, complete or absent, built once, never read when damaged."""

import hashlib
import json
import logging
import pickle
import resource
import signal
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data import token_cache
from zoo.data.token_cache import DamagedCache, TokenCache, Tokens, open_or_build
from zoo.errors import UserError

IDENTITY = {"documents": "abc", "tokenizer": "def"}


def tokens(*ids, vocab_size=300, **parts):
    return Tokens(vocab_size=vocab_size, parts={"train": [np.array(ids, dtype=np.int64)], **parts})


def must_not_build():
    raise AssertionError("built again")


def only_file(folder):
    (path,) = folder.glob("*.tokens")
    return path


@pytest.fixture(autouse=True)
def _forget_checked_files(monkeypatch):
    monkeypatch.setattr(token_cache, "_checked", set())


def test_what_was_written_is_read(tmp_path):
    parts = {
        "train": [np.array([5, 6]), np.array([], dtype=np.int64), np.array([7], dtype=np.uint8)],
        "validation": [],
        "test": [np.array([299])],
    }
    notes = {"state": {"a": [1, "é"]}}
    built = open_or_build(tmp_path, IDENTITY, lambda: Tokens(vocab_size=300, parts=parts, notes=notes))
    opened = open_or_build(tmp_path, IDENTITY, must_not_build)
    for cache in (built, opened):
        assert {name: part.tolist() for name, part in cache.parts.items()} == {
            "train": [5, 6, 7],
            "validation": [],
            "test": [299],
        }
        assert (cache.vocab_size, cache.notes) == (300, notes)
        assert not cache.parts["train"].flags.writeable


def test_notes_can_be_kept_without_ids(tmp_path):
    open_or_build(tmp_path, IDENTITY, lambda: Tokens(vocab_size=1, parts={}, notes={"a": 1}))
    cache = open_or_build(tmp_path, IDENTITY, must_not_build)
    assert (cache.parts, cache.notes) == ({}, {"a": 1})


@given(st.lists(st.lists(st.integers(0, 99_999), max_size=30), max_size=6))
@settings(max_examples=30, deadline=None)
def test_any_chunks_come_back(tmp_path_factory, chunks):
    arrays = [np.array(chunk, dtype=np.int64) for chunk in chunks]
    folder = tmp_path_factory.mktemp("cache")
    cache = open_or_build(folder, IDENTITY, lambda: Tokens(vocab_size=100_000, parts={"train": arrays}))
    assert cache.parts["train"].tolist() == [token for chunk in chunks for token in chunk]


@pytest.mark.parametrize(
    ("vocab_size", "ids", "width"),
    [
        (256, [0, 255], 1),
        (257, [0, 256], 2),
        (65_536, [65_535, 0], 2),
        (65_537, [65_536], 4),
        (100_277, [65_535, 65_536, 70_000], 4),
    ],
)
def test_the_vocabulary_decides_the_width(tmp_path, vocab_size, ids, width):
    cache = open_or_build(tmp_path, IDENTITY, lambda: tokens(*ids, vocab_size=vocab_size))
    assert cache.parts["train"].dtype.itemsize == width
    assert cache.parts["train"].tolist() == ids


@pytest.mark.parametrize(("ids", "wrong"), [([3, 300], 300), ([70_000], 70_000), ([-1, 2], -1)])
def test_an_id_outside_the_vocabulary_is_refused_and_nothing_is_left(tmp_path, ids, wrong):
    with pytest.raises(UserError, match=f"gave id {wrong}, but its vocabulary has ids 0 to 299"):
        open_or_build(tmp_path, IDENTITY, lambda: tokens(*ids))
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_another_identity_is_another_file(tmp_path):
    open_or_build(tmp_path, IDENTITY, lambda: tokens(1))
    other = open_or_build(tmp_path, {**IDENTITY, "tokenizer": "x"}, lambda: tokens(2))
    assert other.parts["train"].tolist() == [2]
    assert open_or_build(tmp_path, IDENTITY, must_not_build).parts["train"].tolist() == [1]


def test_a_file_of_another_tokenizer_under_this_name_is_not_read(tmp_path):
    open_or_build(tmp_path, IDENTITY, lambda: tokens(1))
    path = only_file(tmp_path)
    with pytest.raises(DamagedCache, match="another tokenizer"):
        TokenCache(path, {**IDENTITY, "tokenizer": "x"})


def altered_width(data):
    magic, version, width, count, length, digest = struct.unpack("<8sIIQQ32s", data[:64])
    return struct.pack("<8sIIQQ32s", magic, version, width // 2, count * 2, length, digest) + data[64:]


def altered_largest(data):
    *start, length, _ = struct.unpack("<8sIIQQ32s", data[:64])
    text = data[-length:].replace(b'"vocab_size": 70000', b'"vocab_size": 69000')
    return struct.pack("<8sIIQQ32s", *start, length, hashlib.sha256(text).digest()) + data[64:-length] + text


DAMAGE = {
    "empty": lambda data: b"",
    "header cut": lambda data: data[:40],
    "half": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"x",
    "not a token file": lambda data: b"PK" + data[2:],
    "version": lambda data: data[:8] + b"\x09" + data[9:],
    "an id": lambda data: data[:66] + bytes([data[66] ^ 1]) + data[67:],
    "the description": lambda data: data[:-10] + b"1" + data[-9:],
    "uint32 read as uint16": altered_width,
    "ids above the vocabulary": altered_largest,
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_built_again_with_a_warning(tmp_path, caplog, monkeypatch, damage):
    ids = [*range(0, 69_998, 7), 69_998]
    open_or_build(tmp_path, IDENTITY, lambda: tokens(*ids, vocab_size=70_000))
    path = only_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[damage](whole))
    assert path.read_bytes() != whole
    monkeypatch.setattr(token_cache, "_checked", set())
    with pytest.raises(DamagedCache):
        TokenCache(path, IDENTITY)
    with caplog.at_level(logging.WARNING):
        cache = open_or_build(tmp_path, IDENTITY, lambda: tokens(*ids, vocab_size=70_000))
    assert cache.parts["train"].tolist() == ids
    assert f"building {path} again" in caplog.text
    assert path.read_bytes() == whole


def test_every_block_of_a_large_file_has_its_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(token_cache, "_BLOCK", 64)
    open_or_build(tmp_path, IDENTITY, lambda: tokens(*range(250)))
    path = only_file(tmp_path)
    whole = path.read_bytes()
    assert len(json.loads(whole[64 + 500 :])["blocks"]) == 8
    for byte in range(64, 64 + 500, 37):
        path.write_bytes(whole[:byte] + bytes([whole[byte] ^ 1]) + whole[byte + 1 :])
        monkeypatch.setattr(token_cache, "_checked", set())
        with pytest.raises(DamagedCache, match="ids were altered"):
            TokenCache(path, IDENTITY)


def test_chunks_that_cross_blocks_hash_like_one(tmp_path, monkeypatch):
    monkeypatch.setattr(token_cache, "_BLOCK", 64)
    ids = np.arange(250)
    for name, chunks in {"whole": [ids], "pieces": np.split(ids, [1, 2, 31, 33, 97, 200])}.items():
        open_or_build(tmp_path / name, IDENTITY, lambda chunks=chunks: Tokens(vocab_size=300, parts={"train": chunks}))
    assert only_file(tmp_path / "whole").read_bytes() == only_file(tmp_path / "pieces").read_bytes()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="can't use the token cache: Not a directory") as error:
        open_or_build(tmp_path / "file" / "cache", IDENTITY, lambda: tokens(1))
    assert str(tmp_path / "file" / "cache") in error.value.where
    assert "ZOO_CACHE" in error.value.fix


def test_a_full_disk_is_one_message_and_leaves_what_was_there(tmp_path):
    """The limit on a file's size stands in for the disk: the same call fails in the same place."""
    open_or_build(tmp_path, IDENTITY, lambda: tokens(1))
    before = only_file(tmp_path).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(UserError, match="can't use the token cache: File too large") as error:
            open_or_build(tmp_path, {**IDENTITY, "tokenizer": "x"}, lambda: tokens(*range(200_000), vocab_size=200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(tmp_path) in error.value.where
    assert only_file(tmp_path).read_bytes() == before
    assert not list(tmp_path.glob(".*tmp*"))


def test_an_error_while_building_leaves_nothing(tmp_path):
    def chunks():
        yield np.array([1, 2])
        raise RuntimeError("tokenizer failed")

    with pytest.raises(RuntimeError, match="tokenizer failed"):
        open_or_build(tmp_path, IDENTITY, lambda: Tokens(vocab_size=300, parts={"train": chunks()}))
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_another_process_maps_the_file_itself(tmp_path):
    cache = open_or_build(tmp_path, IDENTITY, lambda: tokens(*([1] * 100_000)))
    data = pickle.dumps(cache)
    assert len(data) < 1000
    assert np.array_equal(pickle.loads(data).parts["train"], cache.parts["train"])


BUILDER = """
import json, sys, time
from pathlib import Path
import numpy as np
from zoo.data.token_cache import Tokens, open_or_build

folder, identity, pause = Path(sys.argv[1]), json.loads(sys.argv[2]), float(sys.argv[3])

def chunks():
    with (folder / "builds").open("a") as log:
        log.write("build;")
    yield np.arange(100_000) % 300
    print("halfway", flush=True)
    time.sleep(pause)
    yield np.arange(100_000) % 299

cache = open_or_build(folder, identity, lambda: Tokens(vocab_size=300, parts={"train": chunks()}))
print(int(cache.parts["train"].astype(np.int64).sum()), flush=True)
"""
BUILT_SUM = int((np.arange(100_000) % 300).sum() + (np.arange(100_000) % 299).sum())


def start_builder(folder, pause):
    command = [sys.executable, "-c", BUILDER, str(folder), json.dumps(IDENTITY), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_build_one_file(tmp_path):
    builders = [start_builder(tmp_path, 1.0) for _ in range(2)]
    lines = [builder.communicate(timeout=60)[0].split() for builder in builders]
    assert [line[-1] for line in lines] == [str(BUILT_SUM)] * 2
    assert (tmp_path / "builds").read_text() == "build;"
    assert len(list(tmp_path.glob("*.tokens"))) == 1
    assert not list(tmp_path.glob(".*tmp*"))


def test_a_killed_builder_leaves_no_file_and_no_lock(tmp_path):
    builder = start_builder(tmp_path, 60)
    assert builder.stdout.readline() == "halfway\n"
    builder.send_signal(signal.SIGKILL)
    builder.wait(timeout=10)
    builder.stdout.close()
    assert not list(tmp_path.glob("*.tokens"))
    assert len(list(tmp_path.glob(".*tmp*"))) == 1
    cache = open_or_build(tmp_path, IDENTITY, lambda: tokens(1, 2, 3))
    assert cache.parts["train"].tolist() == [1, 2, 3]
    assert not list(tmp_path.glob(".*tmp*"))


def test_threads_of_one_process_build_once(tmp_path):
    builds, found = [], []
    barrier = threading.Barrier(4)

    def build():
        builds.append(1)
        return tokens(1, 2)

    def work():
        barrier.wait()
        found.append(open_or_build(tmp_path, IDENTITY, build).parts["train"].tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (builds, found) == ([1], [[1, 2]] * 4)


def test_the_frame_of_data_needs_no_torch():
    modules = "token_cache, splits, permutation, byte_pair, documents".replace(" ", " zoo.data.")
    code = f"import sys, zoo.data.{modules}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
