"""Masks to check with, and who may attend to whom said slot by slot, a second time and without tensors' tricks.

Dimension legend: B batch, T query slots, S key slots.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

from zoo.contracts.values.mask import Mask


def may_attend(mask: Mask, batch: int, tokens: int) -> Tensor:
    """(B, T, T) bool, one pair of slots at a time, from the caller's parts of a self-attention mask."""
    pairs = [[[_may(mask, row, t, s) for s in range(tokens)] for t in range(tokens)] for row in range(batch)]
    return torch.tensor(pairs, dtype=torch.bool).reshape(batch, tokens, tokens)


def _may(mask: Mask, row: int, t: int, s: int) -> bool:
    in_prefix = mask.prefix_B is not None and s < int(mask.prefix_B[row])
    if mask.causal and s > t and not in_prefix:
        return False
    if mask.window is not None and abs(t - s) >= mask.window:
        return False
    if mask.valid_BS is not None and not bool(mask.valid_BS[row, s]):
        return False
    return mask.documents_BS is None or int(mask.documents_BS[row, t]) == int(mask.documents_BS[row, s])


def plain(offers: frozenset[str]) -> list[Mask]:
    """The masks of a decoder and of an encoder, as far as they are offered."""
    return [Mask(causal=causal) for causal in (True, False) if ("causal" if causal else "bidirectional") in offers]


def random_mask(offers: frozenset[str], batch: int, tokens: int, seed: int, *, left: bool | None = None) -> Mask:
    """A random combination of the parts that are offered; each part is in it with probability one half.

    Padding is on a random side; where ``left`` says which, no row is empty.
    """
    draw = random.Random(seed)
    causal = draw.choice([mask.causal for mask in plain(offers)])

    def has(word: str) -> bool:
        return word in offers and draw.random() < 0.5

    return Mask(
        causal=causal,
        window=draw.randint(1, tokens) if has("window") else None,
        prefix_B=_whole([draw.randint(0, tokens) for _ in range(batch)]) if causal and has("prefix") else None,
        valid_BS=_padding(draw, batch, tokens, left) if has("padding") else None,
        documents_BS=_documents(draw, batch, tokens) if has("documents") else None,
    )


def padding(lengths: list[int], tokens: int, *, left: bool) -> Tensor:
    """(B, T) bool with this many valid tokens in each row, at its end or at its start."""
    slots = torch.arange(tokens)
    count = torch.tensor(lengths)[:, None]
    return slots >= tokens - count if left else slots < count


def _padding(draw: random.Random, batch: int, tokens: int, left: bool | None) -> Tensor:
    lengths = [draw.randint(0 if left is None else 1, tokens) for _ in range(batch)]
    return padding(lengths, tokens, left=draw.random() < 0.5 if left is None else left)


def _documents(draw: random.Random, batch: int, tokens: int) -> Tensor:
    starts = [[1] + [int(draw.random() < 0.4) for _ in range(tokens - 1)] for _ in range(batch)]
    return _whole(starts).cumsum(1)


def _whole(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def describe(mask: Mask) -> str:
    """The parts of a mask in a few words, for messages."""
    words = ["causal" if mask.causal else "bidirectional"]
    if mask.window is not None:
        words.append(f"window {mask.window}")
    for name, tensor in (("prefix", mask.prefix_B), ("valid", mask.valid_BS), ("documents", mask.documents_BS)):
        if tensor is not None:
            words.append(f"{name} {tensor.int().tolist()}")
    return ", ".join(words)
