"""One cardholder over real nights."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from flows.adapters.local import LocalStore
from flows.book.book import read_book
from flows.operations.purge import purge
from flows.reports.cardholder import SINGLE
from flows.reports.cardholder_status import CardStatus, card_statuses
from flows.reports.cardholder_trace import CardGivenError, trace
from flows.resend.resubmission import Request
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.runs.keys import keys_of, results
from flows.runs.outbox import move
from flows.runs.store import ConflictError
from schemas.expressions import PUBLISHED
from schemas.portal import ADDRESS1, CUID, POSTAL_CODE
from schemas.records import SingleAnswered, SingleAsked
from tests.builders import portal_rows
from tests.night import BANK, Bench, local_bench, made_once, portal_csv
from tests.singles import recorded


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


def bench_in(folder: Path) -> Bench:
    return replace(local_bench(folder, portal={"rows_per_chunk": 2}), now=lambda: datetime.now(UTC))


def first_night(bench: Bench) -> str:
    """Submit the first extract; return its run."""
    assert bench.folder is not None
    return _first_night(bench.folder)[1]


@made_once
def _first_night(folder: Path, /) -> tuple[Bench, str]:
    bench = bench_in(folder)
    return bench, bench.submit(drop(bench, 1)).manifest.run


def drop(bench: Bench, day: int, *changes: dict[str, str]) -> str:
    """Drop an extract of cardholders A, B and C with changes to A; return its name."""
    rows = portal_rows(*({CUID: cuid, ADDRESS1: f"{day} Main St"} for cuid in "ABC"))
    for change in changes:
        rows = rows.with_columns(
            pl.when(pl.col(CUID) == "A").then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
            for name, value in change.items()
        )
    return bench.drop_bytes(portal_csv(rows), f"bank-202611{day:02}.csv")


def statuses(bench: Bench, cuid: str) -> list[CardStatus]:
    """Return where the cards of a cardholder stand today."""
    return card_statuses(
        read_book(bench.context.adapters, BANK), cuid, (), datetime.now(UTC).date()
    )


def test_every_row_chunk_result_reason_and_link_is_told_oldest_first(bench: Bench) -> None:
    rejected = bench.submit(drop(bench, 1, {POSTAL_CODE: ""})).manifest.run
    linked = bench.submit(drop(bench, 2)).manifest.run
    bench.answer()
    bench.ingest()
    held = bench.submit(drop(bench, 3)).manifest.run

    attempts = trace(bench.context.adapters, BANK, "A").attempts

    first, second, third = attempts
    assert [rejected, linked, held] == [attempt.run for attempt in attempts]
    assert ("rejected", None, ("address.postal_code.missing",)) == (
        first.state,
        first.chunk,
        first.reasons,
    )
    assert ("linked", 1, 1, "cuid") == (second.state, second.chunk, second.position, second.how)
    assert second.result == f"card-links-{linked}-00001-result.csv"
    assert second.expires_on is not None
    assert ("suppressed", None, ("card.content.changed",)) == (
        third.state,
        third.chunk,
        third.reasons,
    )


def test_a_link_itself_is_told_only_where_it_is_asked_for(bench: Bench) -> None:
    first_night(bench)
    bench.answer()
    bench.ingest()

    [hidden], [shown] = (
        trace(bench.context.adapters, BANK, "A", urls=urls).attempts for urls in (False, True)
    )

    assert hidden.url is None
    assert str(shown.url).startswith("https://links.example.com/")


def test_what_the_partner_refused_is_told_with_its_reason_and_words(bench: Bench) -> None:
    first_night(bench)
    bench.answer(fail_share=1.0)
    bench.ingest()

    [attempt] = trace(bench.context.adapters, BANK, "A").attempts

    assert ("error", True, True) == (attempt.state, bool(attempt.reasons), bool(attempt.message))


def test_a_cancelled_chunk_and_one_without_an_answer_are_told_by_what_was_done(
    bench: Bench,
) -> None:
    run = first_night(bench)
    move(bench.context.adapters, run, "cancelled", [1], "why")
    move(bench.context.adapters, run, "uploaded", [2])

    first, third = (trace(bench.context.adapters, BANK, cuid).attempts[0] for cuid in "AC")

    assert [("cancelled", "cancelled"), ("awaiting", "uploaded")] == [
        (attempt.state, attempt.sent) for attempt in (first, third)
    ]


def test_a_row_without_an_answer_in_an_answered_chunk_is_told_so(bench: Bench) -> None:
    first_night(bench)
    bench.answer()
    results = [
        key for key in bench.snapshot() if key.startswith("bank/results/") and "-00001-" in key
    ]
    lines = bench.content(results[0]).splitlines(keepends=True)
    bench.store.replace(results[0], [b"".join(lines[:2])])
    bench.ingest()

    attempts = {cuid: trace(bench.context.adapters, BANK, cuid).attempts[0] for cuid in "AB"}

    assert {("linked", ""), ("awaiting", "answered")} == {
        (attempt.state, attempt.sent) for attempt in attempts.values()
    }


@pytest.mark.slow
def test_a_row_that_was_sent_again_is_an_attempt_that_names_the_one_it_repeats(
    bench: Bench,
) -> None:
    run = first_night(bench)
    bench.answer(fail_share=1.0)
    bench.ingest()
    repeat = resubmit(
        bench.context, Request(run, RowSelection(errors=True), "the partner asked for it")
    ).manifest.run

    first, second = trace(bench.context.adapters, BANK, "C").attempts

    assert [(run, "error", ""), (repeat, "awaiting", f"{run} row 3")] == [
        (attempt.run, attempt.state, attempt.origin) for attempt in (first, second)
    ]


def test_links_asked_for_by_themselves_are_attempts_too(bench: Bench) -> None:
    run = bench.submit(drop(bench, 1, {POSTAL_CODE: ""})).manifest.run
    requested = SingleAsked(
        row=1, cuid="A", last_4="4242", expiration="3001", at=bench.now(), by="tester"
    )
    answer = SingleAnswered(
        outcome="linked", at=bench.now(), url="https://links.example.com/x", link_id="x"
    )
    recorded(bench.adapters, f"{run}/000000001-1", requested, answer)
    typed = requested.model_copy(update={"row": None})
    recorded(bench.adapters, "20261120T000000000000", typed)

    attempts = trace(bench.context.adapters, BANK, "A").attempts

    assert [(run, 1, "rejected", ""), (run, 1, "linked", SINGLE), ("", 0, "awaiting", SINGLE)] == [
        (attempt.run, attempt.row, attempt.state, attempt.sent)
        for attempt in sorted(
            attempts, key=lambda attempt: (-attempt.row, attempt.state != "rejected")
        )
    ]


def test_a_row_whose_link_had_expired_is_not_said_to_have_no_answer(bench: Bench) -> None:
    run = first_night(bench)
    sent = bench.ledger(run).select("cuid", "last_4").iter_rows()
    lines = [
        f"{cuid},{last_4},https://links.example.com/{cuid},2020-01-01,\n" for cuid, last_4 in sent
    ]
    bench.drop_result("".join(["cuid,last_4,url,expiration_date,error\n", *lines]).encode())
    bench.ingest()

    [attempt] = trace(bench.context.adapters, BANK, "A").attempts
    [card] = statuses(bench, "A")

    assert ("awaiting", "answered", "LINK_EXPIRED") == (
        attempt.state,
        attempt.sent,
        attempt.trouble,
    )
    assert "a link had already expired" in card.stands
    assert "resubmit the rows" in str(card.then)


def test_a_row_without_an_answer_in_an_answered_chunk_is_said_to_have_none(bench: Bench) -> None:
    run = first_night(bench)
    bench.answer()
    [first, *_] = [entry.key for entry in bench.store.keys(results(BANK))]
    lines = bench.content(first).splitlines(keepends=True)
    missing = next(
        row["cuid"] for row in bench.ledger(run).to_dicts() if row["cuid"].encode() in lines[-1]
    )
    bench.store.replace(first, lines[:-1])
    bench.ingest()

    assert ["has no answer in its chunk's result"] == [
        card.stands for card in statuses(bench, missing)
    ]


def test_nobody_is_found_where_nobody_is_and_purged_runs_are_named(bench: Bench) -> None:
    run = first_night(bench)
    bench.answer()
    bench.ingest()
    assert isinstance(bench.store, LocalStore)
    old = replace(bench, now=lambda: datetime.now(UTC) + timedelta(days=400))

    before = trace(bench.context.adapters, BANK, "nobody")
    purge(old.context, bench.store)
    after = trace(old.context.adapters, BANK, "A")

    assert ((), ()) == before
    assert ((), (run,)) == after


@pytest.mark.parametrize(
    "text", [*PUBLISHED[:3], "4242 4242 4242 4242", "4242-42424242-4242", f"C{PUBLISHED[0]}"]
)
def test_a_card_number_is_refused_and_not_echoed(bench: Bench, text: str) -> None:
    with pytest.raises(CardGivenError) as refused:
        trace(bench.context.adapters, BANK, text)

    assert "4242" not in str(refused.value)


def test_a_ledger_that_was_changed_is_not_believed(bench: Bench) -> None:
    run = first_night(bench)
    [part] = [entry.key for entry in bench.store.keys(keys_of(run).ledger)]
    bench.store.replace(part, [bench.content(part) + b" "])

    with pytest.raises(ConflictError):
        trace(bench.context.adapters, BANK, "A")
