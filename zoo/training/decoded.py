"""What an encoder-decoder writes from the sources of a part, against the targets: BLEU and chrF.

Both by sacrebleu (Post 2018, arXiv:1804.08771), over the whole part at once: BLEU with its default tokenization
(13a), chrF2 with its defaults. The references are the texts of the target tokens, so for a tokenizer that loses
something (case, spaces, rare characters) the scores are of texts without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zoo.contracts.data import Draw, Split
from zoo.contracts.tokenizer import Tokenizer
from zoo.errors import UserError
from zoo.generation import generate, has_cache
from zoo.training.job import Job, build_job_for
from zoo.training.run import load_run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """How to write: greedily, or by a beam search."""

    beams: int = 1
    """Beams of a search; 1 is greedy."""
    length_penalty: float = 1.0
    """Power of the length by which a search divides log p."""


def check_decoding(job: Job) -> Tokenizer:
    """The tokenizer with which a run's model can write targets.

    Raises:
        UserError: no encoder-decoder, or no text.
    """
    tokenizer = job.data.tokenizer()
    if "cross" not in job.model.offers or tokenizer is None:
        raise UserError(
            "BLEU needs a model that writes a text from a source, an encoder-decoder of texts",
            where=job.recipe.where("architecture"),
            fix="leave out --bleu, or give a run of the task seq2seq",
        )
    return tokenizer


def text_scores(
    job: Job, split: Split, decoding: Decoding, *, device: torch.device, batches: int | None = None
) -> dict[str, float]:
    """``bleu`` and ``chrf``, both from 0 to 100, over a part; a text may be as long as the data's longest sequence.

    Args:
        job: its model writes.
        split: the part.
        decoding: how it writes.
        device: where.
        batches: how many batches of the part; ``None`` is all.

    Raises:
        UserError: see ``check_decoding``; options that make no search.
    """
    from sacrebleu.metrics import BLEU, CHRF

    tokenizer = check_decoding(job)
    job.model.to(device)
    most = job.data.describe().max_length
    assert most is not None
    written: list[str] = []
    wanted: list[str] = []
    for samples in _batches(job, split, batches):
        sources, targets = _rows(job, split, samples)
        written += _written(job, tokenizer, sources, decoding, most)
        wanted += map(tokenizer.decode, targets)
    return {
        "bleu": BLEU().corpus_score(written, [wanted]).score,
        "chrf": CHRF().corpus_score(written, [wanted]).score,
    }


def _batches(job: Job, split: Split, batches: int | None) -> Iterator[np.ndarray]:
    """Samples of a part in order, as many at a time as fit into a forward pass of training."""
    rows, step = job.data.config.batch_size, job.recipe.training.micro_batch_size
    size = job.data.size(split)
    last = size if batches is None else min(size, batches * rows)
    for first in range(0, last, step or rows):
        yield np.arange(first, min(first + (step or rows), last))


def _rows(job: Job, split: Split, samples: np.ndarray) -> tuple[list[list[int]], list[list[int]]]:
    """Ids of the sources and of the targets."""
    draw = Draw(samples, np.zeros_like(samples), job.recipe.seed)
    batch = job.task.prepare(job.data.batch(draw, split), draw, split)
    return _kept(batch["source"], batch["source_valid"]), _kept(batch["targets"], batch["valid"])


def _kept(ids_BT: Tensor, valid_BT: Tensor) -> list[list[int]]:
    return [row[valid].tolist() for row, valid in zip(ids_BT, valid_BT, strict=True)]


def _written(
    job: Job, tokenizer: Tokenizer, sources: list[list[int]], decoding: Decoding, max_new_tokens: int
) -> list[str]:
    """What the model makes of sources."""
    results = generate(
        job.model,
        [[]] * len(sources),
        sources=sources,
        max_new_tokens=max_new_tokens,
        temperature=0 if decoding.beams == 1 else 1,
        end_of_text=tokenizer.end_of_text,
        vocab_size=tokenizer.vocab_size,
        cache=has_cache(job.model),
        **dataclasses.asdict(decoding),
    )
    return [tokenizer.decode(result.tokens) for result in results]


def sample_texts(run: str | Path, count: int, max_new_tokens: int) -> list[tuple[str, str, str]]:
    """(source, what the run's model writes greedily, target) of the first pairs of the validation part, if it has any.

    Raises:
        UserError: see ``check_decoding``.
    """
    loaded = load_run(run)
    job = build_job_for(loaded)
    tokenizer = check_decoding(job)
    samples = np.arange(min(count, job.data.size("validation")))
    sources, targets = _rows(job, "validation", samples) if samples.size else ([], [])
    return list(
        zip(
            map(tokenizer.decode, sources),
            _written(job, tokenizer, sources, Decoding(), max_new_tokens),
            map(tokenizer.decode, targets),
            strict=True,
        )
    )
