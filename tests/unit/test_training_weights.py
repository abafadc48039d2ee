"""Weights on disk: what is written, and that a file fits a model wholly or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from zoo.errors import UserError
from zoo.training.weights import load_weights, plain_names, read_weights, save_weights, unwrapped


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.table.weight
        self.norm = nn.LayerNorm(3)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def model(seed: int = 0) -> Tied:
    torch.manual_seed(seed)
    return Tied()


def state(**changes: Tensor | None) -> dict[str, Tensor]:
    """One tensor of each, of ones, with changes; ``None`` takes one away."""
    full = {"table.weight": torch.ones(5, 3), "norm.weight": torch.ones(3), "norm.bias": torch.ones(3)}
    changed = {**full, **{name.replace("__", "."): value for name, value in changes.items()}}
    return {name: value for name, value in changed.items() if value is not None}


def test_a_tied_tensor_is_written_once_under_its_first_name_and_comes_back_tied(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    written = model()
    save_weights(path, written.state_dict(), {"step": "3"})
    tensors, facts = read_weights(path)
    assert sorted(tensors) == ["norm.bias", "norm.weight", "table.weight"]
    assert facts == {"step": "3"}
    loaded = model(seed=1)
    load_weights(loaded, tensors, "file")
    assert torch.equal(loaded.table.weight, written.table.weight)
    assert loaded.head.weight is loaded.table.weight


def test_tensors_that_are_not_contiguous_are_written_as_they_look(tmp_path: Path) -> None:
    turned = torch.arange(6.0).view(2, 3).T
    save_weights(tmp_path / "file", {"a": turned}, {})
    assert torch.equal(read_weights(tmp_path / "file")[0]["a"], turned)


def test_views_of_one_storage_are_written_apart(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    save_weights(tmp_path / "file", {"first": whole[:3], "last": whole[3:], "whole": whole}, {})
    tensors, _ = read_weights(tmp_path / "file")
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        "first": [0, 1, 2],
        "last": [3, 4, 5],
        "whole": [0, 1, 2, 3, 4, 5],
    }


@pytest.mark.parametrize(
    "name", ["module.a.b", "_orig_mod.a.b", "module._orig_mod.a.b", "a._orig_mod.b", "a.module.module.b"]
)
def test_prefixes_of_wrappers_are_taken_out_however_they_are_nested(name: str) -> None:
    assert unwrapped(name) == "a.b"


def test_names_that_only_look_like_a_wrapper_stay() -> None:
    assert list(plain_names({"submodule.a": torch.ones(1)})) == ["submodule.a"]


def test_a_file_with_prefixes_loads() -> None:
    loaded = model()
    load_weights(loaded, {f"module._orig_mod.{name}": value for name, value in state().items()}, "file")
    assert loaded.norm.bias.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (state(norm__bias=None), r"loaded 2 of 3 tensors: 1 missing \(norm.bias\)"),
        (state(extra=torch.ones(1)), r"loaded 3 of 3 tensors: 1 not in the model \(extra\)"),
        ({f"foo.{name}": value for name, value in state().items()}, r"loaded 0 of 3 tensors: 3 missing"),
        (
            state(norm__bias=torch.ones(4)),
            r"loaded 2 of 3 tensors: 1 of another shape \(norm.bias \(4,\) instead of \(3,\)\)",
        ),
        (state(table__weight=torch.ones(6, 3)), r"loaded 2 of 3 tensors: .*table.weight \(6, 3\) instead of \(5, 3\)"),
        (
            state(head__weight=torch.zeros(5, 3)),
            r"1 one tensor with different values \(table.weight and head.weight\)",
        ),
        ({}, "loaded 0 of 3 tensors"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_counts_and_names_and_changes_nothing(
    given: dict[str, Tensor], message: str
) -> None:
    loaded = model()
    before = {name: value.clone() for name, value in loaded.state_dict().items()}
    with pytest.raises(UserError, match=message) as caught:
        load_weights(loaded, given, "file")
    assert caught.value.where == "file"
    assert all(torch.equal(before[name], value) for name, value in loaded.state_dict().items())


def test_both_names_of_a_tied_tensor_are_fine_when_they_agree() -> None:
    loaded = model()
    load_weights(loaded, state(head__weight=torch.ones(5, 3)), "file")
    assert loaded.table.weight.sum() == 15


def test_a_long_list_of_names_is_cut_short() -> None:
    with pytest.raises(UserError, match=r"8 not in the model \(x0, x1, x2, x3, x4, \.\.\.\)"):
        load_weights(model(), {**state(), **{f"x{i}": torch.ones(1) for i in range(8)}}, "file")


@pytest.mark.parametrize("content", [None, b"", b"not a safetensors file at all", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_file_that_is_missing_or_damaged_is_one_message(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.safetensors"
    if content is not None:
        path.write_bytes(content)
    if content == b"\x08\0\0\0\0\0\0\0{}      ":
        assert read_weights(path) == ({}, {})  # an empty file, but a whole one
        return
    with pytest.raises(UserError, match="the weights can't be read"):
        read_weights(path)


def test_a_file_that_was_cut_off_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match="the weights can't be read"):
        read_weights(path)
