"""Reading component files without importing them: everything that a listing shows comes from ``ast``."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from zoo.component import KINDS, Component, closest, is_name
from zoo.hookspecs import ZOO_API
from zoo.outside import module_name


class Unreadable(Exception):
    """A source file isn't what it should be; the message is ``file:line: reason``."""

    def __init__(self, file: Path, line: int | None, reason: str) -> None:
        super().__init__(f"{file}:{line or 1}: {reason}")


@dataclasses.dataclass(frozen=True)
class Package:
    """What the ``__init__.py`` of a plugin says without being imported.

    Attributes:
        file: that file.
        summary: first line of its docstring.
        has_components_hook: whether it defines the hook ``zoo_components``.
        error: why the package can't be used, as ``file:line: reason``.
    """

    file: Path
    summary: str = ""
    has_components_hook: bool = False
    error: str | None = None


def scan_package(folder: Path, import_name: str, provider: str, version: str | None = None) -> list[Component]:
    """Components of a package folder: ``<kind>/<name>.py``, one file each.

    Files and folders that start with ``_`` are the package's own, and so are the modules directly in ``folder``.
    Any other folder, down to two levels, is no home for a component: a file there that implements a contract,
    or whose folder's name is nearly a kind, is a broken record that says where to put it. A folder with an
    ``__init__.py`` is a package and must declare ``zoo_api``; without that all of its components are broken.

    Raises:
        Nothing: whatever is wrong with a file is in its record.
    """
    init = folder / "__init__.py"
    error = read_package(init).error if init.exists() else None
    found = []
    for file in _public_files(folder):
        place = file.relative_to(folder).parts
        blank = Component(
            kind=place[0] if place[0] in KINDS else "unknown",
            name=file.stem,
            provider=provider,
            version=version,
            file=file,
            module=".".join([import_name, *place[:-1], file.stem]),
        )
        in_place = len(place) == 2 and place[0] in KINDS
        record = _read_component(blank, file) if in_place else _misplaced(blank, file, place[:-1])
        if record:
            found.append(_broken(record, error) if error and record.status == "ok" else record)
    return found


def scan_file(path: Path, provider: str | None = None) -> Component:
    """The component of a single file; its kind comes from the contract that its class inherits from.

    Args:
        path: the file; its stem is the component's name.
        provider: what messages call its owner; the file's name by default.

    Raises:
        Nothing: whatever is wrong with the file is in the record.
    """
    blank = Component(
        kind="unknown", name=path.stem, provider=provider or path.name, file=path, module=module_name(path)
    )
    record = _read_component(blank, path)
    if record.status == "broken":
        return record
    kinds = _kinds(_parse(path), record.class_name)
    if len(kinds) == 1:
        return dataclasses.replace(record, kind=kinds.pop())
    example = "for example: from zoo.contracts.attention import HeadedAttention"
    reason = f"implements several contracts ({', '.join(sorted(kinds))})" if kinds else "implements no contract"
    return _broken(record, f"{path}:1: {record.class_name} {reason}; inherit from one, {example}")


def read_package(init: Path) -> Package:
    """What a plugin's ``__init__.py`` declares; a missing or other ``zoo_api`` is in ``error``."""
    try:
        tree = _parse(init)
    except Unreadable as error:
        return Package(init, error=str(error))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return Package(
        init,
        summary=_summary(tree) or "",
        has_components_hook="zoo_components" in functions,
        error=_why_api_unfit(tree, init),
    )


def _why_api_unfit(tree: ast.Module, init: Path) -> str | None:
    wanted = f"this zoo speaks zoo_api = {ZOO_API}"
    nodes = _assignments(tree, "zoo_api")
    if not nodes:
        return f"{init}:1: doesn't declare zoo_api; {wanted}; write that line at the top of the file"
    value = getattr(nodes[-1], "value", None)
    number = value.value if isinstance(value, ast.Constant) else None
    if type(number) is not int:
        return f"{init}:{nodes[-1].lineno}: zoo_api isn't a plain number; {wanted}"
    if number != ZOO_API:
        return f"{init}:{nodes[-1].lineno}: declares zoo_api = {number}, but {wanted}; install a release that fits"
    return None


def _public_files(folder: Path) -> Iterator[Path]:
    """Python files one and two folders down, without those whose path has a part that starts with ``_``."""
    for file in sorted([*folder.glob("*/*.py"), *folder.glob("*/*/*.py")]):
        if not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts):
            yield file


def _read_component(blank: Component, file: Path) -> Component:
    """The record completed from the file's docstring and ``__all__``, or broken."""
    try:
        tree = _parse(file)
        summary = _summary(tree)
        if not summary:
            raise Unreadable(file, 1, "has no docstring; its first line is what a listing shows")
        if not is_name(file.stem):
            raise Unreadable(file, 1, "isn't named in lower case letters, digits and underscores")
        return dataclasses.replace(blank, summary=summary, class_name=_only_class(tree, file))
    except Unreadable as error:
        return _broken(blank, str(error))


def _misplaced(blank: Component, file: Path, folders: tuple[str, ...]) -> Component | None:
    """A broken record for what seems to be a component in a folder that holds none, else ``None``."""
    near = closest(folders[0], KINDS, cutoff=0.8)
    kind = near[0] if near else _implemented_kind(file)
    if kind is None:
        return None
    place = "/".join(folders)
    reason = f"folder {place!r} holds no components; move the file to {kind}/{file.name}"
    return _broken(
        dataclasses.replace(blank, kind=kind), f"{file}:1: {reason}, or start a name with _ to keep it private"
    )


def _implemented_kind(file: Path) -> str | None:
    """Kind of the contract that a file's only public class implements, if it does."""
    try:
        if b"zoo." not in file.read_bytes():  # most helpers end here, unparsed
            return None
        tree = _parse(file)
        return next(iter(_kinds(tree, _only_class(tree, file))), None)
    except (OSError, Unreadable):
        return None


def _broken(record: Component, error: str) -> Component:
    return dataclasses.replace(record, status="broken", error=error)


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except OSError as error:
        raise Unreadable(file, None, error.strerror or str(error)) from error
    except SyntaxError as error:
        raise Unreadable(file, error.lineno, f"syntax error: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; absurd nesting
        raise Unreadable(file, None, f"can't be parsed: {error}") from error


def _summary(tree: ast.Module) -> str | None:
    text = ast.get_docstring(tree)
    return text.splitlines()[0].strip() if text else None


def _assignments(tree: ast.Module, name: str) -> list[ast.Assign | ast.AnnAssign | ast.AugAssign]:
    """Top-level statements that assign to a name."""
    found: list[ast.Assign | ast.AnnAssign | ast.AugAssign] = []
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                found.append(node)
    return found


def _only_class(tree: ast.Module, file: Path) -> str:
    """The class that ``__all__`` names, which must be one, and defined in the file.

    Raises:
        Unreadable: with the line of ``__all__``.
    """
    nodes = _assignments(tree, "__all__")
    if not nodes:
        raise Unreadable(file, 1, 'has no __all__; write __all__ = ["ClassName"]')
    value = nodes[0].value
    names = value.elts if isinstance(value, ast.List | ast.Tuple) else []
    texts = [name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)]
    if len(nodes) > 1 or len(names) != 1 or len(texts) != 1:
        raise Unreadable(file, nodes[-1].lineno, "__all__ must be a list of exactly one class name")
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if texts[0] not in classes:
        raise Unreadable(file, nodes[0].lineno, f"__all__ names {texts[0]!r}, which is no class of this file")
    return texts[0]


def _kinds(tree: ast.Module, class_name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """Kinds of the contracts that a class inherits from, directly or through classes of its file or of the frame."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if class_name not in classes or class_name in seen:
        return set()
    imports = _imports(tree)
    kinds: set[str] = set()
    for base in map(_dotted, classes[class_name].bases):
        first, _, rest = base.partition(".")
        if base in classes:
            kinds |= _kinds(tree, base, seen | {class_name})
        elif first in imports:
            kinds |= _imported_kinds(f"{imports[first]}.{rest}".rstrip("."))
    return kinds


def _imported_kinds(target: str) -> set[str]:
    """The same for ``module.Class``: a contract's own kind, or those of another class of the frame."""
    module, _, name = target.rpartition(".")
    package, *rest = module.split(".")
    if package != "zoo" or not rest:
        return set()
    if rest[0] == "contracts" and rest[1:2] and rest[1] in KINDS:
        return {rest[1]} if len(rest) == 2 else set()
    file = Path(__file__).parent.joinpath(*rest).with_suffix(".py")
    return _kinds(_parse(file), name) if file.is_file() else set()


def _imports(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for: ``import a.b as c`` → c: a.b; ``from a import b`` → b: a.b."""
    names: dict[str, str] = {}
    for node in _outside_functions(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names |= {alias.asname: alias.name} if alias.asname else {first: first}
    return names


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """What a module's own names come from; an import inside a function gives the module none."""
    pending: list[ast.AST] = [*reversed(tree.body)]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pending += reversed(list(ast.iter_child_nodes(node)))


def _dotted(node: ast.expr) -> str:
    """``a.b.C`` of an expression, its subscript left out; empty for anything else."""
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
