"""The example plugin by itself: what its parts compute, without a registry or a recipe."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from zoo.contracts.values.mask import CAUSAL
from zoo_example import zoo_report_sections
from zoo_example.attention.gated import Gated
from zoo_example.cycles import Triangular, WarmRestarts
from zoo_example.norm_section import last_norm
from zoo_example.weight_norms import WeightNorms


def gated(**knobs: object) -> Gated:
    torch.manual_seed(0)
    return Gated(Gated.Config(**knobs), dim=8, heads=2).double()


def attend(layer: Gated) -> Tensor:
    x_BTD = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return layer(x_BTD, mask=CAUSAL.sized(5, 5))


def set_gates(layer: Gated, biases: list[float]) -> None:
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.bias.copy_(torch.tensor(biases))


def test_open_gates_leave_attention_as_it_is_and_closed_ones_leave_the_output_bias() -> None:
    layer = gated()
    set_gates(layer, [0.0, 0.0])
    half = attend(layer) - layer.output.bias
    set_gates(layer, [40.0, 40.0])
    torch.testing.assert_close(attend(layer) - layer.output.bias, 2 * half)
    set_gates(layer, [-800.0, -800.0])
    torch.testing.assert_close(attend(layer), layer.output.bias.expand(2, 5, 8))


def test_each_gate_governs_its_own_head() -> None:
    layer = gated()
    set_gates(layer, [40.0, -800.0])
    with torch.no_grad():
        before = attend(layer)
        layer.output.weight[:, 4:] += 1.0  # reads the second head, which is closed
        torch.testing.assert_close(attend(layer), before)
        layer.output.weight[:, :4] += 1.0
    assert not torch.allclose(attend(layer), before)


def test_fused_and_eager_kernel_agree() -> None:
    torch.testing.assert_close(attend(gated(kernel="sdpa")), attend(gated(kernel="eager")))


def test_gates_without_bias_have_only_weights() -> None:
    assert [name for name, _ in gated(gate_bias=False).gate.named_parameters()] == ["weight"]


def test_triangular_rises_to_one_and_falls_back() -> None:
    schedule = Triangular(Triangular.Config(cycle_steps=4, low=0.2, warmup_steps=2), steps=12)
    factors = [schedule.factor(step) for step in range(10)]
    assert factors == pytest.approx([0.5, 1.0, 0.2, 0.6, 1.0, 0.6, 0.2, 0.6, 1.0, 0.6])


def test_warm_restarts_fall_along_a_cosine_and_jump_back() -> None:
    schedule = WarmRestarts(WarmRestarts.Config(cycle_steps=4, low=0.0), steps=8)
    factors = [schedule.factor(step) for step in range(5)]
    assert factors == pytest.approx([1.0, 0.853553, 0.5, 0.146447, 1.0], abs=1e-6)


@pytest.mark.parametrize("knobs", [{"cycle_steps": 1}, {"low": 1.5}])
def test_cycles_that_make_no_sense_are_refused(knobs: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(knobs))):
        Triangular(Triangular.Config(**knobs), steps=10)


class Doubling(LightningModule):
    """One weight that doubles at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))

    def training_step(self, batch: Tensor) -> Tensor:
        return -(self.weight**2).sum() / 2

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def train(folder: Path, steps: int, resume_from: Path | None = None) -> Trainer:
    trainer = Trainer(
        max_steps=steps,
        default_root_dir=folder,
        callbacks=[WeightNorms(every=2)],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = torch.utils.data.DataLoader(torch.zeros(100, 1), batch_size=1)
    trainer.fit(Doubling(), batches, ckpt_path=resume_from, weights_only=True)
    return trainer


def rows(folder: Path) -> list[list[str]]:
    with (folder / "weight_norms.csv").open(newline="") as stream:
        return list(csv.reader(stream))


def test_norms_are_written_every_second_step(tmp_path: Path) -> None:
    train(tmp_path, steps=5)
    assert rows(tmp_path) == [["step", "parameter", "norm"], ["2", "weight", "20"], ["4", "weight", "80"]]


def test_a_resumed_run_has_each_step_once(tmp_path: Path) -> None:
    train(tmp_path, steps=3).save_checkpoint(tmp_path / "three.ckpt")
    train(tmp_path, steps=6)
    train(tmp_path, steps=6, resume_from=tmp_path / "three.ckpt")
    assert [row[0] for row in rows(tmp_path)[1:]] == ["2", "4", "6"]
    assert rows(tmp_path)[-1] == ["6", "weight", "320"]


def cell(folder: Path, variant: str, address: str, norms: str = "", status: str = "completed") -> dict[str, object]:
    """A cell of a comparison whose run recorded norms."""
    run = folder / "cells" / address[:2] / address
    run.mkdir(parents=True)
    if norms:
        (run / "weight_norms.csv").write_text(f"step,parameter,norm\n{norms}")
    return {"variant": variant, "task": "text", "seed": 1, "status": status, "run": f"/elsewhere/cells/{address}"}


def test_a_report_says_how_large_the_weights_have_become(tmp_path: Path) -> None:
    cells = [
        cell(tmp_path, "plain", "aa11", "2,weight,1.5\n4,weight,3\n4,bias,4\n"),
        cell(tmp_path, "plain", "aa22", "4,weight,7\n"),
        cell(tmp_path, "gated", "bb11", "4,weight,13\n"),
        cell(tmp_path, "gated", "bb22", "4,weight,99\n", status="diverged"),
        cell(tmp_path, "other", "cc11"),
    ]
    (section,) = zoo_report_sections({"cells": cells}, tmp_path)
    (plot,) = section.parts
    assert plot.table.rows == [("plain", "text", 6.0, 2), ("gated", "text", 13.0, 1)]
    assert plot.text == "plain on text: 6; gated on text: 13"
    assert [bar.get_width() for bar in plot.figure.axes[0].patches] == [6.0, 13.0]
    assert last_norm(tmp_path / "cells" / "aa" / "aa11" / "weight_norms.csv") == 5.0


def test_a_report_without_norms_has_no_such_section(tmp_path: Path) -> None:
    assert zoo_report_sections({"cells": [cell(tmp_path, "other", "cc11")]}, tmp_path) == []
