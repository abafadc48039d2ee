"""``zoo new``: what it writes works at once, and nothing that exists is touched."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from zoo.component import KINDS
from zoo.errors import UserError
from zoo.registry import Registry
from zoo.scan import scan_file
from zoo.testing.scaffold import class_name, new


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_component_of_every_kind_is_found_by_its_file(kind: str, tmp_path: Path) -> None:
    component, test = new(kind, f"my_{kind}", folder=tmp_path)
    assert (component.name, test.name) == (f"my_{kind}.py", f"test_my_{kind}.py")
    record = scan_file(component)
    assert (record.status, record.kind, record.name) == ("ok", kind, f"my_{kind}")
    assert record.class_name == class_name(f"my_{kind}")
    assert record.load().__name__ == record.class_name
    assert "Mine" not in component.read_text()


def test_a_new_attention_is_short_and_starts_from_the_textbook(tmp_path: Path) -> None:
    text = new("attention", "my_attention", folder=tmp_path)[0].read_text()
    assert len(text.splitlines()) <= 25
    assert "return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSH" in text


@pytest.mark.slow
def test_the_tests_that_are_written_pass_and_are_named_after_the_checks(tmp_path: Path) -> None:
    for kind in KINDS:
        new(kind, f"my_{kind}", folder=tmp_path)
    ended = run_pytest(tmp_path)
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert "TestMyAttention::test_contract[cache = full pass, in chunks] PASSED" in ended.stdout
    assert "TestMyTokenizer::test_contract[text comes back exactly] PASSED" in ended.stdout


@pytest.mark.slow
def test_pytest_with_the_option_zoo_collects_component_files_and_tests_alike(tmp_path: Path) -> None:
    new("norm", "my_norm", folder=tmp_path)
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    (tmp_path / "faulty.py").write_text(
        (tmp_path / "my_norm.py").read_text().replace(".mean(-1, keepdim=True)", ".mean()")
    )
    ended = run_pytest(tmp_path, "--zoo", "my_norm.py", "faulty.py", "test_other.py")
    assert ended.returncode == 1
    assert "my_norm.py::each vector by itself PASSED" in ended.stdout
    assert "faulty.py::each vector by itself FAILED" in ended.stdout
    assert "test_other.py::test_other PASSED" in ended.stdout
    assert "vector 0 of row 0 alone against in its batch: off by" in ended.stdout


def test_a_package_has_an_entry_point_and_is_listed(tmp_path: Path) -> None:
    files = {str(file.relative_to(tmp_path)) for file in new("norm", "my_norm", package=True, folder=tmp_path)}
    assert files == {
        "zoo-my-norm/zoo_my_norm/norm/my_norm.py",
        "zoo-my-norm/zoo_my_norm/norm/__init__.py",
        "zoo-my-norm/zoo_my_norm/__init__.py",
        "zoo-my-norm/tests/test_my_norm.py",
        "zoo-my-norm/pyproject.toml",
        "zoo-my-norm/README.md",
    }
    root = tmp_path / "zoo-my-norm"
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["zoo"] == {"my_norm": "zoo_my_norm"}
    assert project["dependencies"] == ["transformer-zoo"]
    record = Registry.discover([root / "zoo_my_norm"], environment={}).find("norm", "my_norm")
    assert record.status == "ok"
    assert record.load().__name__ == "MyNorm"


@pytest.mark.slow
def test_the_test_of_a_package_passes_beside_it(tmp_path: Path) -> None:
    new("feed_forward", "my_mlp", package=True, folder=tmp_path)
    ended = run_pytest(tmp_path / "zoo-my-mlp", "-o", "pythonpath=.")
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("name", "better"),
    [("MyNorm", "my_norm"), ("my-norm", "my_norm"), ("2x", ""), ("class", ""), ("", ""), ("../up", "up"), ("été", "t")],
)
def test_a_name_that_can_not_be_one_is_refused_with_one_that_can(name: str, better: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't name a component") as error:
        new("norm", name, folder=tmp_path)
    assert error.value.fix is not None
    assert error.value.fix.endswith(f"a letter first: {better}" if better else "a letter first")
    assert not list(tmp_path.iterdir())


def test_a_name_whose_class_the_file_imports_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="would be Tensor"):
        new("attention", "tensor", folder=tmp_path)


def test_a_name_that_a_component_has_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is attention 'multi_head' of transformer-zoo already") as error:
        new("attention", "multi_head", folder=tmp_path)
    assert error.value.where is not None and error.value.where.endswith("attention/multi_head.py")
    assert error.value.fix == "choose another name, for example my_multi_head"
    assert not list(tmp_path.iterdir())
    assert new("norm", "multi_head", folder=tmp_path)[0].is_file()


def test_the_name_that_is_suggested_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_PLUGINS", str(new("norm", "my_layer_norm", folder=tmp_path)[0]))
    with pytest.raises(UserError) as error:
        new("norm", "layer_norm", folder=tmp_path)
    assert error.value.fix == "choose another name, for example my_my_layer_norm"


def test_an_unknown_kind_is_refused_with_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'attention'"):
        new("atention", "my_attention", folder=tmp_path)


def test_nothing_is_overwritten_and_nothing_is_written_beside_it(tmp_path: Path) -> None:
    (tmp_path / "test_my_norm.py").write_text("mine")
    with pytest.raises(UserError, match=r"test_my_norm\.py is there already"):
        new("norm", "my_norm", folder=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["test_my_norm.py"]
    assert (tmp_path / "test_my_norm.py").read_text() == "mine"


def test_a_folder_that_can_not_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't write"):
        new("norm", "my_norm", folder=tmp_path / "file")
