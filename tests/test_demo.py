"""The demo as a newcomer runs it: the real flows on an embedded Prefect server, and what it leaves
behind.
"""

import csv
import json
import re
import subprocess
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from flows.extensions.simulator.demo import NotADemoError, make_room
from schemas.portal import columns
from tests.transcript import run_demo, transcript

NOT_SENT = ("rejected", "ineligible", "duplicate", "suppressed")


class Demo(NamedTuple):
    """One demo that was run: its folder and what it printed."""

    folder: Path
    printed: str

    @property
    def run(self) -> Path:
        """The folder of its one run."""
        return next((self.folder / "store" / "sample-bank" / "runs").iterdir())


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "demo"
    return Demo(folder, run_demo(folder))


def test_the_readmes_transcript_is_what_the_demo_prints(demo: Demo) -> None:
    assert transcript() == demo.printed, "run: python -m tests.reference"


def test_every_source_row_stands_exactly_once_in_the_balance(demo: Demo) -> None:
    summary = json.loads((demo.run / "report" / "summary.json").read_text())
    rows = summary["rows"]
    extract = next((demo.folder / "store" / "sample-bank" / "extracts").iterdir()).read_text(
        "utf-8", "replace"
    )
    trailer = int(extract.rstrip().rpartition("#TRAILER,")[2])

    fates = sum(rows.get(fate, 0) for fate in ("linked", "error", "awaiting", *NOT_SENT))

    assert trailer == rows["read"] == fates


def test_the_report_shows_what_is_known_of_links_what_is_not_and_what_was_refused(
    demo: Demo,
) -> None:
    summary = json.loads((demo.run / "report" / "summary.json").read_text())
    page = (demo.run / "report" / "report.html").read_text("utf-8")

    stages = {stage["stage"]: stage for stage in summary["funnel"]["stages"]}
    causes = {cause["cause"] for cause in stages["placed"]["unknown"]}

    assert 0 < stages["placed"]["cardholders"] < stages["opened"]["cardholders"]
    assert {
        "service.answer.refused.403",
        "service.answer.unreadable",
        "link.record.missing",
    } == causes
    assert "From link to placed card" in page


def test_plain_gpg_opens_a_chunk_and_a_stock_csv_reader_finds_every_column(
    demo: Demo, tmp_path: Path
) -> None:
    home = tmp_path / "g"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    subprocess.run([*gpg, "--import", str(demo.folder / "portal-secret.asc")], check=True)

    opened = [
        subprocess.run([*gpg, "--decrypt", str(chunk)], check=True, capture_output=True).stdout
        for chunk in sorted((demo.run / "chunks").iterdir())
    ]
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)

    tables = [list(csv.reader(StringIO(text.decode(), newline=""))) for text in opened]
    assert tables
    assert all(table[0] == list(columns()) for table in tables)
    assert all(1 <= len(table) - 1 <= 1000 for table in tables)
    assert {len(columns())} == {len(row) for table in tables for row in table}


def test_prefect_keeps_no_card_number(demo: Demo) -> None:
    extract = next((demo.folder / "store" / "sample-bank" / "extracts").iterdir()).read_bytes()
    numbers = set(re.findall(rb"(?<!\d)[2-6]\d{15}(?!\d)", extract))

    kept = [path for path in (demo.folder / "prefect").rglob("*") if path.is_file()]
    leaks = [path.name for path in kept if any(number in path.read_bytes() for number in numbers)]

    assert len(numbers) > 5
    assert any(path.suffix == ".db" for path in kept)
    assert leaks == []


def test_a_folder_that_no_demo_made_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")

    with pytest.raises(NotADemoError) as refused:
        make_room(tmp_path)

    assert "Name another folder with --dir" in str(refused.value)
    assert ["letter.txt"] == [path.name for path in tmp_path.iterdir()]
