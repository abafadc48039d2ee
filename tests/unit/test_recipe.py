"""Composing a recipe: names, bases, merging, defaults, origins, what is saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe_parts import MINIMAL, Adam, MultiHead, Network, Side, SmallRegistry, Window, load, refused, write
from zoo.errors import UserError
from zoo.recipe import load_recipe

# Shorthand, defaults, access


def test_every_default_is_filled_in_and_shorthand_is_written_out(tmp_path: Path) -> None:
    recipe = load(tmp_path, a=MINIMAL)
    assert recipe.name == "a" and recipe.seed == 1337
    assert recipe.tree["architecture"] == {
        "name": "gpt2",
        "layers": 2,
        "dim": 32,
        "dropout": 0.0,
        "vocab_size": None,
        "label": "plain",
        "side": "left",
        "sizes": [1.0],
        "extra": {"a": 1.0},
        "start": 1.0,
        "seed_of": None,
        "attention": {"name": "multi_head", "bias": True, "kv_heads": None, "scale": None, "kernel": "auto"},
        "position": {"name": "rotary", "theta": 10000.0, "sides": [1, 2]},
    }
    assert recipe.tree["optimizer"] == {"name": "adamw", "lr": 1e-3, "weight_decay": 0.1}
    assert recipe.tree["data"]["tokenizer"] == {"name": "byte"}
    assert recipe.trainer["max_steps"] == 1000 and recipe.trainer["strategy"] == {"name": "auto"}
    assert recipe.training.clip_norm == 1.0 and recipe.training.keep == 2
    assert recipe.loggers == ["csv"]


def test_configs_are_the_components_own_typed_ones(tmp_path: Path) -> None:
    recipe = load(tmp_path, "architecture.side=right", "optimizer.lr=1e-4", a=MINIMAL)
    config = recipe.config("architecture")
    assert isinstance(config, Network.Config) and (config.layers, config.side) == (2, Side.right)
    assert recipe.config("optimizer") == Adam.Config(lr=0.0001)
    assert recipe.config("architecture.position").sides == (1, 2)
    assert recipe.component("architecture.attention").name == "multi_head"


def test_a_list_is_one_part_for_each_entry(tmp_path: Path) -> None:
    recipe = load(tmp_path, "architecture.attention=[multi_head, {name: window, window: 7}]", a=MINIMAL)
    assert [(part.name, config) for part, config in recipe.parts("architecture.attention")] == [
        ("multi_head", MultiHead.Config()),
        ("window", Window.Config(window=7)),
    ]
    assert recipe.places("architecture.attention") == ["architecture.attention.0", "architecture.attention.1"]
    assert recipe.config("architecture.attention.1") == Window.Config(window=7)
    with pytest.raises(ValueError, match="holds 2 components"):
        recipe.config("architecture.attention")


def test_an_override_reaches_an_item_of_a_list(tmp_path: Path) -> None:
    start = MINIMAL.replace("dim: 32", "attention: [multi_head, {name: window, window: 7}]")
    recipe = load(tmp_path, "architecture.attention.1.window=9", "architecture.attention.0=grouped_query", a=start)
    assert [part.name for part, _ in recipe.parts("architecture.attention")] == ["grouped_query", "window"]
    assert recipe.config("architecture.attention.1").window == 9
    message = refused(tmp_path, "architecture.attention.2.window=9", a=start)
    assert "architecture.attention is a list of 2" in message and "override 1" in message


def test_a_list_where_one_part_belongs_is_refused(tmp_path: Path) -> None:
    assert "architecture.position takes one position, not a list" in refused(
        tmp_path, "architecture.position=[none, rotary]", a=MINIMAL
    )
    assert "architecture.attention is an empty list" in refused(tmp_path, "architecture.attention=[]", a=MINIMAL)


def test_groups_of_knobs_and_slots_inside_them(tmp_path: Path) -> None:
    start = "data: text\ntask: causal_lm\narchitecture: {name: pair, encoder: {layers: 3}}\n"
    recipe = load(tmp_path, a=start)
    assert recipe.tree["architecture"] == {
        "name": "pair",
        "layers": 6,
        "encoder": {"layers": 3, "rate": 0.25, "attention": None},
        "attention": {"name": "multi_head", "bias": True, "kv_heads": None, "scale": None, "kernel": "auto"},
    }
    config = recipe.config("architecture")
    assert (config.encoder.layers, config.encoder.rate) == (3, 0.25)
    assert recipe.parts("architecture.encoder.attention") == []
    other = load(tmp_path, "architecture.encoder.attention={name: window, window: 2}", a=start)
    assert other.config("architecture.encoder.attention") == Window.Config(window=2)
    assert "architecture.encoder.layer is no key of architecture pair; did you mean 'layers'?" in refused(
        tmp_path, "architecture.encoder.layer=2", a=start
    )


# Bases and merging


def test_a_chain_of_bases_the_later_wins(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        top="base: mid\nseed: 3\n",
        mid="base: _base/low.yaml\narchitecture: {dim: 64}\nseed: 2\n",
        _base__low=MINIMAL + "seed: 1\n",
    )
    assert (recipe.seed, recipe.tree["architecture"]["dim"], recipe.tree["architecture"]["layers"]) == (3, 64, 2)
    origin = recipe.origin("architecture.dim")
    assert (origin.kind, origin.file, origin.line) == ("base", tmp_path / "mid.yaml", 2)
    assert recipe.origin("seed").kind == "recipe"


def test_several_bases_the_later_wins(tmp_path: Path) -> None:
    recipe = load(tmp_path, top="base: [one, two]\n", one=MINIMAL + "seed: 1\n", two="seed: 2\n")
    assert recipe.seed == 2


def test_lists_are_replaced(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        top="base: low\narchitecture: {sizes: [3]}\nlogger: [tensorboard]\n",
        low=MINIMAL.replace("dim: 32", "sizes: [1, 2]") + "logger: [csv]\n",
    )
    assert recipe.tree["architecture"]["sizes"] == [3.0]
    assert recipe.tree["logger"] == ["tensorboard"] and recipe.loggers == ["csv", "tensorboard"]


def test_another_name_replaces_the_section_so_that_nothing_leaks(tmp_path: Path) -> None:
    low = MINIMAL.replace("dim: 32", "attention: {name: multi_head, bias: false, kernel: eager}")
    for override in ("architecture.attention=grouped_query", "architecture.attention.name=grouped_query"):
        assert load(tmp_path, override, a=low).tree["architecture"]["attention"] == {
            "name": "grouped_query",
            "kv_heads": 1,
            "bias": True,
        }
    recipe = load(tmp_path, top="base: a\narchitecture: {attention: {name: grouped_query, kv_heads: 2}}\n", a=low)
    assert recipe.tree["architecture"]["attention"] == {"name": "grouped_query", "kv_heads": 2, "bias": True}


def test_the_same_name_or_none_merges(tmp_path: Path) -> None:
    low = MINIMAL.replace("dim: 32", "attention: {name: multi_head, bias: false}")
    for override in ("architecture.attention=multi_head", "architecture.attention.kernel=auto"):
        assert load(tmp_path, override, a=low).config("architecture.attention").bias is False
    recipe = load(tmp_path, top="base: a\narchitecture: {name: gpt2, dim: 8}\n", a=low)
    assert (recipe.config("architecture").dim, recipe.config("architecture").layers) == (8, 2)


def test_knobs_without_a_name_belong_to_the_default_component(tmp_path: Path) -> None:
    low = MINIMAL.replace("dim: 32", "attention: {bias: false}")
    assert load(tmp_path, "architecture.attention=multi_head", a=low).config("architecture.attention").bias is False
    assert load(tmp_path, "architecture.attention=grouped_query", a=low).config("architecture.attention").bias is True


def test_knobs_go_below_a_name_given_as_a_string(tmp_path: Path) -> None:
    low = MINIMAL.replace("dim: 32", "attention: grouped_query")
    assert load(tmp_path, "architecture.attention.kv_heads=4", a=low).config("architecture.attention").kv_heads == 4


def test_overrides_apply_from_left_to_right(tmp_path: Path) -> None:
    knob_last = load(tmp_path, "architecture.attention=grouped_query", "architecture.attention.kv_heads=4", a=MINIMAL)
    assert knob_last.config("architecture.attention").kv_heads == 4
    name_last = load(tmp_path, "architecture.attention.kv_heads=4", "architecture.attention=grouped_query", a=MINIMAL)
    assert name_last.config("architecture.attention").kv_heads == 1
    assert load(tmp_path, "seed=1", "seed=2", a=MINIMAL).seed == 2


def test_mapping_knobs_merge_with_their_default(tmp_path: Path) -> None:
    assert load(tmp_path, "architecture.extra={b: 2}", a=MINIMAL).config("architecture").extra == {"a": 1.0, "b": 2.0}


def test_an_empty_section_says_nothing(tmp_path: Path) -> None:
    recipe = load(tmp_path, top="base: a\ntraining:\n  # compile: true\ndata:\n", a=MINIMAL)
    assert recipe.training.compile is False and recipe.tree["data"]["length"] == 64


def test_a_circle_of_bases_names_the_files(tmp_path: Path) -> None:
    message = refused(tmp_path, a="base: b\n", b="base: a\n")
    assert "a.yaml -> " in message and "b.yaml -> " in message and "circle" in message


def test_a_missing_base_names_the_absolute_path(tmp_path: Path) -> None:
    message = refused(tmp_path, a="base: ../nowhere/b.yaml\n")
    assert str(tmp_path.parent / "nowhere" / "b.yaml") in message and "a.yaml:1" in message


# Finding recipes


def test_recipes_and_presets_are_found_by_name_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "recipes", tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(folder, gpt2_text=MINIMAL, preset__gpt2_medium="architecture: {name: gpt2, layers: 24}\n", compare__x=MINIMAL)
    write(folder, top="base: [gpt2_text, preset/gpt2_medium]\n")
    monkeypatch.chdir(elsewhere)
    registry = SmallRegistry(folder)
    assert load_recipe("gpt2_text", registry=registry).name == "gpt2_text"
    assert load_recipe("compare/x", registry=registry).name == "x"
    assert load_recipe("gpt2_text.yaml", registry=registry).name == "gpt2_text"
    for name in ("preset/gpt2_medium", "gpt2_medium"):
        assert load_recipe(name, registry=registry).config("architecture").layers == 24
    assert load_recipe("top", registry=registry).tree["architecture"]["layers"] == 24
    with pytest.raises(UserError) as error:
        load_recipe("gpt2_txt", registry=registry)
    message = str(error.value)
    assert "did you mean 'gpt2_text'" in message and "preset/gpt2_medium" in message
    assert str(elsewhere / "gpt2_txt") in message


def test_a_name_in_two_folders_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "one", same=MINIMAL)
    write(tmp_path / "two", same=MINIMAL)
    with pytest.raises(UserError, match=r"names several recipes.*one.*two"):
        load_recipe("same", registry=SmallRegistry(tmp_path / "one", tmp_path / "two"))


def test_a_preset_alone_needs_no_data_but_says_so_when_asked(tmp_path: Path) -> None:
    write(tmp_path, preset__small="architecture: gpt2\ndata: {tokenizer: bpe}\n")
    recipe = load_recipe("small", registry=SmallRegistry(tmp_path))
    assert recipe.component("architecture").name == "gpt2"
    with pytest.raises(UserError, match=r"recipe small names no data"):
        recipe.component("data")
    whole = load_recipe("small", ["data=text", "task=causal_lm"], registry=SmallRegistry(tmp_path))
    assert whole.tree["data"]["tokenizer"] == {"name": "bpe", "vocab_size": 512}


def test_a_whole_recipe_needs_data_architecture_and_task(tmp_path: Path) -> None:
    message = refused(tmp_path, a="seed: 1\n")
    assert "3 mistakes" in message
    assert all(f"the recipe has no {key}" in message for key in ("data", "architecture", "task"))


def test_a_run_folder_is_a_recipe(tmp_path: Path) -> None:
    first = load(tmp_path, "architecture.dim=16", a=MINIMAL)
    run = tmp_path / "runs" / "a-1"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text(first.to_yaml(), encoding="utf-8")
    again = load_recipe(run, registry=SmallRegistry())
    assert again.name == "a-1" and again.tree == first.tree


def test_a_folder_without_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no recipe"):
        load_recipe(tmp_path, registry=SmallRegistry())


# Paths


def test_paths_start_at_the_file_that_says_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path, recipes__a="base: ../base/b.yaml\n", base__b=MINIMAL.replace("length: 64", "files: [../data/t.txt]")
    )
    (tmp_path / "link.yaml").symlink_to(tmp_path / "recipes" / "a.yaml")
    expected = [str(tmp_path / "data" / "t.txt")]
    for folder in ("/", str(tmp_path / "recipes"), str(tmp_path)):
        monkeypatch.chdir(folder)
        for name in ("recipes/a.yaml", "link.yaml"):
            recipe = load_recipe(tmp_path / name, registry=SmallRegistry())
            assert recipe.tree["data"]["files"] == expected
            assert recipe.config("data").files == [Path(expected[0])]


def test_paths_in_overrides_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = load(tmp_path / "deep", "data.files=[t.txt]", "data.cache=./c", a=MINIMAL)
    assert recipe.config("data").files == [tmp_path / "t.txt"] and recipe.config("data").cache == tmp_path / "c"


def test_paths_out_of_the_environment_are_saved_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_TEST_FOLDER", "corpus")
    recipe = load(tmp_path / "r", a=MINIMAL.replace("length: 64", "cache: '${oc.env:ZOO_TEST_FOLDER}/t'"))
    assert recipe.config("data").cache == tmp_path / "r" / "corpus" / "t"
    assert f"cache: {tmp_path}/r/${{oc.env:ZOO_TEST_FOLDER}}/t" in recipe.to_yaml()


def test_a_reference_to_a_path_means_the_same_file(tmp_path: Path) -> None:
    recipe = load(
        tmp_path / "r",
        "data.cache=${data.files.0}",
        a="base: ../b/b.yaml\n",
        **{"..__b__b": MINIMAL.replace("length: 64", "files: [t.txt]")},
    )
    assert recipe.config("data").cache == tmp_path / "b" / "t.txt"
