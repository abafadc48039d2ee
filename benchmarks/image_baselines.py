"""Baselines of image recipes on exactly the same parts: classifiers of scikit-learn, and timm's ViT of the same sizes.

    python benchmarks/image_baselines.py vit_digits                       # train part, scored on the test part
    python benchmarks/image_baselines.py vit_mnist1d --vit no             # without training two models
    python benchmarks/image_baselines.py gpt2_patches                     # share of the variance of the pixels
    python benchmarks/image_baselines.py vit_masked_patches

scikit-learn's classifiers see the train part without augmentation. timm's model and ours see the same batches,
augmentation and mixing included, with the recipe's loss, optimizer, schedule, clipping and seed, in one plain loop that
differs from `zoo train` in nothing that matters here; they differ in their code and in their initial values.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from zoo.builder import build_model, build_optimizer, build_schedule
from zoo.contracts.architecture import Output
from zoo.contracts.data import Data, Draw, Split
from zoo.contracts.task import Task
from zoo.nn.patches import to_patches
from zoo.recipe import Recipe, load_recipe
from zoo.training.job import prepare_task
from zoo.training.plan import BatchPlan

AS_THEY_ARE = ("data.shift=0", "data.flip=false", "data.augment=null")
"""Overrides that turn augmentation off."""


class TimmViT(nn.Module):
    """timm's model of the sizes of a recipe's, behind the interface that a task asks for."""

    def __init__(self, recipe: Recipe, task: Task) -> None:
        super().__init__()
        sizes, config = task.describe(), recipe.config("architecture")
        patches = recipe.config("architecture.embedding")
        self.timm = VisionTransformer(
            img_size=sizes.image_size,
            patch_size=tuple(patches.patch_size),
            in_chans=sizes.channels,
            num_classes=sizes.classes,
            embed_dim=config.dim,
            depth=config.layers,
            num_heads=config.heads,
            pos_drop_rate=config.dropout,
            proj_drop_rate=config.dropout,
            attn_drop_rate=config.dropout,
            act_layer=nn.GELU,
        )

    def forward(self, images_BCHW: Tensor) -> Output:
        """Scores in the place of hidden states."""
        return Output(self.timm(images_BCHW), None)

    def head(self, scores_BC: Tensor) -> Tensor:
        """They are scores already."""
        return scores_BC


def classifiers(seed: int) -> dict[str, Any]:
    """scikit-learn's, with its own defaults but for the number of iterations; pixels are standardized."""
    return {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "SVC, RBF kernel": make_pipeline(StandardScaler(), SVC()),
        "SVC, RBF kernel, C = 10": make_pipeline(StandardScaler(), SVC(C=10)),
        "MLP, 2 x 100 hidden units": make_pipeline(
            StandardScaler(), MLPClassifier((100, 100), max_iter=500, random_state=seed)
        ),
    }


def part(data: Data, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """All images of a part, flat, and their labels."""
    ids = np.arange(data.size(split))
    batch = data.batch(Draw(ids, np.zeros_like(ids), 0), split)
    return batch["images"].flatten(1).numpy(), batch["labels"].numpy()


def sklearn_accuracies(recipe: Recipe, split: Split) -> Iterator[tuple[str, float, float]]:
    """Name, accuracy and seconds of each classifier; the recipe's data is without augmentation."""
    data = prepare_task(recipe).data
    train, held_out = part(data, "train"), part(data, split)
    for name, classifier in classifiers(recipe.seed).items():
        begin = time.perf_counter()
        accuracy = float(classifier.fit(*train).score(*held_out))
        yield name, accuracy, time.perf_counter() - begin


def trained(model: Any, recipe: Recipe, task: Task) -> None:
    """Train a model as the recipe says, in float32 on one process."""
    optimizer, schedule = build_optimizer(recipe).make(model.named_parameters()), build_schedule(recipe)
    rates = [group["lr"] for group in optimizer.param_groups]
    size, rows = task.data.size("train"), task.data.config.batch_size
    plan = BatchPlan(seed=recipe.seed, size=size, batch_size=rows)
    for step in range(recipe.trainer["max_steps"]):
        draw = plan.step(step)
        batch = task.prepare(task.data.batch(draw, "train"), draw, "train")
        loss = task.loss(model.train(), batch)
        (loss.total / max(1, task.count(batch))).backward()
        if recipe.training.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), recipe.training.clip_norm)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * schedule.factor(step)
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def accuracy_of(model: Any, task: Task, split: Split) -> float:
    """Accuracy on a part."""
    ids = np.arange(task.data.size(split))
    sums = task.loss(model.eval(), task.data.batch(Draw(ids, np.zeros_like(ids), 0), split)).sums
    return task.summary({name: float(value) for name, value in sums.items()})["accuracy"]


def vit_accuracies(recipe: Recipe, split: Split) -> Iterator[tuple[str, float, float]]:
    """Name, accuracy and seconds of timm's model and of ours."""
    task = prepare_task(recipe)
    torch.manual_seed(recipe.seed)
    models = {"timm's ViT": TimmViT(recipe, task), "the recipe's model": build_model(recipe, task.describe())}
    for name, model in models.items():
        begin = time.perf_counter()
        trained(model, recipe, task)
        count = sum(parameter.numel() for parameter in model.parameters())
        yield f"{name}, {count:,} parameters", accuracy_of(model, task, split), time.perf_counter() - begin


def explained_variances(recipe: Recipe, split: Split) -> Iterator[tuple[str, float, float]]:
    """Name, explained variance and seconds of the mean of each pixel and of a linear regression of what is seen."""
    task = prepare_task(recipe)
    sees = hidden_pixels if "bidirectional" in task.needs else next_patches
    begin = time.perf_counter()
    problems = list(sees(recipe, task, split))
    wanted = np.concatenate([held[counted] for *_, held, counted in problems])
    for name, regresses in (("mean of each pixel", False), ("ridge regression", True)):
        error = 0.0
        for seen, pixels, held_seen, held, counted in problems:
            predicted = Ridge().fit(seen, pixels).predict(held_seen) if regresses else pixels.mean(0) + 0 * held
            error += float(np.square(predicted - held)[counted].sum())
        yield name, 1 - error / float(np.square(wanted - wanted.mean()).sum()), time.perf_counter() - begin


def next_patches(recipe: Recipe, task: Task, split: Split) -> Iterator[tuple[np.ndarray, ...]]:
    """For each patch: the patches before it and the patch, in the train part and in another; all of it counts."""
    patch = tuple(recipe.config("architecture.embedding").patch_size)
    parts = [torch.from_numpy(part(task.data, name)[0]) for name in ("train", split)]
    train, held = (to_patches(images.unflatten(1, shape_of(task.data)), patch).numpy() for images in parts)
    for place in range(train.shape[1]):
        before, held_before = (
            np.pad(all_[:, :place].reshape(len(all_), -1), ((0, 0), (0, 1))) for all_ in (train, held)
        )
        yield before, train[:, place], held_before, held[:, place], np.ones_like(held[:, place], dtype=bool)


def hidden_pixels(recipe: Recipe, task: Task, split: Split) -> Iterator[tuple[np.ndarray, ...]]:
    """What of the images isn't hidden, in ten epochs of the train part, and all of their pixels; hidden ones count."""
    del recipe

    def seen(name: Split, epoch: int) -> list[np.ndarray]:
        ids = np.arange(task.data.size(name))
        draw = Draw(ids, np.full_like(ids, epoch), 0)
        rows = task.prepare(task.data.batch(draw, name), draw, name)
        hidden = rows["hidden"].expand_as(rows["images"]).flatten(1).numpy()
        shown = np.concatenate([rows["images"].flatten(1).numpy(), hidden], 1)
        return [shown, rows["pixels"].flatten(1).numpy(), hidden]

    train = [np.concatenate(arrays) for arrays in zip(*(seen("train", epoch) for epoch in range(10)), strict=True)]
    yield train[0], train[1], *seen(split, 0)


def shape_of(data: Data) -> tuple[int, int, int]:
    """Channels, height and width."""
    sizes = data.describe()
    assert sizes.channels is not None and sizes.image_size is not None
    return sizes.channels, *sizes.image_size


def main() -> None:
    """Print accuracies, or shares of the variance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="a recipe of images, for example vit_digits")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE, as for zoo train")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--vit", choices=("yes", "no"), default="yes", help="whether models are trained too")
    arguments = parser.parse_args()
    recipe = load_recipe(arguments.recipe, arguments.overrides)
    plain = load_recipe(arguments.recipe, [*arguments.overrides, *AS_THEY_ARE])
    if "class_scores" in recipe.component("task").load().needs:
        rows = [sklearn_accuracies(plain, arguments.split)]
        rows += [vit_accuracies(recipe, arguments.split)] if arguments.vit == "yes" else []
    else:
        rows = [explained_variances(plain, arguments.split)]
    for name, share, seconds in (row for some in rows for row in some):
        print(f"{name:<40} {100 * share:6.2f} %  {seconds:7.1f} s", flush=True)


if __name__ == "__main__":
    main()
