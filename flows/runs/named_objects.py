"""Which objects of the store the journal names, by their digests: those of extensions."""

import re
from functools import cache

from flows.extensions import hooks


@cache
def _evidence() -> re.Pattern[str]:
    patterns = [evidence() for evidence in hooks("evidence")]
    return re.compile("|".join(patterns or ["(?!)"]))


def is_named(key: str) -> bool:
    """Return whether the journal names an object with this key: it decides who has which link."""
    return bool(_evidence().fullmatch(key))
