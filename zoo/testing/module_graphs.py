"""A module in the hands of torch.compile and torch.export: the same function as eager.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import shutil
import warnings
from typing import Any

import torch
import torch._inductor.config
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from zoo.testing.module_case import Runner
from zoo.testing.numbers import agree, noise
from zoo.testing.suite import Failed, Skipped


def compiles(case: Any) -> None:
    """torch.compile (aot_eager, no graph breaks) gives the same function.

    Forward only: torch 2.14.1's aot_eager has wrong strides in some of its own gradients, that of ``elu`` for one.
    """
    module, x_BTD = case.make(), case.input()
    want = case.run(module, x_BTD)
    agree(_compiled(case, module, "aot_eager")(x_BTD), want, "compiled against eager")


def compiles_to_kernels(case: Any) -> None:
    """The same through inductor, whose kernels are compiled for this machine; gradients too."""
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        raise Skipped("inductor needs a C++ compiler, and there is none")
    module = case.make()
    want, want_gradients = _outcome(case, module, Runner(case, module))
    with torch._inductor.config.patch(compile_threads=1):  # a pool of processes takes longer to start
        got, got_gradients = _outcome(case, module, _compiled(case, module, "inductor"))
    agree(got, want, "compiled against eager")
    for name, gradient in got_gradients.items():
        agree(gradient, want_gradients[name], f"gradient of {name}, compiled against eager")


def _compiled(case: Any, module: Any, backend: str) -> Any:
    torch.compiler.reset()
    return torch.compile(Runner(case, module), backend=backend, fullgraph=True)


def _outcome(case: Any, module: Any, run: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Output, and gradients of the input and of all parameters that have one."""
    x = case.input()
    x.requires_grad_(x.is_floating_point())
    out = run(x)
    tensors = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    tensors |= {"the input": x} if x.requires_grad else {}
    loss = (out * noise(*out.shape, seed=case.seed + 1)).sum()
    gradients = torch.autograd.grad(loss, list(tensors.values()), materialize_grads=True)
    return out.detach(), dict(zip(tensors, gradients, strict=True))


def exports(case: Any) -> None:
    """torch.export gives a program that is the same function, and leaves nothing behind that a later call would find.

    At a length that no other check has, before anything else runs at it: tables that are made once must outlive it.
    """
    module = case.make()
    case.surround(case.input())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Runner(case, module), (case.input(),), strict=False).module()
    for salt in (0, 1):
        x_BTD = case.input(salt=salt)
        after = case.run(module, x_BTD)
        if isinstance(after, FakeTensor):
            raise Failed("what was made while exporting is kept, and later calls find tensors without numbers in it")
        agree(program(x_BTD), after, f"the exported program, input {salt}")
