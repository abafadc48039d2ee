"""Write the pages that are made from the code: components, hooks, commands, the matrix, the kit,
and the article's coverage.

python docs/generate.py           write docs/*.md and the table in README.md
python docs/generate.py --check   exit 1 and name the pages that are stale
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import article_coverage
import click
import kit_page
import matrix_page

from zoo.cli.program import COMMANDS, commands
from zoo.component import KINDS, Component
from zoo.config import Knob, Slot, knobs
from zoo.contracts.values.capabilities import WORDS, WORDS_OF_MODELS
from zoo.registry import Registry

ROOT = Path(__file__).resolve().parent.parent
NOTICE = "<!-- made by docs/generate.py; edit the code it reads, not this page -->"


def builtin_components(registry: Registry) -> Iterator[tuple[str, list[Component]]]:
    """Each kind that has components of the zoo's own, with these."""
    for kind in KINDS:
        found = [part for part in registry.components(kind) if part.module.startswith("zoo_builtin.")]
        if found:
            yield kind, found


def components_page(registry: Registry) -> str:
    """Every component with its knobs, its slots and what it can do."""
    lines = ["# Components", NOTICE, ""]
    for kind, found in builtin_components(registry):
        lines += [f"## {kind}", ""]
        for component in found:
            lines += component_section(component)
    return "\n".join(lines) + "\n"


def component_section(component: Component) -> list[str]:
    """One component: summary, what it offers and needs, and a table of what it can be told."""
    part = component.load()
    lines = [f"### `{component.name}`", "", component.summary, ""]
    for word in ("offers", "needs"):
        if words := words_of(part, word):
            lines += [f"{word.capitalize()}: {', '.join(sorted(words))}.", ""]
    rows = list(knob_rows(part.Config))
    rows += [slot_row(name, slot) for name, slot in part.slots.items()]
    if rows:
        lines += ["| key | type | default | meaning |", "|---|---|---|---|", *rows, ""]
    return lines


def slot_row(name: str, slot: Slot) -> str:
    """One row of a component's table, for a part that it takes."""
    kind = f"{slot.kind}, or a list dealt over the layers" if slot.cycled else slot.kind
    default = f"`{slot.default}`" if slot.default else f"that of `{slot.like}`"
    needs = f"must offer {', '.join(sorted(slot.needs))}" if slot.needs else ""
    return f"| `{name}` | {kind} | {default} | {needs} |"


def words_of(part: type[Any], word: str) -> frozenset[str]:
    """The words that a class declares under a name, as a set or as a class method."""
    declared = getattr(part, word, frozenset())
    return declared() if callable(declared) else declared


def knob_rows(config: type[Any], prefix: str = "") -> Iterator[str]:
    """A row for each knob; those of a group stand under its name."""
    for knob in knobs(config):
        if dataclasses.is_dataclass(knob.default):
            yield from knob_rows(type(knob.default), f"{prefix}{knob.name}.")
        else:
            yield knob_row(dataclasses.replace(knob, name=prefix + knob.name))


def knob_row(knob: Knob) -> str:
    """One row of a component's table."""
    default = "required" if knob.default is dataclasses.MISSING else f"`{shown(knob.default)}`"
    text = " ".join(knob.text.split()).replace("|", "\\|")
    return f"| `{knob.name}` | {type_name(knob.type)} | {default} | {text} |"


def shown(default: Any) -> str:
    """A default as a recipe would write it."""
    return "null" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


def type_name(kind: Any) -> str:
    """A type as people say it, safe inside a table."""
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    for noise in ("typing.", "pathlib.", "<class '", "'>"):
        text = text.replace(noise, "")
    return text.replace("None", "null").replace("|", "\\|")


def components_table(registry: Registry) -> str:
    """The README's table: a row for each kind."""
    rows = ["| kind | built-in components |", "|---|---|"]
    for kind, found in builtin_components(registry):
        rows.append(f"| {kind} | {', '.join(f'`{component.name}`' for component in found)} |")
    return "\n".join(rows)


def hooks_page() -> str:
    """Every hook with its signature and its documentation."""
    from zoo import hookspecs

    lines = ["# Hooks", NOTICE, "", inspect.getdoc(hookspecs) or "", ""]
    for name, function in inspect.getmembers(hookspecs, inspect.isfunction):
        if name.startswith("zoo_"):
            lines += [f"## `{name}{inspect.signature(function)}`", "", inspect.getdoc(function) or "", ""]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """The help of every command."""
    lines = ["# Commands", NOTICE, ""]
    for name in ("zoo", *COMMANDS):
        command = commands if name == "zoo" else commands.get_command(click.Context(commands), name)
        title = name if name == "zoo" else f"zoo {name}"
        context = click.Context(command, info_name=title, max_content_width=100, terminal_width=100)
        lines += [f"## `{title}`", "", "```text", command.get_help(context).rstrip(), "```", ""]
    return "\n".join(lines) + "\n"


def words_table(words: Mapping[str, str]) -> str:
    """Words with their meanings."""
    rows = [f"| `{word}` | {meaning} |" for word, meaning in words.items()]
    return "\n".join(["| word | means |", "|---|---|", *rows])


def renewed(path: Path, tables: Mapping[str, str]) -> str:
    """A page written by hand with the tables between ``<!-- marker -->`` and ``<!-- /marker -->`` renewed."""
    text = path.read_text(encoding="utf-8")
    for marker, table in tables.items():
        opening, closing = f"<!-- {marker} -->", f"<!-- /{marker} -->"
        if text.count(opening) != 1 or text.count(closing) != 1:
            raise SystemExit(f"{path}: {opening} and {closing} must each stand there once")
        before, _, rest = text.partition(opening)
        text = f"{before}{opening}\n{table}\n{closing}{rest.partition(closing)[2]}"
    return text


def pages() -> dict[Path, Callable[[], str]]:
    """Each generated file with the function that makes its text."""
    registry = Registry.discover(environment={})
    return {
        ROOT / "docs" / "components.md": lambda: components_page(registry),
        ROOT / "docs" / "hooks.md": hooks_page,
        ROOT / "docs" / "commands.md": commands_page,
        ROOT / "docs" / "matrix.md": lambda: matrix_page.page(registry, NOTICE),
        ROOT / "docs" / "kit.md": lambda: kit_page.page(ROOT, NOTICE),
        ROOT / "docs" / "article.md": lambda: article_coverage.page(ROOT, NOTICE),
        ROOT / "docs" / "plugins.md": lambda: renewed(
            ROOT / "docs" / "plugins.md",
            {"words": words_table(WORDS), "words of models": words_table(WORDS_OF_MODELS)},
        ),
        ROOT / "README.md": lambda: renewed(ROOT / "README.md", {"components": components_table(registry)}),
    }


def main() -> int:
    """Write the pages, or name those that are stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    check = parser.parse_args().check
    stale = []
    for path, make in pages().items():
        text = make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"stale: {', '.join(stale)}; run python docs/generate.py", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
