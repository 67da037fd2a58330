"""Which objects of the store the journal names, by their digests."""

import re
from collections.abc import Iterator

from flows.runs.store import Store

RECORDS = re.compile(
    r"[^/]+/("
    r"runs/[^/]+/(plan\.json|manifest\.json|events/.+)"
    r"|commits/\d{6}\.json"
    r"|(backfills|approvals)/.+"
    r")"
)
# what decides who gets which link and is no record
EVIDENCE = re.compile(
    r"[^/]+/("
    r"runs/[^/]+/claims/\d{6}\.json"
    r"|deliveries/([a-z][a-z0-9-]*/)?\d{6}/(links[^/]*|done\.json)"
    r")"
)


def is_named(key: str) -> bool:
    """Return whether the journal names an object with this key."""
    return bool(RECORDS.fullmatch(key) or EVIDENCE.fullmatch(key))


def record_keys(store: Store, issuer: str) -> Iterator[str]:
    """Yield the keys of an issuer's records: decisions and facts that are created once and kept."""
    keys = (entry.key for entry in store.keys(f"{issuer}/"))
    return (key for key in keys if RECORDS.fullmatch(key))
