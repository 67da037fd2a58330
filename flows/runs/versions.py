"""What versions of cardlink may make of what others stored: the one place that reads a version.

Whatever is stored has one: `format` of a JSON object, or in the metadata of a Parquet file; the
first is not written. A newer one is read as far as it is known, named once in the log, and never
acted on or written over.
"""

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.identity import canonical
from flows.runs.store import ConflictError, Entry, Store, read_if_stored
from schemas.manifest import FACTS, Document

T = TypeVar("T", bound=BaseModel)
LOG = logging.getLogger("cardlink")


class NewerDocumentError(OperatorError):
    """A document of a later version, which this one does not know well enough to act on it."""

    message = "{key} was written by a newer cardlink (format {format}). Nothing was changed."
    next_step = "Upgrade this machine, then run the same command again."


def parsed(content: bytes, key: str, kind: type[T]) -> T:
    """Return a JSON document of any version; the fields that only a newer one has are kept, and
    named in the log.

    Raises ConflictError where cardlink did not write it, NewerDocumentError where a field of ours
    is not as we know it.
    """
    known, unknown = getattr(kind.model_fields.get("format"), "default", 1), ""
    try:
        found = kind.model_validate_json(content, extra="forbid")
    except (
        ValidationError
    ) as error:  # its text quotes the content: ours are raised below, without a chain
        found, unknown = (
            None,
            ", ".join(".".join(map(str, one["loc"])) for one in error.errors(include_input=False)),
        )
    if found is not None and getattr(found, "format", 1) <= known:
        first = known > 1 and "format" not in found.model_fields_set
        return found.model_copy(update={"format": 1}) if first else found
    written = written_in(_loaded(content))
    if written <= known:
        raise ConflictError(key=key)
    with suppress(ValidationError):
        found = kind.model_validate_json(content, extra="allow")
        _name_newer(key, redact(unknown))
        return found
    raise NewerDocumentError(key=key, format=written)


@cache
def _name_newer(key: str, unknown: str) -> None:
    """Log once that a document is newer than this machine."""
    more = f", with fields that this one does not know: {unknown}" if unknown else ""
    LOG.warning("%s was written by a newer cardlink%s; upgrade this machine.", key, more)


def refuse_newer(document: Document, key: str) -> None:
    """Raise NewerDocumentError for a document that this version may read, but not act on."""
    if document.newer:
        raise NewerDocumentError(key=key, format=document.format)


def read_facts(store: Store, key: str) -> dict[str, Any] | None:
    """Return a JSON object that is no Document, None where there is none; ConflictError."""
    content = read_if_stored(store, key)
    if content is None:
        return None
    found = _loaded(content)
    if not isinstance(found, dict):
        raise ConflictError(key=key)
    if written_in(found) > FACTS:
        _name_newer(key, "")
    return found


def read_events(store: Store, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return what these objects record."""
    return [found for entry in entries if (found := read_facts(store, entry.key)) is not None]


def written_in(found: object) -> int:
    """Return the version of a JSON object, 1 where it does not say."""
    number = found.get("format") if isinstance(found, dict) else 1
    return number if type(number) is int else 1


def _loaded(content: bytes) -> object:
    with suppress(ValueError):
        return json.loads(content)
    return None


def read_document(store: Store, key: str, kind: type[T]) -> T | None:
    """Return a JSON document, None where there is none; raises as `parsed` does."""
    content = read_if_stored(store, key)
    return None if content is None else parsed(content, key, kind)


def facts_as_stored(facts: dict[str, Any]) -> bytes:
    """Return the bytes of a JSON object that is no Document, with its version unless that is the
    first.
    """
    return canonical({**facts, "format": FACTS} if FACTS > 1 else facts)
