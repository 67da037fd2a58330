"""Which objects of the store the journal names, by their digests."""

import re

# what decides who gets which link
EVIDENCE = re.compile(r"[^/]+/deliveries/([a-z][a-z0-9-]*/)?\d{6}/(links[^/]*|done\.json)")


def is_named(key: str) -> bool:
    """Return whether the journal names an object with this key."""
    return EVIDENCE.fullmatch(key) is not None
