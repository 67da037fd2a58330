"""The changes of the deliveries of links to all receivers, each link by its digest, and which links
they leave.

They are in the database with the stages (`link_stages.py`), so whoever delivers, or asks what was
delivered, opens no delivery of earlier days.
"""

from collections.abc import Mapping
from datetime import datetime
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict

from flows.book.known_runs import link_digest
from flows.runs.delivered import (
    DeliveryId,
    delivery_key,
    delivery_of,
    last_delivery,
    read_delivered_links,
)
from flows.runs.documents import read_document
from flows.runs.identity import digest
from flows.runs.keys import deliveries
from flows.runs.single_links import ARRIVED
from flows.runs.store import Store
from flows.runs.threads import concurrently
from schemas.handover import DEFAULT
from schemas.records import Delivery

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


class KnownDelivery(BaseModel):
    """What is kept of a delivery: whose it is, its number, what its record says, and the stored
    `objects` that it was read from.

    `after`: the delivery that it goes on from. `at`: None where its record is gone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    receiver: str
    number: int
    objects: str
    at: datetime | None = None
    after: int = 0

    @property
    def id(self) -> DeliveryId:
        """Which delivery it is."""
        return DeliveryId(self.receiver, self.number)


class Deliveries(NamedTuple):
    """The deliveries by receiver and number, and their changes in order (CHANGE), those purged
    apart.
    """

    known: Mapping[DeliveryId, KnownDelivery]
    changes: pl.DataFrame

    def of(self, receiver: str) -> "Deliveries":
        """Return those of one receiver."""
        known = {id_: each for id_, each in self.known.items() if id_.receiver == receiver}
        return Deliveries(known, self.changes.filter(receiver=receiver))


NO_DELIVERIES = Deliveries({}, pl.DataFrame(schema=CHANGE))


class DeliveryNews(NamedTuple):
    """The deliveries that are others than those that are known: `gone`, and `read` now."""

    gone: frozenset[DeliveryId]
    read: Mapping[DeliveryId, tuple[KnownDelivery, pl.DataFrame]]

    @property
    def is_empty(self) -> bool:
        """Whether nothing came and nothing went."""
        return not self.gone and not self.read


def delivery_news(
    store: Store, issuer: str, known: Mapping[DeliveryId, KnownDelivery]
) -> DeliveryNews:
    """Return which deliveries are others than they were, with their changes."""
    listed = _listed(store, issuer)
    ids = set(listed)
    for receiver in {DEFAULT, *(delivery.receiver for delivery in listed)}:
        ids.update(_chained(store, issuer, receiver))
    stay = {id_ for id_ in ids if _fits(known.get(id_), listed.get(id_))}
    new = {id_: listed.get(id_) for id_ in sorted(ids.difference(stay))}
    return DeliveryNews(frozenset(known.keys() - ids), _read(store, issuer, new))


def with_chain(store: Store, issuer: str, receiver: str, known: Deliveries) -> Deliveries:
    """Return the deliveries to a receiver, with those that a listing did not show yet."""
    own = known.of(receiver)
    new = [id_ for id_ in _chained(store, issuer, receiver) if id_ not in own.known]
    if not new:
        return own
    read = _read(store, issuer, dict.fromkeys(new)).items()
    later = {id_: delivery for id_, (delivery, _) in read}
    changes = pl.concat([own.changes, *(changes for _, (_, changes) in read)])
    in_order = changes.sort("receiver", "delivery", maintain_order=True)
    return Deliveries(dict(sorted({**own.known, **later}.items())), in_order)


def _chained(store: Store, issuer: str, receiver: str) -> list[DeliveryId]:
    """Return the deliveries in a receiver's chain, which is read by key."""
    newest, _ = last_delivery(store, issuer, receiver)
    return [DeliveryId(receiver, number) for number in range(1, newest + 1)]


def _read(
    store: Store, issuer: str, objects: Mapping[DeliveryId, str | None]
) -> dict[DeliveryId, tuple[KnownDelivery, pl.DataFrame]]:
    """Return what is to be known of deliveries, with their changes; `objects`: what is stored."""
    read = concurrently(lambda id_: _read_one(store, issuer, id_), objects)
    records = zip(objects.items(), read, strict=True)
    return {
        id_: (_known(id_, record, stored or ""), changes)
        for (id_, stored), (record, changes) in records
    }


def _fits(known: KnownDelivery | None, objects: str | None) -> bool:
    """Return whether a delivery was read from the objects that are listed of it now."""
    return known is not None and bool(objects) and known.objects == objects


def _known(id_: DeliveryId, record: Delivery | None, objects: str) -> KnownDelivery:
    kept = KnownDelivery(receiver=id_.receiver, number=id_.number, objects=objects)
    if record is None:
        return kept
    return kept.model_copy(update={"at": record.at, "after": record.after})


def _listed(store: Store, issuer: str) -> dict[DeliveryId, str]:
    """Return a digest of the objects of each delivery, as they are listed."""
    objects = dict[DeliveryId, list[str]]()
    for entry in store.keys(deliveries(issuer)):
        id_ = delivery_of(entry.key)
        if id_ is not None:
            line = f"{entry.key} {entry.size} {entry.version}"
            objects.setdefault(id_, []).append(line)
    return {id_: digest("\n".join(lines).encode()) for id_, lines in objects.items()}


def _read_one(store: Store, issuer: str, id_: DeliveryId) -> tuple[Delivery | None, pl.DataFrame]:
    """Return the record of a delivery, and its changes (CHANGE)."""
    record = read_document(store, delivery_key(issuer, id_), Delivery)
    content = read_delivered_links(store, issuer, id_)
    if content is None:
        return record, NO_DELIVERIES.changes
    stored = pl.read_parquet(BytesIO(content))
    changes = stored.with_columns(
        receiver=pl.lit(id_.receiver),
        delivery=pl.lit(id_.number),
        link=link_digest(pl.col("url")),
        at=pl.lit(record.at if record is not None else None, ARRIVED),
    )
    return record, changes.select(*CHANGE).cast(CHANGE)


def history_of(changes: pl.DataFrame, cuid: str) -> list[dict[str, Any]]:
    """Return what each receiver has of a cardholder's links: `receiver`, `until`, `delivered`, and
    `withdrawn`, when it was taken back, None while the receiver may use it.
    """
    is_withdrawn = pl.col("change") == WITHDRAWN
    links = (
        changes.filter(cuid=cuid)
        .group_by("receiver", "link", "last_4", maintain_order=True)
        .agg(
            pl.col("until").last(),
            delivered=pl.col("at").filter(~is_withdrawn).first(),
            withdrawn=pl.when(is_withdrawn.last()).then(pl.col("at").last()),
        )
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
