"""Chance that can be repeated: numbers from names.

So a seed gives the same night, in whatever order things happen.
"""

from __future__ import annotations

from hashlib import sha256


def token(*parts: object) -> str:
    """Return 32 hex digits that depend on `parts` only."""
    return sha256("/".join(map(str, parts)).encode()).hexdigest()[:32]


def chance(*parts: object) -> float:
    """Return a number from 0 up to, but not including, 1 that depends on `parts` only."""
    return int(token(*parts)[:13], 16) / 16**13
