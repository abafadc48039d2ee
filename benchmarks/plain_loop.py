"""The frame adds nothing to the mathematics: `zoo train` and a plain torch loop give bit-equal losses.

    python benchmarks/plain_loop.py            # GPT-2, 4 layers, width 128, 200 steps, float32, one process

``plain_steps`` is the whole of the plain loop. It shares the network, the data set and the order of samples with
the zoo; initial values, optimizer, learning rate, loss, clipping and loop are written out.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from zoo.contracts.data import Draw
from zoo.data.permutation import epoch_draw
from zoo.recipe import Recipe
from zoo.training.job import cache_folder
from zoo.training.metrics import read_metrics
from zoo.training.train import train
from zoo_builtin.architecture.gpt2 import GPT2
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.data.text import Text
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.residual.pre import Pre
from zoo_builtin.tokenizer.byte import Byte


@dataclass
class Sizes:
    """What the two loops are given."""

    steps: int = 200
    layers: int = 4
    dim: int = 128
    heads: int = 4
    length: int = 128
    batch_size: int = 16
    seed: int = 1337
    lr: float = 1e-3
    warmup: int = 20
    decay: float = 0.1
    clip: float = 1.0


def plain_steps(sizes: Sizes) -> Iterator[float]:
    """Nats per token of each step, by the shortest loop that does the same."""
    data = Text(Text.Config(length=sizes.length), cache=cache_folder(), tokenizer=Byte(Byte.Config()))
    data.prepare()
    config = GPT2.Config(
        vocab_size=data.describe().vocab_size,
        max_length=sizes.length,
        layers=sizes.layers,
        dim=sizes.dim,
        heads=sizes.heads,
    )
    model = GPT2(
        config,
        attention=MultiHead.part(),
        position=Learned.part(),
        feed_forward=MLP.part(),
        norm=LayerNorm.part(),
        residual=Pre.part(),
        embedding=Tokens.part(),
        head=LanguageModel.part(),
    )
    model.initialize(sizes.seed)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": sizes.decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=sizes.lr, betas=(0.9, 0.95), fused=True)
    for step in range(sizes.steps):
        samples, epochs = epoch_draw(sizes.seed, step * sizes.batch_size, sizes.batch_size, data.size("train"))
        batch = data.batch(Draw(samples, epochs, sizes.seed), "train")
        scores = F.linear(model(batch["ids"]).hidden, model.embedding.tokens.weight)
        loss = F.cross_entropy(scores.flatten(0, 1), batch["targets"].flatten(), reduction="sum")
        (loss / batch["targets"].numel()).backward()
        torch.nn.utils.clip_grad_norm_(parameters, sizes.clip)
        for group in optimizer.param_groups:
            group["lr"] = sizes.lr * factor(step, sizes)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item() / batch["targets"].numel()


def factor(step: int, sizes: Sizes) -> float:
    """Linear warm-up, then half a cosine down to a tenth."""
    if step < sizes.warmup:
        return (step + 1) / sizes.warmup
    done = (step - sizes.warmup) / (sizes.steps - sizes.warmup)
    return 0.1 + (1 - 0.1) * (1 + math.cos(math.pi * done)) / 2


def recipe_of(sizes: Sizes, *, log_every: int, validation: bool) -> Recipe:
    """The recipe that asks for the same."""
    data = {"name": "text", "length": sizes.length, "batch_size": sizes.batch_size}
    return Recipe.from_dict(
        {
            "seed": sizes.seed,
            "data": data if validation else {**data, "validation": 0.0},
            "architecture": {"name": "gpt2", "layers": sizes.layers, "dim": sizes.dim, "heads": sizes.heads},
            "task": "causal_lm",
            "optimizer": {"name": "adamw", "lr": sizes.lr, "weight_decay": sizes.decay},
            "schedule": {"name": "cosine", "warmup_steps": sizes.warmup},
            "training": {"clip_norm": sizes.clip, "log_every": log_every, "validate_batches": 1},
            "trainer": {"max_steps": sizes.steps, "accelerator": "cpu", "devices": 1},
        }
    )


def zoo_losses(sizes: Sizes, run: Path) -> list[float]:
    """Nats per token of each step, by ``zoo train``."""
    train(recipe_of(sizes, log_every=1, validation=True), run)
    return [row["train_loss"] for row in read_metrics(run / "metrics.csv")]


def main() -> int:
    """Run both and compare; 0 if all losses are equal to the last bit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars(Sizes()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    sizes = Sizes(**vars(parser.parse_args()))
    plain = list(plain_steps(sizes))
    with tempfile.TemporaryDirectory() as folder:
        zoo = zoo_losses(sizes, Path(folder) / "run")
    equal = sum(a == b for a, b in zip(plain, zoo, strict=True))
    print(f"{equal} of {len(plain)} losses equal to the last bit; first {plain[0]!r}, last {plain[-1]!r}")
    return 0 if equal == len(plain) else 1


if __name__ == "__main__":
    sys.exit(main())
