"""Counting multiply-adds: matrix products have a formula, what moves or scales numbers has none, the rest is unknown.

Counted on the meta device, where torch takes fused attention apart into its products: on a CPU its counter has no
formula for the fused kernel and would call it free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

_MOVES = """
_log_softmax _safe_softmax _softmax _to_copy _unsafe_view all amax amin any arange argmax argmin bernoulli
bucketize cat clone constant_pad_nd copy_ count_nonzero cummax cummin cumprod cumsum detach embedding empty
empty_like empty_strided fill_ flip full full_like gather index index_add index_select lift_fresh linspace
logcumsumexp logsumexp masked_fill max mean min native_batch_norm native_dropout native_group_norm
native_layer_norm _fused_rms_norm new_empty new_full new_ones new_zeros nonzero norm one_hot ones ones_like
prod rand randn repeat repeat_interleave roll scalar_tensor scatter scatter_add searchsorted sort stack std sum
topk tril triu var var_mean zero_ zeros zeros_like _local_scalar_dense linalg_vector_norm slice_scatter
select_scatter index_put index_put_ scatter_ masked_scatter transpose_ unsafe_split floor_divide
"""
"""Operations of torch that make, move, sort, add up or normalize numbers and have no product of matrices in them."""

_WITHOUT_PRODUCTS = frozenset(_MOVES.split())


class Products(NamedTuple):
    """What a computation costs.

    Attributes:
        multiply_adds: of all matrix products and convolutions; ``None`` where an operation is unknown.
        unknown: operations that have no formula and may be products.
    """

    multiply_adds: int | None
    unknown: list[str]


@register_flop_formula(torch.ops.aten.linalg_solve_triangular)
def _triangular(system: list[int], known: list[int], *args: Any, out_shape: list[int], **kwargs: Any) -> int:
    """n^2 / 2 multiply-adds for each column of what is known."""
    return system[-1] * math.prod(out_shape)


@register_flop_formula([torch.ops.aten._fft_c2c, torch.ops.aten._fft_r2c, torch.ops.aten._fft_c2r])
def _fourier(x: list[int], axes: list[int], *args: Any, out_shape: list[int], **kwargs: Any) -> int:
    """5 n log2 n, the textbook's figure for n complex numbers, and half of it for real ones.

    An axis of real numbers is shorter by half where it is complex; the longer of the two shapes has all of them.
    """
    numbers = max(math.prod(x), math.prod(out_shape))
    lengths = [max(x[axis], out_shape[axis]) for axis in axes]
    return round(5 * numbers * math.log2(max(2, math.prod(lengths)))) // (1 if tuple(x) == tuple(out_shape) else 2)


def count_products(compute: Callable[[], object]) -> Products:
    """Multiply-adds of a computation over tensors on the meta device, without gradients.

    Attention counts all T x S scores, also those that a causal mask hides. One multiply-add is two FLOPs.
    """
    watch = _Unknown()
    with FlopCounterMode(display=False) as counter, watch, torch.no_grad():
        compute()
    unknown = sorted(watch.found)
    return Products(None if unknown else counter.get_total_flops() // 2, unknown)


class _Unknown(TorchDispatchMode):
    """Collects the names of operations that torch has no formula for and that aren't known to need none."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not _is_known(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
            self.found.add(str(func))
        return func(*args, **kwargs)


def _is_known(func: Any) -> bool:
    if func._overloadpacket in flop_registry or func.is_view or torch.Tag.pointwise in func.tags:
        return True
    namespace, _, name = func._schema.name.partition("::")
    return namespace in ("prim", "prims") or (namespace == "aten" and name in _WITHOUT_PRODUCTS)
