"""What the conformance kit finds in attentions of other libraries: x-transformers, and transformers' own interface.

    pip install x-transformers                    # not needed for the part about transformers
    python benchmarks/examine_others.py           # about five minutes on two cores
    python benchmarks/examine_others.py rotary    # only what has this in its name

Each is wrapped as an ``Attention`` of the zoo: x-transformers' ``Decoder`` and ``Encoder`` of one layer with some of
their options, and a Llama of transformers whose attention function is registered with ``AttentionInterface``. The kit
then runs what it knows of masks, padding and caches; what concerns only our own contract (words, state dicts, initial
values, the meta device) is left out. They compute in float32, as their softmax does whatever it is given, so that
numbers are held to 1e-4 instead of 1e-9. Zero for a query that sees nothing is our convention, and told apart.
"""

from __future__ import annotations

import importlib.metadata
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.mask import Mask, positions_of
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.testing.attention_case import AttentionSubject
from zoo.testing.check import suite_of
from zoo.testing.modules import BRANCH_CHECKS, MODULE_CHECKS
from zoo.testing.numbers import exactness
from zoo.testing.report import Finding
from zoo.testing.suite import Check, run_check

DECODER = frozenset({"causal", "cache", "padding"})
ENCODER = frozenset({"bidirectional", "padding"})
OURS = {
    "refuses a width that its heads don't divide, or works",
    "its length is kept, or it has none",
    "memory of the cache grows with tokens or not at all",
}
CONVENTIONS = {"a row that sees nothing gives zero"}

ROTARY = {"rotary_pos_emb": True, "rotary_emb_dim": 4}
X_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": ROTARY,
    "xpos": {**ROTARY, "rotary_xpos": True},
    "polar": {"polar_pos_emb": True},
    "alibi": {"alibi_pos_bias": True, "alibi_num_heads": 2},
    "rotary and alibi": {**ROTARY, "alibi_pos_bias": True},
    "t5": {"rel_pos_bias": True},
    "dynamic bias": {"dynamic_pos_bias": True},
    "data-dependent alibi": {"attn_data_dependent_alibi": True},
    "shifted tokens": {"shift_tokens": 1},
    "one key/value head": {"attn_one_kv_head": True},
    "two key/value heads": {"attn_kv_heads": 2},
    "talking heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "query-key norm": {"attn_qk_norm": True},
    "memory keys": {"attn_num_mem_kv": 2},
    "sparse top-k": {"attn_sparse_topk": 3},
    "gated values": {"attn_gate_values": True},
    "attention on attention": {"attn_on_attn": True},
    "soft-capped": {"attn_softclamp_logits": True},
    "sigmoid": {"attn_sigmoid": True},
    "laser": {"attn_laser": True},
    "signed": {"attn_cog_signed": True},
    "selective": {"attn_selective": True},
    "zero key": {"attn_add_zero_kv": True},
    "latent": {"attn_use_latent_q": True, "attn_dim_latent_q": 8, "attn_use_latent_kv": True, "attn_dim_latent_kv": 8},
    "flash": {"attn_flash": True},
    "flash, rotary": {**ROTARY, "attn_flash": True},
}
"""Name → options of x-transformers' ``AttentionLayers``."""

BOTH_WAYS = ("plain", "rotary", "alibi", "t5", "shifted tokens", "memory keys", "sigmoid", "flash")
"""Those that are examined as an encoder too."""


class Wrapped(Attention):
    """An attention of another library, in float32; ``mixed`` calls it."""

    def to(self, *args: Any, **keywords: Any) -> Any:
        """In float32 whatever is asked for."""
        return super().to(torch.float32)

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
        """(B, T, D)."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        return self.mixed(x_BTD.float(), mask, cache).to(x_BTD.dtype)

    def mixed(self, x_BTD: Tensor, mask: Mask, cache: LayerCache | None) -> Tensor:
        """(B, T, D) by the other library."""
        raise NotImplementedError


class XTransformers(Wrapped):
    """One layer of x-transformers' ``Decoder`` or ``Encoder``."""

    options: ClassVar[dict[str, Any]]

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        import loguru
        import x_transformers

        loguru.logger.disable("x_transformers")
        made = x_transformers.Decoder if "causal" in self.offers else x_transformers.Encoder
        self.layers = made(dim=self.dim, depth=1, heads=self.heads, attn_dim_head=self.score_size, **self.options)

    def mixed(self, x_BTD: Tensor, mask: Mask, cache: LayerCache | None) -> Tensor:
        """Through the layers; what they remember is kept in the zoo's cache, so that it can be reordered."""
        from x_transformers.attend import Intermediates
        from x_transformers.x_transformers import LayerIntermediates

        before = None if cache is None else _kept(cache)
        if before:
            length = mask.keys - mask.queries
            kept = [Intermediates(cached_kv=pair, layer_type="a") for pair in before]
            before = LayerIntermediates(attn_intermediates=kept, cache_length=length)
        out_BTD, after = self.layers(
            x_BTD,
            self_attn_kv_mask=mask.valid_BS,
            cache=before or None,
            cache_age=x_BTD.shape[1],
            return_hiddens=True,
        )
        if cache is not None:
            _keep(cache, [layer.cached_kv for layer in after.attn_intermediates if layer.cached_kv is not None])
        return out_BTD


class Transformers(Wrapped):
    """A Llama of one layer whose attention is a function registered with ``AttentionInterface``."""

    function: ClassVar[str]

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        from transformers import LlamaConfig, LlamaModel

        sizes = {"hidden_size": self.dim, "intermediate_size": self.dim, "num_attention_heads": self.heads}
        made = LlamaConfig(
            **sizes, num_key_value_heads=self.heads, num_hidden_layers=1, vocab_size=3, pad_token_id=None
        )
        made._attn_implementation = self.function
        self.layers = LlamaModel(made)
        self.layers.embed_tokens = torch.nn.Identity()

    def mixed(self, x_BTD: Tensor, mask: Mask, cache: LayerCache | None) -> Tensor:
        """Through the model, from vectors."""
        from transformers import DynamicCache

        memory = None
        if cache is not None:
            memory = DynamicCache()
            for layer, pair in enumerate(_kept(cache)):
                memory.update(*pair, layer)
        positions_BT = torch.arange(mask.start, mask.start + mask.queries, device=x_BTD.device)[None]
        if mask.valid_BS is not None:
            positions_BT = positions_of(mask.valid_BS, None)[:, -mask.queries :]
        out = self.layers(
            inputs_embeds=x_BTD,
            attention_mask=None if mask.valid_BS is None else mask.valid_BS.long(),
            position_ids=positions_BT,
            past_key_values=memory,
            use_cache=memory is not None,
        )
        if cache is not None:
            _keep(cache, [(layer.keys, layer.values) for layer in memory.layers])
        return out.last_hidden_state


def _keep(cache: LayerCache, pairs: list[tuple[Tensor | None, ...]]) -> None:
    for layer, pair in enumerate(pairs):
        for part, tensor in enumerate(pair):
            if tensor is not None:
                cache.put(f"{layer}.{part}", tensor)


def _kept(cache: LayerCache) -> list[tuple[Tensor | None, Tensor | None]]:
    pairs = []
    while (first := cache.get(f"{len(pairs)}.0")) is not None:
        pairs.append((first, cache.get(f"{len(pairs)}.1")))
    return pairs


def x_transformers_subjects() -> Iterator[tuple[str, type[Wrapped]]]:
    """Decoders with each set of options, and encoders with those that don't need to be causal."""
    for name, options in X_TRANSFORMERS.items():
        for kind, offers in (("Decoder", DECODER), ("Encoder", ENCODER)):
            if kind == "Encoder" and name not in BOTH_WAYS:
                continue
            yield f"x-transformers {kind}, {name}", type(kind, (XTransformers,), {"offers": offers, "options": options})


def weighted(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """A right attention function, as transformers asks for one."""
    scores = query @ key.mT * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None


def transformers_subjects() -> Iterator[tuple[str, type[Wrapped]]]:
    """Their own eager and fused attention, and a function of ours registered with and without a mask function."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register("zoo_alone", weighted)
    AttentionInterface.register("zoo_with_mask", weighted)
    AttentionMaskInterface.register("zoo_with_mask", eager_mask)
    names = {
        "eager": "eager",
        "sdpa": "sdpa",
        "a registered function, with a mask function": "zoo_with_mask",
        "a registered function, without a mask function": "zoo_alone",
    }
    for name, function in names.items():
        yield f"transformers Llama, {name}", type("Llama", (Transformers,), {"offers": DECODER, "function": function})


def behaviour() -> list[Check]:
    """The attention checks that ask for nothing but what every library promises."""
    ours = {check.name for check in (*MODULE_CHECKS, *BRANCH_CHECKS)} | OURS
    return [check for check in suite_of("attention").checks if check.name not in ours and not check.full]


def examine_class(component: type[Wrapped]) -> list[Finding]:
    """The findings of all checks of behaviour; of the first only, where that fails."""
    subject, findings = AttentionSubject(component), list[Finding]()
    with exactness(1e-4):
        for check in behaviour():
            findings.append(run_check(check, subject))
            if findings[0].status == "failed":
                break
    return findings


warnings.filterwarnings("ignore", category=FutureWarning)


def main(wanted: str = "") -> int:
    """Print what fails."""
    for library, subjects in (("transformers", transformers_subjects), ("x-transformers", x_transformers_subjects)):
        try:
            print(f"{library} {importlib.metadata.version(library)}, torch {torch.__version__}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{library} isn't installed")
            continue
        _print_all(subjects, wanted)
    return 0


def _print_all(subjects: Callable[[], Iterator[tuple[str, type[Wrapped]]]], wanted: str) -> None:
    for name, component in subjects():
        if wanted not in name:
            continue
        began, findings = time.perf_counter(), examine_class(component)
        passed = sum(finding.status == "passed" for finding in findings)
        failed = [finding for finding in findings if finding.status == "failed"]
        print(f"  {name}: {passed} passed, {len(failed)} failed ({time.perf_counter() - began:.0f} s)")
        for finding in failed:
            sign = "convention" if finding.name in CONVENTIONS else "FAILED"
            print(f"    {sign} {finding.name}\n      {finding.message}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
