"""Follow links from "linked" to "card placed": query links, ingest transaction reports, count
funnels.

A stopped round resumes where it was.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.errors import OperatorError, TryAgainError
from flows.partner_api.funnel import (
    funnel_of,
    linked_rows,
    placements_key,
    read_placements,
    run_funnel,
)
from flows.partner_api.job_records import Job, Placement, job, kept
from flows.partner_api.responses import messages_of
from flows.partner_api.service import (
    AnswerLostError,
    NoSuchRecordError,
    Placing,
    ServiceRefusedError,
    StrangeAnswerError,
)
from flows.partner_api.transactions import ingest_transactions
from flows.reports.rebuild import rebuild
from flows.runs.attempts import is_current
from flows.runs.business_date import local_day
from flows.runs.claim import claimed
from flows.runs.context import IssuerContext
from flows.runs.documents import committed, manifests, read_summary, refuse_purged, without_ledger
from flows.runs.frames import write_parquet
from flows.runs.identity import canonical, digest
from flows.runs.keys import RunKeys, keys_of, placements
from flows.runs.single_links import single_links
from flows.runs.store import Store, read
from flows.runs.stored_run import StoredRun
from flows.steps import Sentence, Slot, Step
from schemas.manifest import LedgerPart, Manifest
from schemas.partner_api.link_placements import Placements, dtypes
from schemas.partner_api.service import ServiceSettings

BATCH = 256  # rows queried at a time
KEEP_EVERY = 60.0  # seconds of queries that a kill may cost: they are repeated
MOST_SILENT = 20  # links in a row without a response before the check stops

NO_LINK_ID, NO_RECORD, NO_CARDHOLDER = (
    "link.url.unknown",
    "link.record.missing",
    "link.cardholder.missing",
)
UNAVAILABLE, REFUSED = "service.answer.unavailable", "service.answer.refused"
_MESSAGES = re.compile(r"/(?P<row>\d{9})-[^/]+\.json$")


class LinkCheck(NamedTuple):
    """What one check of a run's links did: linked rows, rows queried, of them without a response,
    messages stored.
    """

    run: str
    links: int
    asked: int
    unanswered: int
    messages: int


def check_links(
    context: IssuerContext,
    service: Placing,
    settings: ServiceSettings,
    manifest: Manifest,
    *,
    again: bool = False,
) -> LinkCheck:
    """Query the service for every link of a run that is due, and store the results; `again`: every
    link not placed.

    A link is due until its card is placed, `look_again_hours` after the last check, while it is
    active or a job runs. Jobs are reported by cardholder, so of two links of one cardholder the one
    that is checked first gets the job. Raises ClaimedError if another check is running,
    TryAgainError if the service stops responding: results so far are stored.
    """
    keys = keys_of(manifest.run)
    with claimed(context.adapters, f"{keys.placements}claims/"):
        parts = [
            _Part(context, service, settings, keys, part).look(again=again)
            for part in manifest.ledger
        ]
    return LinkCheck(
        manifest.run,
        *(sum(counts) for counts in zip(*parts, strict=True)) if parts else (0, 0, 0, 0),
    )


class ServiceSilentError(TryAgainError):
    """The service stopped responding."""

    message = "The service did not respond for {links} links in a row. {run} was left where it was."
    next_step = "Run {same_command} again later: it resumes with the links not yet checked."


class _Part:
    """The links of one ledger part during a check."""

    def __init__(
        self,
        context: IssuerContext,
        service: Placing,
        settings: ServiceSettings,
        keys: RunKeys,
        part: LedgerPart,
    ) -> None:
        self._context = context.adapters
        self._service = service
        self._settings = settings
        self._run = str(keys.run)
        self._key = placements_key(keys, part)
        self._messages = f"{keys.placements}messages/{part.name.partition('.')[0]}/"
        self._urls = linked_rows(context.adapters.store, keys, part)
        self._known = _joined(self._urls, read_placements(context.adapters.store, keys, part))
        self._silent = 0

    def look(self, *, again: bool) -> tuple[int, int, int, int]:
        """Count in messages that are stored but not counted, then query; return links, asked,
        unanswered, messages.
        """
        self._replace(list(self._uncounted_rows()))
        before = int(self._known["reads"].sum())
        asked = unanswered = 0
        try:
            for news in self._ask(self._due(again=again)):
                asked += len(news)
                unanswered += sum(one.trouble == UNAVAILABLE for one in news)
        finally:
            self._keep()
        return self._known.height, asked, unanswered, int(self._known["reads"].sum()) - before

    def _due(self, *, again: bool) -> pl.DataFrame:
        """Return the rows to query with their urls, those never queried first."""
        now = self._context.now()
        rows = self._known.join(self._urls.select("row", "url", "expires_on"), on="row", how="left")
        alive = (
            pl.col("expires_on").is_null()
            | (pl.col("expires_on") >= now.date())
            | pl.col("running")
        )
        rested = pl.col("seen").is_null() | (
            pl.col("seen") <= now - timedelta(hours=self._settings.look_again_hours)
        )
        return rows.filter(~pl.col("settled") & alive & (rested | again)).sort(
            "seen", "row", nulls_last=False
        )

    def _ask(self, due: pl.DataFrame) -> Iterator[list[Placement]]:
        """Yield the results batch by batch, and store them from time to time."""
        kept = time.monotonic()
        with ThreadPoolExecutor(self._settings.requests_at_a_time) as askers:
            for batch in due.iter_slices(BATCH):
                reported = askers.map(
                    lambda one: self._look_at(Placement.of(one), one["url"]), batch.to_dicts()
                )
                news = [one for one in reported if one is not None]
                self._replace(news)
                yield news
                if self._silent >= MOST_SILENT:
                    raise ServiceSilentError(links=self._silent, run=self._run)
                if time.monotonic() - kept > KEEP_EVERY:
                    self._keep()
                    kept = time.monotonic()

    def _look_at(self, one: Placement, url: str) -> Placement | None:
        """Query one link; None if the service has stopped responding, so that the row stays as it
        was.
        """
        if self._silent >= MOST_SILENT:
            return None
        try:
            reported = self._follow(one, url)
        except (ServiceRefusedError, StrangeAnswerError):
            reported = one._replace(trouble=REFUSED)
        except (TryAgainError, AnswerLostError):
            self._silent += 1
            return one._replace(trouble=UNAVAILABLE)
        self._silent = 0
        return reported._replace(seen=self._context.now())

    def _follow(self, one: Placement, url: str) -> Placement:
        """Follow the link's record to its cardholder, to its jobs, to their ends."""
        one = self._recorded(one._replace(trouble=None), url)
        if one.cardholder_id and self._settings.follow_cardholders:
            one = self._listen(one, one.cardholder_id)
        reported = (
            self._job(known.job_id) for known in one.jobs if known.running or not known.recorded
        )
        return one.hear(found for found in reported if found is not None)

    def _recorded(self, one: Placement, url: str) -> Placement:
        """Read the link's record, unless its cardholder and its opening are known."""
        if one.cardholder_id and one.opened:
            return one
        link_id = self._settings.id_of(url)
        if link_id is None:
            return one._replace(trouble=NO_LINK_ID)
        try:
            record = self._service.card_link(link_id)
        except NoSuchRecordError:
            return one._replace(trouble=NO_RECORD)
        cardholder = one.cardholder_id or record.cardholder_id
        problem = None if cardholder else NO_CARDHOLDER
        return one._replace(
            cardholder_id=cardholder,
            opened=one.opened or record.opened_raw is not None,
            trouble=problem,
        )

    def _listen(self, one: Placement, cardholder_id: str) -> Placement:
        """Read the cardholder's messages, and store them before they are interpreted."""
        try:
            messages = kept(self._service.cardholder_messages(cardholder_id))
        except NoSuchRecordError:  # this cardholder has no messages yet
            return one
        if not messages:
            return one
        at = self._context.now()
        content = canonical(
            {"cardholder_id": cardholder_id, "at": at.isoformat(), "messages": messages}
        )
        name = f"{one.row:09d}-{at:%Y%m%dT%H%M%S%f}-{digest(content)[:8]}.json"
        try:
            fresh = self._context.store.create(self._messages + name, content)
        except (
            TryAgainError
        ):  # the store fails: the messages still count for the row, and are stored with the table
            fresh = False
        return _with_messages(one, content)._replace(reads=one.reads + fresh)

    def _uncounted_rows(self) -> Iterator[Placement]:
        """Yield the rows with stored messages that are not counted in, because a check was killed,
        with all of them.
        """
        found = defaultdict(list)
        for entry in self._context.store.keys(self._messages):
            if named := _MESSAGES.search(entry.key):
                found[int(named["row"])].append(entry.key)
        reads = dict(self._known.select("row", "reads").iter_rows())
        late = [row for row, keys in found.items() if reads.get(row) not in (None, len(keys))]
        for record in self._known.filter(pl.col("row").is_in(late)).to_dicts():
            one = Placement.of(record)
            for key in found[one.row]:
                one = _with_messages(one, read(self._context.store, key))
            yield one._replace(reads=len(found[one.row]))

    def _job(self, job_id: str) -> Job | None:
        """Read a job's record; None if the service has none."""
        try:
            record = self._service.job(job_id)
        except NoSuchRecordError:
            return None
        reported = job(job_id, record, record.merchant_site)
        return reported._replace(recorded=True) if reported else None

    def _replace(self, news: Sequence[Placement]) -> None:
        fresh = pl.DataFrame([one.record() for one in news], schema=dtypes())
        self._known = pl.concat([self._known.join(fresh, on="row", how="anti"), fresh]).sort("row")

    def _keep(self) -> None:
        write_parquet(self._context.store, self._key, Placements.validate(self._known))


def _with_messages(placement: Placement, content: bytes) -> Placement:
    """Count in stored messages; a credential request carries its job's state too."""
    reported = messages_of(canonical({"messages": json.loads(content)["messages"]}))
    states = [(one.job_id, one.message) for one in reported.statuses] + [
        (one.job_id, one.message) for one in reported.requests
    ]
    return placement.hear(
        found for job_id, standing in states if (found := job(job_id, standing)) is not None
    )


def _joined(links: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Return a record for every linked row: what is known of it, or an empty one."""
    nothing = {
        "opened": False,
        "authenticated": False,
        "running": False,
        "settled": False,
        "reads": 0,
    }
    joined = links.join(known.drop("cuid", "last_4"), on="row", how="left")
    filled = joined.with_columns(
        *(pl.col(name).fill_null(value) for name, value in nothing.items()),
        pl.col("jobs").fill_null([]),
    )
    return filled.select(pl.col(name).cast(kind) for name, kind in dtypes().items())


class NoLinksError(OperatorError):
    """A run without a report has no known links."""

    message = "{run} has no report yet, so its links are unknown."
    next_step = Sentence(
        "Have it made first: {report}.",
        report=Step("report", Slot("run")),
    )


def follow_links(
    context: IssuerContext, service: Placing | None, run: str = "", *, again: bool = False
) -> dict[str, Any]:
    """Check the links of a run, or of every run with active links; return the funnel and what was
    done.

    Reports of runs whose funnel changed are rebuilt. `again`: query also links that were queried
    recently. Without a service only transaction reports are ingested. Raises NoLinksError; see also
    `check_links`.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    kept = [one for one in manifests(store, issuer) if one.run not in without_ledger(store, issuer)]
    taken = ingest_transactions(store, issuer, reversed(kept))
    runs = [_one(store, run)] if run else [one for one in kept if _followed(store, one, context)]
    looked = list(_check_runs(context, service, runs, again=again))
    changed = [one.run for one in runs if _renewed(context, one)]
    facts = {
        "issuer": issuer,
        "at": context.adapters.now().isoformat(timespec="seconds"),
        "runs": [one.run for one in runs],
        "looked": [one._asdict() for one in looked],
        "rebuilt": changed,
        "transactions": {"files": taken.files, "rows": taken.rows},
        "breaks": [one._asdict() for one in taken.breaks],
        "funnel": funnel_of(store, issuer, runs, today),
    }
    if not run:
        store.replace(f"{placements(issuer)}summary.json", [canonical(facts)])
    return facts


def _check_runs(
    context: IssuerContext, service: Placing | None, runs: Sequence[Manifest], *, again: bool
) -> Iterator[LinkCheck]:
    settings = context.issuer.service
    if service is not None and settings is not None:
        # of two links of a cardholder the newer one is more likely to have led to a job
        for one in reversed(runs):
            yield check_links(context, service, settings, one, again=again)


def _one(store: Store, run: str) -> Manifest:
    keys = keys_of(run)
    refuse_purged(store, keys)
    manifest = committed(store, run)
    if read_summary(store, keys) is None:
        raise NoLinksError(run=run)
    return manifest


def _followed(store: Store, manifest: Manifest, context: IssuerContext) -> bool:
    """Return whether a run has links that are still current."""
    summary = read_summary(store, keys_of(manifest.run))
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    if summary is None or not is_current(StoredRun.by_id(store, manifest.run), today):
        return False
    return bool(summary["rows"]["linked"] or single_links(store, keys_of(manifest.run)).height)


def _renewed(context: IssuerContext, manifest: Manifest) -> bool:
    """Rebuild a run's report if its funnel changed."""
    store = context.adapters.store
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    before = (read_summary(store, keys_of(manifest.run)) or {}).get("funnel") or {}
    after = run_funnel(store, manifest, today) or {}
    if {**before, "seen": ""} == {**after, "seen": ""}:
        return False
    rebuild(context, StoredRun.of(store, manifest))
    return True
