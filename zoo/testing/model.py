"""Conformance of a whole model, an architecture's or a recipe's: what its parts promise holds through all layers.

Dimension legend: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.contracts.architecture import Architecture
from zoo.contracts.attention import Attention
from zoo.contracts.head import TokenHead
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.nn.patches import to_images, to_patches
from zoo.testing.masks import describe, padding, plain
from zoo.testing.model_case import ModelCase
from zoo.testing.module_graphs import compiles, compiles_to_kernels, exports
from zoo.testing.module_processes import pickles, two_processes
from zoo.testing.modules import trainable
from zoo.testing.numbers import agree, differ, finite, within_rounding
from zoo.testing.suite import Check, Failed, Skipped, Subject, Suite


def _runs(case: ModelCase) -> str:
    """Hidden states (B, T, D), and finite scores; those of tokens (B, T, V) by the head's weight."""
    model = case.make()
    inputs = case.inputs(model)
    hidden_BTD = case.hidden(model, inputs).hidden
    scores = model.head(hidden_BTD)
    finite(scores, "scores")
    if isinstance(model.head, TokenHead):
        if hidden_BTD.shape != (2, case.tokens, model.head.weight.shape[1]):
            raise Failed(
                f"hidden states are {tuple(hidden_BTD.shape)}, the head's weight {tuple(model.head.weight.shape)}"
            )
        by_weight_BTV = nn.functional.linear(model.head.states(hidden_BTD), model.head.weight, model.head.bias)
        agree(scores, by_weight_BTV, "head(hidden) against its states, weight and bias")
    return f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters"


def _replaced(model: Architecture, inputs: Tensor, s: int) -> Tensor:
    """The inputs with another token, or other pixels, at place s of those that stand for an input."""
    moved = inputs.clone()
    if model.embedding.patch_size is None:
        assert model.embedding.table is not None
        moved[:, s] = (inputs[:, s] + 1) % model.embedding.table.shape[0]
        return moved
    assert model.embedding.grid is not None
    patches_BTP = to_patches(moved, model.embedding.patch_size)
    patches_BTP[:, s] += torch.linspace(1, 2, patches_BTP.shape[-1], dtype=moved.dtype)
    return to_images(patches_BTP, model.embedding.grid, model.embedding.patch_size)


def _no_look_ahead(case: ModelCase) -> None:
    """Another token at s changes no score before s and one at s or after; the last score depends on an earlier one."""
    model = case.make()
    inputs = case.inputs(model)
    base_BTV = case.run(model, inputs, Mask(causal=True))
    tokens, front = base_BTV.shape[1], model.embedding.extra
    last_BTV = []
    for s in range(front, tokens):
        moved = _replaced(model, inputs, s - front)
        moved_BTV = case.run(model, moved, Mask(causal=True))
        agree(moved_BTV[:, :s], base_BTV[:, :s], f"scores before {s}, token {s} replaced")
        differ(moved_BTV[:, s:], base_BTV[:, s:], f"replacing token {s} changes no score at all")
        last_BTV += [moved_BTV[:, -1:]] if s < tokens - 1 else []
    if last_BTV and all(part.mixes for part in model.modules() if isinstance(part, Attention)):
        differ(torch.cat(last_BTV, 1), base_BTV[:, -1:], "the last score depends on no token before it")


def _both_ways(case: ModelCase) -> None:
    """Without a mask the first score depends on the second token, and the last one on the token before it."""
    model = case.make()
    inputs = case.inputs(model)
    base_BTV = case.run(model, inputs, Mask())
    for s, t in ((1, model.embedding.extra), (-2, -1)):  # neighbours, which a window of two keys lets see each other
        moved = _replaced(model, inputs, s)
        differ(case.run(model, moved, Mask())[:, t], base_BTV[:, t], f"score {t} doesn't depend on token {s}")


def _padded(case: ModelCase, left: bool) -> None:
    model = case.make()
    inputs, lengths = case.inputs(model, 3), [5, 2, 0]
    valid_BS = padding(lengths, 5, left=left)
    for plain_mask in _own_masks(model):
        mask = Mask(causal=plain_mask.causal, valid_BS=valid_BS)
        scores_BTV = case.run(model, inputs, mask)
        finite(scores_BTV, f"{describe(mask)}: scores, an empty row among them")
        for row in (0, 1):
            alone = case.run(model, inputs[row : row + 1, valid_BS[row]], plain_mask)
            agree(scores_BTV[row, valid_BS[row]], alone[0], f"{describe(mask)}: row {row} against its tokens alone")


def _own_masks(model: Architecture) -> list[Mask]:
    return plain(model.offers) or [Mask()]


def _right_padding(case: ModelCase) -> None:
    """Rows of 5, 2 and 0 tokens, padded behind."""
    _padded(case, left=False)


def _left_padding(case: ModelCase) -> None:
    """Rows of 5, 2 and 0 tokens, padded before: positions count tokens."""
    _padded(case, left=True)


def _documents(case: ModelCase) -> None:
    """Two documents in a row equal each by itself, to rounding."""
    model = case.make()
    inputs = case.inputs(model)
    for plain_mask in _own_masks(model):
        mask = Mask(causal=plain_mask.causal, documents_BS=torch.tensor([[1, 1, 2, 2, 2]] * 2))
        alone = torch.cat([case.run(model, piece, plain_mask) for piece in inputs.split([2, 3], 1)], 1)
        agree(case.run(model, inputs, mask), alone, f"{describe(mask)}: against each document alone")


def _rows_apart(case: ModelCase) -> None:
    """No row of a batch knows of another."""
    model = case.make()
    inputs = case.inputs(model, 3)
    whole = case.run(model, inputs)
    for row in range(3):
        agree(case.run(model, inputs[row : row + 1])[0], whole[row], f"row {row} alone")


def _cached(case: ModelCase) -> None:
    """Token by token and in chunks, with NaN in the unused room of every buffer."""
    model = case.make()
    inputs = case.inputs(model)
    want = case.run(model, inputs)
    for sizes in ([1] * 6, [2, 3, 1]):
        cache, scores = Cache(), []
        for piece_BT in inputs.split(sizes, 1):
            scores.append(case.chunks(model, piece_BT, [piece_BT.shape[1]], cache))
            for spare in (spare for layer in cache.layers().values() for spare in layer.spare()):
                spare.fill_(torch.nan)
        agree(torch.cat(scores, 1), want, f"chunks of {sizes} against the full pass")


def _cached_prompts(case: ModelCase) -> None:
    """Left-padded prompts of 4 and 1 tokens go on, as beams in another order, as each does alone."""
    model, cache = case.make(), Cache()
    inputs, order = case.inputs(model), [1, 0, 1]
    case.chunks(model, inputs[:, :4], [4], cache, Mask(causal=True, valid_BS=padding([4, 1], 4, left=True)))
    cache.reorder(torch.tensor(order))
    got = case.chunks(model, inputs[order, 4:], [1, 1], cache)
    for row, length in enumerate((1, 4, 1)):
        want = case.run(model, inputs[order[row] : order[row] + 1, 4 - length :])
        agree(got[row], want[0, -2:], f"2 tokens after a prompt of {length}, rows taken in the order {order}")


def _bounded(case: ModelCase) -> str:
    """One token more than ``max_length`` is a ValueError; without a bound any length works."""
    model = case.make()
    bound = model.max_length
    if bound is None:
        return "no bound"
    if model.embedding.length is not None:
        return f"{bound} tokens, as the embedding makes them"
    if bound > 4096:
        raise Skipped(f"{bound} tokens are too many for a quick check")
    inputs = torch.zeros(1, bound + 1, dtype=torch.int64)
    with torch.no_grad():
        case.hidden(model, inputs[:, :bound])
        try:
            case.hidden(model, inputs)
        except ValueError:
            return f"at most {bound} tokens"
    raise Failed(f"took {bound + 1} tokens with a max_length of {bound}; raise ValueError")


def _gradients(case: ModelCase) -> None:
    """After one backward pass every trainable parameter has a finite gradient, an empty row in the batch or not."""
    model = case.make(training=True)
    inputs = case.inputs(model)
    output = case.hidden(model, inputs)
    loss = model.head(output.hidden).square().sum()
    (loss if output.auxiliary is None else loss + output.auxiliary).backward()
    for name, parameter in trainable(model):
        if parameter.grad is None:
            raise Failed(f"{name} has no gradient; a parameter that nothing uses stops data-parallel training")
        finite(parameter.grad, f"gradient of {name}")
    if "padding" in model.offers and model.embedding.patch_size is None:
        model.zero_grad()
        mask = Mask(causal="causal" in model.offers, valid_BS=padding([case.tokens, 0], case.tokens, left=True))
        case.run(model, inputs, mask).square().sum().backward()
        for name, parameter in trainable(model):
            if parameter.grad is not None:
                finite(parameter.grad, f"gradient of {name} beside an empty row")


def _recomputes(case: ModelCase) -> None:
    """Blocks recomputed in the backward pass (activation checkpointing) give the same gradients."""
    gradients = []
    for recomputed in (False, True):
        model = case.make()
        for block in model.block_modules() if recomputed else ():
            _recompute(block)
        case.run(model, case.inputs(model)).square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in trainable(model)})
    if not gradients[0]:
        raise Failed("block_modules yields nothing")
    for name, want in gradients[0].items():
        got = gradients[1][name]
        if got is not None and want is not None:
            agree(got, want, f"gradient of {name} with recomputed blocks")


def _recompute(block: nn.Module) -> None:
    forward = block.forward
    block.forward = lambda *args, **keywords: checkpoint(forward, *args, use_reentrant=False, **keywords)


def _saves(case: ModelCase) -> None:
    """Through a safetensors file into another model: the same scores, each tensor once, a tied head still tied."""
    model, other = case.make(), case.build("cpu").double().eval()
    inputs = case.inputs(model)
    try:
        data = safetensors.torch.save(model.state_dict())
    except RuntimeError as error:
        raise Failed(f"safetensors refuses the state dict: {' '.join(str(error).split())[:200]}") from error
    missing = {name for name, _ in model.named_parameters()} - model.state_dict().keys()
    if missing:
        raise Failed(f"the state dict lacks {sorted(missing)}")
    other.load_state_dict(safetensors.torch.load(data))
    agree(case.run(other, inputs), case.run(model, inputs), "a model with the file loaded", tolerance=0.0)
    twin = copy.deepcopy(model)
    agree(case.run(twin, inputs), case.run(model, inputs), "a copy", tolerance=0.0)
    for what, made in (("after loading", other), ("after copying", twin)):
        if _is_tied(made) != _is_tied(model):
            raise Failed(f"{what} the head is no longer tied to the table that it shares")


def _is_tied(model: Architecture) -> bool:
    embeddings = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    return isinstance(model.head, TokenHead) and any(model.head.weight is weight for weight in embeddings)


def _initialized(case: ModelCase) -> None:
    """The same seed twice gives the same values; another seed others; a model made on meta is filled alike."""
    model, again, other = (case.build("cpu") for _ in range(3))
    for made, seed in ((model, 5), (again, 5), (other, 6)):
        made.initialize(seed)
    values, repeated, others = (dict(made.named_parameters()) for made in (model, again, other))
    for name, value in values.items():
        finite(value.detach(), f"initial {name}")
        agree(repeated[name], value, f"{name} initialized twice with one seed", tolerance=0.0)
    if all(torch.equal(values[name], others[name]) for name in values):
        raise Failed("initial values don't depend on the seed")


def _meta(case: ModelCase) -> None:
    """Made on the meta device it has the same parameters, shapes only, and runs; filled there, the same values."""
    model, empty = case.build("cpu"), case.build("meta")
    shapes = [{name: tuple(p.shape) for name, p in made.named_parameters()} for made in (model, empty)]
    if shapes[0] != shapes[1]:
        raise Failed("on the meta device it has other parameters")
    if any(parameter.device.type != "meta" for parameter in empty.parameters()):
        raise Failed("a parameter is made on a device of its own choice")
    inputs = case.inputs(model)
    hidden = case.hidden(empty.eval(), inputs.to("meta")).hidden
    if hidden.shape != case.hidden(model, inputs).hidden.shape:
        raise Failed(f"hidden states have shape {tuple(hidden.shape)} on the meta device")


def _repeatable(case: ModelCase) -> None:
    """Two passes in evaluation are bit-equal."""
    model = case.make()
    inputs = case.inputs(model)
    first = case.run(model, inputs)
    case.run(model, case.inputs(model, salt=1))
    agree(case.run(model, inputs), first, "a second pass over the same tokens", tolerance=0.0)


def _half(case: ModelCase) -> None:
    """In bfloat16 and under autocast the hidden states stay within some roundings of float64 with the same weights."""
    low = case.make().bfloat16()
    exact = case.make()
    with torch.no_grad():
        for parameter, rounded in zip(exact.parameters(), low.parameters(), strict=True):
            parameter.copy_(rounded)
    inputs = case.inputs(exact)
    want = case.run(exact, inputs)
    within_rounding(case.run(low, inputs), want, torch.bfloat16, "bfloat16 against float64", roundings=16)
    with torch.autocast("cpu", torch.bfloat16):
        got = case.run(exact.float(), inputs)
    within_rounding(got, want, torch.bfloat16, "bfloat16 autocast against float64", roundings=16)


MODEL_CHECKS = [
    Check("gives hidden states, and scores by its head", _runs),
    Check("no look-ahead through all layers", _no_look_ahead, frozenset({"causal"})),
    Check("sees both ways", _both_ways, frozenset({"bidirectional"}), tokens=(5,)),
    Check("right padding changes nothing", _right_padding, frozenset({"padding"}), tokens=(5,)),
    Check("left padding changes nothing", _left_padding, frozenset({"padding"}), tokens=(5,)),
    Check("packed documents equal each alone", _documents, frozenset({"documents"}), tokens=(5,)),
    Check("a row alone equals the row in its batch", _rows_apart, tokens=(5,)),
    Check("cache = full pass", _cached, frozenset({"cache"}), tokens=(6,)),
    Check(
        "cache of a left-padded batch, beams reordered", _cached_prompts, frozenset({"cache", "padding"}), tokens=(6,)
    ),
    Check("its bound is kept, or it has none", _bounded, tokens=(5,)),
    Check("every parameter gets a finite gradient", _gradients, tokens=(5,)),
    Check("blocks can be recomputed", _recomputes, tokens=(5,)),
    Check("safetensors round trip, ties kept", _saves, tokens=(5,)),
    Check("initial values follow from the seed", _initialized, tokens=(1,)),
    Check("runs on the meta device", _meta, tokens=(5,)),
    Check("evaluation is deterministic", _repeatable, tokens=(5,)),
    Check("half precision within its rounding", _half, tokens=(5,)),
    Check("compiles (aot_eager) to the same function", compiles, tokens=(5,), full=True),
    Check("compiles (inductor) to the same function", compiles_to_kernels, tokens=(5,), full=True),
    Check("exports to the same function", exports, tokens=(11,), full=True),
    Check("pickles to a spawned process", pickles, tokens=(5,), full=True),
    Check("one process = two processes", two_processes, tokens=(5,), full=True),
]
"""Checks that architectures and recipes share."""


def model_suite(kind: str, subject: Callable[..., Subject]) -> Suite[Any]:
    """A suite that begins with the checks of a model."""
    suite: Suite[Any] = Suite(kind, subject)
    suite.include(MODEL_CHECKS)
    return suite
