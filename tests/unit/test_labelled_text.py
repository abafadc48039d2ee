"""Labelled texts: padding on the right, labels of the train part, what languages share left out, bad lines named."""

import json
import logging
import pickle
from collections import Counter

import numpy as np
import pytest
import torch

from zoo.contracts.data import Draw
from zoo.data.cldr import NameRecords
from zoo.errors import UserError
from zoo_builtin.data.labelled_text import LabelledText
from zoo_builtin.tokenizer.byte import Byte
from zoo_builtin.tokenizer.char import Char
from zoo_builtin.tokenizer.wordpiece import Wordpiece

END = 256
SPLITS = ("train", "validation", "test")
FEW = {"languages": ["de", "fr", "sv"]}


def draw(*samples, epoch=0, seed=0):
    ids = np.array(samples, dtype=np.int64)
    return Draw(ids, np.full_like(ids, epoch), seed)


def make(tmp_path, *, tokenizer=None, **knobs):
    config = LabelledText.Config(**knobs)
    data = LabelledText(config, cache=tmp_path / "cache", tokenizer=tokenizer or Byte(Byte.Config()))
    data.prepare()
    return data


def whole(tmp_path, content, *, name="texts.csv", **knobs):
    """A set of one file, all of it for training."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return make(tmp_path, source="files", files=[path], **{"validation": 0, "test": 0, "multiple": 1, **knobs})


def texts(data, split):
    """Text and label of each row of a part, from its batch."""
    batch = data.batch(draw(*range(data.size(split))), split)
    decoded = [
        data.tokenizer().decode(row[valid].tolist()) for row, valid in zip(batch["ids"], batch["valid"], strict=True)
    ]
    return list(zip(decoded, (data.labels()[label] for label in batch["labels"].tolist()), strict=True))


# Batches


def test_a_row_is_the_text_and_padding_on_the_right(tmp_path):
    data = whole(tmp_path, "text,label\nabc,good\nd,bad\n")
    batch = data.batch(draw(0, 1, -1), "train")
    assert batch["ids"].tolist() == [[*b"abc"], [*b"d", END, END], [END] * 3]
    assert batch["valid"].tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert batch["labels"].tolist() == [1, 0, -100]
    assert [batch[name].dtype for name in ("ids", "valid", "labels")] == [torch.int64, torch.bool, torch.int64]
    assert data.labels() == ("bad", "good")
    assert data.describe().classes == 2


def test_berts_rows_begin_with_a_class_token_and_end_with_a_separator(tmp_path):
    tokenizer = Wordpiece(Wordpiece.Config(vocab_size=20))
    data = whole(tmp_path, "text,label\nA b,x\nb c a,y\n", tokenizer=tokenizer, length=4)
    specials = tokenizer.specials
    a, b, c = (tokenizer.encode(letter)[0] for letter in "abc")
    around = (specials["class"], specials["separator"], specials["padding"])
    assert data.batch(draw(0, 1), "train")["ids"].tolist() == [
        [around[0], a, b, around[1]],
        [around[0], b, c, around[1]],
    ]
    assert data.batch(draw(0, -1), "train")["ids"][1].tolist() == [around[2]] * 4
    assert data.lengths("train").tolist() == [4, 4]
    with pytest.raises(UserError, match="length is 2, and 2 tokens of a row are special"):
        whole(tmp_path, "text,label\na,x\nb,y\n", tokenizer=tokenizer, length=2)


def test_long_texts_are_cut_and_counted(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        data = whole(tmp_path, "text,label\nabcdef,x\nabc,y\nabcd,y\n", length=3)
    assert "2 of 3 texts of the train part are longer than data.length (3 tokens) and are cut" in caplog.text
    assert [text for text, _ in texts(data, "train")] == ["abc"] * 3
    assert data.lengths("train").tolist() == [3, 3, 3]


def test_widths_are_multiples_but_never_more_than_the_length(tmp_path):
    data = whole(tmp_path, f"text,label\n{'a' * 9},x\nb,y\n", multiple=4, length=10)
    assert [data.batch(draw(sample), "train")["ids"].shape[1] for sample in (0, 1, -1)] == [10, 4, 4]


def test_texts_of_ones_own_become_the_same_rows(tmp_path, caplog):
    data = whole(tmp_path, "text,label\nabc,good\nd,bad\n", length=4)
    batch = data.batch(draw(0, 1), "train")
    with caplog.at_level(logging.WARNING):
        inputs = data.read_texts(["abc", "d"])
    assert not caplog.records
    assert inputs.keys() == {"ids", "valid"}
    assert all(torch.equal(inputs[name], batch[name]) for name in inputs)
    with caplog.at_level(logging.WARNING):
        assert data.read_texts(["abcde"])["ids"].tolist() == [[*b"abcd"]]
    assert "1 of 1 texts are longer than 4 tokens" in caplog.text
    with pytest.raises(UserError, match="the text is empty") as error:
        data.read_texts(["a", ""])
    assert error.value.where == "text 2 of 2"


def test_texts_of_ones_own_need_no_prepared_data(tmp_path):
    data = LabelledText(LabelledText.Config(), cache=tmp_path, tokenizer=Byte(Byte.Config()))
    assert data.read_texts(["ab"])["valid"].tolist() == [[True] * 2 + [False] * 6]


# Names


def test_names_that_languages_share_are_left_out_and_counted(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        data = make(tmp_path, **FEW)
    rows = [row for split in SPLITS for row in texts(data, split)]
    found = dict(rows)
    assert {name: found[name] for name in ("Deutschland", "Allemagne", "januari")} == {
        "Deutschland": "de",
        "Allemagne": "fr",
        "januari": "sv",
    }
    assert not {"Angola", "Paris", "april", "April"} & found.keys()
    assert len({name.casefold() for name in found}) == len(rows)
    shared = NameRecords(FEW["languages"]).shared
    assert shared > 300
    assert f"{len(rows)} names; {shared} more that several languages share were left out" in caplog.text


def test_names_by_hand(monkeypatch):
    tables = {"de": {"Haus", "Hotel", "Maus"}, "en": {"House", "hotel", "Mouse"}, "fr": {"Maison", "HOTEL", "maison"}}
    monkeypatch.setattr("zoo.data.cldr._names", lambda locale: tables[locale.language])
    records = NameRecords(["de", "en", "fr"])
    assert [(record.texts[0], record.label) for record in records.walk()] == [
        ("Haus", "de"),
        ("House", "en"),
        ("Maison", "fr"),
        ("Maus", "de"),
        ("Mouse", "en"),
    ]
    assert records.shared == 1


def test_the_default_set_has_enough_of_every_language(tmp_path):
    data = make(tmp_path)
    counts = Counter(data.batch(draw(*range(data.size("train"))), "train")["labels"].tolist())
    assert len(counts) == len(data.labels()) == data.describe().classes == 24
    assert min(counts.values()) > 300
    assert data.ceiling("validation") == data.ceiling("test") == 1.0


def test_unknown_languages_are_refused(tmp_path):
    with pytest.raises(UserError, match="the CLDR has no 'xq'"):
        make(tmp_path, languages=["de", "xq"])
    with pytest.raises(UserError, match="all texts have the label 'de'"):
        make(tmp_path, languages=["de"])


# Files


def test_lines_of_json_may_have_numbers_for_labels(tmp_path):
    lines = [{"review": "good", "stars": 5}, {"review": "bad", "stars": 1}, {"review": "so", "stars": "3"}]
    content = "\n".join(map(json.dumps, lines))
    data = whole(tmp_path, content, name="a.jsonl", text_field="review", label_field="stars")
    assert texts(data, "train") == [("good", "5"), ("bad", "1"), ("so", "3")]
    assert data.labels() == ("1", "3", "5")


def test_tables_with_tabs_have_names_and_no_quotation_marks(tmp_path):
    data = whole(tmp_path, 'label\ttext\nx\t"a\ny\tb, c\n', name="a.tsv")
    assert texts(data, "train") == [('"a', "x"), ("b, c", "y")]


@pytest.mark.parametrize(
    ("name", "content", "message", "line"),
    [
        ("a.csv", "text,class\na,x\n", "no columns are called 'label'; there are text, class", 1),
        ("a.csv", "text,label\na,x\n,y\n", "the text is empty", 3),
        ("a.csv", b"text,label\na,x\n\xe9,y\n", r"byte 15 of the file \(0xE9\) is no UTF-8", 3),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": "b", "label": 0.5}', r"no label .* label \(float\)", 2),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": "b"}', "no label under the key 'label'", 2),
        ("a.jsonl", '{"text": null, "label": "x"}', r"no text under the key 'text'.*text \(NoneType\)", 1),
    ],
)
def test_a_bad_line_is_named(tmp_path, name, content, message, line):
    with pytest.raises(UserError, match=message) as error:
        whole(tmp_path, content, name=name)
    assert error.value.where == f"{tmp_path / name}:{line}"


def test_a_label_that_the_train_part_lacks_is_named_with_its_line(tmp_path):
    lines = [f"text {number},common" for number in range(40)]
    data = whole(tmp_path, "\n".join(["text,label", *lines, "another,rare"]), validation=0.2)
    held_out = next(text for text, _ in texts(data, "validation") if text.startswith("text"))
    at = int(held_out.split()[1])
    lines[at] = f"{held_out},unheard"
    with pytest.raises(UserError, match="the label 'unheard' is in the validation part, but not in the train") as error:
        whole(tmp_path, "\n".join(["text,label", *lines]), validation=0.2)
    assert error.value.where == f"{tmp_path / 'texts.csv'}:{at + 2}"


@pytest.mark.parametrize(
    ("content", "knobs", "message"),
    [
        ("text,label\n", {}, "the train part has no text; there are 0 in all"),
        ("text,label\na,x\nb,x\n", {}, "all texts have the label 'x'"),
        ("text,label\na,x\nb,y\n", {"validation": 0.4, "test": 0.4}, "the train part has no text; there are 2"),
        ("text,label\na,x\nb,y\n", {"length": 0}, "length is 0"),
        ("text,label\na,x\nb,y\n", {"dataset": "imdb"}, "source is 'files', and dataset is 'imdb'"),
    ],
)
def test_sets_that_cannot_be_are_refused(tmp_path, content, knobs, message):
    with pytest.raises(UserError, match=message):
        whole(tmp_path, content, **knobs)


def test_equal_texts_are_in_one_part_and_bound_what_can_be_told(tmp_path):
    lines = [f"text {number % 20},{'xy'[number % 20 % 2 if number < 40 else 0]}" for number in range(60)]
    data = whole(tmp_path, "\n".join(["text,label", *lines]), validation=0.2, test=0.2)
    parts = {split: {text for text, _ in texts(data, split)} for split in SPLITS}
    assert [len(parts[split]) for split in SPLITS] == [12, 4, 4]
    assert len(set.union(*parts.values())) == 20
    odd = sum(int(text.split()[1]) % 2 for text in parts["train"])
    assert data.ceiling("train") == pytest.approx((36 - odd) / 36)


# The whole set


def test_the_fingerprint_knows_what_shapes_a_sample(tmp_path):
    changes = [{}, {"languages": ["de", "fr"]}, {"length": 63}, {"multiple": 4}, {"validation": 0.1}]
    prints = [make(tmp_path, **{**FEW, **change}).fingerprint() for change in changes]
    prints.append(make(tmp_path, tokenizer=Char(Char.Config(unknown="replace")), **FEW).fingerprint())
    assert len(set(prints)) == len(prints)
    assert make(tmp_path, **FEW, batch_size=7).fingerprint() == prints[0]


def test_labels_alone_change_the_fingerprint(tmp_path):
    one = whole(tmp_path, "text,label\na,x\nb,y\n").fingerprint()
    assert whole(tmp_path, "text,label\na,x\nb,z\n").fingerprint() != one
    assert whole(tmp_path, "text,label\na,x\nb,y\n").fingerprint() == one


def test_prepared_data_goes_to_another_process(tmp_path):
    data = make(tmp_path, **FEW)
    want = data.batch(draw(4), "train")
    got = pickle.loads(pickle.dumps(data)).batch(draw(4), "train")
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_reading_before_prepare_and_past_the_end_are_errors_of_the_program(tmp_path):
    data = LabelledText(LabelledText.Config(), cache=tmp_path, tokenizer=Byte(Byte.Config()))
    for read in (data.labels, lambda: data.size("train")):
        with pytest.raises(RuntimeError, match="before prepare"):
            read()
    with pytest.raises(IndexError, match="sample 2 of 2 in the train part"):
        whole(tmp_path, "text,label\na,x\nb,y\n").batch(draw(2), "train")
