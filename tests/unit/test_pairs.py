"""Pairs: one shift, padding by length and never by id, dates in one part only, and a word about every bad line."""

import json
import logging
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.builder import build_data, build_model, build_task
from zoo.contracts.data import Draw
from zoo.errors import UserError
from zoo.recipe import load_recipe
from zoo.training.plan import BatchPlan
from zoo_builtin.data.pairs import Pairs
from zoo_builtin.tokenizer.bpe import Bpe
from zoo_builtin.tokenizer.byte import Byte
from zoo_builtin.tokenizer.char import Char
from zoo_builtin.tokenizer.wordpiece import Wordpiece

END = 256
SPLITS = ("train", "validation", "test")
FEW = {"locales": ["en_US", "de_DE", "ja_JP"], "first_year": 2020, "last_year": 2021}


def draw(*samples, epoch=0, seed=0):
    ids = np.array(samples, dtype=np.int64)
    return Draw(ids, np.full_like(ids, epoch), seed)


def make(tmp_path, *, tokenizer=None, **knobs):
    data = Pairs(Pairs.Config(**knobs), cache=tmp_path / "cache", tokenizer=tokenizer or Char(Char.Config()))
    data.prepare()
    return data


def write(tmp_path, content, name="pairs.tsv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [path]


def whole(tmp_path, content, *, name="pairs.tsv", **knobs):
    """A set of files, all of it for training, as bytes."""
    usual = {"tokenizer": Byte(Byte.Config()), "validation": 0, "test": 0, "multiple": 1}
    return make(tmp_path, source="files", files=write(tmp_path, content, name), **{**usual, **knobs})


def texts(data, split):
    """Source and target of each pair of a part, from its batches."""
    batch = data.batch(draw(*range(data.size(split))), split)
    decode = data.tokenizer().decode
    sources = [decode(row[valid].tolist()) for row, valid in zip(batch["source"], batch["source_valid"], strict=True)]
    targets = [decode(row[valid].tolist()) for row, valid in zip(batch["ids"], batch["valid"], strict=True)]
    return list(zip(sources, targets, strict=True))


# Batches


def test_the_decoder_reads_an_end_of_text_and_is_one_token_behind(tmp_path):
    data = whole(tmp_path, "ab\tcde\nf\tg\n")
    batch = data.batch(draw(0, 1), "train")
    assert batch["source"].tolist() == [[*b"ab"], [*b"f", END]]
    assert batch["source_valid"].tolist() == [[True, True], [True, False]]
    assert batch["ids"].tolist() == [[END, *b"cde"], [END, *b"g", END, END]]
    assert batch["targets"].tolist() == [[*b"cde", END], [*b"g", END, -100, -100]]
    assert batch["valid"].tolist() == [[True] * 4, [True, True, False, False]]
    dtypes = {name: tensor.dtype for name, tensor in batch.items()}
    assert dtypes == {
        "source": torch.int64,
        "source_valid": torch.bool,
        "ids": torch.int64,
        "targets": torch.int64,
        "valid": torch.bool,
    }


def test_the_end_of_a_target_is_learned_where_padding_has_the_same_id(tmp_path):
    """bugs.md W8: padding is told by length, not by id."""
    data = whole(tmp_path, "a\tb\nc\tdefg\n")
    targets = data.batch(draw(0, 1), "train")["targets"]
    assert targets[0].tolist() == [*b"b", END, -100, -100, -100]
    assert (targets == END).sum() == 2


def test_a_padding_id_of_the_tokenizer_fills_rows_up(tmp_path):
    tokenizer = Wordpiece(Wordpiece.Config(vocab_size=30))
    batch = whole(tmp_path, "a b\tc\nd\tc a b\n", tokenizer=tokenizer).batch(draw(0, 1), "train")
    assert (batch["source"][~batch["source_valid"]] == tokenizer.specials["padding"]).all()
    assert batch["ids"][:, 0].tolist() == [tokenizer.specials["separator"]] * 2
    assert batch["ids"].min() >= 0


def test_an_empty_row_has_nothing(tmp_path):
    batch = whole(tmp_path, "ab\tcde\n").batch(draw(0, -1), "train")
    assert not batch["source_valid"][1].any()
    assert not batch["valid"][1].any()
    assert batch["targets"][1].tolist() == [-100] * 4
    assert min(batch["ids"].min(), batch["source"].min()) >= 0
    alone = whole(tmp_path, "ab\tcde\n").batch(draw(-1), "train")
    assert (alone["ids"].shape, alone["source"].shape) == ((1, 1), (1, 1))


def test_widths_are_multiples_but_never_more_than_the_most(tmp_path):
    data = whole(tmp_path, "a" * 9 + "\t" + "b" * 9 + "\n" + "a\tb\n", multiple=8, max_source=10, max_target=11)
    shapes = [
        {name: data.batch(draw(sample), "train")[name].shape[1] for name in ("source", "ids")} for sample in (0, 1)
    ]
    assert shapes == [{"source": 10, "ids": 11}, {"source": 8, "ids": 8}]
    assert data.describe().max_length == 11


def test_lengths_are_those_of_both_sides(tmp_path):
    assert whole(tmp_path, "ab\tcde\nf\tg\n").lengths("train").tolist() == [5, 2]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=9), st.text("xyz", min_size=1, max_size=9)),
        min_size=1,
        max_size=12,
    )
)
def test_every_pair_comes_back(tmp_path_factory, pairs):
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    assert texts(whole(tmp_path_factory.mktemp("pairs"), lines, multiple=4), "train") == pairs


def test_rows_of_a_bucketed_step_are_the_same_on_any_rank(tmp_path):
    """Padding differs with the rank; what is valid doesn't."""
    data = make(tmp_path, **FEW)
    plans = [
        BatchPlan(seed=1, size=data.size("train"), batch_size=12, rank=rank, world=world, lengths=data.lengths("train"))
        for world in (1, 3)
        for rank in range(world)
    ]

    def rows(plan):
        batch = data.batch(plan.step(5), "train")
        return [
            (s[m].tolist(), i[v].tolist(), t[v].tolist())
            for s, m, i, t, v in zip(
                *(batch[n] for n in ("source", "source_valid", "ids", "targets", "valid")), strict=True
            )
        ]

    whole_step, *shares = map(rows, plans)
    assert [row for three in zip(*shares, strict=True) for row in three] == whole_step


# Dates


def test_a_date_is_in_one_part_only(tmp_path):
    data = make(tmp_path, **FEW)
    days = {split: {target for _, target in texts(data, split)} for split in SPLITS}
    assert sum(map(len, days.values())) == len(set.union(*days.values())) == 731
    assert [len(days[split]) for split in SPLITS] == [657, 37, 37]
    assert [data.size(split) for split in SPLITS] == [3 * 657, 3 * 37, 3 * 37]
    assert min(len({day[:7] for day in days[split]}) for split in SPLITS) > 12  # months: from all over the years


def test_the_ceiling_of_a_part(tmp_path):
    assert make(tmp_path, **FEW).ceiling("validation") == 1.0
    data = whole(tmp_path, "a\tx\na\tx\na\ty\nb\tz\n")
    assert data.ceiling("train") == 0.75
    assert data.ceiling("test") == 1.0


@pytest.mark.parametrize(
    ("knobs", "message", "where"),
    [
        ({"locales": ["de_DE", "en_UX"]}, "the CLDR has no 'en_UX'; did you mean .*en_US", "data.locales"),
        ({"locales": ["de_DE", "de_DE"]}, "de_DE is twice in the list", "data.locales"),
        ({"locales": []}, "the list is empty", "data.locales"),
        ({"patterns": ["short", "tiny"]}, "there is no pattern 'tiny'", "data.patterns"),
        ({"first_year": 2022}, "from 2022 to 2021", "data.first_year"),
        ({"first_year": 999}, "from 999 to 2021", "data.first_year"),
        ({"per_date": 13}, "per_date is 13; there are 12 combinations", "data.per_date"),
        ({"multiple": 0}, "multiple is 0", "data.multiple"),
        ({"max_target": 1}, "max_target is 1", "data.max_target"),
        ({"validation": 0.5, "test": 0.5}, "something must be left for training", "data.validation"),
        ({"files": ["a.tsv"]}, "source is 'dates', and files has 1 entries", "data.files"),
    ],
)
def test_knobs_that_cannot_be_are_refused(tmp_path, knobs, message, where):
    with pytest.raises(UserError, match=message) as error:
        make(tmp_path, **{**FEW, **knobs})
    assert where in error.value.where


# Files


def test_lines_of_json_and_tables_with_names(tmp_path):
    lines = [json.dumps({"de": "Hallo", "en": "hello", "id": 3}), "", json.dumps({"de": "\u2028", "en": "x\ty"})]
    data = whole(tmp_path, "\ufeff" + "\n".join(lines), name="a.jsonl", source_field="de", target_field="en")
    assert texts(data, "train") == [("Hallo", "hello"), ("\u2028", "x\ty")]
    table = 'id,de,en\r\n1,"Ja, so",yes\r\n2,"zwei\nZeilen","a ""word"""\r\n'
    data = whole(tmp_path, table, name="a.csv", source_field="de", target_field="en")
    assert texts(data, "train") == [("Ja, so", "yes"), ("zwei\nZeilen", 'a "word"')]


def test_tabs_and_nothing_else_cut_a_line(tmp_path):
    data = whole(tmp_path, '\ufeff"a, b\tc"\r\n\r\nd \t e\n<|endoftext|>\t\x00')
    assert texts(data, "train") == [('"a, b', 'c"'), ("d ", " e"), ("<|endoftext|>", "\x00")]
    assert data.batch(draw(2), "train")["source"].tolist() == [[*b"<|endoftext|>"]]  # bugs.md D1


@pytest.mark.parametrize(
    ("name", "content", "message", "line"),
    [
        ("a.tsv", "a\tb\nc\n", "the line has 1 fields instead of 2", 2),
        ("a.tsv", "a\tb\tc\n", "the line has 3 fields instead of 2", 1),
        ("a.tsv", b"a\tb\n\nc\t\xff\n", r"byte 7 of the file \(0xFF\) is no UTF-8 text", 3),
        ("a.tsv", "a\tb\nc\t\n", "the text is empty", 2),
        ("a.csv", "source,target\na,b,c\n", "the line has 3 fields instead of 2", 2),
        ("a.csv", "source,targets\na,b\n", "no columns are called 'target'; did you mean targets?", 1),
        ("a.csv", "source,target,target\na,b,c\n", "2 columns are called 'target'", 1),
        ("a.csv", "", "no columns are called 'source'; there are none", 1),
        ("a.csv", 'source,target\n"a\n",b\n"c"d,e\n', "not a line of comma-separated values", 4),
        ("a.csv", 'source,target\n"a', "not a line of comma-separated values", 2),
        (
            "a.jsonl",
            '{"source": "a", "target": "b"}\n{"source": "a"}',
            "no text under the key 'target'; the line has source",
            2,
        ),
        ("a.jsonl", '{"source": 3, "target": "b"}', r"no text under the key 'source'; the line has source \(int\)", 1),
        ("a.jsonl", '{"source": "a\\ud83d", "target": "b"}', r"character 1 of the text is U\+D83D", 1),
        ("a.jsonl", "[", "not a line of JSON", 1),
    ],
)
def test_a_bad_line_is_named(tmp_path, name, content, message, line):
    with pytest.raises(UserError, match=message) as error:
        whole(tmp_path, content, name=name)
    assert error.value.where == f"{tmp_path / name}:{line}"


def test_bad_bytes_can_be_replaced_and_are_counted(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        data = whole(tmp_path, b"a\xff\tb\nc\td\xc3\n", errors="replace")
    assert texts(data, "train") == [("a\ufffd", "b"), ("c", "d\ufffd")]
    assert "2 pieces that are no UTF-8 were replaced" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "knobs", "message"),
    [
        ("a.txt", "a\tb\n", {}, "a.txt is none of .jsonl, .ndjson, .csv and .tsv"),
        ("a.tsv", "", {}, "the train part has no pair; there are 0 in all"),
        ("a.tsv", "a\tb\n", {"validation": 0.5}, "the train part has no pair; there are 1 in all"),
        ("a.tsv", "a\tb\nc\td\n", {"validation": 0.4, "test": 0.4}, "the train part has no pair; there are 2"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path, name, content, knobs, message):
    with pytest.raises(UserError, match=message):
        whole(tmp_path, content, name=name, **knobs)


def test_pairs_that_are_too_long_are_refused_with_the_first_one(tmp_path):
    content = "a\tb\n" + "c" * 9 + "\td\n" + "e\t" + "f" * 7 + "\n"
    with pytest.raises(
        UserError, match=r"2 of 3 pairs of the train part are too long; .* has 9 tokens, at most 8"
    ) as error:
        whole(tmp_path, content, max_source=8, max_target=7)
    assert error.value.where == f"{tmp_path / 'pairs.tsv'}:2"
    assert "set data.max_source to 9 and data.max_target to 8" in error.value.fix
    assert whole(tmp_path, content, max_source=9, max_target=8).size("train") == 3


def test_pairs_that_are_too_long_can_be_dropped_and_are_counted(tmp_path, caplog):
    content = "a\tb\n" + "c" * 9 + "\td\n" + "e\tfff\n"
    with caplog.at_level(logging.WARNING):
        data = whole(tmp_path, content, max_source=8, overlong="drop")
    assert "1 of 3 pairs of the train part are too long and were dropped" in caplog.text
    assert texts(data, "train") == [("a", "b"), ("e", "fff")]
    assert data.lengths("train").tolist() == [2, 4]
    assert data.ceiling("train") == 1.0
    with pytest.raises(UserError, match="the train part has no pair"):
        whole(tmp_path, "c" * 9 + "\td\n", max_source=8, overlong="drop")


def test_equal_sources_stay_together_and_order_decides_no_part(tmp_path):
    lines = [f"source {number % 50}\ttarget {number}\n" for number in range(100)]
    parts = []
    for order in (lines, lines[::-1]):
        data = make(tmp_path, source="files", files=write(tmp_path, "".join(order)), validation=0.1, test=0.2)
        parts.append({split: set(texts(data, split)) for split in SPLITS})
        assert [data.size(split) for split in SPLITS] == [70, 10, 20]
    assert parts[0] == parts[1]
    sources = [{source for source, _ in parts[0][split]} for split in SPLITS]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 50


# The whole set


def test_the_vocabulary_is_fitted_on_both_sides_of_the_train_part(tmp_path):
    data = whole(tmp_path, "ab\tcd\n", tokenizer=Char(Char.Config()))
    assert data.tokenizer().state() == {"characters": "abcd"}
    lines = "".join(f"{number} {chr(97 + number)}\t{number}\n" for number in range(20))
    with pytest.raises(UserError, match="which none of the") as error:
        make(tmp_path, source="files", files=write(tmp_path, lines), validation=0.2, test=0)
    assert error.value.where.startswith(f"{tmp_path / 'pairs.tsv'}:")


def test_it_is_prepared_once_and_found_again(tmp_path, monkeypatch):
    first = make(tmp_path, tokenizer=Bpe(Bpe.Config(vocab_size=300)), **FEW)
    monkeypatch.setattr(Bpe, "fit", lambda *_: pytest.fail("fitted again"))
    monkeypatch.setattr(Bpe, "encode_batch", lambda *_: pytest.fail("encoded again"))
    again = make(tmp_path, tokenizer=Bpe(Bpe.Config(vocab_size=300)), **FEW)
    assert again.fingerprint() == first.fingerprint()
    assert torch.equal(again.batch(draw(3, 9), "test")["source"], first.batch(draw(3, 9), "test")["source"])


def test_the_fingerprint_knows_what_shapes_a_sample(tmp_path):
    changes = [
        {},
        {"last_year": 2022},
        {"per_date": 2},
        {"max_source": 63},
        {"overlong": "drop"},
        {"multiple": 4},
        {"validation": 0.1},
        {"tokenizer": Byte(Byte.Config())},
    ]
    prints = [make(tmp_path, **{**FEW, **change}).fingerprint() for change in changes]
    assert len(set(prints)) == len(prints)
    assert make(tmp_path, **FEW, batch_size=7, errors="replace").fingerprint() == prints[0]


def test_prepared_data_goes_to_another_process(tmp_path):
    data = make(tmp_path, **FEW)
    want = data.batch(draw(4), "train")["ids"]
    pickled = pickle.dumps(data)
    assert len(pickled) < 50_000
    assert torch.equal(pickle.loads(pickled).batch(draw(4), "train")["ids"], want)


def test_reading_before_prepare_and_past_the_end_are_errors_of_the_program(tmp_path):
    data = Pairs(Pairs.Config(), cache=tmp_path, tokenizer=Char(Char.Config()))
    with pytest.raises(RuntimeError, match="before prepare"):
        data.size("train")
    with pytest.raises(IndexError, match="sample 1 of 1 in the train part"):
        whole(tmp_path, "a\tb\n").batch(draw(1), "train")


RECIPE = """
data: {name: pairs, locales: [en_US, ja_JP], first_year: 2020, last_year: 2020, multiple: %d, max_source: 64}
architecture: {name: encoder_decoder, layers: 1, dim: 8, heads: 2}
task: seq2seq
optimizer: adamw
trainer: {max_steps: 1}
"""


def test_padding_and_micro_batches_change_no_loss(tmp_path):
    """In float64, so that only the order of sums differs: widths of 1 and 32, rows at once and two by two."""
    losses = []
    for multiple in (1, 32):
        path = tmp_path / f"{multiple}.yaml"
        path.write_text(RECIPE % multiple)
        recipe = load_recipe(str(path))
        data = build_data(recipe, tmp_path / "cache")
        data.prepare()
        task = build_task(recipe, data)
        model = build_model(recipe, data.describe()).double().eval()
        batch = data.batch(BatchPlan(seed=3, size=data.size("train"), batch_size=6).step(0), "train")
        pieces = [{name: tensor[at : at + 2] for name, tensor in batch.items()} for at in (0, 2, 4)]
        with torch.no_grad():
            losses.append(float(task.loss(model, batch).total))
            losses.append(sum(float(task.loss(model, piece).total) for piece in pieces))
    assert losses[0] > 1
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-13)
