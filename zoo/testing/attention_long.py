"""Attention checks over more tokens than a chunk holds: how chunks meet, and where a table ends.

A recurrence computes tokens a chunk at a time, a patterned attention in blocks; short inputs see the first only.

Dimension legend: B batch, T queries, D width.
"""

from __future__ import annotations

import torch

from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.testing.attention_case import SUITE, AttentionCase
from zoo.testing.masks import describe, padding, plain
from zoo.testing.numbers import agree, finite
from zoo.testing.suite import Failed

_LONG = 147
"""More than two chunks of 64 or of 48, nine of 16, and odd."""
_CUT = 71
"""Inside a chunk."""


@SUITE.check("parallel = recurrent over many chunks", "cache", "causal", tokens=(_LONG,), schemes=False, knobs=False)
def parallel_is_recurrent(case: AttentionCase) -> None:
    """A long prompt and single steps after it, a piece at a time, give what all tokens at once give."""
    module, x_BTD = case.make(), case.input()
    want = case.run(module, x_BTD, Mask(causal=True))
    for sizes in ([_CUT] + [1] * (_LONG - _CUT), [1, 2, _LONG - 5, 2]):
        told = f"{sizes[:3]}... of {_LONG} tokens" if len(sizes) > 4 else f"{sizes}"
        agree(case.in_chunks(module, x_BTD, sizes, Cache()), want, f"pieces of {told} against all at once")


@SUITE.check("no look-ahead over many chunks", "causal", tokens=(_LONG,), schemes=False, knobs=False)
def no_look_ahead_far(case: AttentionCase) -> None:
    """Other tokens from a place inside a chunk on change nothing before it."""
    module, x_BTD = case.make(), case.input()
    moved_BTD = torch.cat([x_BTD[:, :_CUT], case.input(salt=7)[:, _CUT:]], 1)
    got, want = (case.run(module, given, Mask(causal=True))[:, :_CUT] for given in (moved_BTD, x_BTD))
    agree(got, want, f"outputs before {_CUT}, all later inputs replaced")


@SUITE.check("long packed documents equal each alone", "documents", tokens=(_LONG,), schemes=False, knobs=False)
def long_documents(case: AttentionCase) -> None:
    """Documents that begin inside of chunks, and one longer than a chunk."""
    module, x_BTD = case.make(), case.input()
    cut = [3, _CUT - 3, 1, _LONG - _CUT - 1]
    documents_BS = torch.repeat_interleave(torch.tensor([4, 9, 2, 5]), torch.tensor(cut)).expand(2, -1)
    for plain_mask in plain(case.offers):
        mask = Mask(causal=plain_mask.causal, documents_BS=documents_BS)
        alone = torch.cat([case.run(module, piece, plain_mask) for piece in x_BTD.split(cut, 1)], 1)
        kind = "causal" if mask.causal else "bidirectional"
        agree(case.run(module, x_BTD, mask), alone, f"{kind}, documents of {cut} tokens in a row against each alone")


@SUITE.check("a long padded batch equals each row alone", "padding", tokens=(_LONG,), schemes=False, knobs=False)
def long_padding(case: AttentionCase) -> None:
    """Padding that ends inside a chunk, on either side."""
    module, x_BTD = case.make(), case.input()
    for left in (True, False):
        valid_BS = padding([_LONG, _CUT], _LONG, left=left)
        for plain_mask in plain(case.offers):
            got = case.run(module, x_BTD, Mask(causal=plain_mask.causal, valid_BS=valid_BS))
            want = case.run(module, x_BTD[1:, valid_BS[1]], plain_mask)
            kind = f"{describe(plain_mask)}, padded on the {'left' if left else 'right'}"
            agree(got[1, valid_BS[1]], want[0], f"{kind}: {_CUT} of {_LONG} tokens against these alone")


@SUITE.check("its length is kept, or it has none", schemes=False, tokens=(9,))
def bounded(case: AttentionCase) -> str:
    """Made for 8 tokens it takes 8, and refuses 9 with ValueError unless it needs no bound; so without any bound."""
    module, x_BTD = case.make(length=8), case.input()
    finite(case.run(module, x_BTD[:, :8]), "output of 8 tokens, made for 8")
    if not _takes(case, module, x_BTD):
        try:
            boundless = case.make(length=None)
        except ValueError:
            return "needs to know the most tokens there can be"
        raise Failed(
            "made for 8 tokens it refuses 9, and yet can be made without a bound"
            if _takes(case, boundless, x_BTD)
            else "without a bound it is made, and then refuses 9 tokens; raise ValueError in the constructor"
        )
    finite(case.run(case.make(length=None), x_BTD), "output of 9 tokens, made without a bound")
    return "no bound"


def _takes(case: AttentionCase, module: torch.nn.Module, x_BTD: torch.Tensor) -> bool:
    """Whether 9 tokens are taken, with a finite output, or refused with ValueError."""
    try:
        finite(case.run(module, x_BTD), f"output of {x_BTD.shape[1]} tokens")
    except ValueError:
        return False
    return True
