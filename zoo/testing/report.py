"""What a check found, and a report of many that a person and a script can read."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any, Literal

Status = Literal["passed", "failed", "skipped"]

_SIGNS = {"passed": "ok", "failed": "FAILED", "skipped": "-"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        name: what was checked, in plain words.
        status: ``skipped`` where the component doesn't offer what the check is about.
        message: the smallest failing shapes and the numbers, or why the check was skipped.
    """

    name: str
    status: Status
    message: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """All findings about one target, in the order of the checks."""

    target: str
    checks: list[Finding]

    def count(self, status: Status) -> int:
        """Number of checks with this outcome."""
        return sum(check.status == status for check in self.checks)

    @property
    def ok(self) -> bool:
        """Whether nothing failed and something passed."""
        return self.count("failed") == 0 and self.count("passed") > 0

    def json(self) -> dict[str, Any]:
        """``{target, passed, failed, skipped, checks: [{name, status, message}]}``, the first three as counts."""
        counts = {status: self.count(status) for status in ("passed", "failed", "skipped")}
        return {"target": self.target, **counts, "checks": [dataclasses.asdict(check) for check in self.checks]}

    def text(self, width: int = 110) -> str:
        """A table: failures with their messages first, then one line for each of the others."""
        ordered = sorted(self.checks, key=lambda check: ("failed", "passed", "skipped").index(check.status))
        lines = [self.target]
        for check in ordered:
            lines += _lines(check, width)
        lines.append(f"{self.count('passed')} passed, {self.count('failed')} failed, {self.count('skipped')} skipped")
        return "\n".join(lines)


def _lines(check: Finding, width: int) -> list[str]:
    sign = f"  {_SIGNS[check.status]:<7}"
    if check.status == "failed" or len(check.message) + len(check.name) + 13 > width:
        body = textwrap.wrap(check.message, width - 11, break_long_words=False) if check.message else []
        return [f"{sign}{check.name}", *(f"{'':11}{line}" for line in body)]
    return [f"{sign}{check.name}" + (f": {check.message}" if check.message else "")]
