"""Result files as they are fetched and read, in batches that are attributed together.

Whatever else fails in reading or attributing a file, panics of polars included, is a break of that
file, and a batch that fails is attributed file by file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar

import polars as pl

from flows.errors import BugError, CardlinkError
from flows.results.attribution import read_claims
from flows.results.known_files import KnownFile
from flows.results.masking import mask_key
from flows.results.opening import FAILED, LIMIT, MISSING, SEALED, STORE, TOO_LARGE
from flows.results.read import UNFORESEEN, ResultRows, failed, read_cells, tabulate
from flows.results.sent_rows import ByHand
from flows.runs import store as stores
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.openpgp import looks_like_message
from flows.runs.sealing import Opener, SealedUnreadableError
from flows.runs.store import Entry, Store
from schemas.records import Attribution

T = TypeVar("T")
# Chunks reconciled together, and result files attributed together: the same number, so that a
# report reads back what was stored as one object.
CHUNKS = 50
ROOM = 64 * 1024 * 1024  # bytes of cells attributed together: fewer files where they are large


class ResultObject(NamedTuple):
    """A result file, what operators decided about it, and what is known of it (`known`), unless it
    or the decisions are others by now.
    """

    entry: Entry
    decided: tuple[Attribution, ...] = ()
    known: KnownFile | None = None

    def forced(self, file: int, content: str) -> list[ByHand]:
        """Return the last attribution of each row, if the file's bytes have this digest.

        `file`: its number among the files that are attributed together.
        """
        last = {
            decision.position: decision
            for decision in self.decided
            if decision.digest == content and decision.what != "again"
        }
        return [
            ByHand(file, decision.position, decision.run, decision.row)
            for decision in last.values()
            if decision.what == "attributed"
        ]


class ReadFile(NamedTuple):
    """A result file, and its rows as they were read."""

    result: ResultObject
    rows: ResultRows


class Claims(NamedTuple):
    """Result files with their tables, and what all their rows claim (`read_claims`)."""

    files: list[ResultRows]
    claims: pl.DataFrame


class Batch(NamedTuple):
    """Result files that are attributed together; `claims` is None where making them failed."""

    files: Sequence[ReadFile]
    claims: Claims | None = None

    @property
    def results(self) -> list[ResultObject]:
        """The files without their rows."""
        return [file.result for file in self.files]

    def split(self, problem: str) -> list[Batch]:
        """Return each file as a batch of its own, or without its rows where it is alone.

        `problem` is why the batch could not be attributed; BugError where not even a file without
        rows could be.
        """
        if len(self.files) > 1:
            return [Batch([file]) for file in self.files]
        [file] = self.files
        if file.rows.rows.is_empty():
            raise BugError(place="attribution", kind=problem.removeprefix(FAILED))
        return [Batch([file._replace(rows=file.rows.without_rows(problem))])]


def read_batches(
    context: IssuerContext,
    opener: Opener | None,
    readers: ThreadPoolExecutor,
    fresh: Sequence[ResultObject],
) -> Iterator[Batch]:
    """Fetch and read result files, a batch at a time: at most CHUNKS, and about ROOM bytes."""
    for group in parted(fresh, lambda result: result.entry.size):
        contents = readers.map(
            lambda result: _content(context.adapters.store, opener, result.entry), group
        )
        files = (
            _read(context, result, content) for result, content in zip(group, contents, strict=True)
        )
        for batch in parted(files, lambda file: int(file.rows.rows.estimated_size())):
            claims = None
            with suppress(*UNFORESEEN):  # raised again, and judged, where the batch is attributed
                claims = claims_of(batch)
            yield Batch(batch, claims)


def read_file(context: IssuerContext, opener: Opener | None, result: ResultObject) -> ReadFile:
    """Fetch and read one result file."""
    return _read(context, result, _content(context.adapters.store, opener, result.entry))


def claims_of(files: Sequence[ReadFile]) -> Claims:
    """Make the tables of some files, and read what their rows claim."""
    tables = tabulate([file.rows for file in files])
    return Claims(tables, read_claims(tables))


def parted(items: Iterable[T], size: Callable[[T], int], most: int = ROOM) -> Iterator[list[T]]:
    """Yield items in groups of at most CHUNKS that are hardly larger than `most`."""
    group = list[T]()
    room = most
    for item in items:
        group.append(item)
        room -= size(item)
        if room <= 0 or len(group) == CHUNKS:
            yield group
            group = []
            room = most
    if group:
        yield group


def _read(context: IssuerContext, result: ResultObject, content: tuple[bytes, str]) -> ReadFile:
    """Read a result file; why it could not be opened is its only problem."""
    name = mask_key(result.entry.key.rpartition("/")[2])
    data, problem = content
    received = local_day(result.entry.modified, context.issuer.time_zone)
    rows = read_cells(data, name, received, is_day_first=context.issuer.portal.day_first)
    rows = rows._replace(known_texts=context.issuer.errors.texts)
    return ReadFile(result, rows.without_rows(problem) if problem else rows)


def _content(store: Store, opener: Opener | None, entry: Entry) -> tuple[bytes, str]:
    """Return a result's bytes, decrypted where sealed, and a problem code where that failed.

    Nothing of it is raised: other files go on.
    """
    if entry.size > LIMIT:
        return b"", TOO_LARGE  # never in memory
    try:
        # the version that was listed, and judged since
        with store.open(entry.key, entry) as stored:
            content = stored.read()
    except (stores.ObjectMissingError, stores.KeyRefusedError):
        return b"", MISSING  # removed since it was listed, or no valid key
    except stores.ABOUT_ONE_OBJECT as error:
        return b"", f"{STORE}{type(error).__name__}"
    if opener is None or not looks_like_message(content):
        return content, ""
    return _decrypted(opener, content)


def _decrypted(opener: Opener, message: bytes) -> tuple[bytes, str]:
    """Return what a message holds, or the message and why it could not be opened."""
    try:
        return opener.open(message, LIMIT), ""
    except SealedUnreadableError as error:
        return message, f"{SEALED}{error.fields['reason']}"
    except CardlinkError as error:
        return message, f"{SEALED}{type(error).__name__}"
    except UNFORESEEN as error:
        return message, failed(error)
