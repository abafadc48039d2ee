"""The linear layer of groups of rows: a loop, torch's own examination of an operation, its kernel on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from zoo.nn import grouped
from zoo.nn.grouped import GroupedLinear, grouped_linear, grouped_outer

ENDS = [3, 3, 7, 8]  # the second group is empty, rows 8 and 9 belong to none


def operands(dtype: torch.dtype = torch.float64, device: str = "cpu", scale: int = 1) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    x_AD = torch.randn(10 * scale, 16 * scale, generator=draw, dtype=torch.float64)
    weight_EFD = torch.randn(4, 8 * scale, 16 * scale, generator=draw, dtype=torch.float64)
    ends_E = scale * torch.tensor(ENDS)
    return x_AD.to(device, dtype), weight_EFD.to(device, dtype), ends_E.to(device)


def by_row(x_AD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> Tensor:
    """Each row by itself."""
    group_A = torch.searchsorted(ends_E, torch.arange(len(x_AD), device=ends_E.device), right=True)
    padded = torch.cat([weight_EFD, torch.zeros_like(weight_EFD[:1])])
    return torch.einsum("afd,ad->af", padded[group_A], x_AD)


def test_each_row_meets_the_matrix_of_its_group() -> None:
    x_AD, weight_EFD, ends_E = operands()
    tensors = [x_AD.requires_grad_(), weight_EFD.requires_grad_()]
    got, want = grouped_linear(x_AD, weight_EFD, ends_E), by_row(x_AD, weight_EFD, ends_E)
    torch.testing.assert_close(got, want, atol=1e-13, rtol=0)
    assert not got[8:].any()
    cotangent = torch.randn(got.shape, dtype=got.dtype, generator=torch.Generator().manual_seed(1))
    gradients, expected = (torch.autograd.grad(out, tensors, cotangent) for out in (got, want))
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-13, rtol=0)


@pytest.mark.slow
def test_torch_finds_nothing_wrong_with_the_operations() -> None:
    """Schema, shapes without values, autograd registration, and compilation with shapes that change."""
    x_AD, weight_EFD, ends_E = operands()
    torch.library.opcheck(grouped_linear.default, (x_AD.requires_grad_(), weight_EFD.requires_grad_(), ends_E))
    torch.library.opcheck(grouped_outer.default, (torch.ones(10, 8), torch.ones(10, 16), ends_E))
    assert torch.autograd.gradcheck(lambda x, w: grouped_linear(x, w, ends_E), (x_AD, weight_EFD), fast_mode=True)


def test_its_products_are_counted() -> None:
    x_AD, weight_EFD, ends_E = operands()
    with FlopCounterMode(display=False) as counter:
        grouped_linear(x_AD.requires_grad_(), weight_EFD.requires_grad_(), ends_E).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 10 * 16 * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_autocast_narrows_what_it_narrows_in_a_linear_layer(dtype: torch.dtype) -> None:
    layer, plain = GroupedLinear(4, 16, 8).to(dtype), torch.nn.Linear(16, 8).to(dtype)
    x_AD, _, ends_E = operands(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x_AD, ends_E).dtype == plain(x_AD).dtype
    assert layer(x_AD, ends_E).dtype == dtype


def test_the_kernel_for_all_groups_is_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU torch has it for testing; sums of up to 128 float32 products, gradients of up to 24."""
    outcomes = []
    for fast in (False, True):
        monkeypatch.setattr(grouped, "_is_fast", lambda *tensors, fast=fast: fast)
        outcomes.append(outcome(*operands(torch.float32, scale=8)))
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=0)
    assert not outcomes[1][0][64:].any()


def outcome(x_AD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> list[Tensor]:
    """The result, and the gradients of a random sum over it."""
    tensors = [x_AD.requires_grad_(), weight_EFD.requires_grad_()]
    out_AF = grouped_linear(*tensors, ends_E)
    cotangent = torch.randn(out_AF.shape, generator=torch.Generator().manual_seed(1)).to(out_AF)
    return [out_AF.detach(), *torch.autograd.grad(out_AF, tensors, cotangent)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_kernel_of_a_gpu_is_the_loop(dtype: torch.dtype) -> None:
    """Sums of up to 128 products, rounded once to ``dtype`` (by 2^-8 of it at most in bfloat16) from wider sums."""

    given = operands(dtype, "cuda", scale=8)
    exact = outcome(*(tensor.double().cpu() if tensor.is_floating_point() else tensor.cpu() for tensor in given))
    for one, other in zip(outcome(*given), exact, strict=True):
        assert one.dtype == dtype
        error = (one.cpu().double() - other).square().mean().sqrt() / other.square().mean().sqrt()
        assert float(error) < {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-20}[dtype]
