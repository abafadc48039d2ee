"""From a plugin file to generated text through the commands alone, in one working directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zoo.cli import main

pytestmark = pytest.mark.slow

RECIPE = """
plugins: [./plain.py]
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 16, batch_size: 4, validation: 0.2}
architecture: {name: gpt2, layers: 1, dim: 16, heads: 2, attention: plain}
task: causal_lm
training: {validate_every: 4, validate_batches: 2, save_every: 4}
trainer: {max_steps: 6, devices: 1, accelerator: cpu}
"""
ATTENTION = '''"""Attention as short as it gets."""

from zoo.contracts.attention import HeadedAttention

__all__ = ["Plain"]


class Plain(HeadedAttention):
    """The shortest right body."""

    def attend(self, q_BNTH, k_BNSH, v_BNSV, call):
        return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSV
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with a recipe, its plugin and its text, and a run of it."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "own.yaml").write_text(RECIPE)
    (folder / "plain.py").write_text(ATTENTION)
    (folder / "text.txt").write_text("\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(300)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "own.yaml"]) == 0
        yield folder


def document(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capfd.readouterr()
    assert main([*arguments, "--json"]) == code
    return json.loads(capfd.readouterr().out)


def test_a_run_is_evaluated_and_writes_text_after_its_data_and_recipe_are_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    measured = document(capfd, "eval", "runs/own-1")
    assert measured["status"] == "completed" and measured["steps"] == 6
    assert 0 < measured["metrics"]["val_loss"] < 6
    before = document(capfd, "generate", "runs/own-1", "--prompt", "Sentence", "--max-new-tokens", "9")
    shutil.move(folder / "own.yaml", tmp_path / "own.yaml")
    shutil.move(folder / "text.txt", tmp_path / "text.txt")
    try:
        monkeypatch.chdir(tmp_path)
        run = str(folder / "runs" / "own-1")
        after = document(capfd, "generate", run, "--prompt", "Sentence", "--max-new-tokens", "9", "--no-cache")
        assert after == before and len(after[0]["tokens"]) == 9
    finally:
        shutil.move(tmp_path / "own.yaml", folder / "own.yaml")
        shutil.move(tmp_path / "text.txt", folder / "text.txt")


def test_a_batch_of_prompts_equals_one_at_a_time(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prompts = ["Sentence 7", "a", "é"]
    options = ["--max-new-tokens", "6", "--temperature", "0.8"]
    together = [argument for prompt in prompts for argument in ("--prompt", prompt)]
    alone = [document(capfd, "generate", "runs/own-1", "--prompt", prompt, *options)[0] for prompt in prompts]
    assert document(capfd, "generate", "runs/own-1", *together, *options) == alone


def test_a_run_goes_on_to_more_steps_and_a_finished_one_says_that_it_is(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "runs" / "own-1", tmp_path / "copy")
    run = str(tmp_path / "copy")
    assert document(capfd, "train", run, "--resume", "trainer.max_steps=8")["steps"] == 8
    assert main(["train", run, "--resume", "--json"]) == 2
    assert "already at max_steps=" in capfd.readouterr().err


def test_a_folder_that_holds_a_run_is_not_trained_in_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = {file: file.read_bytes() for file in (folder / "runs" / "own-1").rglob("*") if file.is_file()}
    assert main(["train", "own.yaml", "--run", "runs/own-1"]) == 2
    assert "--resume" in capfd.readouterr().err
    assert {file: file.read_bytes() for file in (folder / "runs" / "own-1").rglob("*") if file.is_file()} == files


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.files=[missing.txt]"], "missing.txt"),
        (["data.files=[empty.txt]"], "empty.txt"),
        (["data.files=[binary.txt]"], "binary.txt"),
        (["data.length=100000"], "100"),
        (["architecture.dim=15"], "15"),
        (["architecture.attention=plan"], "did you mean 'plain'"),
        (["--run", "file.txt/run"], "file.txt"),
    ],
)
def test_input_that_cannot_be_used_is_one_message_and_makes_no_run(
    overrides: list[str], message: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.txt").write_text("")
    (folder / "binary.txt").write_bytes(b"ok \xff\xfe caf\xc3")
    (folder / "file.txt").write_text("a file")
    before = sorted((folder / "runs").iterdir())
    assert main(["train", "own.yaml", *overrides]) == 2
    printed = capfd.readouterr()
    assert printed.out == "" and "error: " in printed.err and message in printed.err
    assert "Traceback" not in printed.err
    assert sorted((folder / "runs").iterdir()) == before


def test_a_plugin_file_is_checked_listed_and_counted(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = document(capfd, "check", "plain.py")
    assert report["failed"] == 0 and report["passed"] > 20
    (record,) = [
        each for each in document(capfd, "list", "attention", "--plugin", "plain.py") if each["name"] == "plain"
    ]
    assert record["provider"] == "plain.py" and record["summary"] == "Attention as short as it gets."
    assert document(capfd, "info", "own.yaml")["parameters"]["by_part"]["attention"] == 4 * (16 * 16 + 16)
