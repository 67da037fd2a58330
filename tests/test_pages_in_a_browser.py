"""The pages in a real browser: nothing sticks out at any width, the style is applied, and they
print.
"""

import html
import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.reports.page import run_page
from flows.reports.programme_report import programme_of, programme_page
from tests.builders import quick
from tests.facts import facts, funnel
from tests.reports.test_programme import NOW, TODAY, attempt, issuer, run
from tests.screenshots import browser, print_pdf, shoot

CHROMIUM = browser()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
LONG = "a-name-without-a-place-to-break-" * 8
PHONE = 560
PROBE = """<!doctype html>
<iframe src="page.html" width="{width}" height="900"></iframe>
<pre id="measured"></pre>
<script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument;
  const style = page.defaultView.getComputedStyle(page.body);
  document.querySelector("#measured").textContent = JSON.stringify({{
    width: page.documentElement.scrollWidth,
    hidden: Math.max(...[...page.querySelectorAll(".stack")].map(
      table => table.parentElement.scrollWidth - table.parentElement.clientWidth)),
    margin: style.marginTop,
    scripts: page.scripts.length,
  }});
}};
</script>"""


@pytest.fixture(params=["run", "programme"])
def page(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    content = {"run": page_of_a_run, "programme": page_of_the_programme}[request.param]()
    (tmp_path / "page.html").write_text(content)
    return tmp_path / "page.html"


def page_of_a_run() -> str:
    from schemas.breaks import break_of

    breaks = frozenset(
        {break_of("FOREIGN_FILE", 10**7, LONG), break_of("RESULT_SHORT", 1, "chunk 1")}
    )
    summary, chunks = facts(30, missing=12, rejected=1234567, breaks=breaks)
    shown = {**summary, "funnel": funnel(60, "A_TERMINATION_TYPE_OF_FORTY_CHARACTERS_X")}
    return run_page(shown, chunks)


def page_of_the_programme() -> str:
    rejected = run(TODAY, {"3.5": 12}, submit=[("cardholder.name_on_card.unprintable", 1234567)])
    weeks = [attempt(str(back), "linked", TODAY - timedelta(weeks=back)) for back in range(30)]
    names = ["a-bank", LONG[:60], "second-national-bank-of-the-north", *(f"b{n}" for n in range(9))]
    issuers = [
        issuer(*weeks, name=name, placed={"0": True, "20": False}, runs=(rejected,))
        for name in names
    ]
    return programme_page(programme_of(issuers, NOW, 12, ["torn"]).facts)


def look(page: Path, width: int) -> dict[str, Any]:
    probe = page.with_name("probe.html")
    probe.write_text(PROBE.format(width=width))
    command = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        f"--user-data-dir={page.parent}/profile",
        "--virtual-time-budget=2000",
        "--dump-dom",
        probe.as_uri(),
    ]
    dom = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    written = re.search(r'<pre id="measured">(.*?)</pre>', dom)
    assert written is not None
    measured: dict[str, Any] = json.loads(html.unescape(written[1]))
    return measured


@pytest.mark.parametrize("width", quick(1, [360, 1280, 390, 820]))
def test_nothing_sticks_out_of_the_page_and_its_own_policy_lets_its_style_in(
    page: Path, width: int
) -> None:
    measured = look(page, width)

    assert measured["width"] <= width
    assert width > PHONE or measured["hidden"] <= 0
    assert (measured["margin"], measured["scripts"]) == ("0px", 0)


@pytest.mark.slow
def test_the_page_prints_and_is_photographed_in_light_and_dark(page: Path, tmp_path: Path) -> None:
    pdf, light, dark = (tmp_path / name for name in ("page.pdf", "light.png", "dark.png"))

    print_pdf(str(CHROMIUM), page, pdf)
    shoot(str(CHROMIUM), page, light, 390, 600)
    shoot(str(CHROMIUM), page, dark, 390, 600, dark=True)

    assert pdf.read_bytes().startswith(b"%PDF")
    assert light.read_bytes() != dark.read_bytes()
