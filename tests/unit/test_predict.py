"""Classes of inputs from outside, by a run that knows nothing but its own folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.builder import build_data, build_model
from zoo.cli import main
from zoo.contracts.data import Description, Draw
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.training import predict as predict_module
from zoo.training.predict import predict
from zoo.training.run import LoadedRun
from zoo_builtin.tokenizer.byte import Byte

LABELS = ["cs", "de", "fr"]
BERT = {"name": "bert", "layers": 2, "dim": 8, "heads": 2, "head": {"name": "classification", "pool": "mean"}}
GPT = {"name": "gpt2", "layers": 1, "dim": 8, "heads": 2, "head": {"name": "classification", "pool": "last"}}


def scattered(model: torch.nn.Module) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    return model.eval()


def text_run(tmp_path: Path, *, classes: int = 3, architecture: dict[str, Any] = BERT) -> LoadedRun:
    """A run whose texts were in a file that is there no more."""
    data = {"name": "labelled_text", "source": "files", "files": [str(tmp_path / "gone.csv")], "batch_size": 2}
    values = {"data": data, "task": "text_classification", "architecture": architecture}
    recipe = Recipe.from_dict(values)
    model = scattered(build_model(recipe, Description(vocab_size=257, max_length=64, classes=classes)))
    return LoadedRun(tmp_path / "run", recipe, model, Byte(Byte.Config()), 7, LABELS)


def digit_run(tmp_path: Path) -> tuple[LoadedRun, dict[str, torch.Tensor]]:
    """A run on digits, and two of these that it was trained on."""
    architecture = {
        "name": "vit",
        "layers": 1,
        "dim": 8,
        "heads": 2,
        "embedding": {"name": "patches", "patch_size": [4, 4]},
    }
    recipe = Recipe.from_dict({"data": "images", "task": "image_classification", "architecture": architecture})
    data = build_data(recipe, tmp_path / "cache")
    data.prepare()
    model, labels = scattered(build_model(recipe, data.describe())), list(data.labels() or [])
    run = LoadedRun(tmp_path / "run", recipe, model, None, 7, labels, json.loads(json.dumps(data.state())))
    return run, data.batch(Draw(np.arange(2), np.zeros(2, np.int64), 0), "train")


def test_texts_get_every_class_with_probabilities_that_sum_to_one(tmp_path: Path) -> None:
    run = text_run(tmp_path)
    texts = ["Vereinigtes Königreich", "Pays-Bas", "Spojené království", "x"]
    found = predict(run, texts)
    assert [result["input"] for result in found] == texts
    for result in found:
        probabilities = [each["probability"] for each in result["classes"]]
        assert sorted(each["name"] for each in result["classes"]) == LABELS
        assert sum(probabilities) == pytest.approx(1, abs=1e-12)
        assert probabilities == sorted(probabilities, reverse=True)
    assert len({result["classes"][0]["probability"] for result in found}) == 4


@pytest.mark.parametrize("architecture", [BERT, GPT], ids=["bert", "gpt2"])
def test_a_text_is_predicted_as_it_would_be_alone(tmp_path: Path, architecture: dict[str, Any]) -> None:
    """float32 sums in another order: some roundings of 6e-8 of scores near 10."""
    run = text_run(tmp_path, architecture=architecture)
    texts = ["a", "a much longer text than the others are", "bc"]
    for result, text in zip(predict(run, texts), texts, strict=True):
        (alone,) = predict(run, [text])
        assert [each["name"] for each in result["classes"]] == [each["name"] for each in alone["classes"]]
        for one, other in zip(result["classes"], alone["classes"], strict=True):
            assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)


def test_a_model_with_more_classes_than_the_data_names_them_by_number(tmp_path: Path) -> None:
    (result,) = predict(text_run(tmp_path, classes=5), ["x"])
    assert {each["name"] for each in result["classes"]} == {*LABELS, "class 3", "class 4"}
    assert sum(each["probability"] for each in result["classes"]) == pytest.approx(1, abs=1e-12)


def test_image_files_are_shown_as_the_model_has_seen_its_images(tmp_path: Path) -> None:
    run, batch = digit_run(tmp_path)
    (mean,), (std,) = run.state["mean"], run.state["std"]
    files = []
    for number, image in enumerate(batch["images"]):
        pixels = ((image[0] * std + mean) * 255).round().byte().numpy()
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(pixels).save(files[-1])
    with torch.no_grad():
        expected = run.model.head(run.model(batch["images"]).hidden).double().softmax(1)
    for row, (file, result) in enumerate(zip(files, predict(run, files), strict=True)):
        assert result["input"] == str(file)
        named = {each["name"]: each["probability"] for each in result["classes"]}
        assert [named[str(digit)] for digit in range(10)] == pytest.approx(expected[row].tolist(), abs=2e-3)  # 8 bits


def test_what_is_no_input_is_refused(tmp_path: Path) -> None:
    run, _ = digit_run(tmp_path)
    (tmp_path / "text.png").write_text("no image")
    said = {}
    for name in ("missing.png", "text.png", ""):
        with pytest.raises(UserError) as caught:
            predict(run, [tmp_path / name if name else ""])
        said[name] = str(caught.value)
    assert "missing.png" in said["missing.png"] and "text.png" in said["text.png"]
    with pytest.raises(UserError, match="input 2 of 2 is empty"):
        predict(text_run(tmp_path), ["a", "  "])
    with pytest.raises(UserError, match="there is no input"):
        predict(run, [])


def test_a_run_without_classes_is_refused(tmp_path: Path) -> None:
    values = {"data": "text", "task": "causal_lm", "architecture": {"name": "gpt2", "layers": 1, "dim": 8, "heads": 2}}
    recipe = Recipe.from_dict(values)
    model = build_model(recipe, Description(vocab_size=257, max_length=64))
    run = LoadedRun(tmp_path, recipe, model, Byte(Byte.Config()), 7)
    with pytest.raises(UserError, match="the run's model has no classes: its task is causal_lm"):
        predict(run, ["x"])


def test_the_command_shows_the_likeliest_and_json_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = text_run(tmp_path)
    monkeypatch.setattr(predict_module, "load_run", lambda path: run)
    found = predict(run, ["x", "Pays-Bas"])
    assert main(["predict", "run", "x", "Pays-Bas", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main(["predict", "run", "x", "Pays-Bas", "--top", "2"]) == 0
    blocks = [
        "\n".join([each["input"], *(f"  {top['name']}  {top['probability']:.4f}" for top in each["classes"][:2])])
        for each in found
    ]
    assert capsys.readouterr().out == "\n\n".join(blocks) + "\n"
    assert main(["predict", "run", ""]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.splitlines()[0]) == ("", "error: input 1 of 1 is empty")
