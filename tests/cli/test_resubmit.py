"""The corrected-file loop as an operator types it."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli.main import main
from flows.runs.keys import corrections
from flows.wiring import open_store
from schemas.corrections import Template
from schemas.portal import CITY, CUID, PAN
from tests import keys
from tests.again import PANS, correct
from tests.builders import portal_rows
from tests.cli.test_mend import decided
from tests.night import Bench, issuer, portal_csv

TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 1.0
max_error_rate = 1.0
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
"""


@pytest.fixture
def bank(tmp_path: Path) -> tuple[Bench, str]:
    """Return the bench that writes where the command line of `tmp_path` reads, and a run with two
    rejects.
    """
    (tmp_path / "store").mkdir()
    (tmp_path / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    limits = {"max_reject_rate": 1.0, "max_error_rate": 1.0}
    bench = Bench(
        open_store(issuer(), tmp_path), issuer(limits=limits), now=lambda: datetime.now(UTC)
    )
    rows = portal_rows({PAN: PANS[0]}, {PAN: PANS[1], CITY: None}, {PAN: PANS[2], CITY: None})
    return bench, bench.submit(bench.drop_bytes(portal_csv(rows))).manifest.run


def cardlink(folder: Path, *arguments: object) -> Result:
    """Type a command."""
    return CliRunner().invoke(main, ["--config", str(folder), *map(str, arguments)])


def fill(path: Path, **values: str) -> None:
    """Fill in a template by row, as a spreadsheet saves it: semicolons, CRLF, a BOM."""
    lines = list(csv.DictReader(path.read_text("utf-8-sig").splitlines()))
    with path.open("w", encoding="utf-8-sig", newline="") as out:
        writer = csv.DictWriter(out, list(Template.dtypes()), delimiter=";")
        writer.writeheader()
        writer.writerows(
            {**line, "correction": values.get(f"row{line['row']}", "")} for line in lines
        )


def test_the_loop_from_template_to_upload(bank: tuple[Bench, str], tmp_path: Path) -> None:
    bench, run = bank
    path = tmp_path / "wrong.csv"

    written = cardlink(tmp_path, "corrections", run, "--to", path)
    fill(path, row2="Salem", row3="Salem")
    rehearsed = cardlink(tmp_path, "resubmit", run, "--corrections", path, "--dry-run")
    dropped = list(bench.store.keys(corrections("bank")))
    sent = cardlink(
        tmp_path, "resubmit", run, "--corrections", path, "--reason", "the branch called"
    )
    again = cardlink(
        tmp_path, "resubmit", run, "--corrections", path, "--reason", "the branch called"
    )

    assert [0, 0, 0, 0] == [one.exit_code for one in (written, rehearsed, sent, again)]
    assert "2 lines, one per row and reason" in written.stdout
    assert f"2 rows of {run} would be sent again" in rehearsed.stdout
    assert [] == dropped
    assert f": 2 rows of {run} are sent again" in sent.stdout
    assert f"{sent.stdout.partition(':')[0]}: already committed, nothing to do" in again.stdout


@pytest.mark.slow
def test_one_template_corrects_the_rows_of_all_runs_each_in_a_run_of_its_own(
    bank: tuple[Bench, str], tmp_path: Path
) -> None:
    bench, first = bank
    rows = portal_rows({PAN: PANS[3], CUID: "d-1"}, {PAN: PANS[4], CUID: "d-2", CITY: None})
    night = bench.drop_bytes(portal_csv(rows), "bank-20261121.csv")
    second = bench.submit(night).manifest.run
    path = tmp_path / "wrong.csv"

    written = cardlink(tmp_path, "corrections", "bank", "--to", path)
    fill(path, row2="Salem", row3="Salem")
    rehearsed = cardlink(tmp_path, "resubmit", "bank", "--corrections", path, "--dry-run")
    sent = cardlink(tmp_path, "resubmit", "bank", "--corrections", path, "--reason", "they called")

    assert "3 lines, one per row and reason" in written.stdout
    assert f"resubmit bank --corrections {path}" in rehearsed.stderr
    assert (0, 0) == (rehearsed.exit_code, sent.exit_code)
    assert f": 2 rows of {first} are sent again" in sent.stdout
    assert f": 1 row of {second} are sent again" in sent.stdout
    assert 2 == len(list(bench.store.keys(corrections("bank"))))


@pytest.mark.slow
def test_results_that_came_are_taken_in_once_before_the_rows_of_all_runs_are_selected(
    bank: tuple[Bench, str], tmp_path: Path
) -> None:
    bench, first = bank
    night = bench.drop_bytes(
        portal_csv(portal_rows({PAN: PANS[3], CUID: "d-1"})), "bank-20261121.csv"
    )
    second = bench.submit(night).manifest.run
    bench.answer(fail_share=1.0, seed=3)

    sent = decided(tmp_path, "resubmit", "bank", "--errors", "--reason", "they called")

    assert 0 == sent.exit_code
    assert all(f" of {run} are sent again" in sent.stdout for run in (first, second))
    assert 1 == len(list(bench.store.keys("bank/ingested/files-")))


def test_a_template_is_for_its_owner_alone_and_overwrites_nothing(
    bank: tuple[Bench, str], tmp_path: Path
) -> None:
    _, run = bank
    path = tmp_path / "wrong.csv"
    cardlink(tmp_path, "corrections", run, "--to", path)
    before = path.read_bytes()

    refused = cardlink(tmp_path, "corrections", run, "--to", path)

    assert (2, before) == (refused.exit_code, path.read_bytes())
    assert 0o600 == path.stat().st_mode & 0o777
    assert "already exists" in refused.stderr


@pytest.mark.slow
def test_a_dry_run_lists_what_stays_and_why_for_people_and_machines(
    bank: tuple[Bench, str], tmp_path: Path
) -> None:
    bench, run = bank
    fixed = portal_rows({PAN: PANS[0]}, {PAN: PANS[1]}, {PAN: PANS[4], CUID: "c-9"})
    name = correct(bench, portal_csv(fixed))
    asked = [
        "resubmit",
        run,
        "--rejects",
        "--row",
        "1",
        "--extract",
        name,
        "--dry-run",
        "--override",
        "asked to",
    ]

    shown = cardlink(tmp_path, *asked)
    told = json.loads(cardlink(tmp_path, "--json", *asked).stdout)

    assert "1 of them are linked or awaiting: the override sends them a second time" in shown.stdout
    assert "1 row of the corrected extract replace no selected row" in shown.stdout
    assert "--override 'asked to'" in shown.stderr
    assert (2, 1, {"not in the corrected extract": 1}) == (
        told["rows"],
        told["overridden"],
        told["left"],
    )
    assert not [pan for pan in PANS if pan in shown.stdout + json.dumps(told)]


def test_what_is_refused_is_told_in_a_sentence_with_exit_code_2(
    bank: tuple[Bench, str], tmp_path: Path
) -> None:
    _, run = bank

    nothing = cardlink(tmp_path, "resubmit", run, "--reason", "why not")
    unreasoned = cardlink(tmp_path, "resubmit", run, "--errors")
    standing = cardlink(tmp_path, "resubmit", run, "--row", "1", "--reason", "why not")

    assert [2, 2, 2] == [one.exit_code for one in (nothing, unreasoned, standing)]
    assert "rows to resubmit are not given" in nothing.stderr
    assert "--reason" in unreasoned.stderr
    assert (
        "1 of the selected rows are linked, awaiting their result, given up, left out by [status] "
        f"since, or have left (rows 1; in {run})" in standing.stderr
    )
