"""Finding components: where they come from, what they are called, and what is said when that fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sample_plugins import PACKAGE, Site, schedule, write
from zoo.component import KINDS
from zoo.errors import UserError
from zoo.registry import Registry


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path / "site", monkeypatch)


def discover(*plugins: Path | str, listed: str = "") -> Registry:
    return Registry.discover(plugins, environment={"ZOO_PLUGINS": listed})


def refusal(registry: Registry, kind: str, name: str, where: str | None = None) -> UserError:
    with pytest.raises(UserError) as error:
        registry.find(kind, name, where)
    return error.value


# --- where components come from ----------------------------------------------------------------------------------


def test_built_ins_come_through_the_entry_point() -> None:
    record = discover().find("attention", "multi_head")
    assert (record.provider, record.status, record.module) == (
        "transformer-zoo",
        "ok",
        "zoo_builtin.attention.multi_head",
    )


def test_an_installed_package_is_listed_without_being_imported(site: Site) -> None:
    folder = site.install(
        "acme-zoo", "acme", {"schedule/flat.py": schedule()}, init=PACKAGE + 'raise RuntimeError("imported")\n'
    )
    record = discover().find("schedule", "flat")
    assert record.file == folder / "schedule" / "flat.py"
    assert (record.provider, record.version, record.module) == ("acme-zoo", "1.5", "acme.schedule.flat")
    assert "acme" not in sys.modules


def test_files_and_folders_come_from_the_environment_and_from_arguments(tmp_path: Path) -> None:
    one = write(tmp_path / "one.py", schedule())
    two = write(tmp_path / "two.py", schedule())
    write(tmp_path / "pack" / "schedule" / "three.py", schedule())
    registry = discover(tmp_path / "pack", listed=os.pathsep.join([str(one), "", str(two)]))
    found = {name: registry.find("schedule", name).provider for name in ("one", "two", "three")}
    assert found == {"one": "one.py", "two": "two.py", "three": "pack"}
    assert registry.find("schedule", "three").load().__name__ == "Flat"


def test_relative_paths_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "one.py", schedule())
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    registry = discover("../one.py")
    assert registry.find("schedule", "one").file == file
    assert registry.environment() == {"ZOO_PLUGINS": str(file)}


def test_one_file_reached_in_several_ways_is_one_component(site: Site, tmp_path: Path) -> None:
    folder = site.install("acme-zoo", "acme", {"schedule/flat.py": schedule()})
    file = folder / "schedule" / "flat.py"
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "flat.py"
    link.symlink_to(file)
    (tmp_path / "copy").symlink_to(folder)
    registry = discover(file, link, folder, tmp_path / "copy", listed=f"{file}{os.pathsep}{file}")
    assert [record.provider for record in registry.components("schedule") if record.name == "flat"] == ["acme-zoo"]
    assert registry.find("schedule", "flat").module == "acme.schedule.flat"


def test_one_package_behind_two_entry_points_is_one_plugin(site: Site) -> None:
    site.install("acme-zoo", "acme", {"schedule/flat.py": schedule()})
    site.declare("acme-again", "acme")
    assert discover().find("schedule", "flat").provider in ("acme-zoo", "acme-again")


def test_a_child_process_discovers_the_same(tmp_path: Path) -> None:
    write(tmp_path / "pack" / "schedule" / "three.py", schedule())
    registry = discover(write(tmp_path / "one.py", schedule()), tmp_path / "pack")
    code = (
        "import json; from zoo.registry import Registry;"
        "print(json.dumps([record.record() for record in Registry.discover().components()]))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **registry.environment()},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert json.loads(child.stdout) == [record.record() for record in registry.components()]
    assert discover().environment() == {"ZOO_PLUGINS": ""}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.py", "gone.py doesn't exist"),
        ("notes.txt", "notes.txt is neither a Python file nor a folder"),
        (f"a{os.pathsep}b.py", "in its path, which ZOO_PLUGINS can't carry"),
        ("empty", "empty holds no components"),
    ],
)
def test_a_path_that_is_no_plugin_is_refused_with_the_absolute_path(tmp_path: Path, name: str, message: str) -> None:
    write(tmp_path / "notes.txt", "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as error:
        discover(tmp_path / name)
    assert message in error.value.what
    assert str(tmp_path / name) in error.value.what


def test_a_wrong_path_in_the_environment_says_that_it_came_from_there(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        discover(listed=str(tmp_path / "gone.py"))
    assert error.value.where == "ZOO_PLUGINS"


# --- listing -----------------------------------------------------------------------------------------------------


def test_listing_is_in_natural_order_and_by_kind(tmp_path: Path) -> None:
    for name in ("net10", "net2", "net"):
        write(tmp_path / "schedule" / f"{name}.py", schedule())
    registry = discover(tmp_path)
    assert [r.name for r in registry.components("schedule") if r.name.startswith("net")] == ["net", "net2", "net10"]
    kinds = [record.kind for record in registry.components()]
    assert kinds == sorted(kinds)
    assert {record.kind for record in registry.components("schedule")} == {"schedule"}
    with pytest.raises(UserError, match="'schedules' is no kind of component; did you mean 'schedule'"):
        registry.components("schedules")


def test_listing_imports_no_heavy_library_and_no_plugin() -> None:
    code = (
        "import sys; from zoo.registry import Registry; records = Registry.discover().components();"
        "heavy = {'torch', 'lightning', 'omegaconf', 'rich', 'numpy', 'timm', 'yaml', 'typer', 'zoo_builtin'};"
        "print(len(records), sorted(heavy & set(sys.modules)))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    number, _, heavy = child.stdout.strip().partition(" ")
    assert int(number) == len(Registry.discover().components()) > 0
    assert heavy == "[]"


# --- names -------------------------------------------------------------------------------------------------------


def test_an_unknown_name_says_what_is_near_what_there_is_and_where_it_was_asked_for() -> None:
    registry = discover()
    error = refusal(registry, "attention", "gpq", "recipe.yaml:4 (architecture.attention)")
    assert error.what == "there is no attention called 'gpq'; did you mean 'grouped_query'?"
    assert error.where == "recipe.yaml:4 (architecture.attention)"
    names = ", ".join(record.name for record in registry.components("attention"))
    assert error.fix == f"choose one of {names}"
    assert "grouped_query, " in names


@pytest.mark.parametrize("name", ["Multi_Head", "MULTI_HEAD", "multi-head"])
def test_case_and_hyphens_are_not_forgiven_but_understood(name: str) -> None:
    assert refusal(discover(), "attention", name).what.endswith("; did you mean 'multi_head'?")


def test_a_name_of_another_kind_is_told_apart() -> None:
    assert "'gpt2' is the name of an architecture" in refusal(discover(), "attention", "gpt2").what
    assert "'rotary' is the name of a position" in refusal(discover(), "attention", "rotary").what


def test_an_unknown_kind_lists_the_kinds() -> None:
    error = refusal(discover(), "atention", "multi_head", "recipe.yaml:4")
    assert error.what == "'atention' is no kind of component; did you mean 'attention'?"
    assert (error.where, error.fix) == ("recipe.yaml:4", f"choose one of {', '.join(KINDS)}")


def test_an_unknown_name_notes_the_plugins_that_are_broken(site: Site, tmp_path: Path) -> None:
    site.install("acme-zoo", "acme", {"schedule/flat.py": "(", "norm/odd.py": "("})
    odd = write(tmp_path / "odd.py", '"""Doc."""\n')
    error = refusal(discover(odd), "schedule", "falt")
    assert f"schedule 'flat' of acme-zoo is broken: {site.folder}/acme/schedule/flat.py:1: syntax error" in error.what
    assert f"unknown 'odd' of odd.py is broken: {odd}:1: has no __all__" in error.what
    assert "norm" not in error.what
    assert "flat" not in error.fix


def test_a_broken_component_is_its_error_and_harms_no_other(site: Site) -> None:
    site.install("acme-zoo", "acme", {"schedule/flat.py": "(", "schedule/whole.py": schedule()})
    registry = discover()
    assert registry.find("schedule", "whole").status == "ok"
    error = refusal(registry, "schedule", "flat", "recipe.yaml:9")
    assert error.what.startswith("schedule 'flat' of acme-zoo is broken: ")
    assert error.where == "recipe.yaml:9"


def test_two_owners_of_a_name_are_both_named_and_one_can_be_picked(site: Site) -> None:
    for package in ("acme", "other"):
        site.install(f"{package}-zoo", package, {"schedule/flat.py": schedule(package.title())})
    registry = discover()
    error = refusal(registry, "schedule", "flat", "recipe.yaml:9")
    assert error.what.startswith("schedule 'flat' is offered by acme-zoo and by other-zoo\n")
    assert str(site.folder / "acme" / "schedule" / "flat.py") in error.what
    assert (error.where, error.fix) == ("recipe.yaml:9", "pick one: acme-zoo:flat or other-zoo:flat")
    assert registry.find("schedule", "acme-zoo:flat").load().__name__ == "Acme"
    assert registry.find("schedule", "other-zoo:flat").load().__name__ == "Other"
    error = refusal(registry, "schedule", "othr-zoo:flat")
    assert error.what == "'othr-zoo' offers no schedule called 'flat'; did you mean 'other-zoo'?"
    assert error.fix == "choose one of acme-zoo:flat, other-zoo:flat"
    assert refusal(registry, "schedule", ":flat").fix == "choose one of acme-zoo:flat, other-zoo:flat"


def test_a_clash_with_a_built_in_is_listed_twice_and_harms_nobody_else(tmp_path: Path) -> None:
    file = write(
        tmp_path / "multi_head.py", schedule().replace("schedule import Schedule", "attention import Attention")
    )
    write(file, file.read_text().replace("Schedule", "Attention"))
    registry = discover(file)
    both = [r.provider for r in registry.components("attention") if r.name == "multi_head"]
    assert both == ["multi_head.py", "transformer-zoo"]
    assert registry.find("attention", "grouped_query").status == "ok"
    assert registry.find("attention", "transformer-zoo:multi_head").file != file
    assert registry.find("attention", "multi_head.py:multi_head").file == file


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    files = [write(tmp_path / folder / "flat.py", schedule()) for folder in ("a", "b")]
    registry = discover(*files)
    assert refusal(registry, "schedule", "flat").fix == "pick one: a/flat.py:flat or b/flat.py:flat"
    assert registry.find("schedule", "b/flat.py:flat").file == files[1]


def test_a_folder_named_like_a_distribution_is_told_apart(site: Site, tmp_path: Path) -> None:
    site.install("acme", "acme", {"schedule/flat.py": schedule()})
    write(tmp_path / "mine" / "acme" / "schedule" / "flat.py", schedule())
    registry = discover(tmp_path / "mine" / "acme")
    assert refusal(registry, "schedule", "flat").fix == "pick one: acme:flat or mine/acme:flat"


# --- packages that can't be read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["not_installed_anywhere", "acme.inner", "acme:plugin"])
def test_an_entry_point_to_nothing_is_a_broken_record(site: Site, value: str) -> None:
    site.install("acme-zoo", "acme", {})
    site.declare("acme-zoo", value)
    record = next(record for record in discover().components() if record.provider == "acme-zoo")
    assert (record.kind, record.name, record.status) == ("plugin", "acme-zoo", "broken")
    assert f"'{value}' names no top-level package that is installed" in record.error
    assert "acme" not in sys.modules


def test_a_package_without_a_matching_zoo_api_keeps_its_records_broken(site: Site) -> None:
    folder = site.install("acme-zoo", "acme", {"schedule/flat.py": schedule()}, init="zoo_api = 7\n")
    registry = discover()
    expected = f"{folder}/__init__.py:1: declares zoo_api = 7, but this zoo speaks zoo_api = 1"
    assert expected in refusal(registry, "schedule", "flat").what
    registry.load_plugins()
    assert "acme" not in sys.modules
    assert expected in refusal(registry, "schedule", "flat").what
