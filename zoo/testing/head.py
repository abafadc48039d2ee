"""Conformance of a head: scores of hidden states, row by row.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.embedding import Embedding
from zoo.contracts.head import TokenHead
from zoo.contracts.values.capabilities import WORDS_OF_MODELS
from zoo.registry import Registry
from zoo.testing.embedding import SIZES
from zoo.testing.masks import padding
from zoo.testing.module_case import DIM, ModuleCase, ModuleSubject
from zoo.testing.modules import MODULE_CHECKS
from zoo.testing.numbers import agree, finite
from zoo.testing.suite import Failed, Skipped, Suite


class Headed(nn.Module):
    """A head together with the embedding that it may be tied to, whose values stay as they are."""

    def __init__(self, embedding: Embedding, head: nn.Module) -> None:
        super().__init__()
        self.embedding, self.head = embedding.requires_grad_(False), head

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """Scores."""
        return self.head(hidden_BTD, valid_BT)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HeadCase(ModuleCase):
    """One head with certain knobs at a certain length."""

    def build(self, knobs: Mapping[str, Any], **parent: Any) -> Headed:
        """The head beside an embedding of tokens, or of patches, or of patches with two class tokens, as it asks."""
        errors = []
        for name, asked in (("tokens", {}), ("patches", {}), ("patches", {"class_tokens": 2})):
            component = _embedding_class(name)
            embedding = component(component.Config(**asked), dim=DIM, sizes=SIZES)
            try:
                head = self.component(
                    self.component.Config(**knobs), dim=DIM, sizes=SIZES, embedding=embedding, norm=_norm
                )
            except ValueError as error:
                errors.append(error)
                continue
            return Headed(embedding, head)
        raise errors[-1]

    def run(self, module: Any, x_BTD: Tensor) -> Tensor:
        """Scores, all that the head has; behind the tokens in front, of which there must be some, or none at all."""
        front_BTD = x_BTD[:, :1].expand(-1, module.embedding.extra, -1)
        hidden_BTD = torch.cat([front_BTD, x_BTD], 1)
        scores = module(hidden_BTD)
        if "order_scores" not in self.component.offers:
            return scores
        return torch.cat([scores.flatten(1), module.head.order_scores(hidden_BTD)], 1)


@functools.cache
def _embedding_class(name: str) -> type[Any]:
    return Registry.discover(environment={}).find("embedding", name).load()


def _norm(*, dim: int) -> nn.Module:
    return nn.LayerNorm(dim)


class HeadSubject(ModuleSubject):
    """A head over hidden states of width 16."""

    case = HeadCase


SUITE = Suite("head", HeadSubject)


@SUITE.check("gives finite scores, rows apart", tokens=(5,))
def runs(case: HeadCase) -> None:
    """A row alone has the scores that it has in its batch."""
    module, x_BTD = case.make(), case.input()
    scores = case.run(module, x_BTD)
    finite(scores, "scores")
    agree(case.run(module, x_BTD[:1])[0], scores[0], "a row alone")


@SUITE.check("scores of tokens are states times weight, plus bias", tokens=(5,))
def token_scores(case: HeadCase) -> None:
    """What a fused loss relies on."""
    module, x_BTD = case.make(), case.input()
    head = module.head
    if not isinstance(head, TokenHead):
        raise Skipped("it scores no tokens")
    want = nn.functional.linear(head.states(x_BTD), head.weight, head.bias)
    agree(head(x_BTD), want, "head(hidden) against its states, weight and bias")
    if head.weight.shape != (SIZES.vocab_size, DIM):
        raise Failed(f"weight is {tuple(head.weight.shape)}; expected ({SIZES.vocab_size}, {DIM})")


@SUITE.check("padding changes no score of a token", tokens=(5,))
def padded(case: HeadCase) -> None:
    """What stands at padded places doesn't matter to one score for a row, nor to scores of valid tokens."""
    module, x_BTD = case.make(), case.input()
    if module.embedding.extra:
        raise Skipped("images have no padding")
    for left in (False, True):
        valid_BT = padding([5, 3], 5, left=left)
        other_BTD = torch.where(valid_BT[..., None], x_BTD, case.input(salt=3))
        one, other = module(x_BTD, valid_BT), module(other_BTD, valid_BT)
        alone = module(x_BTD[1:, valid_BT[1]])[0]
        by_token = one.ndim == 3 and one.shape[1] == 5
        side = "left" if left else "right"
        agree(one[1, valid_BT[1]] if by_token else one[1], alone, f"a row padded on the {side} against it alone")
        if by_token:
            one, other = one[valid_BT], other[valid_BT]
        agree(other, one, f"scores with other numbers at places padded on the {side}")


@SUITE.check("offers known words", tokens=(1,))
def known_words(case: HeadCase) -> str:
    """``offers`` of ``WORDS_OF_MODELS``, ``takes`` of the sizes."""
    offers, takes = case.component.offers, case.component.takes
    if not offers or offers - WORDS_OF_MODELS.keys() or takes - vars(SIZES).keys():
        raise Failed(f"offers {sorted(offers)} and takes {sorted(takes)}; known words: {sorted(WORDS_OF_MODELS)}")
    return f"offers {', '.join(sorted(offers))}"


SUITE.include(MODULE_CHECKS)
