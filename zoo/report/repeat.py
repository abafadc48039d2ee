"""How to make the comparison, one of its runs and the report again."""

from __future__ import annotations

import json
import shlex

from zoo.report.findings import Findings
from zoo.report.section import Code, Section


def repeat_section(findings: Findings) -> Section:
    """Commands."""
    recipe = str(findings.comparison.get("recipe") or "RECIPE")
    overrides = [str(each) for each in findings.comparison.get("overrides") or ()]
    plugins = [part for path in findings.comparison.get("plugins") or () for part in ("--plugin", str(path))]
    whole = shlex.join(["zoo", "compare", recipe, *overrides, *plugins])
    run = next((found for cell in findings.cells if (found := findings.run(cell))), None)
    one = run.relative_to(findings.folder) / "recipe.yaml" if run else "cells/ADDRESS/recipe.yaml"
    seeds = findings.comparison.get("seeds")
    return Section(
        "How to repeat it",
        [
            "The whole comparison, in a folder of its own:",
            Code(whole),
            "What is missing here, and this report, from the same recipe; what has ended isn't run again:",
            Code(f"{whole} --run FOLDER"),
            "A single run, from this folder:",
            Code(f"zoo train {one}"),
            *([f"Seeds: {json.dumps(seeds)}."] if seeds else []),
            "This report is made from the files of this folder alone.",
        ],
    )
