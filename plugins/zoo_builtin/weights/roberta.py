"""RoBERTa as the transformers library stores it: ``RobertaModel``, and ``RobertaFor`` masked LM or a task.

The names of BERT's encoder with other heads. Positions are ``{name: learned, offset: 2}``, because the table begins
with two rows that no token uses; there is one type of token. Its ``RobertaForSequenceClassification`` is the head
``{name: classification, pooler: true}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights, same
from zoo.nn.bert_weights import encoder_matches, second_names, token_head_matches

__all__ = ["RoBERTaWeights"]


@final
class RoBERTaWeights(Weights):
    """Names of RoBERTa."""

    architecture = "bert"
    heads = ("lm_head", "pooler", "classifier", "qa_outputs")
    sample = {  # noqa: RUF012
        "embedding": {"name": "tokens", "types": 1},
        "position": {"name": "learned", "offset": 2},
        "head": "masked_lm",
    }

    def matches(self, model: Architecture) -> Iterator[Match]:
        """The encoder and each head that there is."""
        yield from encoder_matches(model)
        yield from token_head_matches("lm_head", dense="dense", norm="layer_norm")
        if "class_scores" in model.head.offers:
            yield from same("classifier.dense", "head.pooler.dense")
            yield from same("classifier.out_proj", "head.scores")
        else:
            yield from same("pooler.dense", "head.pooler.dense")
            yield from same("qa_outputs", "head.scores")

    def normalized(self, name: str) -> str:
        """Without the wrapper's ``roberta.``."""
        return name.removeprefix("roberta.")

    def implied(self, model: Architecture, theirs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tied head."""
        return second_names("lm_head", model, theirs)

    def ignored(self, name: str) -> bool:
        """Positions that were a buffer once."""
        return name == "embeddings.position_ids"
