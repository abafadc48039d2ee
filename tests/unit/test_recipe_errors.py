"""What is wrong in a recipe is said before anything happens: one message, with file, line, key path and advice."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import get_args

import pytest

from recipe_parts import MINIMAL, SmallRegistry
from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.recipe.trainer import OWNED, arguments
from zoo.recipe.training import TrainingConfig


def load(folder: Path, text: str, *overrides: str) -> Recipe:
    (folder / "a.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
    return load_recipe(folder / "a.yaml", overrides, registry=SmallRegistry(folder))


def refused(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(UserError) as error:
        load(folder, text, *overrides)
    assert sorted(file.name for file in folder.iterdir()) == ["a.yaml"]
    return str(error.value)


# Unknown keys (R1)


@pytest.mark.parametrize(
    ("extra", "overrides", "words"),
    [
        ("optimizer: {lrr: 1e-3}\n", (), ("optimizer.lrr is no key of optimizer adamw", "'lr'", "a.yaml:4")),
        ("", ("trainer.max_step=5",), ("trainer.max_step is no argument", "'max_steps'", "override 1")),
        ("modle: {}\n", (), ("modle is no key of a recipe", "a.yaml:4", "architecture")),
        ("modle:\n", (), ("modle is no key of a recipe", "a.yaml:4")),
        ("", ("architecture.attention={name: grouped_query, n_kvheads: 2}",), ("n_kvheads", "'kv_heads'")),
        ("", ("data.tokenizer.size=3",), ("data.tokenizer.size is no key of tokenizer byte", "has no keys")),
        ("training: {clip: 2}\n", (), ("training.clip is no key of training", "clip_norm", "a.yaml:4")),
    ],
)  # fmt: skip
def test_a_misspelt_key_is_refused(
    tmp_path: Path, extra: str, overrides: tuple[str, ...], words: tuple[str, ...]
) -> None:
    message = refused(tmp_path, MINIMAL + extra, *overrides)
    assert all(word in message for word in words), message


def test_an_unknown_component_is_refused_with_its_place(tmp_path: Path) -> None:
    message = refused(tmp_path, MINIMAL, "architecture.attention=grouped_qery")
    assert "did you mean 'grouped_query'?" in message
    assert "override 1: architecture.attention=grouped_qery (architecture.attention.name)" in message


def test_independent_mistakes_are_told_together(tmp_path: Path) -> None:
    message = refused(
        tmp_path,
        """\
        data: {name: text, lenght: 64}
        architecture: {name: gpt2, layers: two, attention: nothing}
        task: causal_lm
        modle: 3
        trainer: {gradient_clip_val: 1, max_steps: 0}
        """,
    )
    assert "recipe a has 6 mistakes" in message
    assert all(f"a.yaml:{line}" in message for line in (1, 2, 4, 5))


# Types


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("architecture.layers=two", ("expects a whole number, got the text 'two'",)),
        ("architecture.layers=2.5", ("expects a whole number, got the number 2.5",)),
        ("architecture.layers=1e1", ("expects a whole number", "write 10")),
        ("architecture.layers='3'", ("expects a whole number, got the text '3'", "without quotes: 3")),
        ("architecture.layers=true", ("expects a whole number, got true",)),
        ("architecture.layers=null", ("expects a whole number, got null",)),
        ("architecture.layers=[1]", ("expects a whole number, got a list of 1",)),
        ("architecture.layers={a: 1}", ("expects a whole number, got a mapping of a",)),
        ("architecture.dropout=big", ("expects a number, got the text 'big'",)),
        ("architecture.dropout=inf", ("expects a number, got the text 'inf'",)),
        ("architecture.label=off", ("expects text, got false", 'quote it: "off"')),
        ("architecture.label=no", ("expects text, got false", 'quote it: "no"')),
        ("architecture.label=1.10", ("expects text, got the number 1.1", 'quote it: "1.10"')),
        ("architecture.label=8", ('quote it: "8"',)),
        ("architecture.label=010", ("a recipe doesn't guess", 'quote it if it is text: "010"')),
        ("architecture.side=up", ("one of 'left', 'right'", "choose one of left, right")),
        ("architecture.side=1", ("one of 'left', 'right'",)),
        ("architecture.sizes=3", ("expects a list, each item a number", "write it as a list: [3]")),
        ("architecture.sizes=[1, x]", ("architecture.sizes.1 expects a number, got the text 'x'",)),
        ("architecture.extra={b: x}", ("architecture.extra.b expects a number",)),
        ("architecture.extra=[1]", ("expects a mapping, got a list of 1",)),
        ("architecture.start=[1]", ("expects text or a number, got a list of 1",)),
        ("architecture.attention.kernel=egaer", ("one of 'auto', 'eager', 'sdpa'", "did you mean 'eager'")),
        ("architecture.attention.kv_heads=x", ("expects a whole number or null",)),
        ("architecture.position.sides=[1, 2, 3]", ("expects a list of 2: a whole number, a whole number",)),
        ("data.files=t.txt", ("expects a list, each item a path", "[t.txt]")),
        ("data.files=[1]", ("data.files.0 expects a path", 'quote it: "1"')),
        ("architecture.position=off", ("must be text, the name of one position", 'quote it: "off"')),
        ("architecture.position={name: 3}", ("must be text, the name of one position", 'quote it: "3"')),
        ("architecture.position={name: [a]}", ("must be text, the name of one position",)),
        ("architecture=[gpt2]", ("architecture takes one architecture, not a list",)),
        ("training.compile=maybe", ("expects true or false, got the text 'maybe'",)),
        ("training.compile='no'", ("expects true or false, got the text 'no'", "without quotes")),
        ("training.on_nonfinite=skip", ("one of 'stop'", "choose one of stop")),
        ("training.keep=0", ("keep is 0; it must be at least 1", "override 1: training.keep=0 (training.keep)")),
        ("training=3", ("training takes a mapping",)),
        ("architecture=null", ("architecture.name must be text, the name of one architecture",)),
        ("plugins=null", ("plugins takes a list",)),
        ("logger=null", ("logger expects a list",)),
        ("seed=x", ("seed expects a whole number",)),
        ("seed=-1", ("seed is -1; it must be from 0 to 4294967295",)),
        ("seed=null", ("seed expects a whole number, got null",)),
        ("logger=wandb", ("logger expects a list, each item one of 'csv', 'tensorboard'",)),
        ("logger=csv", ("write it as a list: [csv]",)),
        ("logger=[wandb]", ("logger.0 expects one of 'csv', 'tensorboard'",)),
        ("architecture.layers=0", ("layers is 0; it must be at least 1", "(architecture.layers)")),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused(tmp_path: Path, override: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, MINIMAL, override)
    assert "override 1" in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        ("optimizer.lr=1e-4", "optimizer", ("lr", 0.0001)),
        ("optimizer.lr=1", "optimizer", ("lr", 1.0)),
        ("optimizer.lr=.5", "optimizer", ("lr", 0.5)),
        ("architecture.layers=1_000", "architecture", ("layers", 1000)),
        ("architecture.label='off'", "architecture", ("label", "off")),
        ("architecture.label=2024-01-01", "architecture", ("label", "2024-01-01")),
        ("architecture.label=12:30", "architecture", ("label", "12:30")),
        ("architecture.label=maybe", "architecture", ("label", "maybe")),
        ("architecture.start=3", "architecture", ("start", 3.0)),
        ("architecture.start=x", "architecture", ("start", "x")),
        ("architecture.label=\\${x}", "architecture", ("label", "${x}")),
        ("architecture.seed_of={a: [1, no]}", "architecture", ("seed_of", {"a": [1, False]})),
        ("training.clip_norm=null", "training", ("clip_norm", None)),
        ("architecture.attention.scale=2", "architecture.attention", ("scale", 2.0)),
    ],
)
def test_a_value_is_what_it_looks_like(tmp_path: Path, override: str, place: str, value: tuple[str, object]) -> None:
    config = load(tmp_path, MINIMAL, override).config(place)
    found = getattr(config, value[0])
    assert found == value[1] and type(found) is type(value[1])


# YAML (R4)


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    message = refused(tmp_path, MINIMAL + "architecture: {name: gpt2}\n")
    assert "'architecture' stands twice, in lines 2 and 4" in message and "a.yaml:4" in message
    assert "lines 2 and 3" in refused(tmp_path, "architecture:\n  layers: 1\n  layers: 2\n")


def test_an_anchor_can_be_merged_and_overridden(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        """\
        data: text
        task: causal_lm
        architecture:
          name: gpt2
          attention:
            - &one {name: grouped_query, kv_heads: 2, bias: false}
            - {<<: *one, kv_heads: 4}
            - {<<: [{kv_heads: 8}, *one]}
        """,
    )
    configs = [config for _, config in recipe.parts("architecture.attention")]
    assert [(config.kv_heads, config.bias) for config in configs] == [(2, False), (4, False), (8, False)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("the recipe is empty", "a.yaml:1")),
        ("# nothing\n", ("the recipe is empty",)),
        ("- a\n- b\n", ("a recipe is a mapping", "a.yaml:1")),
        ("just words\n", ("a recipe is a mapping",)),
        ("data:\n\tname: text\n", ("isn't YAML", "a.yaml:2", "tabs")),
        ("data: [1\n", ("isn't YAML", "a.yaml:2")),
        ("a: 1\n---\nb: 2\n", ("isn't YAML", "single document")),
        ("no: 3\n", ("reads the key 'no' as false", 'quote it: "no"', "a.yaml:1")),
        ("seed: 1\n12: 3\n", ("reads the key '12' as the number 12", "a.yaml:2")),
        ("[a]: 3\n", ("a key must be text",)),
        ("seed: !!python/object/apply:os.system [ls]\n", ("the tag", "isn't allowed", "a.yaml:1")),
        ("seed: !thing 3\n", ("the tag !thing isn't allowed",)),
        ("seed: !!binary aGk=\n", ("the tag !!binary isn't allowed",)),
        ("seed: !!int x\n", ("'x' is no int",)),
        ("seed: 2\nx: \x01\n", ("can't be in YAML", "a.yaml:2")),
        ("a: " + "[" * 101 + "]" * 101, ("nested deeper than 100",)),
        ("a: " + "{a: " * 50_000, ("nested deeper than 100",)),
        ("a: &a [*a]\n", ("100 levels",)),
        ("a: *nothing\n", ("isn't YAML", "undefined alias")),
        ("data: {<<: 3}\n", ("`<<` takes a mapping",)),
        ("base: 3\n", ("`base` takes the path or name", "a.yaml:1")),
        ("plugins: x.py\n", ("plugins takes a list", "a.yaml:1")),
        ("plugins: ['${x}']\n", ("plugins takes paths",)),
        ("plugins: [nowhere.py]\n", ("nowhere.py doesn't exist", "a.yaml:1 (plugins)")),
    ],
)  # fmt: skip
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, text)
    assert all(word in message for word in words), message


def test_aliases_that_blow_up_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "more than 100,000 values" in refused(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"seed: 1\nx: caf\xe9\n", ("isn't UTF-8", "byte 14 is 0xe9", "a.yaml:2")),
        (b"\x89PNG\r\n\x1a\n\x00\x00", ("isn't UTF-8",)),
        (b"\x00\x01\x02", ("can't be in YAML",)),
        (b"#" * 1_000_001, ("more than 1,000,000 bytes",)),
    ],
)
def test_a_binary_file_is_refused(tmp_path: Path, data: bytes, words: tuple[str, ...]) -> None:
    (tmp_path / "a.yaml").write_bytes(data)
    with pytest.raises(UserError) as error:
        load_recipe(tmp_path / "a.yaml", registry=SmallRegistry())
    assert all(word in str(error.value) for word in words), error.value


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_recipe(tmp_path / "a.yaml", registry=SmallRegistry()).config("architecture").layers == 2


# Missing values and interpolations (R5)


def test_all_missing_values_and_dead_interpolations_are_told_at_once(tmp_path: Path) -> None:
    message = refused(
        tmp_path,
        """\
        data: {name: needy}
        architecture:
          layers: ???
          name: gpt2
          label: ${nope.y}
        task: causal_lm
        """,
    )
    assert "recipe a has 4 mistakes" in message
    for path, example in (("data.path", "a path"), ("data.rows", "a whole number"), ("architecture.layers", "a whole")):
        assert f"{path} isn't set ({example}" in message and f"override {path}=VALUE" in message
    assert "architecture.label: ${nope.y} can't be resolved: Interpolation key 'nope.y' not found" in message
    assert "default of data needy (data.rows)" in message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("architecture.label=${oc.env:ZOO_TEST_UNSET}", ("ZOO_TEST_UNSET", "set the environment variable")),
        ("architecture.label=${architecture.label}", ("can't be resolved",)),
        ("architecture.label=${", ("isn't a valid interpolation", "override 1")),
        ("architecture.label=${unknown:3}", ("Unsupported interpolation type unknown",)),
        ("architecture.layers=${data.source}", ("expects a whole number, ${data.source} leads to something else",)),
        ("architecture.position=${nope}", ("architecture.position can't be resolved",)),
        ("architecture.position={name: '${nope}'}", ("architecture.position.name can't be resolved",)),
        ("architecture.position=${data.length}", ("architecture.position.name must be text",)),
        ("architecture.position={name: '${data.length}'}", ("architecture.position.name must be text",)),
        ("architecture.position=???", ("architecture.position.name isn't set", "override architecture.position=NAME")),
        ("data.name=???", ("data.name isn't set", "override data=NAME")),
    ],
)  # fmt: skip
def test_an_interpolation_that_leads_nowhere_is_refused(tmp_path: Path, override: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, MINIMAL, override)
    assert all(word in message for word in words), message
    assert "mistakes" not in message


def test_interpolations_lead_to_values_and_defaults(tmp_path: Path) -> None:
    recipe = load(tmp_path, MINIMAL, "data.length=${architecture.dim}", "architecture.dropout=${optimizer.lr}")
    assert recipe.config("data").length == 32 and recipe.config("architecture").dropout == 0.001


# Overrides


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("architecture.dim", ("an override needs a value", "write architecture.dim=VALUE")),
        ("=3", ("isn't a key path",)),
        ("a..b=3", ("isn't a key path",)),
        ("architecture.label=#fff", ("as a comment", "quote it")),
        ("architecture.label=@x", ("isn't YAML", "override 1: architecture.label=@x")),
        ("architecture.label=[", ("isn't YAML", "override 1")),
        ("base=other", ("a base can't be set by an override",)),
        ("architecture.attention.0=multi_head", ("architecture.attention.0 is no key",)),
    ],
)
def test_an_override_that_is_none_is_refused(tmp_path: Path, override: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, MINIMAL, override)
    assert all(word in message for word in words), message


def test_the_second_override_is_called_so(tmp_path: Path) -> None:
    assert "override 2: architecture.dim=x" in refused(tmp_path, MINIMAL, "seed=1", "architecture.dim=x")


# The trainer section


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("trainer.gradient_clip_val=1", ("use training.clip_norm",)),
        ("trainer.accumulate_grad_batches=2", ("use training.micro_batch_size",)),
        ("trainer.val_check_interval=5", ("use training.validate_every",)),
        ("trainer.max_epochs=5", ("use trainer.max_steps",)),
        ("trainer.callbacks=[]", ("zoo_callbacks",)),
        ("trainer.max_steps=0", ("trainer.max_steps is 0", "at least 1")),
        ("trainer.max_steps=-1", ("trainer.max_steps is -1",)),
        ("trainer.max_steps=many", ("trainer.max_steps expects a whole number",)),
        ("trainer.precision=float8", ("'bf16-mixed'", "expects one of")),
        ("trainer.detect_anomaly=1", ("expects true or false",)),
        ("trainer.strategy=fsdp", ("'fsdp' is no strategy", "use fsdp2")),
        ("trainer.strategy=dpp", ("did you mean 'ddp'",)),
        ("trainer.strategy={name: fsdp2, date: 4}", ("trainer.strategy.date is no option of fsdp2", "data, tensor")),
        ("trainer.strategy={name: ddp, data: 4}", ("no option of ddp", "write strategy: ddp")),
        ("trainer.strategy={name: fsdp2, data: 0}", ("trainer.strategy.data is 0", "at least 1")),
        ("trainer.strategy={data: 2}", ("no option of auto",)),
        ("trainer=5", ("trainer takes a mapping",)),
    ],
)  # fmt: skip
def test_a_trainer_argument_that_cannot_work_is_refused(tmp_path: Path, override: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, MINIMAL, override)
    assert all(word in message for word in words), message


def test_trainer_arguments_pass_as_lightning_takes_them(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        MINIMAL,
        "trainer.devices=[0, 1]",
        "trainer.precision=bf16-mixed",
        "trainer.max_time=00:12:00:00",
        "trainer.profiler=simple",
        "trainer.strategy={name: fsdp2, data: 4, tensor: 2}",
    )
    assert recipe.trainer == {
        "max_steps": 1000,
        "accelerator": "auto",
        "devices": [0, 1],
        "num_nodes": 1,
        "precision": "bf16-mixed",
        "strategy": {"name": "fsdp2", "data": 4, "tensor": 2},
        "max_time": "00:12:00:00",
        "profiler": "simple",
    }
    assert load(tmp_path, MINIMAL, "trainer.strategy={name: fsdp2, data: 4}", "trainer.strategy=ddp").trainer[
        "strategy"
    ] == {"name": "ddp"}


@pytest.mark.slow
def test_the_trainer_arguments_are_those_of_the_installed_lightning() -> None:
    from lightning.fabric.connector import _PRECISION_INPUT_INT, _PRECISION_INPUT_STR, _PRECISION_INPUT_STR_ALIAS
    from lightning.pytorch import Trainer

    names = set(inspect.signature(Trainer.__init__).parameters) - {"self"}
    assert set(arguments()) == names and set(OWNED) < names
    precisions = {
        *get_args(_PRECISION_INPUT_INT),
        *get_args(_PRECISION_INPUT_STR),
        *get_args(_PRECISION_INPUT_STR_ALIAS),
    }
    allowed = {value for literal in get_args(arguments()["precision"]) for value in get_args(literal)}
    assert allowed == precisions


@pytest.mark.parametrize(
    ("knob", "value"),
    [("clip_norm", 0.0), ("clip_norm", float("nan")), ("micro_batch_size", 0), ("workers", -1), ("log_every", 0)],
)
def test_training_refuses_values_out_of_range(knob: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{knob} is "):
        TrainingConfig(**{knob: value})
