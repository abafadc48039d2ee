"""Conformance of a task: losses are sums, which add up over rows, and what is counted is what is summed."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.component import Component
from zoo.config import Slot
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description, Draw, Split
from zoo.contracts.task import Batch
from zoo.contracts.tokenizer import Tokenizer
from zoo.contracts.values.capabilities import WORDS, WORDS_OF_MODELS
from zoo.errors import RunFailed, UserError
from zoo.registry import Registry
from zoo.testing.architecture import ArchitectureSubject
from zoo.testing.modules import documented_config
from zoo.testing.numbers import agree, differ, finite
from zoo.testing.suite import Check, Failed, Skipped, Suite
from zoo.testing.templates.data import Mine as Progressions
from zoo.testing.templates.tokenizer import Mine as Bytes


class _Text(Progressions):
    """Progressions of bytes, as if they were text."""

    def tokenizer(self) -> Tokenizer:
        """A byte tokenizer, so that tasks can count bytes."""
        return Bytes(Bytes.Config())


class _SlicedText(_Text):
    """The same, told apart by the first byte."""

    def slices(self) -> Sequence[str]:
        """Two; every row is in the second one."""
        return "first_127", "first_256"

    def batch(self, draw: Draw, split: Split) -> Batch:
        """``ids`` and ``targets`` as ever, and ``slices`` (B, 2) bool."""
        rows, there_B1 = super().batch(draw, split), torch.from_numpy(draw.samples >= 0)[:, None]
        return {**rows, "slices": (rows["ids"][:, :1] <= torch.tensor([127, 256])) & there_B1}


class _LabelledText(_Text):
    """Texts of different lengths; the class is that of their first token."""

    def describe(self) -> Description:
        """Those of ``_Text`` and seven classes."""
        return dataclasses.replace(super().describe(), classes=7)

    def batch(self, draw: Draw, split: Split) -> Batch:
        """``ids`` (B, T), ``valid`` (B, T) with at least two tokens a row, none in empty ones, ``labels`` (B,)."""
        ids_BT = super().batch(draw, split)["ids"]
        empty_B = torch.from_numpy(draw.samples < 0)
        lengths_B = torch.from_numpy(draw.samples.clip(min=0)) % (ids_BT.shape[1] - 1) + 2
        valid_BT = (torch.arange(ids_BT.shape[1]) < lengths_B[:, None]) & ~empty_B[:, None]
        return {"ids": ids_BT, "valid": valid_BT, "labels": (ids_BT[:, 0] % 7).masked_fill(empty_B, -100)}


class _Pairs(_LabelledText):
    """Texts of different lengths; the target of one is its first tokens, all but one."""

    def batch(self, draw: Draw, split: Split) -> Batch:
        """``source`` (B, S), ``ids`` and ``targets`` (B, T) with -100 where none; ``source_valid`` and ``valid``."""
        rows = super().batch(draw, split)
        valid_BT = rows["valid"][:, 1:]
        targets_BT = rows["ids"][:, :-1].masked_fill(~valid_BT, -100)
        ids_BT = torch.cat([torch.zeros_like(targets_BT[:, :1]), targets_BT[:, :-1]], 1).clamp(min=0)
        pair = {"ids": ids_BT, "valid": valid_BT, "targets": targets_BT}
        return {"source": rows["ids"], "source_valid": rows["valid"], **pair}


class _Images(Progressions):
    """Sample i of a part is an image of random pixels; its class follows from the same pair."""

    def describe(self) -> Description:
        """Grey images of 32 x 32 in seven classes."""
        return Description(classes=7, image_size=(32, 32), channels=1)

    def batch(self, draw: Draw, split: Split) -> Batch:
        """``images`` (B, 1, 32, 32) float64, 0 in rows that are empty, and ``labels`` (B,), -100 there."""
        pairs = self.parts[split][draw.samples.clip(min=0)]
        empty_B = torch.from_numpy(draw.samples < 0)
        images = [torch.from_numpy(np.random.default_rng(pair).standard_normal((1, 32, 32))) for pair in pairs]
        return {
            "images": torch.stack(images).masked_fill(empty_B[:, None, None, None], 0.0),
            "labels": torch.from_numpy(pairs % 7).masked_fill(empty_B, -100),
        }


_KINDS: dict[str, type[Progressions]] = {"images": _Images, "source": _Pairs, "labels": _LabelledText}
"""The data of a task that reads one of these keys; any other's is ``_SlicedText``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskCase:
    """One task with its default knobs on a small data set, with a small model that offers what it needs."""

    component: type[Any]
    model: Architecture
    data: Any
    label: str = ""

    def make(self) -> Any:
        """The task."""
        return self.component(self.component.Config(), data=self.data)

    def batch(self, samples: Sequence[int]) -> Batch:
        """The batch of these samples as the task prepares it, -1 for an empty row.

        Raises:
            Skipped: the task wants keys that the kit's data set doesn't have.
        """
        ids = np.asarray(samples, dtype=np.int64)
        draw = Draw(ids, np.zeros_like(ids), 0)
        batch = self.data.batch(draw, "train")
        if missing := self.component.keys - batch.keys():
            raise Skipped(f"the kit has no data with {', '.join(sorted(missing))}")
        return self.make().prepare(batch, draw, "train")


class TaskSubject:
    """A task class.

    Args:
        component: the class.
        seed: everything random follows from it.
        plugins: where an architecture is found, beyond what is installed.
    """

    offers: frozenset[str] = frozenset()

    def __init__(self, component: type[Any], *, seed: int = 0, plugins: Sequence[Path | str] = ()) -> None:
        self.component, self.seed, self.plugins = component, seed, plugins

    def cases(self, check: Check) -> Iterator[TaskCase]:
        """One, of text, of pairs or of images, as the task reads them."""
        keys = self.component.keys
        kind = next((kind for key, kind in _KINDS.items() if key in keys), _SlicedText)
        data = kind(kind.Config(vocab_size=Bytes.vocab_size), cache=Path(tempfile.gettempdir()))
        data.prepare()
        sizes = self.component(self.component.Config(), data=data).describe()
        yield TaskCase(component=self.component, model=self._model(sizes), data=data)

    def _model(self, sizes: Description) -> Architecture:
        registry = Registry.discover(self.plugins)
        for record in registry.components("architecture"):
            with contextlib.suppress(UserError):  # another plugin's fault isn't this task's
                if (parts := self._fitting(found := record.load(), registry)) is not None:
                    subject = ArchitectureSubject(found, seed=self.seed, plugins=self.plugins, parts=parts)
                    asked = {name: size for name, size in vars(sizes).items() if size is not None}
                    return subject.build_with("cpu", **asked).double().eval()
        raise Skipped(f"no architecture here offers {', '.join(sorted(self.component.needs))}")

    def _fitting(self, architecture: type[Any], registry: Registry) -> Mapping[str, str] | None:
        """Embedding and head with which it offers what the task needs, its own first; a source only for who asks."""
        if "cross" in architecture.offers and "cross" not in self.component.needs:
            return None
        slots = [(name, architecture.slots[name]) for name in ("embedding", "head") if name in architecture.slots]
        for records in itertools.product(*(_candidates(registry, slot) for _, slot in slots)):
            offers = architecture.offers.union(*(record.load().offers for record in records))
            if self.component.needs <= offers:
                return {name: record.name for (name, _), record in zip(slots, records, strict=True)}
        return None


def _candidates(registry: Registry, slot: Slot) -> list[Component]:
    """What fits into a slot, its default first."""
    working = [record for record in registry.components(slot.kind) if record.status == "ok"]
    return sorted(working, key=lambda record: record.name != slot.default)


SUITE = Suite("task", TaskSubject)


@SUITE.check("says what it needs and measures")
def declares(case: TaskCase) -> str:
    """``needs`` are known words, ``metrics`` say which way is better, ``keys`` are those of a batch."""
    words = [*WORDS, *WORDS_OF_MODELS]
    if not isinstance(case.component.needs, frozenset) or not case.component.needs.issubset(words):
        raise Failed(f"needs is {case.component.needs!r}; it must be a frozenset of {', '.join(words)}")
    told = tuple(case.make().measured())
    if told[: len(case.component.metrics)] != tuple(case.component.metrics) or len(set(told)) < len(told):
        raise Failed(f"measured() is {', '.join(told)}; it must begin with the metrics and have each name once")
    if not case.component.metrics:
        raise Failed("metrics is empty; the first one selects the best checkpoint")
    if wrong := {way for way in case.component.metrics.values() if way not in ("lower", "higher")}:
        raise Failed(f"a metric is better {sorted(wrong)}; say lower or higher")
    return f"measures {', '.join(case.component.metrics)}"


@SUITE.check("a loss is a scalar sum with a gradient")
def loss_is_a_sum(case: TaskCase) -> None:
    """``total`` and ``sums`` are scalars, only ``total`` has a gradient; ``targets`` is what ``count`` said before."""
    task, batch = case.make(), case.batch([0, 5, 9])
    loss = task.loss(case.model, batch)
    if loss.total.ndim or not loss.total.requires_grad:
        raise Failed(f"total has shape {tuple(loss.total.shape)}; it must be a scalar with a gradient")
    finite(loss.total, "total")
    if missing := {"loss", "targets"} - loss.sums.keys():
        raise Failed(f"sums lacks {', '.join(sorted(missing))}")
    for name, value in loss.sums.items():
        if not isinstance(value, Tensor) or value.ndim:
            raise Failed(f"{name} in sums must be a scalar tensor")
        if value.requires_grad:
            raise Failed(f"{name} in sums has a gradient, which keeps the graph of every micro-batch; detach it")
    if int(loss.sums["targets"]) != task.count(batch):
        raise Failed(f"count says {task.count(batch)} targets before the pass, sums {int(loss.sums['targets'])} after")


@SUITE.check("losses add up over rows")
def adds_up(case: TaskCase) -> None:
    """The loss of a batch, its counts and sums, are those of its rows together: micro-batches change nothing."""
    task, samples = case.make(), [0, 5, 9, -1, 14]
    whole_batch = case.batch(samples)
    whole = task.loss(case.model, whole_batch)
    parts = [{name: tensor[cut] for name, tensor in whole_batch.items()} for cut in (slice(0, 2), slice(2, 5))]
    losses = [task.loss(case.model, part) for part in parts]
    agree(torch.stack([loss.total for loss in losses]).sum(), whole.total, "losses of two micro-batches")
    for name, want in whole.sums.items():
        got = torch.stack([loss.sums[name].double() for loss in losses]).sum()
        agree(got, want.double(), f"{name} of two micro-batches")
    if task.count(whole_batch) != sum(map(task.count, parts)):
        raise Failed("counts of two micro-batches don't add up")


@SUITE.check("padding changes no loss")
def padded_loss(case: TaskCase) -> None:
    """Two more tokens in front of every row that are none, by ``valid``, leave the loss as it is."""
    batch = case.batch([0, 5, 11])
    if not {"ids", "targets"} <= batch.keys() or "padding" not in case.model.offers:
        raise Skipped("its batches or its model have no padding in front")
    padded = {"valid": torch.ones_like(batch["ids"], dtype=torch.bool), **batch}
    fills = {"ids": 1, "targets": -100, "valid": False, "documents": 0}
    padded |= {name: F.pad(padded[name], (2, 0), value=fill) for name, fill in fills.items() if name in padded}
    with torch.no_grad():
        got, want = (case.make().loss(case.model, given).total for given in (padded, batch))
    agree(got, want, "the loss of rows with padding in front, against that of the rows")


@SUITE.check("losses of the model's own parts count")
def auxiliary_counts(case: TaskCase) -> None:
    """What a part of the model adds to the loss by itself, a balance of experts for instance, is in the total."""
    batch, task = case.batch([0, 5]), case.make()

    def more(module: Any, given: Any, output: Any) -> Any:
        return output._replace(auxiliary=7.0 if output.auxiliary is None else output.auxiliary + 7.0)

    with torch.no_grad():
        want = task.loss(case.model, batch).total
        hook = case.model.register_forward_hook(more)
        try:
            got = task.loss(case.model, batch).total
        finally:
            hook.remove()
    differ(got, want, "what the model's parts cost by themselves isn't in the total; add output.auxiliary")


@SUITE.check("what a sample becomes doesn't depend on its batch")
def prepares_rows_apart(case: TaskCase) -> None:
    """``prepare`` draws for a sample from the sample alone: a row is the same in any batch, on any rank."""
    samples = [0, 5, 9, -1, 14]
    whole = case.batch(samples)
    for row, sample in enumerate(samples):
        for name, tensor in case.batch([sample]).items():
            if not torch.equal(tensor[0], whole[name][row]):
                raise Failed(f"{name} of sample {sample} differs when it is alone; draw from (seed, epoch, sample id)")


@SUITE.check("a batch without any target has loss 0 and gradient 0")
def no_targets(case: TaskCase) -> None:
    """Not NaN, and every parameter has a gradient, so that the other ranks needn't wait."""
    task, batch = case.make(), case.batch([-1, -1])
    if task.count(batch) != 0:
        raise Failed(f"counts {task.count(batch)} targets in empty rows")
    model = case.model
    model.zero_grad(set_to_none=True)
    loss = task.loss(model, batch)
    if float(loss.total.detach()) != 0:
        raise Failed(f"the loss of empty rows is {float(loss.total.detach())}")
    loss.total.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is None or float(parameter.grad.abs().max()) != 0:
            raise Failed(f"the gradient of {name} for empty rows is {'missing' if parameter.grad is None else 'not 0'}")
    model.zero_grad(set_to_none=True)


@SUITE.check("metrics from sums")
def summarizes(case: TaskCase) -> str:
    """``summary`` gives every metric it names, finite, the same for doubled sums; without a target it is RunFailed."""
    task = case.make()
    sums = {name: float(value.detach()) for name, value in task.loss(case.model, case.batch([0, 5, 9])).sums.items()}
    found = task.summary(sums)
    if missing := case.component.metrics.keys() - found.keys():
        raise Failed(f"summary lacks {', '.join(sorted(missing))}")
    if unknown := found.keys() - set(task.measured()):
        raise Failed(f"summary gives {', '.join(sorted(unknown))}, which measured() doesn't tell")
    agree(
        torch.tensor(list(task.summary({k: 2 * v for k, v in sums.items()}).values())),
        torch.tensor(list(found.values())),
        "metrics of doubled sums",
        tolerance=1e-5,
    )
    try:
        task.summary(dict.fromkeys(sums, 0.0))
    except RunFailed:
        return ", ".join(f"{name} {value:.3g}" for name, value in found.items())
    raise Failed("summary of no target at all isn't RunFailed")


@SUITE.check("every parameter gets a gradient")
def reaches_all(case: TaskCase) -> None:
    """One backward pass of the loss reaches all of the model."""
    case.model.zero_grad(set_to_none=True)
    case.make().loss(case.model, case.batch([0, 5])).total.backward()
    for name, parameter in case.model.named_parameters():
        if parameter.requires_grad and parameter.grad is None:
            raise Failed(f"{name} has no gradient")
        if parameter.grad is not None:
            finite(parameter.grad, f"gradient of {name}")


@SUITE.check("every knob has a type, a default and a docstring")
def documented(case: TaskCase) -> None:
    """What the tables of the docs are made of."""
    documented_config(case)
