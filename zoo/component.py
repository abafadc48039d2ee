"""A component as a record: what a listing shows, and what it takes to import the class behind it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from zoo.config import Part
from zoo.errors import UserError

KINDS: tuple[str, ...] = tuple(
    sorted(path.stem for path in (Path(__file__).parent / "contracts").glob("*.py") if path.stem != "__init__")
)
"""Kinds of component: one file in ``zoo/contracts`` is one kind."""

Status = Literal["ok", "broken", "unloaded"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Component:
    """One component, known without importing it.

    Attributes:
        kind: one of ``KINDS``; ``plugin`` for the record of a package itself, ``unknown`` for a broken file
            that is given by path.
        name: short name, lower case with underscores, unique within its kind.
        summary: first line of the docstring.
        provider: who offers it: the distribution, or the file or folder that was given by path.
        version: version of the distribution.
        file: the source file.
        status: ``broken`` has an ``error``; ``unloaded`` is known for certain only after its plugin is imported.
        error: why it is broken, as ``file:line: reason``.
        module: importable name of the module.
        class_name: the class in that module.
    """

    kind: str
    name: str
    summary: str = ""
    provider: str = ""
    version: str | None = None
    file: Path | None = None
    status: Status = "ok"
    error: str | None = None
    module: str = ""
    class_name: str = ""

    @property
    def key(self) -> str:
        """``kind/name``."""
        return f"{self.kind}/{self.name}"

    @property
    def title(self) -> str:
        """How messages call it: ``attention 'multi_head' of transformer-zoo``."""
        return f"{self.kind} {self.name!r}" + (f" of {self.provider}" if self.provider else "")

    def record(self) -> dict[str, str | None]:
        """The fields that ``zoo list --json`` prints."""
        names = ("kind", "name", "summary", "provider", "version", "file", "status", "error")
        values = {name: getattr(self, name) for name in names}
        return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}

    def check_usable(self, where: str | None = None) -> None:
        """Raise UserError, with the record's own error, for a component that is known to be broken.

        Args:
            where: the place that asks for it, as ``file:line`` and key path.
        """
        if self.status == "broken":
            raise UserError(f"{self.title} is broken: {self.error}", where=where, fix="repair or remove the plugin")

    def load(self, where: str | None = None) -> type[Any]:
        """Import the component and return its class, checked against the contract of its kind.

        Args:
            where: the place that asks for it, as ``file:line`` and key path.

        Raises:
            UserError: the record is broken, the import fails, or the class isn't what its kind asks for.
        """
        self.check_usable(where)
        module = import_plugin(self.module, self.file, self.title, asked=where)
        found = getattr(module, self.class_name, None)
        reason = why_unfit(found, self.kind)
        if found is None or reason:
            place = _place(str(self.file or self.module), asked=where)
            raise UserError(f"{self.title}: {self.class_name} {reason}", where=place)
        return found

    def source_hash(self) -> str:
        """SHA-256 of the source file, in hexadecimal; for lock files and cache keys.

        Raises:
            UserError: the component has no source file.
        """
        import hashlib  # 5 ms that a listing doesn't pay

        file = self.file or inspect.getsourcefile(self.load())
        if file is None:
            raise UserError(f"{self.title} has no source file to take a hash of")
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def component(kind: str, name: str, *, target: str, summary: str) -> Component:
    """Declare a component that isn't a file of its own; for the hook ``zoo_components``.

    Args:
        kind: one of ``KINDS``.
        name: short name, lower case with underscores.
        target: ``module:Class``; imported only when the component is used.
        summary: what ``zoo list`` shows, one line.

    Raises:
        UserError: an unknown kind, or a name or target that has another form.
    """
    check_kind(kind)
    if not is_name(name):
        raise UserError(f"{name!r} can't name a component", fix="use lower case letters, digits and underscores")
    module, colon, class_name = target.partition(":")
    if not (colon and class_name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UserError(f"{target!r} isn't the place of a component", fix='write target="package.module:Class"')
    return Component(kind=kind, name=name, summary=summary, module=module, class_name=class_name)


def contract(kind: str) -> type[Part]:
    """The abstract class of a kind: ``feed_forward`` → ``zoo.contracts.feed_forward.FeedForward``."""
    check_kind(kind)
    return getattr(importlib.import_module(f"zoo.contracts.{kind}"), contract_name(kind))


def contract_name(kind: str) -> str:
    """Name of a kind's abstract class: ``feed_forward`` → ``FeedForward``."""
    return "".join(word.capitalize() for word in kind.split("_"))


def check_kind(kind: str, where: str | None = None) -> None:
    """Raise UserError, with near names and the whole list, for a word that is no kind."""
    if kind not in KINDS:
        raise UserError(
            f"{kind!r} is no kind of component{did_you_mean(kind, KINDS)}",
            where=where,
            fix=f"choose one of {', '.join(KINDS)}",
        )


def is_name(text: str) -> bool:
    """Whether a text can name a component: lower case letters, digits and underscores."""
    return re.fullmatch(r"[a-z][a-z0-9_]*", text) is not None


def import_plugin(module: str, file: Path | None, title: str, asked: str | None = None) -> ModuleType:
    """Import a module of a plugin.

    Args:
        module: importable name.
        file: the plugin's file, by whose folder the line at fault is told from other people's code.
        title: what messages call the plugin.
        asked: the place that asks for it.

    Raises:
        UserError: whatever the import raised, with ``title`` and the file and line of the plugin at fault.
    """
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        missing = isinstance(error, ModuleNotFoundError)
        raise UserError(
            f"{title} can't be imported: {reason}",
            where=_place(line_at_fault(error, file) or module, asked),
            fix="install what it needs, or remove the plugin" if missing else "repair or remove the plugin",
        ) from error


def _place(fault: str, asked: str | None) -> str:
    return f"{fault} (asked for by {asked})" if asked else fault


def line_at_fault(error: BaseException, file: Path | None) -> str | None:
    """The innermost line of the plugin's own code, as ``file:line``."""
    if file is None:
        return None
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    folder = file.parent.resolve()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).resolve().is_relative_to(folder):
            return f"{frame.filename}:{frame.lineno}"
    return str(file)


def why_unfit(found: object, kind: str) -> str | None:
    """Why an object can't be a component of a kind, as the end of a sentence; ``None`` if it can."""
    abstract = contract(kind)
    if not isinstance(found, type):
        return "isn't a class of that module"
    if not issubclass(found, abstract):
        return f"doesn't implement {abstract.__module__}.{abstract.__name__}"
    if inspect.isabstract(found):
        missing: frozenset[str] = found.__abstractmethods__  # type: ignore[attr-defined]
        return f"lacks {', '.join(sorted(missing))}"
    return _why_config_unfit(found.Config, abstract.Config)


def _why_config_unfit(config: object, base: type) -> str | None:
    if not (isinstance(config, type) and issubclass(config, base)):
        return f"has a Config that doesn't inherit from {base.__module__}.{base.__qualname__}"
    if "__dataclass_fields__" not in vars(config):
        return "has a Config without @dataclass(kw_only=True), so its fields would be ignored"
    return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'a' or 'b'?`` for the known names nearest to a misspelt one, or nothing.

    Nearness is that of the letters, or of the initials: ``mha`` is near ``multi_head``.
    """
    near = closest(name, known)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> list[str]:
    """At most three known names nearest to a misspelt one, best first; case and hyphens don't count."""
    import difflib  # only a mistake needs it

    plain = name.lower().replace("-", "_")

    def nearness(other: str) -> float:
        initials = "".join(word[0] for word in other.split("_") if word)
        forms = [other] if len(initials) < 2 else [other, initials]
        return max(difflib.SequenceMatcher(None, plain, form.lower()).ratio() for form in forms)

    scored = sorted(((nearness(other), other) for other in set(known)), key=lambda pair: (-pair[0], pair[1]))
    if scored and scored[0][0] == 1.0:
        return [scored[0][1]]
    return [other for score, other in scored[:3] if score >= cutoff]
