"""Recurrences with one fault each, most of them where chunks of tokens meet."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call, Tokens


class Chunked(HeadedAttention):
    """Linear attention, 64 tokens at a time: right, with hooks for what can be wrong."""

    offers = frozenset({"causal", "cache", "padding", "documents"})
    keeps_keys = False
    chunk = 64

    def attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        tokens, wide = call.tokens(), torch.promote_types(v.dtype, torch.float32)
        q, k = (F.elu(x.to(wide)) + 1 for x in (q, k))
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1).to(wide)
        state = None if call.cache is None else call.cache.get("state")
        state = self.beginning(q, v) if state is None else state
        documents, last = self.documents(tokens, k)
        outs = []
        for at in range(0, k.shape[2], self.chunk):
            here = slice(at, at + self.chunk)
            keys = k[:, :, here] * self.valid(tokens, k, at)[:, None, here, None]
            of_query, of_key = documents[:, None, here, None], documents[:, None, None, here]
            weights = (q[:, :, here] @ keys.mT).tril() * (of_query == of_key)
            added, last = self.after(state, keys, v[:, :, here], documents[:, here], last)
            before = self.before(state, added, at)
            outs.append(weights @ v[:, :, here] + self.goes_on(of_query, last[1], at) * (q[:, :, here] @ before))
            state, last = added, last[0]
        if call.cache is not None:
            call.cache.put("state", state)
        out = torch.cat(outs, 2)
        total = out[..., -1:]
        return (out[..., :-1] / torch.where(total == 0, 1, total)).to(call.x_BTD.dtype)

    def beginning(self, q: Tensor, v: Tensor) -> Tensor:
        return q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])

    def documents(self, tokens: Tokens, k: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) documents, one for all where there are none, and (B, 1) that of the token before these."""
        documents = tokens.documents_BT
        if documents is None:
            documents = torch.zeros(k.shape[0], k.shape[2], dtype=torch.int64, device=k.device)
        return documents, documents[:, :1] if tokens.before_B1 is None else tokens.before_B1

    def valid(self, tokens: Tokens, k: Tensor, at: int) -> Tensor:
        if tokens.valid_BT is None:
            return torch.ones(1, k.shape[2], dtype=torch.bool, device=k.device)
        return tokens.valid_BT

    def after(
        self, state: Tensor, keys: Tensor, values: Tensor, documents: Tensor, last: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The state behind a chunk: that of its last document; and the documents of its end and of its begin."""
        end = documents[:, -1:]
        keys = keys * (documents == end)[:, None, :, None]
        return state * (last == end)[:, None, :, None] + keys.mT @ values, (end, last)

    def before(self, state: Tensor, added: Tensor, at: int) -> Tensor:
        """The state that the queries of a chunk read."""
        return state

    def goes_on(self, of_query: Tensor, last: Tensor, at: int) -> Tensor:
        """Which queries belong to the document of the state."""
        return of_query == last[:, None, :, None]


class SeamForgotten(Chunked):
    """Each chunk after a prompt's first begins from nothing."""

    offers = frozenset({"causal", "cache"})

    def before(self, state: Tensor, added: Tensor, at: int) -> Tensor:
        return 0 * state if at else state


class SeamSeesAhead(Chunked):
    """From the second chunk on the state is that behind the chunk."""

    offers = frozenset({"causal"})

    def before(self, state: Tensor, added: Tensor, at: int) -> Tensor:
        return added if at else state


class SeamOfDocuments(Chunked):
    """From the second chunk on every query reads the state, whatever its document."""

    offers = frozenset({"causal", "documents"})

    def goes_on(self, of_query: Tensor, last: Tensor, at: int) -> Tensor:
        return torch.ones_like(of_query) if at else super().goes_on(of_query, last, at)


class SeamOfPadding(Chunked):
    """Padding is heeded in the first chunk."""

    offers = frozenset({"causal", "padding"})

    def valid(self, tokens: Tokens, k: Tensor, at: int) -> Tensor:
        valid = super().valid(tokens, k, at)
        return torch.ones_like(valid) if at else valid


class PaddingRead(Chunked):
    """Padding is written into the state."""

    def valid(self, tokens: Tokens, k: Tensor, at: int) -> Tensor:
        return torch.ones_like(super().valid(tokens, k, at))


class StateOfThePast(Chunked):
    """The state goes on into the next document of a later call."""

    def documents(self, tokens: Tokens, k: Tensor) -> tuple[Tensor, Tensor]:
        documents, _ = super().documents(tokens, k)
        return documents, documents[:, :1]
