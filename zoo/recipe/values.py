"""From a draft to values: interpolations resolved, missing values found, every knob held to its type."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.errors import UserError
from zoo.recipe.interpolation import Interpolation, as_written, at, is_interpolated, literal
from zoo.recipe.node import KeyPath, absolute, dotted
from zoo.recipe.sections import MISSING, Draft, Section, group_class, plain
from zoo.recipe.source import scalar
from zoo.recipe.typed import Misfit, advice, described, fit, holds_paths, takes_text


class Values:
    """The values of a draft; mistakes are noted in the draft's problems.

    Attributes:
        tree: plain values, resolved, every default filled in.
        texts: what was written where an interpolation stood, by place.
        configs: the Config of every section, by place; complete only if there was no mistake.
    """

    def __init__(self, draft: Draft, tree: dict[str, Any]) -> None:
        self.draft, self.problems = draft, draft.problems
        self.texts = dict(draft.texts)
        self.unusable: set[KeyPath] = set()
        self._interpolation = Interpolation(tree)
        self.tree = self._resolved(tree, ())
        for path, hint in draft.hints.items():
            self._hold(path, hint)
        self.configs = {section.path: self._config(section) for section in draft.sections}

    def written(self) -> dict[str, Any]:
        """The tree with every interpolation as it was written."""
        return as_written(self.tree, self.texts)

    def _resolved(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: self._resolved(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolved(item, (*path, str(index))) for index, item in enumerate(value)]
        if value == MISSING:
            self._report_missing(path)
        return self._followed(value, path) if is_interpolated(value) else value

    def _report_missing(self, path: KeyPath) -> None:
        self.unusable.add(path)
        if path in self.draft.unnamed:
            return
        hint = self.draft.hints.get(path)
        kind = f" ({described(hint)})" if hint else ""
        fix = f"set it, for example with the override {dotted(path)}=VALUE"
        self.problems.add(f"{dotted(path)} isn't set{kind}", where=self.draft.where(path), fix=fix)

    def _followed(self, text: str, path: KeyPath) -> Any:
        self.texts[path] = text
        try:
            return plain(self._interpolation.value(path))
        except UserError as error:
            self.unusable.add(path)
            if not self.draft.incomplete:
                what = f"{dotted(path)}: {text} can't be resolved: {error.what}"
                self.problems.add(what, where=self.draft.where(path), fix=error.fix)
            return None

    def _hold(self, path: KeyPath, hint: Any) -> None:
        """Hold the value at a place to its annotation."""
        if any(bad[: len(path)] == path for bad in self.unusable):
            return
        parent, key = at(self.tree, path[:-1]), path[-1]
        value = parent[key]
        if isinstance(value, str) and path in self.texts and not takes_text(hint):
            value = scalar(value)  # the environment gives text only
        try:
            parent[key] = fit(value, hint)
        except Misfit as misfit:
            self._report_misfit(misfit, (*path, *misfit.path))
        if holds_paths(hint):
            self._anchor(path)

    def _report_misfit(self, misfit: Misfit, path: KeyPath) -> None:
        self.unusable.add(path)
        node = self.draft.nodes.get(path)
        fix = advice(misfit, node.text if node else "")
        what = f"{dotted(path)} {misfit}"
        text = next((self.texts[path[:end]] for end in range(len(path) + 1) if path[:end] in self.texts), None)
        if text:  # what it leads to may be a secret
            what, fix = f"{dotted(path)} expects {described(misfit.hint)}, {text} leads to something else", None
        self.problems.add(what, where=self.draft.where(path), fix=fix)

    def _anchor(self, path: KeyPath) -> None:
        """Make paths absolute that came out of an interpolation, in the value and in what is saved."""
        for place, text in self.texts.items():
            if place[: len(path)] != path:
                continue
            parent, value = at(self.tree, place[:-1]), at(self.tree, place)
            if not isinstance(value, str) or Path(value).is_absolute():
                continue
            folder = self.draft.nearest(place).origin.folder
            parent[int(place[-1]) if isinstance(parent, list) else place[-1]] = str(absolute(value, folder))
            if not value.startswith("~"):
                self.texts[place] = f"{literal(str(folder))}/{text}"

    def _config(self, section: Section) -> Any:
        """The section's Config, or ``None`` if one of its knobs is wrong."""
        if any(bad[: len(section.path)] == section.path for bad in self.unusable):
            return None
        values = _own_values(section.config_class, at(self.tree, section.path))
        try:
            node = OmegaConf.structured(section.config_class)
            node.merge_with(literal(values))
            return OmegaConf.to_object(node)
        except (OmegaConfBaseException, ValueError, TypeError) as error:
            reason = str(error).split("\n", 1)[0]
            path = _blamed(section, reason)
            self.problems.add(f"{dotted(section.path)}: {reason}", where=self.draft.where(path))
            return None


def _own_values(config_class: type, values: dict[str, Any]) -> dict[str, Any]:
    """The knobs among the values of a section or group; slots are left out."""
    hints = typing.get_type_hints(config_class)
    result = {}
    for field in dataclasses.fields(config_class):
        value = values[field.name]
        inner = group_class(hints[field.name])
        result[field.name] = _own_values(inner, value) if inner and isinstance(value, dict) else value
    return result


def _blamed(section: Section, reason: str) -> KeyPath:
    """The knob whose name a constructor's message starts with, or the whole section."""
    word = reason.partition(" ")[0]
    names = {field.name for field in dataclasses.fields(section.config_class)}
    return (*section.path, word) if word in names else section.path
