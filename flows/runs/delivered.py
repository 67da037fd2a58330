"""Where deliveries of links are stored: a chain and a folder for each delivery, by receiver.

Their links are stored as they were handed out, or without those erased.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from flows.runs.chains import last_record
from flows.runs.documents import read_document
from flows.runs.keys import deliveries, link
from flows.runs.store import Store, read_if_stored
from schemas.handover import DEFAULT
from schemas.records import Delivery, HandoverTrouble

CONFIRMED = "confirmed.json"
TAKEN = "taken.json"  # its webhook took the event
EMITTED = "emitted.json"  # Prefect was told
DONE = "done.json"
RECEIVED = "received"  # the receipt that is dropped beside the files
_LINKS = re.compile(r"/links(-erased-(?P<erased>\d+))?\.parquet$")
# a file that names links, in the folder of a delivery
FILES = re.compile(r"/\d{6}/links(-\d{5}|-erased-\d+)?\.(csv|jsonl|parquet)(\.pgp)?$")
_DELIVERY = re.compile(r"[^/]+/deliveries/((?P<receiver>[a-z][a-z0-9-]*)/)?(?P<number>\d{6})[/.]")


class DeliveryId(NamedTuple):
    """A delivery: whose it is, and which of the receiver's."""

    receiver: str
    number: int

    @property
    def name(self) -> str:
        """The name of its folder below `deliveries/`."""
        return f"{self.chain}{self.number:06d}"

    @property
    def chain(self) -> str:
        """The prefix of its receiver's chain below `deliveries/`, "" for the default one."""
        return "" if self.receiver == DEFAULT else f"{self.receiver}/"


def delivery_of(key: str) -> DeliveryId | None:
    """Return the delivery that an object belongs to; None for what belongs to none."""
    match = _DELIVERY.match(key)
    return DeliveryId(match["receiver"] or DEFAULT, int(match["number"])) if match else None


def chain_of(issuer: str, receiver: str) -> str:
    """Return the prefix of a receiver's chain of deliveries."""
    return deliveries(issuer) + DeliveryId(receiver, 0).chain


def delivery_key(issuer: str, delivery: DeliveryId) -> str:
    """Return the key of the record of a delivery."""
    return link(chain_of(issuer, delivery.receiver), delivery.number)


def delivery_folder(issuer: str, number: int, receiver: str = DEFAULT) -> str:
    """Return the prefix of a delivery's files."""
    return f"{deliveries(issuer)}{DeliveryId(receiver, number).name}/"


def receivers_with_deliveries(store: Store, issuer: str) -> list[str]:
    """Return the receivers that have a chain of deliveries, as a listing shows them."""
    prefix = deliveries(issuer)
    folders = [entry.key.removeprefix(prefix) for entry in store.keys(prefix, shallow=True)]
    named = {name.rstrip("/") for name in folders if name.endswith("/") and name[0].isalpha()}
    with_default = {DEFAULT} if any(name[0].isdecimal() for name in folders) else set[str]()
    return sorted(named | with_default)


def last_delivery(store: Store, issuer: str, receiver: str) -> tuple[int, Delivery | None]:
    """Return number and record of a receiver's last delivery, 0 and None where there is none."""
    return last_record(store, chain_of(issuer, receiver), Delivery)


def trouble_key(issuer: str, receiver: str) -> str:
    """Return the key of what stands in the way of a receiver's last delivery."""
    return f"{chain_of(issuer, receiver)}handover.json"


def trouble_of(store: Store, issuer: str, receiver: str) -> HandoverTrouble | None:
    """Return what stood in the way of a receiver at the last attempt; None where nothing ever."""
    return read_document(store, trouble_key(issuer, receiver), HandoverTrouble)


def is_confirmed(store: Store, issuer: str, id_: DeliveryId) -> bool:
    """Return whether a delivery is confirmed."""
    key = delivery_folder(issuer, id_.number, id_.receiver) + CONFIRMED
    return read_if_stored(store, key, 0) is not None


def all_deliveries(store: Store, issuer: str) -> Iterator[DeliveryId]:
    """Yield the deliveries of all receivers."""
    for receiver in receivers_with_deliveries(store, issuer):
        last, _ = last_delivery(store, issuer, receiver)
        yield from (DeliveryId(receiver, number) for number in range(1, last + 1))


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
