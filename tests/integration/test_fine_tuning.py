"""From a run that hides tokens to one that tells texts apart, with parts that stay as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from small_runs import finish, rows, small_recipe, start
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.recipe.source import read_file
from zoo.training.evaluate import evaluate
from zoo.training.metrics import read_metrics
from zoo.training.predict import predict
from zoo.training.run import load_run
from zoo.training.train import train
from zoo.training.weights import read_weights

pytestmark = pytest.mark.slow

BERT = {"name": "bert", "layers": 2, "dim": 16, "heads": 2, "dropout": 0.1}
TRAINER = {"accelerator": "cpu", "devices": 1}
FROZEN = ("embedding", "stack.positions", "stack.blocks.0")


def pretraining(folder: Path) -> Recipe:
    """Sums as text, character by character."""
    file = folder / "sums.txt"
    file.write_text("".join(f"{a} and {b} make {a + b}.\n" for a in range(40) for b in range(10)))
    return Recipe.from_dict(
        {
            "data": {"name": "text", "source": "files", "files": [str(file)], "length": 24, "tokenizer": "char"},
            "architecture": BERT,
            "task": "masked_lm",
            "trainer": {"max_steps": 5, **TRAINER},
        }
    )


def classification(folder: Path, *overrides: str) -> Recipe:
    """Whether a number is odd, as words with fewer different characters than the text has."""
    file = folder / "parity.csv"
    if not file.exists():
        lines = [f"{number} and {number} make,{'odd' if number % 2 else 'even'}\n" for number in range(300)]
        file.write_text("text,label\n" + "".join(lines))
    values: dict[str, Any] = {
        "data": {
            **{"name": "labelled_text", "source": "files", "files": [str(file)], "tokenizer": "char"},
            **{"length": 20, "validation": 0.1, "test": 0.1},
        },
        "architecture": {**BERT, "head": {"name": "classification", "pool": "mean"}},
        "task": "text_classification",
        "weights": {"path": str(folder / "pretrained")},
        "optimizer": {"name": "adamw", "lr": 1e-2, "layer_decay": 0.5},
        "training": {"freeze": [*FROZEN], "validate_every": 3, "save_every": 3, "keep": 10, "log_every": 1},
        "trainer": {"max_steps": 6, **TRAINER},
    }
    return Recipe.from_dict(values, overrides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pretrained run, and one that began with it."""
    made = tmp_path_factory.mktemp("fine_tuning")
    train(pretraining(made), made / "pretrained")
    train(classification(made), made / "tuned")
    return made


def test_a_run_begins_with_the_weights_and_the_tokenizer_of_another(folder: Path) -> None:
    old, _ = read_weights(folder / "pretrained" / "model.safetensors")
    new, _ = read_weights(folder / "tuned" / "model.safetensors")
    for name, tensor in new.items():
        if name in old:
            assert torch.equal(tensor, old[name]) == name.startswith(FROZEN), name
    tokenizers = [json.loads((folder / run / "tokenizer.json").read_text()) for run in ("pretrained", "tuned")]
    assert tokenizers[0] == tokenizers[1]
    assert json.loads((folder / "tuned" / "labels.json").read_text()) == ["even", "odd"]
    assert len(new["embedding.tokens.weight"]) == len(old["embedding.tokens.weight"])  # the mask's row is kept
    assert len(new["stack.positions.0.table.weight"]) == 24  # and places behind the 20 that the texts have


def test_the_lock_file_says_which_weights_and_metrics_the_largest_rate(folder: Path) -> None:
    facts = read_file(folder / "tuned" / "recipe.lock.yaml", "recipe").plain()["weights"]
    assert facts["path"] == str(folder / "pretrained" / "model.safetensors")
    assert len(facts["sha256"]) == 64
    assert {row["lr"] for row in read_metrics(folder / "tuned" / "metrics.csv")} == {1e-2}


def test_what_was_taken_and_what_was_not_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(classification(folder, "trainer.max_steps=1", "architecture.heads=4"), folder / "said")
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("weights: 36 of 38 tensors of the model are those of ")
    assert error[1] == "  2 begin anew (head.scores.weight, head.scores.bias)"
    assert error[2].startswith("  5 of the file are left over (head.tied_bias.bias, ")
    assert error[3] == "  warning: the run had architecture.heads: 2, this is 4"
    assert "2 begin anew" in (folder / "said" / "log.txt").read_text()


def test_best_weights_of_a_run_are_a_beginning_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = folder / "tuned" / "checkpoints" / "best.ckpt"
    train(classification(folder, f"weights.path={best}", "trainer.max_steps=1"), folder / "again")
    assert "weights: 38 of 38 tensors" in capsys.readouterr().err


def test_it_is_measured_and_predicts(folder: Path) -> None:
    found = evaluate(folder / "tuned")["metrics"]
    written = read_metrics(folder / "tuned" / "metrics.csv")[-1]
    assert found == {name: pytest.approx(written[name], rel=1e-6) for name in found}
    (result,) = predict(folder / "tuned", ["7 and 7 make"])
    assert {each["name"] for each in result["classes"]} == {"even", "odd"}
    with pytest.raises(UserError, match="text 1 of 1"):
        predict(folder / "tuned", ["Zoë"])


def test_other_classes_are_not_measured(folder: Path) -> None:
    other = folder / "other.csv"
    other.write_text("text,label\n" + "".join(f"{n} and {n},{'abc'[n % 3]}\n" for n in range(200)))
    with pytest.raises(UserError, match="the classes of the data aren't those of the run: a, b, c, even, odd"):
        evaluate(folder / "tuned", [f"data.files=[{other}]"])


def test_a_stopped_run_goes_on_bit_for_bit_without_the_run_that_it_began_with(folder: Path, tmp_path: Path) -> None:
    run, moved = tmp_path / "run", folder / "moved"
    shutil.copytree(folder / "tuned", run)
    for name in ("step-6.ckpt", "best.ckpt"):
        (run / "checkpoints" / name).unlink()
    (run / "model.safetensors").unlink()
    (folder / "pretrained").rename(moved)
    try:
        train(classification(folder), run, resume=True)
        (run / "parity.csv").unlink(missing_ok=True)
        assert predict(run, ["1 and 1 make"]) == predict(folder / "tuned", ["1 and 1 make"])
    finally:
        moved.rename(folder / "pretrained")
    new, old = (read_weights(path / "model.safetensors")[0] for path in (run, folder / "tuned"))
    assert all(torch.equal(new[name], old[name]) for name in old)
    locks = [read_file(path / "recipe.lock.yaml", "recipe").plain() for path in (run, folder / "tuned")]
    assert locks[0]["weights"] == locks[1]["weights"]


def test_a_run_needs_neither_its_data_nor_the_file_of_its_vocabulary(folder: Path, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "and",
        "make",
        *map(str, range(10)),
        *(f"##{n}" for n in range(10)),
    ]
    vocabulary.write_text("".join(f"{piece}\n" for piece in pieces))
    words = f"data.tokenizer={{name: wordpiece, vocab: {vocabulary}}}"
    train(classification(folder, words, "weights=null", "trainer.max_steps=1"), tmp_path / "run")
    before = predict(tmp_path / "run", ["7 and 12 make"])
    vocabulary.unlink()
    (folder / "parity.csv").rename(folder / "moved.csv")
    try:
        assert predict(tmp_path / "run", ["7 and 12 make"]) == before
    finally:
        (folder / "moved.csv").rename(folder / "parity.csv")


def test_mistakes_are_found_before_there_is_a_run(folder: Path) -> None:
    for override in ("weights.path=nowhere", "weights.skip=[]", "weights.skip=[haed]", "training.freeze=[haed]"):
        with pytest.raises(UserError):
            train(classification(folder, override), folder / "none")
        assert not (folder / "none").exists()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_ranks_freeze_and_decay_as_one_does(tmp_path: Path, strategy: str) -> None:
    changes = ["training.freeze=[stack.blocks.0, stack.final_norm]", "optimizer.layer_decay=0.5", "trainer.max_steps=6"]
    train(small_recipe(tmp_path, *changes), tmp_path / "one")
    run = tmp_path / "two"
    finish(start(tmp_path, run, *changes, "trainer.devices=2", f"trainer.strategy={strategy}"))
    losses, norms = (
        [[row[name] for row in rows(path)] for path in (tmp_path / "one", run)] for name in ("train_loss", "grad_norm")
    )
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert norms[1] == pytest.approx(norms[0], rel=1e-5)
    initial, trained = (load_run(path).model.state_dict() for path in (run, tmp_path / "one"))
    for name, tensor in trained.items():
        if name.startswith("stack.blocks.0."):
            assert torch.equal(tensor, initial[name])
