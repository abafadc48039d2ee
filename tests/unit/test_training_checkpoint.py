"""Checkpoints on disk: the newest that can be read, and no code in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from zoo.errors import RunFailed, UserError
from zoo.training.checkpoint import AtomicCheckpointIO, Checkpoints, in_model_order, read_checkpoint


def write(folder: Path, *steps: int) -> Checkpoints:
    folder.mkdir(exist_ok=True)
    for step in steps:
        AtomicCheckpointIO().save_checkpoint({"zoo": {"step": step}}, folder / f"step-{step}.ckpt")
    return Checkpoints(folder, keep=2)


def test_the_newest_is_the_one_of_the_highest_step_not_of_the_last_letter(tmp_path: Path) -> None:
    checkpoints = write(tmp_path, 100, 20, 9)
    (tmp_path / "step-7.ckpt.tmp").touch()
    (tmp_path / "best.ckpt").touch()
    assert checkpoints.steps() == [100, 20, 9]
    assert checkpoints.newest() == (tmp_path / "step-100.ckpt", [])


def test_there_is_no_newest_before_the_first(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "gone", keep=2).newest() is None


def test_damaged_files_are_named_and_passed_over(tmp_path: Path) -> None:
    checkpoints = write(tmp_path, 1, 2, 3)
    checkpoints.path(3).write_bytes(b"")
    checkpoints.path(2).write_bytes(checkpoints.path(2).read_bytes()[:100])
    newest = checkpoints.newest()
    assert newest is not None
    assert newest[0].name == "step-1.ckpt"
    assert [line.split()[1] for line in newest[1]] == ["step-3.ckpt", "step-2.ckpt"]


def test_if_none_can_be_read_that_is_an_error(tmp_path: Path) -> None:
    checkpoints = write(tmp_path, 1)
    checkpoints.path(1).write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"no checkpoint can be read: checkpoint step-1\.ckpt"):
        checkpoints.newest()


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch hacked",)


def test_a_checkpoint_that_carries_code_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"zoo": {"step": 1}, "evil": Hostile()}, "step-1.ckpt")
    with pytest.raises(UserError, match=r"step-1\.ckpt can't be read"):
        read_checkpoint(Path("step-1.ckpt"))
    assert not Path("hacked").exists()


def test_somebody_elses_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "step-1.ckpt")
    with pytest.raises(UserError, match="wasn't written by the zoo"):
        read_checkpoint(tmp_path / "step-1.ckpt")


def test_a_folder_that_cannot_be_written_to_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"can't write .*step-1\.ckpt"):
        AtomicCheckpointIO().save_checkpoint({}, tmp_path / "gone" / "step-1.ckpt")


def test_an_optimizers_state_is_numbered_in_the_models_order_and_loads_as_before() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    parameters = list(model.parameters())  # weight, bias, weight, bias
    groups = [{"params": parameters[::2]}, {"params": parameters[1::2], "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    renumbered = in_model_order(optimizer.state_dict(), optimizer, model)
    assert [group["params"] for group in renumbered["param_groups"]] == [[0, 2], [1, 3]]
    for number, parameter in enumerate(parameters):
        assert renumbered["state"][number]["exp_avg"].shape == parameter.shape
    other = torch.optim.AdamW([{"params": parameters[::2]}, {"params": parameters[1::2]}])
    other.load_state_dict(renumbered)
    for parameter in parameters:
        assert torch.equal(other.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])
    assert other.param_groups[1]["lr"] == 0.5
