"""How the kit did with the faults of somebody who had not seen it, and the table of both catalogues for the docs.

What caught each fault at the first run is noted here, so that the table needs no run; ``test_check_catches_outside.py``
runs each fault against the check that is noted.
"""

from __future__ import annotations

from collections import Counter

from faults_of_an_outsider import FAULTS
from mutants_catalogue import CAUGHT
from mutants_executor import CAUGHT as CAUGHT_EXECUTOR
from test_check_catches_answers import CAUGHT as CAUGHT_ANSWERS
from test_check_catches_text import CAUGHT as CAUGHT_TEXT
from test_check_catches_text import Few, FewNames
from zoo.component import KINDS
from zoo.data.growing import Growing
from zoo.testing.check import examine, suite_of

OUTSIDE: dict[str, str] = {
    "ForgottenMask": "no look-ahead, by perturbation",
    "SoftmaxOverQueries": "no look-ahead, by perturbation",
    "TriangleAtTopLeft": "cache = full pass, token by token",
    "EmptyRowsAreNaN": "a row that sees nothing gives zero",
    "SoftmaxOverflows": "zeros, equal tokens and large ones are harmless",
    "NoiseInEvaluation": "no look-ahead, by perturbation",
    "BiasForgotten": "a bias on the scores matters",
    "KeysNormalizedOverBatch": "a row alone equals the row in its batch",
    "KeysScaledByTheFuture": "no look-ahead, by perturbation",
    "WeightsDetached": "every parameter gets a finite gradient",
    "DropoutInEvaluation": "dropout acts in training only",
    "PaddingZeroedNotHidden": "cache of a left-padded batch",
    "SqueezedBatch": "gives (B, T, D) from (B, T, D)",
    "GrowingTriangle": "state dict round trip",
    "TensorAttribute": "bfloat16 within its rounding",
    "ScalarParameter": "gradients equal finite differences in float64",
    "EagerScalesTwice": "attention weights can be looked at",
    "FusedCausalFlag": "cache = full pass, token by token",
    "FusedWithoutDropout": "dropout of weights acts in training",
    "MapOfEverything": "attention weights can be looked at",
    "GroupedInTiles": "shared key/value heads equal repeated ones",
    "KeepsOneTooFew": "cache = full pass, token by token",
    "WindowOnlyWithoutCache": "cache = full pass, token by token",
    "WindowOneTooWide": "honours a window",
    "WindowOnOneSide": "honours a window",
    "PrefixOpensPadding": "cache = full pass, under any mask",
    "DocumentsIgnored": "cache of packed documents",
    "ContextPaddingIgnored": "cross-attention ignores the source's padding",
    "PaddedQueriesHidden": "cache of a left-padded batch",
    "PositionOfTheChunk": "cache = full pass, token by token",
    "MergedWithoutTranspose": "no look-ahead, by perturbation",
    "CachedBeforeRotation": "cache = full pass, token by token",
    "PastOnModule": "cache follows its beams",
    "CachedByTheFirstHead": "cache follows its beams",
    "CachedKeysScaledInPlace": "cache = full pass, token by token",
    "CrossCachesQueries": "cross-attention keeps the source",
    "CrossReadsItself": "cross-attention keeps the source",
    "StateAcrossDocuments": "cache of packed documents",
    "StateAcrossTheCut": "cache of packed documents",
    "PaddingWrites": "cache of a left-padded batch",
    "StateOfTheFirstRow": "cache = full pass, token by token",
    "StateOnModule": "no look-ahead, by perturbation",
    "StateOfTheFirstCall": "cache = full pass, token by token",
    "FilterSeesAhead": "no look-ahead, by perturbation",
    "TailOfTheChunk": "cache = full pass, token by token",
    "RandomStart": "evaluation is deterministic",
    "RotatesByCounting": "order matters",
    "FrequenciesInABuffer": "precise far out in a bfloat16 model",
    "MixedPairs": "only distances matter, where it says so",
    "RotatesToDouble": "shapes and dtypes are kept",
    "RemembersTheLongest": "packed documents equal each alone",
    "GridTakenForASquare": "order matters",
    "LearnedByCounting": "order matters",
    "FirstRowForAll": "positions of a batch equal positions of each row",
    "ClampedAtTheEnd": "its bound is kept, or it has none",
    "BucketsOfSlots": "order matters",
    "BiasMemoized": "order matters",
    "CentredOverTokens": "each position by itself",
    "ClampedInPlace": "zeros, equal tokens and large ones are harmless",
    "DropsInEvaluation": "gives (B, T, D) from (B, T, D)",
    "CountsPadding": "padding doesn't matter",
    "ExpertsInAList": "gives (B, T, D) from (B, T, D)",
    "NormalizedOverBatch": "each vector by itself",
    "NormLeavesFloat32": "keeps shape and dtype",
    "AddsTheBranchAsItIs": "dropout acts on branches in training",
    "FirstNormForAll": "every branch once, in order",
    "CallsTheBranchTwice": "every branch once, in order",
    "TiedByCopy": "state dict round trip",
    "CapsItsScores": "scores of tokens are states times weight, plus bias",
    "MeanLoss": "losses add up over rows",
    "ShiftsAgain": "a loss is a scalar sum with a gradient",
    "CountsEverySlot": "a batch without any target has loss 0 and gradient 0",
    "SumsWithGraph": "a loss is a scalar sum with a gradient",
    "NaNWithoutTargets": "a batch without any target has loss 0 and gradient 0",
    "HidesAtRandom": "what a sample becomes doesn't depend on its batch",
    "MaskTooShallow": "no look-ahead, however large the scores",
    "BiasBeforeScale": "a bias is added after the scale",
    "InputZeroedInPlace": "junk in padding doesn't leak",
    "SlopesOfAPowerOfTwo": "odd sizes work or are refused",
    "MeanInsteadOfSum": "a loss of its own adds up",
    "SquaresInHalfPrecision": "vectors of zeros and of equal numbers are harmless",
    "TableShrinksInUse": "rows apart, and other inputs make other vectors",
    "PlacesTransposed": "says where its tokens stand",
    "ClassTokenOnTheGrid": "says where its tokens stand",
    "ReadsTheFirstSlot": "padding changes no score of a token",
    "PaddingIsAttended": "padding changes no loss",
    "AuxiliaryLossDropped": "losses of the model's own parts count",
    "HalfPrecisionSoftmax": "bfloat16 keeps close scores apart",
    "DropoutForgotten": "dropout of weights acts in training",
    "DistancesChangedInPlace": "content is declared",
}
"""Fault of the outsider → the check that catches it."""

ESCAPED_AT_FIRST: dict[str, str] = {
    "MaskTooShallow": "a check with inputs of size 30",
    "BiasBeforeScale": "a check with a quarter of the queries under four times the scale",
    "InputZeroedInPlace": "the input is compared after the pass",
    "SlopesOfAPowerOfTwo": "a bias for three heads",
    "MeanInsteadOfSum": "all rows twice must cost twice as much",
    "SquaresInHalfPrecision": "a vector of 1000 in float16",
    "TableShrinksInUse": "parameters are compared after the pass",
    "PlacesTransposed": "the token that changes with a patch's pixels stands there",
    "ClassTokenOnTheGrid": "tokens in front stand on no grid",
    "ReadsTheFirstSlot": "padding on the left, against the row alone",
    "PaddingIsAttended": "a check with padding in front",
    "AuxiliaryLossDropped": "a check with a loss added by a hook",
    "HalfPrecisionSoftmax": "a check with large scores that are close",
    "DropoutForgotten": "asked of all that take a bias, not only of those that show weights",
    "DistancesChangedInPlace": "a bias is asked for twice",
}
"""Fault that no check caught when it was first run → what was added."""

STILL_ESCAPES: dict[str, str] = {
    "PaddingDecays": "padding between turns; mixers with a convolution go over it slot by slot, windows too",
    "StateInHalfPrecision": "over 147 tokens its error stays within the budget of bfloat16",
    "HalfPrecisionPhases": "its error stays within the budget for positions far out",
}
"""Fault that no check catches → why."""


def table() -> str:
    """Markdown: for each kind how many checks there are, and how many faults of both catalogues they catch."""
    lines = [
        "| kind | checks | faults by the kit's authors | caught | faults by an outsider | caught at first | caught |",
        "|---|---|---|---|---|---|---|",
    ]
    own, outside = own_faults(), Counter(fault.kind for fault in FAULTS)
    now = Counter(fault.kind for fault in FAULTS if fault.name in OUTSIDE)
    first = now - Counter(fault.kind for fault in FAULTS if fault.name in ESCAPED_AT_FIRST)
    counts = {kind: len(suite_of(kind).checks) for kind in KINDS}
    for kind in KINDS:
        cells = (kind, counts[kind], own[kind], own[kind], *(found[kind] for found in (outside, first, now)))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    totals = (sum(counts.values()), own.total(), own.total(), outside.total(), first.total(), now.total())
    lines.append("| all | " + " | ".join(map(str, totals)) + " |")
    return "\n".join(lines)


def own_faults() -> Counter[str]:
    """Number of the kit's own mutants of each kind; its tests show that each is caught."""
    kinds = Counter(examine(mutant).suite.kind for mutant in {mutant for mutant, _ in CAUGHT})
    of_data = {mutant for mutant, _, _ in CAUGHT_TEXT if issubclass(mutant, Few | FewNames)}
    kinds["data"] += len(of_data)
    kinds["tokenizer"] += len({mutant for mutant, _, _ in CAUGHT_TEXT} - of_data)
    kinds["attention"] += 1  # MaskForgotten, which the first check stops
    kinds["executor"] += len({mutant for mutant, _ in CAUGHT_EXECUTOR})
    kinds.update(
        "data" if issubclass(mutant, Growing) else "task" for mutant in {mutant for mutant, _, _ in CAUGHT_ANSWERS}
    )
    return kinds
