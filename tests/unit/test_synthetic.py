"""Tasks that are made: oracles, parts that can't overlap, the same samples everywhere, chance levels, refusals."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from synthetic_samples import CASES, NAMES, NOWHERE, batch_of, contents, draw, made
from zoo.contracts.data import Draw, Split
from zoo.data.permutation import hash64
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import NO_TARGET, PARTS
from zoo.errors import UserError
from zoo_builtin.data.addition import Addition
from zoo_builtin.data.copying import Copying
from zoo_builtin.data.dyck import Dyck
from zoo_builtin.data.induction import Induction
from zoo_builtin.data.listops import ListOps
from zoo_builtin.data.mqar import MQAR
from zoo_builtin.data.needle import Needle
from zoo_builtin.data.parity import Parity

every_case = pytest.mark.parametrize(("kind", "knobs"), CASES, ids=NAMES)


# What holds for all of them


@every_case
@pytest.mark.parametrize("split", PARTS)
def test_an_oracle_that_sees_no_answer_scores_exactly_1(kind: type[Any], knobs: dict[str, Any], split: Split) -> None:
    data = made(kind, **knobs)
    batch = data.batch(draw([*range(60), -1]), split)
    asked = batch["targets"] != NO_TARGET
    shown = {name: value for name, value in batch.items() if name in ("ids", "valid")}
    if "blanked" in batch:
        shown["ids"] = batch["blanked"]
    right = data.oracle(shown) == batch["targets"]
    assert right[asked].double().mean().item() == 1.0
    assert asked[:-1].any(1).all()
    assert not asked[-1].any()


@every_case
def test_parts_share_no_sample_whatever_is_drawn(kind: type[Any], knobs: dict[str, Any]) -> None:
    one, other = made(kind, **knobs), made(kind, **knobs, draw=1)
    seen = {split: contents(one, split, 100) | contents(other, split, 100) for split in PARTS}
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]
    assert contents(one, "train", 100) != contents(other, "train", 100)


def test_a_training_sample_of_one_set_is_no_test_sample_of_another_with_other_knobs() -> None:
    short, long = made(Parity, length=10), made(Parity, length=4, test_shortest=1, test_length=10, draw=7)
    train, test = contents(short, "train", 5000), contents(long, "test", 1000)
    assert len(train) > 1000
    assert len(test) > 100
    assert not train & test


def test_parts_are_fair_shares_of_all_there_is() -> None:
    """All 510 strings of up to 8 bits: three quarters are for training, and each of them turns up."""
    data = made(Parity, length=8)
    shares = {split: len(contents(data, split, 1000 if split != "train" else 10_000)) for split in PARTS}
    assert shares["train"] == pytest.approx(0.75 * 510, rel=0.08)
    assert shares["validation"] == pytest.approx(510 / 8, rel=0.35)
    assert shares["test"] == pytest.approx(510 / 8, rel=0.35)
    assert sum(shares.values()) == pytest.approx(510, rel=0.02)


@every_case
def test_a_sample_depends_on_its_part_and_number_alone(kind: type[Any], knobs: dict[str, Any]) -> None:
    data, again = made(kind, **knobs), made(kind, again=True, **knobs)
    whole = data.batch(draw([5, 900, 17, 3]), "validation")
    for row, sample in enumerate([5, 900, 17, 3]):
        ids = np.array([sample, 8])
        alone = again.batch(Draw(ids, np.array([4, 4]), 99), "validation")
        assert all(bool((alone[name][0] == tensor[row]).all()) for name, tensor in whole.items())
    assert data.fingerprint() == again.fingerprint()
    assert data.fingerprint() != made(kind, **knobs, draw=1).fingerprint()
    assert data.fingerprint() == made(kind, **knobs, batch_size=7).fingerprint()


@every_case
def test_guessing_by_place_alone_is_right_as_often_as_chance_says(kind: type[Any], knobs: dict[str, Any]) -> None:
    """The most frequent answer at each place of one half of the samples, on the other half."""
    data = made(kind, **({**knobs, "vocab_size": 41} if kind is MQAR else knobs))
    rows = data.make(RowRandom(hash64(3, np.arange(4000))), "train").arrays()  # of any part
    rows = {name: array[(rows["targets"] != NO_TARGET).any(axis=1)] for name, array in rows.items()}
    row, place = np.nonzero(rows["targets"] != NO_TARGET)
    first = (rows["targets"] != NO_TARGET).argmax(axis=1)
    group = np.stack(
        [rows.get("fact length", np.zeros(4000, int))[row] * (kind in (Copying, Addition)), place - first[row]]
    )
    target = rows["targets"][row, place]
    right, asked = 0, 0
    for key in np.unique(group, axis=1).T:
        mine = (group == key[:, None]).all(axis=0)
        learned, held_out = target[mine & (row % 2 == 0)], target[mine & (row % 2 == 1)]
        if learned.size:
            right += int((held_out == np.bincount(learned).argmax()).sum())
            asked += held_out.size
    chance = data.chance("train")
    # answers of one sample depend on each other, so the number of samples bounds the error, not that of answers
    assert right / asked == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 2000) ** 0.5 + 0.004)


@every_case
def test_slices_are_the_facts_of_a_sample(kind: type[Any], knobs: dict[str, Any]) -> None:
    data = made(kind, **knobs)
    for split in PARTS:
        rows = data._rows(np.arange(100), split)
        batch = data.batch(draw(range(100)), split)
        for number, name in enumerate(data.slices()):
            fact, last = name.rsplit("_", 1)
            bins = data.bins[fact]
            before = ([-1, *bins])[bins.index(int(last))]
            expected = (rows[f"fact {fact}"] <= int(last)) & (rows[f"fact {fact}"] > before)
            assert batch["slices"][:, number].tolist() == expected.tolist()
        kinds = len({name.rsplit("_", 1)[0] for name in data.slices()})
        if kinds:
            assert batch["slices"].sum(1).tolist() == [kinds] * 100


@every_case
def test_lengths_are_those_that_were_asked_for(kind: type[Any], knobs: dict[str, Any]) -> None:
    data = made(kind, **knobs)
    if not hasattr(data, "ranges"):
        pytest.skip("its samples are equally long")
    for split in PARTS:
        shortest, longest = data.ranges[split]
        lengths = data._rows(np.arange(300 if split == "train" else 200), split)["fact length"]
        assert shortest <= lengths.min() <= lengths.max() <= longest
        if longest - shortest < 40 and kind is not ListOps:
            assert len(set(lengths.tolist())) > 0.8 * (longest - shortest)


def test_only_longer_samples_are_tests_where_the_test_is_longer() -> None:
    assert made(Copying, length=6, test_length=12).ranges["test"] == (7, 12)
    assert made(Copying, shortest=2, length=6).ranges["test"] == (2, 6)
    assert made(Copying, length=6, test_shortest=3, test_length=12).ranges["validation"] == (3, 12)


GOLDEN = {
    MQAR: "09277e495056a001",
    Copying: "69ff75115952e150",
    Addition: "d37570b11096d2bd",
    Parity: "4bcba75e921d02b2",
    Dyck: "e2e3e59c71032e5a",
    Induction: "df18833f99b93453",
    ListOps: "8f61315d085b38d1",
    Needle: "a6b1fd39f769c295",
}


@pytest.mark.parametrize("kind", GOLDEN, ids=lambda kind: kind.__name__)
def test_samples_are_the_same_on_any_machine(kind: type[Any]) -> None:
    """Hashes of the first 32 samples of each part, as another machine made them."""
    data, digest = made(kind), hashlib.sha256()
    for split in PARTS:
        batch = batch_of(data, split, 32)
        for name in ("ids", "targets"):
            digest.update(batch[name].astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == GOLDEN[kind]


# What is impossible


@pytest.mark.parametrize(
    ("kind", "knobs", "told"),
    [
        (MQAR, {"pairs": [17]}, "17 pairs and their questions take 68 tokens, a sample has 64"),
        (MQAR, {"pairs": []}, "pairs must list numbers from 1"),
        (MQAR, {"test_pairs": [0]}, "test_pairs must list numbers from 1"),
        (MQAR, {"vocab_size": 6, "pairs": [4]}, "a vocabulary of 6 has 3"),
        (MQAR, {"power": 0.0}, "power must be above 0, got 0.0"),
        (Copying, {"symbols": 1}, "at least 2 symbols, got 1"),
        (Copying, {"noise": -1}, "noise must be at least 0"),
        (Copying, {"shortest": 0}, "begin at 1: got 0 to 20"),
        (Copying, {"shortest": 30}, "got 30 to 20"),
        (Copying, {"test_length": 10}, "1 to 10, must begin at shortest"),
        (Copying, {"test_shortest": 41, "test_length": 40}, "41 to 40"),
        (Copying, {"samples": 0}, "samples must be at least 1, got 0"),
        (Copying, {"test": -1}, "test must be at least 0, got -1"),
        (Dyck, {"kinds": 1}, "give at least 2"),
        (Dyck, {"depth": 3, "test_depth": 2}, "got 3 and 2"),
        (Induction, {"hops": [0]}, "different numbers from 1"),
        (Induction, {"hops": [1, 1]}, "different numbers from 1"),
        (Induction, {"hops": [4], "length": 4}, "4 hops need more symbols"),
        (Induction, {"symbols": 1}, "at least 2 symbols"),
        (ListOps, {"shortest": 3}, "begin at 4: got 3 to 40"),
        (ListOps, {"arguments": 1}, "at least 2 arguments"),
        (ListOps, {"nesting": 1.5}, "a probability, got 1.5"),
        (ListOps, {"depth": 1, "shortest": 20}, "has at most 7 tokens, shortest is 20"),
        (Needle, {"needles": 17}, "17 needles need as many keys, there are 16"),
        (Needle, {"shortest": 7}, "2 needles take 8 tokens, the shortest haystack has 7"),
        (Needle, {"values": 1}, "values must be at least 2"),
    ],
)
def test_what_is_impossible_is_refused_with_its_numbers(kind: type[Any], knobs: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        kind(kind.Config(**knobs), cache=NOWHERE)


@pytest.mark.parametrize(("kind", "knobs"), [(Parity, {"shortest": 2, "length": 2}), (Addition, {"length": 1})])
def test_hardly_any_different_samples_is_a_message(kind: type[Any], knobs: dict[str, Any]) -> None:
    data = kind(kind.Config(**knobs), cache=NOWHERE)
    with pytest.raises(UserError, match="too few different samples for three parts"):
        data.prepare()


def test_a_part_may_be_empty_and_a_sample_may_not_be_outside() -> None:
    data = made(Parity, validation=0, test=0, samples=20)
    assert (data.size("train"), data.size("validation")) == (20, 0)
    with pytest.raises(IndexError, match="sample 20 of 20 in the train part"):
        data.batch(draw([20]), "train")


def test_a_part_of_a_content_has_nothing_to_do_with_its_answer() -> None:
    """Each part has even and odd strings alike, though the part is a function of the string."""
    data = made(Parity, shortest=12, length=12)
    for split in PARTS:
        rows = data._rows(np.arange(1000), split)
        share = (rows["targets"][:, 12] == 1).mean()
        assert share == pytest.approx(0.5, abs=0.07)
