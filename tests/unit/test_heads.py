"""Heads that read a whole input: values worked out by hand, and padding on either side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.data import Description
from zoo.contracts.head import Head
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.head.pooler import PoolerHead
from zoo_builtin.head.pretraining import Pretraining
from zoo_builtin.head.span import Span

SIZES = Description(vocab_size=5)
HIDDEN_BTD = torch.tensor([[[1.0, -1.0], [0.5, 2.0], [3.0, 0.0]], [[0.0, 1.0], [2.0, 2.0], [-1.0, 0.5]]])
RIGHT_BT = torch.tensor([[True, True, True], [True, False, False]])
LEFT_BT = RIGHT_BT.flip(1)


def made(component: type[Any], **fill: Any) -> Any:
    """A head of width 2 whose layers multiply by a number and have no bias."""
    embedding = Tokens(Tokens.Config(), dim=2, sizes=SIZES)
    head: Head = component(
        component.Config(), dim=2, sizes=SIZES, embedding=embedding, norm=lambda *, dim: nn.LayerNorm(dim)
    )
    with torch.no_grad():
        for name, factor in fill.items():
            layer = head.get_submodule(name.replace("__", "."))
            layer.weight.copy_(torch.eye(2) * factor)
            layer.bias.zero_()
    return head


def close(got: Tensor, want: Any) -> None:
    torch.testing.assert_close(got, torch.as_tensor(want), rtol=0, atol=1e-6)


def test_the_pooler_is_a_tanh_over_the_first_token() -> None:
    head = made(PoolerHead, pooler__dense=2.0)
    close(head(HIDDEN_BTD), torch.tanh(2 * HIDDEN_BTD[:, 0]))
    close(head(HIDDEN_BTD, RIGHT_BT), torch.tanh(2 * HIDDEN_BTD[:, 0]))
    first_BD = torch.stack([HIDDEN_BTD[0, 0], HIDDEN_BTD[1, 2]])  # behind the padding
    close(head(HIDDEN_BTD, LEFT_BT), torch.tanh(2 * first_BD))


def test_the_order_of_sentences_is_scored_over_the_pooler() -> None:
    head = made(Pretraining, pooler__dense=1.0, order=-3.0)
    close(head.order_scores(HIDDEN_BTD, LEFT_BT), -3 * head.pooled(HIDDEN_BTD, LEFT_BT))
    close(head.pooled(HIDDEN_BTD), torch.tanh(HIDDEN_BTD[:, 0]))
    assert head(HIDDEN_BTD).shape == (2, 3, 5)
    assert head.weight is head.embedding.table  # tied


def test_an_answer_never_begins_or_ends_in_padding() -> None:
    head = made(Span, scores=1.0)
    close(head(HIDDEN_BTD), HIDDEN_BTD)
    scores_BT2 = head(HIDDEN_BTD, LEFT_BT)
    close(scores_BT2[LEFT_BT], HIDDEN_BTD[LEFT_BT])
    likely_BT2 = scores_BT2.softmax(1)
    assert not likely_BT2[~LEFT_BT].any()
    close(likely_BT2[1, 2], [1.0, 1.0])
    scores_BT2.logsumexp(1).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in head.scores.parameters())


def test_half_precision_hides_padding_too() -> None:
    head = made(Span, scores=1.0).half()
    likely_BT2 = head(HIDDEN_BTD.half(), RIGHT_BT).float().softmax(1)
    assert torch.isfinite(likely_BT2).all()
    assert not likely_BT2[~RIGHT_BT].any()
