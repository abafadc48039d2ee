"""BERT as the transformers library stores it: ``BertModel``, and ``BertFor`` masked LM, pre-training or a task.

``BertModel`` with its pooler is the head ``pooler``, ``BertForSequenceClassification`` the head
``{name: classification, pooler: true}``, ``BertForQuestionAnswering`` the head ``span``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights, same
from zoo.nn.bert_weights import encoder_matches, second_names, token_head_matches

__all__ = ["BERTWeights"]


@final
class BERTWeights(Weights):
    """Names of BERT."""

    architecture = "bert"
    heads = ("cls", "pooler", "classifier", "qa_outputs")
    sample = {"embedding": {"name": "tokens", "types": 2}, "head": "pretraining"}  # noqa: RUF012

    def matches(self, model: Architecture) -> Iterator[Match]:
        """The encoder and each head that there is."""
        yield from encoder_matches(model)
        yield from same("pooler.dense", "head.pooler.dense")
        yield from token_head_matches("cls.predictions", dense="transform.dense", norm="transform.LayerNorm")
        yield from same("cls.seq_relationship", "head.order")
        yield from same("qa_outputs" if "span_scores" in model.head.offers else "classifier", "head.scores")

    def normalized(self, name: str) -> str:
        """Without the wrapper's ``bert.``; the first files called a norm's weight and bias gamma and beta."""
        name = name.removeprefix("bert.")
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    def implied(self, model: Architecture, theirs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tied head."""
        return second_names("cls.predictions", model, theirs)

    def ignored(self, name: str) -> bool:
        """Positions that were a buffer once."""
        return name == "embeddings.position_ids"
