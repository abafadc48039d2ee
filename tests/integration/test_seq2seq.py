"""An encoder-decoder from its recipe to translated text: training, what it shows, measuring, generating."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from small_runs import small_recipe
from zoo.api import generate
from zoo.cli import main
from zoo.errors import UserError
from zoo.training.evaluate import evaluate
from zoo.training.train import train

pytestmark = pytest.mark.slow

WORDS = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over numbers in words, with what ``zoo train`` printed in train.txt; 150 steps teach it some of it."""
    folder = tmp_path_factory.mktemp("seq2seq")
    lines = [f"{' '.join(WORDS[int(digit)] for digit in str(number))}\t{number}" for number in range(1000)]
    (folder / "numbers.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    values: dict[str, Any] = {
        "data": {"name": "pairs", "source": "files", "files": ["numbers.tsv"], "batch_size": 32},
        "architecture": {"name": "encoder_decoder", "layers": 1, "dim": 32, "heads": 2, "residual": "pre"},
        "task": {"name": "seq2seq", "label_smoothing": 0.1},
        "optimizer": {"name": "adamw", "lr": 1e-2},
        "schedule": {"name": "inverse_sqrt", "warmup_steps": 10},
        "training": {"validate_every": 150},
        "trainer": {"max_steps": 150, "accelerator": "cpu", "devices": 1},
    }
    (folder / "numbers.yaml").write_text(json.dumps(values))
    return folder


@pytest.fixture
def trained(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(run)
    monkeypatch.setenv("ZOO_CACHE", str(run / "cache"))
    if not (run / "trained").exists():
        assert main(["train", "numbers.yaml", "--run", "trained"]) == 0
        (run / "train.txt").write_text(capsys.readouterr().out, encoding="utf-8")
    return run / "trained"


def test_training_ends_with_translations_and_a_command_that_runs(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (trained.parent / "train.txt").read_text(encoding="utf-8").splitlines()
    shown = lines[lines.index("it writes:") + 1 :][:4]
    for line in shown:
        source, _, written = line.strip().partition(" → ")
        target = "".join(str(WORDS.index(word)) for word in source.split())
        assert written == target or written.endswith(f"   (target: {target})")
    command = shlex.split(lines[-1].removeprefix("next: "))
    assert command[:4] == ["zoo", "generate", "trained", "--prompt"]
    assert main(command[1:]) == 0
    assert capsys.readouterr().out.strip() == shown[0].split(" → ")[1].split()[0]


def test_metrics_are_without_smoothing_and_exact_match_is_among_them(trained: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    assert {name for name in result["metrics"] if name.startswith("val_")} == {
        "val_loss",
        "val_perplexity",
        "val_accuracy",
        "val_exact_match",
    }
    assert evaluate(trained)["metrics"] == pytest.approx(
        {name: value for name, value in result["metrics"].items() if name.startswith("val_")}, rel=1e-5
    )


@pytest.mark.parametrize("beams", [1, 3])
def test_bleu_and_chrf_are_sacrebleus_over_what_the_run_writes(trained: Path, beams: int) -> None:
    from sacrebleu.metrics import BLEU, CHRF

    from zoo.training.decoded import sample_texts

    pairs = sample_texts(trained, 10_000, 64)
    sources, _, targets = zip(*pairs, strict=True)
    options = {"temperature": 0} if beams == 1 else {"beams": beams}
    written = [result.text for result in generate(trained, sources, max_new_tokens=64, **options)]
    if beams == 1:
        assert written == [text for _, text, _ in pairs]
    metrics = evaluate(trained, beams=beams)["metrics"]
    assert metrics["val_bleu"] == pytest.approx(BLEU().corpus_score(written, [targets]).score)
    assert metrics["val_chrf"] == pytest.approx(CHRF().corpus_score(written, [targets]).score)
    if beams == 1:
        exact = sum(map(str.__eq__, written, targets)) / len(targets)
        assert metrics["val_exact_match"] == pytest.approx(exact)
        assert 0 < exact < 1


def test_several_sources_are_several_lines(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = ["--prompt", "drei", "--prompt", "neun acht"]
    assert main(["generate", str(trained), *prompts, "--beams", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" → ")[0] for line in lines] == ["drei", "neun acht"]
    assert main(["generate", str(trained), *prompts, "--beams", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [f"{entry['prompt']} → {entry['text']}" for entry in document] == lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "trained"], "source 1 is empty"),
        (["generate", "trained", "--prompt", ""], "source 1 is empty"),
        (["generate", "trained", "--prompt", "drei", "--beams", "2", "--top-k", "3"], "draws nothing at random"),
        (["generate", "trained", "--prompt", "drei", "--beams", "0"], "beams is 0"),
        (["eval", "trained", "--bleu", "--beams", "0"], "beams is 0"),
    ],
)
def test_mistakes_at_the_command_line(
    trained: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_bleu_of_a_model_that_reads_no_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    train(small_recipe(tmp_path, "trainer.max_steps=1", "schedule.warmup_steps=0"), run=tmp_path / "run")
    with pytest.raises(UserError, match="BLEU needs a model that writes a text from a source"):
        evaluate(tmp_path / "run", beams=1)
