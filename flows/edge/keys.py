"""Which keys every store takes, so that a key means the same on S3 and in a directory."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from flows.core.storage.store_errors import KeyRefusedError

TEMPORARY = ".tmp-"  # how the directory store names a file that is not yet whole; no key may look like one
FOLDER_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # a folder in a listing has no time of its own on S3, so nowhere
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # how Python shows bytes in a file name that are not UTF-8


def checked(key: str) -> str:
    """Return `key`; KeyRefusedError where it could leave the root or where not every store can hold it."""
    why = _objection(key)
    if why:
        raise KeyRefusedError(key=shown(key), reason=why)
    return key


def checked_prefix(prefix: str) -> str:
    """Return the beginning of keys to list; KeyRefusedError where no key could begin so."""
    if "/" in prefix:
        checked(prefix.rpartition("/")[0])
    return prefix


def shown(key: str) -> str:
    """Return a key as it can be printed and stored, whatever bytes a file name is made of."""
    return _CONTROL.sub("?", key.encode(errors="backslashreplace").decode())


def _objection(key: str) -> str:
    parts = key.split("/")
    if _CONTROL.search(key):
        return "it holds a control character"
    if _SURROGATE.search(key):
        return "it is not UTF-8"
    if not all(parts):
        return "it has an empty part"
    if any(part in (".", "..") for part in parts):
        return "it has a dotted part"
    if any(part.startswith(TEMPORARY) for part in parts):
        return "it is named like a temporary file"
    if len(key.encode()) > 900 or any(len(part.encode()) > 200 for part in parts):
        return "it is too long"
    return ""
