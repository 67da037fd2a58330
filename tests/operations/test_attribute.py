"""Result rows tied to their rows by hand, taken back, taken up again; a report made from scratch
says the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.operations.history import history
from flows.operations.manual_attribution import (
    LastFourError,
    RowSettledError,
    attribute_row,
    reingest,
    withdraw,
)
from flows.reports.rebuild import rebuild
from flows.results.decisions import attributions
from flows.runs.adapters import NoReasonError
from flows.runs.context import overlaid
from flows.runs.errors import NoSuchRowError, UnknownRunError
from flows.runs.keys import keys_of, results
from flows.runs.store import ObjectMissingError
from schemas.expressions import PUBLISHED
from tests.builders import quick, share_of
from tests.night import BANK, NOON, Bench, forget_results, local_bench, made_once
from tests.storms import FailingStore

WHY = "the partner says so"
HEAD = "cuid,last_4,url,expiration_date,error\n"
LATER = "2027-01-01"
REPORTS = ("links.csv", "errors.csv", "chunks.csv", "rejects.csv")


class KilledError(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.fixture
def night(tmp_path: Path) -> tuple[Bench, str]:
    """A run of two chunks of five rows; of the first, two are answered by errors that say nothing
    of their cuid.
    """
    return answered(tmp_path)


def answered(folder: Path) -> tuple[Bench, str]:
    bench, run = _answered(folder)
    minutes = count(1)
    bench.now = lambda: NOON + timedelta(minutes=next(minutes))
    return bench, run


@made_once
def _answered(folder: Path) -> tuple[Bench, str]:
    bench = local_bench(folder, portal={"rows_per_chunk": 5})
    run = bench.submit(bench.drop(10)).manifest.run
    sent = bench.ledger(run).rows(named=True)
    bench.drop_result(file([*(link(sent[at]) for at in (1, 0, 2)), mute(), mute()]), "a.csv")
    bench.ingest()
    return bench, run


def file(rows: Iterable[str]) -> bytes:
    return (HEAD + "".join(rows)).encode()


def link(row: dict[str, Any], host: str = "links.example.com", **other: str) -> str:
    told = {**row, **other}
    return f"{told['cuid']},{told['last_4']},https://{host}/{row['row']},{LATER},\n"


def mute() -> str:
    return ",,,,[object Object]\n"


def state(bench: Bench, run: str) -> dict[int, tuple[str, str | None]]:
    """Return state and way of attribution of every row sent, by row."""
    parts = [
        pl.read_parquet(bench.report(run, f"rows/{part.name}"))
        for part in bench.manifest(run).ledger
    ]
    return {
        row: (told, how)
        for row, told, how in pl.concat(parts).select("row", "state", "how").iter_rows()
    }


def breaks(bench: Bench, run: str) -> list[str]:
    return [one.name for one in rebuild(bench.context, bench.stored(run)).breaks if not one.notice]


def from_scratch(bench: Bench, run: str) -> dict[str, bytes]:
    """Take away everything derived, ingest all results, and return the reports."""
    forget_results(bench.database)
    for key in bench.snapshot():
        if key.startswith(keys_of(run).report("")):
            bench.store.delete(key)  # type: ignore[attr-defined]  # a directory, which deletes too
    bench.ingest()
    return {name: bench.report(run, name) for name in REPORTS}


@pytest.mark.slow
def test_a_row_without_a_place_answers_the_row_it_is_tied_to(night: tuple[Bench, str]) -> None:
    bench, run = night

    done = attribute_row(bench.context, "a.csv", 4, (run, 4), WHY)

    assert done.row == {
        "state": "error",
        "trouble": None,
        "run": run,
        "chunk": 1,
        "row": 4,
        "how": "by hand",
    }
    assert state(bench, run)[4] == ("error", "by hand")
    assert breaks(bench, run) == ["UNATTRIBUTED_ERROR"]


def test_once_all_rows_have_their_place_the_run_balances_and_the_file_is_settled(
    night: tuple[Bench, str],
) -> None:
    bench, run = night
    attribute_row(bench.context, "a.csv", 4, (run, 4), WHY)

    attribute_row(bench.context, "a.csv", 5, (run, 5), WHY)

    assert breaks(bench, run) == []
    assert bench.ingest().files == 0


def test_what_is_withdrawn_is_a_break_again(night: tuple[Bench, str]) -> None:
    bench, run = night
    before = state(bench, run)
    attribute_row(bench.context, "a.csv", 4, (run, 9), WHY)

    withdraw(bench.context, "a.csv", 4, "it was the other one")

    assert state(bench, run) == before
    with pytest.raises(NoSuchRowError):
        withdraw(bench.context, "a.csv", 4, "once more")


def test_a_row_given_to_another_run_leaves_the_run_it_stood_with(night: tuple[Bench, str]) -> None:
    bench, run = night
    other = bench.submit(bench.drop(3, name="bank-20261121.csv", seed=8)).manifest.run
    [row] = bench.ledger(run).filter(row=6).rows(named=True)
    [theirs] = bench.ledger(other).filter(row=1).rows(named=True)
    bench.drop_result(file([link(row, last_4=theirs["last_4"])]), "b.csv")
    bench.ingest()
    stood = breaks(bench, run)

    attribute_row(bench.context, "b.csv", 1, (other, 1), WHY)
    moved = (breaks(bench, run), breaks(bench, other), state(bench, other)[1])
    withdraw(bench.context, "b.csv", 1, "it was ours after all")

    assert "LAST4_MISMATCH" in stood
    assert moved == (["UNATTRIBUTED_ERROR"], ["RESULT_SHORT"], ("linked", "by hand"))
    assert (sorted(breaks(bench, run)), state(bench, other)[1]) == (
        sorted(stood),
        ("awaiting", None),
    )


@pytest.mark.slow
def test_other_last_four_digits_need_the_partners_word(night: tuple[Bench, str]) -> None:
    bench, run = night
    [row] = bench.ledger(run).filter(row=6).rows(named=True)
    bench.drop_result(file([link(row, last_4="9999")]), "b.csv")
    bench.ingest()

    with pytest.raises(LastFourError, match="--last-4-confirmed"):
        attribute_row(bench.context, "b.csv", 1, (run, 6), WHY)
    attribute_row(bench.context, "b.csv", 1, (run, 6), WHY, last_4_confirmed=True)

    assert state(bench, run)[6] == ("linked", "by hand")


@pytest.mark.slow
def test_a_link_to_a_foreign_host_stays_a_break_whoever_found_its_row(
    night: tuple[Bench, str],
) -> None:
    bench, run = night
    [row] = bench.ledger(run).filter(row=6).rows(named=True)
    bench.drop_result(file([link(row, host="evil.example", cuid="nobody-we-know")]), "b.csv")
    bench.ingest()

    done = attribute_row(bench.context, "b.csv", 1, (run, 6), WHY)

    assert done.row["trouble"] == "URL_NOT_ALLOWED"
    assert state(bench, run)[6] == ("awaiting", None)


@pytest.mark.slow
def test_a_decision_holds_for_the_bytes_it_was_made_of(night: tuple[Bench, str]) -> None:
    bench, run = night
    attribute_row(bench.context, "a.csv", 4, (run, 9), WHY)
    sent = bench.ledger(run).rows(named=True)

    bench.drop_result(file(link(row) for row in sent[:5]), "a.csv")
    bench.ingest()

    # the fourth row is not the ninth any more, whose answer stays
    assert {row: told for row, (told, _) in state(bench, run).items() if told != "awaiting"} == {
        **dict.fromkeys(range(1, 6), "linked"),
        9: "error",
    }


@pytest.mark.slow
def test_a_result_is_taken_up_again_although_it_was_taken_up(tmp_path: Path) -> None:
    bench, run = _answered(tmp_path)
    bench.ingest()  # a copy is read again
    sent = bench.ledger(run).rows(named=True)
    bench.drop_result(file(link(row) for row in sent[5:]), "b.csv")
    before = bench.ingest().files, bench.ingest().files

    done = reingest(bench.context, "b.csv", WHY)

    assert before == (1, 0)
    assert done.ingested.files == 1
    assert [
        one.facts["reason"]
        for one in history(bench.adapters, run)
        if one.what == "result taken up again"
    ] == [WHY]


@pytest.mark.slow
def test_a_dry_run_says_what_the_row_would_be_and_writes_nothing(night: tuple[Bench, str]) -> None:
    bench, run = night
    before = bench.snapshot()

    done = [
        attribute_row(overlaid(bench.context), "a.csv", 4, (run, 4), WHY),
        reingest(overlaid(bench.context), "a.csv", WHY),
    ]

    assert done[0].row["state"] == "error"
    assert bench.snapshot() == before


@pytest.mark.parametrize(
    ("result", "position", "row", "reason", "error"),
    [
        ("c.csv", 4, 4, WHY, ObjectMissingError),
        ("a.csv", 6, 4, WHY, NoSuchRowError),
        ("a.csv", 4, 11, WHY, NoSuchRowError),
        ("a.csv", 1, 4, WHY, RowSettledError),
        ("a.csv", 4, 1, WHY, RowSettledError),
        ("a.csv", 4, 4, "", NoReasonError),
    ],
)
def test_only_a_row_without_a_place_goes_to_a_row_without_an_answer(
    night: tuple[Bench, str],
    result: str,
    position: int,
    row: int,
    reason: str,
    error: type[Exception],
) -> None:
    bench, run = night
    before = bench.snapshot()

    with pytest.raises(error):
        attribute_row(bench.context, result, position, (run, row), reason)

    assert bench.snapshot() == before


def test_a_row_of_a_run_that_is_not_there_is_refused(night: tuple[Bench, str]) -> None:
    bench, _ = night

    with pytest.raises(UnknownRunError):
        attribute_row(bench.context, "a.csv", 4, ("bank-20261120-00000000", 4), WHY)


def test_who_when_and_why_stand_in_record_and_history_with_card_numbers_masked(
    night: tuple[Bench, str],
) -> None:
    bench, run = night

    attribute_row(bench.context, "a.csv", 4, (run, 4), f"{WHY} {PUBLISHED[0]}")

    [told] = [one for one in history(bench.adapters, run) if one.what == "attributed by hand"]
    [[record]] = attributions(bench.adapters, BANK).values()
    assert (told.by, told.facts["reason"]) == ("tester:1", f"{WHY} [masked]")
    assert f"{WHY} [masked]" == record.reason


def test_a_result_named_after_a_card_leaves_no_card_behind(night: tuple[Bench, str]) -> None:
    bench, run = night
    [row] = bench.ledger(run).filter(row=6).rows(named=True)
    name = f"{PUBLISHED[0]}.csv"
    bench.drop_result(file([link(row, cuid="nobody-we-know")]), name)
    bench.ingest()

    attribute_row(bench.context, name, 1, (run, 6), WHY)

    left = {
        key: data
        for key, data in bench.snapshot().items()
        if not key.startswith((results(BANK), "bank/extracts"))
    }
    assert [
        key for key, data in left.items() if PUBLISHED[0] in key or PUBLISHED[0].encode() in data
    ] == []


@pytest.mark.parametrize("part", quick(1, ["/report/rows/", "summary.json"]))
def test_killed_anywhere_after_the_record_the_next_ingest_brings_it(
    night: tuple[Bench, str], part: str
) -> None:
    bench, run = night
    attribute_row(bench.context, "a.csv", 5, (run, 9), WHY)

    def kill(what: str, key: str) -> Exception | None:
        if what in ("create", "replace") and part in key:
            raise KilledError
        return None

    with pytest.raises(KilledError):
        attribute_row(
            replace(bench, store=FailingStore(bench.store, kill)).context, "a.csv", 4, (run, 4), WHY
        )
    bench.ingest()

    assert state(bench, run)[4] == ("error", "by hand")


@pytest.mark.slow
def test_a_report_made_from_scratch_says_the_same(night: tuple[Bench, str]) -> None:
    bench, run = night
    attribute_row(bench.context, "a.csv", 4, (run, 9), WHY)
    withdraw(bench.context, "a.csv", 4, "it was another")
    attribute_row(bench.context, "a.csv", 5, (run, 5), WHY)
    told = {name: bench.report(run, name) for name in REPORTS}

    assert from_scratch(bench, run) == told


@pytest.mark.slow
@settings(max_examples=share_of(0.05), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    decisions=st.lists(
        st.tuples(st.sampled_from([4, 5]), st.integers(4, 10), st.booleans()), max_size=4
    )
)
def test_reconciliation_is_a_function_of_ledgers_results_and_decisions(
    tmp_path_factory: pytest.TempPathFactory, decisions: list[tuple[int, int, bool]]
) -> None:
    bench, run = answered(tmp_path_factory.mktemp("bank"))
    for position, row, back in decisions:
        try:
            attribute_row(bench.context, "a.csv", position, (run, row), WHY)
            if back:
                withdraw(bench.context, "a.csv", position, WHY)
        except RowSettledError:
            continue
    told = {name: bench.report(run, name) for name in REPORTS}

    assert from_scratch(replace(bench), run) == told
