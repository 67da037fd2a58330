"""Deliveries of links: a row and a folder for each, by receiver.

Their links are stored as they were handed out, or without those erased.
"""

import re
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select

from flows.runs.adapters import Adapters
from flows.runs.handovers import Handed, Line
from flows.runs.keys import deliveries
from flows.runs.store import Store, read_if_stored
from schemas.database import DELIVERY
from schemas.handover import DEFAULT
from schemas.records import Delivery

NOTICE = "done.json"  # the done marker of the receiver, written last
RECEIVED = "received"  # the receipt that is dropped beside the files
_LINKS = re.compile(r"/links(-erased-(?P<erased>\d+))?\.parquet$")
# a file that names links, in the folder of a delivery
FILES = re.compile(r"/\d{6}/links(-\d{5}|-erased-\d+)?\.(csv|jsonl|parquet)(\.pgp)?$")
_DELIVERY = re.compile(r"[^/]+/deliveries/((?P<receiver>[a-z][a-z0-9-]*)/)?(?P<number>\d{6})/")


class DeliveryId(NamedTuple):
    """A delivery: whose it is, and which of the receiver's."""

    receiver: str
    number: int


def line_of(issuer: str, receiver: str) -> Line[Delivery]:
    """Return the deliveries to a receiver."""
    return Line(issuer, DELIVERY, Delivery, {"receiver": receiver})


class HandoverTrouble(NamedTuple):
    """Why a receiver has not got its last delivery: columns of that.

    `failing_since`, `tried_at`: the first and the last of the `tries` in a row that failed.
    """

    tries: int
    problem: str
    failing_since: datetime
    tried_at: datetime
    not_before: datetime


def trouble_of(delivery: Handed[Delivery] | None) -> HandoverTrouble | None:
    """Return why a receiver has not got its last delivery; None where nothing is in the way."""
    if delivery is None or not delivery.row["tries"]:
        return None
    return HandoverTrouble(*(delivery.row[name] for name in HandoverTrouble._fields))


def delivery_of(key: str) -> DeliveryId | None:
    """Return the delivery that an object belongs to; None for what belongs to none."""
    match = _DELIVERY.match(key)
    return DeliveryId(match["receiver"] or DEFAULT, int(match["number"])) if match else None


def delivery_folder(issuer: str, number: int, receiver: str = DEFAULT) -> str:
    """Return the prefix of a delivery's files."""
    whose = "" if receiver == DEFAULT else f"{receiver}/"
    return f"{deliveries(issuer)}{whose}{number:06d}/"


def receivers_with_deliveries(adapters: Adapters, issuer: str) -> list[str]:
    """Return the receivers that have deliveries."""
    return sorted({each.receiver for each in all_deliveries(adapters, issuer)})


def all_deliveries(adapters: Adapters, issuer: str) -> list[DeliveryId]:
    """Return the deliveries of all receivers."""
    key = (DELIVERY.c.receiver, DELIVERY.c.number)
    query = select(*key).where(DELIVERY.c.issuer == issuer).order_by(*key)
    with adapters.database.snapshot() as connection:
        return [DeliveryId(*row) for row in connection.execute(query)]


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
