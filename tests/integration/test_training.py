"""One process: equality with a plain loop, the run folder, evaluation, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from small_runs import rows, small_recipe
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.training import trainer as trainer_module
from zoo.training.evaluate import evaluate
from zoo.training.metrics import read_metrics
from zoo.training.run import load_run
from zoo.training.train import train
from zoo.training.weights import read_weights

pytestmark = pytest.mark.slow

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "plain_loop.py"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def plain_loop() -> ModuleType:
    """Benchmarks are scripts, not a package, so this one is loaded from its path."""
    spec = importlib.util.spec_from_file_location("plain_loop", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def text_recipe(folder: Path, *overrides: str) -> Recipe:
    """Characters of a small file of one's own."""
    file = folder / "text.txt"
    if not file.exists():
        file.write_text("".join(f"{number} times {number} is {number * number}.\n" for number in range(400)))
    values: dict[str, Any] = {
        "data": {"name": "text", "source": "files", "files": [str(file)], "length": 16, "tokenizer": "char"},
        "architecture": {"name": "gpt2", "layers": 1, "dim": 16, "heads": 2},
        "task": "causal_lm",
        "training": {"validate_every": 5, "log_every": 1},
        "trainer": {"max_steps": 10, "accelerator": "cpu", "devices": 1},
    }
    return Recipe.from_dict(values, overrides)


def test_losses_are_bit_equal_to_those_of_a_plain_torch_loop(
    tmp_path: Path, cache: Path, plain_loop: ModuleType
) -> None:
    sizes = plain_loop.Sizes(steps=25, layers=2, dim=32, heads=2, length=32, batch_size=4, warmup=5)
    assert plain_loop.zoo_losses(sizes, tmp_path / "run") == list(plain_loop.plain_steps(sizes))


def test_the_run_folder_holds_what_a_later_command_needs(tmp_path: Path, cache: Path) -> None:
    run = tmp_path / "run"
    result = train(text_recipe(tmp_path), run)
    assert {path.name for path in run.iterdir()} == {
        *("recipe.yaml", "recipe.lock.yaml", "metrics.csv", "result.json", "log.txt", "tokenizer.json"),
        *("checkpoints", "model.safetensors"),
    }
    saved = json.loads((run / "result.json").read_text())
    assert {"run": str(run), **saved} == result
    assert saved["status"] == "completed"
    assert saved["parameters"] == sum(p.numel() for p in load_run(run).model.parameters())
    assert saved["tokens"] == 10 * 32 * 16
    last = read_metrics(run / "metrics.csv")[-1]
    assert saved["metrics"] == {name: value for name, value in last.items() if name.startswith(("train_", "val_"))}
    assert [row["step"] for row in rows(run) if "val_loss" in row] == [5, 10]
    _, facts = read_weights(run / "model.safetensors")
    assert facts == {"recipe": "recipe", "step": "10"}


def test_a_run_works_after_its_data_has_gone(tmp_path: Path, cache: Path) -> None:
    train(text_recipe(tmp_path), tmp_path / "run")
    (tmp_path / "text.txt").unlink()
    loaded = load_run(tmp_path / "run")
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("7 times 7")) == "7 times 7"
    assert loaded.model.config.vocab_size == loaded.tokenizer.vocab_size
    with pytest.raises(UserError, match=r"text\.txt"):
        evaluate(tmp_path / "run")


def test_other_data_is_measured_with_the_tokenizer_of_the_run(tmp_path: Path, cache: Path) -> None:
    train(text_recipe(tmp_path), tmp_path / "run")
    other = tmp_path / "other.txt"
    other.write_text("1 is 1.\n" * 200)
    found = evaluate(tmp_path / "run", [f"data.files=[{other}]"])
    assert 0 < found["metrics"]["val_loss"] < 20
    other.write_text("naïve\n" * 200)
    with pytest.raises(UserError, match="which none of the 18 characters of the vocabulary is"):
        evaluate(tmp_path / "run", [f"data.files=[{other}]"])


def test_data_that_does_not_fit_the_model_is_refused(tmp_path: Path, cache: Path) -> None:
    train(text_recipe(tmp_path), tmp_path / "run")
    with pytest.raises(UserError, match="the data needs max_length 32, the run's model has 16"):
        evaluate(tmp_path / "run", ["data.length=32"])
    with pytest.raises(UserError, match="no part 'tset'"):
        evaluate(tmp_path / "run", split="tset")  # type: ignore[arg-type]


def test_without_a_validation_part_a_run_says_so_and_has_no_best(tmp_path: Path, cache: Path) -> None:
    result = train(text_recipe(tmp_path, "data.validation=0"), tmp_path / "run")
    assert result["best"] is None
    assert not any(name.startswith("val_") for name in result["metrics"])
    assert "no validation" in (tmp_path / "run" / "log.txt").read_text()
    assert not (tmp_path / "run" / "checkpoints" / "best.ckpt").exists()


def test_a_compiled_model_has_the_same_losses_and_plain_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_eagerly(self: nn.Module) -> None:
        compiled.append(type(self).__name__)
        self._compiled_call_impl = torch.compile(self._call_impl, backend="eager")

    train(small_recipe(tmp_path, "trainer.max_steps=4"), tmp_path / "plain")
    monkeypatch.setattr(nn.Module, "compile", compile_eagerly)
    train(small_recipe(tmp_path, "trainer.max_steps=4", "training.compile=true"), tmp_path / "compiled")
    assert compiled == ["GPT2"]
    losses = [[row["train_loss"] for row in rows(tmp_path / name)] for name in ("plain", "compiled")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert evaluate(tmp_path / "compiled", ["training.compile=false"])["metrics"] == pytest.approx(
        evaluate(tmp_path / "plain")["metrics"], rel=1e-6
    )


def test_bfloat16_trains_to_about_the_same_loss(tmp_path: Path) -> None:
    results = [
        train(small_recipe(tmp_path, f"trainer.precision={name}"), tmp_path / name)
        for name in ("32-true", "bf16-mixed")
    ]
    losses = [result["metrics"]["val_loss"] for result in results]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert losses[1] != losses[0]


def test_tensorboard_is_written_when_it_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(small_recipe(tmp_path, "logger=[csv, tensorboard]", "trainer.max_steps=4"), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    written = [(event.step, event.value) for event in events.Scalars("train_loss")]
    assert written == [(row["step"], pytest.approx(row["train_loss"])) for row in rows(tmp_path / "run")]


def test_a_logger_whose_package_is_missing_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install transformer-zoo\[tensorboard\]"):
        train(small_recipe(tmp_path, "logger=[tensorboard]"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.strategy=tensor_parallel", "strategy tensor_parallel isn't there yet"),
        ("trainer.strategy=deepspeed", "strategy deepspeed isn't there yet"),
        ("trainer.strategy={name: fsdp2, data: 1, tensor: 2}", "tensor parallelism isn't there yet"),
        ("data.batch_size=0", "data.batch_size is 0"),
        ("schedule.warmup_steps=21", "warmup_steps is 21; it must be from 0 to max_steps = 20"),
        ("optimizer={name: library, algorithm: sdg}", "neither torch nor timm has an optimizer called 'sdg'"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        train(small_recipe(tmp_path, override), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Lightning refuses the trainer section"):
        train(small_recipe(tmp_path, "trainer.accelerator=cuda"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_failure_before_the_first_step_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no optimizer today")

    monkeypatch.setattr("zoo.training.module.build_optimizer", fail)
    with pytest.raises(RuntimeError, match="no optimizer today"):
        train(small_recipe(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    import logging
    import os
    import signal

    def state() -> tuple[Any, ...]:
        handlers = [logging.getLogger(name).handlers[:] for name in ("zoo", "lightning", "lightning.pytorch")]
        return dict(os.environ), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), handlers

    before = state()
    train(small_recipe(tmp_path, "trainer.max_steps=4"), tmp_path / "run")
    assert state() == before


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="resume needs to know the run"):
        train(small_recipe(tmp_path), resume=True)
    with pytest.raises(UserError, match="there is no run to resume"):
        train(small_recipe(tmp_path), tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()


def test_a_run_that_ends_early_is_saved_where_it_ended(tmp_path: Path, cache: Path) -> None:
    """Lightning's ``max_time`` asks for the end after any step; resuming must not begin again."""
    run = tmp_path / "run"
    early = train(text_recipe(tmp_path, "trainer.max_steps=1000000", "trainer.max_time=00:00:00:01"), run)
    assert 0 < early["steps"] < 1_000_000
    assert (run / "checkpoints" / f"step-{early['steps']}.ckpt").is_file()
    assert load_run(run).step == early["steps"]
