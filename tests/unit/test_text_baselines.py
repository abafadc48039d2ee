"""The text baselines: proper distributions, and figures that can be worked out by hand."""

from __future__ import annotations

import importlib.util
import math
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "text_baselines.py"


def load_benchmark() -> ModuleType:
    """Benchmarks are scripts, not a package, so this one is loaded from its path."""
    spec = importlib.util.spec_from_file_location("text_baselines", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


text_baselines = load_benchmark()
ENGLISH = b"the cat sat on the mat, and then the other cat sat on that other mat with the hat. " * 3


@pytest.mark.parametrize("order", [1, 3, 5, 8])
@pytest.mark.parametrize("context", [b"", b"t", b"the cat", b"and then the", b"\x00\xff\x00zq", b"the\xff"])
def test_probabilities_sum_to_one(order: int, context: bytes) -> None:
    """Contexts that are empty, short, seen, unseen, and seen only in part."""
    probabilities = text_baselines.ByteNGram(ENGLISH, order).next_byte(context)
    assert probabilities.shape == (256,)
    assert probabilities.min() > 0
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)


def test_bigram_by_hand() -> None:
    """`aab` at order 2: the discount is 0.5 for every gram, since all of them are counted once."""
    model = text_baselines.ByteNGram(b"aab", order=2)
    unseen = 0.5 / 256  # order 1: `a` and `b` each follow one distinct byte, half of their mass is freed
    either = 0.25 + unseen
    assert model.next_byte(b"")[ord("a")] == pytest.approx(either)
    assert model.next_byte(b"a")[ord("b")] == pytest.approx(0.25 + 0.5 * either)  # `aa` and `ab` share `a`
    assert model.next_byte(b"a")[ord("c")] == pytest.approx(0.5 * unseen)
    assert model.next_byte(b"b")[ord("a")] == pytest.approx(either)  # nothing was seen after `b`
    expected = -(math.log(either) + math.log(0.25 + 0.5 * either) + math.log(either)) / 3
    assert text_baselines.ngram_nats_per_byte(b"aab", [b"ab", b"b"], order=2) == pytest.approx(expected)


def test_discounts_by_hand() -> None:
    """Counts of counts 4, 2, 1, 1: the share is 4 / (4 + 2 * 2) = 0.5."""
    counts = text_baselines.np.array([1, 1, 1, 1, 2, 2, 3, 4, 9])
    assert text_baselines.kneser_ney_discounts(counts) == pytest.approx((0.5, 1.25, 1.0))


def test_zero_bytes_are_not_the_start_of_a_document() -> None:
    """The start of a document is marked by its length, not by the zeros that stand before it."""
    model = text_baselines.ByteNGram(b"\x00\x00a" * 20 + b"bcd" * 20, order=3)
    assert model.next_byte(b"\x00\x00")[ord("a")] > 0.9
    assert model.next_byte(b"")[ord("a")] < 0.5


def test_longer_contexts_help_on_english() -> None:
    """A 5-gram predicts repeated English far better than single bytes do."""
    nats = text_baselines.ngram_nats_per_byte
    unigram, fivegram = (nats(ENGLISH, [ENGLISH[:80]], order) for order in (1, 5))
    assert fivegram < 0.5 < 2 < unigram < math.log(256)


@pytest.mark.parametrize(
    ("train", "order", "message"), [(b"abc", 0, "1 to 8"), (b"abc", 9, "1 to 8"), (b"abc", 4, "got 3")]
)
def test_refuses_what_it_cannot_count(train: bytes, order: int, message: str) -> None:
    """The error names the limit or the size of the text."""
    with pytest.raises(ValueError, match=message):
        text_baselines.ByteNGram(train, order)


def test_lzma_is_primed_by_the_training_text() -> None:
    """Held-out text that is in the training text costs next to nothing; noise costs the full eight bits."""
    noise = random.Random(0).randbytes(20_000)
    assert text_baselines.lzma_nats_per_byte(noise, noise) < 0.1
    unrelated = random.Random(1).randbytes(20_000)
    assert text_baselines.lzma_nats_per_byte(noise, unrelated) == pytest.approx(math.log(256), rel=0.01)


def test_command_prints_both_figures_for_the_parts_of_a_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parts are those that models see: documents of the recipe's text, apart, without what follows a window."""
    (tmp_path / "text.txt").write_bytes(ENGLISH)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "data: {name: text, source: files, files: [text.txt], length: 16, validation: 0.2, test: 0.2}\n"
        "architecture: gpt2\ntask: causal_lm\n"
    )
    train, held_out = text_baselines.parts_of(str(recipe), "validation")
    assert ENGLISH.startswith(b"".join(train))
    assert b"".join(held_out) in ENGLISH
    assert len(b"".join(held_out)) % 16 == 0
    monkeypatch.setattr(sys, "argv", ["text_baselines.py", str(recipe), "--order", "3"])
    text_baselines.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["3-gram", "primed"]
