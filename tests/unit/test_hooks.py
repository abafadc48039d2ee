"""Hooks: loaded on demand, checked against their specifications, and never silently dead."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pluggy
import pytest

from sample_plugins import PACKAGE, Site, schedule
from zoo import hookspecs
from zoo.component import Component
from zoo.errors import UserError
from zoo.hooks import SPECIFICATIONS
from zoo.registry import Registry

HOOKED = PACKAGE + "from zoo.hookspecs import hookimpl\nfrom zoo.component import component\n"

MAKES = (
    HOOKED
    + """
@hookimpl
def zoo_components():
    return [component("schedule", "made", target="acme._made:Flat", summary="Made by a hook.")]
"""
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path / "site", monkeypatch)


def of_acme(registry: Registry) -> list[Component]:
    return [record for record in registry.components() if record.provider == "acme-zoo"]


def refusal(registry: Registry) -> UserError:
    with pytest.raises(UserError) as error:
        registry.load_plugins()
    return error.value


def test_every_hook_is_documented_and_its_arguments_are_described() -> None:
    assert list(SPECIFICATIONS) == ["zoo_components", "zoo_recipe_paths", "zoo_callbacks", "zoo_report_sections"]
    for name, specification in SPECIFICATIONS.items():
        text = inspect.getdoc(specification)
        assert text, name
        for argument in inspect.signature(specification).parameters:
            assert f"``{argument}``" in text, (name, argument)


def test_the_built_in_recipes_are_found_through_a_hook() -> None:
    folders = [Path(folder) for offer in Registry.discover(environment={}).hook.zoo_recipe_paths() for folder in offer]
    assert len(folders) == 1
    assert folders[0].is_absolute()
    assert folders[0].name == "recipes"
    assert folders[0].is_dir()


def test_a_components_hook_lists_as_unloaded_and_then_as_its_components(site: Site) -> None:
    folder = site.install("acme-zoo", "acme", {"_made.py": schedule()}, init=MAKES)
    registry = Registry.discover(environment={})
    (before,) = of_acme(registry)
    assert (before.kind, before.name, before.status) == ("plugin", "acme-zoo", "unloaded")
    assert (before.summary, before.file) == ("A package of components.", folder / "__init__.py")
    assert "acme" not in sys.modules
    with pytest.raises(UserError, match="plugin 'acme-zoo' of acme-zoo may offer more; it isn't loaded"):
        registry.find("schedule", "made")
    registry.load_plugins()
    (after,) = of_acme(registry)
    assert after == registry.find("schedule", "made")
    assert (after.key, after.status, after.summary) == ("schedule/made", "ok", "Made by a hook.")
    assert (after.provider, after.version) == ("acme-zoo", "1.5")
    assert after.load().__module__ == "acme._made"
    registry.load_plugins()
    assert of_acme(registry) == [after]


def test_files_and_hook_of_one_package_stand_side_by_side(site: Site) -> None:
    site.install("acme-zoo", "acme", {"_made.py": schedule(), "schedule/flat.py": schedule()}, init=MAKES)
    registry = Registry.discover(environment={})
    assert [record.key for record in of_acme(registry)] == ["plugin/acme-zoo", "schedule/flat"]
    registry.load_plugins()
    assert [record.key for record in of_acme(registry)] == ["schedule/flat", "schedule/made"]


def test_a_package_with_other_hooks_only_is_shown_before_and_after_loading(site: Site) -> None:
    init = HOOKED + "@hookimpl\ndef zoo_callbacks(recipe): return ['stop after ' + recipe]\n"
    site.install("acme-zoo", "acme", {}, init=init)
    registry = Registry.discover(environment={})
    assert [record.status for record in of_acme(registry)] == ["unloaded"]
    assert registry.hook.zoo_callbacks(recipe="one") == [["stop after one"]]
    assert [(record.kind, record.status) for record in of_acme(registry)] == [("plugin", "ok")]


def test_a_hook_may_leave_out_arguments(site: Site) -> None:
    site.install("acme-zoo", "acme", {}, init=HOOKED + "@hookimpl\ndef zoo_callbacks(): return ['beep']\n")
    assert Registry.discover(environment={}).hook.zoo_callbacks(recipe=None) == [["beep"]]


SIGNATURES = "zoo_components(), zoo_recipe_paths(), zoo_callbacks(recipe), zoo_report_sections(document, folder)"

DEAD = {
    "misspelt": (
        "@hookimpl\ndef zoo_recipe_path(): return []\n",
        "zoo_recipe_path is no hook of the zoo; did you mean 'zoo_recipe_paths'",
        f"rename it; the hooks are {SIGNATURES}",
    ),
    "misspelt and unmarked": (
        "def zoo_component(): return []\n",
        "zoo_component is no hook of the zoo; did you mean 'zoo_components'?",
        f"rename it; the hooks are {SIGNATURES}",
    ),
    "unmarked": (
        "def zoo_callbacks(recipe): return []\n",
        "zoo_callbacks(recipe) isn't marked as a hook",
        "put @hookimpl above it (from zoo.hookspecs import hookimpl)",
    ),
    "extra argument": (
        "@hookimpl\ndef zoo_callbacks(recipe, trainer): return []\n",
        "hook zoo_callbacks asks for 'trainer', which it isn't given",
        "write it as zoo_callbacks(recipe), or with fewer",
    ),
    "renamed argument": (
        "@hookimpl\ndef zoo_callbacks(settings): return []\n",
        "hook zoo_callbacks asks for 'settings', which it isn't given",
        "write it as zoo_callbacks(recipe), or with fewer",
    ),
    "default": (
        "@hookimpl\ndef zoo_callbacks(recipe=None): return []\n",
        "hook zoo_callbacks has a default for 'recipe', so it would never be given its value",
        "write it as zoo_callbacks(recipe), or with fewer",
    ),
    "keyword only": (
        "@hookimpl\ndef zoo_callbacks(*, recipe): return []\n",
        "hook zoo_callbacks asks for 'recipe', which it isn't given",
        "write it as zoo_callbacks(recipe), or with fewer",
    ),
}


@pytest.mark.parametrize("case", DEAD)
def test_a_hook_that_could_never_run_is_refused_with_its_line_and_the_right_signature(site: Site, case: str) -> None:
    source, what, fix = DEAD[case]
    folder = site.install("acme-zoo", "acme", {"schedule/flat.py": schedule()}, init=HOOKED + source)
    registry = Registry.discover(environment={})
    assert registry.find("schedule", "flat").status == "ok"
    error = refusal(registry)
    assert error.what.startswith(f"plugin 'acme-zoo' of acme-zoo: {what}")
    assert error.fix == fix
    line = 1 + (folder / "__init__.py").read_text().splitlines().index(source.splitlines()[0])
    assert error.where == f"{folder}/__init__.py:{line}"


def test_a_marked_function_of_any_other_name_is_refused(site: Site) -> None:
    folder = site.install("acme-zoo", "acme", {}, init=HOOKED + "@hookimpl\ndef register_attention(): return []\n")
    error = refusal(Registry.discover(environment={}))
    assert error.what.startswith("plugin 'acme-zoo' of acme-zoo: unknown hook 'register_attention'")
    assert (error.where, error.fix) == (f"{folder}/__init__.py", f"the hooks are {SIGNATURES}")


RESULTS = {
    "return [1]": "hook zoo_components returned 1, which is no component",
    "return 1": "hook zoo_components failed: TypeError: 'int' object is not iterable",
    "raise OSError('no disk')": "hook zoo_components failed: OSError: no disk",
    "return [component('norms', 'a', target='b:C', summary='')]": "UserError: 'norms' is no kind of component",
}


@pytest.mark.parametrize("body", RESULTS)
def test_a_components_hook_that_fails_names_plugin_and_hook(site: Site, body: str) -> None:
    site.install("acme-zoo", "acme", {}, init=f"{HOOKED}@hookimpl\ndef zoo_components():\n    {body}\n")
    error = refusal(Registry.discover(environment={}))
    assert error.what.startswith("plugin 'acme-zoo' of acme-zoo: hook zoo_components")
    assert RESULTS[body] in error.what
    assert str(site.folder) in error.where


def test_a_plugin_that_cannot_be_imported_is_broken_and_harms_no_other(site: Site) -> None:
    source = PACKAGE + "\nimport not_there_at_all\n"
    folder = site.install("acme-zoo", "acme", {"schedule/flat.py": schedule()}, init=source)
    site.install("other-zoo", "other", {"schedule/other.py": schedule()})
    registry = Registry.discover(environment={})
    registry.load_plugins()
    (record,) = of_acme(registry)
    assert (record.key, record.status) == ("schedule/flat", "broken")
    assert record.error == (
        f"{folder}/__init__.py:4: plugin 'acme-zoo' of acme-zoo can't be imported: "
        "ModuleNotFoundError: No module named 'not_there_at_all'"
    )
    assert registry.find("schedule", "other").load().__name__ == "Flat"
    assert registry.find("attention", "multi_head").status == "ok"
    assert registry.hook.zoo_recipe_paths()


def test_two_packages_of_one_distribution_both_register(site: Site) -> None:
    source = HOOKED + "@hookimpl\ndef zoo_callbacks(): return [__name__]\n"
    for package in ("acme", "acme_more"):
        site.install("acme-zoo", package, {}, init=source)
    about = site.folder / "acme_zoo-1.5.dist-info" / "entry_points.txt"
    about.write_text("[zoo]\none = acme\ntwo = acme_more\n")
    offers = Registry.discover(environment={}).hook.zoo_callbacks(recipe=None)
    assert sorted(offers) == [["acme"], ["acme_more"]]


def test_each_components_hook_is_asked_once_for_its_own_plugin(site: Site) -> None:
    for package in ("acme", "other"):
        counted = (
            MAKES.replace("acme", package).replace("    return", "    asked.append(1)\n    return") + "\nasked = []\n"
        )
        site.install(f"{package}-zoo", package, {"_made.py": schedule()}, init=counted)
    registry = Registry.discover(environment={})
    registry.load_plugins()
    made = [(record.provider, record.module) for record in registry.components("schedule") if record.name == "made"]
    assert made == [("acme-zoo", "acme._made"), ("other-zoo", "other._made")]
    assert [len(sys.modules[package].asked) for package in ("acme", "other")] == [1, 1]
    with pytest.raises(UserError, match="is offered by acme-zoo and by other-zoo"):
        registry.find("schedule", "made")


def test_hookimpl_is_of_the_zoo() -> None:
    assert isinstance(hookspecs.hookimpl, pluggy.HookimplMarker)
    assert (hookspecs.hookimpl.project_name, hookspecs.ZOO_API) == ("zoo", 1)
