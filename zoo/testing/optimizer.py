"""Conformance of an optimizer component: every parameter once, the rate that was asked for, a state that resumes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from zoo.testing.module_case import scatter
from zoo.testing.modules import documented_config
from zoo.testing.numbers import agree, finite, noise
from zoo.testing.suite import Check, Failed, Suite
from zoo.testing.variants import Variant, variants


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerCase:
    """One optimizer with certain knobs, over a network with matrices, vectors and a frozen layer."""

    component: type[Any]
    variant: Variant
    seed: int

    @property
    def label(self) -> str:
        """``weight_decay=0.0``."""
        return self.variant.label

    def make(self, network: nn.Module, **knobs: Any) -> torch.optim.Optimizer:
        """The torch optimizer over the network's parameters."""
        component = self.component(self.component.Config(**{**self.variant.knobs, **knobs}))
        return component.make(network.named_parameters())

    def network(self) -> nn.Sequential:
        """A linear layer, a norm, a nonlinearity, a linear layer and a frozen one."""
        network = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 4), nn.Linear(4, 4)).double()
        scatter(network, self.seed)
        network[4].requires_grad_(False)
        return network

    def loss(self, network: nn.Module, step: int) -> Tensor:
        """Mean squared error of the regression on the inputs of a step."""
        inputs = noise(64, 6, seed=self.seed * 100_000 + step)
        return (network(inputs) - inputs[:, :4]).square().mean()

    def steps(self, network: nn.Module, optimizer: torch.optim.Optimizer, first: int, count: int) -> list[float]:
        """Losses of some steps of a regression."""
        losses = []
        for step in range(first, first + count):
            loss = self.loss(network, step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses


class OptimizerSubject:
    """An optimizer component."""

    offers: frozenset[str] = frozenset()

    def __init__(self, component: type[Any], *, seed: int = 0, **others: Any) -> None:
        self.component, self.seed = component, seed

    def _accepts(self, variant: Variant) -> bool:
        try:
            case = OptimizerCase(component=self.component, variant=variant, seed=self.seed)
            case.make(case.network())
        except ValueError:
            return False
        return True

    def cases(self, check: Check) -> Iterator[OptimizerCase]:
        """The defaults and each knob changed."""
        for variant in variants(self.component, self._accepts):
            yield OptimizerCase(component=self.component, variant=variant, seed=self.seed)


SUITE = Suite("optimizer", OptimizerSubject)


@SUITE.check("makes a torch optimizer")
def makes(case: OptimizerCase) -> str:
    """A ``torch.optim.Optimizer``, which Lightning and the schedule know how to handle."""
    made = case.make(case.network())
    if not isinstance(made, torch.optim.Optimizer):
        raise Failed(f"makes a {type(made).__name__}, not a torch.optim.Optimizer")
    return type(made).__name__


@SUITE.check("every trainable parameter once, no frozen one")
def every_parameter(case: OptimizerCase) -> None:
    """A parameter in no group is never trained, and nobody would notice."""
    network = case.network()
    held = [id(parameter) for group in case.make(network).param_groups for parameter in group["params"]]
    for name, parameter in network.named_parameters():
        times = held.count(id(parameter))
        if times != int(parameter.requires_grad):
            raise Failed(f"{name} is in {times} groups, it should be in {int(parameter.requires_grad)}")


@SUITE.check("takes the learning rate and the decay that were asked for")
def takes_knobs(case: OptimizerCase) -> None:
    """Every group has ``lr``; matrices decay, vectors (biases, norms) don't."""
    network = case.network()
    for group in case.make(network, lr=0.0123, weight_decay=0.25).param_groups:
        if group["lr"] != 0.0123:
            raise Failed(f"a group has lr {group['lr']} instead of 0.0123")
        for parameter in group["params"]:
            if parameter.ndim < 2 and group.get("weight_decay", 0.0):
                raise Failed(f"a vector of shape {tuple(parameter.shape)} decays by {group['weight_decay']}")


@SUITE.check("learns")
def learns(case: OptimizerCase) -> str:
    """Sixty steps of a regression make its loss on other inputs smaller; the frozen layer stays."""
    network = case.network()
    frozen = [parameter.clone() for parameter in network[4].parameters()]
    before = case.loss(network, 10_000).detach()
    finite(torch.tensor(case.steps(network, case.make(network, lr=0.01), 0, 60)), "losses")
    after = case.loss(network, 10_000).detach()
    if not after < before:
        raise Failed(f"after 60 steps at lr 0.01 the loss is {float(after):.4g}, it began at {float(before):.4g}")
    for kept, parameter in zip(frozen, network[4].parameters(), strict=True):
        agree(parameter, kept, "the frozen layer", tolerance=0.0)
    return f"{float(before):.3g} to {float(after):.3g} in 60 steps"


@SUITE.check("resumes from its state")
def resumes(case: OptimizerCase) -> None:
    """Three steps, state saved and loaded into a new optimizer, three more: bit-equal to six in a row."""
    whole, halves = case.network(), case.network()
    want = case.steps(whole, case.make(whole), 0, 6)
    first = case.make(halves)
    got = case.steps(halves, first, 0, 3)
    second = case.make(halves)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    got += case.steps(halves, second, 3, 3)
    agree(torch.tensor(got), torch.tensor(want), "losses of six steps, resumed after three", tolerance=0.0)


@SUITE.check("every knob has a type, a default and a docstring")
def documented(case: OptimizerCase) -> None:
    """What the tables of the docs are made of."""
    documented_config(case)
