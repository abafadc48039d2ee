"""Where each fault of an attention shows: a situation, and how wrong the fault is in it at least.

A situation takes a component class and says how far it is from what its contract promises; 0 is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from faults_of_an_outsider import attention, good
from zoo.contracts.position import Position
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import Place
from zoo_builtin.attention.multi_head import MultiHead

Situation = Callable[[type[Any]], float]
DIM, HEADS = 8, 2


def made(cls: type[Any], *, heads: int = HEADS, dropout: float = 0.0, **knobs: Any) -> Any:
    """A layer in float64 whose parameters are the same for classes that have the same ones."""
    layer = cls(cls.Config(**knobs), dim=DIM, heads=heads, dropout=dropout).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return layer


def tokens(batch: int = 2, length: int = 6) -> Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def run(
    layer: Any,
    x_BTD: Tensor,
    mask: Mask = CAUSAL,
    *,
    cache: Cache | None = None,
    scheme: Position | None = None,
    **more: Any,
) -> Tensor:
    memory = Cache() if cache is None else cache
    sized, at, keys = memory.extend(mask, x_BTD)
    kept = None if cache is None else memory.layer((0, "self"))
    with torch.no_grad():
        place = Place(scheme, at, keys)
        return layer(place.embed(x_BTD), mask=sized, place=place, cache=kept, **more)


def in_chunks(layer: Any, x_BTD: Tensor, sizes: list[int], **more: Any) -> Tensor:
    cache = Cache()
    return torch.cat([run(layer, part, cache=cache, **more) for part in x_BTD.split(sizes, 1)], 1)


def apart(one: Tensor, other: Tensor) -> float:
    return (one - other).abs().max().item()


def differs(cls: type[Any], change: int, seen: slice, mask: Mask, *, times: float = 1.0) -> float:
    """How much outputs that mustn't see a token move with it; inputs are so many times as large."""
    layer, x = made(cls), tokens() * times
    other = x.clone()
    other[:, change] += 3
    return apart(run(layer, x, mask)[:, seen], run(layer, other, mask)[:, seen])


def the_future(cls: type[Any]) -> float:
    return differs(cls, -1, slice(0, -1), CAUSAL)


def the_future_of_loud_tokens(cls: type[Any]) -> float:
    return differs(cls, -1, slice(0, -1), CAUSAL, times=20)


def nan_of_loud_tokens(cls: type[Any]) -> float:
    return run(made(cls), tokens() * 100).isnan().sum().item()


def without_axis(cls: type[Any]) -> float:
    return sum(parameter.ndim == 0 for parameter in made(cls).parameters())


def padding_in_front(cls: type[Any]) -> float:
    layer, x = made(cls), tokens(1)
    valid = torch.tensor([[False] * 2 + [True] * 4])
    return apart(run(layer, x, Mask(causal=True, valid_BS=valid))[:, 2:], run(layer, x[:, 2:]))


def packed(cls: type[Any]) -> float:
    layer, x = made(cls), tokens(1)
    mask = Mask(causal=True, documents_BS=torch.tensor([[7, 7, 7, 7, 9, 9]]))
    return apart(run(layer, x, mask)[:, 4:], run(layer, x[:, 4:]))


def chunks(cls: type[Any], **knobs: Any) -> float:
    layer, x = made(cls, **knobs), tokens()
    return apart(in_chunks(layer, x, [3, 2, 1]), run(layer, x))


def single_steps(cls: type[Any], **knobs: Any) -> float:
    layer, x = made(cls, **knobs), tokens()
    return apart(in_chunks(layer, x, [1] * 6), run(layer, x))


def chunks_in_a_window(cls: type[Any]) -> float:
    return chunks(cls, window=3)


def fused_single_steps(cls: type[Any]) -> float:
    return single_steps(cls, kernel="sdpa")


def one_row_of_two(cls: type[Any]) -> float:
    layer, x = made(cls), tokens()
    return apart(run(layer, x)[:1], run(layer, x[:1]))


def one_row(cls: type[Any]) -> float:
    """An error counts as infinitely wrong."""
    layer, x = made(cls), tokens()
    try:
        return apart(run(layer, x[:1]), run(layer, x)[:1])
    except ValueError:
        return math.inf


def twice(cls: type[Any]) -> float:
    layer, x = made(cls, dropout=0.5), tokens()
    return apart(run(layer, x), run(layer, x))


def undropped(cls: type[Any], **knobs: Any) -> float:
    """1 where training with dropout drops nothing."""
    layer, x = made(cls, dropout=0.5, **knobs), tokens()
    right = run(layer, x)
    return float(torch.equal(run(layer.train(), x), right))


def undropped_fused(cls: type[Any]) -> float:
    return undropped(cls, kernel="sdpa")


def kernels(cls: type[Any]) -> float:
    x = tokens()
    return apart(*(run(made(cls, kernel=kernel), x) for kernel in ("eager", "sdpa")))


def nan_gradients(cls: type[Any]) -> float:
    """Parameters whose gradient is NaN when one row of the batch is padding alone."""
    layer, valid = made(cls), torch.tensor([[True] * 6, [False] * 6])
    layer(tokens(), mask=Mask(valid_BS=valid).sized(6, 6)).sum().backward()
    return sum(bool(parameter.grad.isnan().any()) for parameter in layer.parameters())


def without_gradient(cls: type[Any]) -> float:
    """Parameters without a gradient."""
    layer = made(cls)
    layer(tokens(), mask=CAUSAL.sized(6, 6)).square().sum().backward()
    return sum(parameter.grad is None for parameter in layer.parameters())


def a_bias(cls: type[Any]) -> float:
    scheme = good.Alibi(good.Alibi.Config(), dim=DIM, heads=HEADS, size=DIM // HEADS)
    return apart(*(run(made(each), tokens(), scheme=scheme) for each in (cls, MultiHead)))


def close_scores(cls: type[Any]) -> float:
    """Scores 256 and 257 in bfloat16, which holds no 257: the weight of the second is 1 / (1 + e^-1) all the same."""
    layer = cls(cls.Config(scale=1.0, bias=False, kernel="eager"), dim=2, heads=1).bfloat16().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.eye(2))
    out = run(layer, torch.tensor([[[16.0, 0.0], [16.0, 1.0]]], dtype=torch.bfloat16))
    return abs(out[0, 1, 1] - torch.tensor(1 / (1 + math.exp(-1)), dtype=torch.bfloat16)).item()


def loading_after_use(cls: type[Any]) -> float:
    """1 where the tensors of a used layer don't fit a new one."""
    used, new = made(cls), made(cls)
    run(used, tokens())
    try:
        new.load_state_dict(used.state_dict())
    except RuntimeError:
        return 1.0
    return 0.0


def narrow_or_made_on_meta(cls: type[Any]) -> float:
    """How many of a bfloat16 model and one that was made on the meta device don't work."""
    failures, x = 0, tokens()
    with torch.device("meta"):
        empty = cls(cls.Config(), dim=DIM, heads=HEADS)
    for layer, given in ((made(cls).bfloat16(), x.bfloat16()), (empty.to_empty(device="cpu"), x.float())):
        try:
            run(layer, given)
        except (RuntimeError, NotImplementedError):
            failures += 1
    return failures


def map_of_the_future(cls: type[Any]) -> float:
    notes = Notes(maps=True)
    run(made(cls), tokens(), notes=notes)
    return notes.maps(0).triu(1).sum().item()


def repeated_groups(cls: type[Any]) -> float:
    """Two key/value heads against four that hold each of them twice, neighbours alike."""
    grouped, whole = made(cls, heads=4, kv_heads=2), made(MultiHead, heads=4)
    for name in ("query", "output"):
        getattr(whole, name).load_state_dict(getattr(grouped, name).state_dict())
    with torch.no_grad():
        for name in ("key", "value"):
            for mine, theirs in zip(
                getattr(grouped, name).parameters(), getattr(whole, name).parameters(), strict=True
            ):
                theirs.copy_(mine.unflatten(0, (2, -1)).repeat_interleave(2, 0).flatten(0, 1))
    return apart(run(grouped, tokens()), run(whole, tokens()))


PROOFS: dict[type[Any], tuple[Situation, float]] = {
    attention.ForgottenMask: (the_future, 0.1),
    attention.SoftmaxOverQueries: (the_future, 0.1),
    attention.TriangleAtTopLeft: (chunks, 0.1),
    attention.EmptyRowsAreNaN: (nan_gradients, 1),
    attention.MaskTooShallow: (the_future_of_loud_tokens, 0.1),
    attention.SoftmaxOverflows: (nan_of_loud_tokens, 1),
    attention.ScalarParameter: (without_axis, 1),
    attention.NoiseInEvaluation: (twice, 0.01),
    attention.BiasBeforeScale: (a_bias, 0.001),
    attention.BiasForgotten: (a_bias, 0.001),
    attention.KeysNormalizedOverBatch: (one_row_of_two, 0.1),
    attention.KeysScaledByTheFuture: (the_future, 0.01),
    attention.HalfPrecisionSoftmax: (close_scores, 0.2),
    attention.WeightsDetached: (without_gradient, 4),
    attention.DropoutInEvaluation: (twice, 0.1),
    attention.DropoutForgotten: (undropped, 1),
    attention.PaddingZeroedNotHidden: (padding_in_front, 0.1),
    attention.SqueezedBatch: (one_row, math.inf),
    attention.GrowingTriangle: (loading_after_use, 1),
    attention.TensorAttribute: (narrow_or_made_on_meta, 2),
    attention.EagerScalesTwice: (kernels, 0.1),
    attention.FusedCausalFlag: (fused_single_steps, 0.1),
    attention.FusedWithoutDropout: (undropped_fused, 1),
    attention.MapOfEverything: (map_of_the_future, 1),
    attention.GroupedInTiles: (repeated_groups, 0.1),
    attention.KeepsOneTooFew: (chunks_in_a_window, 0.1),
    attention.WindowOnlyWithoutCache: (chunks_in_a_window, 0.1),
}
"""For each fault of an attention the situation in which it shows, and how wrong it is there at least."""
