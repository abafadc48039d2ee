"""Data sets of Hugging Face's library, made on disk by itself; and a word where it, or the network, is missing."""

import sys

import numpy as np
import pytest

from zoo.contracts.data import Draw
from zoo.errors import UserError
from zoo_builtin.data.labelled_text import LabelledText
from zoo_builtin.data.text import Text
from zoo_builtin.tokenizer.byte import Byte

TEXTS = [f"This is document {number}. " * 3 for number in range(30)]


@pytest.fixture(scope="module")
def datasets():
    return pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def folder(datasets, tmp_path_factory):
    """A set of two parts: texts, labels with names, labels as numbers, and a column of numbers."""
    columns = {
        "text": TEXTS,
        "sentiment": [number % 2 for number in range(30)],
        "stars": [number % 3 for number in range(30)],
        "size": [0.5] * 30,
    }
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "sentiment": datasets.ClassLabel(names=["bad", "good"]),
            "stars": datasets.Value("int64"),
            "size": datasets.Value("float64"),
        }
    )
    made = datasets.Dataset.from_dict(columns, features=features)
    path = tmp_path_factory.mktemp("hub") / "set"
    datasets.DatasetDict({"train": made, "other": made.select([3, 1])}).save_to_disk(str(path))
    return path


def make(cls, tmp_path, **knobs):
    data = cls(cls.Config(source="hub", **knobs), cache=tmp_path / "cache", tokenizer=Byte(Byte.Config()))
    data.prepare()
    return data


def test_documents_of_a_set_are_those_of_files(folder, tmp_path):
    data = make(Text, tmp_path, dataset=str(folder), length=16)
    lines = tmp_path / "same.jsonl"
    lines.write_text("".join(f'{{"text": "{text}"}}\n' for text in TEXTS))
    knobs = {"source": "files", "files": [lines], "length": 16}
    same = Text(Text.Config(**knobs), cache=tmp_path / "cache", tokenizer=Byte(Byte.Config()))
    same.prepare()
    assert data.fingerprint() == same.fingerprint()
    small = make(Text, tmp_path, dataset=str(folder), dataset_split="other", length=16, validation=0, test=0)
    assert small._part("train").size == sum(len(TEXTS[number]) + 1 for number in (1, 3))


def test_a_set_may_be_one_part(datasets, tmp_path):
    path = tmp_path / "one"
    datasets.Dataset.from_dict({"body": ["abcdefgh"]}).save_to_disk(str(path))
    data = make(Text, tmp_path, dataset=str(path), field="body", length=4, validation=0, test=0)
    assert data.size("train") == 2


@pytest.mark.parametrize(("field", "labels"), [("sentiment", ("bad", "good")), ("stars", ("0", "1", "2"))])
def test_labels_have_their_names(folder, tmp_path, field, labels):
    data = make(LabelledText, tmp_path, dataset=str(folder), label_field=field, length=80)
    assert data.labels() == labels
    samples = np.arange(data.size("train"))
    batch = data.batch(Draw(samples, np.zeros_like(samples), 0), "train")
    for row, label in zip(batch["ids"].tolist(), batch["labels"].tolist(), strict=True):
        number = TEXTS.index(data.tokenizer().decode(row))
        assert label == number % len(labels)


@pytest.mark.parametrize(
    ("cls", "knobs", "message", "where"),
    [
        (Text, {"field": "txt"}, "no column 'txt'; it has text, sentiment, stars, size", "data.field"),
        (Text, {"field": "stars"}, "stars is a int, not a text", "train, row 0"),
        (Text, {"dataset_split": "test"}, "has no part 'test'; it has train, other", "data.dataset_split"),
        (LabelledText, {"label_field": "label"}, "no column 'label'", "data.label_field"),
        (LabelledText, {"label_field": "size"}, "the row has no label, but 0.5", "train, row 0"),
    ],
)
def test_columns_and_parts_that_are_not_there_are_refused(folder, tmp_path, cls, knobs, message, where):
    with pytest.raises(UserError, match=message) as error:
        make(cls, tmp_path, dataset=str(folder), **knobs)
    assert where in error.value.where


def test_a_kept_secret_label_is_refused(datasets, tmp_path):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = datasets.Dataset.from_dict({"text": ["x", "y"], "label": [0, -1]}, features=features)
    rows.save_to_disk(str(tmp_path / "secret"))
    with pytest.raises(UserError, match="the row has no label, but -1") as error:
        make(LabelledText, tmp_path, dataset=str(tmp_path / "secret"))
    assert error.value.where.endswith("train, row 1")


def test_a_set_that_cannot_be_reached_is_one_message(datasets, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("no route to host\nand more lines")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(UserError) as error:
        make(Text, tmp_path, dataset="someone/some")
    assert error.value.what == "can't load the data set 'someone/some': ConnectionError: no route to host"
    assert "save_to_disk" in error.value.fix


def test_a_folder_of_something_else_is_one_message(datasets, tmp_path):
    (tmp_path / "else").mkdir()
    with pytest.raises(UserError, match=r"can't load the data set .*else'"):
        make(Text, tmp_path, dataset=str(tmp_path / "else"))


def test_a_missing_library_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="needs the library datasets") as error:
        make(Text, tmp_path, dataset="someone/some")
    assert error.value.fix == "pip install 'transformer-zoo[hf]'"


@pytest.mark.parametrize("cls", [Text, LabelledText])
def test_source_and_data_set_belong_together(tmp_path, cls):
    with pytest.raises(UserError, match="source is 'hub', and dataset is None"):
        make(cls, tmp_path)
