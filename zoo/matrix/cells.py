"""One cell of the matrix: an attention and a position scheme in a job, built, passed through and probed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from zoo.builder import build_model, build_optimizer, check_parts
from zoo.errors import UserError
from zoo.matrix.jobs import STEPS, Bench, Job
from zoo.matrix.results import Cell, Outcome
from zoo.recipe import Recipe
from zoo.registry import Registry
from zoo.testing.attention_case import AttentionSubject
from zoo.testing.model import MODEL_CHECKS
from zoo.testing.recipe import RecipeSubject
from zoo.testing.suite import run_check

PROBES = (
    "gives hidden states, and scores by its head",
    "no look-ahead through all layers",
    "right padding changes nothing",
    "every parameter gets a finite gradient",
)
"""Checks of a whole model that each cell has to pass, as far as its architecture offers what they ask for."""


class Laboratory:
    """Jobs with their data, for one process."""

    def __init__(self, registry: Registry, jobs: list[Job], cache: Path) -> None:
        self.registry, self.cache = registry, cache
        self.jobs = {job.name: job for job in jobs}
        self._benches: dict[str, Bench] = {}
        self._most_heads: dict[str, int] = {}

    def bench(self, job: Job) -> Bench:
        """The job's data, read when it is first asked for; jobs of one task share it."""
        if job.task not in self._benches:
            self._benches[job.task] = Bench(job.recipe(self.registry, {}), self.cache)  # any architecture's batches
        return self._benches[job.task]

    def cell(self, cell: Cell) -> Outcome:
        """Build it, pass the job's first batch forward and backward, and probe it for look-ahead and padding."""
        job = self.jobs[cell.job]
        if job.refusal is not None:
            return Outcome("unsupported", job.refusal)
        try:
            recipe, where = self._placed(job, cell.attention, cell.position)
            bench = self.bench(job)
            subject = RecipeSubject(recipe, description=bench.description)  # builds it on the meta device
        except UserError as error:
            return Outcome("unsupported", error.what)
        try:
            return Outcome("failed", reason) if (reason := self._probe(subject, bench)) else Outcome("tested", where)
        except Exception as error:  # whatever a part raises is a finding about it
            return Outcome("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")

    def _placed(self, job: Job, attention: str, position: str) -> tuple[Recipe, str]:
        """The recipe with the attention wherever it can be, and where that isn't everywhere.

        Raises:
            UserError: why it can be nowhere, or doesn't go with the position scheme.
        """
        parts: dict[str, Any] = {"attention": attention, "position": position, "heads": self._heads(job, attention)}
        slots = self.registry.find("architecture", job.architecture).load().slots
        offers = self.registry.find("attention", attention).load().offers
        sides = {name for name, slot in slots.items() if slot.like == "attention"}
        barred = {name for name in sides if not slots[name].needs <= offers}
        taken = sides - barred
        if barred and taken - {name for name in taken if "cross" in slots[name].needs}:
            for name in barred:
                side, _, slot = name.partition(".")
                parts.setdefault(side, {})[slot] = slots["attention"].default
        recipe = job.recipe(self.registry, parts)
        check_parts(recipe)
        return recipe, f"as {', '.join(sorted(taken))}" if barred else ""

    def _heads(self, job: Job, attention: str) -> int:
        """The job's number of heads, or the fewer that an attention takes."""
        if attention not in self._most_heads:
            examined = AttentionSubject(self.registry.find("attention", attention).load())
            self._most_heads[attention] = examined.parent["heads"]
        return min(job.values["architecture"]["heads"], self._most_heads[attention])

    def _probe(self, subject: RecipeSubject, bench: Bench) -> str:
        """What is wrong with it, or nothing."""
        for check in MODEL_CHECKS:
            if check.name in PROBES:
                finding = run_check(check, subject)
                if finding.status == "failed":
                    return f"{finding.name}: {finding.message}"
        model = subject.build_on("cpu").double()
        batch = bench.batch(0, torch.float64)
        total = bench.task.loss(model, batch).total / bench.task.count(batch)
        total.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        if not all(bool(torch.isfinite(value).all()) for value in [total, *gradients]):
            return "the task's loss or its gradient isn't finite"
        return ""

    def row(self, parts: Mapping[str, str]) -> Outcome:
        """Train some steps with a part of each kind: the loss stays finite and parameters move."""
        job = self.jobs[parts["job"]]
        try:
            placed, _ = self._placed(job, parts["attention"], parts["position"])
            slots = ("norm", "feed_forward", "residual")
            recipe = placed.with_overrides(*(f"architecture.{slot}={parts[slot]}" for slot in slots))
            model = build_model(recipe, self.bench(job).description)
        except UserError as error:
            return Outcome("unsupported", error.what)
        try:
            return self._train(model, recipe, self.bench(job))
        except Exception as error:  # whatever a part raises is a finding about it
            return Outcome("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")

    def _train(self, model: Any, recipe: Recipe, bench: Bench) -> Outcome:
        optimizer = build_optimizer(recipe).over(model)
        torch.manual_seed(0)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        for step in range(STEPS):
            batch = bench.batch(step, torch.float32)
            loss = bench.task.loss(model, batch).total / max(1, bench.task.count(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not bool(torch.isfinite(loss)):
                return Outcome("failed", f"the loss of step {step} is {float(loss)}")
        if all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)):
            return Outcome("failed", f"{STEPS} steps changed no parameter")
        return Outcome("tested")
