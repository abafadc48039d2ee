"""Architectures, data, tokenizers and the like with one fault each, as people make them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.contracts.architecture import Output
from zoo.contracts.position import Position
from zoo.testing.templates import (
    architecture,
    data,
    embedding,
    feed_forward,
    head,
    norm,
    optimizer,
    position,
    residual,
    schedule,
    task,
    tokenizer,
)


class LooksAtTheWhole(architecture.Mine):
    """Hidden states less a share of their mean over all tokens."""

    def forward(self, inputs: Tensor, **others: Any) -> Output:
        output = super().forward(inputs, **others)
        return output._replace(hidden=output.hidden - 0.1 * output.hidden.mean(1, keepdim=True))


class PositionsInTheFirstOrder(architecture.Mine):
    """Goes on where the rows of the first call were, whatever became of them."""

    def forward(self, inputs: Tensor, *, cache: Any = None, mask: Any = None, **others: Any) -> Output:
        if cache is not None and cache.length == 0 and mask is not None and mask.valid_BS is not None:
            self.lengths = mask.valid_BS.sum(1)
        if cache is not None and cache.length and cache.valid_BS is not None:
            rows = torch.arange(inputs.shape[0]) % len(self.lengths)
            at_B1 = self.lengths[rows][:, None] + cache.length - 4 + torch.arange(inputs.shape[1])
            others["positions_BTA"] = at_B1[..., None]
        return super().forward(inputs, cache=cache, mask=mask, **others)


class CountsItsPasses(architecture.Mine):
    """Training passes that are repeated do something else."""

    passes = 0

    def __init__(self, config: Any, **parts: Any) -> None:
        super().__init__(config, **parts)
        first = next(iter(self.block_modules()))
        forward = first.forward

        def counted(x_BTD: Tensor, *args: Any, **keywords: Any) -> Any:
            self.passes += torch.is_grad_enabled()
            return forward(x_BTD * (1.0 if self.passes % 2 else 1.01), *args, **keywords)

        first.forward = counted


class RoundsItsStates(architecture.Mine):
    """Hidden states on a grid that is coarse in half precision only."""

    def forward(self, inputs: Tensor, **others: Any) -> Output:
        output = super().forward(inputs, **others)
        hidden = output.hidden
        return output._replace(hidden=(hidden + 256) - 256 if hidden.dtype == torch.bfloat16 else hidden)


class NeedsACasualAttention(architecture.Mine):
    """Asks its attention for a word that nobody offers."""

    offers = architecture.Mine.offers | {"casual"}


class IdsPastTheEnd(data.Mine):
    """Ids from 1 to the vocabulary's size."""

    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return {"ids": batch["ids"] + 1, "targets": batch["targets"]}


class MoreClassesThanTold(data.Mine):
    """Labels beside the ids, and nothing that says how many classes there are."""

    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        empty = torch.from_numpy(draw.samples < 0)
        return {"ids": batch["ids"], "labels": batch["ids"][:, 0].masked_fill(empty, -100)}


class PartsByTheSeed(data.Mine):
    """Which samples are for validation is drawn anew by each object."""

    made = 0

    def prepare(self) -> None:
        super().prepare()
        PartsByTheSeed.made += 1
        self.parts = {name: part[PartsByTheSeed.made % 7 :] for name, part in self.parts.items()}


class TakesAnything(embedding.Mine):
    """Offers a word that no task knows."""

    offers = embedding.Mine.offers | {"tokns"}


class FactorSaved(embedding.Mine):
    """A table that can be computed, saved in the model's precision."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.register_buffer("wave", torch.linspace(0, 1, self.dim))

    def forward(self, inputs: Tensor) -> Tensor:
        vectors: Tensor = super().forward(inputs)
        return vectors + self.wave


class OwnLossOfEachToken(feed_forward.Mine):
    """An auxiliary loss that nobody summed."""

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Any = None) -> Tensor:
        out_BTD = super().forward(x_BTD)
        if notes is not None:
            kept_BT = 1.0 if valid_BT is None else valid_BT
            notes.auxiliary("size", out_BTD.square().mean(-1) * kept_BT, out_BTD.shape[1])
        return out_BTD


class OffersScores(head.Mine):
    """Offers a word that no task knows."""

    offers = head.Mine.offers | {"scores"}


class GoesUphill(optimizer.Mine):
    """Steps in the direction of the gradient."""

    def make(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        made = super().make(parameters)
        for group in made.param_groups:
            group["maximize"] = True
        return made


class StateForgotten(optimizer.Mine):
    """Momentum that no state dict holds."""

    def make(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        made = super().make(parameters)
        saved = made.state_dict
        made.state_dict = lambda: {**saved(), "state": {}}  # type: ignore[method-assign]
        return made


class SaysItIsRelative(Position):
    """Adds a wave of the place to the embeddings, and says that only distances matter."""

    relative = True

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        return x_BTD + at_BTA[..., :1].to(torch.float64).sin().to(x_BTD.dtype)


class RowsOnly(Position):
    """A wave of the row; the column is forgotten."""

    axes = 2

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        return x_BTD + at_BTA[..., :1].to(torch.float64).sin().to(x_BTD.dtype)


class MeanOfAll(position.Mine):
    """Embeddings less their mean over all tokens, later ones too."""

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        return x_BTD - 0.1 * x_BTD.mean(1, keepdim=True)


class ShareOfTheRow(Position):
    """Where a token stands among all of them, which is 0 / 0 where all stand at the beginning."""

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        if at_BTA.shape[1] == 1:
            return x_BTD
        return x_BTD + (at_BTA / at_BTA.amax()).to(x_BTD.dtype)


class FinalNormByChance(residual.Mine):
    """Says whether the stack ends with a norm by a word."""

    final_norm = "yes"  # type: ignore[assignment]


class AddsBranchesItself(residual.Mine):
    """Leaves out ``contribution``: dropout is there, layer_scale isn't."""

    def forward(self, x_BTD: Tensor, branches: Sequence[Any]) -> Tensor:
        for index, (before, branch) in enumerate(zip(self.norms, branches, strict=True)):
            x_BTD = self.carry[index] * x_BTD + self.dropout(branch(before(x_BTD)))
        return x_BTD


class DropsElements(residual.Mine):
    """Drops single elements where whole rows were meant."""

    def contribution(self, index: int, out_BTD: Tensor) -> Tensor:
        path, self.drop_path = self.drop_path, 0.0
        out_BTD = super().contribution(index, out_BTD)
        self.drop_path = path
        return nn.functional.dropout(out_BTD, path, self.training)


class WarmsUpByTheRoot(schedule.Mine):
    """A warm-up that is no line."""

    def factor(self, step: int) -> float:
        return super().factor(step) ** (0.5 if step < self.config.warmup_steps else 1.0)


class WarmsUpForever(schedule.Mine):
    """Takes any warm-up."""

    def __init__(self, config: Any, *, steps: int) -> None:
        super().__init__(dataclasses.replace(config, warmup_steps=min(config.warmup_steps, steps)), steps=steps)
        self.config = config


class LossWithoutTheHead(task.Mine):
    """The head's scores are made without a gradient."""

    def loss(self, model: Any, batch: Any) -> Any:
        still = copy.copy(model)
        made = super().loss(model, batch)
        with torch.no_grad():
            output = still(batch["ids"])
        total = made.total.detach() + 0.0 * sum(p.sum() for n, p in model.named_parameters() if "attention" in n)
        del output
        return made._replace(total=total)


class IdsByThousands(tokenizer.Mine):
    """An id that the table has no row for."""

    def encode(self, text: str) -> list[int]:
        return [token + 1000 * (token == 0) for token in super().encode(text)]

    def decode(self, ids: Any) -> str:
        return super().decode([token % 1000 for token in ids])

    def token_bytes(self, token: int) -> bytes:
        return bytes(1) if token == 1000 else super().token_bytes(token)


class BytesOfThePrintable(tokenizer.Mine):
    """Line ends are printed as spaces, though text comes back."""

    def token_bytes(self, token: int) -> bytes:
        return b" " if token == 10 else super().token_bytes(token)

    def decode(self, ids: Any) -> str:
        return b"".join(bytes([token]) for token in ids if token < 256).decode("utf-8", errors="replace")


class BatchesLowered(tokenizer.Mine):
    """A batch is encoded in lower case."""

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        return super().encode_batch([text.lower() for text in texts])


class FingerprintOfTheObject(tokenizer.Mine):
    """Each object is another vocabulary."""

    fitted = 0

    def fit(self, texts: Any) -> None:
        super().fit(texts)
        FingerprintOfTheObject.fitted += 1
        self.number = FingerprintOfTheObject.fitted

    def state(self) -> dict[str, Any]:
        return {"number": getattr(self, "number", 0)}

    def restore(self, state: dict[str, Any]) -> None:
        if set(state) == {"number"}:
            self.number = state["number"]
            return
        super().restore(state)


class CountsInPlace(norm.Mine):
    """Keeps the largest value it has seen in its gain."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        with torch.no_grad():
            self.gain.mul_(1.0 + 1e-3)
        return super().forward(x_BTD)


class PaddingForgotten(task.Mine):
    """Doesn't tell the model which ids are padding."""

    def loss(self, model: Any, batch: Any) -> Any:
        return super().loss(model, {name: value for name, value in batch.items() if name != "valid"})


class OwnLossesForgotten(task.Mine):
    """Takes the cross-entropy for all there is."""

    def loss(self, model: Any, batch: Any) -> Any:
        def without(module: Any, given: Any, output: Any) -> Any:
            return output._replace(auxiliary=None)

        hook = model.register_forward_hook(without)
        made = super().loss(model, batch)
        hook.remove()
        return made
