"""Faults of mixers that write their own forward or keep a state of their own, most of them about the cache.

Dimension legend: B batch, T queries, S keys, D width, N heads, H head size, V value size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from faults_of_an_outsider.good import Convolution, Decay, Ported
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.place import NOWHERE, Place

Three = tuple[Tensor, Tensor, Tensor]


class WindowOneTooWide(Ported):
    """``<=`` where the window's distance is ``<``: one key more than the mask says."""

    def allowed(self, mask: Mask, device: torch.device) -> Tensor:
        wider = mask if mask.window is None else mask.changed(window=mask.window + 1)
        return super().allowed(wider, device)


class WindowOnOneSide(Ported):
    """The window is ``query - key < window`` without an absolute value: an encoder sees all of the future."""

    def allowed(self, mask: Mask, device: torch.device) -> Tensor:
        allowed = super().allowed(mask.changed(window=None), device)
        if mask.window is None:
            return allowed
        query_T1 = torch.arange(mask.start, mask.start + mask.queries, device=device)[:, None]
        key_S = torch.arange(mask.first, mask.first + mask.keys, device=device)
        return allowed & (query_T1 - key_S < mask.window)


class PrefixOpensPadding(Ported):
    """The prefix is ORed in last: padding within it, and another document's tokens, can be attended."""

    def allowed(self, mask: Mask, device: torch.device) -> Tensor:
        allowed = super().allowed(mask.changed(prefix_B=None), device)
        if mask.prefix_B is None or not mask.causal:
            return allowed
        key_S = torch.arange(mask.first, mask.first + mask.keys, device=device)
        return allowed | (key_S < mask.prefix_B[:, None, None])[:, None]


class DocumentsIgnored(Ported):
    """Documents are offered and left out of the mask: packed documents see each other."""

    def allowed(self, mask: Mask, device: torch.device) -> Tensor:
        return super().allowed(mask.changed(documents_BS=None), device)


class ContextPaddingIgnored(Ported):
    """Cross-attention leaves the source's padding in: a translation depends on the longest source of its batch."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        if call.kind == "cross":
            call.mask = call.mask.changed(valid_BS=None)
        return super().weights(q_BNTH, k_BNSH, call)


class PaddedQueriesHidden(Ported):
    """The padding mask lies on the queries' axis instead of the keys': all tokens attend to padding."""

    def allowed(self, mask: Mask, device: torch.device) -> Tensor:
        allowed, valid_BT = super().allowed(mask.changed(valid_BS=None), device), mask.valid_BT()
        return allowed if valid_BT is None else allowed & valid_BT[:, None, :, None]


class MergedWithoutTranspose(Ported):
    """(B, N, T, V) is reshaped to (B, T, D) as it lies: tokens and heads are mixed up, the future leaks in."""

    def merged(self, out_BNTV: Tensor) -> Tensor:
        return out_BNTV.reshape(out_BNTV.shape[0], out_BNTV.shape[2], -1)


class CachedBeforeRotation(Ported):
    """Keys are cached as they are and rotated with the new one: a step turns them all by its own position."""

    def own(self, x_BTD: Tensor, mask: Mask, place: Place, cache: LayerCache | None) -> Three:
        q, k, v = super().own(x_BTD, mask, NOWHERE, cache)
        return place.rotate(q), place.rotate_keys(k), v


class PastOnModule(Ported):
    """Keys and values are kept on the module instead of in the cache: two conversations in turn read each other's."""

    past: Any = None

    def own(self, x_BTD: Tensor, mask: Mask, place: Place, cache: LayerCache | None) -> Three:
        q, k, v = super().own(x_BTD, mask, place, None)
        if cache is None:
            return q, k, v
        if mask.start:
            k, v = torch.cat([self.past[0], k], 2), torch.cat([self.past[1], v], 2)
        self.past = k, v
        return q, k, v


class CachedByTheFirstHead(Ported):
    """Cached heads first, not batch first: when beams are reordered, heads are, and beams keep each other's past."""

    def own(self, x_BTD: Tensor, mask: Mask, place: Place, cache: LayerCache | None) -> Three:
        q, k, v = super().own(x_BTD, mask, place, None)
        if cache is not None:
            k = cache.append("k", k.transpose(0, 1), 2).transpose(0, 1)
            v = cache.append("v", v.transpose(0, 1), 2).transpose(0, 1)
        return q, k, v


class CachedKeysScaledInPlace(Ported):
    """The scale is multiplied into the keys in place, and these are the cache's own: each step shrinks them again."""

    def weights(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor:
        if call.cache is None:
            return super().weights(q_BNTH, k_BNSH, call)
        k_BNSH.mul_(call.scale)
        return super().weights(q_BNTH / call.scale, k_BNSH, call)


class InputZeroedInPlace(Ported):
    """Padding is zeroed in the input itself: under post-norm this is the residual stream, which loses its values."""

    def own(self, x_BTD: Tensor, mask: Mask, place: Place, cache: LayerCache | None) -> Three:
        valid_BT = mask.valid_BT()
        if valid_BT is not None:
            with torch.no_grad():
                x_BTD.mul_(valid_BT[..., None])
        return super().own(x_BTD, mask, place, cache)


class CrossCachesQueries(Ported):
    """Cross-attention caches the queries along with the keys: every later token asks the first one's question."""

    def looking(self, x_BTD: Tensor, context_BSD: Tensor, place: Place, cache: LayerCache | None) -> Three:
        q, k, v = super().looking(x_BTD, context_BSD, place, cache)
        if cache is None:
            return q, k, v
        kept = cache.get("q")
        if kept is None:
            cache.put("q", q[:, :, -1:])
            return q, k, v
        return kept.expand_as(q), k, v


class CrossReadsItself(Ported):
    """Once there is a cache, the keys of the context are made of the tokens themselves: the source is never read."""

    def looking(self, x_BTD: Tensor, context_BSD: Tensor, place: Place, cache: LayerCache | None) -> Three:
        if cache is not None and cache.get("kv") is None:
            context_BSD = x_BTD[:, :1].expand_as(context_BSD)
        return super().looking(x_BTD, context_BSD, place, cache)


class PositionOfTheChunk(Ported):
    """The mask of a cached call is taken to begin at slot 0: a chunk sees too little of the past."""

    def allowed(self, mask: Mask, device: torch.device) -> Tensor:
        return super().allowed(mask.changed(start=0), device)


class StateAcrossDocuments(Decay):
    """Documents are offered and not heeded: a packed document begins with the state of the one before it."""

    def heeded(self, call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return call.tokens().valid_BT, None, None


class StateAcrossTheCut(Decay):
    """Only the documents of the new tokens are compared: one that begins with a chunk inherits the cached state."""

    def heeded(self, call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        valid_BT, documents_BT, _ = call.tokens()
        return valid_BT, documents_BT, None


class PaddingWrites(Decay):
    """Padding is written into the state: a prompt that is padded on the left goes on differently."""

    def heeded(self, call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        _, documents_BT, before_B1 = call.tokens()
        return None, documents_BT, before_B1


class PaddingDecays(Decay):
    """Padding isn't written, but the state decays under it: a conversation whose turns are padded fades."""

    def idle(self, state_BNHV: Tensor) -> Tensor:
        return self.config.decay * state_BNHV


class StateOfTheFirstRow(Decay):
    """The state is kept for the first row only and broadcast: all prompts of a batch go on from the first one's."""

    def remember(self, state_BNHV: Tensor, call: Call) -> None:
        super().remember(state_BNHV[:1], call)


class StateOnModule(Decay):
    """The state lives on the module and is never reset: a sequence begins where the one before it ended."""

    state: Tensor | None = None

    def before(self, call: Call) -> Tensor | None:
        state = self.state
        fits = state is not None and state.shape[0] == call.x_BTD.shape[0] and state.device == call.x_BTD.device
        return state if fits else None

    def remember(self, state_BNHV: Tensor, call: Call) -> None:
        self.state = state_BNHV.detach()


class StateInHalfPrecision(Decay):
    """The state is summed in the model's dtype: in bfloat16 long sequences lose most of what they add."""

    def wide(self, dtype: torch.dtype) -> torch.dtype:
        return dtype


class StateOfTheFirstCall(Decay):
    """The state is written only when there is none: everything after the prompt is forgotten at once."""

    def remember(self, state_BNHV: Tensor, call: Call) -> None:
        if self.before(call) is None:
            super().remember(state_BNHV, call)


class FilterSeesAhead(Convolution):
    """The filter is padded on both sides, as ``padding="same"`` does: it sees a token ahead."""

    def padded(self, x_BTD: Tensor, tail_BKD: Tensor) -> Tensor:
        return F.pad(torch.cat([tail_BKD, x_BTD], 1), (0, 0, 0, 1))[:, 1:]


class TailOfTheChunk(Convolution):
    """The last tokens of the new chunk alone are kept: a step of one token drops those before it."""

    def tail(self, x_BTD: Tensor, tail_BKD: Tensor) -> Tensor:
        return F.pad(x_BTD, (0, 0, max(0, self.config.taps - 1 - x_BTD.shape[1]), 0))[:, -tail_BKD.shape[1] :].clone()


class RandomStart(Convolution):
    """Parameters begin with numbers of the global generator: variants with one seed don't start equal."""

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        parameter.normal_(0.0, len(parameter) ** -0.5)
