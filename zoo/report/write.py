"""Make both files of a comparison's report."""

from __future__ import annotations

from pathlib import Path

from zoo.registry import Registry
from zoo.report.curves import curve_section
from zoo.report.differences import difference_section
from zoo.report.environment import environment_section
from zoo.report.failures import failure_section
from zoo.report.figure import drawing
from zoo.report.findings import Findings, read_findings
from zoo.report.markdown import markdown
from zoo.report.overview import overview_section
from zoo.report.page import page
from zoo.report.pareto import pareto_section
from zoo.report.plugins import plugin_sections
from zoo.report.repeat import repeat_section
from zoo.report.section import Section
from zoo.report.slices import slice_section
from zoo.report.tuning_curves import tuning_section
from zoo.report.verdicts import verdict_section
from zoo.training.files import write_bytes

PAGE = "report.html"
TEXT = "report.md"


def write_report(folder: Path, registry: Registry | None = None) -> None:
    """Write report.html and report.md from what a comparison's folder holds by now.

    Args:
        folder: of a comparison that is finished or running; nothing in it but the two files is changed.
        registry: whose plugins add sections; by default everything that is installed.

    Raises:
        UserError: no comparison is there.
        RunFailed: the files can't be written.
    """
    findings = read_findings(folder)
    with drawing():
        sections = report_sections(findings, registry or Registry.discover())
        write_bytes(folder / PAGE, page(findings.name, sections).encode())
    write_bytes(folder / TEXT, markdown(findings.name, sections).encode())


def report_sections(findings: Findings, registry: Registry) -> list[Section]:
    """All sections in order; those that have nothing to show are left out."""
    made = [
        overview_section(findings),
        verdict_section(findings),
        curve_section(findings),
        pareto_section(findings),
        slice_section(findings),
        tuning_section(findings),
        failure_section(findings),
        *plugin_sections(registry, findings.document, findings.folder),
        difference_section(findings),
        environment_section(findings),
        repeat_section(findings),
    ]
    return [section for section in made if section is not None]
