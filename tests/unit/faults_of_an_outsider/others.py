"""Faults of feed-forward networks, norms, residual arrangements, embeddings, heads and tasks.

Dimension legend: B batch, T tokens, D width, F hidden units, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from faults_of_an_outsider.good import Routed
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Draw, Split
from zoo.contracts.residual import Branch
from zoo.contracts.task import Batch, Loss
from zoo.contracts.values.notes import Notes
from zoo.nn.loss import NO_TARGET
from zoo_builtin.embedding.patches import Patches
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.classification import Classification
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.norm.rms_norm import RMSNorm
from zoo_builtin.residual.post import Post
from zoo_builtin.residual.pre import Pre
from zoo_builtin.task.causal_lm import CausalLM
from zoo_builtin.task.masked_lm import MaskedLM


class CentredOverTokens(MLP):
    """The mean over all tokens is taken off: a position's output depends on later ones and on padding."""

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        return super().forward(x_BTD - x_BTD.mean(1, keepdim=True), valid_BT=valid_BT, notes=notes)


class ClampedInPlace(MLP):
    """The input is clamped in place against overflow: under post-norm it is the residual stream that is cut."""

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        with torch.no_grad():
            x_BTD.clamp_(-1, 1)
        return super().forward(x_BTD, valid_BT=valid_BT, notes=notes)


class DropsInEvaluation(MLP):
    """A dropout of its own that is never switched off: evaluation is random."""

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        return nn.functional.dropout(super().forward(x_BTD, valid_BT=valid_BT, notes=notes), 0.1)


class CountsPadding(Routed):
    """The auxiliary loss counts padding: it grows with the longest text in the batch."""

    def cost(self, cost_BT: Tensor, valid_BT: Tensor | None) -> tuple[Tensor, int]:
        return super().cost(cost_BT, None)


class MeanInsteadOfSum(Routed):
    """The auxiliary loss is a mean, and is divided by the tokens once more: it does nothing in large batches."""

    def cost(self, cost_BT: Tensor, valid_BT: Tensor | None) -> tuple[Tensor, int]:
        total, count = super().cost(cost_BT, valid_BT)
        return total / max(1, count), count


class ExpertsInAList(Routed):
    """Layers in a plain list, which torch doesn't see: they are never trained, moved or saved."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        experts = list(self.down)
        del self.down
        self.down = experts  # type: ignore[assignment]


class NormalizedOverBatch(LayerNorm):
    """Mean and variance are those of the batch, in evaluation too: a row's answer depends on the other rows."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        mean, variance = x_BTD.mean(0, keepdim=True), x_BTD.var(0, keepdim=True, unbiased=False)
        x_BTD = (x_BTD - mean) / (variance + self.config.eps).sqrt()
        return x_BTD * self.norm.weight if self.norm.bias is None else x_BTD * self.norm.weight + self.norm.bias


class NormLeavesFloat32(RMSNorm):
    """The result isn't cast back: behind a bfloat16 model's norm comes float32, and the next layer is an error."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        wide = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32))
        return wide * (wide.square().mean(-1, keepdim=True) + self.config.eps).rsqrt() * self.norm.weight


class SquaresInHalfPrecision(RMSNorm):
    """Squares are summed in the input's dtype: in float16 an element of 300 makes the whole vector 0."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD * (x_BTD.square().mean(-1, keepdim=True) + self.config.eps).rsqrt() * self.norm.weight


class AddsTheBranchAsItIs(Pre):
    """Branches are added without ``contribution``: dropout, layer_scale and drop_path do nothing."""

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        for norm, branch in zip(self.norms, branches, strict=True):
            x_BTD = x_BTD + branch(norm(x_BTD))
        return x_BTD


class FirstNormForAll(Pre):
    """All branches go through the first norm: the others never learn, and DDP misses their gradients."""

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        for index, branch in enumerate(branches):
            x_BTD = x_BTD + self.contribution(index, branch(self.norms[0](x_BTD)))
        return x_BTD


class CallsTheBranchTwice(Post):
    """The branch is called once more to look at its size: with a cache, each token is remembered twice."""

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        for branch in branches:
            assert branch(x_BTD).shape == x_BTD.shape
        return super().forward(x_BTD, branches)


class TableShrinksInUse(Tokens):
    """Vectors are renormalized when they are looked up (``max_norm``): evaluating a model changes its weights."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.tokens = nn.Embedding(self.tokens.num_embeddings, self.dim, max_norm=0.5)


class PlacesTransposed(Patches):
    """Places are (column, row): right for square grids of a symmetric scheme, in other images they leave the grid."""

    def positions(self, inputs: Tensor, axes: int) -> Tensor:
        return super().positions(inputs, axes).flip(-1)


class ClassTokenOnTheGrid(Patches):
    """The class token stands at row 0, column 0 instead of nowhere: it is taken for a neighbour of some patches."""

    def positions(self, inputs: Tensor, axes: int) -> Tensor:
        return super().positions(inputs, axes).clamp(min=0)


class TiedByCopy(LanguageModel):
    """The tied head holds the table under a name of its own: after ``to_empty`` the two are different tensors."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.tied:
            self.copy = nn.Linear(self.dim, self.sizes.vocab_size, bias=False)
            self.copy.weight = self.embedding.table

    @property
    def weight(self) -> Tensor:
        return self.copy.weight if self.config.tied else super().weight


class ReadsTheFirstSlot(Classification):
    """The first slot is read even where it is padding: texts that are padded on the left are classified by nothing."""

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        return super().forward(hidden_BTD, None if self.config.pool == "first" else valid_BT)


class CapsItsScores(LanguageModel):
    """Scores are capped in ``forward``, which the loss doesn't call: the model is trained on others than it gives."""

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        return 5 * torch.tanh(super().forward(hidden_BTD, valid_BT) / 5)


class MeanLoss(CausalLM):
    """The loss is a mean over targets, which the training module divides once more: micro-batches change the step."""

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        total, sums = super().loss(model, batch)
        return Loss(total / max(1, self.count(batch)), sums)


class ShiftsAgain(CausalLM):
    """Targets that the data has shifted are shifted once more: the model learns the token after the next."""

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        targets_BT = batch["targets"].roll(-1, 1)
        targets_BT[:, -1] = NO_TARGET
        return super().loss(model, {**batch, "targets": targets_BT})


class CountsEverySlot(CausalLM):
    """Slots without a target are counted: the more padding in a batch, the smaller its step."""

    def count(self, batch: Batch) -> int:
        return batch["targets"].numel()


class SumsWithGraph(CausalLM):
    """The reported loss isn't detached: the graphs of a whole epoch stay in memory."""

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        total, sums = super().loss(model, batch)
        return Loss(total, {**sums, "loss": total})


class NaNWithoutTargets(CausalLM):
    """The sum is made of a mean: a batch without any target is NaN, and so is the model after it."""

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        total, sums = super().loss(model, batch)
        return Loss(total / sums["targets"] * sums["targets"], sums)


class PaddingIsAttended(CausalLM):
    """The batch's padding isn't passed to the model: the loss of a text depends on how far it is padded."""

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        return super().loss(model, {name: value for name, value in batch.items() if name != "valid"})


class HidesAtRandom(MaskedLM):
    """What is hidden comes from the global generator: a resumed run, or another rank count, sees other samples."""

    def prepare(self, batch: Batch, draw: Draw, split: Split) -> Batch:
        seed = int(torch.randint(2**31, ()))
        return super().prepare(batch, draw._replace(seed=seed), "train")


class AuxiliaryLossDropped(CausalLM):
    """The model's auxiliary loss is left out: a router is never balanced."""

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        class Silent(nn.Module):
            head = model.head

            def forward(self, *given: Any, **more: Any) -> Any:
                return model(*given, **more)._replace(auxiliary=None)

        return super().loss(Silent(), batch)  # type: ignore[arg-type]
