"""Two baselines that need no training loop, for text models, in nats per byte of held-out text.

- `ngram_nats_per_byte`: an interpolated byte n-gram with modified Kneser-Ney smoothing. Witten-Bell was
  tried beside it on the validation parts of `python-docs` and `python-stdlib`: 1.33 and 1.40 nats per byte at
  order 5, Kneser-Ney 1.24 and 1.31. The stronger one stays. Longer contexts help: 1.15 and 1.17 at order 8.
- `lzma_nats_per_byte`: what the held-out text adds to the compressed training text. Unlike the n-gram, it
  also learns from the held-out text as it goes.

    python benchmarks/text_baselines.py gpt2_text
"""

from __future__ import annotations

import argparse
import lzma
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zoo.contracts.data import Data, Draw, Split

Grams = npt.NDArray[np.uint64]  # one n-gram an entry; its last byte is the lowest, the one before it the next
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LONGEST_ORDER = 8  # bytes in a uint64
END_OF_TEXT = 256  # of the byte tokenizer
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)  # of KenLM, https://aclanthology.org/P13-2121
SMALLEST_DICTIONARY = 4096  # that lzma accepts


@dataclass(frozen=True)
class OrderTable:
    """What one order of the n-gram knows; `grams` and `contexts` are sorted."""

    grams: Grams
    kept_counts: Floats  # count of a gram after the discount
    contexts: Grams
    total_counts: Floats  # count of a context, before the discount
    freed_counts: Floats  # what the discounts took from a context, given to the order below


class ByteNGram:
    """Interpolated byte n-gram with modified Kneser-Ney smoothing.

    The highest order counts occurrences, each lower one the distinct bytes seen before a gram. Below order 1
    lies the uniform distribution over the 256 byte values, so no byte has probability zero.

    Paper: Chen and Goodman 1998, An Empirical Study of Smoothing Techniques for Language Modeling,
    http://nrs.harvard.edu/urn-3:HUL.InstRepos:25104739
    """

    def __init__(self, train: bytes, order: int = 5) -> None:
        if not 1 <= order <= LONGEST_ORDER:
            raise ValueError(f"order must be 1 to {LONGEST_ORDER}, got {order}")
        if len(train) < order:
            raise ValueError(f"an order of {order} needs as many bytes of training text, got {len(train)}")
        self.order = order
        grams, counts = np.unique(last_bytes(train, order)[order - 1 :], return_counts=True)
        tables = [discounted(grams, counts)]
        for length in range(order - 1, 0, -1):
            grams, counts = np.unique(grams & byte_mask(length), return_counts=True)
            tables.append(discounted(grams, counts))
        self.tables = tables[::-1]

    def probabilities(self, grams: Grams, lengths: Counts) -> Floats:
        """Probability of the last byte of each gram given the others; `lengths` counts its real bytes."""
        result = np.full(len(grams), 1 / 256)
        for length, table in enumerate(self.tables, start=1):
            suffixes = grams & byte_mask(length)
            context_index, context_seen = find(table.contexts, suffixes >> np.uint64(8))
            gram_index, gram_seen = find(table.grams, suffixes)
            kept = np.where(gram_seen, table.kept_counts[gram_index], 0.0)
            mixed = kept + table.freed_counts[context_index] * result
            usable = context_seen & (lengths >= length)
            result = np.where(usable, mixed / table.total_counts[context_index], result)
        return result

    def next_byte(self, context: bytes) -> Floats:
        """Probabilities of the 256 byte values after `context`."""
        grams = np.stack([last_bytes(context + bytes([value]), self.order)[-1] for value in range(256)])
        return self.probabilities(grams, np.full(256, len(context) + 1))


def last_bytes(text: bytes, count: int) -> Grams:
    """The last `count` bytes up to each position as one number; zeros stand before the start."""
    values = np.frombuffer(text, np.uint8).astype(np.uint64)
    grams = np.zeros_like(values)
    for distance in range(min(count, len(values))):
        grams[distance:] |= values[: len(values) - distance] << np.uint64(8 * distance)
    return grams


def byte_mask(length: int) -> np.uint64:
    """Keeps the lowest `length` bytes."""
    return np.uint64(2 ** (8 * length) - 1)


def discounted(grams: Grams, counts: Counts) -> OrderTable:
    """Takes the discounts from the counts of one order and adds up each context."""
    discounts = np.array([0.0, *kneser_ney_discounts(counts)])[np.minimum(counts, 3)]
    contexts, starts = np.unique(grams >> np.uint64(8), return_index=True)
    return OrderTable(
        grams=grams,
        kept_counts=counts - discounts,
        contexts=contexts,
        total_counts=np.add.reduceat(counts.astype(np.float64), starts),
        freed_counts=np.add.reduceat(discounts, starts),
    )


def kneser_ney_discounts(counts: Counts) -> tuple[float, float, float]:
    """Discounts of grams counted once, twice and more often; fixed ones where too few allow no estimate."""
    once, twice, thrice, four_times = (int((counts == value).sum()) for value in (1, 2, 3, 4))
    if 0 in (once, twice, thrice, four_times):
        return FALLBACK_DISCOUNTS
    share = once / (once + 2 * twice)
    estimates = (
        1 - 2 * share * twice / once,
        2 - 3 * share * thrice / twice,
        3 - 4 * share * four_times / thrice,
    )
    return estimates if min(estimates) > 0 else FALLBACK_DISCOUNTS


def find(table: Grams, wanted: Grams) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Index of each wanted gram in a sorted table, and whether it is there at all."""
    index = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return index, table[index] == wanted


def ngram_nats_per_byte(train: bytes, held_out: list[bytes], order: int = 5) -> float:
    """Mean nats the n-gram pays for a byte of the held-out documents; each starts with an empty context."""
    model = ByteNGram(train, order)
    grams = np.concatenate([last_bytes(document, order) for document in held_out])
    lengths = np.concatenate([np.arange(1, len(document) + 1) for document in held_out])
    return float(-np.log(model.probabilities(grams, lengths)).mean())


def lzma_nats_per_byte(train: bytes, held_out: bytes) -> float:
    """Bytes that the held-out text adds to the compressed training text, in nats per byte of held-out text.

    Compression as an estimate of conditional entropy: Cilibrasi and Vitanyi 2005, https://arxiv.org/abs/cs/0312044
    """
    dictionary = max(SMALLEST_DICTIONARY, len(train) + len(held_out))
    added = compressed_size(train + held_out, dictionary) - compressed_size(train, dictionary)
    return added * math.log(256) / len(held_out)


def compressed_size(text: bytes, dictionary: int) -> int:
    """Bytes of the text under the strongest lzma preset, which may look back over `dictionary` bytes."""
    strongest = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dictionary}
    return len(lzma.compress(text, format=lzma.FORMAT_RAW, filters=[strongest]))


def parts_of(recipe_name: str, held_out: Split) -> tuple[list[bytes], list[bytes]]:
    """Documents of the training part and of a held-out part of a text recipe, as its models see them.

    What follows the last whole window of a part is left out, as it is in training and validation.
    """
    from zoo.builder import build_data
    from zoo.recipe import load_recipe
    from zoo.training.job import cache_folder

    data = build_data(load_recipe(recipe_name, ["data.tokenizer=byte"]), cache_folder())
    data.prepare()
    return documents_of(data, "train"), documents_of(data, held_out)


def documents_of(data: Data, split: Split) -> list[bytes]:
    """Documents of one part of a byte-level text set."""
    size = data.size(split)
    draw = Draw(np.arange(size), np.zeros(size, np.int64), 0)
    tokens = data.batch(draw, split)["ids"].numpy().ravel()
    ends = np.flatnonzero(tokens == END_OF_TEXT)
    pieces = [piece[piece != END_OF_TEXT] for piece in np.split(tokens, ends)]
    return [piece.astype(np.uint8).tobytes() for piece in pieces if len(piece)]


def main() -> None:
    """Prints both baselines for the parts of a recipe's text."""
    parser = argparse.ArgumentParser(description="n-gram and primed lzma on held-out text, in nats per byte")
    parser.add_argument("recipe", help="a recipe with text data, for example gpt2_text")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--order", type=int, default=5, help="bytes of an n-gram (default: 5)")
    arguments = parser.parse_args()
    train, held_out = parts_of(arguments.recipe, arguments.split)
    ngram = ngram_nats_per_byte(b"".join(train), held_out, arguments.order)
    print(f"{arguments.order}-gram      {ngram:.4f} nats per byte")
    print(f"primed lzma {lzma_nats_per_byte(b''.join(train), b''.join(held_out)):.4f} nats per byte")


if __name__ == "__main__":
    main()
