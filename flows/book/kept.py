"""The kept book: what was read of each run, so that the next reader reads only what is new.

It is a copy that may be missing, stale or damaged at any time. Whoever reads the book brings it up
to date in memory (`current_pages`), and the commands that change something write it back
(`keep_book`). Nothing else is done by it: no alert, no delivery, no decision.

* `book/head.json` names every run that counts with what its attempts were read from, and how far
  the commit chain and the audit trail were read.
* `runs/<run>/book.parquet` is a run's page: its attempts (`flows/book/attempts.py`). A submit
  leaves its own run without: the ledger says the same until somebody keeps the book again.
* `book/stages.json` and what it names say how far links came (`kept_stages.py`).
* `book/left.parquet` has who left, by the extracts up to then (`kept_departures.py`).
* `book/closed.json` has the figures of runs about which nothing is open (`known_runs.py`),
  `book/rows.parquet` whose rows the small ones of them have (`known_rows.py`).
* `book/settled.parquet` has the attempts of finished runs that still decide something
  (`compacted`), so that a year of nights costs no more than its cards.

**What may have changed** since the head was written: the runs that were registered since; those
that the audit trail names since, as it does before anything of a run is changed; those that it
named in the day before, since their change may have come later; and those registered and not
committed yet. Of each of these the objects are listed, and where they are others than those that
its page was made from, the page is made anew. Without an audit trail every run is looked at.

**What is believed**: a page or the settled attempts with exactly the bytes that the head names,
made by this version of the code (`head.py`). Anything else is discarded and made anew from the
ledgers, so that two writers, a crash between two writes, or somebody's file cost time alone. A
rebuild begins a new generation, whose head has a key of its own (`forget_book`): whoever began to
write before writes a head that nobody reads.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.book.attempts import (
    ATTEMPT,
    NO_ATTEMPTS,
    UNKNOWN_CONTENT,
    attempts_about_to_be_sent,
    attempts_of,
    in_order,
)
from flows.book.departures import WholeExtract, whole_extract
from flows.book.fold import compacted
from flows.book.head import (
    Head,
    News,
    Page,
    generation,
    head_key,
    news_since,
    read_head,
    with_plans,
)
from flows.book.kept_departures import KeptDepartures
from flows.book.kept_stages import KeptStages
from flows.book.known_runs import KeptRuns, KnownRuns
from flows.book.opening import opening_balance
from flows.book.stages import Stages
from flows.errors import CardlinkError
from flows.runs.business_date import local_day
from flows.runs.commits import registered_runs
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.keys import book, keys_of
from flows.runs.overlay import Overlay
from flows.runs.store import Store, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas.ledger import AWAITING
from schemas.manifest import Manifest
from schemas.records import Abandoned
from schemas.tables import parquet

LOG = logging.getLogger("cardlink")
_ALL = ATTEMPT.names()
UNORDERED = -1  # the turn of a run of earlier versions that is not in the commit chain
SETTLED_TOGETHER = 16  # finished runs whose pages are put together
# what of a run its attempts are read from, apart from its ledger
_SOURCES = ("manifest.json", "report/rows/", "events/", "closed/", "single/")


class Pages(NamedTuple):
    """The book as it is now: its head, and all attempts in order, settled ones compacted."""

    head: Head
    attempts: pl.DataFrame
    departed: Callable[[], pl.DataFrame]  # who has left (`flows.book.departures.DEPARTED`)
    attempts_of: Callable[[str], pl.DataFrame]  # all attempts of a run, none where it has none
    stages: Callable[[], Stages]  # how far links came
    runs: Callable[[], KnownRuns]  # the plans of all runs, and the figures of closed ones


def current_pages(runs: StoredRuns, columns: Sequence[str] = _ALL) -> Pages:
    """Return the book as everything that is recorded of an issuer's runs says; nothing is written.

    `columns`: those of the attempts, which of a million cards take up to 16 MB each.
    """
    keeper = _Keeper(runs)
    attempts = keeper.attempts(columns)
    return Pages(
        keeper.head,
        attempts,
        lambda: keeper.departures.read(attempts),
        keeper.attempts_on_page,
        keeper.stages.read,
        keeper.runs.read,
    )


def attempts_without(store: Store, issuer: str, runs: Collection[str]) -> pl.DataFrame:
    """Return all attempts, in order, as they are once the ledgers of these runs are gone."""
    return _Keeper(StoredRuns(store, issuer), runs).attempts()


def keep_book(
    runs: StoredRuns, today: date, put_off: str = "", reported: Collection[str] = ()
) -> None:
    """Write the book as it is now, where it is another than the one that is kept.

    `today`: the book is asked about this day and later ones. `put_off`: a run that has just
    committed a whole extract, whose page is left to whoever keeps the book next. `reported`: runs
    whose reports were written anew, though nothing came to them.
    """
    keeper = _Keeper(runs, put_off=put_off)
    keeper.keep(today, reported)
    keeper.stages.keep()


def keep_up_to_date(
    context: IssuerContext,
    put_off: str = "",
    reported: Collection[str] = (),
    runs: StoredRuns | None = None,
) -> None:
    """Write the book as it is now, at the end of a command that changed something (`keep_book`).

    Not in a dry run, where it would be of no use. What went wrong with it is logged and changes
    nothing: the next reader makes up for it. `runs`: as the command has listed them; of one that
    is not among them the next reader reads the plan.
    """
    if isinstance(context.adapters.store, Overlay):
        return
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    listed = runs or StoredRuns(context.adapters.store, context.issuer.issuer)
    try:
        keep_book(listed, today, put_off, reported)
    except CardlinkError as error:
        LOG.warning("The book was not brought up to date: %s", error.what_happened)


class _Ledger(NamedTuple):
    """What the ledger of a run says: its attempts, and of which extract they are."""

    attempts: pl.DataFrame
    is_committed: bool
    content: int  # number of the commit of the extract that its rows are of
    extract: WholeExtract | None


class _Keeper:
    """Brings the kept book of an issuer up to date in memory, and writes it.

    `without`: runs whose ledgers are taken to be gone. `put_off`: a run whose page is not made.
    """

    def __init__(
        self, stored: StoredRuns, without: Collection[str] = (), put_off: str = ""
    ) -> None:
        self._stored = stored
        self._store = store = stored.store
        self._issuer = issuer = stored.issuer
        self._put_off = put_off
        self._frames: dict[str, pl.DataFrame] = {}
        self._written_anew: set[str] = set()  # runs whose page has to be written
        self._generation = generation(store, issuer)
        self._kept = read_head(store, issuer, self._generation)
        news = news_since(store, issuer, self._kept)
        purged = self._stored.without_ledger
        self.runs = KeptRuns(self._stored, self._kept, news.runs, purged)
        self._purged = purged.union(without)
        self._pages = {
            run: page for run, page in self._kept.pages.items() if run not in self._purged
        }
        gone = self._kept.pages.keys() - self._pages.keys()
        self._settled_fits = not any(self._kept.pages[run].settled for run in gone)
        self._bring_up_to_date(news)
        uncommitted = tuple(run for run, page in sorted(self._pages.items()) if not page.committed)
        self.head = Head(
            registered=max(news.registered, default=self._kept.registered),
            newest=max(_whole_days(news.registered.values()), default=self._kept.newest),
            trail=news.trail,
            seal=news.seal,
            recent=dict(news.recent),
            uncommitted=uncommitted,
            pages=self._pages,
            settled=self._kept.settled,
            left=self._kept.left,
            left_runs=self._kept.left_runs,
            opening=opening_balance(store, issuer, purged, self._kept.opening),
            plans=self._kept.plans,
            closed=self._kept.closed,
            closed_rows=self._kept.closed_rows,
        )

    @property
    def stages(self) -> KeptStages:
        """How far the links of these runs came (`kept_stages.py`)."""
        return KeptStages(self._store, self._issuer, self._pages, self.attempts_on_page)

    @property
    def departures(self) -> KeptDepartures:
        """Who has left, by the whole extracts whose ledger can be read (`kept_departures.py`)."""
        pages = self._pages.items()
        extracts = {
            run: page.extract
            for run, page in pages
            if page.extract is not None and run != self._put_off
        }
        return KeptDepartures(self._store, self._issuer, self._kept, extracts)

    def _bring_up_to_date(self, news: News) -> None:
        """Make the pages anew of the runs whose objects are others than those they were made of."""
        turns = self._turns(news)
        without_page = {run for run, page in self._pages.items() if not page.sha256}
        candidates = news.runs | without_page | (turns.keys() - self._pages.keys())
        looked_at = sorted(candidates & (turns.keys() - self._purged))
        listed = dict(zip(looked_at, concurrently(self._objects, looked_at), strict=True))
        stale = [run for run in looked_at if not self._fits(run, listed[run])]
        links = {manifest.run: manifest for manifest in news.registered.values()}
        for run in sorted(stale, key=lambda run: (turns[run], run)):
            self._make_page(run, turns[run], listed[run], links.get(run))

    def _turns(self, news: News) -> dict[str, int]:
        """Return the number of each run that counts, by run."""
        turns = {run: page.turn for run, page in self._pages.items()}
        if not self._kept.registered:
            turns = {run.id: UNORDERED for run in self._stored.with_ledger()} | turns
        return turns | {manifest.run: number for number, manifest in news.registered.items()}

    def _fits(self, run: str, objects: str) -> bool:
        """Return whether the page of a run was made from these objects."""
        page = self._pages.get(run)
        return page is not None and bool(page.sha256) and page.objects == objects

    def _objects(self, run: str) -> str:
        """Return a digest of the stored objects that the attempts of a run are read from."""
        base = keys_of(run).base
        listed = [
            f"{entry.key} {entry.size} {entry.version}"
            for entry in self._store.keys(base)
            if entry.key.removeprefix(base).startswith(_SOURCES)
        ]
        return digest("\n".join(listed).encode())

    def _make_page(self, run: str, turn: int, objects: str, link: Manifest | None) -> None:
        """Make the page of a run anew from its ledger, or drop it where the run was abandoned."""
        before = self._pages.pop(run, None)
        if run == self._put_off and (before is None or not before.sha256):
            self._pages[run] = self._page_put_off(run, turn, objects)
            return
        ledger = self._read_ledger(run, turn, link)
        was_settled = before is not None and before.settled
        if ledger is None:
            self._settled_fits &= not was_settled
            return
        attempts = ledger.attempts
        self._frames[run] = attempts
        page = Page(
            turn=turn,
            content=ledger.content,
            objects=objects,
            committed=ledger.is_committed,
            finished=ledger.is_committed and not (attempts["state"] == AWAITING).any(),
            twins=bool((attempts["twin"] > 0).any()),
            renewal=bool(attempts["renewal"].any()),
            extract=ledger.extract,
        )
        if before is not None and _has(before, attempts):
            same_bytes = {"sha256": before.sha256, "settled": before.settled}
            self._pages[run] = page.model_copy(update=same_bytes)
            return
        self._settled_fits &= not was_settled
        self._written_anew.add(run)
        self._pages[run] = page

    def _page_put_off(self, run: str, turn: int, objects: str) -> Page:
        """Return what the head says of a whole extract whose ledger nobody has read yet."""
        extract = whole_extract(StoredRun.by_id(self._store, run), turn)
        return Page(turn=turn, content=turn, objects=objects, committed=True, extract=extract)

    def _read_ledger(self, run: str, turn: int, link: Manifest | None = None) -> "_Ledger | None":
        """Return the attempts of a run as its ledger has them; None where it was abandoned."""
        stored = StoredRun.by_id(self._store, run)
        if isinstance(stored.end, Abandoned):
            return None
        manifest = stored.manifest or link or self._link(turn)
        content = self._content(manifest, turn)
        if stored.manifest is None:
            attempts = attempts_about_to_be_sent(stored, manifest, turn, content)
        else:
            attempts = attempts_of(stored, turn, content)
        attempts = self._as_repeated(attempts, manifest)
        is_committed = stored.manifest is not None
        return _Ledger(attempts, is_committed, content, whole_extract(stored, turn))

    def _content(self, manifest: Manifest, turn: int) -> int:
        """Return the number of the commit of the extract that a run's rows are of."""
        if manifest.selection is None:
            return turn
        repeated = self._pages.get(manifest.selection.of)
        return UNKNOWN_CONTENT if repeated is None else repeated.content

    def _as_repeated(self, attempts: pl.DataFrame, manifest: Manifest) -> pl.DataFrame:
        """Give the attempts of a selection what they share with those that they repeat.

        That is the numbers of cards that look the same, and whether they replace living links.
        """
        if manifest.selection is None:
            return attempts
        repeated = self._pages.get(manifest.selection.of)
        if repeated is None:
            return attempts
        if repeated.twins:
            attempts = with_twins_of(attempts, self.attempts_on_page(manifest.selection.of))
        if repeated.renewal:
            attempts = attempts.with_columns(renewal=pl.lit(value=True))
        return attempts

    def _link(self, turn: int) -> Manifest:
        """Return what the commit chain has at a number."""
        return next(registered_runs(self._store, self._issuer, turn - 1))

    def attempts_on_page(self, run: str) -> pl.DataFrame:
        """Return the attempts of a run: as they were just read, as they are kept, or read anew.

        None of a run that has no page.
        """
        if run not in self._pages:
            return NO_ATTEMPTS
        if run not in self._frames:
            page = self._pages[run]
            content = read_if_stored(self._store, keys_of(run).page)
            attempts = _believed(content, page.sha256)
            if attempts is None:
                ledger = self._read_ledger(run, page.turn)
                attempts = ledger.attempts if ledger is not None else NO_ATTEMPTS
                self._written_anew.add(run)
            self._frames[run] = attempts
        return self._frames[run]

    def _settled(self, columns: Sequence[str] = _ALL) -> pl.DataFrame:
        """Return the settled attempts as they are kept, or put together anew."""
        runs = [run for run, page in self._pages.items() if page.settled]
        if not runs:
            return NO_ATTEMPTS.select(columns)
        if self._settled_fits:
            content = read_if_stored(self._store, _settled_key(self._issuer))
            kept = _believed(content, self._kept.settled, columns)
            if kept is not None:
                return kept
        self._settled_fits = False
        return in_order(self._frames_of(runs, columns))

    def _frames_of(self, runs: Iterable[str], columns: Sequence[str] = _ALL) -> list[pl.DataFrame]:
        by_turn = sorted(runs, key=lambda run: (self._pages[run].turn, run))
        if list(columns) == _ALL:
            return concurrently(self.attempts_on_page, by_turn)
        return concurrently(lambda run: self._columns_on_page(run, columns), by_turn)

    def _columns_on_page(self, run: str, columns: Sequence[str]) -> pl.DataFrame:
        """Return columns of the attempts of a run; they are not held here."""
        if run not in self._frames:
            content = read_if_stored(self._store, keys_of(run).page)
            attempts = _believed(content, self._pages[run].sha256, columns)
            if attempts is not None:
                return attempts
        return self.attempts_on_page(run).select(columns)

    def attempts(self, columns: Sequence[str] = _ALL) -> pl.DataFrame:
        """Return all attempts, in order, but for those of a run whose page is put off."""
        unsettled = [run for run, page in self._pages.items() if not page.settled]
        read = [run for run in unsettled if run != self._put_off]
        return in_order([self._settled(columns), *self._frames_of(read, columns)])

    def keep(self, today: date, reported: Collection[str] = ()) -> None:
        """Write the pages that were made anew, the settled attempts, and the head, in this order.

        Finished runs that nobody touched for a day are settled, many together.
        """
        settled = self._settled()
        for run in sorted(self._written_anew & self._pages.keys()):
            self._write_page(run)
        head = self.head
        ripe = [run for run, page in self._pages.items() if self._is_ripe(run, page)]
        if len(ripe) >= SETTLED_TOGETHER or not self._settled_fits:
            attempts = compacted(in_order([settled, *self._frames_of(ripe)]), today)
            for run in ripe:
                self._pages[run] = self._pages[run].model_copy(update={"settled": True})
            content = _page_bytes(attempts)
            self._store.replace(_settled_key(self._issuer), [content])
            head = head.model_copy(update={"settled": digest(content)})
        head = head.model_copy(update={"pages": self._pages})
        head = self.departures.keep(head, self.attempts)
        head = self.runs.keep(with_plans(head, self._stored), reported)
        if head != self._kept:
            key = head_key(self._issuer, self._generation)
            self._store.replace(key, [canonical(head.model_dump(mode="json"))])

    def _write_page(self, run: str) -> None:
        """Write the page of a run; who needs its attempts from now on reads them there."""
        content = _page_bytes(self.attempts_on_page(run))
        self._store.replace(keys_of(run).page, [content])
        self._pages[run] = self._pages[run].model_copy(update={"sha256": digest(content)})
        del self._frames[run]

    def _is_ripe(self, run: str, page: Page) -> bool:
        """Return whether a run can be settled: nothing is awaited, and nobody works on it."""
        return page.finished and not page.settled and run not in self.head.recent


def with_twins_of(attempts: pl.DataFrame, repeated: pl.DataFrame) -> pl.DataFrame:
    """Give each attempt the number that the row it repeats has among cards that look the same."""
    rows = repeated.select(origin="row", of_origin="twin").unique("origin", keep="last")
    joined = attempts.join(rows, on="origin", how="left", maintain_order="left")
    return joined.with_columns(twin=pl.coalesce("of_origin", "twin")).select(*ATTEMPT)


def _whole_days(manifests: Iterable[Manifest]) -> list[date]:
    """Return the business dates of whole extracts among these runs."""
    return [manifest.as_of for manifest in manifests if manifest.selection is None]


def _believed(
    content: bytes | None, sha256: str, columns: Sequence[str] = _ALL
) -> pl.DataFrame | None:
    """Return the attempts in a stored object; None unless it has exactly the bytes of the head."""
    if content is None or digest(content) != sha256:
        return None
    return pl.read_parquet(BytesIO(content), columns=list(columns)).select(columns)


def _has(page: Page, attempts: pl.DataFrame) -> bool:
    """Return whether a page, if it was written, has these attempts."""
    return bool(page.sha256) and page.sha256 == digest(_page_bytes(attempts))


def _page_bytes(attempts: pl.DataFrame) -> bytes:
    return parquet(attempts, compression="zstd", compression_level=1, statistics=False)


def _settled_key(issuer: str) -> str:
    return f"{book(issuer)}settled.parquet"
