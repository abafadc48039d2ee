"""``kill -9`` in mid-grid, again and again: whether the results are those of a grid that nobody disturbed.

    python benchmarks/kill_compare.py [--kills 20] [--seed 0] [--workers 2]

Each time the command is started, runs for a while that is drawn, and then it, one of its workers, the process of a cell
or all of them are killed; at last it is left alone. Prints what was killed when, and whether results.csv is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = """
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 32, batch_size: 8, validation: 0.2}
architecture: {name: gpt2, layers: 1, dim: 32, heads: 2, dropout: 0.1}
task: causal_lm
optimizer: {name: adamw, lr: 1e-2}
schedule: {warmup_steps: 10}
training: {validate_every: 100, save_every: 50, log_every: 10}
trainer: {max_steps: 400, accelerator: cpu, devices: 1}
compare:
  variants: {plain: {}, blind: {architecture.position: none}, rotary: {architecture.position: rotary}}
  seeds: 4
"""
WHOM = ("command", "worker", "cell", "all")
START = 8.0
"""Seconds that a worker takes to start, about."""


def begin(folder: str, workers: int) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "zoo", "compare", "recipe.yaml", "--run", folder, "--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def kill(process: subprocess.Popen[bytes], draw: random.Random) -> str:
    """Kill something; what."""
    workers = children(process.pid)
    cells = [cell for worker in workers for cell in children(worker)]
    whom = draw.choice(WHOM)
    victims = {
        "command": [process.pid],
        "worker": [draw.choice(workers or [process.pid])],
        "cell": [draw.choice(cells or [process.pid])],
        "all": [process.pid, *workers, *cells],
    }
    for victim in victims[whom]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    return whom


def ended(folder: Path) -> int:
    """Cells that have ended."""
    try:
        lines = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    except FileNotFoundError:
        return 0
    return len({line["address"] for line in lines if line["status"] == "completed"})


def disturb(kills: int, workers: int, draw: random.Random) -> None:
    """Start the command and kill something, so many times; then leave it alone until its end."""
    done = 0
    while done < kills:
        process = begin("disturbed", workers)
        while done < kills and process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.2 * START, 2 * START))
                break
            whom = kill(process, draw)
            done += 1
            print(f"kill {done}: {whom}, with {ended(Path('disturbed'))} cells done", flush=True)
            if whom in ("command", "all"):
                process.wait()
    for _ in range(3):  # a cell that was killed alone has failed, and is tried again by the next call
        if begin("disturbed", workers).wait() == 0:
            return


def main() -> int:
    """Print the outcome; 0 if the results are the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("kills", 20), ("seed", 0), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        Path("text.txt").write_text("\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(999)))
        Path("recipe.yaml").write_text(RECIPE)
        began = time.monotonic()
        if code := begin("undisturbed", said.workers).wait():
            print(f"the undisturbed comparison ended with {code}")
            return 1
        print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        disturb(said.kills, said.workers, random.Random(said.seed))
        is_same = Path("disturbed/results.csv").read_bytes() == Path("undisturbed/results.csv").read_bytes()
        print(f"disturbed: {time.monotonic() - began:.0f} s, {said.kills} kills")
        print("results.csv is the same to the last byte" if is_same else "results.csv DIFFERS")
        os.chdir("/")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
