"""The questions of deploy/DATABASE.md, put to a database as a programme manager does; the book has
the same answers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.book.book import read_book
from flows.book.standing import HAS_LINK, TO_UPLOAD
from tests.night import DAY, Bench, local_bench, made_once
from tests.reference import QUERIES

Rows = list[tuple[Any, ...]]
LINKED, WAITING, ENDING = QUERIES
ENDING_DAY = DAY + timedelta(days=61 - 14)  # links live for 61 days: the first day that counts


@made_once
def two_nights(folder: Path, /) -> Bench:
    """Return a bench with a night that was answered, and one that waits for the upload."""
    bench = local_bench(folder, portal={"rows_per_chunk": 3})
    bench.submit(bench.drop(9, "bank-20261119.csv", seed=1))
    bench.answer(fail_share=0.4, seed=1)
    bench.ingest()
    bench.submit(bench.drop(4, "bank-20261120.csv", seed=2))
    return bench


def asked(bench: Bench, question: str, today: date) -> Rows:
    """Return the rows of a question of the page, to this issuer, on a day."""
    query = QUERIES[question].replace("first-bank", "bank").replace("'now'", f"'{today}'")
    assert bench.folder
    with closing(sqlite3.connect(bench.folder / "cardlink.db")) as connection:
        return connection.execute(query).fetchall()


def in_book(bench: Bench, today: date) -> pl.DataFrame:
    """Return where each card stands on a day."""
    return read_book(bench.context.adapters, "bank").cards(today)


def linked(bench: Bench) -> Rows:
    cards = in_book(bench, DAY).filter(pl.col("standing") == HAS_LINK.name)
    return cards.group_by("run").len().rows()


def waiting(bench: Bench) -> Rows:
    cards = in_book(bench, DAY).filter(pl.col("standing") == TO_UPLOAD.name).sort("row")
    since = pl.col("since").dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
    return cards.select("cuid", "last_4", "run", "wait", since).rows()


def ending(bench: Bench) -> Rows:
    within = pl.col("until").is_between(ENDING_DAY, ENDING_DAY + timedelta(days=14))
    cards = in_book(bench, ENDING_DAY).filter(within)
    return (
        cards.select("cuid", "last_4", pl.col("until").cast(pl.String)).sort("until", "cuid").rows()
    )


@pytest.mark.parametrize(
    ("question", "today", "of_book"),
    [(LINKED, DAY, linked), (WAITING, DAY, waiting), (ENDING, ENDING_DAY, ending)],
)
def test_a_question_to_the_database_has_the_answer_of_the_book(
    tmp_path: Path, question: str, today: date, of_book: Callable[[Bench], Rows]
) -> None:
    bench = two_nights(tmp_path)
    expected = of_book(bench)

    answer = asked(bench, question, today)

    assert expected == answer
    assert answer


def test_nothing_ends_within_the_question_where_links_are_young(tmp_path: Path) -> None:
    bench = two_nights(tmp_path)
    in_book(bench, DAY)

    answer = asked(bench, ENDING, DAY)

    assert [] == answer
