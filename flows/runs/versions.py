"""What versions of cardlink may make of what others stored: the one place that reads a version.

Whatever is stored has one: `format` of a JSON object, or in the metadata of a Parquet file; the
first is not written. A newer one is read as far as it is known, named once in the log, and never
acted on or written over.

Since the first version is not written, the bytes and digests of everything stored before there were
versions are unchanged. A run that a newer cardlink planned is left alone: that version finishes its
commit, its report is not written over, and nothing of it is purged or resealed
(NewerDocumentError). An unknown field in a document of our own version is tampering. Derived
Parquet objects are not guarded one by one: the run's `summary.json` guards them.

To add a field: it has a default and is left out where it has it (`exclude_if`), and the class says
`format: int = version(2)`. For Parquet files raise `FORMAT`, for events, alerts and summaries
`FACTS`.

To change a meaning: a field of another name, without a default, replaces the old one, so that
earlier versions refuse the document instead of misreading it. The old field stays as an optional
one, since one model reads every version. New values of a field that code decides by are a change of
meaning.

Afterwards `python -m tests.stored.make` writes a store of the new version, and `python -m
tests.stored.fields` adds both to `documents.json`. The test that fails if this is forgotten is
`test_a_document_that_is_changed_has_a_new_version_and_a_store_that_shows_it`.
"""

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from flows import __version__
from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.identity import canonical
from flows.runs.store import ConflictError, Entry, Store, read_if_stored
from schemas.manifest import FACTS, Document

T = TypeVar("T", bound=BaseModel)
RELEASE: Final = __version__  # that runs
LOG = logging.getLogger("cardlink")


class NewerDocumentError(OperatorError):
    """A document of a later version, which this one does not know well enough to act on it."""

    message = "{key} was written by a newer cardlink (format {format}). Nothing was changed."
    next_step = "Upgrade this machine, then run {same_command} again."


def parsed(content: bytes, key: str, kind: type[T]) -> T:
    """Return a JSON document of any version.

    The fields that only a newer one has are kept, and named in the log. Raises ConflictError where
    cardlink did not write it, NewerDocumentError where a field of ours is not as we know it.
    """
    known = getattr(kind.model_fields.get("format"), "default", 1)
    document = None
    unknown = ""
    try:
        document = kind.model_validate_json(content, extra="forbid")
    except ValidationError as error:
        # its text quotes the content: ours are raised below, without a chain
        unknown = _unknown_fields(error)
    if document is not None and getattr(document, "format", 1) <= known:
        is_first = known > 1 and "format" not in document.model_fields_set
        return document.model_copy(update={"format": 1}) if is_first else document
    written = written_in(_loaded(content))
    if written <= known:
        raise ConflictError(key=key)
    with suppress(ValidationError):
        document = kind.model_validate_json(content, extra="allow")
        _name_newer(key, redact(unknown))
        return document
    raise NewerDocumentError(key=key, format=written)


def _unknown_fields(error: ValidationError) -> str:
    """Return where a document differs from its model, without its values."""
    places = (detail["loc"] for detail in error.errors(include_input=False))
    return ", ".join(".".join(map(str, place)) for place in places)


@cache
def _name_newer(key: str, unknown: str) -> None:
    """Log once that a document is newer than this machine."""
    fields = ""
    if unknown:
        fields = f", with fields that this one does not know: {unknown}"
    LOG.warning("%s was written by a newer cardlink%s; upgrade this machine.", key, fields)


def refuse_newer(document: Document, key: str) -> None:
    """Raise NewerDocumentError for a document that this version may read, but not act on."""
    if document.newer:
        raise NewerDocumentError(key=key, format=document.format)


def read_facts(store: Store, key: str) -> dict[str, Any] | None:
    """Return a JSON object that is no Document, None where there is none; ConflictError."""
    content = read_if_stored(store, key)
    if content is None:
        return None
    facts = _loaded(content)
    if not isinstance(facts, dict):
        raise ConflictError(key=key)
    if written_in(facts) > FACTS:
        _name_newer(key, "")
    return facts


def read_events(store: Store, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return what these objects record."""
    events = (read_facts(store, entry.key) for entry in entries)
    return [event for event in events if event is not None]


def written_in(content: object) -> int:
    """Return the version of a JSON object, 1 where it does not say."""
    if not isinstance(content, dict):
        return 1
    number = content.get("format")
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
    """Return the bytes of a JSON object that is no Document, with its version."""
    return canonical({**facts, "format": FACTS})
