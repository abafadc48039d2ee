"""Run folders: claimed by one run, never mixed with another."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zoo.errors import UserError
from zoo.training.run import RunFolder, claim_run, load_run


def recipe(name: str = "tiny") -> Any:
    return SimpleNamespace(name=name)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_runs_are_numbered_from_the_first_free_one() -> None:
    Path("runs/tiny-2").mkdir(parents=True)
    made = [claim_run(recipe(), None) for _ in range(3)]
    assert [folder.path.name for folder in made] == ["tiny-1", "tiny-3", "tiny-4"]
    assert all(folder.path.is_absolute() for folder in made)


def test_claims_at_the_same_time_get_different_folders() -> None:
    made: list[RunFolder] = []
    threads = [threading.Thread(target=lambda: made.append(claim_run(recipe(), None))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(folder.path.name[5:]) for folder in made) == list(range(1, 9))


def test_a_named_folder_is_made_with_its_parents_and_may_exist_empty() -> None:
    claim_run(recipe(), Path("a/b/c")).release()
    assert claim_run(recipe(), Path("a/b/c")).path == Path("a/b/c").absolute()


@pytest.mark.parametrize(("file", "hint"), [("recipe.yaml", "--resume"), ("notes.txt", "choose another folder")])
def test_a_folder_that_holds_something_is_refused(file: str, hint: str) -> None:
    Path("mine").mkdir()
    Path("mine", file).write_text("precious")
    with pytest.raises(UserError, match="isn't empty") as caught:
        claim_run(recipe(), Path("mine"))
    assert hint in str(caught.value)
    assert [path.read_text() for path in Path("mine").iterdir()] == ["precious"]


def test_a_folder_that_cannot_be_made_is_one_message() -> None:
    Path("file").touch()
    with pytest.raises(UserError, match="the run folder can't be made: Not a directory"):
        claim_run(recipe(), Path("file/run"))


def test_two_processes_cannot_train_in_one_folder() -> None:
    held = claim_run(recipe(), Path("run"))
    with pytest.raises(UserError, match="another process is training in this folder"):
        RunFolder(Path("run")).hold()
    held.release()
    other = RunFolder(Path("run"))
    other.hold()
    other.release()


def test_a_folder_in_which_nothing_was_written_goes_away() -> None:
    folder = claim_run(recipe(), None)
    folder.remove_if_empty()
    assert not folder.path.exists()
    kept = claim_run(recipe(), None)
    kept.result.write_text(json.dumps({}))
    kept.remove_if_empty()
    assert kept.path.exists()


def test_what_is_no_run_is_not_loaded() -> None:
    with pytest.raises(UserError, match="nowhere is no run folder"):
        load_run("nowhere")
