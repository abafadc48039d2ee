"""Memory of a training step, measured on the meta device: shapes are computed, nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from zoo.contracts.architecture import Architecture
from zoo.contracts.head import TokenHead
from zoo.contracts.optimizer import Optimizer
from zoo.contracts.values.cache import Cache
from zoo.nn.loss import summed_cross_entropy


def parameter_bytes(model: nn.Module, *, trainable: bool = False) -> int:
    """Bytes of all parameters, or of those that get a gradient; shared ones count once."""
    return sum(
        parameter.numel() * parameter.element_size()
        for parameter in model.parameters()
        if parameter.requires_grad or not trainable
    )


def optimizer_bytes(model: nn.Module, optimizer: Optimizer) -> int | None:
    """Bytes of the optimizer's state beside the model, after a step; ``None`` if it can't step on the meta device."""
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
    try:
        made = optimizer.make(model.named_parameters())
        made.step()
    except RuntimeError:  # fused kernels, for one, exist on real devices only
        return None
    finally:
        model.zero_grad(set_to_none=True)
    return _distinct_bytes(tensor for tensor in _tensors(made.state.values()) if tensor.is_meta)


def activation_bytes(model: Architecture, inputs: Tensor, context: Mapping[str, Tensor]) -> int:
    """Bytes that a forward pass and a loss keep for the backward pass, each storage counted once.

    The loss is a cross-entropy where the head scores tokens, else a sum of squared scores.

    Fused attention keeps what a flash kernel keeps: queries, keys, values, the output and a number per row.
    """
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in weights:
            kept.append(tensor)  # kept alive, so that no address is used twice
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), _FlashAttention(), torch.enable_grad():
        hidden_BTD = model(inputs, **context).hidden
        if isinstance(model.head, TokenHead):
            states_ND = model.head.states(hidden_BTD).flatten(0, 1)
            loss = summed_cross_entropy(states_ND, model.head.weight, model.head.bias, inputs.flatten())[0]
        else:
            loss = model.head(hidden_BTD).square().sum()
    del loss
    return _distinct_bytes(kept)


def cache_bytes(model: Architecture, length: int) -> int:
    """Bytes by which the cache of one sequence grows with the token after ``length``."""
    return held_bytes(model, length + 1, length) - held_bytes(model, length, length)


def held_bytes(model: Architecture, tokens: int, source: int) -> int:
    """Bytes of the cache of one sequence of so many tokens; in an encoder-decoder also of a source."""
    cache = Cache()
    context = {name: value.to("meta") for name, value in model.context(1, source).items()}
    model.eval()
    with torch.no_grad():
        model(model.embedding.example(1, tokens).to("meta"), cache=cache, **context)
    return cache.bytes()


class _FlashAttention(TorchFunctionMode):
    """Runs fused attention as one operation; on the meta device torch would take it apart and keep all scores."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention or not _has_flash(*args, **kwargs):
            return func(*args, **kwargs)
        return _flash(*args, **kwargs)


def _has_flash(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *_: Any, **__: Any) -> bool:
    """Whether a flash kernel takes these; values of another size and a learned bias are left to the plain path.

    So does torch.
    """
    learned = attn_mask is not None and attn_mask.requires_grad
    return query.shape[-1] == value.shape[-1] and key.shape[1] == value.shape[1] and not learned


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    del dropout_p, enable_gqa  # a flash kernel draws its dropout again and repeats no heads
    result = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )
    return result[0]


def _tensors(value: Any) -> Iterable[Tensor]:
    """All tensors in nested mappings and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(value.values())
    elif not isinstance(value, str) and isinstance(value, Iterable):
        for item in value:
            yield from _tensors(item)


def _distinct_bytes(tensors: Iterable[Tensor]) -> int:
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())
