"""What is kept of deliveries, and what they say of a cardholder's links."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from sqlalchemy import insert

from flows.book.stored_book import insert_rows
from flows.database.connection import Database
from flows.errors import BugError
from flows.extensions.deliveries.delivered import (
    CHANGE,
    DeliveryId,
    forget_changes,
    history_of,
    line_of,
    read_changes,
    standing_links,
)
from flows.extensions.deliveries.formats import Delivery
from flows.extensions.deliveries.handover import make
from flows.extensions.deliveries.tables import DELIVERY, DELIVERY_CHANGE
from flows.runs.journal import Act, enter, entries
from tests.memory_bench import memory_bench
from tests.night import BANK, Bench

FIRST = datetime(2026, 11, 22, 8, tzinfo=UTC)


def changes(*rows: tuple[int, int, str, date]) -> pl.DataFrame:
    """Return changes of deliveries to the default receiver: number, link, change, until."""
    card = {"receiver": "default", "cuid": "a", "last_4": "1111"}
    return pl.DataFrame(
        [
            {**card, "delivery": number, "link": link, "change": change, "until": until}
            | {"at": FIRST + timedelta(days=number)}
            for number, link, change, until in rows
        ],
        CHANGE,
    )


def test_of_each_link_the_last_end_the_first_delivery_and_the_last_withdrawal_count(
    database: Database,
) -> None:
    early, late = date(2027, 1, 20), date(2027, 2, 20)
    rows = changes(
        (1, 1, "new", early),
        (2, 1, "withdrawn", early),
        (3, 1, "new", late),
        (4, 2, "new", early),
        (5, 2, "withdrawn", early),
    )
    bench = replace(memory_bench(), database=database)
    stored(bench, rows)

    history = history_of(bench.adapters, BANK, "a")

    columns = ("until", "delivered", "withdrawn")
    assert [
        (late, FIRST + timedelta(days=1), None),
        (early, FIRST + timedelta(days=4), FIRST + timedelta(days=5)),
    ] == [tuple(link[name] for name in columns) for link in history]
    assert [] == history_of(bench.adapters, BANK, "b")


def stored(bench: Bench, rows: pl.DataFrame) -> None:
    """Make deliveries with these changes."""

    def work(act: Act) -> None:
        for (number,), of_it in rows.group_by("delivery", maintain_order=True):
            counts = dict.fromkeys(("after", "new", "replaced", "withdrawn", "living"), 0)
            at = FIRST + timedelta(days=int(str(number)))
            record = Delivery(at=at, by="anna", files={}, **counts)
            make(act, line_of(BANK, "default"), int(str(number)), record, tries=0)
            changed = of_it.drop("at").with_row_index("place")
            insert_rows(act.connection, DELIVERY_CHANGE, BANK, changed)

    enter(bench.adapters, BANK, "delivery made", work)


def test_what_is_removed_of_deliveries_is_of_these_deliveries_and_cuids_alone(
    database: Database,
) -> None:
    until = date(2027, 1, 20)
    rows = changes(*((number, number, "new", until) for number in (1, 2, 3)))
    bench = replace(memory_bench(), database=database)
    stored(bench, pl.concat([rows, rows.with_columns(cuid=pl.lit("b"))]).sort("delivery"))
    ids = [DeliveryId("default", number) for number in (1, 2)]

    forget_changes(bench.adapters, BANK, {ids[0]: None, ids[1]: {"b"}})

    with database.snapshot() as connection:
        left = read_changes(connection, BANK)
    assert [(2, "a"), (3, "a"), (3, "b")] == sorted(left.select("delivery", "cuid").rows())
    *_, entry = entries(bench.adapters, BANK)
    assert ("delivered links removed", {"links": 3}) == (entry.what, entry.facts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 0},
        {"after": 1},
        {"after": -1},
        {"new": -1},
        {"taken_at": FIRST},
        {"confirmed_at": FIRST, "confirmed_by": "anna", "confirmed_reason": "receipt"},
        {"done_at": FIRST, "confirmed_at": FIRST},
        {"tries": 1},
        {"problem": "away"},
    ],
)
def test_what_cannot_be_of_a_delivery_is_refused_by_the_database(
    database: Database, wrong: dict[str, Any]
) -> None:
    counts = dict.fromkeys(("after", "new", "replaced", "withdrawn", "living", "tries"), 0)
    right = {
        "number": 1,
        "receiver": "default",
        "at": FIRST,
        "by": "anna",
        "files": {},
        "opened": "",
    }
    row = {"issuer": BANK, **right, **counts}

    def written(values: dict[str, Any]) -> None:
        database.act(BANK, lambda connection: connection.execute(insert(DELIVERY).values(values)))

    with pytest.raises(BugError):
        written({**row, **wrong})
    written(row)


def test_a_link_that_several_receivers_have_is_delivered_since_the_first_of_them() -> None:
    until = date(2027, 1, 20)
    rows = changes((3, 1, "new", until), (1, 1, "new", until), (2, 1, "new", until))
    of_several = rows.with_columns(receiver=pl.Series(["late", "first", "next"]))

    (link,) = standing_links(of_several).rows(named=True)

    assert (until, FIRST + timedelta(days=1)) == (link["until"], link["delivered"])
