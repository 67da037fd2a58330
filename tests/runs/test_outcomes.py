"""What is kept of result files: taken up again in any company, the last word on each file
counts.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl

from flows.adapters.local import LocalStore
from flows.runs.keys import keys_of
from flows.runs.outcomes import RunOutcomes, StoredOutcomes, write_outcomes
from flows.runs.store import Entry
from tests.results.outcomes import RUN, attribute, link, result, sent_rows

KEYS = keys_of(RUN)
NOON, LATER = (datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (12, 13))


def answer(name: str, *rows: int) -> RunOutcomes:
    one = attribute(result([link(at) for at in rows], name), sent_rows())
    one = one._replace(received=date(2026, 11, 20), problems=("file.line.ragged",))
    return RunOutcomes(Entry(f"bank/results/{name}", 1, NOON, "1"), one, one.outcomes)


def test_files_kept_together_come_back_one_by_one_as_they_were(tmp_path: Path) -> None:
    store, answers = LocalStore(tmp_path), [answer("a.csv", 2, 1), answer("b.csv", 6, 7, 8)]

    write_outcomes(store, KEYS, NOON, answers)

    assert frozenset({1, 2}) == StoredOutcomes(store, KEYS).chunks()
    for chunk, kept in enumerate(answers, start=1):
        (found,) = StoredOutcomes(store, KEYS).of([chunk])
        assert kept.one.outcomes.equals(found.outcomes)
        assert kept.one._replace(arrived=kept.entry.modified) == found._replace(
            outcomes=kept.one.outcomes
        )


def test_a_file_taken_up_again_in_other_company_says_what_it_said_last(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    last = answer("a.csv", 1, 2, 3)
    first = answer("a.csv", 1)
    first = first._replace(one=first.one._replace(digest=last.one.digest))
    write_outcomes(store, KEYS, LATER, [last])

    write_outcomes(store, KEYS, NOON, [first, answer("b.csv", 6)])

    assert [[1, 2, 3], [6]] == kept_rows(store)


def kept_rows(store: LocalStore) -> list[list[int]]:
    """Return the rows of each content of each file that counts."""
    return sorted(one.outcomes["row"].to_list() for one in StoredOutcomes(store, KEYS).of([1, 2]))


def test_of_a_file_that_came_again_with_other_content_stays_what_had_settled_a_row(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    before = answer("a.csv", 1, 2, 3)
    states = pl.Series(["linked", "broken", "error"])
    before = before._replace(rows=before.rows.with_columns(state=states))
    write_outcomes(store, KEYS, NOON, [before, answer("b.csv", 6)])

    write_outcomes(store, KEYS, LATER, [answer("a.csv", 2, 4)])

    kept = {one.digest: one for one in StoredOutcomes(store, KEYS).of([1, 2])}
    assert [[1, 3], [2, 4], [6]] == kept_rows(store)
    assert (True, ()) == (kept[before.one.digest].superseded, kept[before.one.digest].problems)
    assert 1 == sum(one.superseded for one in kept.values())


def test_the_same_files_taken_up_again_take_no_more_room(tmp_path: Path) -> None:
    store, answers = LocalStore(tmp_path), [answer("a.csv", 1), answer("b.csv", 6)]

    written = {
        write_outcomes(store, KEYS, moment, files)
        for moment in (NOON, LATER)
        for files in (answers, answers[::-1])
    }

    assert written == {entry.key for entry in store.keys(KEYS.outcomes)}
    assert 1 == len(written)
