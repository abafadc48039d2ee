"""Faults that people really ship, written by somebody who hasn't seen the examination, and right oddities beside them.

Each breaks something that a contract promises; ``tests/unit/test_outsider_faults.py`` shows where it does. Errors
that only a formula tells, such as another slope or activation, aren't here: nothing but a reference can see them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from faults_of_an_outsider import attention, good, mixers, others, position
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.attention.sliding_window import SlidingWindow
from zoo_builtin.embedding.patches import Patches
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.classification import Classification
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.norm.rms_norm import RMSNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.position.rotary import Rotary
from zoo_builtin.position.rotary_2d import RotaryGrid
from zoo_builtin.position.sinusoidal import Sinusoidal
from zoo_builtin.position.t5 import RelativeBuckets
from zoo_builtin.residual.post import Post
from zoo_builtin.residual.pre import Pre
from zoo_builtin.task.causal_lm import CausalLM
from zoo_builtin.task.masked_lm import MaskedLM

__all__ = ["FAULTS", "GOOD", "Fault"]


class Fault(NamedTuple):
    """A component with one mistake."""

    name: str
    component: type[Any]
    kind: str
    reference: type[Any]
    """What it is but for the mistake."""


def _faults(kind: str, by_reference: dict[type[Any], list[type[Any]]]) -> list[Fault]:
    pairs = [(fault, reference) for reference, faults in by_reference.items() for fault in faults]
    return [Fault(fault.__name__, fault, kind, reference) for fault, reference in pairs]


FAULTS: list[Fault] = [
    *_faults(
        "attention",
        {
            MultiHead: [
                attention.ForgottenMask,
                attention.SoftmaxOverQueries,
                attention.TriangleAtTopLeft,
                attention.EmptyRowsAreNaN,
                attention.MaskTooShallow,
                attention.SoftmaxOverflows,
                attention.NoiseInEvaluation,
                attention.BiasBeforeScale,
                attention.BiasForgotten,
                attention.KeysNormalizedOverBatch,
                attention.KeysScaledByTheFuture,
                attention.HalfPrecisionSoftmax,
                attention.WeightsDetached,
                attention.DropoutInEvaluation,
                attention.DropoutForgotten,
                attention.PaddingZeroedNotHidden,
                attention.SqueezedBatch,
                attention.GrowingTriangle,
                attention.TensorAttribute,
                attention.ScalarParameter,
                attention.EagerScalesTwice,
                attention.FusedCausalFlag,
                attention.FusedWithoutDropout,
                attention.MapOfEverything,
            ],
            GroupedQuery: [attention.GroupedInTiles],
            SlidingWindow: [attention.KeepsOneTooFew, attention.WindowOnlyWithoutCache],
            good.Ported: [
                mixers.WindowOneTooWide,
                mixers.WindowOnOneSide,
                mixers.PrefixOpensPadding,
                mixers.DocumentsIgnored,
                mixers.ContextPaddingIgnored,
                mixers.PaddedQueriesHidden,
                mixers.PositionOfTheChunk,
                mixers.MergedWithoutTranspose,
                mixers.CachedBeforeRotation,
                mixers.PastOnModule,
                mixers.CachedByTheFirstHead,
                mixers.CachedKeysScaledInPlace,
                mixers.InputZeroedInPlace,
                mixers.CrossCachesQueries,
                mixers.CrossReadsItself,
            ],
            good.Decay: [
                mixers.StateAcrossDocuments,
                mixers.StateAcrossTheCut,
                mixers.PaddingWrites,
                mixers.PaddingDecays,
                mixers.StateOfTheFirstRow,
                mixers.StateOnModule,
                mixers.StateInHalfPrecision,
                mixers.StateOfTheFirstCall,
            ],
            good.Convolution: [mixers.FilterSeesAhead, mixers.TailOfTheChunk, mixers.RandomStart],
        },
    ),
    *_faults(
        "position",
        {
            Rotary: [
                position.RotatesByCounting,
                position.FrequenciesInABuffer,
                position.MixedPairs,
                position.RotatesToDouble,
                position.RemembersTheLongest,
            ],
            RotaryGrid: [position.GridTakenForASquare],
            Learned: [position.LearnedByCounting, position.FirstRowForAll, position.ClampedAtTheEnd],
            Sinusoidal: [position.HalfPrecisionPhases],
            RelativeBuckets: [position.BucketsOfSlots, position.BiasMemoized],
            good.Alibi: [position.DistancesChangedInPlace, position.SlopesOfAPowerOfTwo],
        },
    ),
    *_faults(
        "feed_forward",
        {
            MLP: [others.CentredOverTokens, others.ClampedInPlace, others.DropsInEvaluation],
            good.Routed: [others.CountsPadding, others.MeanInsteadOfSum, others.ExpertsInAList],
        },
    ),
    *_faults(
        "norm",
        {LayerNorm: [others.NormalizedOverBatch], RMSNorm: [others.NormLeavesFloat32, others.SquaresInHalfPrecision]},
    ),
    *_faults(
        "residual",
        {Pre: [others.AddsTheBranchAsItIs, others.FirstNormForAll], Post: [others.CallsTheBranchTwice]},
    ),
    *_faults(
        "embedding",
        {
            Tokens: [others.TableShrinksInUse],
            Patches: [others.PlacesTransposed, others.ClassTokenOnTheGrid],
        },
    ),
    *_faults(
        "head",
        {
            LanguageModel: [others.TiedByCopy, others.CapsItsScores],
            Classification: [others.ReadsTheFirstSlot],
        },
    ),
    *_faults(
        "task",
        {
            CausalLM: [
                others.MeanLoss,
                others.ShiftsAgain,
                others.CountsEverySlot,
                others.SumsWithGraph,
                others.NaNWithoutTargets,
                others.PaddingIsAttended,
                others.AuxiliaryLossDropped,
            ],
            MaskedLM: [others.HidesAtRandom],
        },
    ),
]
"""Every component here differs from its reference in the one thing that its docstring says."""

GOOD: list[tuple[str, type[Any]]] = [
    ("attention", good.Ported),
    ("attention", good.OnlineSoftmax),
    ("attention", good.Decay),
    ("attention", good.Convolution),
    ("position", good.ComplexRotary),
    ("position", good.Alibi),
    ("feed_forward", good.Routed),
]
"""Kind and class of components that are unusual and right."""
