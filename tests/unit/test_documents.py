"""Documents and their split: every text found once, in one part, or a clear word about why not."""

import hashlib
import json
import logging
import os
import sys
from pydoc_data.topics import topics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.documents import Document, Files, PythonDocs, find_files, standard_library
from zoo.data.splits import content_hash, split_documents
from zoo.errors import UserError

SPLITS = ("train", "validation", "test")


def write(tmp_path, *texts):
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        paths.append(path)
    return paths


# Documents


def documents_of(*texts):
    return [Document(hashlib.sha256(t.encode()).digest(), len(t.encode()), len(t), t) for t in texts]


def test_python_docs_has_a_document_a_topic():
    source = PythonDocs()
    documents = source.scan()
    assert len(documents) == len(topics)
    assert sum(document.size for document in documents) == sum(len(text.encode()) for text in topics.values())
    assert source.text(documents[0]) == topics[min(topics)]
    assert sys.version.split()[0] in source.name(documents[0].place)


def test_the_standard_library_comes_without_its_tests():
    paths = standard_library()
    names = {path.name for path in paths}
    assert {"argparse.py", "pickle.py"} <= names
    left_out = {"test", "tests", "idle_test", "site-packages", "encodings", "pydoc_data"}
    assert not any(left_out & set(path.parts) for path in paths)
    assert not any(name.startswith("_sysconfigdata") for name in names)
    assert sum(path.stat().st_size for path in paths) > 8_000_000


def test_files_folders_and_globs_name_each_file_once(tmp_path):
    for name in ("a.txt", "b.md", "sub/c.txt", ".hidden", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    names = lambda *patterns: sorted(path.name for path in find_files([tmp_path / p for p in patterns]))  # noqa: E731
    assert names(".") == ["a.txt", "b.md", "c.txt"]
    assert names("**/*.txt") == ["a.txt", "c.txt"]
    assert names("*.txt", "a.txt", "sub", "sub/../a.txt") == ["a.txt", "c.txt"]
    (tmp_path / "x[1].txt").write_text("brackets")
    assert names("x[1].txt") == ["x[1].txt"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shakespear.txt", "no file .*shakespear.txt; did you mean shakespeare.txt?"),
        ("*.rst", r"no file matches .*\*\.rst"),
        ("empty", "no file in the folder .*empty"),
        ("pipe", "pipe is no regular file"),
        ("nowhere/a.txt", "no file .*nowhere/a.txt"),
    ],
)
def test_a_pattern_that_names_nothing_is_refused(tmp_path, name, message):
    (tmp_path / "shakespeare.txt").write_text("To be")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=message):
        find_files([tmp_path / name])


def test_json_lines_are_documents(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [
        "\ufeff" + json.dumps({"body": "one é"}),
        "",
        json.dumps({"body": "two\r\n"}) + "\r",
        json.dumps({"body": ""}),
    ]
    path.write_text("\n".join(lines), newline="")
    source = Files([path], field="body")
    documents = source.scan()
    assert [source.text(document) for document in documents] == ["one é", "two\r\n"]
    assert [source.name(document.place) for document in documents] == [f"{path}:1", f"{path}:3"]
    assert [(document.size, document.characters) for document in documents] == [(6, 5), (5, 5)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "not a line of JSON"),
        ('{"body": "a", "id": 3}', r"no text under the key 'text'; the line has body \(str\), id \(int\)"),
        ('{"text": 3}', r"no text under the key 'text'; the line has text \(int\)"),
        ('["a"]', "the line is a list"),
        ("{}", "the line has no keys"),
        ('{"text": "a\\ud83d b"}', r"character 1 of the text is U\+D83D"),
    ],
)
def test_a_bad_json_line_is_named_with_its_number(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' + line + "\n")
    with pytest.raises(UserError, match=message) as error:
        Files([path]).scan()
    assert error.value.where == f"{path}:2"


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b"ok \xff\xfe caf\xc3", 3), (b"caf\xc3", 3), (b"\xef\xbb\xbfok\xff", 5), (b"\xff\xfeo\x00k\x00", 0)],
)
def test_bytes_that_are_no_utf8_are_named_with_file_and_offset(tmp_path, data, offset):
    (path,) = write(tmp_path, data)
    with pytest.raises(UserError, match=f"byte {offset} of the file .* is no UTF-8 text") as error:
        Files([path]).scan()
    assert error.value.where == str(path)
    assert "errors: replace" in error.value.fix


def test_the_offset_in_a_json_line_counts_from_the_beginning_of_the_file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "good"}\n{"text": "\xff"}\n')
    with pytest.raises(UserError, match="byte 27 of the file") as error:
        Files([path]).scan()
    assert error.value.where == f"{path}:2"


def test_replacements_are_counted_and_reported(tmp_path, caplog):
    paths = write(tmp_path, "fine \ufffd", b"ok \xff\xfe caf\xc3")
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"text": "a\\ud83d b"}\n')
    source = Files([*paths, lines], errors="replace")
    with caplog.at_level(logging.WARNING):
        documents = source.scan()
    assert [source.text(document) for document in documents] == [
        "fine \ufffd",
        "ok \ufffd\ufffd caf\ufffd",
        "a\ufffd b",
    ]
    assert "4 pieces that are no UTF-8 were replaced" in caplog.text
    assert f"the first in {paths[1]}" in caplog.text


def test_byte_order_marks_go_and_everything_else_stays(tmp_path):
    paths = write(tmp_path, b"\xef\xbb\xbfa\x00b\r\n\r\n\xef\xbb\xbf", b"\xef\xbb\xbf", b"", "\n")
    source = Files(paths)
    assert [source.text(document) for document in source.scan()] == ["a\x00b\r\n\r\n\ufeff", "\n"]


def test_a_document_that_changes_while_it_is_read_is_noticed(tmp_path):
    (path,) = write(tmp_path, "before")
    source = Files([path])
    (document,) = source.scan()
    path.write_text("after!")
    with pytest.raises(UserError, match="changed while") as error:
        source.text(document)
    assert error.value.where == str(path)


# Splits


def texts_of(parts):
    return {
        split: [piece.document.place[piece.begin : piece.end] for piece in pieces] for split, pieces in parts.items()
    }


TEXTS = st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=60)


@given(TEXTS, st.floats(0, 0.4), st.floats(0, 0.4))
@settings(max_examples=150, deadline=None)
def test_a_split_holds_everything_once_and_no_document_in_two_parts(texts, validation, test):
    documents = documents_of(*texts)
    parts = split_documents(documents, validation=validation, test=test)
    found = {}
    for split in SPLITS:
        for piece in parts[split]:
            found.setdefault(piece.document, []).append((piece.begin, piece.end, split))
    for document in documents:
        pieces = sorted(found[document])
        copies = documents.count(document)
        assert sum(end - begin for begin, end, _ in pieces) == copies * document.characters
    sizes = [size * texts.count(text) for text, size in {d.place: d.size for d in documents}.items()]
    if len(sizes) >= 10 and max(sizes) <= 0.25 * sum(sizes):
        assert all(len({split for *_, split in pieces}) == 1 for pieces in found.values())


def test_whole_documents_are_dealt_out_in_the_order_of_their_hashes():
    texts = [f"document number {number:03}" for number in range(100)]
    parts = texts_of(split_documents(documents_of(*texts), validation=0.05, test=0.1))
    ordered = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
    assert parts == {"validation": ordered[:5], "test": ordered[5:15], "train": ordered[15:]}


def test_a_part_takes_documents_until_it_has_its_share():
    texts = [chr(97 + number) * 10 for number in range(26)]
    parts = texts_of(split_documents(documents_of(*texts), validation=0.05, test=0))
    assert [len(parts[split]) for split in SPLITS] == [24, 2, 0]  # 13 of 260 bytes take two of ten


@given(st.permutations([f"{number}" * (1 + number % 3) for number in range(30)]))
@settings(max_examples=20, deadline=None)
def test_the_order_of_documents_decides_nothing(texts):
    usual = sorted(texts)
    split = lambda order: texts_of(split_documents(documents_of(*order), validation=0.1, test=0.1))  # noqa: E731
    assert split(texts) == split(usual)
    assert content_hash(documents_of(*texts)) == content_hash(documents_of(*usual))


def test_copies_of_a_document_stay_together():
    for number in range(40):
        texts = [f"text {number} {other}" for other in range(12)] * 3
        parts = texts_of(split_documents(documents_of(*texts), validation=0.05, test=0.05))
        sets = [set(parts[split]) for split in SPLITS]
        assert sum(map(len, sets)) == 12
        assert [len(parts[split]) for split in SPLITS] == [30, 3, 3]


def test_few_documents_are_cut():
    parts = texts_of(split_documents(documents_of("é" * 10 + "0123456789"), validation=0.2, test=0.1))
    assert parts == {"train": ["é" * 10 + "0123"], "validation": ["4567"], "test": ["89"]}
    assert texts_of(split_documents(documents_of("ab", "c"), validation=0, test=0))["validation"] == []


def test_one_document_that_outweighs_the_others_is_cut():
    texts = ["long " * 100, *(f"short {number}" for number in range(20))]
    parts = texts_of(split_documents(documents_of(*texts), validation=0.05, test=0.05))
    assert [sum(text.count("long") for text in parts[split]) for split in SPLITS] == [90, 5, 5]
