"""Keys and values come from a small latent vector, which is all that the cache holds (multi-head latent attention).

    c_s = norm(W_c x_s),  r_s = R W_r x_s,  k_n = [U_n c_s ; r_s],  v_n = V_n c_s
    q_n = [A_n z_t ; R B_n z_t],  z_t = x_t  or, with a ``query_rank``,  norm(W_q x_t)

DeepSeek-AI 2024, "DeepSeek-V2", section 2.1 and appendix C, arXiv:2405.04434; norm is RMS, as in the published model.
A part of its own is rotated (R), in the keys one for all heads; position schemes see only this part. The cache holds c
and r: rank + rotated numbers a token, where multi_head has 2 N H.
Cost for T queries and S keys, besides the projections of the T: either keys and values are made for all S tokens,
S C N (H + V) multiply-adds, and compared as by multi_head; or U and V are absorbed into queries and outputs,
T C N (H + V), and all heads compare with the latents themselves, T S N (2 C + R). ``absorb: auto`` takes what is less,
which is the second while generating; both are the same function.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import Call
from zoo.contracts.values.capabilities import WORDS
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output
from zoo.nn.rms import normalized

__all__ = ["Latent"]


@final
class Latent(Attention):
    """Attention to a latent of C elements and a rotated key of R elements for each token."""

    # A bias that reads queries and keys would find two forms of them.
    offers = frozenset(WORDS) - {"content_bias"}

    @dataclasses.dataclass(kw_only=True)
    class Config(Attention.Config):
        """Sizes; DeepSeek-V2 has rank 512, query_rank 1536 and rotated 64 for 128 heads of 128."""

        rank: int | None = None
        """Elements C of the latent; null means 4 times the head size."""
        query_rank: int | None = None
        """Elements of the queries' latent; null means that queries are made of the input itself."""
        rotated: int | None = None
        """Elements R of a head's rotated part, even for rotary positions; null means half the head size."""
        size: int | None = None
        """Elements H of a head's other part; null means width / heads."""
        value_size: int | None = None
        """Elements V of a head's values; null means the head size."""
        scale: float | None = None
        """Factor on the scores; null means 1 / sqrt(H + R)."""
        bias: bool = False
        """Biases in the projections to latents and of the output."""
        eps: float = 1e-6
        """Added to the mean square of a latent."""
        absorb: Literal["auto", "never", "always"] = "auto"
        """Whether heads are compared with the latents themselves; auto takes what needs fewer multiplications."""
        kernel: Literal["auto", "eager", "sdpa"] = "auto"
        """Eager is the reference. Auto is sdpa where no attention map was asked for."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        if config.size is None and dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads; change one, or set size")
        self.size = dim // heads if config.size is None else config.size
        self.value_size = self.size if config.value_size is None else config.value_size
        self.rank = 4 * self.size if config.rank is None else config.rank
        self.score_size, self.key_heads = max(1, self.size // 2) if config.rotated is None else config.rotated, 1
        for name in ("rank", "query_rank", "rotated", "size", "value_size"):
            if getattr(config, name) is not None and getattr(config, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
        self.scale = (self.size + self.score_size) ** -0.5 if config.scale is None else config.scale
        if config.query_rank is not None:
            self.query_latent = nn.Linear(dim, config.query_rank, bias=config.bias)
            self.query_norm = nn.RMSNorm(config.query_rank, eps=config.eps)
        self.query = nn.Linear(config.query_rank or dim, heads * (self.size + self.score_size), bias=False)
        self.latent = nn.Linear(dim, self.rank + self.score_size, bias=config.bias)
        self.latent_norm = nn.RMSNorm(self.rank, eps=config.eps)
        self.key_value = nn.Linear(self.rank, heads * (self.size + self.value_size), bias=False)
        self.output = branch_output(nn.Linear(heads * self.value_size, dim, bias=config.bias))

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
        """(B, T, D) from (B, T, D)."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        latent_B1SX = self._own(x_BTD, place, cache) if context_BSD is None else self._others(context_BSD, cache)
        call = self.call(
            x_BTD,
            mask=mask,
            place=place,
            cache=cache,
            notes=notes,
            dtype=latent_B1SX.dtype,
            kind="self" if context_BSD is None else "cross",
            kernel=self._kernel(notes),
        )
        q_BNTX = self._queries(x_BTD, place)
        absorb = self._absorbs(x_BTD.shape[1], latent_B1SX.shape[2])
        attend = self._with_latents if absorb else self._with_keys
        return self.output(call.emptied(attend(q_BNTX, latent_B1SX, call)).transpose(1, 2).flatten(2))

    def _queries(self, x_BTD: Tensor, place: Place) -> Tensor:
        """(B, N, T, H + R)."""
        z_BTQ = x_BTD if self.config.query_rank is None else normalized(self.query_latent(x_BTD), self.query_norm)
        q_BNTX = self.query(z_BTQ).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        plain_BNTH, rotated_BNTR = q_BNTX.split([self.size, self.score_size], -1)
        return torch.cat([plain_BNTH, place.rotate(rotated_BNTR)], -1)

    def _latents(self, x_BSD: Tensor, place: Place) -> Tensor:
        """(B, 1, S, C + R): one head, normalized and rotated."""
        latent_B1SC, key_B1SR = self.latent(x_BSD)[:, None].split([self.rank, self.score_size], -1)
        return torch.cat([normalized(latent_B1SC, self.latent_norm), place.rotate_keys(key_B1SR)], -1)

    def _own(self, x_BTD: Tensor, place: Place, cache: LayerCache | None) -> Tensor:
        latent_B1TX = self._latents(x_BTD, place)
        return latent_B1TX if cache is None else cache.append("latent", latent_B1TX, 2)

    def _others(self, context_BSD: Tensor, cache: LayerCache | None) -> Tensor:
        """Of the other sequence, computed once and cached."""
        if cache is not None and (kept_B1SX := cache.get("latent")) is not None:
            return kept_B1SX
        latent_B1SX = self._latents(context_BSD, NOWHERE)
        if cache is not None:
            cache.put("latent", latent_B1SX)
        return latent_B1SX

    def _absorbs(self, queries: int, keys: int) -> bool:
        """Whether the second form takes fewer multiplications, where nothing else is asked for."""
        made = self.rank * (self.size + self.value_size)
        with_keys = keys * made + queries * keys * (self.size + self.score_size + self.value_size)
        with_latents = queries * made + queries * keys * (2 * self.rank + self.score_size)
        return self.config.absorb == "always" or (self.config.absorb == "auto" and with_latents < with_keys)

    def _with_keys(self, q_BNTX: Tensor, latent_B1SX: Tensor, call: Call) -> Tensor:
        """(B, N, T, V): keys and values are made for each head."""
        latent_BSC, key_B1SR = latent_B1SX[:, 0, :, : self.rank], latent_B1SX[..., self.rank :]
        made_BNSY = self.key_value(latent_BSC).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k_BNSH, v_BNSV = made_BNSY.split([self.size, self.value_size], -1)
        k_BNSX = torch.cat([k_BNSH, key_B1SR.expand(-1, self.heads, -1, -1)], -1)
        if call.kernel == "eager":
            return call.mix(call.softmax(call.scores(q_BNTX, k_BNSX)), v_BNSV)
        missing = max(0, k_BNSX.shape[-1] - self.value_size)  # kernels without a T x S want one size of all three
        return call.sdpa(q_BNTX, k_BNSX, F.pad(v_BNSV, (0, missing)))[..., : self.value_size]

    def _with_latents(self, q_BNTX: Tensor, latent_B1SX: Tensor, call: Call) -> Tensor:
        """(B, N, T, V): the latents are the keys and values of all heads."""
        made_NYC = self.key_value.weight.to(q_BNTX.dtype).unflatten(0, (self.heads, -1))
        to_key_NHC, to_value_NVC = made_NYC.split([self.size, self.value_size], 1)
        q_BNTX = torch.cat([q_BNTX[..., : self.size] @ to_key_NHC, q_BNTX[..., self.size :]], -1)
        if call.kernel == "eager":
            mixed_BNTC = call.mix(call.softmax(call.scores(q_BNTX, latent_B1SX)), latent_B1SX[..., : self.rank])
        else:
            mixed_BNTC = call.sdpa(q_BNTX, latent_B1SX, latent_B1SX)[..., : self.rank]
        return mixed_BNTC @ to_value_NVC.transpose(1, 2)

    def _kernel(self, notes: Notes | None) -> str:
        looked_at = notes is not None and notes.wants_maps
        if looked_at and self.config.kernel == "sdpa":
            raise ValueError("attention maps need the eager kernel, the recipe asks for sdpa")
        if self.config.kernel != "auto":
            return self.config.kernel
        return "eager" if looked_at else "sdpa"
