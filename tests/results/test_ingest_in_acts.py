"""Ingest is acts: killed before or after any of them, beside another ingest, and whatever came first, the
end is the same; on each kind of database.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, select

from flows.database.connection import Database
from flows.operations.manual_attribution import attribute_row
from flows.results import batches
from flows.runs.keys import results
from schemas.database import ANSWER, METADATA, RESULT_FILE
from tests.builders import share_of
from tests.memory import KilledError
from tests.memory_bench import memory_bench
from tests.night import BANK, Bench

T = TypeVar("T")
HEAD = "cuid,last_4,url,expiration_date,error\n"
LISTS = ("links.csv", "errors.csv", "awaiting.csv", "breaks.csv")


class Mortal:
    """A database on which a process dies before, or after, its act with that number."""

    def __init__(self, below: Database, nth: int, *, after: bool) -> None:
        self._below = below
        self._nth = nth
        self._after = after
        self.acts = 0
        self.place = below.place
        self.rehearsal = below.rehearsal
        self.snapshot = below.snapshot

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        self.acts += 1
        if self.acts == self._nth and not self._after:
            raise KilledError
        result = self._below.act(issuer, work)
        if self.acts == self._nth:
            raise KilledError
        return result


def on(bench: Bench, database: object) -> Bench:
    stored: Any = database
    return replace(bench, database=stored)


def said(bench: Bench) -> tuple[list[Any], list[Any]]:
    """Return what the database has of the result files, whatever their numbers are."""
    file, answer = RESULT_FILE.c, ANSWER.c
    kept = (file.name, file.digest, file.is_superseded, file.told, file.basis.is_(None))
    of_file = select(*kept).order_by(file.name, file.digest)
    rows = select(file.name, file.digest, answer.position, answer.run, answer.row, answer.outcome)
    rows = rows.where(file.number == answer.number, file.issuer == answer.issuer)
    with bench.database.snapshot() as connection:
        files = [tuple(row) for row in connection.execute(of_file)]
        ordered = rows.order_by(file.name, file.digest, answer.position)
        return files, [tuple(row) for row in connection.execute(ordered)]


def lists(bench: Bench) -> dict[tuple[str, str], bytes]:
    """Return the lists of all runs that have a report."""
    return {
        (run.id, name): bench.report(run.id, name)
        for run in bench.runs
        for name in LISTS
        if run.summary is not None
    }


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CHUNKS", 2)


def night(database: Database) -> Bench:
    """Return a night, in a database that is empty but for it, whose answers take three batches."""

    def empty(connection: Connection) -> None:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(delete(table))

    database.act(BANK, empty)
    bench = on(memory_bench(portal={"rows_per_chunk": 5}), database)
    bench.submit(bench.drop(20))
    bench.answer(fail_share=0.2, seed=5)
    bench.drop_result(b"<html>log in</html>", "stray.csv")
    return bench


def test_an_ingest_that_is_killed_before_or_after_any_act_is_finished_by_the_next(
    database: Database,
) -> None:
    bench = night(database)
    counting = Mortal(database, 0, after=False)
    on(bench, counting).ingest()
    truth = said(bench), lists(bench)

    ends = []
    for nth in range(1, counting.acts + 1):
        for after in (False, True):
            bench = night(database)
            with pytest.raises(KilledError):
                on(bench, Mortal(database, nth, after=after)).ingest()
            bench.ingest()
            ends.append((said(bench), lists(bench)))

    assert 3 <= counting.acts
    assert [truth] * len(ends) == ends


def test_two_ingests_at_once_store_each_file_once(database: Database) -> None:
    bench = night(database)
    bench.ingest()
    truth = said(bench), lists(bench)
    bench = night(database)

    with ThreadPoolExecutor(2) as ingests:
        list(ingests.map(lambda _: bench.ingest(), range(2)))

    assert truth == (said(bench), lists(bench))


def test_no_row_of_a_file_is_there_without_its_file(database: Database) -> None:
    bench = night(database)
    bench.ingest()

    files, rows = said(bench)

    named = {(name, digest) for name, digest, *_ in files}
    assert {(name, digest) for name, digest, *_ in rows} <= named
    assert 5 == len(list(bench.store.keys(results(BANK)))) == len(files)


# In any order
# --------------------------------------------------------------------------------------------------


def _steps(bench: Bench, run: str) -> dict[str, Callable[[], object]]:
    """Return what may come in any order: two files, a decision about one, a later commit."""
    sent = bench.ledger(run).to_dicts()
    lines = [
        f"{row['cuid']},{row['last_4']},https://links.example.com/l{row['row']},2027-01-20,\n"
        for row in sent
    ]
    first = "".join([HEAD, *lines[:3], ",,,,no\n"]).encode()
    second = "".join([HEAD, *lines[4:]]).encode()
    bench.drop_result(first, "a.csv")
    return {
        "second file": lambda: bench.drop_result(second, "b.csv"),
        "decision": lambda: attribute_row(bench.context, "a.csv", 4, (run, 4), "they say so"),
        "commit": lambda: bench.submit(bench.drop(4, "bank-20261121.csv", seed=8)),
        "ingest": bench.ingest,
    }


def _end(order: tuple[str, ...]) -> tuple[Any, Any]:
    bench = memory_bench()
    run = bench.submit(bench.drop(6)).manifest.run
    steps = _steps(bench, run)
    for name in order:
        steps[name]()
    bench.ingest()
    return said(bench), {name: bench.report(run, name) for name in LISTS}


ORDERS = list(permutations(("second file", "decision", "commit", "ingest")))


@settings(
    max_examples=share_of(0.4),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.sampled_from(ORDERS))
def test_files_a_commit_and_a_decision_in_any_order_have_the_same_end(
    order: tuple[str, ...],
) -> None:
    assert _end(ORDERS[0]) == _end(order)
