"""A cell's run in a process of its own, so that whatever becomes of it, the worker and the other cells go on.

The process is a copy of the worker (a fork), which has everything imported and has done nothing else; no cell can
change what another one finds. A cell that needs several devices, and every cell on a system that can't fork safely, is
the command ``zoo train`` instead, which Lightning can start again for each device.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from zoo.comparison.cells import Status
from zoo.errors import Diverged, Interrupted, RunFailed, UserError

POLL = 0.2
"""Seconds from one look at a run to the next."""
FORKS = sys.platform == "linux"
"""Whether a process with torch in it can be copied: elsewhere libraries of the system don't survive it."""

STOPPING = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = tuple(128 + number for number in STOPPING)
"""Exit codes of a run that has saved its state."""

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_BY_CODE: Mapping[int, Status] = {2: "invalid", 3: "diverged"}


class Ended(NamedTuple):
    """How a run ended."""

    status: Status
    reason: str = ""
    """In words, where the status needs one."""


Stopping = Callable[[], bool]
"""Whether the run is to save its state and end."""


def run_copy(work: Callable[[], Ended], output: Path, stopping: Stopping) -> Ended:
    """Do something in a copy of this process, and wait for its end.

    Args:
        work: what to do; says how it ended.
        output: what it says on standard error is added to this file.
        stopping: asked several times a second; once it says so, the copy gets a SIGTERM.
    """
    parent = os.getpid()
    with tempfile.TemporaryFile() as answer:
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # none may reach the copy while it has this one's handlers
        child = os.fork()
        if child == 0:
            _be_copy(work, output, answer, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        is_told = _wait_for(child, stopping)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer.seek(0)
        said = answer.read()
    if code == 0 and said:
        return Ended(*json.loads(said))
    return outcome_of(code, "", is_signalled=is_told)


def _wait_for(child: int, stopping: Stopping) -> bool:
    """Wait until a process has ended, without reaping it; whether it had to be told to."""
    is_told = False
    with _ends_of(child) as ended:
        while not ended(POLL):
            if not is_told and stopping():
                os.kill(child, signal.SIGTERM)
                is_told = True
    return is_told


@contextlib.contextmanager
def _ends_of(child: int) -> Iterator[Callable[[float], bool]]:
    """A function that waits for some seconds for the end of a process, and says whether it has come."""

    def looked(seconds: float) -> bool:
        time.sleep(seconds)
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    try:
        handle = os.pidfd_open(child)
    except OSError:  # a sandbox that doesn't know it
        yield looked
        return
    try:
        yield lambda seconds: bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def _be_copy(work: Callable[[], Ended], output: Path, answer: IO[bytes], parent: int) -> NoReturn:
    """What the copy does from the first moment to the last."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # the worker makes a SIGTERM of it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        _end_with(parent)
        _redirect(output)
        ended = work()
        answer.write(json.dumps(ended).encode())
        answer.flush()
        atexit._run_exitfuncs()
        code = 0
    except BaseException:  # nothing may get out into the worker's own code
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _end_with(parent: int) -> None:
    """Get a SIGTERM when the parent is gone, however it ends."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _redirect(output: Path) -> None:
    """Read nothing, say nothing on standard output, and add what goes to standard error to a file."""
    nothing = os.open(os.devnull, os.O_RDWR)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for target, source in ((0, nothing), (1, nothing), (2, file)):
        os.dup2(source, target)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))


def judged(work: Callable[[], None], sources: Collection[Path]) -> Ended:
    """How something ended that trains: what it raises as a status and a reason, a bug with its traceback.

    Args:
        work: what to do.
        sources: files of the plugins that it uses, of which one may be to blame.
    """
    try:
        work()
    except UserError as error:
        return _said("invalid", str(error))
    except Diverged as error:
        return _said("diverged", str(error))
    except (Interrupted, KeyboardInterrupt) as error:
        return _said("interrupted", str(error))
    except RunFailed as error:
        return _said("failed", str(error))
    except BaseException as error:
        traceback.print_exc()
        place = next(_places(error, sources), None)
        whose = f"of the plugin {place}" if place else "of the zoo or of a plugin"
        ended = _said("failed", f"this is a bug {whose}; please report it with the lines above")
        return Ended("failed", f"{type(error).__name__}: {error}\n{ended.reason}")
    return Ended("completed")


def _said(status: Status, reason: str) -> Ended:
    print(f"error: {reason}", file=sys.stderr, flush=True)
    return Ended(status, reason)


def _places(error: BaseException, sources: Collection[Path]) -> Iterator[str]:
    """``file:line`` of frames in some files, the innermost first."""
    resolved = {str(source.resolve()) for source in sources}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if str(Path(frame.filename).resolve()) in resolved:
            yield f"{frame.filename}:{frame.lineno}"


def run_command(
    arguments: Sequence[str],
    output: Path,
    stopping: Stopping,
    *,
    environment: Mapping[str, str],
    keep: Collection[int] = (),
    answer: IO[bytes] | None = None,
) -> tuple[int, bool]:
    """Run ``zoo`` with some arguments and wait for its end.

    Args:
        arguments: of the command line.
        output: what it says on standard error is added to this file.
        stopping: asked several times a second; once it says so, the process gets a SIGTERM.
        environment: variables beside this process's own.
        keep: open files that it keeps open.
        answer: where its standard output goes.

    Returns:
        the exit code, and whether it had to be told to end.
    """
    command = [sys.executable, "-P", "-m", "zoo", *arguments]  # -P: a file of the working directory is no module
    is_told = False
    with output.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if answer is None else answer,
            stderr=file,
            env={**os.environ, **environment},
            process_group=0,
            pass_fds=keep,
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(POLL), is_told
                if not is_told and stopping():
                    process.terminate()
                    is_told = True
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


def outcome_of(code: int, error: str, *, is_signalled: bool) -> Ended:
    """Status and reason of a process that ended with an exit code and a message."""
    if code == 0:
        return Ended("completed")
    if code in INTERRUPTED or (is_signalled and -code in STOPPING):
        return Ended("interrupted", error)
    if code < 0:
        return Ended("failed", f"killed by signal {-code}, as a machine that is out of memory does")
    return Ended(_BY_CODE.get(code, "failed"), error)


def cell_environment(plugins: Mapping[str, str], threads: int) -> dict[str, str]:
    """Environment variables of a process that runs a cell, beside the worker's."""
    # a job of a cluster serves many cells; Lightning isn't to take one for the job, and count the job's tasks
    job = {"SLURM_JOB_NAME": "interactive"} if "SLURM_JOB_ID" in os.environ else {}
    return {**plugins, **job, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def read_answer(answer: IO[bytes]) -> Any:
    """The JSON document that a command has printed."""
    answer.seek(0)
    return json.loads(answer.read())
