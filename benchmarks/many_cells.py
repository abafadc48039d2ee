"""A comparison of a hundred thousand cells, made up in a temporary folder: what each step of its running takes.

    python benchmarks/many_cells.py [--variants 20] [--tasks 5] [--seeds 1000] [--report]

The runs are folders with a result.json and a costs.json, as training leaves them, but for checkpoints and weights.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from zoo.comparison.board import Board
from zoo.comparison.cells import Cell
from zoo.comparison.costs import COUNTED, MEASURED
from zoo.comparison.folder import CompareFolder, open_folder
from zoo.comparison.grid import Grid
from zoo.comparison.index import Record
from zoo.comparison.live import summary
from zoo.comparison.plans import Plan
from zoo.comparison.results import write_results
from zoo.recipe import Comparison, compare_block, load_comparison
from zoo.report.write import write_report

RECIPE = """
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 16, batch_size: 4, validation: 0.2}
architecture: {name: gpt2, layers: 1, dim: 16, heads: 2}
task: causal_lm
optimizer: {name: adamw, lr: 1e-3}
trainer: {max_steps: 100, accelerator: cpu, devices: 1}
"""


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Print what the block took, by the clock and of a processor, and the most memory so far."""
    began, used = time.perf_counter(), time.process_time()
    yield
    seconds, used = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{seconds:8.2f} s  {used:8.2f} s CPU  {peak:5.2f} GiB  {what}", flush=True)


def load(variants: int, tasks: int, seeds: int) -> Comparison:
    """The comparison, over files in the working directory."""
    Path("text.txt").write_text("\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(99)))
    Path("small.yaml").write_text(RECIPE)
    for number in range(tasks):
        Path(f"task{number}.yaml").write_text(f"base: small.yaml\ndata: {{length: {16 + number}}}\n")
    rates = {f"v{n}": {"optimizer.lr": 0.001 * (n + 1)} for n in range(variants)}
    names = [f"task{number}" for number in range(tasks)]
    block = json.dumps({"compare": {"variants": rates, "tasks": [f"{n}.yaml" for n in names], "seeds": seeds}})
    Path("many.yaml").write_text(f"{block[:-1]}, base: small.yaml}}\n")
    return load_comparison("many.yaml")


def make_runs(folder: CompareFolder, cells: Sequence[Cell]) -> None:
    """What training would have left."""
    draw = random.Random(0)
    for cell in cells:
        run = folder.run(cell.address)
        os.makedirs(run.path)  # noqa: PTH103  # twice as fast
        with open(run.result, "w") as file:  # noqa: PTH123
            json.dump(result(cell, draw), file)
        with open(folder.costs_file(cell.address), "w") as file:  # noqa: PTH123
            json.dump({name: draw.random() for name in (*COUNTED, *MEASURED)}, file)


def result(cell: Cell, draw: random.Random) -> dict[str, object]:
    """What result.json holds."""
    loss = 2 + draw.gauss(0.0, 0.1)
    names = ("loss", "nats_per_byte", "perplexity", "accuracy")
    metrics = {f"{part}_{name}": loss for part in ("train", "val") for name in names}
    best = {"step": 100, **{name: value for name, value in metrics.items() if name.startswith("val_")}}
    status = "diverged" if draw.random() < 0.001 else "completed"
    counts = {"parameters": 7_000, "tokens": 6_400, "wall_s": 5 + draw.random(), "seed": cell.seed}
    return {"status": status, "steps": 100, "split": "validation", "metrics": metrics, "best": best, **counts}


def measure(comparison: Comparison, *, is_reported: bool) -> None:
    """All steps."""
    with timed("the grid: compose, build on the meta device, prepare the data, addresses"):
        cells = Grid(comparison).reported()
    print(f"{len(cells):,} cells")
    folder = open_folder(comparison, Path("run"))
    with timed("(making up the run folders)"):
        make_runs(folder, cells)
    with timed("the plan, written"):
        plan = Plan.of(cells, is_tuned=False)
        path = plan.write(folder.plans)
    with timed("the index, made from the run folders"):
        folder.read_index()
    size = folder.index.path.stat().st_size
    print(f"the index has {size / 2**20:.0f} MiB, the plan {path.stat().st_size / 2**20:.0f} MiB")
    with timed("what a worker reads before its first cell: plan and index"):
        Plan.read(path)
        CompareFolder(folder.path).read_index()
    folder = CompareFolder(folder.path)
    with timed("listing: which cells have ended, with all they say"):
        board = Board(folder, plan)
    assert len(board.known) == len(cells) and not board.waiting
    lines = folder.index.path.read_bytes().splitlines(keepends=True)
    folder.index.path.write_bytes(b"".join(lines[: -len(lines) // 100]) + lines[-1][:50])
    with timed(f"resuming: the same with the index's last {len(lines) // 100:,} lines lost and one torn"):
        board = Board(CompareFolder(folder.path), plan)
    assert len(board.waiting) >= len(lines) // 100
    record = next(iter(board.known.values()))
    with timed("a thousand cells end: each noted, each looked for"):
        for address in list(board.waiting)[:1000]:
            new = Record(address=address, status="completed", seconds=5.0, result=record.result, costs=record.costs)
            board.index.append(new)
            board.look()
    with timed("a hundred looks at what is going on"):
        for _ in range(100):
            summary(board, board.running())
    for cell in cells:
        if found := board.known.get(cell.address):
            cell.status, cell.result, cell.costs = found.status, found.result, found.costs
    with timed("the results: csv, parquet, costs, json, verdicts"):
        write_results(folder, comparison, cells)
    if is_reported:
        with timed("the report"):
            write_report(folder.path, comparison.registry)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("variants", 20), ("tasks", 5), ("seeds", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--report", action="store_true")
    said = parser.parse_args()
    compare_block.MAX_CELLS = max(compare_block.MAX_CELLS, said.variants * said.tasks * said.seeds)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        measure(load(said.variants, said.tasks, said.seeds), is_reported=said.report)
        os.chdir("/")


if __name__ == "__main__":
    main()
