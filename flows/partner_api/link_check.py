"""Check the links of a run: query the service for each that is due, and store what it reports.

A stopped check resumes where it was.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.errors import TryAgainError
from flows.partner_api.job_records import Job, Placement, job, kept
from flows.partner_api.responses import messages_of
from flows.partner_api.service import (
    AnswerLostError,
    NoSuchRecordError,
    Placing,
    ServiceRefusedError,
    StrangeAnswerError,
)
from flows.partner_api.stored_placements import linked_rows, placements_key, read_placements
from flows.runs.claim import claimed
from flows.runs.context import IssuerContext
from flows.runs.frames import write_parquet
from flows.runs.identity import canonical, digest
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from schemas.manifest import LedgerPart
from schemas.partner_api.link_placements import Placements, dtypes
from schemas.partner_api.service import ServiceSettings

BATCH = 256  # rows queried at a time
KEEP_EVERY = 60.0  # seconds of queries that a kill may cost: they are repeated
MOST_SILENT = 20  # links in a row without a response before the check stops

NO_LINK_ID = "link.url.unknown"
NO_RECORD = "link.record.missing"
NO_CARDHOLDER = "link.cardholder.missing"
UNAVAILABLE = "service.answer.unavailable"
REFUSED = "service.answer.refused"
_MESSAGES = re.compile(r"/(?P<row>\d{9})-[^/]+\.json$")


class LinkCheck(NamedTuple):
    """What one check of a run's links did."""

    run: str
    links: int  # linked rows
    asked: int  # rows queried
    unanswered: int  # of them without a response
    messages: int  # stored


class ServiceSilentError(TryAgainError):
    """The service stopped responding."""

    message = "The service did not respond for {links} links in a row. {run} was left where it was."
    next_step = "Run {same_command} again later: it resumes with the links not yet checked."


def check_links(
    context: IssuerContext,
    service: Placing,
    settings: ServiceSettings,
    run: StoredRun,
    *,
    recheck: bool = False,
) -> LinkCheck:
    """Query the service for every link of a run that is due, and store the results.

    A link is due until its card is placed, `look_again_hours` after the last check, while it is
    active or a job runs; with `recheck`, every link not placed is due. Jobs are reported by
    cardholder, so of two links of one cardholder the one that is checked first gets the job. Raises
    ClaimedError if another check is running, TryAgainError if the service stops responding: results
    so far are stored.
    """
    with claimed(context.adapters, f"{run.keys.placements}claims/"):
        checks = [
            _PartCheck(context, service, settings, run, part).check(recheck=recheck)
            for part in run.committed().ledger
        ]
    return LinkCheck(
        run.id,
        links=sum(check.links for check in checks),
        asked=sum(check.asked for check in checks),
        unanswered=sum(check.unanswered for check in checks),
        messages=sum(check.messages for check in checks),
    )


class _PartCheck:
    """The check of the links of one ledger part."""

    def __init__(
        self,
        context: IssuerContext,
        service: Placing,
        settings: ServiceSettings,
        run: StoredRun,
        part: LedgerPart,
    ) -> None:
        self._now = context.adapters.now
        self._store = context.adapters.store
        self._service = service
        self._settings = settings
        self._run = run.id
        self._key = placements_key(run, part)
        self._messages = f"{run.keys.placements}messages/{part.name.partition('.')[0]}/"
        self._urls = linked_rows(run, part)
        self._known = _joined(self._urls, read_placements(run, part))
        self._silent = 0  # links in a row without a response

    def check(self, *, recheck: bool) -> LinkCheck:
        """Count in messages that are stored but not counted, then query."""
        self._replace(list(self._uncounted_rows()))
        before = self._reads()
        queried = unanswered = 0
        try:
            for placements in self._query(self._due(recheck=recheck)):
                queried += len(placements)
                unanswered += sum(placement.trouble == UNAVAILABLE for placement in placements)
        finally:
            self._write()
        messages = self._reads() - before
        return LinkCheck(self._run, self._known.height, queried, unanswered, messages)

    # The table of placements

    def _reads(self) -> int:
        return int(self._known["reads"].sum())

    def _replace(self, placements: Sequence[Placement]) -> None:
        records = [placement.record() for placement in placements]
        fresh = pl.DataFrame(records, schema=dtypes())
        others = self._known.join(fresh, on="row", how="anti")
        self._known = pl.concat([others, fresh]).sort("row")

    def _write(self) -> None:
        write_parquet(self._store, self._key, Placements.validate(self._known))

    def _due(self, *, recheck: bool) -> pl.DataFrame:
        """Return the rows to query with their urls, those never queried first."""
        now = self._now()
        pause = timedelta(hours=self._settings.look_again_hours)
        links = self._urls.select("row", "url", "expires_on")
        rows = self._known.join(links, on="row", how="left").filter(~pl.col("settled"))
        expires = pl.col("expires_on")
        active = expires.is_null() | (expires >= now.date()) | pl.col("running")
        paused = pl.col("seen").is_null() | (pl.col("seen") <= now - pause)
        return rows.filter(active & (paused | recheck)).sort("seen", "row", nulls_last=False)

    def _uncounted_rows(self) -> Iterator[Placement]:
        """Yield the rows with stored messages that are not counted in, with all of them.

        A check that was killed leaves such messages.
        """
        messages = defaultdict(list)
        for entry in self._store.keys(self._messages):
            name = _MESSAGES.search(entry.key)
            if name:
                messages[int(name["row"])].append(entry.key)
        reads = dict(self._known.select("row", "reads").iter_rows())
        late = [row for row, keys in messages.items() if reads.get(row) not in (None, len(keys))]
        for record in self._known.filter(pl.col("row").is_in(late)).to_dicts():
            placement = Placement.from_record(record)
            keys = messages[placement.row]
            for key in keys:
                placement = _with_messages(placement, read(self._store, key))
            yield placement._replace(reads=len(keys))

    # The queries

    def _query(self, due: pl.DataFrame) -> Iterator[list[Placement]]:
        """Yield the results batch by batch, and store them from time to time."""
        written = time.monotonic()
        with ThreadPoolExecutor(self._settings.requests_at_a_time) as threads:
            for batch in due.iter_slices(BATCH):
                results = threads.map(self._check_row, batch.to_dicts())
                placements = [placement for placement in results if placement is not None]
                self._replace(placements)
                yield placements
                if self._silent >= MOST_SILENT:
                    raise ServiceSilentError(links=self._silent, run=self._run)
                if time.monotonic() - written > KEEP_EVERY:
                    self._write()
                    written = time.monotonic()

    def _check_row(self, row: Mapping[str, Any]) -> Placement | None:
        """Query one link; None if the service has stopped responding: the row stays as it was."""
        if self._silent >= MOST_SILENT:
            return None
        placement = Placement.from_record(row)
        try:
            followed = self._follow(placement, row["url"])
        except (ServiceRefusedError, StrangeAnswerError):
            followed = placement._replace(trouble=REFUSED)
        except (TryAgainError, AnswerLostError):
            self._silent += 1
            return placement._replace(trouble=UNAVAILABLE)
        self._silent = 0
        return followed._replace(seen=self._now())

    def _follow(self, placement: Placement, url: str) -> Placement:
        """Follow the link's record to its cardholder, to its jobs, to their ends."""
        placement = self._with_record(placement._replace(trouble=None), url)
        if placement.cardholder_id and self._settings.follow_cardholders:
            placement = self._with_new_messages(placement, placement.cardholder_id)
        unfinished = [known for known in placement.jobs if known.running or not known.recorded]
        records = [self._job(known.job_id) for known in unfinished]
        return placement.with_jobs(record for record in records if record is not None)

    def _with_record(self, placement: Placement, url: str) -> Placement:
        """Read the link's record, unless its cardholder and its opening are known."""
        if placement.cardholder_id and placement.opened:
            return placement
        link_id = self._settings.id_of(url)
        if link_id is None:
            return placement._replace(trouble=NO_LINK_ID)
        try:
            record = self._service.card_link(link_id)
        except NoSuchRecordError:
            return placement._replace(trouble=NO_RECORD)
        cardholder_id = placement.cardholder_id or record.cardholder_id
        return placement._replace(
            cardholder_id=cardholder_id,
            opened=placement.opened or record.opened_raw is not None,
            trouble=None if cardholder_id else NO_CARDHOLDER,
        )

    def _with_new_messages(self, placement: Placement, cardholder_id: str) -> Placement:
        """Read the cardholder's messages, and store them before they are interpreted."""
        try:
            messages = kept(self._service.cardholder_messages(cardholder_id))
        except NoSuchRecordError:  # this cardholder has no messages yet
            return placement
        if not messages:
            return placement
        now = self._now()
        content = canonical(
            {"cardholder_id": cardholder_id, "at": now.isoformat(), "messages": messages}
        )
        name = f"{placement.row:09d}-{now:%Y%m%dT%H%M%S%f}-{digest(content)[:8]}.json"
        try:
            is_new = self._store.create(self._messages + name, content)
        except TryAgainError:
            # the store fails: the messages still count for the row, and are stored with the table
            is_new = False
        return _with_messages(placement, content)._replace(reads=placement.reads + is_new)

    def _job(self, job_id: str) -> Job | None:
        """Read a job's record; None if the service has none."""
        try:
            record = self._service.job(job_id)
        except NoSuchRecordError:
            return None
        known = job(job_id, record, record.merchant_site)
        return known._replace(recorded=True) if known else None


def _with_messages(placement: Placement, content: bytes) -> Placement:
    """Count in stored messages; a credential request carries its job's state too."""
    messages = messages_of(canonical({"messages": json.loads(content)["messages"]}))
    states = [(status.job_id, status.message) for status in messages.statuses]
    states += [(request.job_id, request.message) for request in messages.requests]
    jobs = [job(job_id, state) for job_id, state in states]
    return placement.with_jobs(known for known in jobs if known is not None)


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
