"""The verdict table of a task: each variant against the baseline, with what the verdict rests on."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.report.caps import ROWS, left_out
from zoo.report.findings import Entry, Findings, TaskFindings
from zoo.report.forest import forest
from zoo.report.plain import number
from zoo.report.section import Section, Table, Value
from zoo.report.tuning import tuning_columns

COLUMNS = (
    *("difference", "low", "high", "verdict", "note"),
    *("p", "p_adjusted", "p_equivalence_adjusted", "confidence", "seeds"),
)
"""Of the verdicts in results.json."""
TITLES = {"p_adjusted": "adjusted p", "p_equivalence_adjusted": "adjusted p of equivalence", "seeds": "pairs"}

MEANING = (
    "A difference is variant minus baseline in the metric's unit, paired by seed; a pair is a seed that both "
    "completed. Low and high bound it with the confidence beside them, which is that of the verdict: a proven "
    "difference leaves out 0. p is that of the paired t-test, adjusted p (Holm) counts all verdicts of this report. "
    "Mean and spread (standard deviation) are over the runs that completed."
)


def verdict_section(findings: Findings) -> Section:
    """A table and a forest plot for each task."""
    left = left_out(len(findings.tasks), findings.all_tasks, "tasks")
    return Section(
        "Verdicts", [MEANING, *([left] if left else []), *(_task(task, findings) for task in findings.tasks)]
    )


def _task(task: TaskFindings, findings: Findings) -> Section:
    said = _terms(task) if task.metric else "Nothing has been measured yet."
    plot = forest(task)
    return Section(f"Task {task.name}", [said, verdict_table(task, findings), *([plot] if plot else [])])


def _terms(task: TaskFindings) -> str:
    """What its differences are to be held against."""
    way = f", of which {task.better} is better" if task.better else ""
    said = [f"Metric: {task.metric}{way}. Baseline: {task.baseline}."]
    margin, noise, finds = (task.of_verdicts(name) for name in ("margin", "noise", "detectable"))
    if margin is not None:
        said.append(f"Differences within ±{margin:g} are equivalent.")
    if noise is not None:
        said.append(f"Noise floor: from itself, the baseline would differ by up to {number(noise)}.")
    if finds is not None:
        said.append(f"If pairing took out nothing, it would take one of {number(finds)} to be found.")
    return " ".join(said)


def verdict_table(task: TaskFindings, findings: Findings) -> Table:
    """A row for each variant, the baseline's too; columns that no verdict of the task has anything in are left out."""
    entries = [*task.entries.values()]
    verdicts = [entry.verdict for entry in entries if entry.verdict]
    columns = [
        name for name in COLUMNS if name == "verdict" or any(said.get(name) not in (None, "") for said in verdicts)
    ]
    extra = tuning_columns(task, findings)
    rows = [
        [*_measured(entry, task), *_said(entry, task, columns), *(each[entry.variant] for each in extra.values())]
        for entry in entries[:ROWS]
    ]
    mean = f"mean {task.metric}" if task.metric else "mean"
    titles = [TITLES.get(name, name) for name in columns]
    return Table(
        ["variant", mean, "spread", "runs", *titles, *extra],
        rows,
        signed=("difference", "low", "high"),
        digits={"p": 2, "adjusted p": 2, "adjusted p of equivalence": 2},
        note=left_out(ROWS, len(entries), "variants"),
    )


def _measured(entry: Entry, task: TaskFindings) -> list[Value]:
    completed = sum(cell["status"] == "completed" for cell in entry.cells)
    runs = f"{completed} of {len(entry.cells)}"
    return [entry.variant, entry.mean(task.metric), entry.spread(task.metric), runs]


def _said(entry: Entry, task: TaskFindings, columns: Sequence[str]) -> list[Value]:
    if entry.variant == task.baseline:
        return [{"verdict": "baseline", "note": ""}.get(name) for name in columns]
    verdict = entry.verdict or {}
    return [verdict.get(name) for name in columns]
