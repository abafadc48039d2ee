"""A decoder: tokens and positions, blocks with a causal mask, and the token table again as the head.

    ids -> token table (+ positions) -> dropout
        -> [ x + attention(norm(x)); x + feed_forward(norm(x)) ] x layers     (article, equation 12.9)
        -> norm -> hidden -> token table^T -> scores of the next token

Radford et al. 2019, "Language models are unsupervised multitask learners" (GPT-2); with ``residual: post`` it is
GPT-1, with rotary positions, RMS norm and SwiGLU it is Llama's kind. The defaults are GPT-2 small: 124,439,808
parameters with a vocabulary of 50,257 and a length of 1,024.
"""

from __future__ import annotations

from typing import final

from zoo.nn.single_stack import SingleStack, single_stack_slots

__all__ = ["GPT2"]


@final
class GPT2(SingleStack):
    """A causal model of tokens, or of patches with another embedding and head."""

    causal = True
    small_branches = True  # section 2.3
    offers = frozenset({"causal", "cache", "padding", "documents"})
    slots = single_stack_slots(
        embedding="tokens", position="learned", residual="pre", head="language_model", needs=frozenset({"causal"})
    )
