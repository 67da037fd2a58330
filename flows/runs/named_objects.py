"""Which objects of the store the journal names, by their digests."""

import re

RECORDS = re.compile(
    r"[^/]+/("
    r"runs/[^/]+/(plan\.json|manifest\.json|events/.+)"
    r"|commits/\d{6}\.json"
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
