"""Mistakes of one recipe, collected so that a single message names them all."""

from __future__ import annotations

from zoo.errors import UserError


class Problems:
    """A list of mistakes that becomes one UserError."""

    def __init__(self) -> None:
        self.found: list[UserError] = []

    def add(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        """Note one mistake; the arguments are UserError's."""
        self.found.append(UserError(what, where=where, fix=fix))

    def raise_any(self, title: str) -> None:
        """Raise what was noted: a single mistake as it is, several as a numbered list under ``title``.

        Raises:
            UserError: at least one mistake was noted.
        """
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise UserError("\n".join([f"{title} has {len(self.found)} mistakes:", *self._numbered()]))

    def _numbered(self) -> list[str]:
        lines = []
        for number, problem in enumerate(self.found, start=1):
            first, *rest = "\n".join(problem.lines()).split("\n")
            lines += [f"{number}. {first}", *(f"   {line}" for line in rest)]
        return lines
