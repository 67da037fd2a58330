"""What is kept of deliveries, and what they say of a cardholder's links."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import polars as pl

from flows.book.deliveries import (
    CHANGE,
    NO_DELIVERIES,
    Deliveries,
    KnownDelivery,
    _joined,
    delivered_links,
    history_of,
    read_deliveries,
)
from tests.memory import MemoryStore

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


def test_of_each_link_the_last_end_the_first_delivery_and_the_last_withdrawal_count() -> None:
    early, late = date(2027, 1, 20), date(2027, 2, 20)
    rows = changes(
        (0, 1, "new", early),
        (1, 1, "withdrawn", early),
        (2, 1, "new", late),
        (3, 2, "new", early),
        (4, 2, "withdrawn", early),
    )

    history = history_of(rows, "a")

    columns = ("until", "delivered", "withdrawn")
    assert [
        (late, FIRST, None),
        (early, FIRST + timedelta(days=3), FIRST + timedelta(days=4)),
    ] == [tuple(link[name] for name in columns) for link in history]


def test_a_link_that_several_receivers_have_is_delivered_since_the_first_of_them() -> None:
    until = date(2027, 1, 20)
    rows = changes((3, 1, "new", until), (1, 1, "new", until), (2, 1, "new", until))
    of_several = rows.with_columns(receiver=pl.Series(["late", "first", "next"]))

    (link,) = delivered_links(of_several).rows(named=True)

    assert (until, FIRST + timedelta(days=1)) == (link["until"], link["delivered"])


def test_a_delivery_that_is_not_stored_any_more_is_not_known_any_more() -> None:
    known = KnownDelivery(receiver="default", number=1, objects="x")
    kept = Deliveries({known.id: known}, changes((1, 1, "new", date(2027, 1, 20))))

    read = read_deliveries(MemoryStore(), "bank", kept)

    assert ({}, 0) == (dict(read.known), read.changes.height)
    assert read_deliveries(MemoryStore(), "bank", NO_DELIVERIES) is NO_DELIVERIES


def test_changes_are_by_receiver_and_delivery_in_whatever_order_they_were_read() -> None:
    until = date(2027, 1, 20)
    rows = changes((1, 1, "new", until), (2, 1, "new", until), (1, 1, "new", until))
    read = rows.with_columns(receiver=pl.Series(["late", "first", "first"]))
    ids = read.select("receiver", "delivery").rows()
    staying = [KnownDelivery(receiver=to, number=number, objects="") for to, number in ids]

    joined = _joined(MemoryStore(), "bank", staying, read, {})

    assert sorted(ids) == joined.changes.select("receiver", "delivery").rows()
    assert sorted(ids) == list(joined.known)


def test_a_delivery_whose_objects_are_as_they_were_is_not_read_again() -> None:
    store = MemoryStore()
    key = "bank/deliveries/000001/received"
    store.create(key, b"")

    kept = read_deliveries(store, "bank", NO_DELIVERIES)

    assert 1 == len(kept.known)
    assert read_deliveries(store, "bank", kept) is kept
    store.replace(key, [b"other"])
    assert read_deliveries(store, "bank", kept) is not kept
