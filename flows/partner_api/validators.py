"""Conditional requests (RFC 9110 8.8, 13.1): a record is sent again only where it has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flows.redaction import redact

UNCHANGED: Final = 304
_LONGEST: Final = 200  # characters of a tag that is kept
_ENTITY_TAGS: Final = ('"', 'W/"')


def tag_of(headers: Mapping[str, str]) -> str | None:
    """Return by what a service knows this version of a record: ETag, else Last-Modified.

    None where it says neither, or what could be a card number.
    """
    for name in ("ETag", "Last-Modified"):
        tag = headers.get(name, "").strip()
        if tag and len(tag) <= _LONGEST and tag.isascii() and redact(tag) == tag:
            return tag
    return None


def unless_changed(tag: str | None) -> dict[str, str]:
    """Return the header of a request for a record that had this tag."""
    if tag is None:
        return {}
    if tag.startswith(_ENTITY_TAGS):
        return {"If-None-Match": tag}
    return {"If-Modified-Since": tag}
