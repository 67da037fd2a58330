"""Deliveries of links: a row and a folder for each, by receiver, and the changes that each has.

Their links are stored as they were handed out, or without those erased. The changes are rows of
`delivery_change`, each link by its digest, written in the act that makes a delivery, so whoever
delivers, or asks what was delivered, opens no delivery of earlier days. No entry of the journal has
them, since an erasure has to forget them; a database that was lost gets them from `links.parquet`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from flows.book.known_runs import link_digest
from flows.book.stages import DELIVERED_LINK, LOOK, ROW
from flows.book.stored_book import insert_rows
from flows.commands.trace import History, card_named
from flows.database.bulk import read_frame
from flows.extensions.deliveries.formats import Delivery
from flows.extensions.deliveries.handover import Line, read_handed
from flows.extensions.deliveries.settings import DEFAULT
from flows.extensions.deliveries.tables import DELIVERY, DELIVERY_CHANGE
from flows.operations.conditions import Gauge
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.erased import People
from flows.runs.journal import Act, enter
from flows.runs.single_links import ARRIVED
from flows.runs.store import Store, read_if_stored
from schemas.database import WATERMARK

_LINKS = re.compile(r"/links(-erased-(?P<erased>\d+))?\.parquet$")
# a file that names links, in the folder of a delivery
FILES = re.compile(r"/\d{6}/links(-\d{5}|-erased-\d+)?\.(csv|jsonl|parquet)(\.pgp)?$")
_DELIVERY = re.compile(r"[^/]+/deliveries/((?P<receiver>[a-z][a-z0-9-]*)/)?(?P<number>\d{6})/")


def deliveries(issuer: str) -> str:
    """Return the prefix of an issuer's deliveries, a folder for each."""
    return f"{issuer}/deliveries/"


class DeliveryId(NamedTuple):
    """A delivery: whose it is, and which of the receiver's."""

    receiver: str
    number: int


def line_of(issuer: str, receiver: str) -> Line[Delivery]:
    """Return the deliveries to a receiver."""
    own = "deliveries" if receiver == DEFAULT else f"deliveries/{receiver}"
    return Line(issuer, DELIVERY, Delivery, {"receiver": receiver}, own, receiver)


def delivery_of(key: str) -> DeliveryId | None:
    """Return the delivery that an object belongs to; None for what belongs to none."""
    match = _DELIVERY.match(key)
    return DeliveryId(match["receiver"] or DEFAULT, int(match["number"])) if match else None


def delivery_folder(issuer: str, number: int, receiver: str = DEFAULT) -> str:
    """Return the prefix of a delivery's files."""
    return line_of(issuer, receiver).folder(number)


def receivers_with_deliveries(adapters: Adapters, issuer: str) -> list[str]:
    """Return the receivers that have deliveries."""
    return sorted({each.receiver for each in all_deliveries(adapters, issuer)})


def all_deliveries(adapters: Adapters, issuer: str) -> list[DeliveryId]:
    """Return the deliveries of all receivers."""
    key = (DELIVERY.c.receiver, DELIVERY.c.number)
    query = select(*key).where(DELIVERY.c.issuer == issuer).order_by(*key)
    with adapters.database.snapshot() as connection:
        return [DeliveryId(*row) for row in connection.execute(query)]


def gauges() -> list[Gauge]:
    """Return the metric of how many deliveries of links there were."""

    def count(context: IssuerContext) -> dict[str, float]:
        return {"": len(all_deliveries(context.adapters, context.issuer.issuer))}

    return [Gauge("deliveries", "Deliveries of links.", "", count, "counter")]


def names_erased(adapters: Adapters, issuer: str) -> bool:
    """Return whether deliveries may name erased cardholders until a receiver confirms."""
    return bool(receivers_with_deliveries(adapters, issuer))


def delivered_links_key(store: Store, issuer: str, delivery: DeliveryId) -> str | None:
    """Return the key of the links of a delivery; None where they were purged, or never written."""
    folder = delivery_folder(issuer, delivery.number, delivery.receiver)
    key = f"{folder}links.parquet"
    if read_if_stored(store, key, 0) is not None:
        return key
    matches = (_LINKS.search(entry.key) for entry in store.keys(folder))
    rewritten = [int(match["erased"]) for match in matches if match and match["erased"]]
    return f"{folder}links-erased-{max(rewritten)}.parquet" if rewritten else None


def next_links_key(key: str) -> str:
    """Return the key under which the links of a delivery are written anew, after those at a key."""
    match = _LINKS.search(key)
    number = int(match["erased"] or 0) + 1 if match else 1
    return f"{key.rpartition('/')[0]}/links-erased-{number}.parquet"


def read_delivered_links(store: Store, issuer: str, delivery: DeliveryId) -> bytes | None:
    """Return the links of a delivery as Parquet; None where there are none any more."""
    key = delivered_links_key(store, issuer, delivery)
    return None if key is None else read_if_stored(store, key)


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
    """Write the changes of a delivery (`flows.extensions.deliveries.changes.CHANGED`)."""
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


def delivered_links(connection: Connection, issuer: str) -> pl.DataFrame:
    """Return the links that receivers were handed, and may use (DELIVERED_LINK)."""
    return standing_links(read_changes(connection, issuer))


def standing_links(changes: pl.DataFrame) -> pl.DataFrame:
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


def not_delivered_to(adapters: Adapters, issuer: str, receiver: str, served: pl.DataFrame) -> int:
    """Return how many of the cards with a link (`served_cards`) a receiver was not handed."""
    with adapters.database.snapshot() as connection:
        changes = read_changes(connection, issuer, DELIVERY_CHANGE.c.receiver == receiver)
    look = [*LOOK, "until"]
    known = standing_links(changes).select(look)
    return served.join(known, on=look, how="anti", nulls_equal=True).height


def withdrawals_owed(
    adapters: Adapters, issuer: str, people: People
) -> Iterator[tuple[str, int | None]]:
    """Yield the receivers that may still use a link of these cardholders, each with the number of
    its last delivery where that has to be confirmed, None where one has to be made.
    """
    for receiver in receivers_with_deliveries(adapters, issuer):
        with adapters.database.snapshot() as connection:
            changes = read_changes(connection, issuer, DELIVERY_CHANGE.c.receiver == receiver)
            handed = read_handed(connection, line_of(issuer, receiver))
        base = max((each.number for each in handed if each.confirmed), default=0)
        theirs = changes.filter(people.named_by(changes["cuid"])).group_by("cuid", "link")
        last = theirs.agg(pl.col("change", "delivery").last())
        owed = last.filter((pl.col("change") != WITHDRAWN) | (pl.col("delivery") > base))
        if owed.height:
            is_told = (owed["change"] == WITHDRAWN).all()
            yield receiver, handed[-1].number if is_told else None


def history(adapters: Adapters, issuer: str, cuid: str) -> History:
    """Return what receivers have of a cardholder's links, for `trace`."""
    links = history_of(adapters, issuer, cuid)
    facts = [{**link, **_as_text(link)} for link in links]
    return History("deliveries", facts, [_line(link) for link in links])


def _as_text(delivered: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the times of a delivered link as JSON has them."""
    return {
        name: delivered[name].isoformat() if delivered[name] is not None else None
        for name in ("until", "delivered", "withdrawn")
    }


def _line(delivered: Mapping[str, Any]) -> str:
    """Return what a receiver has of a link."""
    came = f"delivered to {delivered['receiver']} {delivered['delivered']:%Y-%m-%d %H:%M}"
    went = delivered["withdrawn"]
    then = f"withdrawn {went:%Y-%m-%d %H:%M}" if went else f"link until {delivered['until']}"
    return f"card {card_named(delivered['last_4'], None)}: {came}, {then}"
