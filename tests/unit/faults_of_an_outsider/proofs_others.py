"""Where each fault of the other kinds shows, as in ``proofs``."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from faults_of_an_outsider import good, others
from faults_of_an_outsider.proofs import DIM, HEADS, Situation, apart, tokens
from zoo.contracts.data import Description, Draw
from zoo.contracts.values.notes import Notes
from zoo_builtin.architecture.gpt2 import GPT2
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.residual.pre import Pre

SIZES = Description(vocab_size=11, max_length=8, classes=3)


# Feed-forward networks, norms, residual arrangements


def part_of(cls: type[Any], **more: Any) -> Any:
    part = cls(cls.Config(), dim=DIM, **more).double().eval()
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)))
    return part


def a_later_token(cls: type[Any]) -> float:
    part, x = part_of(cls), tokens()
    other = x.clone()
    other[:, -1] += 1
    return apart(part(x)[:, :-1], part(other)[:, :-1])


def a_neighbour(cls: type[Any]) -> float:
    part, x = part_of(cls), tokens()
    return apart(part(x)[:1], part(x[:1]))


def what_it_was_given(cls: type[Any]) -> float:
    x = tokens()
    part_of(cls)(x)
    return apart(x, tokens())


def twice_the_same(cls: type[Any]) -> float:
    part = part_of(cls)
    return apart(part(tokens()), part(tokens()))


def auxiliary(part: Any, x_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
    notes = Notes()
    part(x_BTD, valid_BT=valid_BT, notes=notes)
    total = notes.auxiliary_total()
    assert total is not None
    return total


def auxiliary_of_padding(cls: type[Any]) -> float:
    part, x, valid = part_of(cls), tokens(1), torch.tensor([[True] * 4 + [False] * 2])
    return apart(auxiliary(part, x, valid), auxiliary(part, x[:, :4]))


def auxiliary_of_halves(cls: type[Any]) -> float:
    part, x = part_of(cls), tokens()
    return apart(auxiliary(part, x), auxiliary(part, x[:1]) + auxiliary(part, x[1:]))


def left_behind(cls: type[Any]) -> float:
    """1 where a part that was moved to bfloat16 can't take bfloat16."""
    try:
        part_of(cls).bfloat16()(tokens().bfloat16())
    except RuntimeError:
        return 1.0
    return 0.0


def bytes_more_behind_the_norm(cls: type[Any]) -> float:
    return part_of(cls).bfloat16()(tokens().bfloat16()).element_size() - 2


def loud_in_float16(cls: type[Any]) -> float:
    """A vector of 300s has the root mean square 300, so it becomes the norm's weight; its squares aren't float16."""
    part = part_of(cls).half()
    return apart(part(torch.full((1, 1, DIM), 300.0, dtype=torch.float16))[0, 0], part.norm.weight)


def residual_of(cls: type[Any], **knobs: Any) -> Any:
    residual = cls(cls.Config(**knobs), dim=DIM, norm=LayerNorm.part(), branches=2, dropout=0.5)
    return residual.double().eval()


def unscaled(cls: type[Any]) -> float:
    """A layer_scale of 0 leaves the stream alone."""
    x = tokens()
    return apart(residual_of(cls, layer_scale=0.0)(x, [torch.sin, torch.cos]), x)


def unused_parameters(cls: type[Any]) -> float:
    residual = residual_of(cls)
    residual(tokens(), [torch.sin, torch.cos]).square().sum().backward()
    return sum(parameter.grad is None for parameter in residual.parameters())


def calls_too_many(cls: type[Any]) -> float:
    calls = []

    def branch(x_BTD: Tensor) -> Tensor:
        calls.append(x_BTD)
        return x_BTD.sin()

    residual_of(cls)(tokens(), [branch, branch])
    return len(calls) - 2


# Embeddings, heads, tasks


def weights_after_looking(cls: type[Any]) -> float:
    table = part_of(cls, sizes=SIZES)
    before = table.table.detach().clone()
    table(torch.tensor([[1, 2]]))
    return apart(table.table, before)


def misplaced(cls: type[Any]) -> float:
    """Tokens of an image of 2 x 3 patches whose (row, column) isn't theirs; the class token has none."""
    patches = part_of(cls, sizes=Description(image_size=(32, 48), channels=1))
    wanted = torch.tensor([[(-1, -1), *((r, c) for r in range(2) for c in range(3))]])
    return (patches.positions(torch.zeros(1, 1, 32, 48), 2) != wanted).any(-1).sum().item()


def head_of(cls: type[Any], embedding: Any) -> Any:
    return part_of(cls, sizes=SIZES, embedding=embedding, norm=LayerNorm.part())


def tables_after_materializing(cls: type[Any]) -> float:
    """Tensors more than one in a tied pair that was made on the meta device."""
    with torch.device("meta"):
        pair = nn.ModuleList([Tokens(Tokens.Config(), dim=DIM, sizes=SIZES)])
        pair.append(cls(cls.Config(), dim=DIM, sizes=SIZES, embedding=pair[0], norm=LayerNorm.part()))
    return len([*pair.to_empty(device="cpu").parameters()]) - 1


def read_behind_padding(cls: type[Any]) -> float:
    head, x = head_of(cls, part_of(Tokens, sizes=SIZES)), tokens(1)
    valid = torch.tensor([[False] * 2 + [True] * 4])
    return apart(head(x, valid), head(x[:, 2:]))


def scores_of_its_own(cls: type[Any]) -> float:
    head, x = head_of(cls, part_of(Tokens, sizes=SIZES)), tokens()
    return apart(head(x), head.states(x) @ head.weight.mT)


class Text:
    """Data that is only asked for its sizes and its tokenizer."""

    def tokenizer(self) -> None:
        return None

    def describe(self) -> Description:
        return SIZES


@functools.cache
def model() -> GPT2:
    made_gpt2 = GPT2(
        GPT2.Config(vocab_size=11, max_length=8, layers=1, dim=DIM, heads=HEADS),
        attention=MultiHead.part(),
        position=Learned.part(),
        feed_forward=good.Routed.part(),
        norm=LayerNorm.part(),
        residual=Pre.part(),
        embedding=Tokens.part(),
        head=LanguageModel.part(),
    )
    made_gpt2.initialize(1)
    return made_gpt2.double().eval()


def batch(ids: list[list[int]], targets: list[list[int]], **more: Tensor) -> dict[str, Tensor]:
    return {"ids": torch.tensor(ids), "targets": torch.tensor(targets), **more}


def task_of(cls: type[Any]) -> Any:
    return cls(cls.Config(), data=Text())


def total(cls: type[Any], *rows: Any, **more: Tensor) -> Tensor:
    return task_of(cls).loss(model(), batch(*rows, **more)).total.detach()


def loss_of_two_rows(cls: type[Any]) -> float:
    rows = [[1, 2, 3]], [[2, 3, 4]]
    return apart(total(cls, *(row * 2 for row in rows)), 2 * total(cls, *rows))


def loss_of_one_target(cls: type[Any]) -> float:
    """A sequence of one token has the loss of its one target, by the model's own scores."""
    output = model()(torch.tensor([[1]]))
    wanted = -model().head(output.hidden).log_softmax(-1)[0, 0, 5] + output.auxiliary
    return apart(total(cls, [[1]], [[5]]), wanted)


def targets_too_many(cls: type[Any]) -> float:
    return task_of(cls).count(batch([[1, 2, 3]], [[2, -100, -100]])) - 1


def graphs_kept(cls: type[Any]) -> float:
    sums = task_of(cls).loss(model(), batch([[1, 2]], [[2, 3]])).sums
    return sum(value.requires_grad for value in sums.values())


def nothing_to_predict(cls: type[Any]) -> float:
    """Distance of the loss from 0, infinite where it is NaN."""
    found = apart(total(cls, [[1, 2]], [[-100, -100]]), torch.zeros(()))
    return math.inf if math.isnan(found) else found


def padded_text(cls: type[Any]) -> float:
    """Two tokens alone, and behind two of padding that are no targets."""
    valid = torch.tensor([[False, False, True, True]])
    padded = total(cls, [[7, 8, 1, 2]], [[-100, -100, 2, 3]], valid=valid)
    return apart(padded, total(cls, [[1, 2]], [[2, 3]]))


def same_draw(cls: type[Any]) -> float:
    """Tokens that are hidden differently in two calls with the same draw."""
    draw = Draw(np.arange(8), np.zeros(8, dtype=np.int64), 0)
    given = {"ids": torch.arange(64).reshape(8, 8) % 11}
    first, second = (task_of(cls).prepare(given, draw, "train")["targets"] for _ in range(2))
    return (first != second).sum().item()


PROOFS: dict[type[Any], tuple[Situation, float]] = {
    others.CentredOverTokens: (a_later_token, 0.1),
    others.ClampedInPlace: (what_it_was_given, 1),
    others.DropsInEvaluation: (twice_the_same, 0.1),
    others.CountsPadding: (auxiliary_of_padding, 1e-4),
    others.ExpertsInAList: (left_behind, 1),
    others.MeanInsteadOfSum: (auxiliary_of_halves, 1e-4),
    others.NormalizedOverBatch: (a_neighbour, 0.1),
    others.NormLeavesFloat32: (bytes_more_behind_the_norm, 2),
    others.SquaresInHalfPrecision: (loud_in_float16, 0.1),
    others.AddsTheBranchAsItIs: (unscaled, 0.1),
    others.FirstNormForAll: (unused_parameters, 2),
    others.CallsTheBranchTwice: (calls_too_many, 2),
    others.TableShrinksInUse: (weights_after_looking, 0.1),
    others.PlacesTransposed: (misplaced, 4),
    others.ClassTokenOnTheGrid: (misplaced, 1),
    others.TiedByCopy: (tables_after_materializing, 1),
    others.ReadsTheFirstSlot: (read_behind_padding, 0.1),
    others.CapsItsScores: (scores_of_its_own, 0.1),
    others.MeanLoss: (loss_of_two_rows, 1),
    others.ShiftsAgain: (loss_of_one_target, 1),
    others.CountsEverySlot: (targets_too_many, 2),
    others.SumsWithGraph: (graphs_kept, 1),
    others.NaNWithoutTargets: (nothing_to_predict, math.inf),
    others.PaddingIsAttended: (padded_text, 0.001),
    others.AuxiliaryLossDropped: (loss_of_one_target, 1e-4),
    others.HidesAtRandom: (same_draw, 1),
}
"""For each other fault the situation in which it shows, and how wrong it is there at least."""
