"""Text data: documents, their split, windows, and a clear word about every file that can't be used."""

import logging
import pickle
import subprocess
import sys
from pydoc_data.topics import topics

import numpy as np
import pytest
import torch

from test_documents import write
from zoo.contracts.data import Draw
from zoo.data.permutation import hash64
from zoo.errors import UserError
from zoo_builtin.data.text import Text
from zoo_builtin.tokenizer.bpe import Bpe
from zoo_builtin.tokenizer.byte import Byte
from zoo_builtin.tokenizer.char import Char

END = 256
SPLITS = ("train", "validation", "test")


def draw(*samples, epoch=0, seed=0):
    ids = np.array(samples, dtype=np.int64)
    return Draw(ids, np.full_like(ids, epoch), seed)


def make(tmp_path, *, tokenizer=None, prepare=True, **knobs):
    tokenizer = tokenizer or Byte(Byte.Config())
    data = Text(Text.Config(**knobs), cache=tmp_path / "cache", tokenizer=tokenizer)
    if prepare:
        data.prepare()
    return data


def whole(tmp_path, *texts, length=4, **knobs):
    """A set that is all training text."""
    return make(tmp_path, source="files", files=write(tmp_path, *texts), length=length, validation=0, test=0, **knobs)


def stream(data, split="train"):
    return data._part(split).tolist()


# Windows


def test_a_part_is_documents_with_an_end_of_text_after_each(tmp_path):
    data = whole(tmp_path, "abc", "de", length=2)
    assert sorted("".join(map(chr, stream(data))).split(chr(END))) == ["", "abc", "de"]
    assert stream(data)[-1] == END


def test_the_marker_in_a_text_is_no_end_of_text(tmp_path):
    data = whole(tmp_path, "a <|endoftext|> b")
    assert stream(data) == [*b"a <|endoftext|> b", END]


def test_windows_follow_one_another_and_targets_are_one_token_on(tmp_path):
    data = whole(tmp_path, "abcdefghijk")
    assert data.size("train") == 2
    batch = data.batch(draw(0, 1), "train")
    assert batch["ids"].tolist() == [[*b"abcd"], [*b"efgh"]]
    assert batch["targets"].tolist() == [[*b"bcde"], [*b"fghi"]]
    assert set(batch) == {"ids", "targets"}
    assert all(tensor.dtype == torch.int64 and tensor.is_contiguous() for tensor in batch.values())


def test_one_token_more_than_a_window_is_one_sample(tmp_path):
    data = whole(tmp_path, "abcd")
    assert data.size("train") == 1
    assert data.batch(draw(0), "train")["targets"].tolist() == [[*b"bcd", END]]


@pytest.mark.parametrize(("length", "size"), [(1, 11), (2, 5), (3, 3), (5, 2), (6, 1), (11, 1)])
def test_size_is_the_number_of_whole_windows(tmp_path, length, size):
    assert whole(tmp_path, "abcdefghijk", length=length).size("train") == size


def test_an_empty_row_has_no_target(tmp_path):
    batch = whole(tmp_path, "abcdefghijk").batch(draw(1, -1), "train")
    assert batch["targets"].tolist() == [[*b"fghi"], [-100] * 4]
    assert batch["ids"].shape == (2, 4)
    assert batch["ids"].min() >= 0


def test_a_sample_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(IndexError, match="sample 2 of 2 in the train part"):
        whole(tmp_path, "abcdefghijk").batch(draw(0, 2), "train")


def test_a_row_is_the_same_in_any_batch(tmp_path):
    data = make(tmp_path, source="python-docs", length=32)
    samples, epochs = np.array([5, 9, 5, 100]), np.array([0, 3, 2, 7])
    together = data.batch(Draw(samples, epochs, 11), "train")
    for row in range(4):
        alone = data.batch(Draw(samples[row : row + 1], epochs[row : row + 1], 11), "train")
        assert torch.equal(alone["ids"][0], together["ids"][row])
        assert torch.equal(alone["targets"][0], together["targets"][row])


def test_later_epochs_begin_elsewhere_and_still_hold_every_window(tmp_path):
    text = "".join(chr(33 + number) for number in range(90))
    data = whole(tmp_path, text, length=8)
    tokens = stream(data)
    starts = set()
    for epoch in range(1, 40):
        ids = data.batch(draw(*range(data.size("train")), epoch=epoch), "train")["ids"].flatten().tolist()
        offset = int(hash64(0, epoch)[0]) % 8
        assert ids == [tokens[(offset + at) % len(tokens)] for at in range(len(ids))]
        starts.add(tokens.index(ids[0]))
    assert starts == set(range(8))


def test_offsets_depend_on_the_seed_and_never_touch_validation(tmp_path):
    data = make(tmp_path, source="python-docs", length=64)
    rows = {tuple(data.batch(draw(3, epoch=1, seed=seed), "train")["ids"][0].tolist()) for seed in range(8)}
    assert len(rows) > 4
    first = data.batch(draw(3), "validation")
    later = data.batch(draw(3, epoch=5, seed=9), "validation")
    assert torch.equal(first["ids"], later["ids"])
    assert first["ids"][0].tolist() == stream(data, "validation")[3 * 64 : 4 * 64]


def test_a_stride_makes_windows_overlap(tmp_path):
    data = whole(tmp_path, "abcdefghijk", stride=2)
    assert data.size("train") == 4
    batch = data.batch(draw(0, 1, 3), "train")
    assert batch["ids"].tolist() == [[*b"abcd"], [*b"cdef"], [*b"ghij"]]
    assert batch["targets"].tolist() == [[*b"bcde"], [*b"defg"], [*b"hijk"]]


def test_evaluation_counts_each_target_once_where_windows_overlap(tmp_path):
    data = make(tmp_path, source="python-docs", length=16, stride=5)
    for split in ("validation", "test"):
        targets = data.batch(draw(*range(data.size(split))), split)["targets"]
        counted = targets[targets != -100].tolist()
        assert counted == stream(data, split)[1 : 1 + 16 + 5 * (data.size(split) - 1)]


# Documents in a window


def masked(tmp_path, *texts, length):
    return whole(tmp_path, *texts, length=length, documents="masked")


def test_masked_documents_have_numbers_and_no_target_across(tmp_path):
    data = masked(tmp_path, "abcdefgh", length=8)
    data._tokens.parts["train"] = np.array([5, 6, END, 7, END, 8, 9, 10, 11], dtype=np.uint16)
    batch = data.batch(draw(0), "train")
    assert batch["ids"].tolist() == [[5, 6, END, 7, END, 8, 9, 10]]
    assert batch["documents"].tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]
    assert batch["targets"].tolist() == [[6, END, -100, END, -100, 9, 10, 11]]


def test_joined_documents_have_targets_across(tmp_path):
    data = whole(tmp_path, "ab", "ab", length=4)
    batch = data.batch(draw(0), "train")
    assert batch["ids"].tolist() == [[97, 98, END, 97]]
    assert batch["targets"].tolist() == [[98, END, 97, 98]]
    assert "documents" not in batch


def test_the_end_of_a_document_stays_a_target(tmp_path):
    for documents in ("joined", "masked"):
        data = whole(tmp_path, "ab", "ab", length=4, documents=documents)
        assert data.batch(draw(0), "train")["targets"][0, 1] == END


# The whole set


def test_python_docs_are_described_split_and_disjoint(tmp_path):
    data = make(tmp_path, source="python-docs")
    assert (data.describe().vocab_size, data.describe().max_length) == (257, 256)
    parts = {
        split: set(bytes(i if i != END else 0 for i in stream(data, split)).split(b"\0")) - {b""} for split in SPLITS
    }
    assert sum(map(len, parts.values())) == len(set(topics.values()))
    assert set.union(*parts.values()) == {text.encode() for text in topics.values()}
    total = sum(len(text.encode()) for text in topics.values())
    for split in ("validation", "test"):
        assert 0.05 * total <= sum(map(len, parts[split])) < 0.2 * total


@pytest.mark.parametrize("seed_of_order", range(3))
def test_names_and_order_of_files_decide_nothing(tmp_path, seed_of_order):
    texts = [f"This is text {number}. " * (3 + number) for number in range(12)]
    fingerprints, streams = set(), set()
    for run in range(2):
        folder = tmp_path / f"run{run}"
        folder.mkdir()
        order = np.random.default_rng(seed_of_order + 10 * run).permutation(12)
        files = write(folder, *(texts[at] for at in order))
        data = make(folder, source="files", files=files, length=16)
        fingerprints.add(data.fingerprint())
        streams.add(tuple(tuple(stream(data, split)) for split in SPLITS))
    assert len(fingerprints) == len(streams) == 1


def test_the_fingerprint_knows_everything_that_shapes_a_sample(tmp_path):
    usual = {"source": "python-docs", "length": 32}
    changes = [
        {},
        {"length": 33},
        {"stride": 16},
        {"documents": "masked"},
        {"validation": 0.06},
        {"test": 0},
        {"tokenizer": Char(Char.Config(unknown="replace"))},
        {"source": "files", "files": write(tmp_path, "abc " * 300)},
    ]
    prints = [make(tmp_path, **{**usual, **change}).fingerprint() for change in changes]
    assert len(set(prints)) == len(prints)
    assert make(tmp_path, **usual, batch_size=7, errors="replace").fingerprint() == prints[0]


def count_fits(monkeypatch, cls):
    fits, fit = [], cls.fit
    monkeypatch.setattr(cls, "fit", lambda self, documents: (fits.append(1), fit(self, documents))[1])
    return fits


def test_a_tokenizer_is_fitted_once_on_the_train_part_and_found_again(tmp_path, monkeypatch):
    fits = count_fits(monkeypatch, Bpe)
    first = make(tmp_path, tokenizer=Bpe(Bpe.Config(vocab_size=400)), length=32)
    again = make(tmp_path, tokenizer=Bpe(Bpe.Config(vocab_size=400)), length=64)
    assert fits == [1]
    assert again.tokenizer().state() == first.tokenizer().state()
    assert again.describe().vocab_size == 400
    assert stream(again) == stream(first)
    assert len(list((tmp_path / "cache" / "tokens").glob("*.tokens"))) == 1


def test_characters_come_from_the_train_part_alone(tmp_path):
    files = write(tmp_path, "ab" * 50 + "xy" * 50)
    knobs = {"source": "files", "files": files, "length": 4, "validation": 0.25, "test": 0.25}
    with pytest.raises(UserError, match="character 0 of the text is 'x'") as error:
        make(tmp_path, tokenizer=Char(Char.Config()), **knobs)
    assert error.value.where == str(files[0])
    data = make(tmp_path, tokenizer=Char(Char.Config(unknown="replace")), **knobs)
    assert stream(data, "validation") == [3] * 50 + [2]


def test_a_tokenizer_that_has_learned_is_not_fitted_again(tmp_path, monkeypatch):
    trained = make(tmp_path, tokenizer=Bpe(Bpe.Config(vocab_size=400)), length=32)
    restored = Bpe(Bpe.Config(vocab_size=400))
    restored.restore(trained.tokenizer().state())
    fits = count_fits(monkeypatch, Bpe)
    other = make(tmp_path, tokenizer=restored, source="files", files=write(tmp_path, "Other text. " * 90), length=8)
    assert fits == []
    assert other.tokenizer().state() == trained.tokenizer().state()
    assert restored.decode(stream(other, "test")) == ("Other text. " * 90)[-54:]


def test_preparing_twice_is_preparing_once(tmp_path):
    data = make(tmp_path, tokenizer=Bpe(Bpe.Config(vocab_size=300)), length=32)
    before = data.fingerprint()
    data.prepare()
    assert data.fingerprint() == before
    assert len(list((tmp_path / "cache").rglob("*.tokens"))) == 2


def test_wide_vocabularies_are_stored_wide(tmp_path):
    class Wide(Byte):
        """Bytes, moved to where 16 bits don't reach."""

        vocab_size, end_of_text = 100_277, 100_276

        def encode_batch(self, texts):
            return [ids.astype(np.int64) + 70_000 for ids in super().encode_batch(texts)]

    data = whole(tmp_path, "abcdefgh", tokenizer=Wide(Byte.Config()))
    assert data._part("train").dtype == np.uint32
    assert data.batch(draw(0), "train")["ids"].tolist() == [[70_097, 70_098, 70_099, 70_100]]


def test_ids_outside_the_vocabulary_are_found_when_the_data_is_opened(tmp_path):
    class Wrong(Byte):
        """A vocabulary that says it is smaller than it is."""

        vocab_size = 100

    with pytest.raises(UserError, match="gave id 256, but its vocabulary has ids 0 to 99"):
        whole(tmp_path, "abc", tokenizer=Wrong(Byte.Config()))


def test_prepared_data_goes_to_another_process(tmp_path):
    data = make(tmp_path, tokenizer=Bpe(Bpe.Config(vocab_size=300)), length=32)
    data.batch(draw(0), "train")
    pickled = pickle.dumps(data)
    assert len(pickled) < 50_000
    assert torch.equal(pickle.loads(pickled).batch(draw(4), "train")["ids"], data.batch(draw(4), "train")["ids"])


# What is refused


def test_a_text_shorter_than_a_window_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(UserError, match="the train part has 21 tokens, and one window of length 64 takes 65") as error:
        whole(tmp_path, "x" * 20, length=64)
    assert "data.length to at most 20" in error.value.fix
    assert "0.txt" in error.value.where


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_part_shorter_than_a_window_is_refused_by_name(tmp_path, split):
    shares = {"validation": 0, "test": 0, split: 0.05}
    with pytest.raises(
        UserError, match=f"the {split} part has 51 tokens, and one window of length 64 takes 65"
    ) as error:
        make(tmp_path, source="files", files=write(tmp_path, "x" * 1000), length=64, **shares)
    assert f"data.{split} to a larger share, or to 0 for none" in error.value.fix


def test_a_part_of_which_nothing_is_left_is_refused(tmp_path):
    with pytest.raises(UserError, match="the validation part has 0 tokens"):
        make(tmp_path, source="files", files=write(tmp_path, "abcde"), length=2)


def test_no_validation_is_said(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        data = whole(tmp_path, "abcdefgh")
    assert "no validation: data.validation is 0" in caplog.text
    assert (data.size("validation"), data.size("test")) == (0, 0)


@pytest.mark.parametrize("texts", [[""], ["", b"\xef\xbb\xbf"]])
def test_an_empty_text_is_refused(tmp_path, texts):
    with pytest.raises(UserError, match="the text is empty") as error:
        make(tmp_path, source="files", files=write(tmp_path, *texts))
    assert "0.txt" in error.value.where


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"length": 0}, "at least 1 token, not 0"),
        ({"stride": 0}, r"1 to length \(256\), not 0"),
        ({"stride": 257}, r"1 to length \(256\), not 257"),
        ({"validation": -0.1}, "validation \\(-0.1\\)"),
        ({"validation": 0.5, "test": 0.5}, "something must be left for training"),
        ({"source": "files"}, "source is 'files', and files has 0 entries"),
        ({"files": ["a.txt"]}, "source is 'python-docs', and files has 1 entries"),
    ],
)
def test_knobs_that_make_no_sense_are_refused_before_anything_is_read(tmp_path, knobs, message):
    with pytest.raises(UserError, match=message):
        make(tmp_path, prepare=False, **knobs)


def test_reading_before_preparing_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="before prepare"):
        make(tmp_path, prepare=False).size("train")


@pytest.mark.slow
def test_two_processes_prepare_at_once(tmp_path):
    code = """
import sys
from pathlib import Path
from zoo_builtin.data.text import Text
from zoo_builtin.tokenizer.bpe import Bpe
data = Text(Text.Config(length=32), cache=Path(sys.argv[1]), tokenizer=Bpe(Bpe.Config(vocab_size=2000)))
data.prepare()
print(data.fingerprint(), data.size("train"))
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    lines = {process.communicate(timeout=120)[0] for process in processes}
    assert len(lines) == 1
    assert int(lines.pop().split()[1]) > 1000
    assert len(list(tmp_path.rglob("*.tokens"))) == 2
    assert not list(tmp_path.rglob(".*tmp*"))
