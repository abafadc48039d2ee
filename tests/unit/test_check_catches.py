"""The kit is examined itself: each seeded fault is caught, by the check that is there for it.

Every mutant still passes the first check of its kind: it runs, and gives the right shapes.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import mutants_attention as attention
import mutants_others as others
from zoo.testing.check import Examination, examine, suite_of

CAUGHT: list[tuple[type[Any], str]] = [
    (attention.MaskAsked, "no look-ahead, by perturbation"),
    (attention.OneMapUnmasked, "no look-ahead, by perturbation"),
    (attention.MaskAfterSoftmax, "no look-ahead, by gradient"),
    (attention.SoftmaxOverQueries, "no look-ahead, by gradient"),
    (attention.SeesOneAhead, "no look-ahead, by perturbation"),
    (attention.TriangleTopLeft, "cache = full pass, in chunks"),
    (attention.without("valid_BS"), "left padding changes nothing"),
    (attention.without("valid_BS"), "right padding changes nothing"),
    (attention.without("valid_BS"), "junk in padding doesn't leak"),
    (attention.without("documents_BS"), "packed documents equal each alone"),
    (attention.without("window"), "honours a window"),
    (attention.without("prefix_B"), "honours a prefix"),
    (attention.WindowOffByOne, "honours a window"),
    (attention.WindowOffByOne, "parts of a mask combine"),
    (attention.MinusInfinity, "a row that sees nothing gives zero"),
    (attention.NoiseInEvaluation, "dropout acts in training only"),
    (attention.ScaledTwice, "kernels equal the eager reference"),
    (attention.KernelWithoutBias, "kernels equal the eager reference"),
    (attention.HeadsTiled, "shared key/value heads equal repeated ones"),
    (attention.HalvesSplitAfterRotation, "rotation makes scores depend on distance"),
    (attention.RowsMixed, "a row alone equals the row in its batch"),
    (attention.OrderBuiltIn, "no order without positions"),
    (attention.SinglePrecisionInside, "gradients equal finite differences in float64"),
    (attention.ValuesDetached, "gradients equal finite differences in float64"),
    (attention.NothingToSee, "attention weights can be looked at"),
    (attention.KeysRotatedAfterCaching, "cache = full pass, token by token"),
    (attention.TimeFirst, "cache follows its beams"),
    (attention.StateOnSelf, "cache follows its beams"),
    (attention.ReadsSpareRoom, "unused room in the cache doesn't matter"),
    (attention.CacheDropsFirst, "cache past its window"),
    (attention.NeverUsed, "every parameter gets a finite gradient"),
    (attention.ScalarParameter, "state dict round trip"),
    (attention.TwoNames, "state dict round trip"),
    (attention.NoInitialValues, "initial values follow from the seed"),
    (attention.UnseededInitialValues, "initial values follow from the seed"),
    (attention.KernelInNameOnly, "each kernel is a path of its own"),
    (attention.UntypedKnob, "every knob has a type, a default and a docstring"),
    (attention.UntypedDefault, "every knob has a type, a default and a docstring"),
    (attention.UndocumentedKnob, "every knob has a type, a default and a docstring"),
    (attention.OwnDevice, "runs on the meta device"),
    (attention.HalfPrecisionScores, "bfloat16 within its rounding"),
    (others.SlotsNotPositions, "acts by positions, not by slots"),
    (others.SlotsNotPositions, "left padding changes nothing"),
    (others.SlotsNotPositions, "packed documents equal each alone"),
    (others.SlotsNotPositions, "cache = full pass"),
    (others.SlotsRotated, "acts by positions, not by slots"),
    (others.SlotsRotated, "cache = full pass"),
    (others.PositionsOfFirstRow, "positions of a batch equal positions of each row"),
    (others.PositionsOfFirstRow, "cache of a left-padded batch"),
    (others.HalfPrecisionPhases, "precise far out in a bfloat16 model"),
    (others.TablesOfTheModel, "precise far out in a bfloat16 model"),
    (others.TablesSaved, "state dict round trip"),
    (others.WidensRotation, "shapes and dtypes are kept"),
    (others.MemoOfThePast, "copies after use"),
    (others.OrderForgotten, "order matters"),
    (others.QueriesOnlyOfTheChunk, "cache = full pass"),
    (others.BoundForgotten, "its bound is kept, or it has none"),
    (others.SecretContent, "content is declared"),
    (others.OddSizeCrashes, "odd sizes work or are refused"),
    (others.LooksAside, "each position by itself"),
    (others.KnowsItsPlace, "the same function everywhere"),
    (others.CountsPadding, "padding doesn't matter"),
    (others.BatchStatistics, "each vector by itself"),
    (others.WidensForGood, "keeps shape and dtype"),
    (others.NoEpsilon, "vectors of zeros and of equal numbers are harmless"),
    (others.StreamDropped, "the stream carries the input"),
    (others.BranchesBackwards, "every branch once, in order"),
    (others.DropsTheStream, "dropout acts on branches in training"),
    (others.LastBranchLost, "every branch matters"),
    (others.PoolerNobodyUses, "every parameter gets a finite gradient"),
    (others.OneGeneratorForAll, "models that share parts begin equal"),
    (others.TiedByAName, "safetensors round trip, ties kept"),
    (others.HistoryForgotten, "cache = full pass"),
    (others.RowsShareATable, "rows apart, and other inputs make other vectors"),
    (others.EverywhereNowhere, "says where its tokens stand"),
    (others.GridUnsaid, "says where its tokens stand"),
    (others.TableTransposed, "its table, where it has one, is (V, D)"),
    (others.StatesForgotten, "scores of tokens are states times weight, plus bias"),
    (others.PaddingCounts, "padding changes no score of a token"),
    (others.SwapsTensors, "there and back, every tensor once"),
    (others.TakesLeftovers, "a tensor missing, left over or of another shape is refused and nothing is filled"),
    (others.SpecialText, "special tokens have no text, and no text is special"),
    (others.StripsSpaces, "text comes back exactly"),
    (others.ReplacesSilently, "half a character is refused or replaced, not a crash"),
    (others.TakesAnyState, "its state survives JSON"),
    (others.DrawnGlobally, "no global random state"),
    (others.CompanyMatters, "a batch is a function of its draw"),
    (others.PartsOverlap, "parts are disjoint"),
    (others.TargetsInEmptyRows, "an empty row has no target"),
    (others.MeanNotSum, "losses add up over rows"),
    (others.SumsWithGraph, "a loss is a scalar sum with a gradient"),
    (others.NanWithoutTargets, "a batch without any target has loss 0 and gradient 0"),
    (others.DrawsByRow, "what a sample becomes doesn't depend on its batch"),
    (others.NanMetric, "metrics from sums"),
    (others.CountsItsCalls, "a pure function of the step"),
    (others.NegativeEnd, "a finite factor from 0 to 1 at every step"),
    (others.BiasesForgotten, "every trainable parameter once, no frozen one"),
    (others.EverythingDecays, "takes the learning rate and the decay that were asked for"),
    (others.RateForgotten, "takes the learning rate and the decay that were asked for"),
]


def status(examination: Examination, name: str) -> tuple[str, str]:
    check = next(check for check in examination.checks() if check.name == name)
    finding = examination.run(check)
    return finding.status, finding.message


@pytest.mark.parametrize(("mutant", "name"), CAUGHT, ids=[f"{mutant.__name__}: {name}" for mutant, name in CAUGHT])
def test_a_seeded_fault_is_caught_by_its_check(mutant: type[Any], name: str) -> None:
    examination = examine(mutant)
    found, message = status(examination, name)
    assert found == "failed", message
    assert message
    first = examination.checks()[0].name
    if name != first:
        assert status(examination, first)[0] == "passed", status(examination, first)[1]


def test_a_mask_that_is_forgotten_altogether_stops_everything() -> None:
    examination = examine(attention.MaskForgotten)
    report = examination.suite.run(examination.subject)
    assert report[0].status == "failed"
    assert "never asked for the mask" in report[0].message
    assert {finding.status for finding in report[1:]} == {"skipped"}


@pytest.mark.parametrize(
    ("mutant", "name", "told"),
    [
        (attention.UntypedKnob, "every knob has a type, a default and a docstring", "Config.gain has no type"),
        (attention.KernelInNameOnly, "each kernel is a path of its own", "kernels declares sdpa, which does the same"),
        (others.SumsWithGraph, "a loss is a scalar sum with a gradient", "loss in sums has a gradient"),
    ],
)
def test_a_fault_is_named(mutant: type[Any], name: str, told: str) -> None:
    assert told in status(examine(mutant), name)[1]


@pytest.mark.parametrize("kind", sorted({examine(mutant).suite.kind for mutant, _ in CAUGHT}))
def test_the_good_component_passes_every_check_that_catches_its_mutants(kind: str) -> None:
    names = {name for mutant, name in CAUGHT if examine(mutant).suite.kind == kind}
    examination = examine(importlib.import_module(f"zoo.testing.templates.{kind}").Mine)
    for name in sorted(names):
        found, message = status(examination, name)
        assert found != "failed", f"{name}: {message}"


def test_every_mutant_is_in_the_list() -> None:
    listed = {mutant for mutant, _ in CAUGHT} | {attention.MaskForgotten}
    for module in (attention, others):
        classes = [
            value for _, value in inspect.getmembers(module, inspect.isclass) if value.__module__ == module.__name__
        ]
        missing = [value.__name__ for value in classes if value not in listed and value is not others.TurnsBy]
        assert not missing


def test_every_check_of_the_quick_examination_has_a_name_of_its_own() -> None:
    for kind in (
        "attention",
        "position",
        "feed_forward",
        "norm",
        "residual",
        "architecture",
        "tokenizer",
        "data",
        "task",
    ):
        names = [check.name for check in suite_of(kind).checks]
        assert len(names) == len(set(names))
