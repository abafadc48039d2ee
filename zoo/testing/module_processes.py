"""A module in other processes: pickled to a spawned worker, and shared by two that see half of the rows each.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from zoo.outside import VARIABLE, listed
from zoo.testing.module_case import Runner
from zoo.testing.numbers import agree
from zoo.testing.suite import Failed, Skipped

_ROWS = 4
_PATIENCE = 600


def pickles(case: Any) -> None:
    """Pickled to a spawned process, as data loaders and launchers do, it gives there what it gives here."""
    module = case.make()
    want = case.run(module, case.input())
    (outcome,) = _spawn(case, module, case.input(), processes=1)
    agree(outcome["output"], want, "a pickled copy in a spawned process", tolerance=0.0)


def two_processes(case: Any) -> None:
    """Two processes (gloo, DDP), each with half of the rows, have the gradients of one process with all of them."""
    module, x_BTD = case.make(training=True), case.input(_ROWS)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise Skipped("it has nothing to train")
    want = gradients_of(Runner(case, module), x_BTD)
    for rank, outcome in enumerate(_spawn(case, case.make(training=True), x_BTD, processes=2)):
        for name, gradient in want.items():
            agree(outcome["gradients"][name], gradient, f"gradient of {name} in process {rank} of 2")


def gradients_of(run: torch.nn.Module, x_BTD: Tensor) -> dict[str, Tensor]:
    """Gradients of the mean square of a module's output."""
    run.zero_grad()
    run(x_BTD).square().mean().backward()
    inner = run.module if isinstance(run, DistributedDataParallel) else run
    return {name: parameter.grad for name, parameter in inner.named_parameters() if parameter.grad is not None}


def _spawn(case: Any, module: Any, x_BTD: Tensor, *, processes: int) -> list[dict[str, Any]]:
    """What ``zoo.testing.worker`` says in each of some processes."""
    owner = getattr(case, "component", type(module))
    if owner.__module__ == "__main__" or "<locals>" in owner.__qualname__:
        raise Skipped(f"{owner.__qualname__} is defined in a script or function, where no other process can find it")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            (folder / "task.pickle").write_bytes(pickle.dumps((Runner(case, module), x_BTD)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise Failed(f"can't be pickled: {error}") from error
        return _outcomes(folder, owner, processes)


def _outcomes(folder: Path, owner: type[Any], processes: int) -> list[dict[str, Any]]:
    own = sys.modules[owner.__module__].__file__
    plugins = [*map(str, listed(os.environ)), *([own] if own and owner.__module__.startswith("zoo.outside.") else [])]
    environment = {
        **os.environ,
        VARIABLE: os.pathsep.join(plugins),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "zoo.testing.worker", str(folder), str(processes)]
    running = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(processes)
    ]
    failures = []
    for rank, process in enumerate(running):
        try:
            _, errors = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            for other in running:
                other.kill()
            raise Failed(f"process {rank} of {processes} didn't end within {_PATIENCE} seconds") from None
        if process.returncode:
            failures.append(f"process {rank} of {processes}: {_last_line(errors)}")
    if failures:
        raise Failed("; ".join(failures))
    return [torch.load(folder / f"outcome-{rank}.pt") for rank in range(processes)]


def _last_line(errors: str) -> str:
    """The exception at the end of a traceback."""
    lines = [line for line in errors.splitlines() if line and not line.startswith((" ", "["))]
    told = [line for line in lines if "Error" in line or "Exception" in line]
    return (told or lines or ["ended with an error"])[-1][:300]
