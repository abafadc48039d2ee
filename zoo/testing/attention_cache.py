"""Attention checks about the cache: generation piece by piece is the full forward pass, to rounding.

Dimension legend: B batch, T queries, S keys, D width.
"""

from __future__ import annotations

import dataclasses
import itertools

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.testing.attention_case import SUITE, AttentionCase
from zoo.testing.masks import describe, padding, random_mask
from zoo.testing.numbers import agree
from zoo.testing.suite import Failed, Skipped


@SUITE.check("cache = full pass, token by token", "cache", "causal", tokens=(1, 3, 8))
def token_by_token(case: AttentionCase) -> None:
    """Each token sees what is cached, its own position, and nothing twice."""
    module, x_BTD = case.make(), case.input()
    got = case.in_chunks(module, x_BTD, [1] * case.tokens, Cache())
    agree(got, case.run(module, x_BTD, Mask(causal=True)), "token by token against the full pass")


@SUITE.check("cache = full pass, in chunks", "cache", "causal", tokens=(6,))
def chunk_by_chunk(case: AttentionCase) -> None:
    """Chunks of 2, 3 and 1: the triangle of a chunk ends at its last key, not at its first."""
    module, x_BTD = case.make(), case.input()
    for chunks in ([2, 3, 1], [1, 5], [5, 1]):
        got = case.in_chunks(module, x_BTD, chunks, Cache())
        agree(got, case.run(module, x_BTD, Mask(causal=True)), f"chunks of {chunks} against the full pass")


@SUITE.check("cache follows its beams", "cache", "causal", tokens=(6,))
def reordered(case: AttentionCase) -> None:
    """After rows are reordered, repeated and dropped, generation goes on from the new rows."""
    module, x_BTD = case.make(), case.input()
    index_B = torch.tensor([1, 1, 0])
    chosen_BTD = torch.cat([x_BTD[index_B, :4], case.input(3, salt=2)[:, 4:]], 1)
    cache = Cache()
    case.in_chunks(module, x_BTD[:, :4], [3, 1], cache)
    cache.reorder(index_B)
    got = case.in_chunks(module, chosen_BTD[:, 4:], [1, 1], cache)
    want = case.run(module, chosen_BTD, Mask(causal=True))[:, 4:]
    agree(got, want, "two tokens after rows [1, 1, 0] were taken")


@SUITE.check("unused room in the cache doesn't matter", "cache", "causal", tokens=(8,))
def spare_room(case: AttentionCase) -> None:
    """NaN in the part of the buffers that holds nothing yet stays there."""
    module, x_BTD = case.make(), case.input()
    cache, outs = Cache(), []
    for piece_BTD in x_BTD.split(1, 1):
        outs.append(case.in_chunks(module, piece_BTD, [1], cache))
        for layer in cache.layers().values():
            for spare in layer.spare():
                spare.fill_(torch.nan)
    agree(torch.cat(outs, 1), case.run(module, x_BTD, Mask(causal=True)), "token by token, spare room filled with NaN")


@SUITE.check("cache of a left-padded batch", "cache", "causal", "padding", tokens=(6,))
def padded_prompts(case: AttentionCase) -> None:
    """Prompts of 4, 2 and 1 tokens in one batch go on as each does alone."""
    module, x_BTD = case.make(), case.input(3)
    lengths = [4, 2, 1]
    prompt = Mask(causal=True, valid_BS=padding(lengths, 4, left=True))
    got = case.in_chunks(module, x_BTD, [4, 1, 1], Cache(), [prompt])
    for row, length in enumerate(lengths):
        want = case.run(module, x_BTD[row : row + 1, 4 - length :], Mask(causal=True))
        agree(
            got[row, 4 - length :], want[0], f"row {row}, {length} tokens of prompt and 2 more, against the row alone"
        )


@SUITE.check("cache of packed documents", "cache", "causal", "documents", tokens=(6,))
def packed_prompts(case: AttentionCase) -> None:
    """New tokens go on with the last document, and know nothing of those before it."""
    module, x_BTD = case.make(), case.input()
    prompt = Mask(causal=True, documents_BS=torch.tensor([[1, 1, 2, 2], [5, 6, 6, 6]]))
    got = case.in_chunks(module, x_BTD, [4, 1, 1], Cache(), [prompt])
    for row, start in enumerate((2, 1)):
        want = case.run(module, x_BTD[row : row + 1, start:], Mask(causal=True))
        agree(got[row, start:], want[0], f"the last document of row {row} and 2 more tokens, against it alone")
    new = Mask(causal=True, documents_BS=torch.tensor([[3], [6]]))
    got = case.in_chunks(module, x_BTD, [4, 1, 1], Cache(), [prompt, Mask(causal=True), new])
    for row, start in enumerate((5, 1)):
        want = case.run(module, x_BTD[row : row + 1, start:], Mask(causal=True))
        agree(got[row, 5:], want[0, -1:], f"the last token of row {row}, a document of its own in row 0 only")


@SUITE.check("a cache that is new starts from nothing", "cache", "causal", tokens=(5,))
def fresh_cache(case: AttentionCase) -> None:
    """What one sequence left behind is in its cache and nowhere else."""
    module, x_BTD = case.make(), case.input()
    want = case.in_chunks(module, x_BTD, [3, 2], Cache())
    case.in_chunks(module, case.input(salt=6), [4, 1], Cache())
    agree(case.in_chunks(module, x_BTD, [3, 2], Cache()), want, "the same sequence after another one", tolerance=0.0)


@SUITE.check("cache past its window", "cache", "causal", schemes=True, tokens=(1,))
def past_the_window(case: AttentionCase) -> str:
    """A rolling cache that has dropped keys still gives what the full pass gives."""
    module = case.make()
    keep = module.keep() if isinstance(module, HeadedAttention) else None
    if keep is None:
        raise Skipped("it keeps every key")
    if keep > 512:
        raise Skipped(f"its window of {keep} is too long for a quick check")
    x_BTD = case.input().repeat(1, keep + 5, 1) + case.input(keep + 5, salt=8)[:, 0]
    chunks = [keep - 1, 1, 1, 2, 2] if keep > 1 else [1, 1, 1, 2, 1]
    for one_by_one in ([1] * x_BTD.shape[1], chunks):
        got = case.in_chunks(module, x_BTD, one_by_one, Cache())
        agree(got, case.run(module, x_BTD, Mask(causal=True)), f"{x_BTD.shape[1]} tokens past a window of {keep}")
    return f"window of {keep}"


@SUITE.check("cross-attention keeps the source", "cache", "cross", schemes=False, tokens=(3,))
def cached_source(case: AttentionCase) -> None:
    """Keys and values of the other sequence are computed once; later queries and reordered beams find them."""
    module, x_BTD = case.make(), case.input()
    context_BSD = torch.cat([case.input(salt=3), case.input(salt=4)], 1)
    valid_BS = padding([6, 4], 6, left=False) if "padding" in case.offers else None
    want = case.cross(module, x_BTD, context_BSD, valid_BS)
    cache = Cache()
    first = case.cross(module, x_BTD[:, :2], context_BSD, valid_BS, cache)
    cache.reorder(torch.tensor([1, 0, 0]))
    order = [1, 0, 0]
    valid_BS = None if valid_BS is None else valid_BS[order]
    last = case.cross(module, x_BTD[order, 2:], context_BSD[order], valid_BS, cache)
    agree(first, want[:, :2], "the first queries with a cache")
    agree(last, want[order, 2:], "the last query after rows [1, 0, 0] were taken")


@SUITE.check("cache = full pass, under any mask", "cache", "causal", schemes=False, tokens=(7,))
def under_any_mask(case: AttentionCase) -> None:
    """Random masks over a prompt of 4 tokens, a window that goes on with 3 more: each token as in one pass."""
    module, x_BTD = case.make(), case.input()
    for draw in range(8):
        first = random_mask(case.offers - {"bidirectional"}, 2, 4, case.seed * 100 + draw, left=True)
        later = Mask(causal=True, window=first.window)
        got = case.in_chunks(module, x_BTD, [4, 1, 2], Cache(), [first, later, later])
        whole = dataclasses.replace(
            first, valid_BS=_goes_on(first.valid_BS), documents_BS=_goes_on(first.documents_BS), _memo={}
        )
        want = case.run(module, x_BTD, whole)
        told = slice(None) if whole.valid_BS is None else whole.valid_BS
        agree(got[told], want[told], f"{describe(whole)}: a prompt of 4 and steps of 1 and 2 against one pass")


def _goes_on(of_prompt: Tensor | None) -> Tensor | None:
    """Padding or documents with 3 tokens more: valid, and of the last document."""
    if of_prompt is None:
        return None
    more = torch.ones_like(of_prompt[:, :3]) if of_prompt.dtype == torch.bool else of_prompt[:, -1:].expand(-1, 3)
    return torch.cat([of_prompt, more], 1)


@SUITE.check("memory of the cache grows with tokens or not at all", "cache", "causal", schemes=False, tokens=(12,))
def cache_growth(case: AttentionCase) -> str:
    """Bytes are a function of the number of tokens, in steps that don't grow, and on the meta device the same."""
    module, x_BTD = case.make(), case.input()
    with torch.device("meta"):
        empty = case.build(case.variant.knobs).eval().double()
    cache, sizes = Cache(), [0]
    for piece_BTD in x_BTD.split(1, 1):
        case.in_chunks(module, piece_BTD, [1], cache)
        sizes.append(cache.bytes())
        if (count := len(sizes) - 1) % 4:
            continue
        for what, made, given_BTD in (
            ("in one go", module, x_BTD[:, :count]),
            ("on the meta device", empty, x_BTD[:, :count].to("meta")),
        ):
            held = Cache()
            case.in_chunks(made, given_BTD, [count], held)
            if held.bytes() != sizes[-1]:
                raise Failed(f"{count} tokens {what} take {held.bytes()} bytes, one by one {sizes[-1]}")
    steps = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    if max(steps[6:]) > max(steps[:6]):
        raise Failed(f"bytes grow faster and faster: {sizes[1:]}")
    for layer in cache.layers().values():
        for name, tensor in layer.tensors():
            if tensor.shape[0] != 2:
                raise Failed(f"{name} in the cache has shape {tuple(tensor.shape)}; the batch of 2 must come first")
    return f"{steps[-1] // 2} bytes a token and row in float64"
