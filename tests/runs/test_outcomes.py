"""What is kept of result files: ingested again in any company, the last word on each file counts."""

from __future__ import annotations

from datetime import UTC, date, datetime

import polars as pl
from sqlalchemy import func, select

from flows.database.connection import Database
from flows.runs.adapters import Adapters
from flows.runs.answers import FileState, ReadResult, runs_answered_by, store_results
from flows.runs.journal import enter, entries
from flows.runs.outcomes import StoredOutcomes
from flows.runs.store import Entry
from schemas.database import ANSWER, INGESTED, RESULT_FILE
from tests.memory import MemoryStore
from tests.night import BANK, edges
from tests.results.outcomes import RUN, attribute, link, refusal, result, sent_rows

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def answer(name: str, *rows: int, refused: int = 0) -> ReadResult:
    lines = [link(at) for at in rows] + ([refusal(refused, "no")] if refused else [])
    one = attribute(result(lines, name), sent_rows())
    one = one._replace(received=date(2026, 11, 20), problems=("file.line.ragged",))
    key = f"bank/results/{name}"
    return ReadResult(Entry(key, 1, NOON, "1"), one, FileState(key))


def placed(database: Database) -> Adapters:
    return edges(MemoryStore(), database)


def store(adapters: Adapters, *results: ReadResult) -> list[frozenset[str]]:
    return enter(adapters, BANK, "answered", lambda act: store_results(act, NOON, results))


def kept(adapters: Adapters, run: str = RUN) -> StoredOutcomes:
    return StoredOutcomes(adapters, BANK, run)


def kept_rows(adapters: Adapters) -> list[list[int]]:
    """Return the rows of each content of each file that counts."""
    return sorted(one.outcomes["row"].to_list() for one in kept(adapters).of([1, 2]))


def counted(adapters: Adapters) -> list[int]:
    with adapters.database.snapshot() as connection:
        return [connection.scalar(select(func.count()).select_from(each)) or 0 for each in INGESTED]


def test_files_stored_together_come_back_one_by_one_as_they_were(database: Database) -> None:
    adapters, answers = placed(database), [answer("a.csv", 2, 1), answer("b.csv", 6, 7, refused=8)]

    store(adapters, *answers)

    assert frozenset({1, 2}) == kept(adapters).chunks()
    for chunk, given in enumerate(answers, start=1):
        (found,) = kept(adapters).of([chunk], sent_rows())
        assert given.attributed.outcomes.equals(found.outcomes)
        assert given.attributed._replace(arrived=NOON) == found._replace(
            outcomes=given.attributed.outcomes
        )


def test_a_file_ingested_again_in_other_company_says_what_it_said_last(database: Database) -> None:
    adapters = placed(database)
    last = answer("a.csv", 1, 2, 3)
    first = answer("a.csv", 1)
    first = first._replace(attributed=first.attributed._replace(digest=last.attributed.digest))
    store(adapters, first, answer("b.csv", 6))

    store(adapters, last)

    assert [[1, 2, 3], [6]] == kept_rows(adapters)


def test_of_a_file_that_came_again_with_other_content_stays_what_had_settled_a_row(
    database: Database,
) -> None:
    adapters = placed(database)
    before = answer("a.csv", 1, 2, 3)
    states = pl.Series(["linked", "broken", "error"])
    troubles = pl.Series([None, "RESULT_LONG", None])
    rows = before.attributed.outcomes.with_columns(state=states, trouble=troubles)
    before = before._replace(attributed=before.attributed._replace(outcomes=rows))
    store(adapters, before, answer("b.csv", 6))

    store(adapters, answer("a.csv", 2, 4))

    files = {one.digest: one for one in kept(adapters).of([1, 2])}
    superseded = files[before.attributed.digest]
    assert [[1, 3], [2, 4], [6]] == kept_rows(adapters)
    assert (True, ()) == (superseded.superseded, superseded.problems)
    assert 1 == sum(one.superseded for one in files.values())


def test_the_same_files_ingested_again_take_no_more_room(database: Database) -> None:
    adapters, answers = placed(database), [answer("a.csv", 1), answer("b.csv", 6)]
    store(adapters, *answers)
    before = counted(adapters)

    for files in (answers, answers[::-1]):
        store(adapters, *files)

    assert before == counted(adapters) == [2, 2, 2]


def test_a_file_whose_rows_go_to_nobody_any_more_says_nothing_of_the_run(
    database: Database,
) -> None:
    adapters, given = placed(database), answer("a.csv", 1, 2)
    store(adapters, given)
    nobody = given.attributed.outcomes.with_columns(
        run=pl.lit(None, pl.String), chunk=pl.lit(None, pl.UInt32), row=pl.lit(None, pl.UInt32)
    )

    left = store(adapters, given._replace(attributed=given.attributed._replace(outcomes=nobody)))

    assert [frozenset({RUN})] == left
    assert (frozenset(), ()) == (
        kept(adapters).chunks(),
        runs_answered_by(adapters, BANK, given.entry.key),
    )
    assert [("answered", RUN), ("answered", None), ("answer taken back", RUN)] == [
        (entry.what, entry.run) for entry in entries(adapters, BANK)
    ]


def test_two_files_of_equal_bytes_are_two_and_no_two_contents_of_one_are_the_newest(
    database: Database,
) -> None:
    adapters, given = placed(database), answer("a.csv", 1)
    twin = given._replace(
        entry=given.entry._replace(key="bank/results/twin.csv"), state=FileState("bank/twin.csv")
    )
    store(adapters, given, twin)
    store(adapters, answer("a.csv", 2))

    with adapters.database.snapshot() as connection:
        files = connection.execute(
            select(RESULT_FILE.c.number, RESULT_FILE.c.is_superseded).order_by("number")
        ).all()
        rows = list(connection.scalars(select(ANSWER.c.number).order_by("number")))

    assert [(1, True), (2, False), (3, False)] == [tuple(file) for file in files]
    assert [1, 2, 3] == rows
