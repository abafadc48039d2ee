"""Generation from sources: an encoder-decoder reads each as if it were alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from parity import small_recipe
from zoo.builder import build_model
from zoo.errors import UserError
from zoo.generation import generate

SIZES: dict[str, Any] = {"vocab_size": 23, "max_length": 12, "layers": 2, "dim": 16, "heads": 4}
SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15, 16], [5, 6, 7], [3, 2]]


def translator() -> Any:
    """An encoder-decoder whose sources have at most 12 tokens, its targets any number."""
    parts = {"position": "rotary", "encoder": {"position": "learned"}, "residual": "pre"}
    model = build_model(small_recipe("encoder_decoder", **SIZES, **parts))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


@pytest.mark.parametrize("cache", [True, False])
def test_sources_of_different_lengths_are_read_as_each_would_be_alone(cache: bool) -> None:
    model = translator()
    options: dict[str, Any] = {"max_new_tokens": 15, "end_of_text": 0, "temperature": 1.2, "top_k": 9, "seed": 2}
    together = generate(model, [[]] * 5, sources=SOURCES, cache=cache, **options)
    alone = [generate(model, [[]], sources=[source], **options)[0] for source in SOURCES]
    assert together[:3] + together[4:] == alone[:3] + alone[4:]
    assert together[3] != together[0]  # the same source again has random numbers of its own
    assert len({tuple(result.tokens) for result in together}) == 5
    assert max(len(result.tokens) for result in together) == 15


def test_a_target_may_be_begun() -> None:
    model = translator()
    (whole,) = generate(model, [[]], sources=[[5, 6, 7]], max_new_tokens=8, end_of_text=0, temperature=0)
    begun = [0, *whole.tokens[:3]]
    (rest,) = generate(model, [begun], sources=[[5, 6, 7]], max_new_tokens=5, temperature=0)
    assert rest.tokens == whole.tokens[3:]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (None, "EncoderDecoder needs a source for each prompt"),
        ([[5], [6]], "there are 1 prompts and 2 sources"),
        ([[]], "source 1 is empty"),
        ([[23]], "source 1 holds the id 23; the model's ids are below 23"),
        ([[5] * 13], r"source 1 has 13 tokens, the model takes at most 12\n.*shorten it by 1"),
    ],
)
def test_sources_that_do_not_fit_are_refused(sources: list[list[int]] | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate(translator(), [[1]], sources=sources, max_new_tokens=3)


def test_a_model_that_reads_no_source_gets_none() -> None:
    with pytest.raises(UserError, match="GPT2 reads no source"):
        generate(build_model(small_recipe("gpt2", **SIZES)), [[1]], sources=[[1]], max_new_tokens=3)
