"""Reading components without importing them, and importing them on demand."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_plugins import PACKAGE, schedule, write
from zoo.component import KINDS, Component, closest, component, contract, did_you_mean
from zoo.config import Part
from zoo.errors import UserError
from zoo.registry import Registry
from zoo.scan import scan_file, scan_package

BUILT_IN = [record for record in Registry.discover(environment={}).components() if record.provider == "transformer-zoo"]


def only(records: list[Component]) -> Component:
    assert len(records) == 1, records
    return records[0]


# --- the contract between ast and import -----------------------------------------------------------------------


def test_the_built_in_package_has_components() -> None:
    assert {"attention/multi_head", "architecture/gpt2"} <= {record.key for record in BUILT_IN}


@pytest.mark.parametrize("record", BUILT_IN, ids=lambda record: record.key)
def test_what_ast_read_of_a_built_in_is_what_importing_gives(record: Component) -> None:
    assert record.error is None
    found = record.load()
    module = sys.modules[found.__module__]
    assert module.__name__ == f"zoo_builtin.{record.kind}.{record.name}"
    assert Path(inspect.getfile(found)).resolve() == record.file.resolve()
    assert module.__all__ == [found.__name__] == [record.class_name]
    assert inspect.getdoc(module).splitlines()[0] == record.summary
    assert issubclass(found, contract(record.kind))
    assert [kind for kind in KINDS if issubclass(found, contract(kind))] == [record.kind]


@pytest.mark.parametrize("record", BUILT_IN, ids=lambda record: record.key)
def test_the_kind_of_a_built_in_can_be_read_off_its_contract_too(record: Component) -> None:
    alone = scan_file(record.file)
    assert (alone.kind, alone.name, alone.class_name) == (record.kind, record.name, record.class_name), alone.error


def test_kinds_are_the_files_of_contracts_and_each_has_its_class() -> None:
    import zoo.contracts

    files = {path.stem for path in Path(zoo.contracts.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(KINDS) == files
    assert {"attention", "feed_forward", "schedule"} <= files
    assert contract("feed_forward").__name__ == "FeedForward"
    for kind in KINDS:
        assert contract(kind).__module__ == f"zoo.contracts.{kind}"
        assert issubclass(contract(kind), Part), kind


# --- a package folder --------------------------------------------------------------------------------------------


def test_folder_is_kind_and_file_is_name(tmp_path: Path) -> None:
    file = write(tmp_path / "schedule" / "flat_line.py", schedule("FlatLine", "Goes nowhere."))
    record = only(scan_package(tmp_path, "acme", "acme-zoo", "1.5"))
    assert record == Component(
        kind="schedule",
        name="flat_line",
        summary="Goes nowhere.",
        provider="acme-zoo",
        version="1.5",
        file=file,
        module="acme.schedule.flat_line",
        class_name="FlatLine",
    )
    assert (record.key, record.status) == ("schedule/flat_line", "ok")
    assert record.record()["file"] == str(file)


def test_private_files_own_modules_and_other_folders_are_no_components(tmp_path: Path) -> None:
    for place in ("schedule/_shared.py", "schedule/__init__.py", "_schedule/a.py", "models.py", "__init__.py"):
        write(tmp_path / place, PACKAGE)
    write(tmp_path / "kernels" / "fast.py", "import zoo.contracts.schedule\n")
    write(tmp_path / "recipes" / "a.yaml", "seed: 1\n")
    assert scan_package(tmp_path, "acme", "acme") == []


BROKEN = {
    "syntax error": ('"""Doc."""\nx = 1\ndef (:\n', ":3: syntax error"),
    "no docstring": ('__all__ = ["Flat"]\nclass Flat: ...\n', ":1: has no docstring"),
    "blank docstring": ('"""  """\n__all__ = ["Flat"]\nclass Flat: ...\n', ":1: has no docstring"),
    "no __all__": ('"""Doc."""\nclass Flat: ...\n', ":1: has no __all__"),
    "two names": ('"""Doc."""\n\n__all__ = ["Flat", "Other"]\nclass Flat: ...\n', ":3: __all__ must be a list of"),
    "empty __all__": ('"""Doc."""\n__all__ = []\n', ":2: __all__ must be a list of exactly one"),
    "computed __all__": ('"""Doc."""\n__all__ = [n for n in "a"]\n', ":2: __all__ must be a list"),
    "a variable": ('"""Doc."""\nname = "Flat"\n__all__ = [name]\nclass Flat: ...\n', ":3: __all__ must be"),
    "grown __all__": ('"""Doc."""\n__all__ = ["Flat"]\n__all__ += ["B"]\nclass Flat: ...\n', ":3: __all__ must be"),
    "no such class": ('"""Doc."""\n__all__ = ["Flta"]\nclass Flat: ...\n', ":2: __all__ names 'Flta'"),
    "a function": ('"""Doc."""\n__all__ = ["flat"]\ndef flat(): ...\n', ":2: __all__ names 'flat'"),
    "imported class": ('"""Doc."""\nfrom a import Flat\n__all__ = ["Flat"]\n', ":3: __all__ names 'Flat'"),
    "null byte": ('"""Doc."""\0', ":1: "),
    "empty": ("", ":1: has no docstring"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_is_no_component_is_a_broken_record_with_its_line(tmp_path: Path, case: str) -> None:
    source, error = BROKEN[case]
    file = write(tmp_path / "schedule" / "flat.py", source)
    write(tmp_path / "schedule" / "whole.py", schedule())
    broken, whole = scan_package(tmp_path, "acme", "acme")
    assert (broken.name, broken.status) == ("flat", "broken")
    assert broken.error.startswith(f"{file}{error}")
    assert (whole.name, whole.status) == ("whole", "ok")
    with pytest.raises(UserError, match="schedule 'flat' of acme is broken"):
        broken.load()
    alone = scan_file(file)
    assert (alone.kind, alone.status, alone.error) == ("unknown", "broken", broken.error)


def test_bytes_that_are_no_text_are_a_broken_record(tmp_path: Path) -> None:
    file = tmp_path / "schedule" / "flat.py"
    file.parent.mkdir()
    file.write_bytes(b'"""caf\xe9"""\n')
    assert only(scan_package(tmp_path, "acme", "acme")).status == "broken"


def test_a_link_to_nowhere_is_a_broken_record(tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "flat.py").symlink_to(tmp_path / "gone.py")
    assert "No such file" in only(scan_package(tmp_path, "acme", "acme")).error


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_no_text_makes_scanning_fail(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "schedule").mkdir()
    (folder / "schedule" / "any.py").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert only(scan_package(folder, "acme", "acme")).status == "broken"


def test_a_file_whose_name_is_no_component_name_says_so(tmp_path: Path) -> None:
    write(tmp_path / "schedule" / "FlatLine.py", schedule())
    record = only(scan_package(tmp_path, "acme", "acme"))
    assert record.status == "broken"
    assert "lower case letters" in record.error


@pytest.mark.parametrize("folder", ["schedules", "shedule", "Schedule"])
def test_a_folder_that_is_nearly_a_kind_is_named(tmp_path: Path, folder: str) -> None:
    file = write(tmp_path / folder / "flat.py", "not even python (")
    record = only(scan_package(tmp_path, "acme", "acme"))
    assert (record.kind, record.name, record.status) == ("schedule", "flat", "broken")
    assert record.error.startswith(f"{file}:1: folder '{folder}' holds no components; move the file to schedule/")


@pytest.mark.parametrize("folder", ["mine", "attention/fast", "mine/deep"])
def test_a_component_in_a_folder_for_none_is_not_lost(tmp_path: Path, folder: str) -> None:
    write(tmp_path / folder / "flat.py", schedule())
    record = only(scan_package(tmp_path, "acme", "acme"))
    assert (record.name, record.status) == ("flat", "broken")
    assert f"folder '{folder}' holds no components" in record.error


APIS = {
    "missing": ('"""Doc."""\n', ":1: doesn't declare zoo_api; this zoo speaks zoo_api = 1"),
    "newer": ('"""Doc."""\nzoo_api = 2\n', ":2: declares zoo_api = 2, but this zoo speaks zoo_api = 1"),
    "text": ('zoo_api = "1"\n', ":1: zoo_api isn't a plain number; this zoo speaks zoo_api = 1"),
    "truth": ("zoo_api = True\n", ":1: zoo_api isn't a plain number"),
    "computed": ("zoo_api = 0 + 1\n", ":1: zoo_api isn't a plain number"),
    "syntax": ("zoo_api = = 1\n", ":1: syntax error"),
}


@pytest.mark.parametrize("case", APIS)
def test_a_package_for_another_version_of_the_hooks_is_broken(tmp_path: Path, case: str) -> None:
    source, error = APIS[case]
    init = write(tmp_path / "__init__.py", source)
    write(tmp_path / "schedule" / "flat.py", schedule())
    record = only(scan_package(tmp_path, "acme", "acme"))
    assert record.status == "broken"
    assert record.error.startswith(f"{init}{error}")
    write(init, "zoo_api: int = 1\n")
    assert only(scan_package(tmp_path, "acme", "acme")).status == "ok"


# --- a single file -----------------------------------------------------------------------------------------------

BASES = {
    "from zoo.contracts.attention import HeadedAttention\nclass Mine(HeadedAttention): ...": "attention",
    "from zoo.contracts.attention import HeadedAttention as H\nclass Mine(H): ...": "attention",
    "import zoo.contracts.attention as a\nclass Mine(a.Attention): ...": "attention",
    "import zoo.contracts.norm\nclass Mine(zoo.contracts.norm.Norm): ...": "norm",
    "from zoo.contracts import feed_forward\nclass Mine(feed_forward.FeedForward): ...": "feed_forward",
    "from zoo import contracts as c\nclass Mine(c.data.Data): ...": "data",
    "from zoo.contracts.data import Data\nclass Mine(Data[int]): ...": "data",
    "from zoo.contracts.task import Task\nclass Half(Task): ...\nclass Mine(object, Half): ...": "task",
    "from zoo.data.byte_pair import BytePairTokenizer\nclass Mine(BytePairTokenizer): ...": "tokenizer",
    "try:\n    from zoo.contracts.norm import Norm\nexcept ImportError:\n    raise\nclass Mine(Norm): ...": "norm",
}


@pytest.mark.parametrize("body", BASES)
def test_the_kind_of_a_file_is_the_contract_of_its_class(tmp_path: Path, body: str) -> None:
    file = write(tmp_path / "mine.py", f'"""Mine."""\n__all__ = ["Mine"]\n{body}\n')
    record = scan_file(file)
    assert (record.kind, record.name, record.status) == (BASES[body], "mine", "ok"), record.error
    assert record.provider == "mine.py"


NO_KIND = {
    "class Mine: ...": "implements no contract; inherit from one",
    "from torch import nn\nclass Mine(nn.Module): ...": "implements no contract",
    "from zoo.contracts.values.mask import Mask\nclass Mine(Mask): ...": "implements no contract",
    "class Half(Mine): ...\nclass Mine(Half): ...": "implements no contract",
    "class Mine(make()): ...": "implements no contract",
    "from .zoo.contracts.norm import Norm\nclass Mine(Norm): ...": "implements no contract",
    "from other.zoo.contracts.norm import Norm\nclass Mine(Norm): ...": "implements no contract",
    "from zoo.contracts.norm import Norm\nfrom zoo.contracts.task import Task\nclass Mine(Norm, Task): ...": (
        "implements several contracts (norm, task)"
    ),
}


@pytest.mark.parametrize("body", NO_KIND)
def test_a_file_without_one_contract_is_broken(tmp_path: Path, body: str) -> None:
    record = scan_file(write(tmp_path / "mine.py", f'"""Mine."""\n__all__ = ["Mine"]\n{body}\n'))
    assert (record.kind, record.status) == ("unknown", "broken")
    assert f"Mine {NO_KIND[body]}" in record.error


def test_a_file_loads_once_however_it_was_reached_and_pickles(tmp_path: Path) -> None:
    file = write(tmp_path / "flat.py", schedule())
    link = tmp_path / "link.py"
    link.symlink_to(file)
    found = scan_file(file).load()
    assert scan_file(link).load() is found
    assert pickle.loads(pickle.dumps(found)) is found
    assert found(found.Config(height=0.5), steps=3).factor(2) == 0.5
    other = write(tmp_path / "other" / "flat.py", schedule())
    assert scan_file(other).load() is not found


def test_a_pickled_class_reaches_a_process_that_knows_zoo_plugins(tmp_path: Path) -> None:
    file = write(tmp_path / "flat.py", schedule())
    write(tmp_path / "pack" / "schedule" / "_shared.py", "HEIGHT = 3.0\n")
    inside = write(
        tmp_path / "pack" / "schedule" / "high.py", schedule().replace("import dataclasses", "from ._shared import *")
    )
    write(
        inside, inside.read_text().replace("from ._shared import *", "import dataclasses\nfrom ._shared import HEIGHT")
    )
    registry = Registry.discover([file, tmp_path / "pack"], environment={})
    found = [registry.find("schedule", name).load() for name in ("flat", "high")]
    child = subprocess.run(
        [sys.executable, "-c", "import pickle, sys; print(pickle.load(sys.stdin.buffer))"],
        input=pickle.dumps(found),
        env={**os.environ, **registry.environment()},
        capture_output=True,
    )
    assert child.returncode == 0, child.stderr.decode()
    assert child.stdout.decode().strip() == str(found)


def test_source_hash_is_that_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "flat.py", schedule())
    before = scan_file(file).source_hash()
    assert before == hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_text(file.read_text() + "# changed\n")
    assert scan_file(file).source_hash() != before


# --- loading what is wrong ---------------------------------------------------------------------------------------

HEADER = '"""Doc."""\nimport dataclasses\nfrom zoo.contracts.schedule import Schedule\n__all__ = ["Flat"]\n'

UNFIT = {
    "class Flat(Schedule): ...": "Flat lacks after_warmup",
    "class Flat(Schedule):\n    class Config: ...\n    def after_warmup(self, step): ...": (
        "has a Config that doesn't inherit from zoo.contracts.schedule.Schedule.Config"
    ),
    "class Flat(Schedule):\n    class Config(Schedule.Config):\n        a: int = 1\n"
    "    def after_warmup(self, step): ...": "has a Config without @dataclass",
    "class Flat(Schedule): ...\nFlat = 3": "Flat isn't a class",
    "class Flat(Schedule): ...\ndel Flat": "Flat isn't a class",
    "class Flat(Schedule): ...\nclass Flat: ...": "Flat doesn't implement zoo.contracts.schedule.Schedule",
}


@pytest.mark.parametrize("body", UNFIT)
def test_a_class_that_breaks_its_contract_is_refused_when_loaded(tmp_path: Path, body: str) -> None:
    file = write(tmp_path / "schedule" / "flat.py", f"{HEADER}{body}\n")
    write(tmp_path / "schedule" / "whole.py", schedule())
    records = Registry.discover([tmp_path], environment={}).components("schedule")
    with pytest.raises(UserError) as error:
        next(record for record in records if record.name == "flat").load()
    assert UNFIT[body] in error.value.what
    assert error.value.where == str(file)


IMPORTS = {
    "import not_there_at_all": (5, "ModuleNotFoundError: No module named 'not_there_at_all'"),
    "\nx = 1 / 0": (6, "ZeroDivisionError: division by zero"),
    "raise SystemExit(3)": (5, "SystemExit: 3"),
    "\n\ndef f():\n    raise OSError('no disk')\nf()": (8, "OSError: no disk"),
}


@pytest.mark.parametrize("body", IMPORTS)
def test_a_failing_import_names_plugin_file_and_line(tmp_path: Path, body: str) -> None:
    line, reason = IMPORTS[body]
    file = write(tmp_path / "flat.py", f"{HEADER}{body}\nclass Flat(Schedule): ...\n")
    with pytest.raises(UserError) as error:
        scan_file(file).load()
    assert error.value.what == f"schedule 'flat' of flat.py can't be imported: {reason}"
    assert error.value.where == f"{file}:{line}"


def test_a_failing_import_can_be_repaired_and_loaded_again(tmp_path: Path) -> None:
    file = write(tmp_path / "flat.py", schedule().replace("import dataclasses", "import dataclasses, not_there"))
    with pytest.raises(UserError):
        scan_file(file).load()
    write(file, schedule())
    assert scan_file(file).load().__name__ == "Flat"


# --- declared components, names ----------------------------------------------------------------------------------


def test_a_declared_component_loads_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "library_of_schedules.py", schedule("Made"))
    monkeypatch.syspath_prepend(tmp_path)
    declared = component("schedule", "made", target="library_of_schedules:Made", summary="Made elsewhere.")
    assert (declared.load().__name__, declared.file) == ("Made", None)
    assert declared.source_hash() == hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(UserError, match="schedule 'made': Mad isn't a class of that module"):
        component("schedule", "made", target="library_of_schedules:Mad", summary="").load()
    with pytest.raises(UserError, match="No module named 'library_of'"):
        component("schedule", "made", target="library_of:Made", summary="").load()


@pytest.mark.parametrize(
    ("kind", "name", "target", "message"),
    [
        ("shedule", "made", "a:B", "did you mean 'schedule'"),
        ("schedule", "Made", "a:B", "'Made' can't name a component"),
        ("schedule", "made", "a.b", "'a.b' isn't the place of a component"),
        ("schedule", "made", "a-b:C", "'a-b:C' isn't the place"),
        ("schedule", "made", ":C", "':C' isn't the place"),
    ],
)
def test_a_wrong_declaration_is_refused(kind: str, name: str, target: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        component(kind, name, target=target, summary="")


def test_near_names_are_found_by_letters_case_and_initials() -> None:
    names = ["multi_head", "grouped_query", "rotary", "rope"]
    assert closest("ROPE", names) == ["rope"]
    assert closest("multi-head", names) == ["multi_head"]
    assert closest("gpq", names) == ["grouped_query"]
    assert closest("rotray", names)[0] == "rotary"
    assert did_you_mean("mha", names) == "; did you mean 'multi_head'?"
    assert did_you_mean("zzz", names) == ""


def test_the_scanner_imports_nothing_that_it_reads() -> None:
    source = ast.parse(Path(inspect.getfile(scan_file)).read_text())
    names = {node.id for node in ast.walk(source) if isinstance(node, ast.Name)}
    assert not names & {"importlib", "__import__", "exec", "eval"}


def test_reading_a_file_does_not_run_it(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    file = write(tmp_path / "flat.py", dedent(schedule()) + f"\nopen({str(trace)!r}, 'w')\n")
    record = scan_file(file)
    assert not trace.exists()
    record.load()
    assert trace.exists()
