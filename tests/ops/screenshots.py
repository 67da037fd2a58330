"""Pictures of the Prefect UI after a night, kept under deploy/screenshots: `make screenshots-ui`
(needs a Chromium).
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from flows.extensions.simulator.demo import ISSUER
from tests.ops.browser import CHROMIUM, Page, browser
from tests.ops.stage import Stage, on_stage

PLACE = Path(__file__).parent.parent.parent / "deploy" / "screenshots"
SETTLE = 2  # seconds until charts are drawn and pages have slid in


def take(stage: Stage, page: Page) -> None:
    """Go through the night as an operator does, and take a picture at each step."""
    page.size(1280, 1000)
    stage.do(f"watch-{ISSUER}", issuer=ISSUER)  # it offers the extracts
    stage.form(page, "rerun")
    page.choose("Issuer", ISSUER)
    page.see("choose")
    page.picture(PLACE / "ui-dry-run-form.png")
    night = stage.do(f"nightly-{ISSUER}", issuer=ISSUER)
    stage.cardlink("simulate", ISSUER, "--secret-key", "portal-secret.asc")
    stage.do(f"ingest-{ISSUER}", issuer=ISSUER)
    show(page, f"{stage.url}/deployments", f"ingest-{ISSUER}", "ui-deployments.png")
    show(page, f"{stage.url}/runs?tag=nightly", "night of", "ui-nights.png")
    show(page, f"{stage.url}/runs/flow-run/{night.id}", "to upload", "ui-night.png")
    [run] = [path.name for path in (stage.folder / "store" / ISSUER / "runs").iterdir()]
    found = stage.artifacts()
    for key, text, name in (
        (f"{run}-chunks", ".csv.pgp", "ui-upload-list.png"),
        (f"{run}-balance", "linked", "ui-balance.png"),
    ):
        show(page, f"{stage.url}/artifacts/artifact/{found[key]['latest_id']}", text, name)


def show(page: Page, url: str, text: str, name: str) -> None:
    """Open an address, wait for a text, and take the picture."""
    page.go(url)
    page.see(text)
    time.sleep(SETTLE)
    page.picture(PLACE / name)


def main() -> None:
    """Take them all."""
    if CHROMIUM is None:
        sys.exit("no Chromium is installed (Debian: apt-get install chromium)")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "stage").mkdir()
        take(
            stack.enter_context(on_stage(folder / "stage")),
            stack.enter_context(browser(folder / "chromium")),
        )
    sys.stdout.write(f"pictures are in {PLACE}\n")


if __name__ == "__main__":
    main()
