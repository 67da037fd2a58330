"""A decision about several rows carries how many were shown, and is refused for others."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.commands.context import Context
from flows.database.connection import Database
from flows.reports.work_kinds import WORK
from flows.runs.journal import entries
from flows.runs.shown_rows import OtherRowsError
from flows.steps import Step
from schemas.database import JOURNAL
from schemas.portal import CUID, PAN, POSTAL_CODE
from tests.builders import portal_rows
from tests.cli.test_mend import bank_in, cardlink, decided, told
from tests.mentions import ENTRIES
from tests.night import Bench, edges, issuer, portal_csv
from tests.test_dry_runs import CASES, WHY, Facts, objects, outbox

UNNAMED = ("outbox release", "outbox cancel", "mend close", "mend reopen", "mend keep-link")
PANS = ["4242424242424242", "4111111111111111", "5555555555554444", "4000056655665556"]


def deciding(folder: Path, command: str) -> Facts:
    case = {**outbox(folder), **WHY} if command == "outbox hold" else CASES[command](folder)
    return {name: value for name, value in case.items() if name != "rows"}


BEGINNING = ("settings recorded", "incarnation begun")  # what the first command enters


def recorded(folder: Path) -> tuple[object, list[int]]:
    """Return what the store and the journal have, apart from what the first command enters."""
    bank = edges(LocalStore(folder / "store"), Database(folder / "cardlink.db"))
    of_acts = entries(bank, "bank", JOURNAL.c.what.not_in(BEGINNING))
    return objects(folder), [entry.number for entry in of_acts]


@pytest.mark.parametrize("command", ["outbox hold", *UNNAMED])
def test_a_decision_needs_the_number_that_its_dry_run_shows(tmp_path: Path, command: str) -> None:
    case = deciding(tmp_path, command)
    entry = ENTRIES[command]
    before = recorded(tmp_path)

    tried = entry(Context(tmp_path), **case, dry_run=True)
    refused = list[int]()
    for rows in ("", "999"):
        with pytest.raises(OtherRowsError) as raised:
            entry(Context(tmp_path), **case, rows=rows)
        refused.append(raised.value.fields["count"])
    unchanged = recorded(tmp_path)
    entry(Context(tmp_path), **case, rows=str(tried.rows))

    assert f"--rows {tried.rows} " in str(tried.next_step)
    assert [tried.rows] * 2 == refused
    assert before == unchanged != recorded(tmp_path)


def refused_rows(bench: Bench, name: str, *cuids: str) -> None:
    """Submit an extract of these cardholders, whose rows we refuse."""
    rows = (
        {CUID: cuid, PAN: pan, POSTAL_CODE: "ABC"} for cuid, pan in zip(cuids, PANS, strict=False)
    )
    bench.submit(bench.drop_bytes(portal_csv(portal_rows(*rows)), name))


def giving_up(folder: Path) -> list[str]:
    """Return the words of the line of the worklist that gives up the rows to correct."""
    lines = told(folder, "worklist", "bank")["together"]
    [line] = [line for line in lines if line["kind"] == "rows to correct"]
    [command] = [each["command"] for each in line["decisions"] if each["decision"] == "give up"]
    return shlex.split(command.replace("WHY", "closed"))[1:]


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    limits = {"max_reject_rate": 1.0, "max_row_jump": 9.0}
    return replace(bank_in(tmp_path), issuer=issuer(limits=limits))


def test_a_line_of_the_worklist_is_refused_once_others_have_come(
    bank: Bench, tmp_path: Path
) -> None:
    refused_rows(bank, "bank-20261120.csv", "a", "b")
    refused_rows(bank, "bank-20261121.csv", "c")
    line = giving_up(tmp_path)
    refused_rows(bank, "bank-20261122.csv", "d", "e")

    again = giving_up(tmp_path)
    cardlink(tmp_path, "mend", "give-up", "bank", "--cuid", "d", "--reason", "closed")

    stale = cardlink(tmp_path, *again)
    done = cardlink(tmp_path, *line)

    assert (["1-2"], ["1-3"]) == ([line[2]], [again[2]])
    assert (2, 0) == (stale.exit_code, done.exit_code)
    assert "bank 3: rows: 2 when it was shown" in stale.stderr
    assert "2 cards given up" in done.stdout
    assert "1 card given up" in done.stdout


def test_a_line_of_the_worklist_is_refused_once_some_of_its_rows_are_settled(
    bank: Bench, tmp_path: Path
) -> None:
    refused_rows(bank, "bank-20261120.csv", "a", "b", "c")
    line = giving_up(tmp_path)
    cardlink(tmp_path, "mend", "give-up", "bank", "--cuid", "a", "--reason", "closed")

    stale = cardlink(tmp_path, *line)

    assert 2 == stale.exit_code
    assert "bank 1: rows: 3 when it was shown, 2 now. Nothing was done." in stale.stderr


def test_cards_that_are_named_one_by_one_need_no_number(bank: Bench, tmp_path: Path) -> None:
    refused_rows(bank, "bank-20261120.csv", "a", "b")

    done = cardlink(
        tmp_path, "mend", "give-up", "bank", "--cuid", "a", "--cuid", "b", "--reason", "closed"
    )

    assert 0 == done.exit_code
    assert "2 cards given up" in done.stdout


def test_every_decision_of_the_worklist_about_rows_that_are_not_named_carries_their_number() -> (
    None
):
    choices = [choice for kind in WORK.values() for choice in kind.choices]
    steps = [choice.command for choice in choices if takes_rows(choice.command)]

    lacking = [str(step.entry) for step in steps if not {"rows", "dry_run"} & {*dict(step.options)}]

    assert [] == [entry for entry in lacking if not entry.startswith("outbox")]
    assert {"mend give-up", "mend keep-link", "mend close", "mend reopen"} <= {
        step.entry for step in steps
    }


def takes_rows(step: Step) -> bool:
    """Return whether a step is a decision about rows that are not named one by one."""
    names = {"cuid", "corrections", "extract"}
    is_named = not names.isdisjoint(dict(step.options)) or (
        "chunks" in step.slots and "outbox" in step.entry
    )
    return ENTRIES[step.entry].has_parameter("rows") and not is_named


def all_refused(bench: Bench, name: str, rows: int) -> None:
    """Submit an extract whose rows the partner all refuses."""
    bench.submit(bench.drop(rows, name, seed=rows))
    bench.answer(fail_share=1.0, seed=1)
    bench.ingest()


SEND = ("resubmit", "bank", "--errors", "--reason", "the portal was down")


def test_rows_are_sent_again_only_as_many_as_the_dry_run_showed(
    bank: Bench, tmp_path: Path
) -> None:
    all_refused(bank, "bank-20261120.csv", 4)
    line = shlex.split(told(tmp_path, *SEND, "--dry-run")["next"])[1:]
    all_refused(bank, "bank-20261121.csv", 7)
    before = recorded(tmp_path)

    stale = cardlink(tmp_path, *line)
    without = cardlink(tmp_path, *SEND)
    unchanged = recorded(tmp_path)
    done = decided(tmp_path, *SEND)

    assert "4" == line[line.index("--rows") + 1]
    assert [2, 2, 0] == [stale.exit_code, without.exit_code, done.exit_code]
    assert "this is about 11 rows now, not 4. Nothing was decided." in stale.stderr
    assert "this is about 11 rows now, and no number was given." in without.stderr
    assert before == unchanged


def test_links_are_renewed_only_as_many_as_the_dry_run_showed_but_by_a_schedule_all(
    bank: Bench, tmp_path: Path
) -> None:
    bank.submit(bank.drop(5))
    bank.answer(fail_share=0, expires=datetime.now(UTC).date() + timedelta(days=10))
    bank.ingest()

    line = told(tmp_path, "renew", "bank", "--dry-run")["next"]
    stale = cardlink(tmp_path, "renew", "bank", "--rows", "4")
    without = cardlink(tmp_path, "renew", "bank")
    scheduled = ENTRIES["renew"](Context(tmp_path), issuer="bank")

    assert "--rows 5" in line
    assert [2, 2] == [stale.exit_code, without.exit_code]
    assert "this is about 5 rows now, not 4. Nothing was decided." in stale.stderr
    assert "and no number was given" in without.stderr
    assert 5 == scheduled.facts["rows"]
