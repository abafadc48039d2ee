"""Mistakes of somebody new to the command line: one message, the right exit code, nothing written, nothing lost."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zoo.cli import main
from zoo.training.metrics import Row, read_metrics

pytestmark = pytest.mark.slow

RECIPE = """
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 16, batch_size: 4, validation: 0.2}
architecture: {name: gpt2, layers: 2, dim: 32, heads: 2, dropout: 0.1}
task: causal_lm
training: {validate_every: 4, validate_batches: 2, save_every: 4, log_every: 1}
trainer: {max_steps: 8, devices: 1, accelerator: cpu}
"""
ATTENTION = '''"""An attention of one's own."""

from zoo.contracts.attention import HeadedAttention

__all__ = ["Own"]


class Own(HeadedAttention):
    """Plain, with less on offer."""

    offers = OFFERS

    def attend(self, q_BNTH, k_BNSH, v_BNSV, call):
        return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSV
'''
INPUT = {
    "text.txt": "\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(300)),
    "short.txt": "hello",
    "empty.jsonl": "\n\n",
    "broken.jsonl": '{"text": "whole"}\n{"text": \n',
    "field.jsonl": '{"text": "whole"}\n{"body": "other"}\n',
    "folder/.hidden": "not read",
    "tiny.yaml": RECIPE,
    "tabs.yaml": "data:\n\tname: text\n",
    "twice.yaml": "seed: 1\nseed: 2\n",
    "open.yaml": RECIPE.replace("layers: 2", "layers: '???'"),
    "circle.yaml": "base: round.yaml\n",
    "round.yaml": "base: circle.yaml\n",
    "blind.py": ATTENTION.replace("OFFERS", 'frozenset({"bidirectional"})'),
    "forgetful.py": ATTENTION.replace("OFFERS", 'HeadedAttention.offers - {"cache"}'),
    "one/own.py": ATTENTION.replace("OFFERS", "HeadedAttention.offers"),
    "two/own.py": ATTENTION.replace("OFFERS", "HeadedAttention.offers"),
    "syntax.py": '"""Broken."""\n\ndef f(:\n',
    "raises.py": ATTENTION.replace("OFFERS", "HeadedAttention.no_such_name"),
}


def files(folder: Path) -> dict[Path, bytes]:
    """Content of everything below a folder but what Python compiled."""
    found = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file: file.read_bytes() for file in found}


def losses(run: Path) -> list[Row]:
    """Metrics without what a clock measured."""
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in read_metrics(run / "metrics.csv")]


def refused(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The message of a command line that fails, prints nothing else, and changes no file."""
    before = files(Path.cwd())
    capfd.readouterr()
    assert main([*arguments]) == code
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and "Traceback" not in printed.err, printed
    assert files(Path.cwd()) == before
    return printed.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with good and bad input, and a run of the good."""
    folder = tmp_path_factory.mktemp("work")
    for name, text in INPUT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "tiny.yaml", "--run", "run"]) == 0
        yield folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The run, to be damaged."""
    shutil.copytree(folder / "run", tmp_path / "run")
    return tmp_path / "run"


# Data, recipes, plugins


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.files=[txet.txt]", "txet.txt; did you mean text.txt?"),
        ("data.files=[short.txt]", "the train part has 5 tokens, and one window of length 16 takes 17"),
        ("data.files=[latin.txt]", "byte 3 of the file (0xE9) is no UTF-8 text"),
        ("data.files=[folder]", "no file in the folder"),
        ("data.files=[empty.jsonl]", "the text is empty"),
        ("data.files=[broken.jsonl]", "broken.jsonl:2"),
        ("data.files=[field.jsonl]", "no text under the key 'text'; the line has body (str)"),
        ("data.files=text.txt", "write it as a list: [text.txt]"),
        ("data.length=100000", "takes 100001"),
        ("architecture.heads=5", "width 32 is not divisible by 5 heads"),
        ("architecture.dim=-4", "dim must be positive"),
        ("architecture={position: rotary, dim: 30}", "rotary needs an even head dim, got 15"),
        ("architecture.max_length=8", "architecture.max_length is 8, the data needs 16"),
        ("architecture.vocab_size=100", "architecture.vocab_size is 100, the data needs 257"),
        ("architecture.attention={name:multi_head}", "put a space after the colon: name: multi_head"),
        ("architecture.attention.kernel=flex", "the flex kernel drops no weights, dropout is 0.1"),
        ("architecture={dropout: 0, attention: {name: multi_head, kernel: flex}}", "no backward pass on a CPU"),
        ("data.tokenizer={name:", "put the whole override in quotes"),
        ("optimizer.lr=-1", "override 1: optimizer.lr=-1"),
        ("optimizer.betas=[0.9, 2]", "override 1: optimizer.betas="),
        ("schedule.warmup_steps=100", "warmup_steps is 100; it must be from 0 to max_steps = 8"),
        ("trainer.enable_progress_bar=true", "trainer.enable_progress_bar isn't for a recipe to set"),
        ("trainer.limit_test_batches=3", "remove it; it would change nothing"),
        ("trainer.accelerator=tpu", "Lightning refuses the trainer section"),
        ("logger=[tensorbord]", "did you mean 'tensorboard'?"),
    ],
)
def test_a_recipe_that_cannot_run_is_refused_before_there_is_a_run(
    override: str, message: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = refused(capfd, "train", "tiny.yaml", override)
    assert message in said and "\n  at: " in said
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("tiny", "there is no recipe 'tiny'; did you mean 'tiny.yaml'?"),
        ("tabs.yaml", "tabs.yaml:2\n  do: indent with spaces, not with tabs"),
        ("twice.yaml", "the key 'seed' stands twice, in lines 1 and 2"),
        ("open.yaml", "architecture.layers isn't set"),
        ("circle.yaml", "circle.yaml -> round.yaml -> circle.yaml"),
        ("latin.txt", "the file isn't UTF-8 text: byte 3 is 0xe9"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(
    recipe: str, message: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capfd, "train", recipe)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attention=blind", "--plugin", "blind.py"], "needs an attention that offers 'causal'; blind offers"),
        (["attention=syntax", "--plugin", "syntax.py"], "syntax.py:3: syntax error"),
        (["attention=raises", "--plugin", "raises.py"], "raises.py:11"),
        (["attention=own", "--plugin", "one/own.py", "--plugin", "two/own.py"], "pick one: one/own.py:own or two/"),
        (["dim=32", "--plugin", "nowhere.py"], "nowhere.py doesn't exist"),
        (["dim=32", "--plugin", "text.txt"], "text.txt is neither a Python file nor a folder"),
    ],
)
@pytest.mark.parametrize("command", ["train", "info"])
def test_a_plugin_that_cannot_be_used_is_named(
    command: str, arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capfd, command, "tiny.yaml", f"architecture.{arguments[0]}", *arguments[1:])


def test_bytes_of_a_command_line_that_are_no_text_are_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = refused(capfd, "show", "tiny.yaml", "data.files=[caf\udce9.txt]")
    assert said.startswith("error: this holds bytes that are no UTF-8\n  at: override 1")


def test_a_model_without_a_cache_is_trained_and_its_sample_needs_none(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    arguments = ["architecture.attention=forgetful", "--plugin", "forgetful.py", "--run", run]
    assert main(["train", "tiny.yaml", *arguments]) == 0
    assert capfd.readouterr().out.endswith("--no-cache\n")
    assert "Own has no cache\n  do: generate without it: --no-cache" in refused(capfd, "generate", run)


# Folders and runs


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("text.txt/run", "the run folder can't be made: Not a directory"),
        ("text.txt", "the run folder can't be made"),
        ("folder", "isn't empty\n  at: --run\n  do: choose another folder\n"),
        ("", "isn't empty\n  at: --run"),
        ("run", "or continue the run in it: zoo train"),
    ],
)
def test_a_folder_that_cannot_be_the_run_s_is_refused(
    run: str, message: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capfd, "train", "tiny.yaml", "--run", run)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "run", "--resume"], "the run is already at max_steps=8; nothing is left to do"),
        (["train", "run", "--resume", "optimizer.lr=0.5"], "optimizer.lr: 0.001 -> 0.5"),
        (["train", "run", "--resume", "trainer.max_steps=4"], "trainer.max_steps: 8 -> 4"),
        (["train", "folder", "--resume"], "--resume needs to know which run of folder to go on with"),
        (["train", "tiny.yaml", "--resume", "--run", "nowhere"], "there is no run to resume"),
        (["eval", "nowhere"], "nowhere is no run folder"),
        (["eval", "run", "--split", "nope"], "'nope' is not one of 'validation', 'test'"),
        (["eval", "run", "data.files=[nowhere.txt]"], "no file "),
        (["eval", "run", "data.tokenizer=char"], "at: override 1: data.tokenizer=char (data.tokenizer)"),
        (["eval", "run", "data.tokenizer=char"], "tokenizer char can't take over from the one that the model was"),
        (["eval", "run", "data.length=64"], "the data needs max_length 64, the run's model has 16"),
        (["eval", "run", "architecture.dim=64"], "tokens.weight (257, 32) instead of (257, 64)"),
        (["generate", "tiny.yaml"], "tiny.yaml is no run folder"),
        (["generate", "run", "--temperature", "nan"], "temperature is nan; it must be at least 0"),
        (["generate", "run", "--max-new-tokens", "0"], "max_new_tokens is 0; it must be at least 1"),
        (["generate", "run", "--prompt", "longer than a window"], "prompt 1 has 20 tokens, the model takes at most 16"),
    ],
)  # fmt: skip
def test_what_a_run_cannot_do_is_refused_and_leaves_it_as_it_was(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capfd, *arguments)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("prompt", ["", "<|endoftext|>", "\N{SLIGHTLY SMILING FACE}\xe9"])
def test_any_prompt_is_text_from_its_first_character_to_its_last(
    prompt: str, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    options = ["--prompt", prompt, "--max-new-tokens", "3", "--top-k", "100000", "--json"]
    assert main(["generate", "run", *options]) == 0
    (result,) = json.loads(capfd.readouterr().out)
    assert result["prompt"] == prompt and len(result["tokens"]) == 3


class _Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_that_holds_code_is_not_run(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (copy / "model.safetensors").unlink()
    trap = copy.parent / "trap"
    for checkpoint in (copy / "checkpoints").iterdir():
        checkpoint.unlink()
        checkpoint.write_bytes(pickle.dumps(_Hostile(trap)))
    for command in (["generate"], ["eval"], ["train", "--resume", "trainer.max_steps=9"]):
        assert "no checkpoint can be read" in refused(capfd, command[0], str(copy), *command[1:])
    assert not trap.exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-100], lambda data: b"?" * 500, lambda data: b""])
def test_damaged_weights_are_named(damage: Any, copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    weights = copy / "model.safetensors"
    weights.write_bytes(damage(weights.read_bytes()))
    for command in ("generate", "eval"):
        said = refused(capfd, command, str(copy))
        assert said.startswith("error: the weights can't be read: ") and str(weights) in said


# Processes


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A command line in a process of its own, in which Ctrl-C is not ignored."""
    return subprocess.Popen(
        [sys.executable, "-m", "zoo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def test_ctrl_c_saves_and_resuming_is_as_if_nothing_had_been(folder: Path, tmp_path: Path) -> None:
    steps = ("trainer.max_steps=600", "training.validate_every=100", "training.save_every=100")
    process = start("train", "tiny.yaml", "--run", str(tmp_path / "stopped"), *steps)
    metrics, until = tmp_path / "stopped" / "metrics.csv", time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if metrics.is_file() and metrics.read_text().count("\n") > 20:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and "state saved" in said and "Traceback" not in said, said
    done = len(losses(tmp_path / "stopped"))
    assert 20 <= done < 600
    assert main(["train", str(tmp_path / "stopped"), "--resume"]) == 0
    assert main(["train", "tiny.yaml", "--run", str(tmp_path / "whole"), *steps]) == 0
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("seconds", [0.4, 1.5])
def test_ctrl_c_before_training_leaves_nothing(seconds: float, tmp_path: Path) -> None:
    process = start("train", "tiny.yaml", "--run", str(tmp_path / "run"), "trainer.max_steps=100000")
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in said, said
    assert not (tmp_path / "run").exists() or "state saved" in said


def test_two_trainings_at_once_share_an_empty_cache(folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "ZOO_CACHE": str(tmp_path / "cache")}
    both = [start("train", "tiny.yaml", "--run", str(tmp_path / name), "--json", env=environment) for name in "ab"]
    printed = [process.communicate(timeout=180) for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    first, second = (json.loads(out) for out, _ in printed)
    assert first["metrics"] == second["metrics"] and first["run"] != second["run"]
    assert losses(tmp_path / "a") == losses(tmp_path / "b") == losses(folder / "run")
    assert len([*(tmp_path / "cache" / "tokens").glob("*.tokens")]) == 1


def test_two_ranks_print_one_document(folder: Path, tmp_path: Path) -> None:
    process = start("train", "tiny.yaml", "trainer.devices=2", "--run", str(tmp_path / "run"), "--json")
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert json.loads(out)["steps"] == 8 and len(losses(tmp_path / "run")) == 8


def test_a_loss_that_is_not_finite_is_code_3(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = refused(capfd, "train", "tiny.yaml", "optimizer.lr=1e30", "--run", str(tmp_path / "run"), code=3)
    assert said == "error: diverged at step 2: loss is nan\n"
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "diverged"
