"""The report in a real browser: it renders with scripts on and off, says nothing to the console, and sorts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from report_page import Page
from report_sample import Sample
from zoo.registry import Registry
from zoo.report.write import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="no chromium and no google-chrome on the PATH"),
]

NO_SCRIPTS = {"profile": {"default_content_setting_values": {"javascript": 2}}}
"""A browser's preferences in which no page may run a script."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with names that would show if they were run."""
    names = ["plain", "<script>alert(1)</script>", "<img src=x onerror=console.error(2)>", "نوירון"]
    folder = Sample(variants=names, slices=(4, 8, 16)).write(tmp_path_factory.mktemp("browser") / "cmp")
    write_report(folder, Registry([], []))
    return folder / "report.html"


def browse(file: Path, *flags: str, has_scripts: bool = True) -> tuple[str, str]:
    """What the browser prints on stdout, and what the page and its policy said to the console."""
    profile = file.parent / ("profile" if has_scripts else "profile without scripts")
    (profile / "Default").mkdir(parents=True, exist_ok=True)
    if not has_scripts:
        (profile / "Default" / "Preferences").write_text(json.dumps(NO_SCRIPTS))
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *("--enable-logging=stderr", f"--user-data-dir={profile}", *flags, file.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(console)


@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts on", "scripts off"])
def test_it_renders_without_a_word_to_the_console(file: Path, tmp_path: Path, has_scripts: bool) -> None:
    from PIL import Image

    picture = tmp_path / "report.png"
    _, console = browse(file, f"--screenshot={picture}", "--window-size=1200,3000", has_scripts=has_scripts)
    assert console == ""
    with Image.open(picture) as image:
        assert image.size == (1200, 3000)
        colours = image.convert("RGB").getcolors(1 << 24)
    assert colours is not None
    inks = {colour for _, colour in colours}
    assert len(inks) > 100
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= inks  # the first two variants' colours, so figures are there


@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts on", "scripts off"])
def test_tables_get_buttons_where_scripts_run(file: Path, has_scripts: bool) -> None:
    text, console = browse(file, "--dump-dom", has_scripts=has_scripts)
    assert console == ""
    assert ("<button" in text) == has_scripts
    assert text.count("<svg") == file.read_text("utf-8").count("<svg") > 5


def test_a_click_sorts_and_a_second_one_turns_round(file: Path, tmp_path: Path) -> None:
    column = "Number(row.cells[1].querySelector('data').value)"
    driver = f"""<script>
      const table = document.querySelector("#section-2 ~ section table");
      const said = [];
      for (const turn of [1, 2]) {{
        table.tHead.rows[0].cells[1].querySelector("button").click();
        said.push([...table.tBodies[0].rows].map((row) => {column}), table.tHead.rows[0].cells[1].ariaSort);
      }}
      document.title = JSON.stringify(said);
    </script></body>"""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", file.read_text("utf-8"))
    driven = tmp_path / "driven.html"
    driven.write_text(page.replace("</body>", driver), encoding="utf-8")
    text, console = browse(driven, "--dump-dom")
    assert console == ""
    match = re.search(r"<title>(.*?)</title>", text)
    assert match
    up, rising, down, falling = json.loads(match[1])
    assert (rising, falling) == ("ascending", "descending")
    assert len(up) == 4
    assert up == sorted(up)
    assert down == up[::-1]


def test_a_policy_stops_what_is_not_the_report_s_own(file: Path, tmp_path: Path) -> None:
    """The policy is no decoration: a script that were smuggled in would not run."""
    smuggled = tmp_path / "smuggled.html"
    text = file.read_text("utf-8").replace("</main>", "<script>document.title = 'run'</script></main>")
    smuggled.write_text(text, encoding="utf-8")
    text, console = browse(smuggled, "--dump-dom")
    assert "<title>run" not in text
    assert "Content Security Policy" in console


def test_it_can_be_printed(file: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browse(file, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 20_000


def test_the_sample_is_well_formed(file: Path) -> None:
    assert Page(file.read_text("utf-8")).named("svg")
