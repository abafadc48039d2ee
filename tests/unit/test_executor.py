"""Executors: how they are made from a comparison's words, how devices are shared out, and the kit on all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import mutants_executor as mutants
from zoo.builder import build_executor
from zoo.contracts.executor import Executor, Work
from zoo.errors import UserError
from zoo.registry import Registry
from zoo.testing.check import check, suite_of
from zoo.testing.suite import run_check
from zoo_builtin.executor.local import Local, share, visible_devices


def build(**settings: Any) -> Executor:
    return build_executor(settings, Registry.discover(environment={}))


def test_an_executor_is_made_by_its_name_and_knobs() -> None:
    made = build(name="local", workers=3, devices=["1", "2"])
    assert isinstance(made, Local) and (made.config.workers, made.config.devices) == (3, ["1", "2"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "lokal"}, "no executor called 'lokal'; did you mean 'local'"),
        ({"name": "local", "worker": 2}, "executor local has no knob worker; did you mean 'workers'"),
        ({"name": "local", "workers": "two"}, "workers expects a whole number or null, got the text 'two'"),
        ({"name": "local", "workers": 0}, "workers is 0; it must be at least 1"),
        ({"name": "slurm", "time": 0}, "time is 0"),
        ({"name": "slurm", "gpus": -1}, "gpus is -1"),
    ],
)
def test_a_mistake_is_one_message(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(**settings)


def work(folder: Path, cells: int = 4, devices: int = 1) -> Work:
    names = [f"c{number}" for number in range(cells)]
    command = ["worker", "plan"]
    return Work(
        folder=folder, cells=names, command=command, environment={}, logs=folder, stop=folder / "stop", devices=devices
    )


def test_the_command_of_a_worker_names_its_range(tmp_path: Path) -> None:
    assert work(tmp_path).worker() == ["worker", "plan", "--cells", "0:4"]
    assert work(tmp_path).worker(1, 3, bound=True) == ["worker", "plan", "--cells", "1:3", "--parent", str(os.getpid())]


@pytest.mark.parametrize(
    ("devices", "count", "expected"),
    [
        ([], 2, [None, None]),
        (["0", "1"], 2, ["0", "1"]),
        (["0", "1", "2"], 2, ["0,2", "1"]),
        (["4", "7"], 3, ["4", "7", "4"]),
        (["0", "1", "2", "3"], 1, ["0,1,2,3"]),
    ],
)
def test_devices_are_shared_out(devices: list[str], count: int, expected: list[str | None]) -> None:
    found = [share(devices, number, count).get("CUDA_VISIBLE_DEVICES") for number in range(count)]
    assert found == expected


def test_a_worker_sees_the_devices_that_this_process_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert visible_devices() == ["3", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_devices() == []


@pytest.mark.parametrize(
    ("knobs", "cells", "devices", "workers"),
    [
        ({}, 4, 1, 1),  # no device: one worker
        ({"devices": ["0", "1", "2", "3"]}, 9, 1, 4),
        ({"devices": ["0", "1", "2", "3"]}, 9, 2, 2),  # a cell needs two
        ({"devices": ["0", "1"]}, 1, 1, 1),
        ({"devices": ["0"]}, 9, 4, 1),
        ({"workers": 3}, 9, 1, 3),
        ({"workers": 3}, 2, 1, 2),
    ],
)
def test_how_many_workers_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, Any], cells: int, devices: int, workers: int
) -> None:
    started: list[Any] = []

    class Process:
        def __init__(self, command: list[str], **options: Any) -> None:
            started.append(options["env"].get("CUDA_VISIBLE_DEVICES"))

        def poll(self) -> int:
            return 0

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("zoo_builtin.executor.local.subprocess.Popen", Process)
    Local(Local.Config(**knobs)).start(work(tmp_path, cells, devices))
    assert len(started) == workers


# The kit


@pytest.mark.slow
def test_the_local_executor_keeps_the_contract() -> None:
    report = check("executor/local")
    assert report.ok, report.text()


@pytest.mark.slow
def test_the_slurm_executor_keeps_the_contract_on_this_machine() -> None:
    pytest.importorskip("submitit")
    report = check("executor/slurm")
    assert report.ok, report.text()


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "name"), mutants.CAUGHT, ids=lambda value: getattr(value, "__name__", ""))
def test_a_faulty_executor_is_caught(mutant: type[Executor], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.testing.executor.LONGEST", 3.0)
    suite = suite_of("executor")
    (wanted,) = [each for each in suite.checks if each.name == name]
    finding = run_check(wanted, suite.subject(mutant, seed=0))
    assert finding.status == "failed", finding.message


def test_every_check_of_the_kit_catches_something() -> None:
    caught = {name for _, name in mutants.CAUGHT}
    assert [each.name for each in suite_of("executor").checks if each.name not in caught] == []
