"""What each made task asks: examples worked out by hand, the laws of its generator, and its random numbers."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pytest

from synthetic_samples import batch_of, contents, draw, made
from zoo.data.growing import ends
from zoo.data.permutation import hash64
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import NO_TARGET
from zoo_builtin.data.addition import Addition
from zoo_builtin.data.copying import Copying
from zoo_builtin.data.dyck import Dyck
from zoo_builtin.data.induction import Induction
from zoo_builtin.data.listops import ListOps
from zoo_builtin.data.mqar import MQAR
from zoo_builtin.data.needle import Needle
from zoo_builtin.data.parity import Parity


def answers(data: Any, ids: list[int], first: int) -> list[int]:
    """The oracle's answers from a place on, with blanks for those that are written."""
    return data.answer(ids)[first:]


# Case C6 of the known traps: MQAR


@pytest.fixture(scope="module")
def recall() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """1,000 training samples of seed 0 and as many test samples of seed 1: vocabulary 64, 8 pairs, length 64."""
    knobs: dict[str, Any] = {"vocab_size": 64, "pairs": [8], "length": 64}
    train, test = made(MQAR, **knobs, samples=1000, draw=0), made(MQAR, **knobs, test=1000, draw=1)
    return batch_of(train, "train", 1000), batch_of(test, "test", 1000)


def test_keys_are_distinct_and_filler_is_none_of_them(recall: Any) -> None:
    for batch in recall:
        for ids, targets in zip(batch["ids"], batch["targets"], strict=True):
            keys, asked = ids[0:16:2], np.flatnonzero(targets != NO_TARGET)
            assert len(set(keys.tolist())) == 8
            assert keys.max() < 32 <= ids[1:16:2].min()
            assert sorted(ids[asked].tolist()) == sorted(keys.tolist())
            filler = np.delete(ids[16:], asked - 16)
            assert not set(filler.tolist()) & set(keys.tolist())


def test_the_label_of_a_question_is_the_value_paired_earlier_and_all_others_are_none(recall: Any) -> None:
    for batch in recall:
        for ids, targets in zip(batch["ids"], batch["targets"], strict=True):
            paired = dict(zip(ids[0:16:2].tolist(), ids[1:16:2].tolist(), strict=True))
            expected = [paired[token] if place >= 16 and token in paired else -100 for place, token in enumerate(ids)]
            assert targets.tolist() == expected
            assert (targets != -100).sum() == 8


def test_no_sequence_is_in_both_splits_and_the_same_seed_gives_the_same_data(recall: Any) -> None:
    train, test = ({ids.tobytes() for ids in batch["ids"]} for batch in recall)
    assert len(train) == len(test) == 1000
    assert not train & test
    again = made(MQAR, vocab_size=64, pairs=[8], length=64, samples=1000, draw=0)
    assert np.array_equal(batch_of(again, "train", 1000)["ids"], recall[0]["ids"])


def test_the_chance_level_is_said() -> None:
    assert made(MQAR, vocab_size=64, pairs=[8]).chance("test") == 1 / 32
    assert made(MQAR, vocab_size=64, pairs=[8]).batch(draw(range(3)), "test")["chance"].tolist() == [31_250_000] * 3


def test_gaps_follow_the_power_law() -> None:
    """One pair, so that each gap is one draw: P(gap g) = g^(power - 1) / sum."""
    for power in (0.01, 1.0):
        data = made(MQAR, vocab_size=64, pairs=[1], length=42, power=power, samples=4000)
        targets = batch_of(data, "train", 4000)["targets"]
        gap = ((targets != NO_TARGET).argmax(1) - 2) // 2
        expected = np.arange(1.0, 21.0) ** (power - 1)
        expected *= 4000 / expected.sum()
        counts = np.bincount(gap, minlength=20)
        assert counts.size == 20
        assert ((counts - expected) ** 2 / expected).sum() < 50  # 19 degrees of freedom: p = 0.0001


def test_recall_by_hand() -> None:
    data = made(MQAR, vocab_size=64, pairs=[2], length=10)
    asked = answers(data, [3, 40, 9, 50, 33, 9, 60, 1, 3, 2], 5)
    assert (asked[0], asked[3]) == (50, 40)


# The others, by hand


def test_copying_by_hand() -> None:
    told = [4, 1, 16, 4, 2, 16, 17]  # 16 is noise, 17 asks
    blanks = [17, 17, 17]
    assert answers(made(Copying, noise=2), told + blanks, 6) == [4, 1, 4, 2]
    assert answers(made(Copying, noise=2, order="reversed"), told + blanks, 6) == [2, 4, 1, 4]
    assert answers(made(Copying, noise=2, order="sorted"), told + blanks, 6) == [1, 2, 4, 4]


def test_noise_is_behind_or_between() -> None:
    behind = batch_of(made(Copying, shortest=5, length=5, noise=7), "train", 50)["ids"]
    assert (behind[:, :5] < 16).all()
    assert (behind[:, 5:12] == 16).all()
    assert (behind[:, 12] == 17).all()
    between = batch_of(made(Copying, shortest=5, length=5, noise=7, noise_place="between"), "train", 2000)["ids"]
    counts = (between[:, :12] < 16).sum(0)
    assert ((between[:, :12] < 16).sum(1) == 5).all()
    assert counts == pytest.approx([2000 * 5 / 12] * 12, rel=0.15)  # each place as likely as another


def test_the_chance_of_sorting_is_that_of_order_statistics() -> None:
    """Two symbols out of three, by counting all nine: (smaller, larger) are 0 5/9 and 2 5/9 of the time."""
    data = made(Copying, order="sorted", symbols=3, shortest=2, length=2 + 10)
    assert data._chances[1] == pytest.approx(1 / 3)
    pairs = [sorted(pair) for pair in itertools.product(range(3), repeat=2)]
    best = [Counter(pair[place] for pair in pairs).most_common(1)[0][1] / 9 for place in (0, 1)]
    assert data._chances[2] == pytest.approx(statistics.fmean(best))
    triples = [sorted(triple) for triple in itertools.product(range(3), repeat=3)]
    best = [Counter(triple[place] for triple in triples).most_common(1)[0][1] / 27 for place in range(3)]
    assert data._chances[3] == pytest.approx(statistics.fmean(best))


def test_addition_by_hand() -> None:
    ids = [5, 2, 9, 10, 7, 0, 8, 11, 11, 11, 11]  # 529 + 708 = 1237
    assert answers(made(Addition), ids, 7) == [7, 3, 2, 1]
    assert answers(made(Addition, order="plain"), ids, 7) == [1, 2, 3, 7]
    assert answers(made(Addition), [0, 4, 10, 0, 5, 11, 11, 11], 5) == [9, 0, 0]


def test_the_chance_of_addition_by_counting_all_sums() -> None:
    sums = [f"{a + b:03d}" for a in range(100) for b in range(100)]
    best = [Counter(text[place] for text in sums).most_common(1)[0][1] / 10_000 for place in range(3)]
    data = made(Addition, shortest=2, length=2)
    assert data.chance("train") == pytest.approx(statistics.fmean(best), abs=1e-9)


def test_parity_by_hand() -> None:
    assert answers(made(Parity), [1, 0, 1, 1, 2], 4) == [1]
    assert made(Parity, running=True).answer([1, 0, 1, 1]) == [1, 1, 0, 1]


def test_dyck_by_hand() -> None:
    data = made(Dyck, kinds=3)  # ( [ { are 0 1 2, ) ] } are 3 4 5
    assert answers(data, [0, 1, 4, 2, 6, 6], 4) == [5, 3]


def test_brackets_are_nested_to_the_depth_and_no_further() -> None:
    data = made(Dyck, kinds=2, depth=3, length=30, test_depth=5, test_length=40)
    for split, most in (("train", 3), ("test", 5)):
        depths = set()
        for ids in batch_of(data, split, 300)["ids"]:
            opened = ids[: ids.tolist().index(4)] < 2
            depths |= set(np.where(opened, 1, -1).cumsum().tolist())
        assert depths == set(range(most + 1))


def test_hops_by_hand() -> None:
    data = made(Induction, hops=[1, 2], symbols=4)
    symbols = [0, 1, 2, 0, 3, 1, 0]  # behind the last 0 before each 0: 1, then 3; behind the last 1: 2
    assert [data.answer([4, *symbols])[place] for place in (4, 6, 7)] == [1, 2, 3]
    assert data.answer([4, 1, 3, 0, 1, 2, 0])[-1] == 1
    assert data.answer([5, 1, 3, 0, 1, 2, 0])[-1] == 3  # from the last 0 to the 1 behind the first, from there to the 3
    batch = batch_of(data, "train", 200)
    assert {ids[0] for ids in batch["ids"].tolist()} == {4, 5}


def test_every_place_that_has_an_answer_is_asked() -> None:
    for ids, targets in zip(
        *(batch_of(made(Induction), "train", 50)[name] for name in ("ids", "targets")), strict=True
    ):
        symbols = ids[1:].tolist()
        seen = [symbols[place] in symbols[:place] for place in range(len(symbols))]
        assert (targets[1:] != NO_TARGET).tolist() == seen


def test_listops_by_hand() -> None:
    data = made(ListOps)
    largest, smallest, median, total, close = 10, 11, 12, 13, 14
    assert data.answer([largest, 4, total, 7, 8, close, 2, close])[-1] == 5
    assert data.answer([smallest, 4, 7, close])[-1] == 4
    assert data.answer([median, 9, 1, 4, close])[-1] == 4
    assert data.answer([median, 9, 1, 4, 7, close])[-1] == 5  # 5.5, rounded down
    assert data.answer([total, median, 1, 2, close, 9, largest, 0, 3, close, close])[-1] == 3


def test_expressions_have_the_depth_and_arguments_that_they_may_have() -> None:
    data = made(ListOps, depth=2, arguments=4, length=40)
    depths, counts = set(), set()
    for ids, valid in zip(*(batch_of(data, "train", 400)[name] for name in ("ids", "valid")), strict=True):
        stack: list[int] = []
        deepest = 0
        for token in ids[valid].tolist():
            if token == 14:
                counts.add(stack.pop())
            if stack and token >= 10 and token != 14:
                stack[-1] += 1
            if token < 10:
                stack[-1] += 1
            if 10 <= token < 14:
                stack.append(0)
                deepest = max(deepest, len(stack))
        depths.add(deepest)
    assert depths == {1, 2}
    assert counts == {2, 3, 4}


def test_a_needle_by_hand() -> None:
    data = made(Needle, words=5, keys=4, values=3, shortest=8)  # words 0-4, keys 5-8, values 9-11, 12 a fact, 13 asks
    ids = [0, 12, 6, 9, 10, 3, 3, 12, 8, 11, 11, 4, 13, 6, 13]
    assert answers(data, ids, 13) == [9, 10]


def test_the_needle_may_be_anywhere() -> None:
    data = made(Needle, needles=1, shortest=40, length=40, samples=4000)
    depth = data._rows(np.arange(4000), "train")["fact depth"]
    assert depth.min() == 0
    assert depth.max() == 100
    assert np.histogram(depth, bins=4)[0] == pytest.approx([1000] * 4, rel=0.15)


def test_slices_end_where_training_does() -> None:
    assert ends(1, 20) == [5, 10, 15, 20]
    assert ends(1, 3) == [1, 2, 3]
    assert ends(5, 4) == []
    assert made(Parity, length=20, test_length=40).slices() == tuple(f"length_{n}" for n in range(5, 41, 5))


# Random numbers


def random(rows: int) -> RowRandom:
    return RowRandom(hash64(7, np.arange(rows)))


def test_numbers_are_uniform_and_those_of_a_row_are_its_own() -> None:
    numbers = random(4000).uniform(3)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert numbers.mean(0) == pytest.approx([0.5] * 3, abs=0.02)
    assert abs(np.corrcoef(numbers.T) - np.eye(3)).max() < 0.06
    alone = RowRandom(hash64(7, np.arange(11, 12)))
    assert alone.uniform(3)[0].tolist() == numbers[11].tolist()
    assert not np.intersect1d(random(50).below(10**9, 20)[0], random(50).below(10**9, 20)[1]).size


def test_requests_differ_and_a_longer_one_begins_like_a_shorter() -> None:
    one, other = random(5), random(5)
    assert one.uniform(4).tolist() == other.uniform(9)[:, :4].tolist()
    assert one.uniform(4).tolist() != one.uniform(4).tolist()


def test_distinct_numbers_are_any_arrangement_alike() -> None:
    drawn = random(6000).distinct(3, 4)
    counts = Counter(map(tuple, drawn.tolist()))
    assert len(counts) == 24
    assert sum((count - 250) ** 2 / 250 for count in counts.values()) < 60  # 23 degrees of freedom: p = 0.00004


def test_a_subset_is_any_alike_within_its_row() -> None:
    size = np.repeat([3, 5], 3000)
    chosen = random(6000).subset(np.full(6000, 2), size, 6)
    assert (chosen.sum(1) == 2).all()
    assert not chosen[:3000, 3:].any()
    assert not chosen[:, 5].any()
    assert chosen[3000:].sum(0)[:5] == pytest.approx([1200] * 5, rel=0.1)


def test_weighted_places_are_drawn_without_return() -> None:
    weights = np.tile(np.array([1, 2, 5, 0]), (8000, 1))
    drawn = random(8000).weighted(3, weights)
    assert (np.sort(drawn, axis=1) == [0, 1, 2]).all()
    assert np.bincount(drawn[:, 0]) / 8000 == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.02)
    second = drawn[drawn[:, 0] == 2][:, 1]
    assert (second == 1).mean() == pytest.approx(2 / 3, abs=0.03)


def test_train_samples_hardly_repeat() -> None:
    assert len(contents(made(MQAR), "train", 1000)) == 1000
