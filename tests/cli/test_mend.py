"""`cardlink mend` and the dry runs of `cardlink outbox`, as an operator types them."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flows.cli.main import main
from flows.database.connection import Database
from flows.extensions.simulator.portal_key import PortalKey
from flows.wiring import open_store
from schemas.expressions import PUBLISHED
from tests import keys
from tests.night import Bench, issuer, made_once, uncommit

TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = 10
"""
WHY = ("--reason", f"the partner asked for it, see {PUBLISHED[0]}")
NEW = keys.sound(copy=2)
HEAD = "cuid,last_4,url,expiration_date,error\n"


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    """Return the bench that writes where the command line of `tmp_path` reads."""
    return bank_in(tmp_path)


def bank_in(folder: Path) -> Bench:
    """Return the bench that writes where the command line of a folder reads."""
    (folder / "store").mkdir()
    pin(folder, keys.sound())
    portal = {"rows_per_chunk": 10}
    return Bench(
        open_store(issuer(), folder),
        issuer(portal=portal),
        now=lambda: datetime.now(UTC),
        database=Database(folder / "cardlink.db"),
    )


@made_once
def sent(folder: Path, rows: int, bad: float = 0.0) -> str:
    """Submit a night of so many rows to the bank of a folder; return its run."""
    bank = bank_in(folder)
    return bank.submit(bank.drop(rows, bad=bad)).manifest.run


@pytest.fixture
def run(bank: Bench, tmp_path: Path) -> str:
    """A committed run of three chunks."""
    return sent(tmp_path, 30)


def pin(folder: Path, key: PortalKey) -> None:
    """Let the issuer's settings name this key of the portal."""
    (folder / "portal.asc").write_bytes(key.public)
    (folder / "bank.toml").write_text(TOML.format(fingerprint=key.fingerprint))


def cardlink(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--config", str(folder), *arguments])


def told(folder: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cardlink(folder, "--json", *arguments).stdout)
    # of a decision by number: what its command says
    return {**found, **found["outcomes"][0]} if found.get("outcomes") else found


def decided(folder: Path, *arguments: str) -> Result:
    """Decide as a person does: the dry run says how many rows it is about, and what to paste."""
    line = told(folder, *arguments, "--dry-run")["next"]
    return cardlink(folder, *shlex.split(line)[1:])


def history(folder: Path, run: str) -> list[tuple[str, str]]:
    """Return what happened to a run and why, where somebody said why."""
    found = told(folder, "report", run, "--history")["history"]
    return [(one["what"], one["facts"]["reason"]) for one in found if "reason" in one["facts"]]


@pytest.mark.parametrize("command", ["hold", "release", "cancel", "uploaded"])
def test_a_dry_run_of_the_outbox_says_what_would_be_noted_and_refuses_what_would_be_refused(
    bank: Bench, run: str, tmp_path: Path, command: str
) -> None:
    cardlink(tmp_path, "outbox", "hold", run, "3", *WHY)
    chunk, other = ("3", "1") if command == "release" else ("1", "3")
    why = () if command == "uploaded" else WHY
    before = bank.snapshot()

    tried = cardlink(tmp_path, "outbox", command, run, chunk, *why, "--dry-run")
    refused = cardlink(tmp_path, "outbox", command, run, other, *why, "--dry-run")

    assert (tried.exit_code, refused.exit_code) == (0, 2 if command == "uploaded" else 0)
    assert f"dry run, nothing was recorded: {run}: chunk {chunk} " in tried.stdout
    assert bank.snapshot() == before


def test_a_move_that_was_recorded_already_says_that_nothing_is_left_to_record(
    run: str, tmp_path: Path
) -> None:
    decided(tmp_path, "outbox", "hold", run, *WHY)

    repeated = cardlink(tmp_path, "outbox", "hold", run, *WHY)
    named = cardlink(tmp_path, "outbox", "hold", run, "2", *WHY)

    assert (0, 0) == (repeated.exit_code, named.exit_code)
    assert f"{run}: nothing to record; that was recorded for chunk 2 before" in named.stdout
    assert f"{run}: nothing to record; no chunk of it waits for its upload" in repeated.stdout


def test_a_run_is_abandoned_and_the_extract_submitted_as_a_new_run(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    uncommit(tmp_path, run)

    tried = cardlink(tmp_path, "mend", "abandon", run, *WHY, "--dry-run")
    done = cardlink(tmp_path, "mend", "abandon", run, *WHY)
    refused = cardlink(tmp_path, "submit", "bank", "--extract", "bank-20261120.csv")
    again = cardlink(
        tmp_path, "submit", "bank", "--extract", "bank-20261120.csv", "--new-run", "once more"
    )

    assert (tried.exit_code, done.exit_code, refused.exit_code, again.exit_code) == (0, 0, 2, 0)
    line, settings = done.stdout.splitlines()
    assert tried.stdout == f"dry run, nothing was changed: {line}\n"
    step = 'cardlink submit bank --extract bank-20261120.csv --new-run "WHY"'
    assert step in done.stderr.replace(f"--config {tmp_path} ", "")
    assert settings.startswith("bank: its settings are recorded")
    assert "the partner asked for it, see [masked]" in refused.stderr
    assert f"{run}-r2: 30 read, 30 submitted" in again.stdout
    assert history(tmp_path, run) == [("abandoned", "the partner asked for it, see [masked]")]


def test_a_claim_nobody_holds_is_said_to_be_free(run: str, tmp_path: Path) -> None:
    done = cardlink(tmp_path, "mend", "take-over", run, *WHY)

    assert done.exit_code == 2
    assert "no claim to take over" in done.stderr


def test_chunks_are_sealed_anew_once_the_settings_name_the_new_key(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    before = bank.chunks(run)
    pin(tmp_path, NEW)

    tried = told(tmp_path, "mend", "reseal", run, *WHY, "--dry-run")
    done = told(tmp_path, "mend", "reseal", run, *WHY)
    again = cardlink(tmp_path, "mend", "reseal", run, *WHY)

    bank.key = NEW
    assert (tried["chunks"], done["chunks"], done["retired"]) == ([1, 2, 3], [1, 2, 3], 3)
    assert bank.chunks(run) == before
    assert "already" in again.stdout
    assert ("sealed anew", "the partner asked for it, see [masked]") in history(tmp_path, run)


@pytest.mark.slow
def test_a_row_is_attributed_withdrawn_and_its_break_closed(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    bank.answer(fail_share=0.0)
    bank.ingest()
    bank.drop_result(
        f"{HEAD},,,,[object Object]\n".encode(), f"card-links-{run}-00001-result-2.csv"
    )
    out = cardlink(tmp_path, "ingest", "bank")
    name = f"card-links-{run}-00001-result-2.csv"

    taken = cardlink(
        tmp_path, "mend", "attribute", "bank", name, "--row", "1", "--to", f"{run}:1", *WHY
    )
    closed = decided(tmp_path, "mend", "close", run, "UNATTRIBUTED_ERROR", *WHY)
    opened = decided(tmp_path, "mend", "reopen", run, "UNATTRIBUTED_ERROR", *WHY)

    assert (out.exit_code, taken.exit_code, closed.exit_code, opened.exit_code) == (4, 2, 0, 4)
    assert "is linked already" in taken.stderr
    assert "closed by" in closed.stdout
    assert "1 closed by hand" in closed.stdout
    assert [what for what, _ in history(tmp_path, run)] == ["break closed", "break reopened"]


@pytest.mark.slow
def test_a_result_is_taken_up_again_and_the_next_step_named(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    bank.answer(fail_share=0.0)
    cardlink(tmp_path, "ingest", "bank")

    done = cardlink(
        tmp_path, "mend", "ingest-again", "bank", f"card-links-{run}-00002-result.csv", *WHY
    )

    assert done.exit_code == 0
    assert "\nbalanced" in done.stdout
    assert f"next: cardlink --config {tmp_path} worklist bank\n" == done.stderr


@pytest.mark.parametrize("to", ["nonsense", "bank-20261120-00000000:1", "{run}:x", "{run}:99"])
def test_a_place_that_is_none_is_refused(bank: Bench, run: str, tmp_path: Path, to: str) -> None:
    bank.drop_result(f"{HEAD},,,,[object Object]\n".encode(), "a.csv")

    done = cardlink(
        tmp_path,
        "mend",
        "attribute",
        "bank",
        "a.csv",
        "--row",
        "1",
        "--to",
        to.format(run=run),
        *WHY,
    )

    assert done.exit_code == 2


@pytest.mark.slow
def test_cards_are_given_up_by_the_command_of_a_line_which_is_gone_then(
    bank: Bench, tmp_path: Path
) -> None:
    sent(tmp_path, 20, bad=0.2)
    lines = {line["kind"]: line for line in told(tmp_path, "worklist", "bank")["worklist"]}
    rejected = [line for kind, line in lines.items() if "correct" in kind]
    commands = [line["decisions"][-1]["command"].replace("WHY", "closed") for line in rejected]

    done = [told(tmp_path, *shlex.split(command)[1:]) for command in commands]
    left = {line["kind"] for line in told(tmp_path, "worklist", "bank")["worklist"]}

    assert [line["rows"] for line in rejected] == [each["cards"] for each in done]
    assert {"chunks to upload"} == left


def test_the_command_says_where_the_cards_stood_and_takes_them_up_again(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    given_up = cardlink(tmp_path, "mend", "give-up", run, "--row", "1", "--row", "2", *WHY)
    repeated = cardlink(tmp_path, "mend", "give-up", run, "--row", "1", *WHY)
    taken_up = cardlink(tmp_path, "mend", "give-up", run, "--row", "1", *WHY, "--undo")
    nothing = cardlink(tmp_path, "mend", "give-up", "bank", *WHY)

    assert (0, 0, 0, 2) == (
        given_up.exit_code,
        repeated.exit_code,
        taken_up.exit_code,
        nothing.exit_code,
    )
    assert f"{run}: 2 cards given up (2 to upload until then)" in given_up.stdout
    assert f"{run}: nothing new; everything selected is given up already" in repeated.stdout
    assert f"{run}: 1 card taken up again (1 to upload now)" in taken_up.stdout
