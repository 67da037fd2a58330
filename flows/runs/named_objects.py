"""Which objects of the store the journal names, by their digests."""

import re
from functools import cache

from flows.extensions import hooks

RECORDS = re.compile(r"[^/]+/runs/[^/]+/events/.+")


@cache
def _evidence() -> re.Pattern[str]:
    patterns = [evidence() for evidence in hooks("evidence")]
    return re.compile("|".join(patterns or ["(?!)"]))


def is_evidence(key: str) -> bool:
    """Return whether an object decides who has which link, and is no record."""
    return bool(_evidence().fullmatch(key))


def is_named(key: str) -> bool:
    """Return whether the journal names an object with this key."""
    return bool(RECORDS.fullmatch(key)) or is_evidence(key)
