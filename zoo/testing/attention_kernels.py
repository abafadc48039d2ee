"""Attention checks about kernels: a fused one is the eager reference, to a budget taken from float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from zoo.contracts.attention import HeadedAttention
from zoo.testing.attention_case import SUITE, AttentionCase
from zoo.testing.masks import describe, random_mask
from zoo.testing.numbers import finite, noise, within_rounding
from zoo.testing.suite import Failed, Skipped


@SUITE.check("each kernel is a path of its own", schemes=False, knobs=False, tokens=(6,))
def kernels_differ(case: AttentionCase) -> None:
    """A kernel that is declared calls other functions of torch than the eager one: somebody reads ``call.kernel``."""
    if not issubclass(case.component, HeadedAttention) or len(case.component.kernels) < 2:
        raise Skipped("it has one kernel only")
    eager = _functions(case, "eager")
    for kernel in case.component.kernels:
        if kernel != "eager" and _functions(case, kernel) == eager:
            raise Failed(
                f"kernels declares {kernel}, which does the same as eager, call by call; "
                f'ask call.kernel == "{kernel}" in attend, or leave it out'
            )


class _Recorder(TorchFunctionMode):
    """Notes every function of torch that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the function, and call it."""
        self.called.append(func)
        return func(*args, **(kwargs or {}))


def _functions(case: AttentionCase, kernel: str) -> list[Any]:
    """Functions of torch that a pass with a kernel calls, in order."""
    module = case.with_knobs(kernel=kernel).make(dtype=torch.float32)
    x_BTD = case.input(dtype=torch.float32)
    with torch.no_grad(), _Recorder() as recorder:
        case.run(module, x_BTD)
    return recorder.called


@SUITE.check("kernels equal the eager reference", tokens=(1, 6))
def kernels_agree(case: AttentionCase) -> str:
    """Under random masks each kernel's error in float32, forward and backward, is about that of the eager one."""
    if not issubclass(case.component, HeadedAttention) or len(case.component.kernels) < 2:
        raise Skipped("it has one kernel only")
    if case.variant.knobs.get("kernel"):
        raise Skipped("compared from the default knobs")
    fused = [kernel for kernel in case.component.kernels if kernel != "eager"]
    for draw in range(5):
        mask = random_mask(case.offers, 2, case.tokens, case.seed * 100 + draw)
        exact, eager = (_outcome(case, "eager", mask, dtype) for dtype in (torch.float64, torch.float32))
        for kernel in fused:
            _check_kernel(case, kernel, mask, exact, eager)
    return f"{', '.join(fused)} against eager"


def _check_kernel(case: AttentionCase, kernel: str, mask: object, exact: list[Tensor], eager: list[Tensor]) -> None:
    got = _outcome(case, kernel, mask, torch.float32, backward=kernel != "flex")
    for name, value, want, reference in zip(("output", "gradient"), got, exact, eager, strict=False):
        finite(value, f"{kernel}, {describe(mask)}: {name}")  # type: ignore[arg-type]
        error, usual = float((value - want).abs().max()), float((reference - want).abs().max())
        budget = 4 * usual + 32 * torch.finfo(torch.float32).eps * max(1.0, float(want.abs().max()))
        if error > budget:
            raise Failed(
                f"{kernel}, {describe(mask)}: {name} is off by {error:.3g} from float64, eager by {usual:.3g}"  # type: ignore[arg-type]
            )


def _outcome(
    case: AttentionCase, kernel: str, mask: object, dtype: torch.dtype, *, backward: bool = True
) -> list[Tensor]:
    """Output and gradient of the input with one kernel, in float64."""
    module = case.with_knobs(kernel=kernel).make(dtype=dtype)
    x_BTD = case.input(dtype=dtype).requires_grad_(backward)
    with torch.set_grad_enabled(backward):
        out_BTD = case.run(module, x_BTD, mask)  # type: ignore[arg-type]
    if not backward:
        return [out_BTD.double()]
    weights = noise(*out_BTD.shape, seed=case.seed + 1, dtype=dtype)
    (gradient_BTD,) = torch.autograd.grad((out_BTD * weights).sum(), x_BTD)
    return [out_BTD.detach().double(), gradient_BTD.double()]


@SUITE.check("bfloat16 keeps close scores apart", schemes=False, tokens=(6,))
def close_scores(case: AttentionCase) -> None:
    """Queries and keys that bfloat16 holds exactly, scores near 500 that it would round: products must be wider."""
    module = case.make(dtype=torch.bfloat16)
    if not isinstance(module, HeadedAttention) or "bias" not in case.offers:
        raise Skipped("it has no scores of queries and keys")
    exact = case.make()
    with torch.no_grad():
        for made in (module, exact):
            for layer, factor in ((made.query, 0.0), (made.key, 2.0**-7)):
                layer.weight.copy_(factor * torch.eye(*layer.weight.shape))
                if layer.bias is not None:
                    layer.bias.fill_(128.0 if layer is made.query else 1.0)
        for name, parameter in exact.named_parameters():
            parameter.copy_(dict(module.named_parameters())[name])
    if module.query.bias is None:
        raise Skipped("it has no biases to make such scores of")
    x_BTD = case.input().sign()
    want, got = case.run(exact, x_BTD), case.run(module, x_BTD.bfloat16())
    within_rounding(got, want, torch.bfloat16, "scores near 500 in bfloat16 against float64", roundings=16)
