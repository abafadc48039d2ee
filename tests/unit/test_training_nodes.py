"""Several nodes: where they meet is known before training, and said while it is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lightning.fabric.plugins.environments import LightningEnvironment

from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.training.train import train
from zoo.training.trainer import MEETING, awaited, check_nodes

PLACE = {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500", "NODE_RANK": "1"}


@pytest.fixture(autouse=True)
def nobody_manages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*MEETING, "GROUP_RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "LSB_JOBID"):
        monkeypatch.delenv(name, raising=False)


def recipe(nodes: int) -> Recipe:
    return load_recipe("gpt2_text", [f"trainer.num_nodes={nodes}"])


def test_nodes_that_cannot_find_each_other_are_refused_before_data_is_read() -> None:
    with pytest.raises(UserError) as caught:
        train(recipe(2))
    assert caught.value.what == (
        "2 nodes are to meet, and the environment doesn't say where: it lacks MASTER_ADDR, MASTER_PORT, NODE_RANK"
    )
    assert caught.value.where == "override 1: trainer.num_nodes=2 (trainer.num_nodes)"
    assert caught.value.fix is not None and "NODE_RANK from 0 to 1" in caught.value.fix


@pytest.mark.parametrize("missing", MEETING)
def test_only_what_is_missing_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PLACE.keys() - {missing}:
        monkeypatch.setenv(name, PLACE[name])
    with pytest.raises(UserError, match=f"it lacks {missing}\\n"):
        check_nodes(recipe(2))


@pytest.mark.parametrize("environment", [PLACE, {"TORCHELASTIC_RUN_ID": "1"}])
def test_nodes_that_know_where_they_meet_may_go_on(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    check_nodes(recipe(2))


def test_one_node_needs_no_place() -> None:
    check_nodes(recipe(1))


def trainer(nodes: int) -> Any:
    return SimpleNamespace(num_nodes=nodes, strategy=SimpleNamespace(cluster_environment=LightningEnvironment()))


def test_what_is_waited_for_is_said_once_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    assert awaited(trainer(2)) == "node 1 of 2 (from 0): waiting for the others at 10.0.0.7:29500"
    assert awaited(trainer(1)) is None
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert awaited(trainer(2)) is None
