"""Check the links of a run: query the service for each that is due, and store what it reports.

A stopped check resumes where it was.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, NamedTuple

import polars as pl

from flows.errors import TryAgainError
from flows.extensions.partner_api.job_records import Placement, read_anew, reading_of
from flows.extensions.partner_api.link_placements import Placements, dtypes
from flows.extensions.partner_api.link_queries import (
    READ_ANYWAY_AFTER,
    LinkAnswer,
    QueryContext,
    Question,
    cause_of,
    query_link,
)
from flows.extensions.partner_api.placements import (
    mark_check,
    messages_of,
    placements_key,
    read_placements,
    read_with,
)
from flows.extensions.partner_api.run_links import LinkIds, linked_rows
from flows.extensions.partner_api.service import AnswerLostError, Placing, UnauthorisedError
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.unknowns import NO_OPENING
from flows.runs.claim import Subject, claimed
from flows.runs.context import IssuerContext
from flows.runs.frames import write_parquet
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from schemas.manifest import LedgerPart

LONGEST_PAUSE = 72.0  # hours after which a link is queried again, where nothing happens at it
KEEP_EVERY = 60.0  # seconds of queries that a kill may cost: they are repeated
MOST_SILENT = 20  # links in a row without a response before the check stops

_MESSAGES = re.compile(r"/(?P<row>\d{9})-[^/]+\.json$")


class LinkCheck(NamedTuple):
    """What one check of a run's links did; `stopped` is the cause (a code) that ended it early."""

    run: str
    links: int  # linked rows
    asked: int  # rows with questions
    unanswered: int  # of them without any answer
    messages: int  # stored
    questions: Counter[Question]
    stopped: str
    waiting: int = 0  # links that are due and are left to the next check


class Limit(NamedTuple):
    """How far a check goes: links of at least this urgency, until this moment (monotonic), and
    until so many requests are sent.
    """

    urgency: float = 0.0
    until: float = math.inf
    requests: float = math.inf

    def after(self, questions: Counter[Question]) -> Limit:
        """Return what is left of it after a part of the check."""
        return self._replace(requests=self.requests - questions.total())


NO_LIMIT = Limit()


def check_links(
    context: IssuerContext,
    service: Placing,
    settings: ServiceSettings,
    run: StoredRun,
    *,
    recheck: bool = False,
    limit: Limit = NO_LIMIT,
) -> LinkCheck:
    """Query the service for the links of a run that are due (`due_links`), store the results.

    Within `limit`, the most urgent first. With `recheck` every active link is due.
    Links whose URLs have one id are not queried: it is not theirs. Jobs are
    reported by cardholder, so of two links of one cardholder the one that is checked first gets the
    job. Raises ClaimedError if another check is running. A service that stops responding, or
    rejects our credentials, ends the check: what was learned is stored.
    """
    checks: list[LinkCheck] = []
    subject = Subject(context.adapters.database, run.issuer, f"the links of {run.id}")
    with claimed(context.adapters, subject):
        mark_check(run, context.adapters.now())
        reading = reading_of(settings)
        has_other_settings = read_with(run) != reading
        ids = LinkIds(settings, run)
        for part in run.committed().ledger:
            of_part = _PartCheck(context, service, settings, run, part, ids)
            of_part.count_stored(has_other_settings=has_other_settings)
            check = of_part.check(Turn(settings, context.adapters.now(), recheck), limit)
            checks.append(check)
            if check.stopped:
                break
            limit = limit.after(check.questions)
        mark_check(run, reading=reading)
    questions: Counter[Question] = Counter()
    for part_check in checks:
        questions += part_check.questions
    return LinkCheck(
        run.id,
        links=sum(check.links for check in checks),
        asked=sum(check.asked for check in checks),
        unanswered=sum(check.unanswered for check in checks),
        messages=sum(check.messages for check in checks),
        questions=questions,
        stopped=stop_of(checks),
        waiting=sum(check.waiting for check in checks),
    )


def stop_of(checks: Iterable[LinkCheck]) -> str:
    """Return the cause that ended the last of some checks, "" where none did."""
    return next((check.stopped for check in checks if check.stopped), "")


class _PartCheck:
    """The check of the links of one ledger part."""

    def __init__(
        self,
        context: IssuerContext,
        service: Placing,
        settings: ServiceSettings,
        run: StoredRun,
        part: LedgerPart,
        ids: LinkIds,
    ) -> None:
        self._now = context.adapters.now
        self._store = context.adapters.store
        self._settings = settings
        self._run = run
        self._key = placements_key(run, part)
        self._messages = messages_of(run, part)
        self._context = QueryContext(service, settings, self._store, self._messages, self._now, ids)
        rows = followed_rows(run, part)
        self._links = rows.select("row", "url", "expires_on")
        self._known = rows.drop("url", "expires_on")
        self._silent = 0  # links in a row without a response
        self._stopped = ""

    def count_stored(self, *, has_other_settings: bool) -> None:
        """Count in messages that are stored but not counted.

        With other settings than before, also those that could not be read.
        """
        self._replace(list(self._recounted_rows(has_other_settings=has_other_settings)))

    def check(self, turn: Turn, limit: Limit) -> LinkCheck:
        """Query the links that are due."""
        before = self._reads()
        due = due_links(self._run, self._known.join(self._links, on="row"), turn)
        chosen = due.filter(pl.col("urgency") >= limit.urgency)
        answers: Counter[bool] = Counter()  # of links with questions: whether any was answered
        questions: Counter[Question] = Counter()
        queried = 0
        try:
            for answer in self._query(chosen, turn.batch, limit):
                queried += 1
                if answer.questions:
                    answers[answer.has_learned] += 1
                questions += answer.questions
        finally:
            self._write()
        return LinkCheck(
            self._run.id,
            links=self._known.height,
            asked=answers.total(),
            unanswered=answers[False],
            messages=self._reads() - before,
            questions=questions,
            stopped=self._stopped,
            waiting=due.height - queried,
        )

    # The table of placements

    def _reads(self) -> int:
        return int(self._known["reads"].sum())

    def _replace(self, placements: Sequence[Placement]) -> None:
        records = [placement.record() for placement in placements]
        fresh = pl.DataFrame(records, schema=dtypes()).with_columns(_opened_seen(self._now()))
        others = self._known.join(fresh, on="row", how="anti")
        self._known = pl.concat([others, fresh]).sort("row")

    def _write(self) -> None:
        write_parquet(self._store, self._key, Placements.validate(self._known))

    def _recounted_rows(self, *, has_other_settings: bool) -> Iterator[Placement]:
        """Yield the rows with stored messages that are not counted in, with all of them.

        A check that was killed leaves such messages. With other settings, also the rows of messages
        that could not be read, and those with jobs.
        """
        messages = self._stored_messages()
        counts = pl.DataFrame(
            {"row": list(messages), "stored": [len(keys) for keys in messages.values()]},
            {"row": pl.UInt32, "stored": pl.UInt32},
        )
        late = pl.col("stored") != pl.col("reads")
        has_jobs = pl.col("jobs").list.len() > 0
        unread = pl.lit(has_other_settings) & ((pl.col("missed") > 0) | has_jobs)
        rows = self._known.join(counts, on="row", how="left").filter(late | unread).drop("stored")
        for record in rows.to_dicts():
            placement = Placement.from_record(record)
            keys = messages[placement.row]
            is_late = placement.reads != len(keys)
            is_read = is_late or placement.missed > 0
            contents = [read(self._store, key) for key in keys] if is_read else []
            anew = read_anew(placement, contents, self._settings)
            reads = len(keys) or placement.reads
            yield anew._replace(reads=reads, moved=self._now() if is_late else anew.moved)

    def _stored_messages(self) -> dict[int, list[str]]:
        """Return the keys of the stored messages by row."""
        messages = defaultdict(list)
        for entry in self._store.keys(self._messages):
            name = _MESSAGES.search(entry.key)
            if name:
                messages[int(name["row"])].append(entry.key)
        return messages

    # The queries

    def _query(self, due: pl.DataFrame, size: int, limit: Limit) -> Iterator[LinkAnswer]:
        """Yield the answers, and store them from time to time; no batch begins beyond the limit."""
        written = time.monotonic()
        sent = 0
        with ThreadPoolExecutor(self._settings.requests_at_a_time) as threads:
            for batch in due.iter_slices(size):
                if sent >= limit.requests:
                    return
                results = threads.map(self._check_row, batch.to_dicts())
                answers = [answer for answer in results if answer is not None]
                self._replace([answer.placement for answer in answers])
                yield from answers
                sent += sum(answer.questions.total() for answer in answers)
                if self._stopped or time.monotonic() >= limit.until:
                    return
                if time.monotonic() - written >= KEEP_EVERY:
                    self._write()
                    written = time.monotonic()

    def _check_row(self, row: Mapping[str, Any]) -> LinkAnswer | None:
        """Query one link; None once the check is to stop: the row stays as it was."""
        if self._stopped:
            return None
        answer = query_link(self._context, Placement.from_record(row), row["url"])
        match answer.failure:
            case UnauthorisedError():
                self._stopped = cause_of(answer.failure)
            case TryAgainError() | AnswerLostError():
                self._silent += 1
                if self._silent >= MOST_SILENT:
                    self._stopped = cause_of(answer.failure)
            case _:
                self._silent = 0
        return answer


def _opened_seen(now: datetime) -> pl.Expr:
    """Return when a link was first seen opened: now, where no check before knew that it was."""
    first = pl.when("opened").then(pl.lit(now, dtypes()["opened_seen"]))
    return pl.coalesce("opened_seen", first).alias("opened_seen")


QUIET_SHARE: Final = 3  # a link quiet for so many hours is queried an hour later than before
RUNNING: Final = 1e9  # urgencies; that of other links is how often their pause has passed
NEVER_QUERIED: Final = 1e6
REQUESTS: Final = 2  # that a link takes at most, but for its jobs
MOST_REQUESTS: Final = 3  # the same with one job, where more is learned of a link than was foreseen
# of the time of a check; the rest is for links that turn out to be opened, whose messages and jobs
# are then read too, and for the batch that is under way when the planned time is over
PLANNED: Final = 0.93
BATCH: Final = 64  # links queried at a time, at most
_HOUR: Final = 3_600_000_000  # microseconds
_SECONDS: Final = 60


class Turn(NamedTuple):
    """A check at a moment: whom it queries; `recheck`: all that are active, whenever they were."""

    settings: ServiceSettings
    now: datetime
    recheck: bool = False

    @property
    def most_requests(self) -> float:
        """How many requests can be sent in the time that a check may take."""
        return self.settings.look_minutes * _SECONDS * self.settings.requests_per_second

    @property
    def planned_requests(self) -> float:
        """How many requests are planned for."""
        return self.most_requests * PLANNED

    @property
    def planned_seconds(self) -> float:
        """After how many seconds no more links are begun with."""
        return self.settings.look_minutes * _SECONDS * PLANNED

    @property
    def batch(self) -> int:
        """How many links are queried at a time, so that the last batch ends within the time."""
        unplanned = self.most_requests - self.planned_requests
        return min(BATCH, max(1, int(unplanned / MOST_REQUESTS)))


def due_links(run: StoredRun, links: pl.DataFrame, turn: Turn) -> pl.DataFrame:
    """Return the links that are due, the most urgent first, with `urgency` and `requests`.

    `links`: the columns of Placements, and `expires_on`. A link is due until its card is placed,
    while it is active or a job runs. `requests`: how many it takes to query a link, about.
    """
    since = datetime.combine(run.committed().as_of, datetime.min.time(), UTC)
    running = pl.col("running").fill_null(value=False)
    expires = pl.col("expires_on")
    active = expires.is_null() | (expires >= turn.now.date()) | running
    # what comes due while the check may take is due
    waited = _hours(pl.lit(turn.now) - pl.col("seen")) + turn.settings.look_minutes / 60
    ratio = waited / _pause(turn, since, running)
    unanswered = _is_unanswered(turn.settings)
    due = pl.col("seen").is_null() | (ratio >= 1) | unanswered | turn.recheck
    urgency = (
        pl.when(running)
        .then(RUNNING)
        .when(pl.col("seen").is_null() & pl.col("trouble").is_null())
        .then(NEVER_QUERIED)
        .otherwise(pl.max_horizontal(ratio.fill_null(1.0), pl.when(unanswered).then(1.0)))
    )
    # of equally urgent links some are a little more so, always the same
    order = pl.concat_str(pl.lit(run.id), "row").hash() / 2.0**64
    rows = links.filter(~pl.col("settled") & active & due)
    return rows.with_columns(urgency=urgency * (1 + order / 1e6), requests=_requests(turn)).sort(
        "urgency", descending=True
    )


def least_urgency(runs: Sequence[StoredRun], turn: Turn) -> float:
    """Return the urgency of the last link that a check has the time for, 0 where it has for all."""
    if turn.recheck or sum(map(_linked, runs)) * MOST_REQUESTS <= turn.planned_requests:
        return 0.0
    due = chain.from_iterable(_due_of_run(run, turn) for run in runs)
    ordered = pl.concat(due).sort("urgency", descending=True)
    most = max(REQUESTS, turn.planned_requests)
    within = ordered.filter(pl.col("requests").cum_sum() <= most)
    return 0.0 if within.height == ordered.height else float(within["urgency"][-1])


def _due_of_run(run: StoredRun, turn: Turn) -> Iterator[pl.DataFrame]:
    for part in run.committed().ledger:
        due = due_links(run, followed_rows(run, part), turn)
        yield due.select("urgency", "requests")


def followed_rows(run: StoredRun, part: LedgerPart) -> pl.DataFrame:
    """Return the linked rows of a part: what is known of each, with `url` and `expires_on`."""
    links = linked_rows(run, part)
    known = read_placements(run, part)
    nothing = {"settled": False, "reads": 0, "missed": 0}
    joined = links.join(known.drop("cuid", "last_4"), on="row", how="left")
    filled = joined.with_columns(
        *(pl.col(name).fill_null(value) for name, value in nothing.items()),
        pl.col("jobs").fill_null([]),
    )
    stored = [pl.col(name).cast(kind) for name, kind in dtypes().items()]
    return filled.select(*stored, "url", "expires_on")


def _requests(turn: Turn) -> pl.Expr:
    """Return how many requests a link takes: its record where it is not known to be opened, its
    cardholder's messages where these are to be read, and its jobs that run or were never read.
    """
    reads_record = pl.col("cardholder_id").is_null() | ~pl.col("opened").fill_null(value=False)
    reads_messages = ~has_no_messages(turn.now) & turn.settings.follow_cardholders
    job = pl.element().struct
    was_read = job.field("recorded").fill_null(value=False)
    is_due = job.field("termination_type").is_null() | ~was_read
    reads_jobs = pl.col("jobs").list.eval(is_due).list.sum()
    return pl.sum_horizontal(reads_record, reads_messages, reads_jobs)


def has_no_messages(now: datetime) -> pl.Expr:
    """Return which links are not opened, so that no job can have written messages.

    They are read from time to time all the same: a record may not know of every opening.
    """
    is_recent = pl.lit(now) - pl.col("messages_seen") < READ_ANYWAY_AFTER
    return (~pl.col("opened") & is_recent).fill_null(value=False)


def _linked(run: StoredRun) -> int:
    """Return how many links a run has at most."""
    summary = run.summary
    linked = summary["rows"]["linked"] if summary else 0
    return int(linked) + run.single_links.height


def _pause(turn: Turn, since: datetime, running: pl.Expr) -> pl.Expr:
    """Return the hours after which a link is queried again.

    They grow with the time in which nothing happened, counted from the date of its run.
    """
    least = turn.settings.look_again_hours
    most = max(least, LONGEST_PAUSE)
    quiet = _hours(pl.lit(turn.now) - pl.col("moved").fill_null(since))
    return pl.when(running).then(least).otherwise((quiet / QUIET_SHARE).clip(least, most))


def _hours(duration: pl.Expr) -> pl.Expr:
    return duration.dt.total_microseconds() / _HOUR


def _is_unanswered(settings: ServiceSettings) -> pl.Expr:
    """Return which rows are due at once: the last check left something that can be asked."""
    silent_record = pl.col("trouble") == NO_OPENING
    knows_jobs = pl.col("running").is_not_null()
    # a record that does not say will not say it later: its jobs do
    refused = pl.col("trouble").is_not_null() & ~(silent_record & knows_jobs)
    never_asked = ~knows_jobs & (pl.col("missed") == 0) & settings.follow_cardholders
    return refused | pl.col("jobs_trouble").is_not_null() | never_asked
