"""The stores that earlier versions wrote: each is walked by this version, from ingest to purge.

`documents.json` names the store that shows each version of each document; `python -m tests.stored.make` writes one.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.adapters.local import LocalStore
from flows.book.book import read_book
from flows.book.kept import keep_book
from flows.runs.stored_runs import StoredRuns
from schemas.manifest import FACTS
from tests.builders import quick
from tests.stored.fields import TABLE, documents
from tests.stored.walk import FIXTURES, cardlink, fates, rows_to_upload, states, unpacked

STORES = sorted({one["store"] for versions in TABLE.values() for one in versions.values()})
CHANGED = (
    "raise its version, write a store with tests.stored.make, and add both with tests.stored.fields"
)
ANSWERED, AGAIN = ("20240401", "20240402")
TODAY = date(2026, 11, 20)
KILLED = {"20240404": 16, "20240405": 24, "20240406": 14}  # rows that are sent of each


# Of these `make test` walks the oldest, and makes the first book of the newest too and of those in
# which a meaning changed: what is asked of a run's source, and what becomes of its rows.
# `make test-all` walks every store.
OLDEST, NEWEST = "before-versions", "planned-by"
MEANING_CHANGED = ("second-file", "not-eligible")


def first(*stores: str) -> list[Any]:
    """Return all stores, of which `make test` walks these."""
    return quick(len(stores), [*stores, *(store for store in STORES if store not in stores)])


@pytest.fixture
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


def run_of(bank: Path, day: str, issuer: str = "first-bank") -> str:
    """Return the last run of a day."""
    return max(run for run in states(bank, issuer) if f"-{day}-" in run)


def contents(bank: Path) -> dict[str, bytes]:
    """Return all that is in the store, by name."""
    files = (file for file in (bank / "store").rglob("*") if file.is_file())
    return {str(file.relative_to(bank)): file.read_bytes() for file in files}


def sent(bank: Path) -> Counter[str]:
    """Return how often each cardholder of first-bank went out, resubmissions apart, read from the
    files alone.
    """
    found: Counter[str] = Counter()
    for manifest in bank.glob("store/first-bank/runs/*/manifest.json"):
        if json.loads(manifest.read_bytes())["selection"] is None:
            for part in manifest.parent.glob("ledger/*"):
                found += Counter(pl.read_parquet(part).filter(fate="submitted")["cuid"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("bank", first(OLDEST), indirect=True)
def test_results_that_wait_are_ingested_and_the_runs_are_reported_traced_sent_again_and_delivered(
    bank: Path,
) -> None:
    before = cardlink(bank, "report", run_of(bank, ANSWERED))
    ingested = cardlink(bank, "ingest", "first-bank")
    again = cardlink(bank, "ingest", "first-bank")
    resent = cardlink(bank, "resubmit", run_of(bank, AGAIN), "--errors", "--reason", "once more")
    links = bank / "store/first-bank/runs" / run_of(bank, AGAIN) / "report/links.csv"
    [one, *_] = links.read_text("utf-8-sig").splitlines()[1:]
    traced = cardlink(bank, "trace", one.split(",")[0], "--issuer", "first-bank")
    told = cardlink(bank, "deliver", "first-bank")
    deliveries = told.get("deliveries", [told])  # of several receivers a list
    across = cardlink(bank, "reconcile", "first-bank")["issuers"][0]

    assert ("balanced", (28, 11, 13, 0, 4, 0, 0), ["lost"]) == (
        before["verdict"],
        fates(before["rows"]),
        ["lost" for closed in before["closed"] if "no usable answer" in closed["decision"]],
    )
    assert (2, 13, 0) == (ingested["files"], ingested["rows"], ingested["exit_code"])
    assert {
        AGAIN: ("balanced", (13, 12, 1, 0, 0, 0, 0)),
        ANSWERED: ("balanced", (28, 11, 13, 0, 4, 0, 0)),
    } == {
        one["run"].split("-")[2]: (one["verdict"], fates(one["rows"]))
        for one in ingested["reports"]
    }
    assert (0, []) == (again["files"], again["reports"])
    assert 1 == resent["counts"]["submitted"]
    assert [("error", ANSWERED), ("linked", AGAIN)] == [
        (attempt["state"], attempt["run"].split("-")[2]) for attempt in traced["attempts"]
    ]
    # those of 2024 have expired
    assert [(2, 0, 11)] * len(deliveries) == [
        (each["number"], each["new"], each["withdrawn"]) for each in deliveries
    ]
    assert "answers overdue" == across["verdict"]
    assert TABLE["summary.json"][str(FACTS)]["fields"] == sorted(
        before.keys() - {"next", "exit_code", "version", "command"}
    ), CHANGED


@pytest.mark.parametrize("bank", first(OLDEST, NEWEST), indirect=True)
def test_the_first_book_of_a_store_says_what_its_ledgers_say_and_writes_nothing_else(
    bank: Path,
) -> None:
    store = LocalStore(bank / "store")
    before = contents(bank)
    by_ledgers = read_book(store, "first-bank").cards(TODAY)

    keep_book(StoredRuns(store, "first-bank"), TODAY)

    written = {name for name, content in contents(bank).items() if before.get(name) != content}
    assert before.keys() <= contents(bank).keys()
    assert by_ledgers.equals(read_book(store, "first-bank").cards(TODAY))
    assert by_ledgers.height
    assert set() == {
        name for name in written if "/book/" not in name and not name.endswith("/book.parquet")
    }


@pytest.mark.parametrize("bank", first(OLDEST), indirect=True)
def test_runs_that_were_begun_are_finished_or_planned_anew_and_nobody_goes_out_twice(
    bank: Path,
) -> None:
    for day in KILLED:
        cardlink(bank, "submit", "first-bank", "--extract", f"first-bank-{day}.csv")
    portfolio = cardlink(bank, "submit", "second-bank", "--extract", "cards-20240306.txt")["runs"][
        0
    ]["counts"]
    refused = cardlink(bank, "submit", "first-bank", "--extract", "first-bank-20240408.csv")
    renewals = cardlink(bank, "renew", "second-bank", "--within", "14d", "--dry-run")
    purged = cardlink(bank, "purge", "second-bank")["issuers"][0]
    proofs = [cardlink(bank, "audit", "verify", issuer) for issuer in ("first-bank", "second-bank")]

    assert KILLED == {day: sum(rows_to_upload(bank, "first-bank", day)) for day in KILLED}
    assert {1} == {*sent(bank).values()}
    # rows that the partner refused years ago and that are unchanged stay suppressed, and whoever
    # was forgotten
    forgotten = int((bank / "store/second-bank/erasures").exists())
    assert (60, 37 - forgotten, 23 + forgotten) == tuple(
        portfolio[fate] for fate in ("read", "submitted", "suppressed")
    )
    assert (2, True) == (refused["exit_code"], "dismissed" in refused["message"])
    assert 0 == renewals["exit_code"]
    assert [] == purged["unknown"]
    assert [[], []] == [proof["findings"] for proof in proofs]


@pytest.mark.slow
def test_results_of_the_first_layout_which_named_no_file_are_read_and_joined_by_the_ledger(
    tmp_path: Path,
) -> None:
    bank = unpacked("first-layout", tmp_path)

    # asks for prior state
    before = cardlink(bank, "submit", "first-bank", "--extract", "first-bank-20240304.csv")
    ingested = cardlink(bank, "ingest", "first-bank")
    report = cardlink(bank, "report", run_of(bank, "20240304"))
    resent = cardlink(
        bank, "resubmit", run_of(bank, "20240304"), "--errors", "--reason", "once more"
    )

    assert before["runs"][0]["already"] is True
    # the copy's files are others, with the same rows
    assert (3, 29) == (ingested["files"], ingested["rows"])
    assert ("balanced", (30, 12, 8, 0, 10, 0, 0), []) == (
        report["verdict"],
        fates(report["rows"]),
        report["breaks"],
    )
    assert 8 == resent["counts"]["submitted"]


def test_a_document_that_is_changed_has_a_new_version_and_a_store_that_shows_it() -> None:
    last = {
        kind: max(map(int, versions)) for kind, versions in TABLE.items() if kind != "summary.json"
    }

    assert {
        kind: (version, TABLE[kind][str(version)]["fields"]) for kind, version in last.items()
    } == documents(), CHANGED
    assert [] == [store for store in STORES if not (FIXTURES / f"{store}.tar.xz").is_file()]
