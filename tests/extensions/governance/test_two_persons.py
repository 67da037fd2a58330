"""Who acts, and acts that need a second person: as two operators type them, and as their forms do
it.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from click.testing import CliRunner, Result

from flows.cli.main import COMMANDS, main
from flows.commands.context import Context
from flows.commands.form import Form
from flows.commands.outbox import release
from flows.database.connection import Database
from flows.extensions.governance.requests import OF_PEOPLE
from flows.extensions.governance.two_persons import ApprovalError
from flows.runs.keys import keys_of
from flows.runs.stored_run import StoredRun
from flows.wiring import ActorError, open_store
from schemas.expressions import PUBLISHED
from tests import keys
from tests.night import Bench, issuer, made_once

TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.01
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = 10
[four_eyes]
acts = ["release", "gates", "override", "purge", "accept", "give-up"]
hours = 2
"""
WHY = ("--reason", f"the issuer agreed, see {PUBLISHED[0]}")


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    """Return the bench that writes where the command line of `tmp_path` reads."""
    return bank_in(tmp_path)


def bank_in(folder: Path) -> Bench:
    (folder / "store").mkdir()
    (folder / "portal.asc").write_bytes(keys.sound().public)
    (folder / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    portal = {"rows_per_chunk": 10}
    return Bench(
        open_store(issuer(), folder),
        issuer(portal=portal),
        now=lambda: datetime.now(UTC),
        database=Database(folder / "cardlink.db"),
    )


@pytest.fixture
def run(bank: Bench, tmp_path: Path) -> str:
    """A committed run of three chunks, of which the first is held."""
    return held(tmp_path)


@made_once
def held(folder: Path) -> str:
    bank = bank_in(folder)
    found = bank.submit(bank.drop(30)).manifest.run
    assert typed(folder, "outbox", "hold", found, "1", *WHY, "--actor", "anna").exit_code == 0
    return found


def typed(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--config", str(folder), "--json", *arguments])


def facts(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def asked(folder: Path, *arguments: str, who: str = "anna") -> str:
    """Ask for something and return the number of the request."""
    done = typed(folder, *arguments, "--actor", who)
    assert done.exit_code == 3, done.stdout
    return str(facts(done)["request"])


def others(bank: Bench) -> dict[str, bytes]:
    """Return everything in the store but segments of the journal."""
    return {
        key: data for key, data in bank.snapshot().items() if not key.startswith("bank/journal/")
    }


def states(bank: Bench, run: str) -> list[str]:
    return [item.state for item in StoredRun.by_id(bank.adapters, run).outbox]


def test_a_release_waits_for_a_second_person_and_records_both(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    done = facts(typed(tmp_path, "outbox", "release", run, "1", *WHY, "--actor", "anna"))
    before = states(bank, run)

    # pasted as it is
    carried = typed(tmp_path, *shlex.split(done["next"].replace("YOUR_NAME", "bert"))[1:])

    assert (0, "held", "waiting") == (carried.exit_code, before[0], states(bank, run)[0])
    [event] = [
        one
        for one in facts(typed(tmp_path, "report", run, "--history"))["history"]
        if one["what"] == "released"
    ]
    assert event["by"].startswith("bert for anna via ")
    ours = {key: data for key, data in bank.snapshot().items() if "/extracts/" not in key}
    assert PUBLISHED[0] not in str(ours)


@pytest.mark.parametrize(
    ("arguments", "who", "why"),
    [
        (("1",), "anna", "anna made it"),
        (("1",), "ANNA", "anna made it"),
        ((), "bert", "other parameters: chunks.1: 1 -> nothing"),
        (("2",), "bert", "other parameters: chunks.1: 1 -> 2"),
    ],
)
def test_another_carries_out_exactly_what_was_asked_for(
    bank: Bench, run: str, tmp_path: Path, arguments: tuple[str, ...], who: str, why: str
) -> None:
    number = asked(tmp_path, "outbox", "release", run, "1", *WHY)

    done = typed(
        tmp_path, "outbox", "release", run, *arguments, *WHY, "--actor", who, "--approve", number
    )

    assert (2, ApprovalError.__name__) == (done.exit_code, facts(done)["error"])
    assert why in facts(done)["message"]
    assert "held" == states(bank, run)[0]


def test_a_request_is_used_once_and_not_after_its_hours(
    bank: Bench, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("outbox", "release", run, "1", *WHY)
    first, late = asked(tmp_path, *line), asked(tmp_path, *line, who="carl")
    once = typed(tmp_path, *line, "--actor", "bert", "--approve", first)
    typed(tmp_path, "outbox", "hold", run, "1", *WHY)

    again = typed(tmp_path, *line, "--actor", "bert", "--approve", first)
    monkeypatch.setattr("flows.wiring.now", lambda: datetime.now(UTC) + timedelta(hours=2))
    expired = typed(tmp_path, *line, "--actor", "bert", "--approve", late)

    assert (0, 2, 2) == (once.exit_code, again.exit_code, expired.exit_code)
    assert "bert used it" in facts(again)["message"]
    assert "it expired" in facts(expired)["message"]
    assert "held" == states(bank, run)[0]


def test_a_command_that_fails_gives_its_request_back(bank: Bench, run: str, tmp_path: Path) -> None:
    line = ("outbox", "release", run, "1", *WHY)
    number = asked(tmp_path, *line)
    other = asked(tmp_path, *line, who="carl")
    typed(tmp_path, *line, "--actor", "bert", "--approve", other)
    done_by_other = typed(tmp_path, *line, "--actor", "bert", "--approve", number)

    typed(tmp_path, "outbox", "hold", run, "1", *WHY)
    done = typed(tmp_path, *line, "--actor", "bert", "--approve", number)

    assert (0, 0) == (done_by_other.exit_code, done.exit_code)
    assert facts(done_by_other)["done"]["by"].startswith("bert for carl")
    assert ["waiting"] * 3 == states(bank, run)


def test_a_request_cannot_be_made_for_what_would_be_refused(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    before = bank.snapshot()

    done = typed(tmp_path, "outbox", "release", run, "9", *WHY, "--actor", "anna")

    assert "NotFoundError" == facts(done)["error"]
    assert before == bank.snapshot()


@pytest.mark.parametrize(
    "line",
    [
        ("submit", "bank", "--extract", "more-20261121.csv", "--open", "reject-rate"),
        ("resubmit", "RUN", "--row", "1", "--reason", "lost", "--override", "the portal lost it"),
        ("purge", "bank"),
        ("purge",),
    ],
)
def test_a_gate_an_override_and_a_purge_wait_too_and_change_nothing(
    bank: Bench, run: str, tmp_path: Path, line: tuple[str, ...]
) -> None:
    bank.drop(20, "more-20261121.csv", bad=0.3, seed=2)
    before = others(bank)

    done = typed(tmp_path, *(run if word == "RUN" else word for word in line), "--actor", "anna")

    assert (3, before) == (done.exit_code, others(bank))


def test_a_file_that_was_replaced_meanwhile_is_not_what_was_agreed_to(
    bank: Bench, tmp_path: Path
) -> None:
    bank.drop(20, "more-20261121.csv", bad=0.3, seed=2)
    line = ("submit", "bank", "--extract", "more-20261121.csv", "--open", "reject-rate")
    number = asked(tmp_path, *line)
    bank.drop(20, "more-20261121.csv", bad=0.3, seed=3)

    done = typed(tmp_path, *line, "--actor", "bert", "--approve", number)

    assert "other files: bank/extracts/more-20261121.csv: " in facts(done)["message"]


def test_a_form_asks_and_approves_by_the_same_code(bank: Bench, run: str, tmp_path: Path) -> None:
    here, given = Context(tmp_path), {"run": run, "chunks": (1,), "reason": "it is right"}
    first = release.invoke(here, {**given, "actor": "anna", "approve": ""})

    with pytest.raises(ApprovalError):
        release.invoke(here, {**given, "actor": "anna", "approve": first.facts["request"]})
    release.invoke(here, {**given, "actor": "bert", "approve": first.facts["request"]})

    assert ["waiting"] * 3 == states(bank, run)


def test_whoever_acts_is_recorded_beside_the_worker(bank: Bench, run: str, tmp_path: Path) -> None:
    found = facts(typed(tmp_path, "report", run, "--history"))["history"]

    [held] = [one["by"] for one in found if one["what"] == "held"]

    person, _, worker = held.partition(" via ")
    assert "anna" == person
    assert "@" in worker


def test_only_names_that_the_installation_accepts_may_act(
    bank: Bench, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARDLINK_ACTORS", "anna|bert")
    line = ("outbox", "hold", run, "2", *WHY)

    unnamed, stranger = typed(tmp_path, *line), typed(tmp_path, *line, "--actor", "annabel")
    known = typed(tmp_path, *line, "--actor", "bert")

    assert [ActorError.__name__] * 2 == [facts(unnamed)["error"], facts(stranger)["error"]]
    assert 0 == known.exit_code


@pytest.mark.parametrize(
    "name", ["anna; rm", "your name", f"anna{PUBLISHED[0]}", "anna-4242-4242-4242-4242", "x" * 65]
)
def test_what_cannot_be_a_name_is_refused(bank: Bench, run: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(ActorError) as refused:
        release.invoke(Context(tmp_path, actor=name), {"run": run, "reason": "x", "dry_run": True})

    assert PUBLISHED[0] not in str(refused.value)


def test_a_rule_of_names_that_is_none_is_named(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARDLINK_ACTORS", "(")

    done = typed(tmp_path, "outbox", "release", run, *WHY)

    assert (2, True) == (
        done.exit_code,
        "CARDLINK_ACTORS is not a regular" in facts(done)["message"],
    )


def test_every_command_and_form_that_changes_something_asks_who_acts() -> None:
    reads = {one.name for one in COMMANDS if not one.changes}

    by_hand = {
        one.name for one in COMMANDS if isinstance(one.form, Form) and one.form.actor == "required"
    }

    assert reads == {
        "init",
        "check",
        "upload",
        "report",
        "worklist",
        "show",
        "cardholders",
        "programme",
        "trace",
        "corrections",
        "person export",
        "audit verify",
        "audit export",
        "audit witness",
        "audit witness-key",
        "backup",
        "job follow",
        "job watch",
        "service probe",
        "record",
        "sample",
        "simulate",
        "practice",
        "practice people",
        "settings",
        "changelog",
        "demo",
        "install",
        "deploy-files",
        "completion",
    }
    assert by_hand >= {
        "submit",
        "outbox release",
        "resubmit",
        "backfill",
        "dismiss",
        "mend close",
    }
    assert all(
        [one.name for one in entry.parameters][-1] == "actor" for entry in COMMANDS if entry.changes
    )


def test_the_evidence_of_a_run_holds_what_an_assessor_needs_and_neither_cardholder_nor_link(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    number = asked(tmp_path, "outbox", "release", run, "1", *WHY)
    typed(tmp_path, "outbox", "release", run, "1", *WHY, "--actor", "bert", "--approve", number)
    bank.answer()
    short = next(entry.key for entry in bank.store.keys("bank/results/"))
    bank.store.replace(
        short, [bank.content(short).rpartition(b"\n")[0].rpartition(b"\n")[0] + b"\n"]
    )
    typed(tmp_path, "ingest", "bank")
    assert "RESULT_SHORT" in bank.report(run, "breaks.csv").decode()

    done = facts(typed(tmp_path, "audit", "export", "bank", run))

    with ZipFile(BytesIO(bank.content(keys_of(run).report("audit.zip")))) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {
        "README.md",
        "SHA256SUMS",
        "history.json",
        "settings.json",
        "journal.jsonl",
        "objects.sha256",
    } <= set(files)
    assert {
        "run.json",
    } <= set(files)
    assert {f"runs/{run}/report/summary.json", f"runs/{run}/report/chunks.csv"} <= set(files)
    [asked_for] = json.loads(files["requests.json"])
    assert (number, "anna", "bert") == tuple(
        asked_for[name] for name in ("number", "actor", "second")
    )
    # what it was given may name somebody
    assert not set(OF_PEOPLE) & asked_for.keys()
    assert "outbox release" == asked_for["command"]
    assert "bert for anna via" in files["README.md"]
    assert keys.sound().fingerprint in files["run.json"]
    assert sorted(files) == sorted([*done["files"], "SHA256SUMS"])
    links = bank.report(run, "links.csv").decode().splitlines()[1:]
    secrets = {
        cell
        for line in links
        for cell in line.split(",")
        if cell.startswith("https://") or len(cell) > 20
    }
    assert secrets
    secrets |= set(bank.ledger(run)["cuid"].drop_nulls())
    assert not [name for name, text in files.items() if any(secret in text for secret in secrets)]
    assert 0 == typed(tmp_path, "audit", "verify", "bank").exit_code


def test_a_trail_that_was_touched_ends_with_the_exit_code_of_a_balance_that_does_not(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "cardlink.db")) as database, database:
        database.execute("UPDATE chunk SET state = 'uploaded' WHERE number = 1")
    chunk = f"chunk/{run}/1"

    done = typed(tmp_path, "audit", "verify", "bank")

    assert (4, chunk, "changed") == (
        done.exit_code,
        facts(done)["findings"][0]["key"],
        facts(done)["findings"][0]["what"],
    )
    closed = ("audit", "accept", "bank", chunk, "--reason", "restored from a copy")
    number = asked(tmp_path, *closed)
    assert 0 == typed(tmp_path, *closed, "--actor", "bert", "--approve", number).exit_code
    assert 0 == typed(tmp_path, "audit", "verify", "bank").exit_code


def test_giving_up_waits_for_a_second_person(bank: Bench, run: str, tmp_path: Path) -> None:
    line = ("mend", "give-up", run, "--row", "1", *WHY)
    number = asked(tmp_path, *line)

    carried = typed(tmp_path, *line, "--actor", "bert", "--approve", number)

    assert (0, 1) == (carried.exit_code, facts(carried)["cards"])
