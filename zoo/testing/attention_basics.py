"""Attention checks about the function itself: who influences whom, heads, rotation, bias, weights.

Inputs are noise: behind a layer norm a constant shift would be invisible, and a change that changes nothing
proves nothing.

Dimension legend: B batch, T queries, S keys, D width, N heads.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.capabilities import WORDS
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.testing.attention_case import SEEN, SUITE, AttentionCase, influence
from zoo.testing.masks import describe, may_attend, padding, plain
from zoo.testing.numbers import agree, differ, finite
from zoo.testing.suite import Failed, Skipped


@SUITE.check("gives (B, T, D) from (B, T, D)")
def runs(case: AttentionCase) -> None:
    """The plainest call works, at length 1 and at odd lengths too."""
    finite(case.run(case.make(), case.input()), "output")


@SUITE.check("offers known words only", schemes=False, tokens=(1,))
def known_words(case: AttentionCase) -> str:
    """``offers`` is a frozenset of the words of ``zoo.contracts.values.capabilities``."""
    if not isinstance(case.offers, frozenset):
        raise Failed(f"offers is a {type(case.offers).__name__}, it must be a frozenset")
    if unknown := case.offers - WORDS.keys():
        raise Failed(f"offers unknown words {sorted(unknown)}; the words are {', '.join(WORDS)}")
    if not case.offers & {"causal", "bidirectional", "cross"}:
        raise Failed("offers neither causal nor bidirectional nor cross, so that no architecture can use it")
    return ", ".join(word for word in WORDS if word in case.offers)


@SUITE.check("refuses what it doesn't offer", schemes=False, tokens=(4,))
def refuses_the_rest(case: AttentionCase) -> None:
    """A call that asks for more than is offered is a ValueError, never an answer that ignores the question."""
    module, x_BTD = case.make(), case.input()
    causal = case.mask.causal
    asked = {
        "causal": Mask(causal=True),
        "bidirectional": Mask(),
        "padding": Mask(causal=causal, valid_BS=padding([4, 2], 4, left=True)),
        "documents": Mask(causal=causal, documents_BS=torch.tensor([[0, 0, 1, 1]] * 2)),
        "window": Mask(causal=causal, window=2),
        "prefix": Mask(causal=True, prefix_B=torch.tensor([2, 1])),
    }
    calls: dict[str, Callable[[], Tensor]] = {
        word: functools.partial(case.run, module, x_BTD, mask) for word, mask in asked.items()
    }
    calls["cross"] = functools.partial(case.cross, module, x_BTD, case.input(salt=1))
    calls["cache"] = functools.partial(module, x_BTD, mask=case.mask.sized(4, 4), cache=LayerCache())
    for word in sorted(calls.keys() - case.offers):
        try:
            calls[word]()
        except ValueError:
            continue
        raise Failed(f"was asked for {word}, which it doesn't offer, and didn't refuse; call self.refuse first")


@SUITE.check("refuses a width that its heads don't divide, or works", schemes=False, tokens=(3,))
def odd_width(case: AttentionCase) -> None:
    """Width 15 with 4 heads is a ValueError of the constructor, not a shape error of the first batch."""
    try:
        module = case.make(dim=15, heads=4)
    except ValueError:
        return
    case.run(module, case.input()[..., :15])


@SUITE.check("no look-ahead, by perturbation", "causal")
def no_look_ahead(case: AttentionCase) -> None:
    """Another token at s changes no output before s, and does change the one at s or after."""
    module, x_BTD = case.make(), case.input()
    mask = Mask(causal=True)
    base_BTD = case.run(module, x_BTD, mask).detach()
    for s in range(case.tokens):
        moved_BTD = x_BTD.clone()
        moved_BTD[:, s] = case.input(salt=7)[:, s]
        change_T = (case.run(module, moved_BTD, mask).detach() - base_BTD).abs().amax((0, 2))
        if s and float(change_T[:s].max()) > 1e-12:
            t = int(change_T[:s].argmax())
            raise Failed(f"output {t} moves by {float(change_T[t]):.3g} when the later input {s} is replaced")
        if case.tokens > 1 and float(change_T[s:].max()) <= 1e-9:  # a token's mean over itself alone takes it away
            raise Failed(f"replacing input {s} changes no output at all")


@SUITE.check("no look-ahead, by gradient", "causal")
def no_look_ahead_gradient(case: AttentionCase) -> None:
    """The gradient of output t with respect to a later input is zero; with respect to some earlier one it isn't."""
    mask = Mask(causal=True)
    reach_BTS = influence(case, case.make(), case.input(), mask)
    _check_hidden(reach_BTS, mask, case)
    if not bool((reach_BTS[:, 1:].amax(-1) > SEEN).all()):
        raise Failed("an output has no gradient with respect to any input")


@SUITE.check("no look-ahead, however large the scores", "causal", schemes=False, tokens=(5,))
def no_look_ahead_far_out(case: AttentionCase) -> None:
    """With inputs thirty times as large: what hides the future mustn't be a number that visible scores fall below."""
    module, x_BTD = case.make(), 30 * case.input()
    base_BTD = case.run(module, x_BTD, Mask(causal=True))
    for s in range(1, case.tokens):
        moved_BTD = x_BTD.clone()
        moved_BTD[:, s] = 30 * case.input(salt=7)[:, s]
        got_BTD = case.run(module, moved_BTD, Mask(causal=True))
        agree(got_BTD[:, :s], base_BTD[:, :s], f"outputs before {s}, input {s} replaced, inputs of size 30")


@SUITE.check("moves information forwards", "causal", tokens=(8,))
def looks_back(case: AttentionCase) -> None:
    """In a causal mask some output depends on an earlier input."""
    _skip_unless_it_mixes(case)
    reach_BTS = influence(case, case.make(), case.input(), Mask(causal=True))
    if not bool((reach_BTS.tril(-1) > SEEN).any()):
        raise Failed("no output depends on any earlier input")


@SUITE.check("sees both ways", "bidirectional", tokens=(8,))
def both_ways(case: AttentionCase) -> None:
    """In an open mask outputs depend on earlier inputs and on later ones."""
    _skip_unless_it_mixes(case)
    reach_BTS = influence(case, case.make(), case.input(), Mask())
    for there, way in ((reach_BTS.triu(1), "later"), (reach_BTS.tril(-1), "earlier")):
        if not bool((there > SEEN).any()):
            raise Failed(f"in a bidirectional mask no output depends on any {way} input")


def _skip_unless_it_mixes(case: AttentionCase) -> None:
    if not case.mixes:
        raise Skipped("it says that it moves no information")


@SUITE.check("moves no information, as it says", tokens=(5,))
def mixes_nothing(case: AttentionCase) -> None:
    """A control with ``mixes = False``: each output depends on the input at its own place and on no other."""
    if case.mixes:
        raise Skipped("it says that it moves information")
    for mask in plain(case.offers):
        reach_BTS = influence(case, case.make(), case.input(), mask) > SEEN
        own_TS = torch.eye(case.tokens, dtype=torch.bool)
        if bool((reach_BTS & ~own_TS).any()):
            raise Failed(f"{describe(mask)}: says that it moves no information, and an output depends on another input")


def _check_hidden(reach_BTS: Tensor, mask: Mask, case: AttentionCase) -> None:
    allowed_BTS = may_attend(mask, reach_BTS.shape[0], case.tokens)
    leak_BTS = reach_BTS.masked_fill(allowed_BTS, 0.0)
    if bool((leak_BTS > SEEN).any()):
        row, t, s = (int(index) for index in torch.unravel_index(leak_BTS.argmax(), leak_BTS.shape))
        raise Failed(
            f"output {t} of row {row} depends on input {s}, which the mask hides: "
            f"a gradient of {float(leak_BTS[row, t, s]):.3g}"
        )


@SUITE.check("a row alone equals the row in its batch", tokens=(5,))
def rows_apart(case: AttentionCase) -> None:
    """No row of a batch knows of another."""
    module, x_BTD = case.make(), case.input(3)
    whole_BTD = case.run(module, x_BTD)
    for row in range(3):
        agree(case.run(module, x_BTD[row : row + 1])[0], whole_BTD[row], f"row {row} alone")
    x_BTD.requires_grad_()
    (gradient_BTD,) = torch.autograd.grad(case.run(module, x_BTD)[1].square().sum(), x_BTD, materialize_grads=True)
    if bool((gradient_BTD[[0, 2]] != 0).any()):
        raise Failed("row 1 has a gradient with respect to rows 0 and 2")


@SUITE.check("no order without positions", "bidirectional", schemes=False, tokens=(6,))
def equivariant(case: AttentionCase) -> None:
    """Without positions and with an open mask, permuted inputs give permuted outputs: Sa(XP) = Sa(X)P (section 3)."""
    if case.component.ordered:
        raise Skipped("it says that it knows the order by itself")
    module, x_BTD = case.make(), case.input()
    if not bool((influence(case, module, x_BTD, Mask()) > SEEN).all()):
        raise Skipped("not every output depends on every input, so that it knows the order by itself")
    for permutation in ([5, 4, 3, 2, 1, 0], [2, 0, 1, 5, 3, 4]):
        want = case.run(module, x_BTD, Mask())[:, permutation]
        told = f"outputs of inputs permuted by {permutation} (if it knows the order by itself, say ordered = True)"
        agree(case.run(module, x_BTD[:, permutation], Mask()), want, told)


@SUITE.check("rotation makes scores depend on distance", "rotate", tokens=(5,))
def rotation_is_relative(case: AttentionCase) -> None:
    """With rotated queries and keys a shift of all positions changes nothing, another distance does."""
    if case.scheme != "rotated":
        raise Skipped("the case has no rotation")
    _skip_unless_it_mixes(case)
    module, x_BTD = case.make(), case.input()
    at_BTA = torch.arange(case.tokens)[None, :, None]
    base = case.run(module, x_BTD, positions_BTA=at_BTA)
    agree(case.run(module, x_BTD, positions_BTA=at_BTA + 50), base, "all positions shifted by 50", tolerance=1e-8)
    differ(
        case.run(module, x_BTD, positions_BTA=at_BTA * 3), base, "positions don't matter, though rotation is offered"
    )


@SUITE.check("a bias on the scores matters", "bias", tokens=(5,))
def bias_matters(case: AttentionCase) -> None:
    """What a position scheme adds to the scores changes the output, and only through distances."""
    if case.scheme != "biased":
        raise Skipped("the case has no bias")
    _skip_unless_it_mixes(case)
    module, x_BTD = case.make(), case.input()
    at_BTA = torch.arange(case.tokens)[None, :, None]
    base = case.run(module, x_BTD, positions_BTA=at_BTA)
    agree(case.run(module, x_BTD, positions_BTA=at_BTA + 50), base, "all positions shifted by 50")
    differ(case.run(module, x_BTD, positions_BTA=at_BTA * 3), base, "the bias of the positions doesn't matter")


@SUITE.check("a bias is added after the scale", "bias", tokens=(5,))
def bias_after_scale(case: AttentionCase) -> None:
    """Queries a quarter as large under four times the scale are the same scores, with a bias as without."""
    if not issubclass(case.component, HeadedAttention) or case.scheme == "rotated":
        raise Skipped("its scale can't be told from its queries" if case.scheme != "rotated" else "no bias")
    module, x_BTD = case.make(), case.input()
    try:
        other = case.with_knobs(scale=4 * module.scale).make()
    except ValueError as error:
        raise Skipped(f"it refuses another scale: {error}") from None
    with torch.no_grad():
        for parameter in other.query.parameters():
            parameter.mul_(0.25)
    plain = dataclasses.replace(case, scheme=None)
    try:
        agree(plain.run(other, x_BTD), plain.run(module, x_BTD), "")
    except Failed:
        raise Skipped("its scores aren't scale times queries times keys") from None
    want = case.run(module, x_BTD)
    agree(case.run(other, x_BTD), want, "a quarter of the queries under four times the scale, with a bias")


@SUITE.check("attention weights can be looked at", "map", tokens=(5,))
def shows_maps(case: AttentionCase) -> None:
    """With ``Notes(maps=True)`` the weights (B, N, T, S) are kept, 0 where the mask hides; the output is the same."""
    if case.variant.knobs.get("kernel", "auto") not in ("auto", "eager"):
        raise Skipped("a fused kernel has no weights to show")
    module, x_BTD, notes = case.make(), case.input(), Notes(maps=True)
    out_BTD = case.run(module, x_BTD, notes=notes)
    try:
        weights_BNTS = notes.maps(module.layer)
    except KeyError:
        raise Failed("left no weights; take them by call.softmax, keep them in notes, or leave out 'map'") from None
    if weights_BNTS.ndim != 4 or weights_BNTS.shape[0] != 2 or weights_BNTS.shape[2:] != (case.tokens, case.tokens):
        raise Failed(f"weights have shape {tuple(weights_BNTS.shape)}, not (B, N, T, S)")
    hidden_BTS = ~may_attend(case.mask, 2, case.tokens)
    if bool((weights_BNTS * hidden_BTS[:, None] != 0).any()):
        raise Failed("weights aren't 0 where the mask hides")
    agree(out_BTD, case.run(module, x_BTD), "output while the weights are looked at")


@SUITE.check("dropout of weights acts in training", "bias", schemes=False, tokens=(5,))
def drops_in_training(case: AttentionCase) -> None:
    """With a dropout of 0.5 two training passes differ."""
    module, x_BTD = case.make(training=True, dropout=0.5), case.input()
    torch.manual_seed(case.seed)
    differ(case.run(module, x_BTD), case.run(module, x_BTD), "a dropout of 0.5 does nothing in training")


@SUITE.check("shared key/value heads equal repeated ones", schemes=False, tokens=(5,))
def grouped_heads(case: AttentionCase) -> None:
    """Head n of N reads key/value head n // (N / G): [k0, k0, k1, k1], not [k0, k1, k0, k1]."""
    groups, heads = case.variant.knobs.get("kv_heads"), case.parent["heads"]
    if groups is None or not issubclass(case.component, HeadedAttention):
        raise Skipped("takes no other number of key/value heads")
    shared = case.make()
    whole = dataclasses.replace(case, variant=type(case.variant)()).make()
    state = whole.state_dict()
    for name, tensor in shared.state_dict().items():
        if name not in state or tensor.ndim != state[name].ndim:
            raise Skipped(f"{name} has another form with fewer key/value heads")
        if tensor.shape != state[name].shape:
            count = groups * (shared.score_heads // heads if name.startswith("key") else 1)
            tensor = tensor.unflatten(0, (count, -1)).repeat_interleave(heads // groups, 0).flatten(0, 1)
        state[name] = tensor
    whole.load_state_dict(state)
    x_BTD = case.input()
    agree(case.run(shared, x_BTD), case.run(whole, x_BTD), f"{groups} key/value heads against their {heads} copies")


@SUITE.check("works as a layer above another", schemes=True, tokens=(5,))
def stacked(case: AttentionCase) -> None:
    """Two layers that share a forward pass's notes: what is kept for later layers leaks nothing either."""
    layers = [case.make(layer=layer) for layer in (0, 1)]

    def run(x_BTD: Tensor) -> Tensor:
        notes = Notes()
        for layer in layers:
            x_BTD = x_BTD + case.run(layer, x_BTD, notes=notes)
        return x_BTD

    x_BTD = case.input()
    base_BTD = run(x_BTD)
    finite(base_BTD, "output of two layers")
    for s in range(1, case.tokens) if case.mask.causal else ():
        moved_BTD = x_BTD.clone()
        moved_BTD[:, s] = case.input(salt=7)[:, s]
        agree(run(moved_BTD)[:, :s], base_BTD[:, :s], f"outputs of two layers before {s}, input {s} replaced")
