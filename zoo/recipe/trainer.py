"""The ``trainer`` section: Lightning's own arguments, checked without importing Lightning (it takes seconds)."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Optional, Union

from zoo.component import did_you_mean
from zoo.errors import UserError
from zoo.recipe.node import Node, Origin, from_python
from zoo.recipe.sections import Draft

DEFAULTS: Mapping[str, Any] = {
    "max_steps": 1000,
    "accelerator": "auto",
    "devices": "auto",
    "num_nodes": 1,
    "precision": "32-true",
    "strategy": {"name": "auto"},
}
"""What the zoo fills in; Lightning has its own default for every other argument."""

STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "auto": (),
    "ddp": (),
    "fsdp2": ("data", "tensor"),
    "tensor_parallel": ("data", "tensor"),
    "deepspeed": (),
}
"""Strategies with their options: sizes of the device mesh, data-parallel times tensor-parallel."""

_STEPS = "use trainer.max_steps"
_VALIDATION = "use training.validate_every"
_NOTHING = "remove it; it would change nothing"
OWNED: Mapping[str, str] = {
    "accumulate_grad_batches": "use training.micro_batch_size",
    "barebones": "remove it; the zoo needs the logger and callbacks that it switches off",
    "callbacks": "a plugin adds callbacks through the hook zoo_callbacks",
    "check_val_every_n_epoch": _VALIDATION,
    "default_root_dir": "use --run DIR",
    "enable_autolog_hparams": _NOTHING,
    "enable_checkpointing": "use training.save_every and training.keep",
    "enable_model_summary": "use zoo info RECIPE",
    "enable_progress_bar": "remove it; progress is one line on a terminal, and elsewhere a line a validation",
    "fast_dev_run": "use trainer.max_steps with a small number",
    "gradient_clip_algorithm": "use training.clip_norm",
    "gradient_clip_val": "use training.clip_norm",
    "limit_predict_batches": _NOTHING,
    "limit_test_batches": _NOTHING,
    "limit_train_batches": _STEPS,
    "limit_val_batches": "use training.validate_batches",
    "log_every_n_steps": "use training.log_every",
    "logger": "use the top-level key logger",
    "max_epochs": _STEPS,
    "min_epochs": _STEPS,
    "min_steps": _STEPS,
    "model_registry": _NOTHING,
    "num_sanity_val_steps": _NOTHING,
    "overfit_batches": "give data that is as small as you want it",
    "plugins": "use the top-level key plugins for the zoo's; Lightning's follow from strategy and precision",
    "reload_dataloaders_every_n_epochs": "remove it; the order of batches follows from the seed and the step",
    "use_distributed_sampler": "remove it; the order of batches follows from the seed and the step",
    "val_check_interval": _VALIDATION,
}
"""Arguments of Lightning's Trainer that the zoo sets itself, and what to do instead."""

_PRECISION = Literal[
    64, 32, 16, "16", "bf16", "32", "64", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "32-true", "64-true",
    "transformer-engine", "transformer-engine-float16",
]  # fmt: skip
_NAMED: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "None": type(None),
    "list": list,
    "dict": dict,
    "Optional": Optional,
    "Union": Union,
    "_PATH": str,
    "_PRECISION_INPUT": _PRECISION,
    "_LITERAL_WARN": Literal["warn"],
    "Profiler": None,  # None: an object that a recipe can't write
    "Accelerator": None,
    "Strategy": None,
    "timedelta": None,
}


def draft_trainer(draft: Draft, given: Mapping[str, Node]) -> dict[str, Any]:
    """The section with the zoo's defaults; mistakes are noted in the draft's problems."""
    own = Origin("default", text="trainer")
    defaults = {name: from_python(value, own) for name, value in DEFAULTS.items()}
    known = {**arguments(), "max_steps": int, "strategy": dict[str, Any]}
    result = {}
    for name, node in {**defaults, **given}.items():
        if name == "strategy":
            written = node.value if isinstance(node.value, dict) else {"name": node}
            node = Node({"name": Node("auto", own), **written}, node.origin)
        path = ("trainer", name)
        result[name] = draft.keep(node, path)
        if name not in known or name in OWNED:
            _refuse(draft, name)
        else:
            draft.hints[path] = known[name]
    return result


def _refuse(draft: Draft, name: str) -> None:
    where = draft.where(("trainer", name))
    if name in OWNED:
        draft.problems.add(f"trainer.{name} isn't for a recipe to set", where=where, fix=OWNED[name])
    else:
        usable = sorted(set(arguments()) - set(OWNED))
        draft.problems.add(
            f"trainer.{name} is no argument of Lightning's Trainer{did_you_mean(name, usable)}",
            where=where,
            fix=f"choose one of {', '.join(usable)}",
        )


def check_trainer(draft: Draft, trainer: Mapping[str, Any]) -> None:
    """Note values that have the right type and can't work."""
    steps = trainer["max_steps"]
    if type(steps) is int and steps < 1:
        what = f"trainer.max_steps is {steps}; a run has at least 1 step"
        draft.problems.add(what, where=draft.where(("trainer", "max_steps")), fix="give a number of optimizer steps")
    strategy = trainer["strategy"]
    if isinstance(strategy, dict):
        _check_strategy(draft, strategy)


def _check_strategy(draft: Draft, strategy: Mapping[str, Any]) -> None:
    path = ("trainer", "strategy")
    name = str(strategy.get("name"))
    if name not in STRATEGIES:
        near = did_you_mean(name, STRATEGIES)
        fix = "use fsdp2" if name == "fsdp" else f"choose one of {', '.join(STRATEGIES)}"
        draft.problems.add(f"{name!r} is no strategy of the zoo{near}", where=draft.where((*path, "name")), fix=fix)
        return
    for option, size in strategy.items():
        where = draft.where((*path, option))
        if option != "name" and option not in STRATEGIES[name]:
            options = ", ".join(STRATEGIES[name])
            fix = f"choose one of {options}" if options else f"write strategy: {name}"
            draft.problems.add(f"trainer.strategy.{option} is no option of {name}", where=where, fix=fix)
        elif option != "name" and (type(size) is not int or size < 1):
            what = f"trainer.strategy.{option} is {size!r}; it is a number of devices, at least 1"
            draft.problems.add(what, where=where)


@functools.cache
def arguments() -> dict[str, Any]:
    """Arguments of Lightning's Trainer with the types that a recipe can give them, read from its source.

    Raises:
        UserError: Lightning isn't installed or has another layout.
    """
    spec = find_spec("lightning")
    file = Path(spec.origin).parent / "pytorch" / "trainer" / "trainer.py" if spec and spec.origin else None
    if file is None or not file.is_file():
        raise UserError("Lightning's Trainer isn't where it is looked for", where=str(file), fix="install lightning")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "Trainer":
            init = next(item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
            return {item.arg: _hint(item.annotation) for item in init.args.kwonlyargs}
    raise UserError("Lightning's Trainer has no constructor that can be read", where=str(file))


def _hint(annotation: ast.expr | None) -> Any:
    """The type of an annotation without the objects in it; ``Any`` where nothing is known of it."""
    if isinstance(annotation, ast.Name):
        return _NAMED.get(annotation.id, Any)
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        outer = _NAMED.get(annotation.value.id, Any)
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        hints = tuple(hint for hint in map(_hint, inner) if hint is not None)
        if outer is Any or Any in hints:
            return Any
        return outer[hints if len(hints) > 1 else hints[0]] if hints else Any
    return Any
