"""What is kept of deliveries, and what they say of a cardholder's links."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import polars as pl

from flows.book.deliveries import (
    CHANGE,
    KnownDelivery,
    delivered_links,
    delivery_news,
    history_of,
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


def test_a_delivery_that_is_not_stored_any_more_is_gone() -> None:
    known = KnownDelivery(receiver="default", number=1, objects="x")

    news = delivery_news(MemoryStore(), "bank", {known.id: known})

    assert frozenset({known.id}) == news.gone
    assert not news.read
    assert delivery_news(MemoryStore(), "bank", {}).is_empty


def test_a_delivery_whose_objects_are_as_they_were_is_not_read_again() -> None:
    store = MemoryStore()
    key = "bank/deliveries/000001/received"
    store.create(key, b"")

    read = delivery_news(store, "bank", {}).read
    known = {id_: delivery for id_, (delivery, _) in read.items()}

    assert 1 == len(known)
    assert delivery_news(store, "bank", known).is_empty
    store.replace(key, [b"other"])
    assert known.keys() == delivery_news(store, "bank", known).read.keys()
