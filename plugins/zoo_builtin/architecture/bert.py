"""An encoder: every token sees every other, and the head reads what it needs off the hidden states.

    ids -> token table + positions + token types -> norm -> dropout
        -> [ norm(x + attention(x)); norm(x + feed_forward(x)) ] x layers
        -> hidden -> layer, norm, token table^T + bias -> scores of hidden tokens

Devlin et al. 2019, "BERT: pre-training of deep bidirectional transformers", arXiv:1810.04805 (article, section 8). The
defaults are BERT base's sizes; presets add what a slot's default can't say: exact GELU, eps 1e-12, token types. Other
parts make other encoders: RoBERTa, or a modern one with rotary positions, pre-norm and windows in most layers.
"""

from __future__ import annotations

import dataclasses
from typing import final

from zoo.nn.single_stack import SingleStack, single_stack_slots

__all__ = ["BERT"]


@final
class BERT(SingleStack):
    """A bidirectional model of tokens."""

    causal = False
    offers = frozenset({"bidirectional", "padding", "documents"})
    slots = single_stack_slots(
        embedding="tokens", position="learned", residual="post", head="masked_lm", needs=frozenset({"bidirectional"})
    )

    @dataclasses.dataclass(kw_only=True)
    class Config(SingleStack.Config):
        """Sizes of the network."""

        embedding_norm: bool = True
        """Whether embeddings with their positions are normalized before the first block."""
