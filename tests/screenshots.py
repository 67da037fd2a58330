"""Screenshots of the reports after twelve nights, in a real browser: `python -m tests.screenshots`
writes them anew.

`browser()` finds a Chromium; tests that look at a page skip where there is none.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from flows.reports.across import reconcile_runs
from flows.reports.rebuild import rebuild
from flows.runs.keys import keys_of, reconciliation
from tests.twelve import Story, live

FOLDER = Path(__file__).parent.parent / "deploy" / "screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-sync",
)


class View(NamedTuple):
    """One screenshot: its file, which page, width and height in CSS pixels, and the colours."""

    name: str
    page: str
    width: int
    height: int
    dark: bool = False


VIEWS = (
    View("report-desktop.png", "run", 1280, 1120),
    View("report-tablet-dark.png", "run", 820, 1180, dark=True),
    View("report-phone.png", "run", 390, 1400),
    View("reconciliation-desktop.png", "across", 1280, 1000),
)


def browser() -> str | None:
    """Return a Chromium of this machine, None where there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def shoot(
    chromium: str, page: Path, to: Path, width: int, height: int, *, dark: bool = False
) -> None:
    """Write a PNG of the top of a page as a window of that size shows it.

    Browser windows have a least width, so the page stands in a frame, which may be as narrow as a
    phone.
    """
    with tempfile.TemporaryDirectory() as home:
        frame = Path(home) / "frame.html"
        scheme = "dark" if dark else "light"
        frame.write_text(
            f'<!doctype html><meta name="color-scheme" content="{scheme}">'
            "<style>body{margin:0;overflow:hidden}"
            f"iframe{{border:0;width:{width}px;height:{height}px}}</style>"
            f'<iframe src="{page.resolve().as_uri()}"></iframe>'
        )
        shown = ["--blink-settings=preferredColorScheme=" + ("0" if dark else "1")]
        _run(
            chromium,
            home,
            [*shown, f"--window-size={width},{height}", f"--screenshot={to}", frame.as_uri()],
        )


def print_pdf(chromium: str, page: Path, to: Path) -> None:
    """Write a page as the browser prints it."""
    with tempfile.TemporaryDirectory() as home:
        _run(
            chromium,
            home,
            ["--no-pdf-header-footer", f"--print-to-pdf={to}", page.resolve().as_uri()],
        )


def _run(chromium: str, home: str, arguments: list[str]) -> None:
    command = [chromium, *QUIET, f"--user-data-dir={home}/profile", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def pages(story: Story, folder: Path) -> dict[str, Path]:
    """Write the pages to look at: the run of the last night, and the look across runs."""
    context = story.bench.context
    reconcile_runs(context)
    rebuild(context, story.bench.stored(story.runs[-2]))
    contents = {
        "run": story.bench.content(keys_of(story.runs[-2]).report("report.html")),
        "across": story.bench.content(reconciliation(context.issuer.issuer) + "report.html"),
    }
    for name, content in contents.items():
        (folder / f"{name}.html").write_bytes(content)
    return {name: folder / f"{name}.html" for name in contents}


def main() -> int:
    """Live through twelve nights and write the screenshots."""
    chromium = browser()
    if chromium is None:
        print("no Chromium found: install it (Debian: apt-get install chromium)", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = pages(live(Path(folder), rows=400, per_chunk=100), Path(folder))
        for view in VIEWS:
            shoot(
                chromium,
                found[view.page],
                FOLDER / view.name,
                view.width,
                view.height,
                dark=view.dark,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
