"""Every component that can be named: found in installed packages, in ``ZOO_PLUGINS`` and by path."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.component import Component, check_kind, did_you_mean, import_plugin
from zoo.errors import UserError
from zoo.hooks import Hooks
from zoo.outside import VARIABLE, absolute, listed, module_name
from zoo.scan import read_package, scan_file, scan_package

if TYPE_CHECKING:
    import pluggy

GROUP = "zoo"
"""Entry point group in which a package says that it is a plugin."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """An installed plugin: a package behind an entry point.

    Attributes:
        package: record of the package itself, of kind ``plugin``; ``unloaded`` until its module is imported.
        components: records of its component files, and after loading those of its hook ``zoo_components``.
        shown: whether a listing shows the package: it has no components, or may have more than are known.
    """

    package: Component
    components: list[Component]
    shown: bool


class Registry:
    """Records of all components, and the hooks of the packages that brought them.

    Made by ``discover``. Nothing of a plugin is imported until ``load_plugins``, ``hook`` or a record's
    ``load`` asks for it.
    """

    def __init__(self, plugins: Sequence[Plugin], paths: Sequence[Path]) -> None:
        self._plugins, self._paths = list(plugins), list(paths)
        self._outside = _scan_paths(self._paths, taken={plugin.package.provider for plugin in plugins})
        self._records = self._collect()
        self._hooks: Hooks | None = None

    @classmethod
    def discover(cls, plugins: Sequence[Path | str] = (), environment: Mapping[str, str] = os.environ) -> Registry:
        """Find components in installed packages, then in ``ZOO_PLUGINS``, then in ``plugins``.

        Args:
            plugins: component files, or folders laid out as ``<kind>/<name>.py``; relative ones start at the
                working directory.
            environment: where ``ZOO_PLUGINS`` is looked up.

        Raises:
            UserError: a path in ``plugins`` or ``ZOO_PLUGINS`` that can't be a plugin.
        """
        paths = [_checked(path, where=VARIABLE) for path in listed(environment)]
        paths += [_checked(absolute(Path(plugin))) for plugin in plugins]
        return cls(_installed(), list(dict.fromkeys(paths)))

    def components(self, kind: str | None = None) -> list[Component]:
        """Records in natural order of kind and name.

        Without ``kind``, also those of kind ``plugin`` (packages that are broken, or may have more to offer
        once they are loaded) and ``unknown`` (broken files whose kind can't be read).

        Raises:
            UserError: ``kind`` is no kind.
        """
        if kind is not None:
            check_kind(kind)
        return [record for record in self._records if kind in (None, record.kind)]

    def find(self, kind: str, name: str, where: str | None = None) -> Component:
        """The one component of a kind with this name.

        Args:
            kind: one of ``KINDS``.
            name: ``name``, or ``provider:name`` where several providers offer the name.
            where: the place that asks, as ``file:line`` and key path, for messages.

        Raises:
            UserError: the kind or the name is unknown, several providers offer it, or it is broken.
        """
        check_kind(kind, where)
        provider, colon, short = name.rpartition(":")
        named = [record for record in self._records if (record.kind, record.name) == (kind, short)]
        chosen = [record for record in named if not colon or record.provider == provider]
        if not named:
            raise self._unknown(kind, short, where)
        if not chosen:
            raise _unknown_provider(named, provider, where)
        if len(chosen) > 1:
            raise _clash(chosen, where)
        chosen[0].check_usable(where)
        return chosen[0]

    def load_plugins(self) -> None:
        """Import the installed plugins and collect what their hooks offer; further calls do nothing.

        A package that can't be imported becomes a broken record, and so do its components.

        Raises:
            UserError: a hook that is misspelt, not marked, fails, or has other arguments than its specification.
        """
        if self._hooks is not None:
            return
        hooks = Hooks()
        self._plugins = [_loaded(plugin, hooks) for plugin in self._plugins]
        self._hooks, self._records = hooks, self._collect()

    @property
    def hook(self) -> pluggy.HookRelay:
        """Hooks of all plugins: ``registry.hook.zoo_callbacks(recipe=recipe)`` is a list with a result for each."""
        self.load_plugins()
        assert self._hooks is not None
        return self._hooks.relay

    def environment(self) -> dict[str, str]:
        """The environment variable with which a child process discovers the same components."""
        return {VARIABLE: os.pathsep.join(map(str, self._paths))}

    def _collect(self) -> list[Component]:
        """All records, one for each file however it was reached, in natural order."""
        unique: dict[tuple[str, str, str], Component] = {}
        packages = [plugin.package for plugin in self._plugins if plugin.shown]
        installed = [record for plugin in self._plugins for record in plugin.components]
        for record in [*packages, *installed, *self._outside]:
            source = str(record.file.resolve()) if record.file else f"{record.module}:{record.class_name}"
            unique.setdefault((record.kind, record.name, source), record)
        return sorted(unique.values(), key=lambda record: (record.kind, _natural(record.name), record.provider))

    def _unknown(self, kind: str, name: str, where: str | None) -> UserError:
        usable = [record.name for record in self.components(kind) if record.status == "ok"]
        names = list(dict.fromkeys(usable))
        what = [f"there is no {kind} called {name!r}{did_you_mean(name, names)}"]
        elsewhere = [record.kind for record in self._records if record.name == name and record.kind != "plugin"]
        if elsewhere:
            what.append(f"  note: {name!r} is the name of {' and '.join(map(_with_article, elsewhere))}")
        for record in self._records:
            if record.status == "broken" and record.kind in (kind, "plugin", "unknown"):
                what.append(f"  note: {record.title} is broken: {record.error}")
            if record.status == "unloaded":
                what.append(f"  note: {record.title} may offer more; it isn't loaded")
        listing = f"choose one of {', '.join(names)}" if names else f"install a plugin that offers {kind}"
        return UserError("\n".join(what), where=where, fix=listing)


def _installed() -> list[Plugin]:
    """The plugins behind all entry points, each package once, ordered by distribution."""
    entries: dict[str, metadata.EntryPoint] = {}
    for entry in metadata.entry_points(group=GROUP):
        entries.setdefault(entry.value, entry)  # the first on the path is the one that an import finds
    plugins = [_read_entry(entry) for entry in entries.values()]
    return sorted(plugins, key=lambda plugin: (plugin.package.provider, plugin.package.name))


def _read_entry(entry: metadata.EntryPoint) -> Plugin:
    assert entry.dist is not None  # entry_points() sets it
    about = entry.dist.metadata
    blank = Component(
        kind="plugin", name=entry.name, provider=about["Name"], version=about["Version"], module=entry.value
    )
    try:
        spec = find_spec(entry.value) if entry.value.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        reason = f"entry point {entry.name} = {entry.value!r} names no top-level package that is installed"
        return Plugin(dataclasses.replace(blank, status="broken", error=reason), [], shown=True)
    init = Path(spec.origin)
    package = read_package(init)
    record = dataclasses.replace(
        blank,
        file=init,
        summary=package.summary,
        status="broken" if package.error else "unloaded",
        error=package.error,
    )
    is_folder = spec.submodule_search_locations is not None
    components = scan_package(init.parent, entry.value, record.provider, record.version) if is_folder else []
    return Plugin(record, components, shown=not components or package.has_components_hook)


def _loaded(plugin: Plugin, hooks: Hooks) -> Plugin:
    """The plugin with its module imported and registered; broken, with all of its components, if that fails."""
    package = plugin.package
    if package.status == "broken":
        return plugin
    try:
        module = import_plugin(package.module, package.file, package.title)
    except UserError as error:
        return _failed(plugin, f"{error.where}: {error.what}")
    hooks.add(package, module)
    found = hooks.components(package)
    package = dataclasses.replace(package, status="ok")
    return Plugin(package, [*plugin.components, *found], shown=not (plugin.components or found))


def _failed(plugin: Plugin, error: str) -> Plugin:
    components = [dataclasses.replace(record, status="broken", error=error) for record in plugin.components]
    package = dataclasses.replace(plugin.package, status="broken", error=error)
    return Plugin(package, components, shown=plugin.shown)


def _checked(path: Path, where: str | None = None) -> Path:
    """The path of a plugin, if it can be one."""
    if os.pathsep in str(path):
        what = f"plugin {path} has {os.pathsep!r} in its path, which {VARIABLE} can't carry to other processes"
        raise UserError(what, where=where, fix="rename or move it")
    if not path.exists():
        raise UserError(f"plugin {path} doesn't exist", where=where, fix="correct the path")
    if not path.is_dir() and path.suffix != ".py":
        what = f"plugin {path} is neither a Python file nor a folder"
        raise UserError(what, where=where, fix="give a .py file, or a folder laid out as <kind>/<name>.py")
    return path


def _scan_paths(paths: Sequence[Path], taken: set[str]) -> list[Component]:
    """Components of files and folders that were given by path."""
    components: list[Component] = []
    for path in paths:
        provider = _provider_name(path, paths, taken)
        found = scan_package(path, module_name(path), provider) if path.is_dir() else [scan_file(path, provider)]
        if not found:
            what = f"plugin folder {path} holds no components"
            raise UserError(what, fix="lay it out as <kind>/<name>.py, for example attention/mine.py")
        components += found
    return components


def _provider_name(path: Path, paths: Sequence[Path], taken: set[str]) -> str:
    """The shortest end of a path that no other path and no distribution shares: ``mine.py``, ``b/mine.py``."""
    for length in range(1, len(path.parts)):
        name = "/".join(path.parts[-length:])
        others = {"/".join(other.parts[-length:]) for other in paths if other != path}
        if name not in others | taken:
            return name
    return str(path)


def _unknown_provider(named: Sequence[Component], provider: str, where: str | None) -> UserError:
    kind, name = named[0].kind, named[0].name
    owners = [record.provider for record in named]
    return UserError(
        f"{provider!r} offers no {kind} called {name!r}{did_you_mean(provider, owners)}",
        where=where,
        fix=f"choose one of {', '.join(f'{owner}:{name}' for owner in owners)}",
    )


def _clash(records: Sequence[Component], where: str | None) -> UserError:
    kind, name = records[0].kind, records[0].name
    places = "".join(f"\n  note: {record.provider} has it in {record.file or record.module}" for record in records)
    owners = list(dict.fromkeys(record.provider for record in records))
    spellings = " or ".join(f"{owner}:{name}" for owner in owners)
    return UserError(
        f"{kind} {name!r} is offered by {' and by '.join(owners)}{places}",
        where=where,
        fix=f"pick one: {spellings}" if len(owners) > 1 else "remove one of the two files",
    )


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _natural(name: str) -> list[str | int]:
    """Sort key in which ``gpt2`` comes before ``gpt10``."""
    parts = re.split(r"(\d+)", name)  # text and digits in turn
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]
