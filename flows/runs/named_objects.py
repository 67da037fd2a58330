"""Which objects of the store the journal names, by their digests."""

import re

RECORDS = re.compile(r"[^/]+/runs/[^/]+/events/.+")
# what decides who gets which link and is no record
EVIDENCE = re.compile(r"[^/]+/deliveries/([a-z][a-z0-9-]*/)?\d{6}/(links[^/]*|done\.json)")


def is_named(key: str) -> bool:
    """Return whether the journal names an object with this key."""
    return bool(RECORDS.fullmatch(key) or EVIDENCE.fullmatch(key))
