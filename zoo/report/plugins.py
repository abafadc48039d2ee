"""Sections that plugins add; one that fails says so in its place and spoils nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from zoo.registry import Registry
from zoo.report.figure import svg
from zoo.report.section import Code, Plot, Section, Table

PARTS = (str, Table, Plot, Code, Section)


def plugin_sections(registry: Registry, document: Mapping[str, Any], folder: Path) -> list[Section]:
    """What every plugin's ``zoo_report_sections`` gives, each under a title that names the plugin."""
    given: dict[str, Any] = {"document": MappingProxyType(document), "folder": folder}
    found = []
    for plugin in registry.hook.zoo_report_sections.get_hookimpls():
        try:
            sections: Any = plugin.function(*(given[name] for name in plugin.argnames))
            found += [_checked(section, plugin.plugin_name) for section in sections or ()]
        except Exception as error:  # whatever it is, the rest of the report stands
            what = f"Its hook zoo_report_sections failed: {type(error).__name__}: {error}"
            found.append(Section(f"Plugin {plugin.plugin_name}", [what]))
    return found


def _checked(section: Section, plugin: str) -> Section:
    _check(section)
    return Section(section.title, [*section.parts, f"From the plugin {plugin}."])


def _check(section: object) -> None:
    """Refuse what couldn't be written; a figure is drawn once to see."""
    if not isinstance(section, Section):
        raise TypeError(f"it returned {section!r}, which is no zoo.report.section.Section")
    for part in section.parts:
        if not isinstance(part, PARTS):
            raise TypeError(f"section {section.title!r} holds {part!r}; parts are texts, Table, Plot, Code and Section")
        if isinstance(part, Section):
            _check(part)
        if isinstance(part, Plot):
            svg(part.figure, "", "")
        table = part.table if isinstance(part, Plot) else part
        if isinstance(table, Table) and (wrong := [row for row in table.rows if len(row) != len(table.columns)]):
            raise TypeError(f"section {section.title!r} has a row {wrong[0]!r} under {len(table.columns)} columns")
