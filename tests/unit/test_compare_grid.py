"""The cells of a comparison: addresses, combinations that don't fit, and what is a mistake instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zoo.comparison.cells import Cell, address, fingerprint, outcome
from zoo.comparison.grid import Grid
from zoo.errors import UserError
from zoo.recipe import Recipe, load_comparison, load_recipe

SMALL = """
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 16, batch_size: 4, validation: 0.2}
architecture: {name: gpt2, layers: 1, dim: 16, heads: 2}
task: causal_lm
trainer: {max_steps: 4, accelerator: cpu, devices: 1}
"""
OWN = '''"""An attention of one's own."""

from zoo.contracts.attention import HeadedAttention

__all__ = ["Own"]


class Own(HeadedAttention):
    """Plain."""

    def attend(self, q_BNTH, k_BNSH, v_BNSV, call):
        return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSV
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a recipe, its data and a plugin."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "text.txt").write_text("\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(99)))
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def cells(block: str, *overrides: str) -> list[Cell]:
    Path("both.yaml").write_text(f"base: small.yaml\ncompare: {block}\n")
    return Grid(load_comparison("both.yaml", overrides)).reported()


def small(*overrides: str) -> Recipe:
    return load_recipe("small.yaml", overrides)


# Addresses


def hashed(recipe: Recipe) -> str:
    return address(fingerprint(recipe, data="", threads=1), recipe.seed)


def test_an_address_is_of_what_is_computed(here: Path) -> None:
    assert hashed(small()) == hashed(small()) == hashed(small("data.batch_size=4", "logger=[tensorboard]"))
    others = [small("seed=1"), small("optimizer.lr=0.5"), small("architecture.position=none"), small("data.length=8")]
    assert len({hashed(recipe) for recipe in [small(), *others]}) == 5
    assert len(hashed(small())) == 16 and int(hashed(small()), 16) >= 0


def test_an_address_changes_with_the_data_and_the_threads() -> None:
    recipe = Recipe.from_dict({"task": "causal_lm"}, fragment=True)
    prints = [fingerprint(recipe, "a", 1), fingerprint(recipe, "b", 1), fingerprint(recipe, "a", 2)]
    assert len(set(prints)) == 3 and fingerprint(recipe.with_seed(5), "a", 1) == prints[0]
    assert address(prints[0], 1) != address(prints[0], 2)


def test_an_address_changes_with_the_source_of_a_plugin_and_not_with_its_place(here: Path) -> None:
    def own(file: str) -> str:
        return hashed(load_recipe("small.yaml", ["architecture.attention=own"], plugins=[file]))

    before = own("own.py")
    Path("there").mkdir()
    (here / "there" / "own.py").write_text(OWN)
    assert own("there/own.py") == before
    (here / "there" / "own.py").write_text(OWN.replace("Plain", "Plainer"))
    assert own("there/own.py") != before


def test_an_address_hides_and_follows_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for name in ("one.txt", "two.txt"):
        os.link("text.txt", name)
        monkeypatch.setenv("TEXT_FILE", name)
        found.add(hashed(small("data.files=['${oc.env:TEXT_FILE}']")))
    assert len(found) == 2


# Order


def test_rows_are_ordered_by_variant_task_and_seed_as_declared(here: Path) -> None:
    (here / "other.yaml").write_text(SMALL.replace("layers: 1", "layers: 2"))
    tasks = "tasks: [small, other], seeds: [5, 2]"
    made = cells(f"{{variants: {{b: {{}}, a: {{architecture.position: none}}}}, {tasks}}}")
    assert [(cell.variant, cell.task, cell.seed) for cell in made] == [
        ("b", "small", 5), ("b", "small", 2), ("b", "other", 5), ("b", "other", 2),
        ("a", "small", 5), ("a", "small", 2), ("a", "other", 5), ("a", "other", 2),
    ]  # fmt: skip
    assert all(cell.status == "planned" and cell.recipe and cell.recipe.seed == cell.seed for cell in made)


def test_the_order_of_variants_changes_no_run(here: Path) -> None:
    a, b = "a: {architecture.position: none}", "b: {architecture.layers: 2}"
    first, second = cells(f"{{variants: {{{a}, {b}}}}}"), cells(f"{{variants: {{{b}, {a}}}}}")
    key = {(cell.variant, cell.seed): cell.address for cell in first}
    assert key == {(cell.variant, cell.seed): cell.address for cell in second}
    assert len(set(key.values())) == 6


def test_variants_that_say_the_same_share_a_run(here: Path) -> None:
    made = cells("{variants: {a: {}, b: {architecture.attention: multi_head}}, seeds: 1}")
    assert made[0].address == made[1].address


# What doesn't fit


def test_parts_that_do_not_fit_are_invalid_cells_and_the_rest_is_planned(here: Path) -> None:
    made = cells("{variants: {a: {}, odd: {architecture.heads: 3}}, seeds: 2}")
    assert [cell.status for cell in made] == ["planned", "planned", "invalid", "invalid"]
    assert "not divisible by 3 heads" in made[2].reason and made[2].address == ""


def test_a_variant_that_one_task_cannot_take_is_a_combination(here: Path) -> None:
    (here / "deep.yaml").write_text(SMALL.replace("layers: 1", "layers: '???'"))
    made = cells("{variants: {a: {}, b: {architecture.layers: 2}}, tasks: [small, deep], seeds: 1}")
    assert [cell.status for cell in made] == ["planned", "invalid", "planned", "planned"]


def test_data_that_is_not_there_is_known_before_anything_runs(here: Path) -> None:
    made = cells("{variants: {a: {}, b: {data.files: [nowhere.txt]}}, seeds: 1}")
    assert [cell.status for cell in made] == ["planned", "invalid"]
    assert "nowhere.txt" in made[1].reason


def test_sizes_that_only_the_data_knows_are_checked_too(here: Path) -> None:
    made = cells("{variants: {a: {}, b: {architecture.max_length: 8}}, seeds: 1}")
    assert [cell.status for cell in made] == ["planned", "invalid"]
    assert "max_length is 8, the data needs 16" in made[1].reason


def test_a_task_on_which_nothing_can_run_is_a_mistake(here: Path) -> None:
    (here / "late.yaml").write_text(SMALL + "schedule: {name: cosine, warmup_steps: 50}\n")
    with pytest.raises(UserError, match=r"no variant can run on task late:\n- a, b: warmup_steps is 50"):
        cells("{variants: {a: {}, b: {architecture.layers: 2}}, tasks: [small, late]}")


@pytest.mark.parametrize(
    ("block", "overrides", "words"),
    [
        ("{variants: {a: {}, b: {architecture.attention: nix}}}", (), ("no attention called 'nix'", "both.yaml:2")),
        ("{variants: {a: {}, b: {architecture.dmi: 3}}}", (), ("did you mean 'dim'?", "both.yaml:2")),
        ("{variants: {a: {}, b: {architecture.dim: x}}}", (), ("architecture.dim expects a whole number",)),
        ("{variants: {a: {}, b: {}}}", ("trainer.max_step=3",), ("did you mean 'max_steps'", "override 1")),
        ("{vary: {architecture.heads: [3, 5]}}", (), ("no variant can run on task both", "3 heads", "5 heads")),
    ],
)
def test_what_no_cell_can_take_is_a_mistake(
    here: Path, block: str, overrides: tuple[str, ...], words: tuple[str, ...]
) -> None:
    before = sorted(file.name for file in here.iterdir())
    with pytest.raises(UserError) as error:
        cells(block, *overrides)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert sorted(file.name for file in here.iterdir()) == sorted({*before, "both.yaml"})


def test_an_outcome_says_its_status_once() -> None:
    assert outcome("diverged", "diverged at step 3: loss is nan") == "diverged at step 3: loss is nan"
    assert outcome("failed", "out of memory") == "failed: out of memory"
    assert outcome("completed", None) == "completed"


# What a comparison settles


def grid(block: str) -> Grid:
    Path("both.yaml").write_text(f"base: small.yaml\ncompare: {block}\n")
    return Grid(load_comparison("both.yaml"))


def test_matched_variants_have_as_many_parameters(here: Path) -> None:
    made = grid("{variants: {plain: {}, wide: {architecture.dim: 24}}, match: {parameters: plain, tolerance: 2%}}")
    plain, wide = (made.attempts[variant, "both"] for variant in ("plain", "wide"))
    assert plain.matched is not None and plain.matched.overrides == {} and plain.matched.residual == 0
    assert wide.matched is not None and wide.matched.overrides and abs(wide.matched.residual) <= 0.02
    (cell, *_) = [cell for cell in made.reported() if cell.variant == "wide"]
    assert cell.recipe is not None and wide.matched.value == plain.matched.reached
    for path, value in wide.matched.overrides.items():
        section, _, key = path.rpartition(".")
        assert getattr(cell.recipe.config(section), key) == value


def test_what_cannot_be_matched_is_a_mistake_of_a_variant(here: Path) -> None:
    with pytest.raises(UserError, match="plain on both: parameters can't be brought within"):
        grid("{variants: {plain: {}, wide: {architecture.dim: 24}}, match: {parameters: 3}}")


def test_tuning_tries_the_same_points_with_a_seed_that_is_not_reported(here: Path) -> None:
    block = "{variants: {plain: {}, deep: {architecture.layers: 2}}, seeds: [4, 7], tune: {optimizer.lr: [0.1, 0.2]}}"
    made = grid(block)
    tried = [(cell.variant, dict(cell.point), cell.seed, cell.phase) for cell in made.tuning()]
    assert tried == [
        (variant, {"optimizer.lr": rate}, 8, "tune") for rate in (0.1, 0.2) for variant in ("plain", "deep")
    ]
    assert len({cell.address for cell in made.tuning()}) == 4
    chosen = made.reported({("plain", "both"): {"optimizer.lr": 0.2}, ("deep", "both"): {"optimizer.lr": 0.1}})
    rates = [(cell.variant, cell.seed, cell.recipe.config("optimizer").lr) for cell in chosen if cell.recipe]
    assert rates == [("plain", 4, 0.2), ("plain", 7, 0.2), ("deep", 4, 0.1), ("deep", 7, 0.1)]


def test_what_is_settled_is_in_every_cell_and_changes_its_address(here: Path) -> None:
    made = grid("{variants: {plain: {}, deep: {architecture.layers: 2}}, threads: 2}")
    before = made.reported()
    made.settle(("deep", "both"), {"trainer.max_steps": 3})
    after = made.reported()
    steps = {cell.variant: cell.recipe.trainer["max_steps"] for cell in after if cell.recipe}
    assert steps == {"plain": 4, "deep": 3} and {cell.threads for cell in after} == {2}
    same = [old.address == new.address for old, new in zip(before, after, strict=True)]
    assert same == [True] * 3 + [False] * 3
