"""Chunks answered by a running practice service, so that it knows the links of their results."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from flows.extensions.simulator.answer import ResultThereError, committed_chunks, result_name
from flows.extensions.simulator.portal import Behaviour
from flows.extensions.simulator.service_portal import ServicePortal
from flows.extensions.simulator.uploads import UploadRefusedError
from flows.runs.adapters import Adapters
from flows.runs.keys import results
from flows.runs.store import Store, read


class Carried(NamedTuple):
    """What one call did: results by key, chunks whose results were there, chunks refused and why.

    `restored`: chunks that were answered before, and that the service had not known.
    """

    results: dict[str, bytes]
    refused: tuple[tuple[str, str], ...]
    restored: tuple[str, ...]

    @property
    def linked(self) -> int:
        """Rows delivered with a link."""
        return sum(bool(row["url"]) for row in self._rows)

    @property
    def errors(self) -> int:
        """Rows delivered with an error."""
        return sum(not row["url"] for row in self._rows)

    @property
    def _rows(self) -> Iterator[dict[str, str]]:
        return chain.from_iterable(map(_rows_of, self.results.values()))


def answer_at_service(
    adapters: Adapters, issuer: str, portal: ServicePortal, behaviour: Behaviour
) -> Carried:
    """Upload every chunk that the service does not know; write results that are not there.

    A service that was started anew is so told of chunks that were answered before: the same
    behaviour makes the same links.
    """
    store = adapters.store
    folder = results(issuer)
    answered = {entry.key for entry in store.keys(folder)}
    uploads = portal.uploads()
    written: dict[str, bytes] = {}
    refused: list[tuple[str, str]] = []
    restored: list[str] = []
    for key, chunk in committed_chunks(adapters, issuer):
        result_key = folder + result_name(chunk)
        if chunk in uploads and result_key in answered:
            continue
        try:
            upload_id = uploads.get(chunk) or portal.upload(chunk, read(store, key), behaviour)
        except UploadRefusedError as error:
            refused.append((chunk, error.fields["reason"]))
            continue
        if result_key in answered:
            restored.append(chunk)
            continue
        written[result_key] = _written(store, result_key, portal.result(upload_id))
    return Carried(written, tuple(refused), tuple(restored))


def _written(store: Store, key: str, result: bytes) -> bytes:
    if not store.create(key, result):
        raise ResultThereError(key=key)
    return result


def _rows_of(result: bytes) -> Iterator[dict[str, str]]:
    return iter(csv.DictReader(io.StringIO(result.decode(), newline="")))
