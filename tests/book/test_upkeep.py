"""The book in the database says what everything that is recorded says, whatever was done to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, update

from flows.book import upkeep
from flows.book.attempts import ATTEMPT
from flows.book.book import read_book
from flows.book.stored_book import ReadRun, forget_rows, of_turn, read_attempts, read_runs
from flows.book.upkeep import BookOfRuns, forget_book
from flows.database.connection import Database
from flows.database.within import Within
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.placements import transactions
from flows.runs.context import overlaid
from flows.runs.events import record_event
from flows.runs.frames import write_parquet
from flows.runs.keys import keys_of
from flows.runs.outbox import move
from flows.submissions.submit import Request, submit
from schemas import database as tables
from tests.night import DAY, Bench, local_bench, made_once


def small_chunks(folder: Path) -> Bench:
    return local_bench(folder, portal={"rows_per_chunk": 3})


@made_once
def after_a_night(folder: Path, /) -> tuple[Bench, str]:
    """Return a bench after its first night, and the run of that."""
    bench = small_chunks(folder)
    return bench, night(bench, 1)


def stands(bench: Bench) -> list[tuple[object, ...]]:
    """Return all that the book says of each card."""
    cards = read_book(bench.context.adapters, "bank").cards(DAY)
    return sorted(cards.rows(), key=str)


def stored_runs(bench: Bench) -> dict[str, ReadRun]:
    """Return what the database has of each run, brought up to date."""
    with upkeep.tables(bench.context.adapters, "bank", BookOfRuns(bench.runs)) as connection:
        return read_runs(connection, "bank")


def from_ledgers(bench: Bench) -> list[tuple[object, ...]]:
    """Return what a book says that is worked out from what is recorded alone."""
    with bench.database.rehearsal("bank") as connection:
        forget_rows(connection, "bank")
        anew = Within(connection, "here")
        return stands(replace(bench, database=anew))  # type: ignore[arg-type]  # as good


def night(bench: Bench, number: int) -> str:
    """Submit one night; return its run."""
    return bench.submit(bench.drop(6, f"bank-202611{number:02d}.csv", seed=number)).manifest.run


def answer(bench: Bench) -> None:
    bench.answer(fail_share=0.4, seed=1)
    bench.ingest()


def cancel(bench: Bench) -> None:
    """Cancel the first chunk of the last run that still waits."""
    for run in reversed(list(bench.runs.committed())):
        waiting = [item.chunk.number for item in run.outbox if item.state == "waiting"]
        if waiting:
            move(bench.context.adapters, run.id, "cancelled", waiting[:1], "by request")
            return


def report(bench: Bench) -> None:
    """Drop a transaction report about every second cardholder, and take it up."""
    attempts = read_book(bench.context.adapters, "bank").attempts
    cuids = attempts["cuid"].drop_nulls().unique().sort()[::2]
    lines = [f"{cuid},SUCCESSFUL,2026-12-01\n" for cuid in cuids]
    key = f"{transactions('bank')}t{len(lines)}.csv"
    bench.store.replace(key, ["".join(["cuid,status,completed_on\n", *lines]).encode()])
    follow_links(bench.context, None)


STEPS: dict[str, Callable[[Bench], object]] = {
    "answer": answer,
    "cancel": cancel,
    "read": stands,
    "forget": lambda bench: forget_book(bench.context.adapters, "bank"),
    "deliver": lambda bench: deliver(bench.context),
    "report": report,
    "dry run": lambda bench: stands(replace(bench, store=overlaid(bench.context).adapters.store)),
}


@settings(deadline=None, max_examples=10)
@given(st.lists(st.sampled_from(["night", *STEPS]), min_size=3, max_size=8))
def test_whatever_happens_the_book_says_what_the_ledgers_say(steps: list[str]) -> None:
    with TemporaryDirectory() as folder:
        bench = small_chunks(Path(folder))
        for number, step in enumerate(steps, start=1):
            if step == "night":
                night(bench, number)
            else:
                STEPS[step](bench)
            assert from_ledgers(bench) == stands(bench)


def test_a_run_that_changes_is_read_again(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 3})
    runs = [night(bench, number) for number in range(1, 4)]
    answer(bench)
    before = stands(bench)

    rows = bench.stored(runs[0]).keys.report("rows/part-00001.parquet")
    answered = pl.read_parquet(bench.content(rows))
    refused = answered.with_columns(state=pl.lit("error"), url=None, expires_on=None)
    write_parquet(bench.store, rows, refused)
    record_event(bench.context.adapters, keys_of(runs[0]), "noted", of="it")

    assert before != stands(bench)
    assert from_ledgers(bench) == stands(bench)


def test_who_reads_while_another_writes_works_it_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _ = after_a_night(tmp_path)
    work_out = BookOfRuns.work_out
    versions: list[int] = []

    def overtaken(own: BookOfRuns, connection: Connection) -> upkeep.Update | None:
        news = work_out(own, connection)
        if news is not None and not versions:
            versions.append(news.version)
            return news._replace(version=news.version - 1)
        return news

    monkeypatch.setattr(BookOfRuns, "work_out", overtaken)
    said = stands(bench)

    assert 1 == len(versions)
    assert from_ledgers(bench) == said


@pytest.mark.parametrize("was_read", [False, True])
def test_who_began_before_the_book_was_discarded_writes_nothing_of_what_was_read(
    tmp_path: Path, was_read: bool
) -> None:
    bench, _ = after_a_night(tmp_path)
    if was_read:
        stands(bench)
        night(bench, 2)
    book = BookOfRuns(bench.runs)
    with bench.database.snapshot() as connection:
        begun = book.work_out(connection)
    assert begun is not None

    forget_book(bench.context.adapters, "bank")
    is_written = bench.database.act("bank", lambda connection: book.write(connection, begun))

    assert not is_written
    assert from_ledgers(bench) == stands(bench)


def test_what_another_version_of_the_code_derived_is_worked_out_anew(tmp_path: Path) -> None:
    bench, _ = after_a_night(tmp_path)
    stands(bench)
    spoiled = (
        update(tables.WATERMARK).values(code="another"),
        update(tables.ATTEMPT).values(state="error"),
    )

    def spoil(connection: Connection) -> None:
        for statement in spoiled:
            connection.execute(statement)

    bench.database.act("bank", spoil)

    assert from_ledgers(bench) == stands(bench)


def test_a_dry_run_sees_its_own_runs_in_the_book_and_writes_nothing(tmp_path: Path) -> None:
    bench = small_chunks(tmp_path)
    extract = bench.drop(6, "bank-20261101.csv", seed=1)
    dry = overlaid(bench.context)
    submit(dry, Request(extract))

    planned = read_book(dry.adapters, "bank").attempts.height

    assert planned > 0
    assert 0 == read_book(bench.context.adapters, "bank").attempts.height


def test_a_person_reads_of_each_attempt_what_the_book_reads(tmp_path: Path) -> None:
    bench, _ = after_a_night(tmp_path)
    said = read_book(bench.context.adapters, "bank").attempts

    with bench.database.snapshot() as connection:
        stored = read_attempts(connection, "bank", ATTEMPT.names(), of_turn(1))

    assert said.equals(stored)


def test_a_run_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, run = after_a_night(tmp_path)
    stands(bench)
    monkeypatch.setattr(upkeep, "attempts_of", lambda *_: pytest.fail("read again"))

    said = stands(bench)
    rows = stored_runs(bench)

    assert 6 == len(said)
    assert [run] == [*rows]
    assert 1 == rows[run].turn


def test_each_kind_of_database_says_what_the_ledgers_say(
    tmp_path: Path, database: Database
) -> None:
    bench = replace(small_chunks(tmp_path), database=database)
    first = night(bench, 1)

    for step in ("answer", "deliver", "report", "dry run", "cancel", "forget", "read"):
        STEPS[step](bench)
        assert from_ledgers(bench) == stands(bench)
    second = night(bench, 2)

    assert from_ledgers(bench) == stands(bench)
    rows = stored_runs(bench)
    assert [(first, 1), (second, 2)] == [(run, row.turn) for run, row in sorted(rows.items())]
