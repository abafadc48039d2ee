"""The words with which parts say what they can do (``offers``) and what they ask of others (needs).

A combination works when the needs are a subset of the offers; ``zoo.builder`` refuses any other and names
the components that would do. Every word that a component offers is tested by ``zoo check`` because it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

WORDS_OF_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "tokens": "its inputs are token ids",
        "patches": "its inputs are images, cut into patches",
        "grid": "its tokens stand on a grid of rows and columns",
        "token_scores": "its head scores the tokens of the vocabulary",
        "class_scores": "its head scores classes",
        "pooled": "its head gives one vector for the whole input",
        "span_scores": "its head scores where an answer begins and ends",
        "order_scores": "its head scores whether one sentence follows the other",
        "pixels": "its head gives the pixels of patches",
    }
)
"""What embeddings and heads offer to tasks."""

WORDS: Mapping[str, str] = MappingProxyType(
    {
        "causal": "a position attends to itself and earlier ones only",
        "bidirectional": "a position attends to later ones too",
        "cross": "queries come from one sequence, keys and values from another",
        "cache": "generation keeps what earlier tokens left behind",
        "padding": "tokens that are none are attended by nobody",
        "documents": "tokens of packed documents don't see each other",
        "window": "a position attends to near ones only, as the mask says",
        "prefix": "the first tokens see each other both ways in a causal mask",
        "rotate": "queries and keys may be rotated by position",
        "bias": "a tensor of positions may be added to the scores",
        "content_bias": "that tensor may depend on queries and keys",
        "map": "the attention weights can be looked at",
    }
)
