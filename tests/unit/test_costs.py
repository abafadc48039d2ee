"""What cells cost: counts that follow from recipes, measurements of real runs, and the table of both."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.comparison import costs, meters
from zoo.comparison.cells import Cell
from zoo.comparison.costs import COUNTED, MEASURED, costs_csv, measure_costs, read_meters, size_warnings, unequal
from zoo.comparison.meters import Readings
from zoo.comparison.quantities import counts
from zoo.contracts.data import Description
from zoo.info.operations import Products
from zoo.recipe import Recipe, load_recipe
from zoo.training.files import write_json
from zoo.training.metrics import MetricsFile
from zoo.training.run import RunFolder
from zoo.training.train import train

SMALL = {
    "data": {"name": "text", "source": "files", "files": ["text.txt"], "tokenizer": "byte", "length": 16},
    "architecture": {"name": "gpt2", "layers": 1, "dim": 16, "heads": 2},
    "task": "causal_lm",
    "training": {"log_every": 1, "validate_every": 4, "save_every": 6},
    "trainer": {"max_steps": 8, "accelerator": "cpu", "devices": 1},
}
SIZES = Description(vocab_size=50, max_length=24)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path, dict[str, float | None]]:
    """A real run with its costs."""
    folder = tmp_path_factory.mktemp("costs")
    (folder / "text.txt").write_text("\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(99)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        recipe = Recipe.from_dict(SMALL)
        before = read_meters(recipe)
        train(recipe, folder / "run")
        return recipe, folder / "run", measure_costs(recipe, folder / "run", before)


def small(**architecture: Any) -> Recipe:
    values = {**SMALL, "architecture": {**SMALL["architecture"], **architecture}}  # type: ignore[dict-item]
    values["data"] = {"name": "text", "source": "python-docs"}
    return Recipe.from_dict(values)


# Counts (bugs C1 and C2)


def test_gpt2_has_the_counts_that_others_got_wrong() -> None:
    """C2: a state dict would say 163,037,184, tied tables twice, and embeddings might be taken off twice."""
    found = counts(load_recipe("gpt2"))
    assert found["parameters"] == found["parameters_trainable"] == 124_439_808
    assert found["parameters_other"] == 85_056_000
    assert found["parameters_embedding"] == 124_439_808 - 85_056_000
    assert found["macs"] == 142_406_400
    assert (found["cache_bytes"], found["state"]) == (12 * 2 * 768 * 4, 0)
    without = counts(load_recipe("gpt2", ["architecture.position=none"]))
    assert without["parameters"] == 123_653_376


def test_frozen_parts_are_not_trainable() -> None:
    recipe = Recipe.from_dict({**SMALL, "training": {"freeze": ["embedding"]}})
    found = counts(recipe, SIZES)
    assert found["parameters_trainable"] == found["parameters"] - 50 * 16  # type: ignore[operator]


@pytest.mark.parametrize("attention", ["multi_head", "grouped_query", "sliding_window", "linear"])
def test_attention_is_never_free(attention: str) -> None:
    """C1: fused attention costs what the eager one does, and a control without it less."""
    eager = {"name": attention, **({} if attention == "linear" else {"kernel": "eager"})}
    fused, written, none = (counts(small(attention=name), SIZES)["macs"] for name in (attention, eager, "identity"))
    assert fused == written
    assert fused > none + 2 * 16 * 16  # type: ignore[operator]


def test_the_cost_of_attention_grows_faster_than_the_length() -> None:
    lengths = [Description(vocab_size=50, max_length=length) for length in (128, 256, 512)]
    macs = [counts(small(position="none"), sizes)["macs"] * sizes.max_length for sizes in lengths]  # type: ignore[operator]
    assert macs[1] > 2 * macs[0] and macs[2] > 2 * macs[1]
    linear = [counts(small(position="none", attention="linear"), sizes)["macs"] for sizes in lengths]
    assert linear[2] == pytest.approx(linear[1])


def test_an_unknown_operation_is_no_number_and_is_written_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import zoo.info.summary

    monkeypatch.setattr(zoo.info.summary, "count_products", lambda compute: Products(None, ["own.scan"]))
    found = counts(small(), SIZES)
    assert found["macs"] is None
    row = read(costs_csv([Cell("a", "t", 1, costs={**found, "wall_s": 1.5})]))[0]
    assert row["macs"] == "n/a" and row["parameters"] == str(found["parameters"])
    assert row["energy_cpu_j"] == row["train_tokens_per_s"] == ""


def test_what_generates_nothing_has_no_cache() -> None:
    bert = small(name="bert")
    assert counts(Recipe.from_dict({**bert.tree, "task": "masked_lm"}), SIZES)["cache_bytes"] is None


# Measurements


def test_a_run_has_every_cost(run: tuple[Recipe, Path, dict[str, float | None]]) -> None:
    _, _, found = run
    assert list(found) == [*COUNTED, *MEASURED]
    assert found["parameters"] == 16 * (256 + 1 + 16) + (12 * 16**2 + 13 * 16) + 2 * 16
    assert found["cache_bytes"] == 2 * 16 * 4 and found["state"] == 0
    assert found["wall_s"] and 0 < found["wall_s"] < 60
    for name in ("train_tokens_per_s", "generate_tokens_per_s"):
        assert found[name] > 10, name  # type: ignore[operator]
    assert all(value is None or value > 0 or name == "state" for name, value in found.items())


def test_memory_is_what_the_process_grew_by() -> None:
    recipe = small()
    before = read_meters(recipe)
    if before.resident is None:
        pytest.skip("the high-water mark can't be reset here")
    block = torch.ones(64 * 2**20 // 4)
    del block
    first = meters.spent(before)["peak_bytes"]
    assert first is not None and 63 * 2**20 <= first < 96 * 2**20
    again = meters.spent(read_meters(recipe))["peak_bytes"]
    assert again is not None and again < 16 * 2**20  # a later cell isn't told of what an earlier one took


def test_without_readings_from_before_there_is_neither_memory_nor_energy(
    run: tuple[Recipe, Path, dict[str, float | None]],
) -> None:
    recipe, folder, _ = run
    found = measure_costs(recipe, folder)
    assert found["peak_bytes"] is found["energy_cpu_j"] is found["energy_gpu_j"] is None
    assert found["parameters"] and found["wall_s"]


def test_a_run_that_went_on_has_no_energy_of_its_own(
    run: tuple[Recipe, Path, dict[str, float | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The meters were read when it was started again."""
    recipe, folder, _ = run
    used = {"peak_bytes": 5.0, "energy_cpu_j": 2.0, "energy_gpu_j": None}
    monkeypatch.setattr(costs, "spent", lambda before: dict(used))
    whole = measure_costs(recipe, folder, Readings(time.monotonic() - 3600, 0))
    resumed = measure_costs(recipe, folder, Readings(time.monotonic(), 0))
    assert (whole["energy_cpu_j"], whole["peak_bytes"]) == (2.0, 5.0)
    assert (resumed["energy_cpu_j"], resumed["peak_bytes"]) == (None, 5.0)


def test_a_run_that_never_began_costs_nothing_that_is_known(tmp_path: Path) -> None:
    recipe = small()
    found = measure_costs(recipe, tmp_path)
    assert {name for name, value in found.items() if value is not None} <= set(COUNTED)


def rows(folder: Path, *found: dict[str, float]) -> RunFolder:
    made = RunFolder(folder)
    file = MetricsFile(made.metrics, ["step", "tokens", "wall_s", "val_loss"], before=0)
    for row in found:
        file.write(row)
    file.close()
    return made


def test_the_training_rate_leaves_out_validations_checkpoints_and_the_beginning(tmp_path: Path) -> None:
    recipe = Recipe.from_dict({**SMALL, "training": {"save_every": 30}})
    made = rows(
        tmp_path,
        {"step": 10, "tokens": 100, "wall_s": 50.0},
        {"step": 20, "tokens": 200, "wall_s": 51.0},
        {"step": 30, "tokens": 300, "wall_s": 53.0},
        {"step": 40, "tokens": 400, "wall_s": 99.0},  # behind a checkpoint
        {"step": 50, "tokens": 500, "wall_s": 200.0, "val_loss": 1.0},
        {"step": 60, "tokens": 700, "wall_s": 201.0},
    )
    assert costs.training_rate(made, recipe) == 100.0  # the median of 100, 50 and 200
    short = rows(tmp_path, {"step": 4, "tokens": 100, "wall_s": 50.0, "val_loss": 1.0})
    assert costs.training_rate(short, recipe) is None


def test_an_encoder_decoder_is_timed_with_a_source() -> None:
    from zoo.builder import build_model

    values = {**SMALL, "data": {"name": "pairs", "source": "dates"}, "task": "seq2seq"}
    values["architecture"] = {"name": "encoder_decoder", "layers": 1, "dim": 16, "heads": 2}
    model = build_model(Recipe.from_dict(values), SIZES)
    assert costs._timed_generation(model) > 10


# Energy


def packages(root: Path, **counters: int) -> None:
    for name, count in counters.items():
        zone = root / name.replace("_", ":").replace("rapl", "intel-rapl")
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "energy_uj").write_text(f"{count}\n")
        (zone / "max_energy_range_uj").write_text("1000000000\n")
        (zone / "constraint_0_power_limit_uw").write_text("100000000\n")


def readings(root: Path, seconds: float = 0.0) -> Readings:
    return Readings(seconds, None, meters._packages(root))


def test_energy_is_summed_over_packages_and_goes_round_a_ring(tmp_path: Path) -> None:
    packages(tmp_path, rapl_0=5_000_000, rapl_1=999_000_000, rapl_0_0=1)
    before = readings(tmp_path)
    assert set(before.packages) == {"intel-rapl:0", "intel-rapl:1"}
    packages(tmp_path, rapl_0=7_500_000, rapl_1=1_000_000, rapl_0_0=999)
    assert meters._package_energy(before, tmp_path, 1.0) == 2.5 + 2.0


def test_a_run_in_which_a_counter_may_have_gone_round_twice_has_no_energy(tmp_path: Path) -> None:
    """1,000 J at 100 W are through in 10 seconds."""
    packages(tmp_path, rapl_0=0)
    before = readings(tmp_path)
    packages(tmp_path, rapl_0=500)
    assert meters._package_energy(before, tmp_path, 9.9) == 500 / 1e6
    assert meters._package_energy(before, tmp_path, 10.1) is None


def test_a_machine_without_meters_has_no_energy(tmp_path: Path) -> None:
    assert meters._package_energy(readings(tmp_path), tmp_path, time.monotonic()) is None
    (tmp_path / "intel-rapl:0").mkdir()  # and one whose meter can't be read neither
    assert meters._packages(tmp_path) == {}


# The table


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_table_has_a_row_for_each_cell_and_every_digit() -> None:
    cells = [
        Cell("b", "t", 2, status="completed", costs={"parameters": 10, "wall_s": 0.1 + 0.2, "energy_cpu_j": None}),
        Cell("a", "t", 1, status="failed"),
        Cell("a", "t", 1, phase="tune", point={"optimizer.lr": 0.1}, costs={"parameters": 10}),
    ]
    text = costs_csv(cells)
    assert text.splitlines()[0].split(",")[:6] == ["variant", "task", "seed", "phase", "optimizer.lr", "status"]
    found = read(text)
    assert [(row["variant"], row["phase"], row["status"]) for row in found] == [
        ("a", "tune", "planned"),
        ("a", "report", "failed"),
        ("b", "report", "completed"),
    ]
    assert found[2]["wall_s"] == "0.30000000000000004" and found[2]["energy_cpu_j"] == ""
    assert found[1]["macs"] == "" and found[2]["macs"] == "n/a"
    assert costs_csv(cells[::-1]) == text


# Sizes (bugs C2)


def test_variants_that_differ_by_more_than_five_percent_are_told() -> None:
    assert unequal({"t": {"a": 100_000, "b": 105_000}}) == []
    (line,) = unequal({"t": {"a": 100_000, "b": 105_100, "c": 103_000}, "u": {"a": 1, "b": 1}})
    assert line == (
        "t: variants aren't of one size: b has 105,100 parameters, 5% more than a with 100,000; "
        "compare.match={parameters: VARIANT} makes them equal"
    )


def test_a_match_is_not_told_and_tuning_does_not_count() -> None:
    cells = [Cell("a", "t", 1, costs={"parameters": 10}), Cell("b", "t", 1, result={"parameters": 20})]
    assert len(size_warnings(cells, matched=False)) == 1
    assert size_warnings(cells, matched=True) == []
    cells[1].phase = "tune"
    assert size_warnings(cells, matched=False) == []


def test_costs_of_a_run_can_be_written(tmp_path: Path, run: tuple[Recipe, Path, dict[str, float | None]]) -> None:
    write_json(tmp_path / "costs.json", run[2])
    assert json.loads((tmp_path / "costs.json").read_text()) == run[2]
