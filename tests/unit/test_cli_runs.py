"""Commands that make or use a run: what they hand on, and what they print. Training itself is tested elsewhere."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zoo.cli import main
from zoo.errors import Diverged, UserError
from zoo.registry import Registry
from zoo.testing.report import Finding, Report
from zoo_builtin.architecture.gpt2 import GPT2
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.residual.pre import Pre
from zoo_builtin.tokenizer.byte import Byte

RECIPE = """
data: {name: text, tokenizer: byte, length: 16, batch_size: 2}
architecture: {name: gpt2, layers: 1, dim: 16, heads: 2}
task: causal_lm
"""
NORM = """
'''A norm.'''
from zoo.contracts.norm import Norm
__all__ = ["Mine"]
class Mine(Norm): ...
"""
METRICS = {"val_loss": 1.25, "val_accuracy": float("nan")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a recipe in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(RECIPE)
    return tmp_path


class Backend:
    """Stands in for training, evaluation and loading, and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.error: Exception | None = None
        parts = {"position": Learned.part(), "feed_forward": MLP.part(), "norm": LayerNorm.part()}
        config = GPT2.Config(vocab_size=257, max_length=256, layers=1, dim=16, heads=2)
        self.model = GPT2(
            config,
            attention=MultiHead.part(),
            residual=Pre.part(),
            embedding=Tokens.part(),
            head=LanguageModel.part(),
            **parts,
        )
        self.model.initialize(0)
        self.tokenizer: Byte | None = Byte(Byte.Config())

    def train(self, recipe: Any, run: Any = None, resume: bool = False) -> dict[str, Any]:
        print("chatter of a library")
        self.asked |= {"recipe": recipe, "run": run, "resume": resume}
        if self.error:
            raise self.error
        return {"run": "runs/small 1", "status": "completed", "steps": 1200, "split": "validation", "metrics": METRICS}

    def evaluate(self, run: Any, overrides: Any, split: str, **decoding: Any) -> dict[str, Any]:
        print("chatter of a library")
        self.asked |= {"run": run, "overrides": overrides, "split": split, "plugins": os.environ.get("ZOO_PLUGINS")}
        self.asked["decoding"] = decoding
        return {"run": str(run), "status": "completed", "steps": 7, "split": split, "metrics": {"test_loss": 2.0}}

    def load_run(self, run: Any) -> Any:
        self.asked["loaded"] = run
        return SimpleNamespace(model=self.model, tokenizer=self.tokenizer)


@pytest.fixture
def backend(here: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
    made = Backend()
    for name in ("train", "evaluate", "run"):
        monkeypatch.setitem(sys.modules, f"zoo.training.{name}", made)
    return made


# zoo train


def test_train_hands_on_the_recipe_with_its_overrides(backend: Backend) -> None:
    assert main(["train", "small.yaml", "architecture.dim=32", "seed=5", "--run", "there"]) == 0
    assert backend.asked["recipe"].tree["architecture"]["dim"] == 32
    assert backend.asked["recipe"].seed == 5
    assert (backend.asked["run"], backend.asked["resume"]) == (Path("there"), False)


def test_train_ends_with_metrics_a_sample_and_the_next_command(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "small.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("completed after 1,200 steps:")
    assert lines[at + 1 : at + 4] == ["val_loss      1.2500", "val_accuracy     nan", "run: runs/small 1"]
    assert "it writes:" in lines
    command = shlex.split(lines[-1].removeprefix("next: "))
    assert command[:4] == ["zoo", "generate", "runs/small 1", "--prompt"]
    assert main(command[1:]) == 0


def test_train_of_a_model_that_writes_no_text_names_another_command(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.tokenizer = None
    assert main(["train", "small.yaml"]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("next: zoo eval 'runs/small 1' --split test\n") and "it writes" not in printed


def test_train_as_json_is_one_document(backend: Backend, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small.yaml", "--json"]) == 0
    printed = capfd.readouterr()
    document = json.loads(printed.out)
    assert set(document) == {"run", "status", "steps", "split", "metrics"}
    assert document["metrics"] == {"val_loss": 1.25, "val_accuracy": None}
    assert "chatter of a library" in printed.err


def test_a_run_that_diverges_prints_no_document(backend: Backend, capfd: pytest.CaptureFixture[str]) -> None:
    backend.error = Diverged(3, "loss is nan")
    assert main(["train", "small.yaml", "--json"]) == 3
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err.endswith("error: diverged at step 3: loss is nan\n")


def test_a_mistake_in_the_recipe_is_found_before_anything_is_imported_or_made(
    backend: Backend, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "small.yaml", "trainer.max_step=5"]) == 2
    assert "max_steps" in capsys.readouterr().err
    assert backend.asked == {} and not (here / "runs").exists()


def finished(folder: Path, age: float) -> Path:
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    os.utime(folder / "recipe.yaml", (1e9 - age, 1e9 - age))
    return folder


def test_a_run_folder_resumes_without_a_recipe(backend: Backend, here: Path) -> None:
    finished(here / "runs" / "small-1", age=0)
    assert main(["train", "runs/small-1", "--resume", "trainer.max_steps=9"]) == 0
    assert (backend.asked["run"], backend.asked["resume"]) == (Path("runs/small-1"), True)
    assert backend.asked["recipe"].tree["architecture"]["dim"] == 16
    assert backend.asked["recipe"].trainer["max_steps"] == 9


def test_a_recipe_resumes_in_the_run_that_is_named(backend: Backend) -> None:
    assert main(["train", "small.yaml", "--resume", "--run", "elsewhere"]) == 0
    assert (backend.asked["run"], backend.asked["resume"]) == (Path("elsewhere"), True)


def test_resuming_a_recipe_without_a_run_lists_the_candidates(
    backend: Backend, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(here / "runs" / "small-1", age=9)
    finished(here / "runs" / "small-2", age=1)
    finished(here / "runs" / "other-1", age=0)
    assert main(["train", "small.yaml", "--resume"]) == 2
    printed = capsys.readouterr().err
    assert "candidates, newest first: runs/small-2, runs/small-1\n" in printed
    assert "do: zoo train runs/small-2 --resume, or zoo train small.yaml --resume --run DIR" in printed
    assert backend.asked == {}


def test_resuming_where_nothing_ran_says_so(backend: Backend, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small.yaml", "--resume"]) == 2
    assert f"none in {here / 'runs'}" in capsys.readouterr().err


# zoo eval


def test_eval_hands_on_split_overrides_and_plugins(
    backend: Backend, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZOO_PLUGINS", "")
    (here / "mine.py").write_text(
        '"""Mine."""\nfrom zoo.contracts.norm import Norm\n__all__ = ["Mine"]\nclass Mine(Norm): ...\n'
    )
    assert main(["eval", "r", "data.length=8", "--split", "test", "--plugin", "mine.py"]) == 0
    expected = {"run": "r", "overrides": ("data.length=8",), "split": "test", "plugins": str(here / "mine.py")}
    assert backend.asked == {**expected, "decoding": {"beams": None, "length_penalty": 1.0}}
    assert capsys.readouterr().out.endswith("completed after 7 steps:\ntest_loss  2.0000\nrun: r\n")


def test_eval_with_bleu_says_how_to_write(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "r", "--bleu"]) == 0
    assert backend.asked["decoding"] == {"beams": 1, "length_penalty": 1.0}
    assert main(["eval", "r", "--bleu", "--beams", "4", "--length-penalty", "0.6"]) == 0
    assert backend.asked["decoding"] == {"beams": 4, "length_penalty": 0.6}
    assert main(["eval", "r", "--beams", "4"]) == 2
    assert "--beams and --length-penalty are for --bleu alone" in capsys.readouterr().err


def test_eval_as_json_is_one_document(backend: Backend, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "r", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document == {
        "run": "r",
        "status": "completed",
        "steps": 7,
        "split": "validation",
        "metrics": {"test_loss": 2.0},
    }


# zoo generate


def test_generate_as_json_has_new_ids_and_text_without_the_prompt(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "r", "--prompt", "ab", "--prompt", "é", "--max-new-tokens", "5", "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert [entry["prompt"] for entry in document] == ["ab", "é"]
    for entry in document:
        assert set(entry) == {"prompt", "text", "tokens", "stop"}
        assert len(entry["tokens"]) == 5 and entry["stop"] == "length"
        assert entry["text"] == Byte(Byte.Config()).decode(entry["tokens"])
    assert main([*arguments, "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out) == document


def test_generate_streams_the_prompt_and_the_same_text(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--prompt", "The ", "--max-new-tokens", "40", "--temperature", "0.7", "--top-k", "50", "--seed", "3"]
    assert main(["generate", "r", *options, "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert main(["generate", "r", *options]) == 0
    assert capsys.readouterr().out == f"The {entry['text']}\n"


def test_generate_prints_several_texts_apart(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-new-tokens", "3", "--temperature", "0"]
    assert main(["generate", "r", "--prompt", "ab", "--prompt", "cd", *options]) == 0
    first, second = capsys.readouterr().out.split("\n\n", 1)
    assert first.startswith("ab") and second.startswith("cd")


def test_generate_without_a_prompt_starts_a_text(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "r", "--max-new-tokens", "3", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["prompt"] == "" and len(entry["tokens"]) <= 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--temperature", "-1"], "temperature is -1.0; it must be at least 0 (0 is greedy)"),
        (["--top-k", "-1"], "top_k is -1; it must be at least 0 (0 is off)"),
        (["--top-p", "2"], "top_p is 2.0; it must be from 0 to 1 (1 is off)"),
        (["--prompt", "x" * 257], "prompt 1 has 257 tokens, the model takes at most 256"),
    ],
)
def test_generate_refuses_what_cannot_be(
    options: list[str], message: str, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "r", *options, "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith(f"error: {message}")


def test_greedy_is_top_1_and_a_top_k_beyond_the_vocabulary_is_all_of_it(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    def tokens(*options: str) -> list[int]:
        assert main(["generate", "r", "--prompt", "a", "--max-new-tokens", "6", "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)[0]["tokens"]

    assert tokens("--temperature", "0") == tokens("--top-k", "1") == tokens("--top-p", "0")
    assert tokens("--top-k", "100000") == tokens("--top-k", "257") and len(tokens("--top-k", "0")) == 6


# zoo check, new, doctor


@pytest.mark.parametrize(("status", "code"), [("passed", 0), ("failed", 1)])
def test_check_prints_its_report_and_fails_with_it(
    status: Any, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("norm/halved", [Finding("keeps the shape", status, "")])
    monkeypatch.setitem(sys.modules, "zoo.testing.check", SimpleNamespace(check=lambda *_, **__: report))
    assert main(["check", "norm/halved", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == report.json()
    assert main(["check", "norm/halved"]) == code
    assert capsys.readouterr().out == report.text() + "\n"


def test_new_writes_files_that_can_be_listed_and_overwrites_none(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "norm", "halved"]) == 0
    lines = capsys.readouterr().out.splitlines()
    written = [here / line.removeprefix("wrote ") for line in lines if line.startswith("wrote ")]
    assert len(written) == 2 and all(file.is_file() for file in written)
    assert lines[-1] == "next: zoo check halved.py"
    assert main(["list", "norm", "--plugin", "halved.py"]) == 0
    listed = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert ["norm", "halved", "halved.py"] in listed
    before = [file.read_bytes() for file in written]
    assert main(["new", "norm", "halved"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert [file.read_bytes() for file in written] == before


def test_new_says_which_kinds_there_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "attenton", "halved"]) == 2
    assert "did you mean 'attention'?" in capsys.readouterr().err
    assert list(here.iterdir()) == [here / "small.yaml"]


@pytest.fixture
def quick_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.cli.doctor._import_seconds", lambda module: None if module == "torch" else 0.25)
    monkeypatch.setitem(sys.modules, "zoo.training.job", SimpleNamespace(cache_folder=lambda: Path("/a/cache")))


@pytest.mark.usefixtures("quick_imports")
def test_doctor_names_broken_plugins_and_clashes(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "half.py").write_text('"""Half."""\ndef (\n')
    for folder in ("one", "two"):
        (here / folder).mkdir()
        assert main(["new", "norm", "halved"]) == 0
        (here / "halved.py").rename(here / folder / "halved.py")
        (here / "test_halved.py").unlink()
    capfd.readouterr()
    plugins = ["--plugin", "half.py", "--plugin", "one/halved.py", "--plugin", "two/halved.py"]
    assert main(["doctor", *plugins, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert set(document) == {"versions", "devices", "plugins", "problems", "import_seconds", "caches", "missing"}
    broken, clash = document["problems"]
    assert broken.startswith(f"unknown 'half' of half.py is broken: {here / 'half.py'}:2: ")
    assert clash.startswith("norm/halved is offered by one/halved.py and by two/halved.py; recipes must say which: ")
    assert document["import_seconds"]["torch"] is None
    counted = sum(1 for each in Registry.discover().components() if each.status == "ok")
    assert f"{counted} ok" in document["plugins"].values()
    assert document["caches"]["data"] == "/a/cache"


@pytest.mark.usefixtures("quick_imports")
def test_doctor_prints_a_section_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "versions",
        "devices",
        "plugins",
        "problems",
        "import seconds",
        "caches",
        "missing",
    ]
    assert "  torch              missing" in lines and "  zoo                0.250 s" in lines


def test_a_user_error_of_a_backend_is_a_message(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    backend.error = UserError("runs/small-1 isn't empty", where="--run", fix="choose another folder")
    assert main(["train", "small.yaml", "--json"]) == 2
    assert capsys.readouterr().err.endswith(
        "error: runs/small-1 isn't empty\n  at: --run\n  do: choose another folder\n"
    )
