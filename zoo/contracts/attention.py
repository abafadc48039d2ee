"""Contracts of attention: ``Attention`` for any mixer of positions, ``HeadedAttention`` for one with heads.

Dimension legend: B batch, T queries, S keys, D width, N heads, G key/value heads, H head size, V value size.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import Call, repeat_heads
from zoo.contracts.values.capabilities import WORDS
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.pattern import Pattern
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output


class Attention(Part, nn.Module, ABC):
    """A layer that moves information between positions. Width, place in the stack and dropout are the parent's.

    Args:
        config: the variant's knobs.
        dim: width D.
        heads: number of heads N.
        layer: index of the layer, from 0.
        layers: number of layers in the stack.
        dropout: probability of dropping an attention weight.
        length: most tokens that there can be, for mixers with a table over them; ``None`` for no bound.

    Attributes:
        scale: factor on the scores.
        score_heads, score_size: heads and size of the queries and keys that position schemes see.
        key_heads: heads of these keys, fewer where queries share them.
    """

    offers: ClassVar[frozenset[str]]
    """Words of ``zoo.contracts.values.capabilities``; each is tested by ``zoo check``."""
    mixes: ClassVar[bool] = True
    """Whether it moves information between positions at all; a control may not."""
    ordered: ClassVar[bool] = False
    """Whether it knows the order of its inputs by itself; else permuted inputs give permuted outputs."""

    score_heads: int
    score_size: int
    key_heads: int
    scale: float

    def __init__(
        self,
        config: Any,
        *,
        dim: int,
        heads: int,
        layer: int = 0,
        layers: int = 1,
        dropout: float = 0.0,
        length: int | None = None,
    ) -> None:
        super().__init__()
        if heads < 1 or dim < 1:
            raise ValueError(f"attention needs a positive width and number of heads, got {dim} and {heads}")
        self.config, self.dim, self.heads = config, dim, heads
        self.layer, self.layers, self.dropout, self.length = layer, layers, dropout, length
        self.score_heads, self.score_size, self.key_heads = heads, dim // heads, heads
        self.scale = max(1, self.score_size) ** -0.5

    @abstractmethod
    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Place = NOWHERE,
        cache: LayerCache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D); keys and values come from ``context_BSD`` where it is given.

        The mask is sized, over T queries and S keys, the cached ones included. A position that may attend to
        nothing gives exactly 0 before the output projection. A mixer that writes its own calls ``refuse`` first,
        and makes a ``call`` if it has scores.
        """

    def call(
        self,
        x_BTD: Tensor,
        *,
        mask: Mask,
        place: Place,
        cache: LayerCache | None,
        notes: Notes | None,
        dtype: torch.dtype,
        kind: Literal["self", "cross"] = "self",
        kernel: str = "eager",
        history: Mask | None = None,
    ) -> Call:
        """The call of a forward pass over the keys of ``mask``; ``dtype`` is that of the values."""
        return Call(
            mask=mask,
            history=history,
            place=place,
            scale=self.scale,
            x_BTD=x_BTD,
            cache=cache,
            notes=Notes() if notes is None else notes,
            layer=self.layer,
            kind=kind,
            kernel=kernel,
            dropout=self.dropout if self.training else 0.0,
            dtype=dtype,
        )

    def refuse(self, mask: Mask, *, cross: bool = False, cached: bool = False) -> None:
        """Refuse a call that asks for what the variant doesn't offer.

        Raises:
            ValueError: names the words that are missing and those that are offered.
        """
        asked = mask.parts()
        if cross:
            asked = (asked - {"bidirectional"}) | {"cross"}
        if cached:
            asked = asked | {"cache"}
        if missing := asked - self.offers:
            raise ValueError(
                f"{type(self).__name__} was asked for {', '.join(sorted(missing))}; "
                f"it offers {', '.join(sorted(self.offers))}"
            )


class HeadedAttention(Attention):
    """Attention with heads: projects, rotates, remembers, attends, merges. A variant writes ``attend``.

    ``forward`` is final. Queries, keys and values are linear in the input (equation 12.2), the heads' outputs
    are stacked and projected back to the width (equation 12.8).

    Args:
        score_heads: heads of queries, when there are more than N.
        value_size: size V of a value head, when it isn't the head size.
        output: whether an output projection follows; without it the stacked values must have the width D.
    """

    offers = frozenset(WORDS)
    kernels: ClassVar[tuple[str, ...]] = ("eager",)
    """Kernels that ``attend`` honours in ``call.kernel``."""
    grouped: ClassVar[bool] = False
    """Whether ``attend`` takes G key and value heads as they are; else they are repeated to N before it."""
    keeps_keys: ClassVar[bool] = True
    """Whether a cache keeps keys and values. A recurrence says no: ``attend`` then gets those of the new tokens
    only, and keeps a state in ``call.cache``; ``call.tokens()`` says which of them follow on from it."""
    pattern: Pattern | None = None
    """Which keys a query sees by their places, for a variant that is sparse; set by its constructor."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Knobs of every attention with heads."""

        kv_heads: int | None = None
        """Key/value heads G, a divisor of the heads; null means as many as heads."""
        size: int | None = None
        """Head size H; null means width / heads."""
        scale: float | None = None
        """Factor on the scores; null means 1 / sqrt(H) (equation 12.5), 1.0 means none (equation 12.3)."""
        bias: bool = True
        """Biases in the projections."""
        output_bias: bool | None = None
        """Whether the output projection has one; null means as the others (Qwen 2: bias true, output_bias false)."""
        kernel: Literal["auto", "eager", "sdpa", "flex"] = "auto"
        """Eager is the reference. Auto is sdpa where the variant has it and no attention map was asked for. Flex is
        compiled on a GPU; on a CPU it is forward only, and not fused."""

    def __init__(
        self,
        config: Any,
        *,
        dim: int,
        heads: int,
        layer: int = 0,
        layers: int = 1,
        dropout: float = 0.0,
        length: int | None = None,
        score_heads: int | None = None,
        value_size: int | None = None,
        output: bool = True,
    ) -> None:
        super().__init__(config, dim=dim, heads=heads, layer=layer, layers=layers, dropout=dropout, length=length)
        if config.size is None and dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads; change one, or set size")
        self.kv_heads = heads if config.kv_heads is None else config.kv_heads
        if self.kv_heads < 1 or heads % self.kv_heads:
            raise ValueError(f"{heads} heads can't share {self.kv_heads} key/value heads evenly (kv_heads)")
        if config.kernel != "auto" and config.kernel not in self.kernels:
            raise ValueError(
                f"{type(self).__name__} has no kernel {config.kernel}; it has auto, {', '.join(self.kernels)}"
            )
        if config.kernel == "flex" and dropout:
            raise ValueError(f"the flex kernel drops no weights, dropout is {dropout}: use sdpa, or set it to 0")
        self.score_heads = heads if score_heads is None else score_heads
        size = config.size or dim // heads
        if self.score_heads % heads or size * heads % self.score_heads or size * heads < self.score_heads:
            raise ValueError(
                f"head size {size} of {heads} heads can't be shared by {self.score_heads} score heads; "
                "change dim or heads, or set size"
            )
        self.score_size = size * heads // self.score_heads
        self.value_size = value_size or config.size or dim // heads
        self.scale = self.score_size**-0.5 if config.scale is None else config.scale
        self.key_heads = self.score_heads // heads * self.kv_heads
        self.query = nn.Linear(dim, self.score_heads * self.score_size, bias=config.bias)
        self.key = nn.Linear(dim, self.key_heads * self.score_size, bias=config.bias)
        self.value = nn.Linear(dim, self.kv_heads * self.value_size, bias=config.bias)
        merged = heads * self.value_size
        if not output and merged != dim:
            raise ValueError(f"without an output projection {heads} value heads of {self.value_size} must make {dim}")
        output_bias = config.bias if config.output_bias is None else config.output_bias
        if not output and config.output_bias is not None:
            raise ValueError(f"{type(self).__name__} has no output projection, leave output_bias null")
        self.output = branch_output(nn.Linear(merged, dim, bias=output_bias)) if output else nn.Identity()

    @abstractmethod
    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V) from rotated queries and keys and from values; must come by the mask through ``call``."""

    @final  # type: ignore[misc]  # nn.Module types forward as an attribute
    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Place = NOWHERE,
        cache: LayerCache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D), see ``Attention.forward``."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        q_BNTH = place.rotate(self.normalize_query(self._split(self.query(x_BTD), self.score_size)))
        if context_BSD is None:
            k_BGSH, v_BGSV = self._own_heads(x_BTD, place, cache)
        else:
            k_BGSH, v_BGSV = self._context_heads(context_BSD, cache)
        history = mask
        mask, place = mask.suffix(k_BGSH.shape[2]), place.suffix(k_BGSH.shape[2])
        if context_BSD is None:
            mask = self.narrow(mask)
        notes = Notes() if notes is None else notes
        call = self.call(
            x_BTD,
            mask=mask,
            history=history,
            place=place,
            cache=cache,
            notes=notes,
            dtype=v_BGSV.dtype,
            kind="self" if context_BSD is None else "cross",
            kernel=self._kernel(notes),
        )
        return self.output(self._attended(q_BNTH, k_BGSH, v_BGSV, call).transpose(1, 2).flatten(2))

    def _attended(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """What ``attend`` makes of them, checked for the mask, and 0 where a query may attend to nothing."""
        if not self.grouped:  # by the heads that are there, which under tensor parallelism are fewer than N
            here = q_BNTH.shape[1]
            k_BGSH, v_BGSV = repeat_heads(k_BGSH, here), repeat_heads(v_BGSV, here * self.heads // self.score_heads)
        out_BNTV = self.attend(q_BNTH, k_BGSH, v_BGSV, call)
        expected = (q_BNTH.shape[0], q_BNTH.shape[1] * self.heads // self.score_heads, q_BNTH.shape[2], self.value_size)
        if tuple(out_BNTV.shape) != expected:
            raise ValueError(f"attend must return (B, N, T, V) = {expected}, it returned {tuple(out_BNTV.shape)}")
        if not call.masked:
            raise RuntimeError(
                f"{type(self).__name__}.attend never asked for the mask: use call.softmax, call.hide, call.sdpa or "
                "call.valid_B1S1 or call.tokens"
            )
        return call.emptied(out_BNTV)

    def _split(self, x_BTX: Tensor, size: int) -> Tensor:
        """(B, heads, T, size); the number of heads is what is there, so that a tensor-parallel part works."""
        return x_BTX.unflatten(-1, (-1, size)).transpose(1, 2)

    def _own_heads(self, x_BTD: Tensor, place: Place, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        k_BGSH = place.rotate_keys(self.normalize_key(self._split(self.key(x_BTD), self.score_size)))
        v_BGSV = self._split(self.value(x_BTD), self.value_size)
        if cache is None or not self.keeps_keys:
            return k_BGSH, v_BGSV
        keep = self.keep()
        return cache.append("k", k_BGSH, 2, keep=keep), cache.append("v", v_BGSV, 2, keep=keep)

    def _context_heads(self, context_BSD: Tensor, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the other sequence, computed once and cached."""
        if cache is not None and (k_BGSH := cache.get("k")) is not None:
            v_BGSV = cache.get("v")
            assert v_BGSV is not None
            return k_BGSH, v_BGSV
        k_BGSH = self.normalize_key(self._split(self.key(context_BSD), self.score_size))
        v_BGSV = self._split(self.value(context_BSD), self.value_size)
        if cache is not None:
            cache.put("k", k_BGSH)
            cache.put("v", v_BGSV)
        return k_BGSH, v_BGSV

    def normalize_query(self, q_BNTH: Tensor) -> Tensor:
        """Queries before they are rotated, for a variant that normalizes each head; same shape and dtype."""
        return q_BNTH

    def normalize_key(self, k_BGSH: Tensor) -> Tensor:
        """New keys before they are rotated and cached, likewise."""
        return k_BGSH

    def narrow(self, mask: Mask) -> Mask:
        """The mask with what the variant hides of its own accord: keys outside its pattern, where it has one."""
        return mask if self.pattern is None else mask.narrow(pattern=self.pattern)

    def keep(self) -> int | None:
        """Keys that a query needs in the cache, its own included; ``None`` means all of them."""
        return None if self.pattern is None else self.pattern.keep()

    def _kernel(self, notes: Notes) -> str:
        kernel = self.config.kernel
        if notes.wants_maps and kernel not in ("auto", "eager"):
            raise ValueError(f"attention maps need the eager kernel, the recipe asks for {kernel}")
        if kernel != "auto":
            return kernel
        return "sdpa" if "sdpa" in self.kernels and not notes.wants_maps else "eager"
