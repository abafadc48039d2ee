"""Beginning with weights that are there: what is taken, what begins anew, and what is refused."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from zoo.builder import build_model, build_weights
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.contracts.weights import Weights, below
from zoo.errors import UserError
from zoo.nn.resizing import resized_positions
from zoo.recipe import Recipe, load_recipe
from zoo.recipe.source import write_text
from zoo.registry import Registry
from zoo.training.run import RunFolder
from zoo.training.start import read_state, start_from
from zoo.training.weights import save_weights
from zoo_builtin.weights.bert import BERTWeights

SIZES = Description(vocab_size=11, max_length=8, classes=3)
BERT = {"name": "bert", "layers": 2, "dim": 8, "heads": 2}
CLASSES = {**BERT, "head": {"name": "classification", "pooler": True}}


def recipe_of(architecture: dict[str, Any], *overrides: str, **weights: Any) -> Recipe:
    sections = {"architecture": architecture, **({"weights": weights} if weights else {})}
    return Recipe.from_dict(sections, overrides, fragment=True)


def scattered(architecture: dict[str, Any], sizes: Description = SIZES) -> Architecture:
    """A model none of whose values is an initial one."""
    model = build_model(recipe_of(architecture), sizes)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def begun(recipe: Recipe, sizes: Description = SIZES) -> tuple[Architecture, dict[str, str], list[str]]:
    weights, model = build_weights(recipe), build_model(recipe, sizes)
    assert weights is not None
    return (model, *start_from(weights, model, recipe))


def saved_run(folder: Path, architecture: dict[str, Any]) -> tuple[Path, dict[str, Tensor]]:
    """A run folder as far as its weights need it, and what is in them."""
    folder.mkdir()
    run, model = RunFolder(folder), scattered(architecture)
    save_weights(run.weights, model.state_dict(), {"step": "1"})
    run.lock.write_text(write_text({"sizes": {"vocab_size": 11, "max_length": 8, "image_size": None}}))
    whole = {"data": "text", "task": "masked_lm", "architecture": architecture}
    run.recipe.write_text(Recipe.from_dict(whole).to_yaml())
    return folder, model.state_dict()


def saved_bert(file: Path, **changes: Tensor | None) -> Path:
    """BERT's own classification under its names; a change replaces a tensor or, ``None``, removes it."""
    state = BERTWeights(BERTWeights.Config()).save(scattered({**CLASSES, "embedding": {"name": "tokens", "types": 2}}))
    state = {**state, **changes}
    save_file({name: tensor for name, tensor in state.items() if tensor is not None}, file)
    return file


def foreign(path: Path, *overrides: str, **weights: Any) -> Recipe:
    architecture = {**CLASSES, "embedding": {"name": "tokens", "types": 2}}
    return recipe_of(architecture, *overrides, name="bert", path=str(path), **weights)


def refused(recipe: Recipe) -> UserError:
    with pytest.raises(UserError) as caught:
        begun(recipe)
    return caught.value


def test_a_new_head_begins_on_the_rest_of_a_run(tmp_path: Path) -> None:
    path, old = saved_run(tmp_path / "run", BERT)
    recipe = recipe_of(CLASSES, path=str(path))
    model, facts, lines = begun(recipe)
    initial = build_model(recipe, SIZES).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, (initial if below(name, ["head"]) else old)[name]), name
    assert facts["sha256"] == hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    assert facts["path"] == str(path / "model.safetensors")
    assert lines == [
        f"weights: 36 of 40 tensors of the model are those of {path / 'model.safetensors'}",
        "  4 begin anew (head.pooler.dense.weight, head.pooler.dense.bias, head.scores.weight, head.scores.bias)",
        "  5 of the file are left over (head.tied_bias.bias, head.transform.dense.bias, head.transform.dense.weight, "
        "head.transform.norm.norm.bias, head.transform.norm.norm.weight)",
    ]


def test_everything_must_fit_where_nothing_may_be_skipped(tmp_path: Path) -> None:
    path, _ = saved_run(tmp_path / "run", BERT)
    error = refused(recipe_of(CLASSES, path=str(path), skip=[]))
    assert "fit 36 of 40 tensors: 4 missing (head.pooler.dense.weight, " in error.what
    assert "; 5 not in the model (head.tied_bias.bias, " in error.what
    model, _, lines = begun(recipe_of(BERT, path=str(path), skip=[]))
    assert lines == [f"weights: 41 of 41 tensors of the model are those of {path / 'model.safetensors'}"]
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


def test_what_is_no_part_of_the_head_is_refused_unless_it_is_named(tmp_path: Path) -> None:
    path, old = saved_run(tmp_path / "run", BERT)
    deeper = {**CLASSES, "layers": 3}
    error = refused(recipe_of(deeper, path=str(path)))
    assert "16 missing (stack.blocks.2.attention.query.weight, " in error.what
    model, _, _ = begun(recipe_of(deeper, path=str(path), skip=["head", "stack.blocks.2"]))
    assert torch.equal(
        model.state_dict()["stack.blocks.1.feed_forward.up.weight"], old["stack.blocks.1.feed_forward.up.weight"]
    )


def test_a_larger_vocabulary_is_a_mistake_that_names_both_shapes_and_leaves_the_model_alone(tmp_path: Path) -> None:
    path, _ = saved_run(tmp_path / "run", BERT)
    recipe, larger = recipe_of(CLASSES, path=str(path)), Description(vocab_size=12, max_length=8, classes=3)
    weights, model = build_weights(recipe), build_model(recipe, larger)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert weights is not None
    with pytest.raises(UserError, match=r"1 of another shape \(embedding.tokens.weight \(11, 8\) instead of \(12, 8\)"):
        start_from(weights, model, recipe)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_settings_that_shapes_do_not_show_are_told(tmp_path: Path) -> None:
    path, _ = saved_run(tmp_path / "run", BERT)
    changed = {
        **CLASSES,
        "heads": 4,
        "dropout": 0.5,
        "residual": {"name": "post"},
        "norm": {"name": "layer_norm", "eps": 0.1},
    }
    _, _, lines = begun(recipe_of(changed, path=str(path)))
    assert lines[3:] == [
        "  warning: the run had architecture.heads: 2, this is 4",
        "  warning: the run had architecture.norm.eps: 1e-05, this is 0.1",
    ]


def test_foreign_weights_are_read_in_every_file_they_come_in(tmp_path: Path) -> None:
    file = saved_bert(tmp_path / "model.safetensors")
    state = read_state(file)
    torch.save(state, tmp_path / "a.bin")
    torch.save({"model": {f"module._orig_mod.{name}": tensor for name, tensor in state.items()}}, tmp_path / "b.pth")
    first, _, _ = begun(foreign(file))
    for other in ("a.bin", "b.pth"):
        model, _, lines = begun(foreign(tmp_path / other))
        assert lines[0].startswith("weights: 41 of 41 ")
        for name, tensor in first.state_dict().items():
            assert torch.equal(model.state_dict()[name], tensor)


def test_another_number_of_classes_and_the_head_of_pretraining_are_skipped_with_the_head(tmp_path: Path) -> None:
    file = saved_bert(
        tmp_path / "model.safetensors",
        **{
            "classifier.weight": torch.zeros(9, 8),
            "classifier.bias": None,
            "cls.seq_relationship.bias": torch.zeros(2),
        },
    )
    model, _, lines = begun(foreign(file))
    assert lines[1:] == [
        "  2 begin anew (head.scores.weight, head.scores.bias)",
        "  2 of the file are left over (classifier.weight, cls.seq_relationship.bias)",
    ]
    assert model.state_dict()["head.scores.weight"].shape == (3, 8)
    assert "2 not in the model" not in refused(foreign(file, "weights.skip=[]")).what
    assert "1 not in the model (cls.seq_relationship.bias)" in refused(foreign(file, "weights.skip=[]")).what


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"encoder.layer.1.output.dense.bias": None},
            "fit 40 of 41 tensors: 1 missing (encoder.layer.1.output.dense.bias)",
        ),
        ({"extra.weight": torch.zeros(1)}, "fit 41 of 41 tensors: 1 not in the model (extra.weight)"),
        (
            {"encoder.layer.1.output.dense.bias": torch.zeros(9)},
            "1 of another shape (encoder.layer.1.output.dense.bias (9,) instead of (8,))",
        ),
    ],
)
def test_weights_that_do_not_load_are_an_error_with_counts(
    tmp_path: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    error = refused(foreign(saved_bert(tmp_path / "model.safetensors", **changes)))
    assert message in error.what
    assert error.where == str(tmp_path / "model.safetensors")


def test_a_prefix_in_front_of_every_name_is_an_error_and_never_a_random_model(tmp_path: Path) -> None:
    state = {f"foo.{name}": tensor for name, tensor in read_state(saved_bert(tmp_path / "right.safetensors")).items()}
    save_file(state, tmp_path / "wrong.safetensors")
    assert "fit 0 of 41 tensors" in refused(foreign(tmp_path / "wrong.safetensors")).what
    everything = "weights.skip=[head, embedding, stack, foo]"
    assert "fit 0 of 41 tensors: none is of use" in refused(foreign(tmp_path / "wrong.safetensors", everything)).what


def test_a_part_that_is_nowhere_cannot_be_skipped(tmp_path: Path) -> None:
    error = refused(foreign(saved_bert(tmp_path / "model.safetensors"), "weights.skip=[haed]"))
    assert error.what == "'haed' is no part of the model, and begins no name in the file; did you mean 'head'?"
    assert error.where is not None and error.where.endswith("(weights.skip)")


class Hostile:
    def __reduce__(self) -> Any:
        return print, ("code ran",)


def test_files_that_hold_code_or_nothing_of_use_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"a": Hostile()}, tmp_path / "hostile.bin")
    torch.save({"a": 1}, tmp_path / "numbers.pt")
    for name in ("damaged.safetensors", "damaged.bin", "weights.h5"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
    (tmp_path / "damaged.ckpt").write_bytes(b"nothing")
    said = {path.name: refused(foreign(path)).what for path in sorted(tmp_path.iterdir())}
    assert said["hostile.bin"] == "the weights can't be read: it holds objects, which are never loaded, or is damaged"
    assert said["numbers.pt"] == "the file holds something else than tensors by name"
    assert said["damaged.safetensors"].startswith("the weights can't be read: ")
    assert said["damaged.bin"].startswith("the weights can't be read: ")
    assert said["damaged.ckpt"].startswith("checkpoint damaged.ckpt can't be read: ")
    assert said["weights.h5"] == "weights in a .h5 file are of no kind that is known"
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"name": "bert"}, "weights.path isn't set"),
        ({"name": "bert", "path": "no.bin"}, "there is no such file"),
        ({"name": "gpt2", "path": "no.bin"}, "weights gpt2 are for gpt2, not for bert"),
        ({"path": "."}, "there is no model.safetensors, so this is no run that has ended"),
    ],
)
def test_mistakes_are_found_without_reading_anything(
    sections: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        build_weights(recipe_of(CLASSES, **sections))
    assert caught.value.what == message


def test_a_recipe_has_weights_only_if_it_says_so(tmp_path: Path) -> None:
    assert "weights" not in load_recipe("gpt2_text").tree
    assert build_weights(load_recipe("gpt2_text")) is None
    file = tmp_path / "tuned.yaml"
    file.write_text("base: gpt2_text.yaml\nweights: {path: runs/x}\n")
    Path(tmp_path / "gpt2_text.yaml").write_text(load_recipe("gpt2_text").to_yaml())
    tuned = load_recipe(file)
    assert tuned.tree["weights"] == {"name": "run", "path": str(tmp_path / "runs" / "x"), "skip": ["head"]}
    assert "weights" not in load_recipe(file, ["weights=null"]).tree
    named = load_recipe("gpt2_text", ["weights=gpt2", "weights.path=/a.bin"]).tree["weights"]
    assert (named["name"], named["path"]) == ("gpt2", "/a.bin")


def test_a_table_with_other_rows_is_resized_by_who_knows_how(tmp_path: Path) -> None:
    """The contract hands over rows of ours, whatever the layout of theirs is, and takes what comes back."""
    model = scattered(BERT)
    state = BERTWeights(BERTWeights.Config()).save(scattered({**BERT}, Description(vocab_size=11, max_length=6)))
    asked: list[tuple[str, tuple[int, ...], int]] = []

    def resize(name: str, table: Tensor, rows: int) -> Tensor | None:
        asked.append((name, tuple(table.shape), rows))
        return torch.full((rows, 8), math.pi)

    weights: Weights = BERTWeights(BERTWeights.Config())
    weights.load(model, state, resize=resize)
    assert asked == [("stack.positions.0.table.weight", (6, 8), 8)]
    assert torch.equal(model.state_dict()["stack.positions.0.table.weight"], torch.full((8, 8), math.pi))
    with pytest.raises(UserError, match="of another shape"):
        weights.load(model, state, resize=lambda name, table, rows: None)


VIT = {"name": "vit", "layers": 1, "dim": 8, "heads": 2, "embedding": {"name": "patches", "patch_size": [4, 4]}}


def images(height: int, width: int) -> Description:
    return Description(image_size=(height, width), channels=1, classes=3)


def test_positions_move_to_images_of_another_size(tmp_path: Path) -> None:
    """A square grid is known by its number of rows; another one is known from the run, and from nowhere else."""
    old = scattered(VIT, images(16, 16))
    save_file(Registry.discover().find("weights", "vit").load().part()().save(old), tmp_path / "square.safetensors")
    model, _, lines = begun(recipe_of(VIT, name="vit", path=str(tmp_path / "square.safetensors")), images(24, 8))
    table = "stack.positions.0.table.weight"
    expected = resized_positions(old.state_dict()[table], (4, 4), (6, 2), 1)
    assert torch.equal(model.state_dict()[table], expected)
    assert torch.equal(expected[0], old.state_dict()[table][0])
    assert lines[1:] == [f"  {table} was resized from 4 x 4 to 6 x 2 patches"]


def test_positions_of_a_grid_that_is_not_square_are_those_of_its_run(tmp_path: Path) -> None:
    run, old = RunFolder(tmp_path), scattered(VIT, images(8, 24))
    save_weights(run.weights, old.state_dict(), {})
    recipe = recipe_of(VIT, path=str(run.weights))
    with pytest.raises(UserError, match=r"table.weight \(13, 8\) instead of \(17, 8\)"):
        begun(recipe, images(16, 16))
    run.lock.write_text(write_text({"sizes": {"image_size": [8, 24]}}))
    values = {"data": "images", "task": "image_classification", "architecture": VIT}
    run.recipe.write_text(Recipe.from_dict(values).to_yaml())
    model, _, lines = begun(recipe, images(16, 16))
    table = "stack.positions.0.table.weight"
    assert torch.equal(model.state_dict()[table], resized_positions(old.state_dict()[table], (2, 6), (4, 4), 1))
    assert lines[1:] == [f"  {table} was resized from 2 x 6 to 4 x 4 patches"]
