"""Conformance of a position scheme, looked at through the kit's plain attention.

What every scheme owes: it acts by the positions that it is given, not by slots; it is as precise in a bfloat16
model as in any other; it keeps nothing of one forward pass for the next.

Dimension legend: B batch, T tokens, D width, N heads, H head size, A axes of a position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.config import Part
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.testing.masks import describe, padding
from zoo.testing.module_case import DIM, ModuleCase, ModuleSubject, scatter
from zoo.testing.modules import MODULE_CHECKS
from zoo.testing.numbers import agree, differ, finite, noise
from zoo.testing.schemes import SCHEMES
from zoo.testing.suite import Failed, Skipped, Suite
from zoo.testing.templates.attention import Mine as PlainAttention

_HEADS, _SIZE = 4, 4
_FAR = (0, 1, 255, 256, 257, 511, 1000, 2047, 4094, 4095)
_FAR_ON_GRID = (0, 1, 2, 63, 64, 128, 255, 256, 257, 258)
_GRID = (64, 64)
_MASKS = (Mask(causal=True), Mask())
_MIXES = "it mixes tokens, so it needs all of them at once"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PositionCase(ModuleCase):
    """One scheme with certain knobs at a certain length, in front of and inside one plain attention."""

    _attentions: dict[Any, PlainAttention] = dataclasses.field(default_factory=dict)

    def run(
        self,
        module: Any,
        x_BTD: Tensor,
        mask: Mask | None = None,
        *,
        at_BTA: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(B, T, D) of an attention over embeddings, both under the scheme."""
        history = Cache() if cache is None else cache
        if at_BTA is None and self.component.axes > 1:
            at_BTA = self.at(history.length, history.length + x_BTD.shape[1]).to(x_BTD.device)
        mask, at_BTA, keys_BSA = history.extend(mask or _MASKS[0], x_BTD[..., 0], at_BTA)
        place = Place(module, at_BTA, keys_BSA)
        layer_cache = None if cache is None else cache.layer((0, "self"))
        return self.surround(x_BTD)(place.embed(x_BTD), mask=mask, place=place, cache=layer_cache)

    def at(self, start: int, stop: int) -> Tensor:
        """(1, T, A) positions: 0, 1, 2, ... in a text, row by row in a grid three wide."""
        slots = torch.arange(start, stop)
        axes = (
            [slots] if self.component.axes == 1 else [slots // 3, slots % 3, *[slots // 9] * (self.component.axes - 2)]
        )
        return torch.stack(axes, -1)[None]

    def bounded(self, bound: int) -> Any:
        """The scheme for positions below a bound, on each axis."""
        return self.make(length=bound) if self.component.axes == 1 else self.make(grid=(bound, bound))

    def surround(self, x_BTD: Tensor) -> PlainAttention:
        """The plain attention that the scheme is looked at through, in the input's dtype and on its device."""
        key = (x_BTD.dtype, x_BTD.device)
        if key not in self._attentions:
            made = PlainAttention(PlainAttention.Config(), dim=self.width, heads=_HEADS)
            scatter(made, self.seed + 1)
            self._attentions[key] = made.to(x_BTD.dtype).to(x_BTD.device).requires_grad_(False)
        return self._attentions[key]

    def chunks(
        self, module: Any, x_BTD: Tensor, sizes: Sequence[int], cache: Cache, first: Mask | None = None
    ) -> Tensor:
        """(B, T, D) piece by piece through a cache; the first piece may have a mask of its own."""
        masks = [first] + [None] * len(sizes)
        with torch.no_grad():
            pieces = zip(x_BTD.split(list(sizes), 1), masks, strict=False)
            return torch.cat([self.run(module, piece, mask, cache=cache) for piece, mask in pieces], 1)


class PositionSubject(ModuleSubject):
    """A position scheme, for 4 heads of size 4 and at most 192 positions, or a grid of 64 x 64."""

    case = PositionCase

    @property
    def offers(self) -> frozenset[str]:
        """The methods that it overrides, and whether its positions count tokens or stand on a grid."""
        words = {word for word in ("embed", "rotate", "bias") if self.component.overrides(word)}
        return frozenset(words | ({"acts"} if words else set()) | {"text" if self.component.axes == 1 else "grid"})

    @property
    def surroundings(self) -> Mapping[str, Any]:
        """Sizes of heads, the bounds, and that queries see both sides."""
        grid = _GRID if self.component.axes == 2 else None
        return {"dim": DIM, "heads": _HEADS, "size": _SIZE, "length": 192, "causal": False, "grid": grid}

    @property
    def fitting(self) -> Mapping[str, Sequence[type[Part]]]:
        """Schemes that rotate, bias, and bias by content, for one that wraps others."""
        return {"position": [scheme for _, scheme in SCHEMES.values()]}


SUITE = Suite("position", PositionSubject)


@SUITE.check("works in front of and inside an attention")
def runs(case: PositionCase) -> str:
    """One forward pass, at length 1 and at odd lengths."""
    scheme = case.make()
    finite(case.run(scheme, case.input()), "output")
    acts = [method for method in ("embed", "rotate", "bias") if scheme.acts(method)]
    return f"acts by {' and '.join(acts)}" if acts else "acts nowhere"


@SUITE.check("shapes and dtypes are kept", tokens=(1, 5))
def keeps_shapes(case: PositionCase) -> None:
    """embed and rotate give what they get; a bias broadcasts to (B, N, T, S)."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        module, x_BTD = case.make(dtype=dtype), case.input(dtype=dtype)
        place = Place(module, case.at(0, case.tokens), case.at(0, case.tokens))
        x_BNTH = x_BTD.unflatten(-1, (_HEADS, _SIZE)).transpose(1, 2)
        for name, given, got in (("embed", x_BTD, place.embed(x_BTD)), ("rotate", x_BNTH, place.rotate(x_BNTH))):
            if got.shape != given.shape or got.dtype != given.dtype:
                raise Failed(f"{name} makes {tuple(got.shape)} {got.dtype} of {tuple(given.shape)} {given.dtype}")


@SUITE.check("order matters", "acts", tokens=(5,))
def order_matters(case: PositionCase) -> str:
    """Tokens at other positions give another output; whether distances alone decide is reported."""
    module, x_BTD, at_BTA = case.make(), case.input(), case.at(0, case.tokens)
    base = case.run(module, x_BTD, _MASKS[1], at_BTA=at_BTA)
    reordered = case.run(module, x_BTD, _MASKS[1], at_BTA=at_BTA[:, [0, 3, 2, 1, 4]])
    differ(reordered, base, "two tokens that exchange their positions change nothing")
    shifted = case.run(module, x_BTD, _MASKS[1], at_BTA=at_BTA + 7)
    relative = float((shifted - base).detach().abs().max()) < 1e-9
    return "depends on distances only" if relative else "depends on where a token stands"


@SUITE.check("only distances matter, where it says so", "acts", tokens=(5,))
def distances_only(case: PositionCase) -> None:
    """A class that says ``relative = True``: a shift of all positions, queries' and keys' alike, changes nothing."""
    if not case.component.relative:
        raise Skipped("it doesn't say relative = True")
    module, x_BTD, at_BTA = case.make(), case.input(), case.at(0, case.tokens)
    for mask in _MASKS:
        base = case.run(module, x_BTD, mask, at_BTA=at_BTA)
        for shift in (1, 10):
            got = case.run(module, x_BTD, mask, at_BTA=at_BTA + shift)
            agree(got, base, f"{describe(mask)}, all positions shifted by {shift}", tolerance=1e-8)


@SUITE.check("rows are told from columns", "grid", "acts", tokens=(5,))
def rows_and_columns(case: PositionCase) -> None:
    """One token's row and column exchanged give another output, all tokens' may not; so do other rows, and columns."""
    module, x_BTD, at_BTA = case.make(), case.input(), case.at(0, case.tokens)
    base = case.run(module, x_BTD, _MASKS[1], at_BTA=at_BTA)
    exchanged_BTA = at_BTA.clone()
    exchanged_BTA[:, 2] = at_BTA[:, 2].flip(-1)
    differ(case.run(module, x_BTD, _MASKS[1], at_BTA=exchanged_BTA), base, "row and column exchanged change nothing")
    for axis in range(case.component.axes):
        moved_BTA = at_BTA.clone()
        moved_BTA[..., axis] *= 2
        differ(case.run(module, x_BTD, _MASKS[1], at_BTA=moved_BTA), base, f"axis {axis} of positions doesn't matter")


@SUITE.check("acts by positions, not by slots", tokens=(5,))
def positions_not_slots(case: PositionCase) -> None:
    """In an open mask, tokens that are reordered together with their positions give outputs in the new order."""
    module, x_BTD, at_BTA = case.make(), case.input(), case.at(2, 2 + case.tokens)
    if module.content:
        raise Skipped("it reads queries and keys, whose order may matter to it")
    order = [3, 0, 4, 2, 1]
    want = case.run(module, x_BTD, _MASKS[1], at_BTA=at_BTA)[:, order]
    got = case.run(module, x_BTD[:, order], _MASKS[1], at_BTA=at_BTA[:, order])
    agree(got, want, f"tokens and positions reordered by {order}")


@SUITE.check("positions of a batch equal positions of each row", tokens=(5,))
def rows_of_positions(case: PositionCase) -> None:
    """Positions (1, T, A) and (B, T, A) of equal rows are the same; rows at different positions don't mix."""
    module, x_BTD, at_BTA = case.make(), case.input(), case.at(0, case.tokens)
    agree(
        case.run(module, x_BTD, at_BTA=at_BTA.expand(2, -1, -1)),
        case.run(module, x_BTD, at_BTA=at_BTA),
        "positions given for each row against positions given once",
    )
    both_BTA = torch.cat([at_BTA, 2 * at_BTA + 3])
    whole = case.run(module, x_BTD, at_BTA=both_BTA)
    for row in range(2):
        alone = case.run(module, x_BTD[row : row + 1], at_BTA=both_BTA[row : row + 1])
        agree(whole[row], alone[0], f"row {row} at its own positions")


@SUITE.check("no look-ahead through positions", tokens=(5,))
def no_look_ahead(case: PositionCase) -> None:
    """A causal attention stays causal: no output changes when a later token does."""
    if case.component.mixes:
        raise Skipped(_MIXES)
    module, x_BTD = case.make(), case.input()
    base = case.run(module, x_BTD)
    for s in range(1, case.tokens):
        moved_BTD = torch.cat([x_BTD[:, :s], case.input(salt=7)[:, s : s + 1], x_BTD[:, s + 1 :]], 1)
        agree(case.run(module, moved_BTD)[:, :s], base[:, :s], f"outputs before {s}, input {s} replaced")


@SUITE.check("left padding changes nothing", "text", tokens=(5,))
def left_padding(case: PositionCase) -> None:
    """A row that begins later in its batch stands at the same positions."""
    module, x_BTD = case.make(), case.input()
    for plain_mask in _MASKS:
        mask = Mask(causal=plain_mask.causal, valid_BS=padding([5, 2], 5, left=True))
        got = case.run(module, x_BTD, mask)
        agree(
            got[1, 3:],
            case.run(module, x_BTD[1:, 3:], plain_mask)[0],
            f"{describe(mask)}: row 1 against its tokens alone",
        )


@SUITE.check("packed documents equal each alone", "text", tokens=(5,))
def documents(case: PositionCase) -> None:
    """Positions begin again in each document."""
    module, x_BTD = case.make(), case.input()
    for plain_mask in _MASKS:
        mask = Mask(causal=plain_mask.causal, documents_BS=torch.tensor([[1, 1, 2, 2, 2]] * 2))
        alone = [case.run(module, piece, plain_mask) for piece in x_BTD.split([2, 3], 1)]
        agree(case.run(module, x_BTD, mask), torch.cat(alone, 1), f"{describe(mask)}: against each document alone")


@SUITE.check("cache = full pass", tokens=(6,))
def cached(case: PositionCase) -> None:
    """Token by token and in chunks, made for a causal model and not; rotated keys are cached at their own positions."""
    if case.component.mixes:
        raise Skipped(_MIXES)
    for causal in (True, False):
        module, x_BTD = case.make(causal=causal), case.input()
        want = case.run(module, x_BTD)
        for sizes in ([1] * 6, [2, 3, 1]):
            agree(case.chunks(module, x_BTD, sizes, Cache()), want, f"chunks of {sizes} against the full pass")


@SUITE.check("cache of a left-padded batch", "text", tokens=(6,))
def cached_prompts(case: PositionCase) -> None:
    """Prompts of 4 and 1 tokens in one batch go on at positions 4 and 1; beams take their positions along."""
    module, x_BTD, cache = case.make(), case.input(), Cache()
    prompt = Mask(causal=True, valid_BS=padding([4, 1], 4, left=True))
    case.chunks(module, x_BTD[:, :4], [4], cache, prompt)
    order = [1, 0, 1]
    cache.reorder(torch.tensor(order))
    got = case.chunks(module, x_BTD[order, 4:], [1, 1], cache)
    for row, length in enumerate((1, 4, 1)):
        want = case.run(module, x_BTD[order[row] : order[row] + 1, 4 - length :])
        agree(got[row], want[0, -2:], f"2 tokens after a prompt of {length}, rows taken in the order {order}")


@SUITE.check("precise far out in a bfloat16 model", "acts", tokens=(10,))
def precise(case: PositionCase) -> None:
    """Up to position 4,095 (or 258 on a grid), tables of a bfloat16 model and under autocast are within 0.001."""
    far = _FAR if case.component.axes == 1 else _FAR_ON_GRID
    at_BTA = torch.tensor(far)[None, :, None].expand(-1, -1, case.component.axes)
    low, exact = case.bounded(far[-1] + 1).bfloat16(), case.bounded(far[-1] + 1)
    with torch.no_grad():
        for parameter, rounded in zip(exact.parameters(), low.parameters(), strict=True):
            parameter.copy_(rounded)
    x_BTD = noise(1, len(far), case.width, seed=case.seed, dtype=torch.float32)
    want = _effects(exact, x_BTD.double(), at_BTA)
    _check_told_apart(exact, at_BTA, far)
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = _effects(exact.float(), x_BTD, at_BTA)
    for what, got in (("a bfloat16 model", _effects(low, x_BTD, at_BTA)), ("autocast", under_autocast)):
        for name, value in got.items():
            error = ((value.double() - want[name]).abs() / want[name].abs().clamp(min=1)).detach().amax()
            if not float(error) <= 1e-3:
                raise Failed(f"{name} under {what} is off by {float(error):.3g} within positions {far}")


def _check_told_apart(scheme: Any, at_BTA: Tensor, far: Sequence[int]) -> None:
    """Neighbours far out have effects of their own: phases in half precision give 256 and 257 the same."""
    if scheme.mixes:  # what it adds depends on the tokens around, not on where they are
        return
    same_BTD = noise(1, 1, 16, seed=0).expand(1, len(far), 16)
    for name, value in _effects(scheme, same_BTD, at_BTA).items():
        by_token = value.transpose(-2, -3).flatten(-2) if name != "embed" else value
        for first in (far.index(256), len(far) - 2):
            one, other = (by_token.expand(1, len(far), -1)[:, index] for index in (first, first + 1))
            differ(one, other, f"{name} can't tell position {far[first]} from {far[first + 1]}")


def _effects(scheme: Any, x_BTD: Tensor, at_BTA: Tensor) -> dict[str, Tensor]:
    """What a scheme without content does to embeddings, to queries and to scores."""
    place = Place(scheme, at_BTA, at_BTA)
    effects = {"embed": place.embed(x_BTD) - x_BTD} if scheme.acts("embed") else {}
    x_BNTH = x_BTD.unflatten(-1, (_HEADS, _SIZE)).transpose(1, 2)
    if scheme.acts("rotate"):
        effects["rotate"] = place.rotate(x_BNTH)
    if scheme.acts("bias") and not scheme.content:
        bias = place.bias(x_BNTH, x_BNTH, _any_call(at_BTA.shape[1]))
        effects["bias"] = torch.zeros(()) if bias is None else bias
    return effects


def _any_call(tokens: int) -> Call:
    """A causal call, for a scheme that reads the mask at most."""
    empty_BTD = torch.empty(1, tokens, DIM)
    return Call(
        mask=Mask(causal=True).sized(tokens, tokens),
        place=NOWHERE,
        scale=0.5,
        x_BTD=empty_BTD,
        cache=None,
        notes=Notes(),
        layer=0,
        kind="self",
        kernel="eager",
        dropout=0.0,
        dtype=empty_BTD.dtype,
    )


@SUITE.check("position 0 and a first step are harmless", tokens=(1, 3))
def at_zero(case: PositionCase) -> None:
    """All tokens at position 0: finite, and so are the gradients."""
    module, x_BTD = case.make(training=True), case.input().requires_grad_()
    at_BTA = torch.zeros(1, case.tokens, case.component.axes, dtype=torch.int64)
    out_BTD = case.run(module, x_BTD, at_BTA=at_BTA)
    finite(out_BTD, "output with all tokens at position 0")
    tensors = [x_BTD, *(parameter for parameter in module.parameters() if parameter.requires_grad)]
    for gradient in torch.autograd.grad(out_BTD.sum(), tensors, materialize_grads=True):
        finite(gradient, "a gradient with all tokens at position 0")


@SUITE.check("its bound is kept, or it has none", tokens=(3,))
def bound(case: PositionCase) -> str:
    """A bounded scheme refuses a position past its length or grid with ValueError; any other goes on past it."""
    module = case.bounded(8)
    for last in (7, 8, 80):
        at_BTA = case.at(0, 3) * 0 + torch.tensor([0, 1, last])[None, :, None]
        if module.bounded and last >= 8:
            _check_refused(case, module, at_BTA, last)
        else:
            finite(case.run(module, case.input(), at_BTA=at_BTA), f"output with a token at position {last} of 8")
    return "bounded" if module.bounded else "no bound"


def _check_refused(case: PositionCase, module: Any, at_BTA: Tensor, last: int) -> None:
    try:
        case.run(module, case.input(), at_BTA=at_BTA)
    except ValueError:
        return
    raise Failed(f"is bounded, and took position {last} with a bound of 8; raise ValueError")


@SUITE.check("odd sizes work or are refused", tokens=(3,))
def odd_sizes(case: PositionCase) -> None:
    """A width or head size that the scheme can't cut in pairs is a ValueError of the constructor."""
    try:
        module = case.make(dim=15, heads=3, size=5)
    except ValueError:
        return
    place, x_BTD = Place(module, case.at(0, 3), case.at(0, 3)), case.input()[..., :15]
    x_BNTH = x_BTD.unflatten(-1, (3, 5)).transpose(1, 2)
    finite(place.embed(x_BTD), "embeddings of width 15")
    finite(place.rotate(x_BNTH), "heads of size 5")
    if (bias := place.bias(x_BNTH, x_BNTH, _any_call(3))) is not None:
        finite(bias.expand(2, 3, 3, 3), "a bias for 3 heads")


@SUITE.check("content is declared", "bias", tokens=(5,))
def content_is_declared(case: PositionCase) -> None:
    """A bias is the same in every layer and, of a class without ``content``, for other queries and keys."""
    module, at_BTA = case.make(), case.at(0, 5)
    place = Place(module, at_BTA, at_BTA)
    q_BNTH, other_BNTH = (noise(2, _HEADS, 5, _SIZE, seed=seed) for seed in (1, 2))
    one, again = ((b if b is None else b.clone()) for b in (place.bias(q_BNTH, q_BNTH, _any_call(5)) for _ in "12"))
    if one is None or again is None:
        raise Skipped("it adds nothing")
    agree(again, one, "the bias of a second layer", tolerance=0.0)
    if module.content:
        raise Skipped("it declares that it reads queries and keys")
    if (other := place.bias(other_BNTH, other_BNTH, _any_call(5))) is not None:
        agree(one, other, "bias of other queries and keys; set content = True", tolerance=0.0)
        one.expand(2, _HEADS, 5, 5)


SUITE.include(MODULE_CHECKS)
