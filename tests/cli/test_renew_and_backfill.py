"""Renewal and backfill as an operator types them."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli.main import main
from flows.database.connection import Database
from flows.runs.keys import extracts
from flows.wiring import open_store
from tests import keys
from tests.night import Bench, issuer

TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
max_row_jump = 5
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
"""
TODAY = datetime.now(UTC).date()


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    """Return the bench that writes where the command line of `tmp_path` reads."""
    (tmp_path / "store").mkdir()
    (tmp_path / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    return Bench(
        open_store(issuer(), tmp_path),
        issuer(),
        now=lambda: datetime.now(UTC),
        database=Database(tmp_path / "cardlink.db"),
    )


def cardlink(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--config", str(folder), *arguments])


def linked(bank: Bench, ends: date) -> None:
    bank.submit(bank.drop(20, f"bank-{TODAY:%Y%m%d}.csv"))
    bank.answer(expires=ends)
    bank.ingest()


def test_a_renewal_is_shown_first_then_made_then_found_done(bank: Bench, tmp_path: Path) -> None:
    linked(bank, TODAY + timedelta(days=10))

    shown = cardlink(tmp_path, "renew", "bank", "--within", "14d", "--dry-run")
    made = cardlink(tmp_path, *shlex.split(shown.stderr.rpartition("next: cardlink ")[2]))
    again = cardlink(tmp_path, "renew", "bank", "--within", "14d")

    assert [0, 0, 0] == [shown.exit_code, made.exit_code, again.exit_code]
    assert "20 links" in shown.stdout
    assert "would be renewed" in shown.stdout
    assert "20 links" in made.stdout
    assert "1 chunk to upload" in made.stdout
    assert "nothing to renew" in again.stdout
    assert re.search(r"card\.link\.awaiting +20 +nothing", again.stdout)


@pytest.mark.slow
def test_a_renewal_from_several_extracts_shows_the_run_of_each(bank: Bench, tmp_path: Path) -> None:
    for back in (2, 1):
        bank.submit(bank.drop(5, f"bank-{TODAY - timedelta(days=back):%Y%m%d}.csv", seed=back))
    bank.answer(expires=TODAY + timedelta(days=10))
    bank.ingest()

    shown = cardlink(tmp_path, "--json", "renew", "bank", "--dry-run")
    made = cardlink(tmp_path, *shlex.split(json.loads(shown.stdout)["next"])[1:])

    assert [5, 5] == [run["counts"]["submitted"] for run in json.loads(shown.stdout)["runs"]]
    assert "10 links that expire by" in made.stdout
    assert "in 2 runs" in made.stdout
    assert 2 == made.stdout.count("5 links are renewed")


def test_links_that_are_due_and_cannot_be_renewed_are_no_success(
    bank: Bench, tmp_path: Path
) -> None:
    linked(bank, TODAY + timedelta(days=10))
    (tmp_path / "store" / extracts("bank") / f"bank-{TODAY:%Y%m%d}.csv").unlink()

    tries = [cardlink(tmp_path, "renew", "bank", *more) for more in ((), ("--dry-run",))]

    assert [2, 2] == [done.exit_code for done in tries]
    assert all("ask the issuer to name these cardholders again" in done.stdout for done in tries)
    assert all(re.search(r"card\.extract\.gone +20 +fix at source", done.stdout) for done in tries)


@pytest.mark.parametrize("within", ["soon", "-1d", "366d", "²d"])
def test_a_time_that_is_no_number_of_days_is_refused(
    bank: Bench, tmp_path: Path, within: str
) -> None:
    done = cardlink(tmp_path, "renew", "bank", f"--within={within}")

    assert 2 == done.exit_code
    assert "Invalid value for '--within'" in done.stderr


@pytest.mark.slow
def test_a_backfill_prints_the_command_that_sends_its_list(bank: Bench, tmp_path: Path) -> None:
    for back in (1, 2):
        bank.drop(20, f"bank-{TODAY - timedelta(days=back):%Y%m%d}.csv", seed=back)
    span = ["--from", str(TODAY - timedelta(days=5)), "--to", str(TODAY)]

    listed = cardlink(tmp_path, "backfill", "bank", *span)
    command = listed.stderr.partition("next: cardlink ")[2].split()
    sent = cardlink(tmp_path, *command)
    over = cardlink(tmp_path, "--json", "backfill", "bank", *span)

    assert [0, 0, 0] == [listed.exit_code, sent.exit_code, over.exit_code]
    assert 2 == sent.stdout.count("20 read, 20 submitted")
    assert [] == json.loads(over.stdout)["missed"]


def test_a_list_that_is_not_the_one_asked_for_is_refused_and_nothing_is_sent(
    bank: Bench, tmp_path: Path
) -> None:
    bank.drop(20, f"bank-{TODAY:%Y%m%d}.csv")
    before = bank.snapshot()

    done = cardlink(
        tmp_path,
        "backfill",
        "bank",
        "--from",
        str(TODAY),
        "--to",
        str(TODAY),
        "--send",
        "0123456789ab",
    )

    assert 2 == done.exit_code
    assert "Nothing was sent" in done.stderr
    assert before == bank.snapshot()
