"""The changes of the deliveries of links to all receivers, each link by its digest, and which links
they leave.

They are rows of `delivery_change`, written in the act that makes a delivery, so whoever delivers,
or asks what was delivered, opens no delivery of earlier days. No entry of the journal has them,
since an erasure has to forget them; a database that was lost gets them from `links.parquet`.
"""

from collections.abc import Collection, Mapping
from typing import Any

import polars as pl
from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from flows.book.known_runs import link_digest
from flows.book.stored_book import insert_rows
from flows.database.bulk import read_frame
from flows.runs.adapters import Adapters
from flows.runs.delivered import DeliveryId
from flows.runs.journal import Act, enter
from flows.runs.single_links import ARRIVED
from schemas.database import DELIVERY, DELIVERY_CHANGE, WATERMARK

LOOK = ("cuid", "last_4", "expiration")  # of a card, as a delivery has it
ROW = ("run", "row")  # that a link came of
WITHDRAWN = "withdrawn"
CHANGE = pl.Schema(
    {
        "receiver": pl.String(),
        "delivery": pl.UInt32(),
        "run": pl.String(),
        "row": pl.UInt32(),
        **dict.fromkeys(LOOK, pl.String()),
        "link": pl.Int64(),  # the digest of its URL
        "change": pl.String(),
        "until": pl.Date(),
        "at": ARRIVED,  # when the delivery was made
    }
)
DELIVERED_LINK = pl.Schema(
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        **dict.fromkeys(LOOK, pl.String()),
        "until": pl.Date(),
        "delivered": ARRIVED,
    }
)


def read_changes(connection: Connection, issuer: str, *which: ColumnElement[bool]) -> pl.DataFrame:
    """Return the changes of deliveries in order (CHANGE); `which`: those alone."""
    row = DELIVERY_CHANGE.c
    is_of_delivery = and_(
        DELIVERY.c.issuer == row.issuer,
        DELIVERY.c.receiver == row.receiver,
        DELIVERY.c.number == row.delivery,
    )
    columns = [DELIVERY.c.at if name == "at" else row[name] for name in CHANGE]
    query = select(*columns).join_from(DELIVERY_CHANGE, DELIVERY, is_of_delivery)
    query = query.where(row.issuer == issuer, *which)
    return read_frame(connection, query.order_by(*DELIVERY_CHANGE.primary_key), CHANGE)


def deliveries_with_changes(connection: Connection, issuer: str) -> frozenset[DeliveryId]:
    """Return the deliveries of which the database has changes."""
    row = DELIVERY_CHANGE.c
    query = select(row.receiver, row.delivery).where(row.issuer == issuer).distinct()
    return frozenset(DeliveryId(*key) for key in connection.execute(query))


def write_changes(
    connection: Connection, issuer: str, delivery: DeliveryId, changes: pl.DataFrame
) -> None:
    """Write the changes of a delivery (`flows.operations.link_changes.CHANGED`)."""
    rows = changes.with_row_index("place").select(
        "place",
        *(name for name in CHANGE if name in changes.columns),
        receiver=pl.lit(delivery.receiver),
        delivery=pl.lit(delivery.number),
        link=link_digest(pl.col("url")),
    )
    insert_rows(connection, DELIVERY_CHANGE, issuer, rows)
    _note_change(connection, issuer)


def forget_changes(
    adapters: Adapters, issuer: str, of_deliveries: Mapping[DeliveryId, Collection[str] | None]
) -> None:
    """Delete the changes of deliveries that are of these cuids, or all of them where that is None;
    the journal has how many.
    """

    def forget(act: Act) -> None:
        deleted = 0
        for delivery, cuids in of_deliveries.items():
            key = {"receiver": delivery.receiver, "delivery": delivery.number}
            of_it = act.row(DELIVERY_CHANGE, key)
            if cuids is not None:
                of_it &= DELIVERY_CHANGE.c.cuid.in_(sorted(cuids))
            deleted += act.connection.execute(delete(DELIVERY_CHANGE).where(of_it)).rowcount
        if deleted:
            act.facts["links"] = deleted
            _note_change(act.connection, issuer)

    enter(adapters, issuer, "delivered links removed", forget)


def _note_change(connection: Connection, issuer: str) -> None:
    """Note that what is known of the issuer's links is something else now."""
    of_issuer = WATERMARK.c.issuer == issuer
    raised = update(WATERMARK).where(of_issuer).values(version=WATERMARK.c.version + 1)
    connection.execute(raised)


def history_of(adapters: Adapters, issuer: str, cuid: str) -> list[dict[str, Any]]:
    """Return what each receiver has of a cardholder's links: `receiver`, `until`, `delivered`, and
    `withdrawn`, when it was taken back, None while the receiver may use it.
    """
    with adapters.database.snapshot() as connection:
        changes = read_changes(connection, issuer, DELIVERY_CHANGE.c.cuid == cuid)
    is_withdrawn = pl.col("change") == WITHDRAWN
    links = changes.group_by("receiver", "link", "last_4", maintain_order=True).agg(
        pl.col("until").last(),
        delivered=pl.col("at").filter(~is_withdrawn).first(),
        withdrawn=pl.when(is_withdrawn.last()).then(pl.col("at").last()),
    )
    return links.drop("link").to_dicts()


def delivered_links(changes: pl.DataFrame) -> pl.DataFrame:
    """Return the links that a receiver was delivered and that were not withdrawn from it since,
    when first, and to whom.

    `changes`: those of all deliveries in order (CHANGE). Of those of one row, or without a row of
    one look, that end on the same day the first.
    """
    links = changes.group_by("receiver", "cuid", "link", maintain_order=True).agg(
        pl.col(*ROW, *LOOK[1:], "until", "change").last(),
        delivered=pl.col("at").filter(pl.col("change") != WITHDRAWN).first(),
    )
    standing = links.filter(pl.col("change") != WITHDRAWN).sort("delivered")
    once = standing.unique([*ROW, *LOOK, "until"], keep="first", maintain_order=True)
    return once.select(*DELIVERED_LINK).cast(DELIVERED_LINK)
