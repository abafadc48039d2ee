"""Which point of a tuning grid a variant is reported at."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from zoo.comparison.cells import Cell, Status
from zoo.comparison.tune import Choice, choose

RATES = {"optimizer.lr": [0.1, 0.2, 0.4]}


def tried(lr: float, loss: float, seed: int = 9, status: Status = "completed") -> Cell:
    result: dict[str, Any] = {"metrics": {"val_loss": loss}}
    return Cell("a", "t", seed, phase="tune", point={"optimizer.lr": lr}, status=status, result=result)


@pytest.mark.parametrize(
    ("losses", "better", "lr", "edges"),
    [
        ((3.0, 2.0, 2.5), "lower", 0.2, ()),
        ((3.0, 2.0, 2.5), "higher", 0.1, ("optimizer.lr",)),
        ((3.0, 2.0, 1.5), "lower", 0.4, ("optimizer.lr",)),
        ((2.0, 2.0, 2.0), "lower", 0.1, ("optimizer.lr",)),
    ],
)
def test_the_best_mean_is_chosen_and_an_edge_is_flagged(
    losses: tuple[float, ...], better: Literal["lower", "higher"], lr: float, edges: tuple[str, ...]
) -> None:
    cells = [tried(rate, loss) for rate, loss in zip(RATES["optimizer.lr"], losses, strict=True)]
    choice = choose(cells, "val_loss", better, RATES)
    assert (choice.point, choice.edges, choice.runs) == ({"optimizer.lr": lr}, edges, 3)


def test_a_point_that_did_not_complete_with_every_seed_is_not_chosen() -> None:
    cells = [tried(0.1, 3.0, 1), tried(0.1, 3.2, 2), tried(0.2, 1.0, 1), tried(0.2, 0.5, 2, "diverged")]
    cells += [tried(0.4, float("nan"), 1), tried(0.4, 0.1, 2)]
    choice = choose(cells, "val_loss", "lower", RATES)
    assert choice.point == {"optimizer.lr": 0.1} and choice.value == pytest.approx(3.1) and choice.runs == 6


def test_where_nothing_completed_nothing_is_chosen() -> None:
    assert choose([tried(0.1, 1.0, status="failed")], "val_loss", "lower", RATES) == Choice({}, None, 1, ())


def test_words_and_single_values_have_no_edge() -> None:
    cell = Cell("a", "t", 1, point={"schedule": "cosine", "dim": 8}, status="completed")
    cell.result = {"metrics": {"val_loss": 1.0}}
    grid = {"schedule": ["cosine", "linear"], "dim": [8]}
    assert choose([cell], "val_loss", "lower", grid).edges == ()
