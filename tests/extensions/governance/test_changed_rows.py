"""A row that somebody changed is named by whoever reads it, and what it says is not quoted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Table, update

from flows.extensions.governance.in_force import compared, govern
from flows.extensions.governance.requests import requests
from flows.extensions.governance.tables import REQUEST, SETTINGS_IN_FORCE
from flows.extensions.governance.two_persons import Command, request
from flows.runs.decisions import CARDS, decide, decisions
from flows.runs.documents import RowChangedError
from flows.runs.journal import Act, enter
from flows.runs.purges import add_purge, purges
from flows.runs.single_links import prompted_singles
from flows.runs.stored_run import StoredRun
from schemas.database import DECISION, PURGE, RUN, SINGLE_LINK
from schemas.records import GivingUp, NamedCard, Purged, SingleAnswered, SingleAsked
from tests.night import BANK, NOON, Bench, local_bench
from tests.singles import recorded

SECRET = "c-secret"
SIGNED = {"at": NOON, "by": "anna"}


class Row(NamedTuple):
    """What writes a row, a column that is changed, and what reads the row; `changed` to what."""

    write: Callable[[Bench], object]
    table: Table
    column: str
    read: Callable[[Bench], object]
    changed: object = {"cuid": SECRET}


def committed(bench: Bench) -> None:
    bench.submit(bench.drop(3))


def given_up(bench: Bench) -> None:
    cards = (NamedCard("h-1", "1111"),)
    decision = GivingUp(**SIGNED, reason="no", what="given up", cards=cards)
    enter(bench.adapters, BANK, "given up", lambda act: decide(act, CARDS, "", decision))


def purged(bench: Bench) -> None:
    record = Purged(
        **SIGNED, run="", part="ledger", since=NOON, setting="x", objects={"single": 1}, bytes=0
    )

    def work(act: Act) -> None:
        add_purge(act, record)

    enter(bench.adapters, BANK, "purged", work)


def requested(bench: Bench) -> None:
    settings = compared(bench.context)
    line = "cardlink purge bank"
    request(bench.context, Command("erase", line, {}, (), {}, "anna", "agreed", settings))


def linked(bench: Bench) -> None:
    asked = SingleAsked(**SIGNED, row=None, cuid="c-1", last_4="1111", expiration="3012")
    answered = SingleAnswered(outcome="linked", at=NOON, url="https://links.example.com/a")
    recorded(bench.adapters, "20261120T000000000001-00000000", asked, answered)


ROWS = {
    "run": Row(committed, RUN, "manifest", lambda bench: [*bench.runs.manifests()]),
    "plan": Row(
        committed,
        RUN,
        "plan",
        lambda bench: StoredRun.by_id(bench.adapters, str(bench.runs.ids[0])).planned(),
    ),
    "decision": Row(
        given_up,
        DECISION,
        "facts",
        lambda bench: decisions(bench.adapters, BANK, CARDS, GivingUp),
    ),
    "purge": Row(purged, PURGE, "objects", lambda bench: purges(bench.adapters, BANK)),
    "request": Row(
        requested, REQUEST, "files", lambda bench: requests(bench.adapters, BANK), [SECRET]
    ),
    "settings": Row(
        lambda bench: govern(bench.context, is_rehearsal=False),
        SETTINGS_IN_FORCE,
        "settings",
        lambda bench: compared(bench.context),
        [SECRET],
    ),
    "single link": Row(
        linked, SINGLE_LINK, "reasons", lambda bench: prompted_singles(bench.adapters, BANK)
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_somebody_changed_is_named_and_not_quoted(tmp_path: Path, name: str) -> None:
    bench = local_bench(tmp_path)
    row = ROWS[name]
    row.write(bench)
    row.read(bench)
    change = update(row.table).values({row.column: row.changed})
    bench.database.act(BANK, lambda connection: connection.execute(change).close())

    with pytest.raises(RowChangedError) as error:
        row.read(bench)

    told = str(error.value)
    assert SECRET not in told
    assert (None, True) == (error.value.__cause__, error.value.__context__ is None)
    assert told.index("cardlink audit verify") < told.index("cardlink recover")
