"""The command line: what it imports, what it accepts, what it prints where, and with which code it ends."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from zoo.cli import main, output
from zoo.cli.program import COMMANDS, commands
from zoo.errors import Diverged, Interrupted, RunFailed, UserError
from zoo.registry import Registry

HEAVY = {"torch", "lightning", "omegaconf", "rich", "numpy", "transformers", "torchvision", "timm", "tiktoken"}

ACCEPTED = {
    "predict": "RUN INPUTS --top --plugin --json",
    "compare": "SOURCE OVERRIDES --run --dry-run --workers --executor --watch --plugin --json",
    "diff": "FIRST SECOND --plugin --json",
    "plan": "OVERRIDES --flops --gpu-hours --device --peak --utilisation "
    "--recipe --ratio --fit --output --plugin --json",
    "replay": "RUN --run --anyway --stop-at-first --plugin --json",
    "scale": "SOURCE OVERRIDES --run --dry-run --workers --executor --count --metric --draws --seed --plugin --json",
    "verify": "NAMES --list --plugin --json",
    "list": "KIND --plugin --json",
    "show": "SOURCE OVERRIDES --explain --plugin --json",
    "info": "SOURCE OVERRIDES --plugin --json",
    "train": "SOURCE OVERRIDES --run --resume --plugin --json",
    "eval": "RUN OVERRIDES --split --bleu --beams --length-penalty --plugin --json",
    "generate": "RUN --prompt --max-new-tokens --temperature --top-k --top-p "
    "--beams --length-penalty --no-cache --seed --plugin --json",
    "check": "TARGET OVERRIDES --full --plugin --json",
    "matrix": "NAME --run --workers --plugin --json",
    "new": "KIND NAME --package",
    "doctor": "--plugin --json",
}
"""Arguments and options of each command, in order."""


def zoo(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zoo", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )


def imported_by(*arguments: str) -> tuple[set[str], str]:
    """Heavy modules that a command line imports, and what it prints on stdout."""
    code = (
        "import sys; from zoo.cli import main; main(sys.argv[1:]); "
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1].replace("'", '"'))) & HEAVY, done.stdout


# Imports (bugs X6)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list"], ["list", "--json"], ["train", "--help"], ["lst"], ["list", "x"]]
)
def test_help_listing_and_mistakes_import_nothing_heavy(arguments: list[str]) -> None:
    assert imported_by(*arguments)[0] == set()


def test_a_plugin_that_imports_torch_does_not_slow_the_listing(tmp_path: Path) -> None:
    plugin = tmp_path / "heavy.py"
    plugin.write_text(
        '"""An attention with a heavy import."""\nimport torch\nfrom zoo.contracts.attention import Attention\n'
        '__all__ = ["Heavy"]\nclass Heavy(Attention):\n    """Heavy."""\n    offers = frozenset()\n'
    )
    modules, printed = imported_by("list", "attention", "--plugin", str(plugin))
    assert modules == set()
    lines = [line.split(maxsplit=3) for line in printed.splitlines()]
    assert ["attention", "heavy", "heavy.py", "An attention with a heavy import."] in lines


# What is accepted


def test_commands_and_options_are_these() -> None:
    found = {}
    for name in commands.list_commands(click.Context(commands)):
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        found[name] = [
            parameter.opts[0] if isinstance(parameter, click.Option) else parameter.name.upper()
            for parameter in command.params
        ]
    assert found == {name: words.split() for name, words in ACCEPTED.items()}


def test_every_command_is_a_file_and_every_file_but_the_shared_ones_a_command() -> None:
    files = {file.stem for file in (Path(output.__file__).parent).glob("*.py")}
    assert files - {"__init__", "program", "options", "output"} == set(COMMANDS)


def test_every_command_and_option_says_what_it_is_for() -> None:
    for name in COMMANDS:
        command = commands.get_command(click.Context(commands), name)
        assert command is not None and command.help
        assert len(command.get_short_help_str(60)) <= 60 and not command.get_short_help_str(60).endswith("...")
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help or isinstance(parameter.type, click.Choice), f"{name} {parameter.opts}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "error: there is no command 'lst'; did you mean 'list'?\n  do: see zoo --help\n"),
        (["serve"], "error: there is no command 'serve'\n"),
        (
            ["train", "--resum"],
            "error: No such option '--resum'. (Did you mean one of: '--resume', '--run'?)\n  do: see zoo train -",
        ),
        (["generate", "x", "--seed", "a"], "error: Invalid value for '--seed': 'a' is not a valid integer."),
        (["eval"], "error: Missing argument 'RUN'.\n  do: see zoo eval --help\n"),
        (["eval", "x", "--split", "train"], "error: Invalid value for '--split': 'train' is not one of"),
        (["list", "atention"], "error: 'atention' is no kind of component; did you mean 'attention'?\n"),
        (["list", "--plugin", "nowhere.py"], "nowhere.py doesn't exist\n"),
        (["show", "no_such_recipe"], "error: there is no recipe 'no_such_recipe'\n  at: "),
        (["show", "gpt2", "architecture.layer=3"], "architecture.layer "),
        (
            ["show", "gpt2", "architecture.layers"],
            "error: an override needs a value\n  at: override 1: architecture.layers\n",
        ),
    ],
)
def test_a_mistake_is_one_message_on_stderr_and_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert "Traceback" not in printed.err


def test_a_misspelt_key_is_told_with_what_it_may_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gpt2", "architecture.layrs=3", "--json"]) == 2
    printed = capsys.readouterr()
    assert "'layers'" in printed.err and "override 1" in printed.err
    assert printed.out == ""


def test_no_command_prints_the_help_and_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Commands:\n  list " in capsys.readouterr().err


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    import zoo as package

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"transformer-zoo {package.__version__}\n"


# Listing


def test_the_listing_has_a_line_for_every_component(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    components = Registry.discover().components()
    assert len(lines) == len(components)
    for line, component in zip(lines, components, strict=True):
        assert line.split()[:3] == [component.kind, component.name, component.provider]
        assert line.endswith(component.summary.replace("``", ""))
        assert "`" not in line


def test_the_listing_as_json_has_the_promised_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "position", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["name"] for record in records] == [each.name for each in Registry.discover().components("position")]
    fields = {"kind", "name", "summary", "provider", "version", "file", "status", "error"}
    assert all(set(record) == fields and record["status"] == "ok" for record in records)


def test_a_broken_file_is_listed_with_its_error_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "attention" / "half.py"
    broken.parent.mkdir()
    broken.write_text('"""Half."""\ndef (\n')
    assert main(["list", "attention", "--plugin", str(tmp_path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " half " in line]
    assert f"BROKEN: {broken}:2: " in line


# Codes


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Callable[[], int]:
    """A command line whose command raises an error."""

    def discover(_plugins: Any) -> Registry:
        raise error

    monkeypatch.setattr(Registry, "discover", discover)
    return lambda: main(["list"])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("[red] is no colour", where="a:1", fix="b"), 2, "error: [red] is no colour\n  at: a:1\n  do: b\n"),
        (RunFailed("no target in all of it"), 1, "error: no target in all of it\n"),
        (Diverged(7, "loss is nan"), 3, "error: diverged at step 7: loss is nan\n"),
        (Interrupted(2, 5), 130, "error: interrupted after step 5; state saved\n"),
        (Interrupted(15, 5), 143, "error: interrupted after step 5; state saved\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/runs/a"), 1, "error: No space left on device: /runs/a\n"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/runs"),
            2,
            "error: Permission denied: /runs\n  do: choose",
        ),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, ""),
        (SystemExit(4), 4, ""),
    ],
)
def test_an_error_has_its_code_and_no_traceback(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("zoo.cli.program._silence_stdout", lambda: None)
    assert failing(monkeypatch, error)() == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.strip().startswith(message.strip()) and "Traceback" not in printed.err


def test_an_unexpected_error_keeps_its_traceback_and_says_that_it_is_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(monkeypatch, ZeroDivisionError("division by zero"))() == 1
    printed = capsys.readouterr().err
    assert "Traceback" in printed and "ZeroDivisionError: division by zero" in printed
    assert printed.endswith("error: this is a bug of the zoo or of a plugin; please report it with the lines above\n")


def test_a_bug_in_a_plugin_names_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "faulty.py"
    plugin.write_text(
        '"""An MLP that fails."""\nfrom zoo.contracts.feed_forward import FeedForward\n__all__ = ["Faulty"]\n'
        'class Faulty(FeedForward):\n    """Fails."""\n    def __init__(self, config, **parent):\n'
        "        super().__init__(config, **parent)\n        self.hidden = parent['width']\n"
        "    def forward(self, x_BTD, **rest):\n        return x_BTD\n"
    )
    code = main(["info", "gpt2", "architecture.feed_forward=faulty", "--plugin", str(plugin)])
    printed = capsys.readouterr().err
    assert code == 1
    assert "KeyError: 'width'" in printed
    assert printed.endswith(f"error: this is a bug of the plugin {plugin}:8; please report it with the lines above\n")


# Output


def test_json_keeps_everything_else_off_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with output.stdout_kept_for_json(True):
        print("from Python")
        subprocess.run(["echo", "from another process"], check=True)
    output.print_json({"loss": math.nan, "path": Path("a"), "more": [math.inf, 1.5, None, "é"]})
    printed = capfd.readouterr()
    assert json.loads(printed.out) == {"loss": None, "path": "a", "more": [None, 1.5, None, "é"]}
    assert "from Python" in printed.err and "from another process" in printed.err


def test_a_closed_pipe_is_silent() -> None:
    reader = subprocess.Popen(
        [sys.executable, "-m", "zoo", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None and reader.stderr is not None
    reader.stdout.close()
    assert reader.stderr.read() == ""
    assert reader.wait() == 1


@pytest.mark.slow
def test_where_unicode_cannot_be_printed_a_text_is_escaped_and_json_stays_json(tmp_path: Path) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text("base: preset/gpt2\ndata: {field: 😀}\ntask: causal_lm\n", encoding="utf-8")
    document = zoo("show", str(recipe), "--json", PYTHONIOENCODING="ascii")
    assert json.loads(document.stdout)["data"]["field"] == "😀"
    text = zoo("show", str(recipe), PYTHONIOENCODING="latin-1")
    assert text.returncode == 0 and "  field: \\U0001f600\n" in text.stdout


ROWS = [("attention", "multi_head", "Several attentions side by side."), ("norm", "rms_norm", "")]


def test_a_table_in_a_pipe_is_never_wrapped() -> None:
    assert output.table(ROWS) == "attention  multi_head  Several attentions side by side.\nnorm       rms_norm"


def test_a_table_is_wrapped_to_the_terminal() -> None:
    assert output.table(ROWS, width=48) == (
        "attention  multi_head  Several attentions side\n                       by side.\nnorm       rms_norm"
    )


def test_a_table_on_a_narrow_terminal_puts_the_text_below() -> None:
    printed = output.table(ROWS, width=40)
    assert printed == "attention multi_head\n    Several attentions side by side.\nnorm rms_norm"
    assert max(map(len, printed.splitlines())) <= 40


def test_the_listing_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 40)
    assert main(["list"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 40


def test_show_prints_a_recipe_that_can_be_loaded_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gpt2", "architecture.layers=3", "task=causal_lm"]) == 0
    saved = tmp_path / "again.yaml"
    saved.write_text(capsys.readouterr().out)
    assert main(["show", str(saved), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert main(["show", "gpt2", "architecture.layers=3", "task=causal_lm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == again
    assert again["architecture"]["layers"] == 3


def test_explain_says_where_each_value_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gpt2", "architecture.layers=3", "--explain", "--json"]) == 0
    origins = {entry["path"]: entry["origin"] for entry in json.loads(capsys.readouterr().out)}
    assert origins["architecture.layers"] == "override 1: architecture.layers=3"
    assert origins["architecture.dim"].endswith("gpt2.yaml:7")
    assert origins["architecture.dropout"] == "default of architecture gpt2"


def test_info_prints_the_article_s_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "gpt2"]) == 0
    printed = capsys.readouterr().out
    for line in (
        "attention multi_head, per layer              2,362,368",
        "12 layers                                   85,054,464",
        "total                                      124,439,808",
        "  without embeddings                        85,056,000",
        "multiply-adds per token  142,406,400",
        "optimizer    995.52 MB",
    ):
        assert line in printed.splitlines()
