"""Components of the other kinds with one fault each."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.contracts.architecture import Architecture, Output
from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.norm import Norm
from zoo.contracts.position import Position
from zoo.contracts.residual import Residual
from zoo.contracts.weights import Match
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
    weights,
)


class TurnsBy(Position):
    """A rotation that is right, with hooks for what can be wrong."""

    wide = torch.float64

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.size % 2 and not isinstance(self, OddSizeCrashes):
            raise ValueError(f"heads of {self.size} elements have no pairs to turn")

    def positions(self, at_BTA: Tensor) -> Tensor:
        return at_BTA

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        pair = torch.arange(self.size // 2, dtype=self.wide, device=at_BTA.device)
        phase = self.positions(at_BTA)[:, None, :, :1].to(self.wide) * 0.01 ** (pair / self.size)
        return phase.cos(), phase.sin()

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        wide = torch.promote_types(x_BNTH.dtype, torch.float32)
        cos, sin = (table.to(wide) for table in prepared)
        a, b = x_BNTH.to(wide).chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x_BNTH.dtype)


class SlotsNotPositions(Position):
    """Adds a wave of the slot, whatever positions are given."""

    def positions(self, at_BTA: Tensor) -> Tensor:
        return torch.arange(at_BTA.shape[1], device=at_BTA.device)[None, :, None]

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        return x_BTD + self.positions(at_BTA).to(torch.float64).sin().to(x_BTD.dtype)


class PositionsOfFirstRow(SlotsNotPositions):
    def positions(self, at_BTA: Tensor) -> Tensor:
        return at_BTA[:1]


class SlotsRotated(TurnsBy):
    def positions(self, at_BTA: Tensor) -> Tensor:
        return torch.arange(at_BTA.shape[1], device=at_BTA.device)[None, :, None]


class HalfPrecisionPhases(TurnsBy):
    wide = torch.bfloat16


class TablesOfTheModel(TurnsBy):
    """Frequencies in a buffer, which ``model.bfloat16()`` rounds."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        pair = torch.arange(self.size // 2, dtype=torch.float32)
        self.register_buffer("frequency", 0.01 ** (pair / self.size), persistent=False)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        phase = at_BTA[:, None, :, :1] * self.frequency
        return phase.cos(), phase.sin()


class TablesSaved(TurnsBy):
    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.register_buffer("table", torch.zeros(4))


class WidensRotation(TurnsBy):
    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        turned = super().rotate(x_BNTH, prepared)
        return turned.float() if x_BNTH.dtype == torch.bfloat16 else turned


class MemoOfThePast(position.Mine):
    """Makes its table once, with the graph of the first forward pass in it."""

    memo: Tensor | None = None

    def bias(self, q: Tensor, k: Tensor, call: Any, prepared: Tensor) -> Tensor:
        if self.memo is None:
            self.memo = -nn.functional.softplus(self.slope)
        return self.memo[:, None, None] * prepared


class OrderForgotten(position.Mine):
    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        return 0 * super().prepare(at_BTA, keys_BSA)


class QueriesOnlyOfTheChunk(position.Mine):
    """Distances among the new tokens, as if there were no cache."""

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        return super().prepare(at_BTA - at_BTA[:, :1], keys_BSA)


class BoundForgotten(Position):
    bounded = True

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        return x_BTD + 0.01 * at_BTA[..., :1]


class SecretContent(position.Mine):
    def bias(self, q: Tensor, k: Tensor, call: Any, prepared: Tensor) -> Tensor:
        return super().bias(q, k, call, prepared) * q.norm(dim=-1, keepdim=True)


class OddSizeCrashes(TurnsBy):
    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        if self.size % 2:
            raise RuntimeError("The expanded size of the tensor (2) must match the existing size (3)")
        return super().prepare(at_BTA, keys_BSA)


class LooksAside(feed_forward.Mine):
    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Any = None) -> Tensor:
        return super().forward(x_BTD + 0.1 * x_BTD.roll(1, 1))


class KnowsItsPlace(feed_forward.Mine):
    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Any = None) -> Tensor:
        return super().forward(x_BTD) * torch.arange(1, x_BTD.shape[1] + 1, dtype=x_BTD.dtype)[:, None]


class CountsPadding(FeedForward):
    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.up = nn.Linear(self.dim, self.dim)

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Any = None) -> Tensor:
        out_BTD = self.up(x_BTD)
        if notes is not None:
            notes.auxiliary("balance", out_BTD.square().sum(), out_BTD.shape[1])
        return out_BTD


class BatchStatistics(Norm):
    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD / x_BTD.square().mean().add(1e-6).sqrt()


class WidensForGood(norm.Mine):
    def forward(self, x_BTD: Tensor) -> Tensor:
        return super().forward(x_BTD).float() if x_BTD.dtype == torch.bfloat16 else super().forward(x_BTD)


class NoEpsilon(norm.Mine):
    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD / x_BTD.norm(dim=-1, keepdim=True) * self.gain


class StreamDropped(residual.Mine):
    def forward(self, x_BTD: Tensor, branches: Sequence[Any]) -> Tensor:
        for norm_layer, branch in zip(self.norms, branches, strict=True):
            x_BTD = self.carry.sum() + branch(norm_layer(x_BTD))
        return x_BTD


class BranchesBackwards(residual.Mine):
    def forward(self, x_BTD: Tensor, branches: Sequence[Any]) -> Tensor:
        return super().forward(x_BTD, list(branches)[::-1])


class DropsTheStream(residual.Mine):
    def forward(self, x_BTD: Tensor, branches: Sequence[Any]) -> Tensor:
        return super().forward(self.dropout(x_BTD), branches)


class LastBranchLost(Residual):
    final_norm = True

    def forward(self, x_BTD: Tensor, branches: Sequence[Any]) -> Tensor:
        for norm_layer, branch in zip(self.norms, branches, strict=True):
            last = branch(norm_layer(x_BTD))
            x_BTD = x_BTD + last
        return x_BTD - last


class PoolerNobodyUses(architecture.Mine):
    def __init__(self, config: Any, **parts: Any) -> None:
        super().__init__(config, **parts)
        self.pooler = nn.Linear(config.dim, config.dim)


class OneGeneratorForAll(architecture.Mine):
    def initialize(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)


class TiedByAName(architecture.Mine):
    def __init__(self, config: Any, **parts: Any) -> None:
        super().__init__(config, **parts)
        self.again = self.embedding


class HistoryForgotten(architecture.Mine):
    """Keys are cached; positions and padding start again with each call."""

    def forward(self, inputs: Tensor, *, cache: Any = None, positions_BTA: Any = None, **others: Any) -> Output:
        tokens = inputs.shape[1]
        return super().forward(inputs, cache=cache, positions_BTA=torch.arange(tokens)[None, :, None], **others)


class RowsShareATable(embedding.Mine):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) - super().forward(inputs).mean(0, keepdim=True)


class EverywhereNowhere(embedding.Mine):
    def positions(self, inputs: Tensor, axes: int) -> Tensor | None:
        return None if axes == 2 else torch.full((1, inputs.shape[1], 1), -1)


class GridUnsaid(embedding.Mine):
    def positions(self, inputs: Tensor, axes: int) -> Tensor | None:
        return None if axes == 1 else torch.zeros(1, inputs.shape[1], 2, dtype=torch.int64)


class TableTransposed(embedding.Mine):
    @property
    def table(self) -> Tensor:
        return self.tokens.weight.T


class StatesForgotten(head.Mine):
    def states(self, hidden: Tensor) -> Tensor:
        return hidden / 2

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        return hidden_BTD @ self.weight.T


class PaddingCounts(head.Mine):
    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        return super().forward(hidden_BTD.mean(1))


class SwapsTensors(weights.Mine):
    def matches(self, model: Architecture) -> Any:
        made = list(super().matches(model))
        one, other = (i for i, match in enumerate(made) if ".query.weight" in match.theirs)
        made[one], made[other] = Match(made[one].theirs, made[one].ours * 2), made[other]
        return made


class TakesLeftovers(weights.Mine):
    def ignored(self, name: str) -> bool:
        return not name.startswith("model.")


class SpecialText(tokenizer.Mine):
    """A document that spells the marker gets its id."""

    def encode(self, text: str) -> list[int]:
        parts = [super(SpecialText, self).encode(part) for part in text.split("<|endoftext|>")]
        return functools.reduce(lambda left, right: [*left, 256, *right], parts)

    def token_bytes(self, token: int) -> bytes:
        return b"<|endoftext|>" if token == 256 else super().token_bytes(token)


class StripsSpaces(tokenizer.Mine):
    def encode(self, text: str) -> list[int]:
        return super().encode(text.strip())


class ReplacesSilently(tokenizer.Mine):
    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", errors="replace"))


class TakesAnyState(tokenizer.Mine):
    def restore(self, state: dict[str, Any]) -> None:
        pass


class DrawnGlobally(data.Mine):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return {"ids": batch["ids"] * 0 + np.random.randint(0, 61), "targets": batch["targets"]}


class CompanyMatters(data.Mine):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        batch = super().batch(draw, split)
        return {"ids": (batch["ids"] + batch["ids"].shape[0]) % 61, "targets": batch["targets"]}


class PartsOverlap(data.Mine):
    def prepare(self) -> None:
        super().prepare()
        self.parts["validation"] = self.parts["train"][-100:]


class TargetsInEmptyRows(data.Mine):
    def batch(self, draw: Any, split: Any) -> dict[str, Tensor]:
        return super().batch(draw._replace(samples=draw.samples.clip(min=0)), split)


class MeanNotSum(task.Mine):
    def loss(self, model: Any, batch: Any) -> Any:
        loss = super().loss(model, batch)
        return loss._replace(total=loss.total / loss.sums["targets"].clamp(min=1))


class SumsWithGraph(task.Mine):
    def loss(self, model: Any, batch: Any) -> Any:
        loss = super().loss(model, batch)
        return loss._replace(sums={**loss.sums, "loss": loss.total})


class NanWithoutTargets(task.Mine):
    def loss(self, model: Any, batch: Any) -> Any:
        loss = super().loss(model, batch)
        return loss._replace(total=loss.total / loss.sums["targets"] * loss.sums["targets"])


class DrawsByRow(task.Mine):
    def prepare(self, batch: Any, draw: Any, split: Any) -> Any:
        rows = torch.arange(len(batch["ids"]))[:, None]
        return {**batch, "ids": (batch["ids"] + rows) % 61}


class NanMetric(task.Mine):
    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {name: sums["loss"] / max(sums["targets"], 1) for name in self.metrics}


class CountsItsCalls(schedule.Mine):
    calls = 0

    def factor(self, step: int) -> float:
        self.calls += 1
        return super().factor(step) * 0.999**self.calls


class NegativeEnd(schedule.Mine):
    def after_warmup(self, step: int) -> float:
        return 1 - step / 5


class BiasesForgotten(optimizer.Mine):
    def make(self, parameters: Any) -> torch.optim.Optimizer:
        return super().make((name, parameter) for name, parameter in parameters if parameter.ndim > 1)


class EverythingDecays(optimizer.Mine):
    def make(self, parameters: Any) -> torch.optim.Optimizer:
        trained = [parameter for _, parameter in parameters if parameter.requires_grad]
        return torch.optim.SGD(trained, lr=self.config.lr, weight_decay=self.config.weight_decay)


class RateForgotten(optimizer.Mine):
    def make(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for _, p in parameters if p.requires_grad], lr=0.1)
