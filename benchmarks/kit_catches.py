"""Which checks of the conformance kit catch which fault, and which faults only one of them catches.

    python benchmarks/kit_catches.py catches.json        # half an hour on two cores; goes on where it stopped

Every fault of both catalogues (tests/unit) meets all checks of its kind but those of ``--full``. Prints, as Markdown,
for each check how many faults it catches, and those that no other check does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests" / "unit"


def faults() -> dict[str, Any]:
    """Every fault by a name that tells the two catalogues apart."""
    sys.path.insert(0, str(TESTS))
    from faults_of_an_outsider import FAULTS
    from mutants_catalogue import CAUGHT
    from mutants_executor import CAUGHT as CAUGHT_EXECUTOR
    from test_check_catches_answers import CAUGHT as CAUGHT_ANSWERS
    from test_check_catches_text import CAUGHT as CAUGHT_TEXT

    own = [entry[0] for entry in (*CAUGHT, *CAUGHT_EXECUTOR, *CAUGHT_ANSWERS, *CAUGHT_TEXT)]
    found = {f"{mutant.__module__.removeprefix('mutants_')}.{mutant.__name__}": mutant for mutant in own}
    return found | {f"outsider.{fault.name}": fault.component for fault in FAULTS}


def caught(name: str) -> tuple[str, str, list[str]]:
    """The kind of a fault, and the checks that fail for it."""
    import torch

    from zoo.testing.check import examine

    torch.set_num_threads(1)
    examination = examine(faults()[name])
    checks = examination.checks()
    return name, examination.suite.kind, [one.name for one in checks if examination.run(one).status == "failed"]


def table(found: dict[str, tuple[str, list[str]]]) -> str:
    """Checks by kind, the faults that each catches counted, and those that it alone catches named."""
    from zoo.testing.check import suite_of

    count: Counter[tuple[str, str]] = Counter()
    alone: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (kind, checks) in sorted(found.items()):
        count.update((kind, check) for check in checks)
        if len(checks) == 1:
            alone[kind, checks[0]].append(name.rpartition(".")[2])
    lines = ["| kind | check | catches | alone |", "|---|---|--:|---|"]
    for kind in sorted({kind for kind, _ in found.values()}):
        for check in suite_of(kind).chosen(full=False):
            key = kind, check.name
            lines.append(f"| {kind} | {check.name} | {count[key]} | {', '.join(alone[key])} |")
    return "\n".join(lines)


def main() -> None:
    """Run what the file doesn't hold yet, write it after each fault, print the table."""
    file = Path(sys.argv[1])
    found: dict[str, tuple[str, list[str]]] = json.loads(file.read_text()) if file.is_file() else {}
    missing = [name for name in faults() if name not in found]
    # Not concurrent.futures, whose max_tasks_per_child can wait for ever (CPython issue 115634).
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=8) as pool:
        for name, kind, checks in pool.imap_unordered(caught, missing):
            found[name] = (kind, checks)
            file.write_text(json.dumps(found, indent=1))
            print(f"{len(found)} {name}: {len(checks)}", file=sys.stderr, flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
