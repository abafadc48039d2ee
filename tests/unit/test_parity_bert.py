"""BERT and RoBERTa against the transformers library: same weights, inputs, outputs and gradients, both ways.

Rows are padded on the right and have two types of token. What stands at padding isn't compared: the zoo gives a
query that is padding the same keys as any other, the library's additive mask does too, but nothing promises it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from parity import compare, small_recipe
from zoo.builder import build_model
from zoo.contracts.architecture import Architecture
from zoo.contracts.values.mask import Mask
from zoo.errors import UserError
from zoo.registry import Registry

transformers = pytest.importorskip("transformers")

V, T = 97, 11
GENERATOR = torch.Generator().manual_seed(1)
IDS_BT = torch.randint(3, V, (3, T), generator=GENERATOR)
VALID_BT = torch.arange(T) < torch.tensor([[T], [7], [1]])
IDS_BT[~VALID_BT] = 1  # RoBERTa finds the positions by its padding id, 1
TYPES_BT = (torch.arange(T) >= 4).long().expand(3, T)

SIZES: dict[str, Any] = {"layers": 3, "dim": 32, "heads": 4, "vocab_size": V}
THEIRS: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def bert(head: Any, **settings: Any) -> Any:
    """BERT's parts at small sizes."""
    return small_recipe(
        "bert",
        **{
            **SIZES,
            "max_length": 32,
            "embedding": {"name": "tokens", "types": 2},
            "feed_forward": {"name": "mlp", "activation": "gelu"},
            "norm": {"name": "layer_norm", "eps": 1e-12},
            "head": head,
            **settings,
        },
    )


def roberta(head: Any) -> Any:
    """RoBERTa's: one type of token, two rows before position 0, a larger epsilon."""
    return bert(
        head,
        embedding={"name": "tokens", "types": 1},
        position={"name": "learned", "offset": 2},
        norm={"name": "layer_norm", "eps": 1e-5},
    )


def hidden(model: Architecture, types_BT: Tensor | None) -> Tensor:
    """Hidden states of the batch."""
    details = {} if types_BT is None else {"types_BT": types_BT}
    return model(IDS_BT, mask=Mask(valid_BS=VALID_BT), **details).hidden


def tokens(model: Any) -> Tensor:
    """Scores of all valid tokens."""
    return model.head(hidden(model, TYPES_BT))[VALID_BT]


def rows(model: Any) -> Tensor:
    """What a head makes of whole rows."""
    return model.head(hidden(model, TYPES_BT), VALID_BT)


def library(read: Callable[[Any], Tensor], *, types: bool = True) -> Callable[[Any], Tensor]:
    """The library's forward pass over the same batch."""
    given = {"input_ids": IDS_BT, "attention_mask": VALID_BT.long()}
    return lambda model: read(model(**given, token_type_ids=TYPES_BT if types else TYPES_BT * 0))


def theirs_bert(name: str, **more: Any) -> Any:
    config = transformers.BertConfig(**THEIRS, max_position_embeddings=32, layer_norm_eps=1e-12, **more)
    return getattr(transformers, name)(config)


def theirs_roberta(name: str) -> Any:
    config = transformers.RobertaConfig(**THEIRS, max_position_embeddings=34, type_vocab_size=1, layer_norm_eps=1e-5)
    return getattr(transformers, name)(config)


def test_masked_lm() -> None:
    read = library(lambda output: output.logits[VALID_BT])
    compare(bert("masked_lm"), "bert", theirs_bert("BertForMaskedLM"), ours=tokens, theirs=read)


def test_the_model_with_its_pooler() -> None:
    read = library(lambda output: output.pooler_output)
    compare(bert("pooler"), "bert", theirs_bert("BertModel"), ours=rows, theirs=read)


def test_hidden_states_before_the_pooler() -> None:
    read = library(lambda output: output.last_hidden_state[VALID_BT])
    ours = lambda model: hidden(model, TYPES_BT)[VALID_BT]  # noqa: E731
    compare(bert("pooler"), "bert", theirs_bert("BertModel"), ours=ours, theirs=read)


def test_pretraining() -> None:
    def ours(model: Any) -> Tensor:
        hidden_BTD = hidden(model, TYPES_BT)
        order_B2 = model.head.order_scores(hidden_BTD, VALID_BT)
        return torch.cat([model.head(hidden_BTD)[VALID_BT].flatten(), order_B2.flatten()])

    def read(output: Any) -> Tensor:
        return torch.cat([output.prediction_logits[VALID_BT].flatten(), output.seq_relationship_logits.flatten()])

    compare(bert("pretraining"), "bert", theirs_bert("BertForPreTraining"), ours=ours, theirs=library(read))


def test_classification() -> None:
    head = {"name": "classification", "pooler": True}
    other = theirs_bert("BertForSequenceClassification", num_labels=5)
    compare(bert(head, classes=5), "bert", other, ours=rows, theirs=library(lambda output: output.logits))


def test_question_answering() -> None:
    def read(output: Any) -> Tensor:
        return torch.stack([output.start_logits, output.end_logits], -1)[VALID_BT]

    other = theirs_bert("BertForQuestionAnswering")
    compare(bert("span"), "bert", other, ours=lambda model: rows(model)[VALID_BT], theirs=library(read))


def test_roberta() -> None:
    read = library(lambda output: output.logits[VALID_BT], types=False)
    ours = lambda model: model.head(hidden(model, None))[VALID_BT]  # noqa: E731
    compare(roberta("masked_lm"), "roberta", theirs_roberta("RobertaForMaskedLM"), ours=ours, theirs=read)


def test_roberta_with_its_pooler() -> None:
    read = library(lambda output: output.pooler_output, types=False)
    ours = lambda model: model.head(hidden(model, None), VALID_BT)  # noqa: E731
    compare(roberta("pooler"), "roberta", theirs_roberta("RobertaModel"), ours=ours, theirs=read)


def test_masked_lm_with_a_matrix_of_its_own() -> None:
    read = library(lambda output: output.logits[VALID_BT])
    other = theirs_bert("BertForMaskedLM", tie_word_embeddings=False)
    other.cls.predictions.bias = other.cls.predictions.decoder.bias  # a second name, which the forward pass never reads
    compare(bert({"name": "masked_lm", "tied": False}), "bert", other, ours=tokens, theirs=read)


def test_a_tied_head_takes_no_file_in_which_it_is_another_matrix() -> None:
    state = theirs_bert("BertForMaskedLM", tie_word_embeddings=False).state_dict()
    with pytest.raises(UserError, match=r"has no place \(cls\.predictions\.decoder\.weight\)"):
        Registry.discover().find("weights", "bert").load().part()().load(build_model(bert("masked_lm")), state)


def test_names_of_the_first_files_are_understood() -> None:
    translate = Registry.discover().find("weights", "bert").load().part()()
    assert translate.normalized("bert.embeddings.LayerNorm.gamma") == "embeddings.LayerNorm.weight"
    assert translate.normalized("bert.embeddings.LayerNorm.beta") == "embeddings.LayerNorm.bias"
