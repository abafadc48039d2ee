"""The ``compare`` block of a recipe: what it makes of each cell, and what is wrong in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe_parts import MINIMAL, SmallRegistry, write
from zoo.errors import UserError
from zoo.recipe import Comparison, load_comparison, load_recipe
from zoo.recipe.compare_terms import Match

VARIANTS = """\
base: small.yaml
compare:
  variants:
    plain: {}
    grouped: {architecture.attention: {name: grouped_query, kv_heads: 2}, optimizer.lr: 1e-2}
"""


def compared(folder: Path, text: str, *overrides: str, **files: str) -> Comparison:
    write(folder, small=MINIMAL, **files)
    return load_comparison(write(folder, both=text), overrides, registry=SmallRegistry(folder))


def refused(folder: Path, text: str, *overrides: str, **files: str) -> str:
    with pytest.raises(UserError) as error:
        compared(folder, text, *overrides, **files)
    return str(error.value)


# What a cell is made of


def test_a_variant_sets_its_key_paths_and_nothing_else(tmp_path: Path) -> None:
    made = compared(tmp_path, VARIANTS)
    assert (list(made.variants), list(made.tasks), made.baseline) == (["plain", "grouped"], ["both"], "plain")
    plain, grouped = (made.recipe(variant, "both", 7) for variant in made.variants)
    changes = {change.path: (change.old, change.new) for change in plain.diff(grouped)}
    assert changes["architecture.attention.name"] == ("multi_head", "grouped_query")
    assert changes["architecture.attention.kv_heads"] == (None, 2)
    assert changes["optimizer.lr"] == (1e-3, 1e-2)
    assert {path.rpartition(".")[0] for path in changes} == {"architecture.attention", "optimizer"}
    assert plain.seed == grouped.seed == 7
    assert plain.tree["data"]["length"] == 64


def test_layers_lie_base_task_own_keys_variant_overrides_seed(tmp_path: Path) -> None:
    task = "architecture: {layers: 20, dim: 20, dropout: 0.2, label: task}\ndata: {length: 20}\nseed: 20\n"
    text = """\
        base: small.yaml
        architecture: {dim: 30, dropout: 0.3}
        compare:
          variants: {a: {architecture.dropout: 0.4, architecture.label: variant}, b: {}}
          tasks: [longer]
    """
    made = compared(tmp_path, text, "architecture.label=said", "seed=9", longer=task)
    tree = made.recipe("a", "longer", 5).tree
    network = tree["architecture"]
    assert (tree["data"]["length"], network["layers"], network["dim"]) == (20, 20, 30)
    assert (network["dropout"], network["label"], tree["seed"]) == (0.4, "said", 5)
    assert made.recipe("b", "longer", 5).tree["architecture"]["dropout"] == 0.3
    assert list(made.seeds) == [9, 10, 11]


def test_keys_of_a_base_that_compares_lie_over_the_task(tmp_path: Path) -> None:
    task = "base: small.yaml\narchitecture: {dim: 20, dropout: 0.2, label: task}\n"
    common = "base: low.yaml\narchitecture: {dim: 30}\ncompare: {variants: {a: {}, b: {}}, tasks: [longer]}\n"
    low = "architecture: {dim: 10, layers: 9}\noptimizer: {lr: 0.5}\n"
    made = compared(tmp_path, "base: common.yaml\narchitecture: {dropout: 0.3}\n", longer=task, common=common, low=low)
    tree = made.recipe("a", "longer", 1).tree
    network = tree["architecture"]
    assert (network["dim"], network["dropout"], network["label"], network["layers"]) == (30, 0.3, "task", 2)
    assert tree["optimizer"]["lr"] == 0.5


def test_a_value_of_a_variant_has_its_place(tmp_path: Path) -> None:
    made = compared(tmp_path, VARIANTS.replace("kv_heads", "kv_haeds"))
    with pytest.raises(UserError, match=r"did you mean 'kv_heads'(.|\n)*both\.yaml:5 \(architecture"):
        made.recipe("grouped", "both", 1)


def test_vary_makes_every_choice_of_one_value_each(tmp_path: Path) -> None:
    text = """\
        base: small.yaml
        compare:
          vary:
            architecture.attention: [multi_head, {name: grouped_query, kv_heads: 2}]
            architecture.layers: [1, 2]
    """
    made = compared(tmp_path, text)
    assert list(made.variants) == [
        "multi_head+layers=1",
        "multi_head+layers=2",
        "grouped_query+layers=1",
        "grouped_query+layers=2",
    ]
    tree = made.recipe("grouped_query+layers=1", "both", 1).tree
    assert tree["architecture"]["attention"]["kv_heads"] == 2
    assert tree["architecture"]["layers"] == 1


def test_values_of_one_name_are_told_apart_by_their_knobs(tmp_path: Path) -> None:
    axis = "architecture.position: [none, {name: rotary, theta: 500.0}, rotary, null]"
    made = compared(tmp_path, f"base: small.yaml\ncompare: {{vary: {{{axis}}}}}\n")
    assert list(made.variants) == ["none", "rotary(theta=500.0)", "rotary", "position=null"]


def test_a_block_of_a_base_is_merged_and_changed_by_overrides(tmp_path: Path) -> None:
    text = "base: both2.yaml\ncompare: {variants: {third: {architecture.layers: 3}}, seeds: [4, 2]}\n"
    override = "compare.variants.third={architecture.layers: 5}"
    made = compared(tmp_path, text, override, "compare.baseline=third", both2=VARIANTS)
    assert list(made.variants) == ["plain", "grouped", "third"]
    assert (list(made.seeds), made.baseline) == ([4, 2], "third")
    assert made.recipe("third", "both", 2).tree["architecture"]["layers"] == 5


@pytest.mark.parametrize(
    ("seeds", "expected"), [("", [1337, 1338, 1339]), ("seeds: 2", [1337, 1338]), ("seeds: [8, 1]", [8, 1])]
)
def test_seeds_are_listed_or_counted_up_from_the_recipe(tmp_path: Path, seeds: str, expected: list[int]) -> None:
    assert list(compared(tmp_path, f"{VARIANTS}  {seeds}\n").seeds) == expected


def test_the_terms_are_read_with_their_defaults(tmp_path: Path) -> None:
    plain = compared(tmp_path, VARIANTS)
    assert (plain.match, plain.tune, plain.seconds, plain.equivalence) == (None, {}, None, {})
    assert (plain.executor, plain.threads, plain.verdicts) == ({"name": "local"}, 1, True)
    said = compared(
        tmp_path,
        VARIANTS + "  match: {macs: plain, tolerance: 2%}\n  tune: {optimizer.lr: [1e-3, 1e-2]}\n"
        "  budget: {seconds: 3}\n  equivalence: {both: 0.5}\n  threads: 2\n  verdicts: false\n",
    )
    assert said.match == Match("macs", "plain", 0.02)
    assert {key: [node.plain() for node in nodes] for key, nodes in said.tune.items()} == {"optimizer.lr": [1e-3, 1e-2]}
    assert (said.seconds, said.equivalence, said.threads, said.verdicts) == (3.0, {"both": 0.5}, 2, False)
    assert compared(tmp_path, VARIANTS + "  equivalence: 0.5\n").equivalence == {"both": 0.5}


def test_what_a_comparison_settles_lies_over_everything_but_the_seed(tmp_path: Path) -> None:
    comparison = compared(tmp_path, VARIANTS, "optimizer.lr=0.5")
    recipe = comparison.recipe("grouped", "both", 7, {"optimizer.lr": 0.25})
    assert (recipe.tree["optimizer"]["lr"], recipe.seed) == (0.25, 7)
    assert "settled by the comparison" in str(recipe.origin("optimizer.lr"))


# What is wrong in a block


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("  buget: 3\n", ("compare.buget is no key of compare", "both.yaml:6", "variants, vary, tasks, seeds")),
        ("  budget: 3\n", ("compare.budget expects a mapping, got the number 3", "both.yaml:6")),
        ("  budget: {minutes: 3}\n", ("compare.budget takes seconds", "write budget: {seconds: 60}")),
        ("  budget: {seconds: 0}\n", ("compare.budget takes seconds, a number above 0",)),
        ("  match: {parameters: plian}\n", ("compare.match.parameters is 'plian'", "did you mean 'plain'?")),
        ("  match: {parameters: -1}\n", ("compare.match.parameters is -1", "a number above 0")),
        ("  match: {paramters: 10}\n", ("compare.match takes one quantity", "did you mean 'parameters'?")),
        ("  match: {parameters: 10, macs: 3}\n", ("compare.match takes one quantity",)),
        ("  match: {macs: 10, tolerance: 120%}\n", ("compare.match.tolerance is '120%'", "1% or 0.01")),
        ("  match: {macs: 10, tolerance: much}\n", ("compare.match.tolerance is 'much'",)),
        ("  tune: {optimizer.lr: []}\n", ("compare.tune[optimizer.lr] is an empty list",)),
        ("  tune: {optimizer.lr: [1e-3, 0.001]}\n", ("compare.tune[optimizer.lr] has a value twice",)),
        ("  tune: {seed: [1, 2]}\n", ("compare.tune.seed can't be set by a variant",)),
        ("  equivalence: 0\n", ("compare.equivalence is 0", "a margin above 0, in the metric's unit")),
        ("  equivalence: {smal: 1}\n", ("compare.equivalence.smal is no task", "choose one of both")),
        ("  executor: clod\n", ("clod", "both.yaml:6")),
        ("  executor: {workers: 3}\n", ("compare.executor has no name",)),
        ("  threads: 0\n", ("compare.threads is 0", "at least 1")),
        ("  verdicts: 0\n", ("compare.verdicts expects true or false",)),
        ("  sedes: 3\n", ("did you mean 'seeds'", "both.yaml:6")),
        ("  seeds: many\n", ("compare.seeds expects a whole number or a list", "the text 'many'", "both.yaml:6")),
        ("  seeds: [1, x]\n", ("compare.seeds.1 expects a whole number, got the text 'x'", "both.yaml:6")),
        ("  seeds: true\n", ("compare.seeds expects a whole number",)),
        ("  seeds: 0\n", ("compare.seeds gives no seed", "at least 1")),
        ("  seeds: []\n", ("compare.seeds gives no seed",)),
        ("  seeds: [1, 1]\n", ("has a seed twice",)),
        ("  seeds: [-1]\n", ("outside 0 to 4294967295",)),
        ("  seeds: 200000\n", ("400,000 cells; 200,000 is the most",)),
        (
            "  baseline: plian\n",
            ("'plian', which is no variant; did you mean 'plain'?", "choose one of plain, grouped"),
        ),
        ("  baseline: 3\n", ("compare.baseline expects text, got the number 3",)),
        ("  tasks: smal\n", ("compare.tasks expects a list, each item text", "write it as a list: [smal]")),
        ("  tasks: [smal]\n", ("there is no recipe 'smal'", "both.yaml:6")),
        ("  tasks: [small, ./small.yaml]\n", ("compare.tasks.1 has the name small, as another task",)),
        ("  tasks: [both]\n", ("compare.tasks.0 both is a comparison itself",)),
        ("  vary: {architecture.dim: [1, 2]}\n", ("compare.vary and compare.variants exclude each other",)),
        ("    third: {seed: 3}\n", ("third.seed can't be set by a variant", "use compare.seeds", "both.yaml:6")),
        ("    third: {base: x}\n", ("third.base can't be set by a variant",)),
        ("    third: {archtecture.dim: 3}\n", ("can't be set by a variant; did you mean 'architecture'?",)),
        ("    third: {a..b: 3}\n", ("isn't a key path", "both.yaml:6")),
        ("    third: rotary\n", ("compare.variants.third expects a mapping, got the text 'rotary'", "both.yaml:6")),
        ("    'a\\tb': {}\n".replace("'", '"'), ("has a name that can't be printed",)),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, extra: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, VARIANTS + extra)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("compare: [1]", ("compare takes a mapping", "both.yaml:2")),
        ("compare: {variants: {a: {}}}", ("compare needs at least 2 variants, this has 1",)),
        ("compare: {seeds: 3}", ("this has 0",)),
        ("compare:", ("recipe both has no `compare` block",)),
        ("seed: 3", ("recipe both has no `compare` block",)),
        ("compare: {vary: {architecture.dim: []}}", ("architecture.dim] is an empty list",)),
        ("compare: {vary: {architecture.dim: 3}}", ("expects a list, got the number 3", "write it as a list: [3]")),
        ("compare: {vary: {architecture.dim: [3, 3]}}", ("architecture.dim] has dim=3 twice",)),
        ("compare: {vary: {seed: [3, 4]}}", ("compare.vary.seed can't be set by a variant",)),
    ],
)
def test_a_block_that_compares_nothing_is_refused(tmp_path: Path, block: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, f"base: small.yaml\n{block}\n")
    assert all(word in message for word in words), message


def test_several_mistakes_are_told_together(tmp_path: Path) -> None:
    message = refused(tmp_path, VARIANTS + "  sedes: 2\n  baseline: none\n", "compare.seeds=x")
    assert "comparison both has 3 mistakes" in message and "override 1: compare.seeds=x" in message


def test_a_product_beyond_all_bounds_is_refused_before_it_is_made(tmp_path: Path) -> None:
    axes = "\n".join(f"    architecture.extra.k{n}: {list(range(100))}" for n in range(8))
    assert "makes more than 200,000 variants" in refused(tmp_path, f"base: small.yaml\ncompare:\n  vary:\n{axes}\n")


def test_a_single_run_refuses_a_comparison(tmp_path: Path) -> None:
    compared(tmp_path, VARIANTS)
    with pytest.raises(UserError, match=r"is a comparison(.|\n)*both\.yaml:2 \(compare\)\n.*zoo compare .*both\.yaml"):
        load_recipe(tmp_path / "both.yaml", registry=SmallRegistry(tmp_path))


def test_a_key_of_the_block_at_the_top_is_told_where_it_belongs(tmp_path: Path) -> None:
    made = compared(tmp_path, VARIANTS + "comapre: 3\n")
    with pytest.raises(UserError, match=r"comapre is no key of a recipe; did you mean 'compare'\?"):
        made.recipe("plain", "both", 1)
