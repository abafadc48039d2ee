"""The group of all commands, and what becomes of an error: a message, an exit code, a traceback only for a bug.

Plain click: with it ``zoo --help`` takes half the time that it takes with typer, and a command a quarter.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Self

import click

from zoo.errors import Diverged, Interrupted, RunFailed, UserError

COMMANDS = (
    "list",
    "show",
    "info",
    "train",
    "eval",
    "generate",
    "predict",
    "compare",
    "scale",
    "plan",
    "diff",
    "replay",
    "verify",
    "check",
    "matrix",
    "new",
    "doctor",
)
"""Names of all commands in the order of the help; each is ``command`` in the module of that name."""


class Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or ``None``."""
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"zoo.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments ask for; says near names where there is none."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from zoo.component import did_you_mean

            raise click.UsageError(f"there is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="transformer-zoo", message="transformer-zoo %(version)s")
def commands() -> None:
    """Swap a part of a transformer, train it from a recipe, know whether it is better."""


def run(arguments: Sequence[str] | None) -> int:
    """Run a command line and return its exit code.

    0 done; 1 a run or check failed, or a bug; 2 the input is wrong; 3 diverged; 128 + n for signal n.
    """
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")  # a terminal that can't show a character is no reason to stop
    with _Interrupts() as interrupts:
        try:
            code = commands.main(args=arguments, prog_name="zoo", standalone_mode=False)
            sys.stdout.flush()
        except BaseException as error:
            return _report(KeyboardInterrupt() if interrupts.seen else error)
    return code or 0


class _Interrupts:
    """Remembers a Ctrl-C: one that falls into an import is swallowed by some libraries, which then fail otherwise.

    While a run trains, its own handler takes the signal instead of this one.
    """

    seen = False

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with contextlib.suppress(ValueError):  # only the main thread can take signals
                signal.signal(signal.SIGINT, self._interrupt)
        return self

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        signal.default_int_handler(number, frame)

    def __exit__(self, *error: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _report(error: BaseException) -> int:
    """Say what went wrong on stderr; the exit code."""
    match error:
        case UserError():
            return _say(str(error), 2)
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return 2
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "zoo"
            return _say(f"{error.format_message()}\n  do: see {command} --help", 2)
        case click.Abort() | KeyboardInterrupt():
            # An interrupted exec of text, as dataclasses make their methods by, leaves a mark in CPython that it was
            # unhandled; at its end the process would kill itself by the signal. Another exec takes the mark away.
            exec("")
            return 130
        case Interrupted():
            return _say(str(error), 128 + error.signal_number)
        case Diverged():
            return _say(str(error), 3)
        case RunFailed():
            return _say(str(error), 1)
        case SystemExit():
            return _system_exit(error)
        case BrokenPipeError():
            return _pipe_closed()
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return _say(f"{error.strerror}: {error.filename or 'the disk'}", 1)
        case OSError(errno=errno.EACCES | errno.EPERM | errno.EROFS) if error.filename:
            return _say(f"{error.strerror}: {error.filename}\n  do: choose a place that you may write to", 2)
        case _:
            return _bug(error)


def _say(message: str, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    return code


def _system_exit(error: SystemExit) -> int:
    if isinstance(error.__context__, BrokenPipeError):  # click saw the reader of a pipe leave
        return _pipe_closed()
    return error.code if isinstance(error.code, int) else int(error.code is not None)


def _pipe_closed() -> int:
    _silence_stdout()
    return 1


def _silence_stdout() -> None:
    """Let Python flush its stdout at exit into nothing, in place of a pipe that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _bug(error: BaseException) -> int:
    traceback.print_exception(error)
    place = _plugin_line(error)
    whose = f"of the plugin {place}" if place else "of the zoo or of a plugin"
    return _say(f"this is a bug {whose}; please report it with the lines above", 1)


def _plugin_line(error: BaseException) -> str | None:
    """``file:line`` of the innermost line of the zoo's or a plugin's own code, if it is a plugin's."""
    from importlib.metadata import entry_points

    packages = {entry.value for entry in entry_points(group="zoo")} - {"zoo_builtin"}
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        if module.startswith("zoo.outside.") or module.partition(".")[0] in packages:
            place = f"{frame.f_code.co_filename}:{line}"
        elif module.partition(".")[0] in ("zoo", "zoo_builtin"):
            place = None
    return place
