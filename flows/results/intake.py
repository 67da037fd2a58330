"""Ingest result files: open and read them, attribute every row to the run and row it answers, store
the outcomes.

Killed half-way, or ingested again, a file has the same outcome. Whatever one file holds, the others
go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from importlib.metadata import version
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from flows.errors import BugError, CardlinkError, OperatorError
from flows.redaction import redact
from flows.results.attribution import attribute_claims, read_claims
from flows.results.match import ByHand, SentIndex, named_in
from flows.results.opening import FAILED, LIMIT, MISSING, SEALED, STORE, TOO_LARGE, describe
from flows.results.read import UNFORESEEN, ResultRows, failed, read_cells, tabulate
from flows.runs import store as stores
from flows.runs.business_date import local_day
from flows.runs.commits import recent_commits
from flows.runs.context import IssuerContext
from flows.runs.documents import has_manifest
from flows.runs.events import record_event
from flows.runs.identity import canonical, digest
from flows.runs.keys import ingested, keys_of
from flows.runs.openpgp import looks_like_message
from flows.runs.outcomes import OUTCOME, Attributed, RunOutcomes, StoredOutcomes, write_outcomes
from flows.runs.sealing import Opener, SealedUnreadableError
from flows.runs.store import Entry, Store
from flows.runs.threads import concurrently, prefetch
from flows.runs.versions import read_facts
from schemas.breaks import FOREIGN_FILE, KINDS, UNKNOWN_CUID, URL_NOT_ALLOWED
from schemas.records import Attribution

T = TypeVar("T")
# reconciled together, and result files attributed together: so a report reads back what was stored
# at once
CHUNKS = 50
ROOM = 64 * 1024 * 1024  # bytes of cells attributed together: fewer files where they are large


class ResultObject(NamedTuple):
    """A result file, and what operators decided about it."""

    entry: Entry
    decided: tuple[Attribution, ...] = ()

    @property
    def mark(self) -> str:
        """Its ingest marker."""
        return marker_key(self.entry, len(self.decided))


Read = tuple[ResultObject, ResultRows]
# the files of a batch with their tables, and what all rows claim
Claimed = tuple[list[ResultRows], pl.DataFrame]


class IngestedFile(NamedTuple):
    """One ingested result file: its runs, its rows, and how many of them (`lost`) belong to no sent
    row.
    """

    found: ResultObject
    problems: tuple[str, ...]
    rows: int
    runs: frozenset[str]
    lost: int
    refused: bool  # it has links to hosts that are not allowed
    lost_as: str = ""  # the break of the lost rows; of several the first
    outcome: str = ""  # a digest of what came of its rows, where that may change
    left: frozenset[str] = frozenset()  # runs that it answered before
    kept: tuple[str, ...] = ()  # keys of the stored outcomes
    known: bool = False  # reported before, with this outcome

    @property
    def settled(self) -> bool:
        """True where every row was attributed."""
        return not self.lost and not self.problems

    @property
    def done(self) -> bool:
        """True where nothing can change its outcome any more: it is not read again."""
        return self.settled and not self.refused

    def trouble(self, purged: Set[str]) -> str:
        """Return what was not attributed, why, and what to do; to `purged` runs, whose ledgers are
        gone, nothing is.
        """
        named = purged & {run for run, _ in named_in(self.found.entry.key)}
        wrong, then = describe(self.problems)
        if self.lost:
            kind = KINDS[FOREIGN_FILE if self.lost == self.rows else self.lost_as or UNKNOWN_CUID]
            stranger = self.lost_as in ("", UNKNOWN_CUID, FOREIGN_FILE)
            unknown = "no run of this issuer sent them" if stranger else kind.meaning.rstrip(".")
            unknown = f"run {min(named)} is purged" if named else unknown
            wrong = f"{self.lost} of {self.rows} rows belong to no sent row ({wrong or unknown})"
            then = kind.then if self.lost == self.rows else then or kind.then
        return f"{redact(self.found.entry.key)}: {wrong}. {then}"


def examine(context: IssuerContext, found: ResultObject) -> tuple[ResultRows, Attributed]:
    """Read and attribute one result file as an ingest would; nothing is stored."""
    with context.opener() as opener:
        content = _content(context.adapters.store, opener, found.entry)
    files, claims = _claimed([(found, _opened(context, found, content))])
    books = SentIndex(context.adapters.store, context.issuer.issuer)
    return files[0], _attribute(context, books, [found], files, claims)[0]


def take_in(
    context: IssuerContext, fresh: Sequence[ResultObject], waiting: Mapping[str, Waiting]
) -> Iterator[IngestedFile]:
    """Attribute result files, a batch at a time, and store their outcomes, except those known from
    `waiting`.
    """
    books = SentIndex(context.adapters.store, context.issuer.issuer)
    with (
        context.opener() as opener,
        ThreadPoolExecutor(context.adapters.connections) as readers,
        closing(prefetch(_read_all(context, opener, readers, fresh))) as batches,
        closing(prefetch(_attribute_all(context, books, batches))) as attributed,
    ):
        yield from chain.from_iterable(
            _keep(context, found, files, waiting) for found, files in attributed
        )


def _read_all(
    context: IssuerContext,
    opener: Opener | None,
    readers: ThreadPoolExecutor,
    fresh: Sequence[ResultObject],
) -> Iterator[tuple[list[Read], Claimed | None]]:
    """Fetch and read result files, a batch at a time: at most CHUNKS, and about ROOM bytes.

    With each batch come its tables and claims, or None where making them failed.
    """
    for some in parted(fresh, lambda one: one.entry.size):
        contents = readers.map(
            lambda one: _content(context.adapters.store, opener, one.entry), some
        )
        read_ones = (
            (one, _opened(context, one, content))
            for one, content in zip(some, contents, strict=True)
        )
        for batch in parted(read_ones, lambda one: int(one[1].rows.estimated_size())):
            claimed = None
            with suppress(*UNFORESEEN):  # raised again, and judged, where the batch is attributed
                claimed = _claimed(batch)
            yield batch, claimed


def _claimed(batch: Sequence[Read]) -> Claimed:
    """Make the tables of a batch, and read what its rows claim."""
    files = tabulate([file for _, file in batch])
    return files, read_claims(files)


def parted(items: Iterable[T], size: Callable[[T], int], most: int = ROOM) -> Iterator[list[T]]:
    """Yield items in groups of at most CHUNKS that are hardly larger than `most`."""
    group, room = list[T](), most
    for item in items:
        group.append(item)
        room -= size(item)
        if room <= 0 or len(group) == CHUNKS:
            yield group
            group, room = [], most
    if group:
        yield group


def _opened(context: IssuerContext, found: ResultObject, content: tuple[bytes, str]) -> ResultRows:
    """Read a result file; why it could not be opened is its only problem."""
    name = redact(found.entry.key.rpartition("/")[2])  # a file name may hold a card number
    file = read_cells(content[0], name, local_day(found.entry.modified, context.issuer.time_zone))
    return file.without_rows(content[1]) if content[1] else file


def _attribute_all(
    context: IssuerContext,
    books: SentIndex,
    batches: Iterable[tuple[Sequence[Read], Claimed | None]],
) -> Iterator[tuple[Sequence[ResultObject], Sequence[Attributed]]]:
    """Attribute batches; where that fails unforeseen, file by file, and a file that fails alone is
    one without rows.
    """
    for batch, claimed in batches:
        found = [one for one, _ in batch]
        try:
            attributed = _attribute(context, books, found, *(claimed or _claimed(batch)))
        except UNFORESEEN as error:
            problem = failed(error)
        else:
            yield found, attributed
            continue
        apart = [[one] for one in batch]
        if len(batch) == 1:
            apart = [[(one, file.without_rows(problem))] for one, file in batch if file.rows.height]
        if not apart:
            raise BugError(place="attribution", kind=problem.removeprefix(FAILED))
        yield from _attribute_all(context, books, [(one, None) for one in apart])


def _attribute(
    context: IssuerContext,
    books: SentIndex,
    found: Sequence[ResultObject],
    files: Sequence[ResultRows],
    claims: pl.DataFrame,
) -> list[Attributed]:
    """Attribute result files among the sent rows that they may answer."""
    numbered = enumerate(zip(found, files, strict=True))
    forced = list[ByHand]()
    # the last attribution of each row of a file with these bytes
    for at, (object_, file) in numbered:
        mine = (one for one in object_.decided if one.digest == file.digest and one.what != "again")
        last = {one.position: one for one in mine}.values()
        forced += [
            ByHand(at, one.position, one.run, one.row) for one in last if one.what == "attributed"
        ]
    sent = books.candidates([one.name for one in files], claims, forced)
    return attribute_claims(files, claims, sent, context.issuer.portal.allowed_hosts, forced)


def _content(store: Store, opener: Opener | None, entry: Entry) -> tuple[bytes, str]:
    """Return a result's bytes, decrypted where sealed, and a code where that failed: other files go
    on.
    """
    if entry.size > LIMIT:
        return b"", TOO_LARGE  # never in memory
    try:
        # the version that was listed, and judged since
        with store.open(entry.key, entry) as stored:
            content = stored.read()
    except (
        stores.ObjectMissingError,
        stores.KeyRefusedError,
    ):  # removed since it was listed, or no valid key
        return b"", MISSING
    except stores.ABOUT_ONE_OBJECT as error:
        return b"", f"{STORE}{type(error).__name__}"
    if opener is None or not looks_like_message(content):
        return content, ""
    try:
        return opener.open(content, LIMIT), ""
    except SealedUnreadableError as error:
        return content, f"{SEALED}{error.fields['reason']}"
    except CardlinkError as error:
        return content, f"{SEALED}{type(error).__name__}"
    except UNFORESEEN as error:
        return content, failed(error)


def _keep(
    context: IssuerContext,
    batch: Sequence[ResultObject],
    outcomes: Sequence[Attributed],
    waiting: Mapping[str, Waiting],
) -> Iterator[IngestedFile]:
    """Store the outcomes of the files with each of their runs; rows of no run go with a file's
    first run.
    """
    answers: dict[str, list[RunOutcomes]] = {}
    files = [
        _ingested(found, one, waiting.get(found.mark))
        for found, one in zip(batch, outcomes, strict=True)
    ]
    new = [(file, one) for file, one in zip(files, outcomes, strict=True) if not file.known]
    for file, one in new:
        for run, rows in _by_run(one.outcomes, sorted(file.runs)).items():
            answers.setdefault(run, []).append(RunOutcomes(file.found.entry, one, rows))
    kept = {
        run: _keep_run(
            context, run, found, "answered", rows=sum(answer.rows.height for answer in found)
        )
        for run, found in sorted(answers.items())
    }
    yield from (file for file in files if file.known)
    # an operator gave its rows to other runs
    nothing = pl.DataFrame({name: [None] for name in OUTCOME}, OUTCOME)
    for file, one in new:
        store, entry = context.adapters.store, file.found.entry
        stale = [
            run
            for run in sorted(file.left)
            if StoredOutcomes(store, keys_of(run)).has_results_for(entry.key)
        ]
        gone = [
            _keep_run(context, run, [RunOutcomes(entry, one, nothing)], "answer taken back")
            for run in stale
        ]
        yield file._replace(kept=(*(kept[run] for run in file.runs), *gone))


def _ingested(found: ResultObject, one: Attributed, before: Waiting | None) -> IngestedFile:
    """Return what came of a result file, and whether that is known from `before`."""
    # looked at as lists: with a thousand files, an expression for each takes longer
    rows = one.outcomes
    runs = frozenset(rows["run"].to_list()) - {None}
    had = frozenset(run for one in found.decided for run in (*one.runs, one.run) if run)
    left = had.union(before.runs if before else ()) - runs  # also where one was killed
    refused = URL_NOT_ALLOWED in rows["trouble"].to_list()
    lost, lost_as = rows["row"].null_count(), ""
    if lost:
        lost_as = min(rows.filter(pl.col("row").is_null())["trouble"].drop_nulls(), default="")
    file = IngestedFile(found, one.problems, rows.height, runs, lost, refused, lost_as, left=left)
    if file.done:
        return file
    facts = rows.select(
        "position", "run", "chunk", "row", "state", "trouble", "content", "nth"
    ).write_csv()
    outcome = digest("\n".join([*one.problems, facts]).encode())[:32]
    return file._replace(outcome=outcome, known=before is not None and before.outcome == outcome)


def _by_run(outcomes: pl.DataFrame, runs: Sequence[str]) -> dict[str, pl.DataFrame]:
    if len(runs) < 2:
        return dict.fromkeys(runs, outcomes)
    return {run: outcomes.filter(pl.col("run").fill_null(runs[0]) == run) for run in runs}


def _keep_run(
    context: IssuerContext, run: str, answers: Sequence[RunOutcomes], what: str, **facts: int
) -> str:
    """Store the outcomes of files with a run, and record it; return the key."""
    adapters, keys = context.adapters, keys_of(run)
    key = write_outcomes(adapters.store, keys, adapters.now(), answers)
    names, digests = (
        [answer.one.name for answer in answers],
        [answer.one.digest for answer in answers],
    )
    record_event(adapters, keys, what, results=names, digests=digests, **facts)
    return key


# What is known of ingested result files: the markers of those that are done, and those that wait. A
# file with rows that could not be placed waits: it is read again once something it depends on has
# changed, and reported again only if that changed its outcome.

# of an object with the markers of many files; version 0.1 wrote one object per marker
BATCH_PREFIX = "files-"
WAITING = "waiting"  # the object with the files that wait


class MarkSpoiledError(OperatorError):
    """An object among the ingest markers is not one."""

    message = "{key} is not an ingest marker. Nothing was ingested."
    next_step = (
        "Move it away, then run the same command again: the files it named are ingested once more."
    )


def marker_key(entry: Entry, decisions: int) -> str:
    """Return the ingest marker of a result file with so many decisions of operators about it."""
    identity = f"{entry.key}|{entry.size}|{entry.version}" + (f"|{decisions}" if decisions else "")
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def read_markers(store: Store, issuer: str) -> frozenset[str]:
    """Return the ingest markers of all result files that are done; MarkSpoiledError where they
    cannot be read.
    """
    prefix = ingested(issuer)
    names = [entry.key.removeprefix(prefix).removesuffix(".json") for entry in store.keys(prefix)]
    batches = {name for name in names if name.startswith(BATCH_PREFIX)}
    together = concurrently(lambda name: _read(store, f"{prefix}{name}.json"), batches)
    return frozenset(names).difference(batches, {WAITING}).union(*together)


def write_markers(store: Store, issuer: str, files: Mapping[str, Entry]) -> None:
    """Store the ingest markers of result files, with the key of each file."""
    if files:
        name = hashlib.sha256("".join(sorted(files)).encode()).hexdigest()[:32]
        reported = {marker: redact(entry.key) for marker, entry in files.items()}
        store.create(f"{ingested(issuer)}{BATCH_PREFIX}{name}.json", canonical(reported))


def _read(store: Store, key: str) -> dict[str, Any]:
    with suppress(stores.ConflictError):
        return read_facts(store, key) or {}
    raise MarkSpoiledError(key=key)


class Waiting(BaseModel):
    """A result file that waits: for what (`basis`), with which outcome, in which runs, and what was
    reported of it.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    file: str
    basis: str  # empty: it is read each time
    outcome: str
    runs: tuple[str, ...]
    told: str  # empty where the report of its run says all


def read_waiting(store: Store, issuer: str) -> dict[str, Waiting]:
    """Return the result files that wait, by ingest marker; MarkSpoiledError where they cannot be
    read.
    """
    key = f"{ingested(issuer)}{WAITING}.json"
    found = _read(store, key)
    with suppress(ValidationError):  # its text quotes the content
        return {marker: Waiting.model_validate(one) for marker, one in found.items()}
    raise MarkSpoiledError(key=key)


def write_waiting(store: Store, issuer: str, files: Mapping[str, Waiting]) -> None:
    """Store the result files that wait; what another process wrote meanwhile is only reported
    again.
    """
    table = canonical(
        {marker: one.model_dump(mode="json") for marker, one in sorted(files.items())}
    )
    store.replace(f"{ingested(issuer)}{WAITING}.json", [table])


def basis_of(context: IssuerContext) -> tuple[str, str]:
    """Return digests of what outcomes depend on: where rows belong and which links are allowed; the
    latter alone.
    """
    store, issuer = context.adapters.store, context.issuer
    commits = [
        (run.run, has_manifest(store, keys_of(run.run)))
        for run in recent_commits(store, issuer.issuer)
    ]
    hosts = list(issuer.portal.allowed_hosts)
    known = [commits, context.opener_key(), issuer.time_zone, version("cardlink")]
    return digest(canonical({"known": known, "hosts": hosts})), digest(canonical({"hosts": hosts}))
