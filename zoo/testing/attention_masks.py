"""Attention checks about masks: padding, packed documents, windows, prefixes, empty rows, other sequences.

Dimension legend: B batch, T queries, S keys, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.mask import Mask
from zoo.testing.attention_case import SEEN, SUITE, AttentionCase, influence
from zoo.testing.masks import describe, may_attend, padding, plain, random_mask
from zoo.testing.modules import trainable
from zoo.testing.numbers import agree, differ, finite
from zoo.testing.suite import Failed


def _padded(case: AttentionCase, left: bool) -> None:
    """Rows of T, T - 2 and 1 tokens in one batch equal each row by itself, without its padding."""
    module, x_BTD = case.make(), case.input(3)
    lengths = [case.tokens, case.tokens - 2, 1]
    valid_BS = padding(lengths, case.tokens, left=left)
    for plain_mask in plain(case.offers):
        mask = Mask(causal=plain_mask.causal, valid_BS=valid_BS)
        out_BTD = case.run(module, x_BTD, mask)
        finite(out_BTD, "output, padding included")
        for row, length in enumerate(lengths):
            alone_BTD = case.run(module, x_BTD[row : row + 1, valid_BS[row]], plain_mask)
            agree(
                out_BTD[row, valid_BS[row]],
                alone_BTD[0],
                f"{describe(mask)}: row {row} against its {length} tokens alone",
            )


@SUITE.check("right padding changes nothing", "padding", tokens=(3, 5))
def right_padding(case: AttentionCase) -> None:
    """Padding behind the tokens."""
    _padded(case, left=False)


@SUITE.check("left padding changes nothing", "padding", tokens=(3, 5))
def left_padding(case: AttentionCase) -> None:
    """Padding before the tokens: positions count tokens, not slots."""
    _padded(case, left=True)


@SUITE.check("junk in padding doesn't leak", "padding", tokens=(5,))
def padding_junk(case: AttentionCase) -> None:
    """Other and huge values in padded places change no output of a token."""
    module, x_BTD = case.make(), case.input()
    for left in (True, False):
        valid_BS = padding([5, 2], 5, left=left)
        junk_BTD = torch.where(valid_BS[..., None], x_BTD, 1e6 * case.input(salt=9))
        kept_BTD = junk_BTD.clone()
        for plain_mask in plain(case.offers):
            mask = Mask(causal=plain_mask.causal, valid_BS=valid_BS)
            got, want = case.run(module, junk_BTD, mask), case.run(module, x_BTD, mask)
            agree(got[valid_BS], want[valid_BS], f"{describe(mask)}: tokens beside huge padding")
            agree(junk_BTD, kept_BTD, f"{describe(mask)}: the input after a pass", tolerance=0.0)


@SUITE.check("packed documents equal each alone", "documents", tokens=(5, 8))
def documents(case: AttentionCase) -> None:
    """Documents in one row don't see each other, and positions begin again in each."""
    module, x_BTD = case.make(), case.input()
    cuts = [[2, case.tokens - 2], [1, 1, case.tokens - 2]]
    documents_BS = torch.stack(
        [torch.repeat_interleave(torch.tensor([7, 9, 8][: len(c)]), torch.tensor(c)) for c in cuts]
    )
    for plain_mask in plain(case.offers):
        mask = Mask(causal=plain_mask.causal, documents_BS=documents_BS)
        out_BTD = case.run(module, x_BTD, mask)
        for row, cut in enumerate(cuts):
            pieces = x_BTD[row : row + 1].split(cut, 1)
            alone_TD = torch.cat([case.run(module, piece, plain_mask)[0] for piece in pieces])
            agree(out_BTD[row], alone_TD, f"{describe(mask)}: row {row} against its documents alone")


@SUITE.check("a row that sees nothing gives zero", "padding")
def empty_rows(case: AttentionCase) -> None:
    """Where everything is hidden the output is that of no values at all, and every gradient is finite."""
    module, x_BTD = case.make(training=True), case.input().requires_grad_()
    valid_BS = padding([case.tokens, 0], case.tokens, left=True)
    for plain_mask in plain(case.offers):
        mask = Mask(causal=plain_mask.causal, valid_BS=valid_BS)
        out_BTD = case.run(module, x_BTD, mask)
        finite(out_BTD.detach(), "output")
        _check_empty(case, module, out_BTD[1].detach(), mask, x_BTD.detach())
        gradients = torch.autograd.grad(
            out_BTD.square().sum(), [x_BTD, *(p for _, p in trainable(module))], materialize_grads=True
        )
        for name, gradient in zip(["the input", *(n for n, _ in trainable(module))], gradients, strict=True):
            finite(gradient, f"gradient of {name} beside an empty row")


def _check_empty(case: AttentionCase, module: torch.nn.Module, out_TD: Tensor, mask: Mask, x_BTD: Tensor) -> None:
    if isinstance(module, HeadedAttention):
        zeros = torch.zeros(case.tokens, getattr(module.output, "in_features", out_TD.shape[-1]), dtype=out_TD.dtype)
        agree(out_TD, module.output(zeros).detach(), "the output of a row that sees nothing, against zero values")
        return
    other_BTD = case.run(module, torch.cat([x_BTD[:1], case.input(salt=5)[1:]]), mask)
    agree(other_BTD[1].detach(), out_TD, "the output of a row that sees nothing, with other inputs")
    agree(out_TD, out_TD[:1].expand_as(out_TD), "the outputs of a row that sees nothing, against each other")


def _dense(case: AttentionCase, module: torch.nn.Module, x_BTD: Tensor) -> bool:
    """Whether every output depends on all that a plain mask allows, so that other masks can be held to equality."""
    allowed = [
        (influence(case, module, x_BTD, mask) > SEEN, may_attend(mask, *x_BTD.shape[:2])) for mask in plain(case.offers)
    ]
    return all(torch.equal(seen, may) for seen, may in allowed)


def _check_influence(case: AttentionCase, mask: Mask, module: torch.nn.Module, dense: bool, x_BTD: Tensor) -> None:
    seen_BTS = influence(case, module, x_BTD, mask) > SEEN
    allowed_BTS = may_attend(mask, *x_BTD.shape[:2])
    # A query in the padding may depend on its own input, through a gate for instance; nobody reads it.
    ignored_BTS = torch.zeros_like(allowed_BTS) if mask.valid_BS is None else ~mask.valid_BS[:, :, None]
    wrong_BTS = (seen_BTS & ~allowed_BTS) | ((allowed_BTS & ~seen_BTS) if dense else torch.zeros_like(seen_BTS))
    wrong_BTS = wrong_BTS & ~ignored_BTS
    if bool(wrong_BTS.any()):
        row, t, s = (int(index[0]) for index in wrong_BTS.nonzero(as_tuple=True))
        verb = "depends on" if bool(seen_BTS[row, t, s]) else "doesn't depend on"
        raise Failed(f"{describe(mask)}: output {t} of row {row} {verb} input {s}")


@SUITE.check("honours a window", "window", tokens=(5,), knobs=False)
def window(case: AttentionCase) -> None:
    """A mask with a window of W: nearer than W slots is seen, farther is not."""
    module, x_BTD = case.make(), case.input()
    dense = _dense(case, module, x_BTD)
    for width in (1, 2, 4):
        for plain_mask in plain(case.offers):
            _check_influence(case, Mask(causal=plain_mask.causal, window=width), module, dense, x_BTD)


@SUITE.check("honours a prefix", "prefix", "causal", tokens=(5,), knobs=False)
def prefix(case: AttentionCase) -> None:
    """The first tokens see each other both ways, though the mask is causal."""
    module, x_BTD = case.make(), case.input()
    mask = Mask(causal=True, prefix_B=torch.tensor([3, 0]))
    _check_influence(case, mask, module, _dense(case, module, x_BTD), x_BTD)
    if case.mixes and not float(influence(case, module, x_BTD, mask)[0, 0, 1:3].max()) > SEEN:
        raise Failed("with a prefix of 3 output 0 depends neither on input 1 nor on input 2")


@SUITE.check("parts of a mask combine", tokens=(6,), schemes=False)
def combined(case: AttentionCase) -> None:
    """Random combinations of all that is offered: nobody sees what any part hides."""
    module, x_BTD = case.make(), case.input()
    dense = _dense(case, module, x_BTD)
    for draw in range(6):
        _check_influence(case, random_mask(case.offers, 2, 6, case.seed * 100 + draw), module, dense, x_BTD)


@SUITE.check("many combinations of masks", tokens=(7,), knobs=False, full=True)
def combined_often(case: AttentionCase) -> None:
    """As before, forty of them at another length."""
    module, x_BTD = case.make(), case.input()
    dense = _dense(case, module, x_BTD)
    for draw in range(40):
        _check_influence(case, random_mask(case.offers, 2, 7, case.seed * 100 + 50 + draw), module, dense, x_BTD)


@SUITE.check("cross-attention to a sequence of another length", "cross", schemes=False, tokens=(1, 3))
def crosses(case: AttentionCase) -> None:
    """Each query by itself sees the other sequence, longer or shorter, and none of its padding."""
    module, x_BTD = case.make(), case.input()
    for length in (1, 5):
        context_BSD = case.input(salt=3).repeat(1, 5, 1)[:, :length] * torch.linspace(1, 2, length)[:, None]
        base_BTD = case.cross(module, x_BTD, context_BSD)
        if base_BTD.shape != x_BTD.shape:
            raise Failed(f"gives {tuple(base_BTD.shape)} from {case.tokens} queries and {length} keys")
        differ(
            case.cross(module, x_BTD, context_BSD.flip(-1)), base_BTD, f"S={length}: the other sequence doesn't matter"
        )
        moved_BTD = torch.cat([x_BTD[:, :-1], case.input(salt=4)[:, -1:]], 1)
        moved = case.cross(module, moved_BTD, context_BSD)
        agree(moved[:, :-1], base_BTD[:, :-1], f"S={length}: queries beside one that was replaced")


@SUITE.check("cross-attention ignores the source's padding", "cross", "padding", schemes=False, tokens=(3,))
def crosses_padding(case: AttentionCase) -> None:
    """A padded source, on either side, equals the source alone."""
    module, x_BTD = case.make(), case.input()
    context_BSD = torch.cat([case.input(salt=3), case.input(salt=4)], 1)
    for left in (True, False):
        valid_BS = padding([6, 2], 6, left=left)
        out_BTD = case.cross(module, x_BTD, context_BSD, valid_BS)
        alone_BTD = case.cross(module, x_BTD[1:], context_BSD[1:, valid_BS[1]])
        agree(out_BTD[1], alone_BTD[0], f"source padded on the {'left' if left else 'right'}")
