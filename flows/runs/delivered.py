"""The links of a delivery as they are stored: as they were handed out, or without those erased."""

import re

from flows.runs.keys import deliveries
from flows.runs.store import Store, read_if_stored

LINKS = re.compile(r"/(?P<delivery>\d{6})/links(-erased-(?P<erased>\d+))?\.parquet$")


def delivery_folder(issuer: str, number: int) -> str:
    """Return the prefix of a delivery's files."""
    return f"{deliveries(issuer)}{number:06d}/"


def delivered_links_key(store: Store, issuer: str, number: int) -> str | None:
    """Return the key of the links of a delivery; None where they were purged, or never written."""
    folder = delivery_folder(issuer, number)
    key = f"{folder}links.parquet"
    if read_if_stored(store, key, 0) is not None:
        return key
    matches = (LINKS.search(entry.key) for entry in store.keys(folder))
    rewritten = [int(match["erased"]) for match in matches if match and match["erased"]]
    return f"{folder}links-erased-{max(rewritten)}.parquet" if rewritten else None


def next_links_key(key: str) -> str:
    """Return the key under which the links of a delivery are written anew, after those at a key."""
    match = LINKS.search(key)
    number = int(match["erased"] or 0) + 1 if match else 1
    return f"{key.rpartition('/')[0]}/links-erased-{number}.parquet"


def read_delivered_links(store: Store, issuer: str, number: int) -> bytes | None:
    """Return the links of a delivery as Parquet; None where there are none any more."""
    key = delivered_links_key(store, issuer, number)
    return None if key is None else read_if_stored(store, key)
