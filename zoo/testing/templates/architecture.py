"""A decoder of tokens; change what ``forward`` of ``SingleStack`` does, or write an ``Architecture`` of its own.

    ids -> token table (+ positions) -> blocks with a causal mask -> norm -> hidden -> head

Its parts are handed in: what fits each slot is a component of that kind.
"""

from __future__ import annotations

from zoo.nn.single_stack import SingleStack, single_stack_slots

__all__ = ["Mine"]


class Mine(SingleStack):
    """B batch, T tokens, D width."""

    causal = True
    offers = frozenset({"causal", "cache", "padding", "documents"})
    slots = single_stack_slots(
        embedding="tokens", position="rotary", residual="pre", head="language_model", needs=frozenset({"causal"})
    )
