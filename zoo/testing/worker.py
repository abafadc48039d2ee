"""A process of its own that is handed a module: ``python -m zoo.testing.worker FOLDER PROCESSES RANK``.

Reads ``task.pickle``, writes ``outcome-RANK.pt``: the output where it is alone, else the gradients that DDP gives.
"""

from __future__ import annotations

import datetime
import pickle
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from zoo.testing.module_processes import gradients_of


def main(folder: Path, processes: int, rank: int) -> None:
    """Run the task."""
    run, x_BTD = pickle.loads((folder / "task.pickle").read_bytes())
    if processes == 1:
        with torch.no_grad():
            outcome = {"output": run(x_BTD)}
    else:
        meeting = f"file://{folder / 'meeting'}"
        patience = datetime.timedelta(seconds=120)
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes, timeout=patience)
        shared = DistributedDataParallel(run)
        own_BTD = x_BTD.chunk(processes)[rank]
        gradients_of(shared, own_BTD)  # a parameter that nothing uses stops the second step, not the first
        outcome = {"gradients": gradients_of(shared, own_BTD)}
    torch.save(outcome, folder / f"outcome-{rank}.pt")
    if processes > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
