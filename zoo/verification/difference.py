"""In what two runs or recipes differ: recipe, code, data, environment, metrics, and the first step that tells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import UserError
from zoo.recipe.recipe import ABSENT
from zoo.verification.subjects import Subject

if TYPE_CHECKING:
    from zoo.verification.rows import RowsDifference
    from zoo.verification.weights import WeightsDifference

NEUTRAL = ("plugins", "logger")
"""Keys of a recipe that no number depends on: where code lies (its hash counts), and who else is told."""

COUNTS = ("status", "steps", "tokens", "parameters", "wall_s")
"""What result.json holds beside metrics."""

_NAMED = 3


def diff(first: Subject, second: Subject) -> dict[str, Any]:
    """Compare two runs, or recipes; what ``zoo diff --json`` prints.

    Returns:
        ``a`` and ``b``; ``recipe`` and ``lock`` with each value that differs; ``result``, ``metrics`` and ``best``
        side by side; ``rows`` and ``weights``, ``None`` unless both were run; ``equal``, whether all that both
        measured is the same to the last bit; ``sentence``.

    Raises:
        UserError: a file of a run that is damaged.
    """
    recipe, lock = _recipe_changes(first, second), lock_changes(first.lock, second.lock)
    found: dict[str, Any] = {"a": first.json(), "b": second.json(), "recipe": recipe, "lock": lock}
    found |= _results(first, second)
    rows, weights = _measured(first, second) if first.run and second.run else (None, None)
    equal = rows.step is None if rows and rows.shared else None
    if equal and weights is not None and weights.steps[0] == weights.steps[1]:
        equal = not weights.differing
    found |= {"rows": rows and rows.json(), "weights": weights and weights.json(), "equal": equal}
    causes = _causes(recipe, lock, first, second)
    return {**found, "sentence": f"{', '.join(causes)}: {outcome(rows, weights)}"}


def _recipe_changes(first: Subject, second: Subject) -> list[dict[str, Any]]:
    return [
        {
            "path": change.path,
            "a": change.old,
            "b": change.new,
            "a_origin": _origin(first, change.path, change.old),
            "b_origin": _origin(second, change.path, change.new),
        }
        for change in first.recipe.diff(second.recipe)
    ]


def _origin(subject: Subject, path: str, value: Any) -> str | None:
    """Where a value comes from; a run's recipe is written out, so only a recipe knows."""
    return None if value == ABSENT or subject.kind == "run" else str(subject.recipe.origin(path))


def lock_changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Values of two locks that differ, by ``section.key``.

    A section that only one of them has, such as the data of a recipe that nobody ran, isn't known to differ; neither
    is a component that only one of them uses.
    """
    ours, theirs = dict(_leaves(first)), dict(_leaves(second))
    shared = [key for key in ours if key in theirs]
    return [
        {"path": ".".join(key), "a": ours[key], "b": theirs[key]}
        for key in shared
        if repr(ours[key]) != repr(theirs[key])
    ]


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    else:
        yield path, value


def _results(first: Subject, second: Subject) -> dict[str, Any]:
    ours, theirs = _result(first), _result(second)
    counts = [{"name": name, "a": ours.get(name), "b": theirs.get(name)} for name in COUNTS]
    best = [result.get("best") or {} for result in (ours, theirs)]
    return {
        "result": [count for count in counts if count["a"] is not None or count["b"] is not None],
        "metrics": _side_by_side(ours.get("metrics") or {}, theirs.get("metrics") or {}),
        "best": _side_by_side(*best),
    }


def _side_by_side(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "a": first.get(name), "b": second.get(name)} for name in {**first, **second}]


def _result(subject: Subject) -> dict[str, Any]:
    """What result.json of a run holds; empty where there is none, as after a kill."""
    if subject.run is None:
        return {}
    return read_result(subject.folder.result)


def read_result(file: Path) -> dict[str, Any]:
    """What a result.json holds; empty where there is none.

    Raises:
        UserError: it is damaged.
    """
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file.name} can't be read: {error}", where=str(file), fix="restore the file") from error
    return found if isinstance(found, dict) else {}


def _measured(first: Subject, second: Subject) -> tuple[RowsDifference, WeightsDifference | None]:
    from zoo.verification.rows import compare_rows, read_rows
    from zoo.verification.weights import compare_weights, newest_weights

    rows = compare_rows(*(read_rows(subject.folder.metrics) for subject in (first, second)))
    ours, theirs = (newest_weights(subject.folder) for subject in (first, second))
    return rows, compare_weights(ours, theirs) if ours and theirs else None


def _causes(recipe: list[dict[str, Any]], lock: list[dict[str, Any]], first: Subject, second: Subject) -> Iterator[str]:
    """What could make a difference, or that nothing could."""
    keys = [change["path"] for change in recipe if change["path"].split(".")[0] not in NEUTRAL]
    yield f"another recipe ({_named(keys)})" if keys else "same recipe"
    changed = [change["path"].split(".", 1) for change in lock]
    code = [name.rpartition(".")[0] for section, *rest in changed if section == "components" for name in rest]
    yield f"other code ({_named(code)})" if code else "same code"
    others = [".".join(rest) for section, *rest in changed if section == "packages"]
    if others:
        yield f"other versions ({_named(others)})"
    if "data" not in first.lock or "data" not in second.lock:
        yield "data unread"
    else:
        yield "other data" if first.lock["data"] != second.lock["data"] else "same data"
    if any(section == "weights" for section, *_ in changed):
        yield "other weights to start from"


def _named(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def outcome(rows: RowsDifference | None, weights: WeightsDifference | None) -> str:
    """What two runs came to, as the end of a sentence."""
    if rows is None:
        return "not both were run"
    if rows.step is not None:
        first, *more = rows.mismatches
        share = "" if first.relative is None else f" (relative {first.relative:.1e})"
        others = f", and {len(more)} more columns" if len(more) > 1 else ", and 1 more column" if more else ""
        return f"differ from step {rows.step:,} on, {first.column} {first.first} and {first.second}{share}{others}"
    if not rows.shared:
        return "no step was logged by both"
    if weights is None or weights.steps[0] != weights.steps[1]:
        return f"equal to the last bit up to step {rows.equal_to:,}, the last that both logged"
    if weights.differing:
        names = f"{len(weights.differing)} of {weights.tensors} tensors"
        return f"equal metrics, and other weights ({names}, relative {weights.relative:.1e})"
    return "equal to the last bit"
