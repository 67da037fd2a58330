"""The documents that are stored, as JSON or in rows, read whole or refused: an unknown field is
tampering.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from flows.runs.store import ConflictError, Store, read_if_stored
from flows.steps import ISSUER, WHY, Sentence, Step

T = TypeVar("T", bound=BaseModel)


class RowChangedError(ConflictError):
    """A row of the database is not what cardlink writes: somebody changed it."""

    message = "{key} is in the database in a form that cardlink does not write."
    next_step = Sentence(
        "Nothing was changed. Tell security, and see what else was changed: {verify}. Then put the "
        "newest copy of the database in its place, and apply what the store has since: {recover}.",
        verify=Step("audit verify", ISSUER),
        recover=Step("recover", ISSUER, reason=WHY),
    )


def parsed(content: bytes, key: str, kind: type[T]) -> T:
    """Return a JSON document; ConflictError where cardlink did not write it."""
    with suppress(ValidationError):  # its text quotes the content
        return kind.model_validate_json(content, extra="forbid")
    raise ConflictError(key=key)


def record_of_row(facts: Mapping[str, Any] | None, place: str, kind: type[T]) -> T:
    """Return what a row says as a record; RowChangedError where cardlink did not write it.

    `place`: the row, as people name it.
    """
    with suppress(ValidationError):  # its text quotes the content
        return kind.model_validate(facts)
    raise RowChangedError(key=place)


def read_document(store: Store, key: str, kind: type[T]) -> T | None:
    """Return a JSON document, None where there is none; ConflictError."""
    content = read_if_stored(store, key)
    return None if content is None else parsed(content, key, kind)


def read_facts(store: Store, key: str) -> dict[str, Any] | None:
    """Return a JSON object that is no Document, None where there is none; ConflictError."""
    content = read_if_stored(store, key)
    if content is None:
        return None
    facts: object = None
    with suppress(ValueError):
        facts = json.loads(content)
    if not isinstance(facts, dict):
        raise ConflictError(key=key)
    return facts
