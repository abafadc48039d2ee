"""Any optimizer that torch or timm carries, by name.

``{name: library, algorithm: torch.SGD, options: {momentum: 0.9}}``, ``algorithm: timm.lion``, ``algorithm: lamb``.
torch's are spelt as its classes, timm's as its own list; a bare name is looked up in torch first. ``options``
are arguments of the class and are checked against it. Only matrices decay. Cost: the algorithm's.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from timm.optim import get_optimizer_class, list_optimizers
from torch import nn

from zoo.contracts.optimizer import Optimizer, decay_groups
from zoo.errors import UserError

__all__ = ["Library"]

_UNFIT = {
    "Optimizer": "is the base class",
    "LBFGS": "evaluates the loss several times a step, the training loop does it once",
    "SparseAdam": "takes sparse gradients only, and the zoo's models have dense ones",
    "adahessian": "needs the second derivative of the loss",
}
_OWN = ("params", "lr", "weight_decay")


@final
class Library(Optimizer):
    """An optimizer of ``torch.optim`` or ``timm.optim``."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Optimizer.Config):
        """Which one, and its own arguments."""

        algorithm: str = "torch.SGD"
        """``torch.CLASS``, ``timm.NAME``, or either's name alone."""
        options: dict[str, Any] = dataclasses.field(default_factory=dict)
        """Arguments of the class other than ``lr`` and ``weight_decay``."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._class: Callable[..., torch.optim.Optimizer] = _find(config.algorithm)
        self._options = _checked(config.algorithm, self._class, config.options)

    def make(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        """The torch optimizer over named parameters.

        Raises:
            UserError: the algorithm refuses an option's value or the parameters.
        """
        groups = [group for group in decay_groups(parameters, self.config.weight_decay) if group["params"]]
        try:
            return self._class(groups, lr=self.config.lr, **self._options)
        except (TypeError, ValueError, RuntimeError, ImportError) as error:
            raise UserError(
                f"optimizer {self.config.algorithm} can't be made: {error}",
                where="optimizer.options",
                fix="change the options, or choose another algorithm",
            ) from error


def _find(algorithm: str) -> type[torch.optim.Optimizer]:
    """The class of a name.

    Raises:
        UserError: nobody has it, or it can't drive the training loop.
    """
    library, _, name = algorithm.rpartition(".")
    if name in _UNFIT and library in ("", "torch", "timm"):
        raise UserError(f"{algorithm} {_UNFIT[name]}", where="optimizer.algorithm", fix="choose another algorithm")
    if library in ("", "torch") and name in _torch_classes():
        return _torch_classes()[name]
    if library in ("", "timm") and name in list_optimizers():
        return get_optimizer_class(name, bind_defaults=False)  # type: ignore[return-value]
    own = [f"torch.{known}" for known in _torch_classes() if known not in _UNFIT]
    others = [f"timm.{known}" for known in list_optimizers() if known not in _UNFIT]
    raise UserError(
        f"neither torch nor timm has an optimizer called {algorithm!r}{_near(algorithm, own + others)}",
        where="optimizer.algorithm",
        fix=f"choose one of {', '.join(sorted(own))}, or timm.NAME with a name of timm.optim.list_optimizers()",
    )


def _torch_classes() -> dict[str, type[torch.optim.Optimizer]]:
    members = vars(torch.optim).items()
    return {name: item for name, item in members if isinstance(item, type) and issubclass(item, torch.optim.Optimizer)}


def _near(name: str, known: Iterable[str]) -> str:
    """The known names whose last part is nearest to the name's; case doesn't count."""

    def nearness(other: str) -> float:
        mine, theirs = (text.rpartition(".")[2].lower() for text in (name, other))
        return difflib.SequenceMatcher(None, mine, theirs).ratio()

    best = sorted(known, key=nearness, reverse=True)[:3]
    near = [other for other in best if nearness(other) >= (1.0 if nearness(best[0]) == 1.0 else 0.6)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _checked(algorithm: str, found: Callable[..., torch.optim.Optimizer], options: dict[str, Any]) -> dict[str, Any]:
    """The options as keyword arguments of the class; lists become tuples.

    Raises:
        UserError: an argument that it doesn't have, or that has its own place.
    """
    parameters = inspect.signature(found).parameters
    if "weight_decay" not in parameters:
        raise UserError(f"{algorithm} has no weight decay", where="optimizer.algorithm", fix="choose another algorithm")
    allowed = [name for name in parameters if name not in _OWN]
    for name in options:
        if name in _OWN:
            raise UserError(f"{name} isn't an option", where=f"optimizer.options.{name}", fix=f"set optimizer.{name}")
        if name not in allowed:
            raise UserError(
                f"{algorithm} has no argument {name!r}{_near(name, allowed)}",
                where=f"optimizer.options.{name}",
                fix=f"choose from {', '.join(allowed)}",
            )
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
