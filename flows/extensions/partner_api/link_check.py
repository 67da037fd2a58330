"""Check the links of an issuer: query the service for each that is due, and store what it reports.

Those that are due are queried newest run first, the most urgent in the requests that a check may
send. A stopped check resumes where it was.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import polars as pl

from flows.errors import TryAgainError
from flows.extensions.partner_api.causes import NO_OPENING
from flows.extensions.partner_api.job_records import Placement
from flows.extensions.partner_api.link_queries import (
    READ_ANYWAY_AFTER,
    LinkAnswer,
    QueryContext,
    Question,
    cause_of,
    query_link,
)
from flows.extensions.partner_api.placements import (
    PLACEMENTS,
    StoredPlacements,
    linked_rows,
    read_placements,
)
from flows.extensions.partner_api.run_links import LinkIds
from flows.extensions.partner_api.service import AnswerLostError, Placing, UnauthorisedError
from flows.extensions.partner_api.settings import REQUESTS_AT_A_TIME, ServiceSettings
from flows.runs.claim import Subject, claimed
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun

MOST_SILENT = 20  # links in a row without a response before the check stops
SHORTEST_PAUSE = timedelta(hours=6)  # until a link that is not placed yet is queried again
LONGEST_PAUSE = timedelta(days=3)  # a link is queried again, where nothing happens at it
QUIET_SHARE: Final = 3  # a link quiet for so many hours is queried an hour later than before
RUNNING: Final = 1e9  # urgencies; that of other links is how often their pause has passed
NEVER_QUERIED: Final = 1e6
REQUESTS: Final = 2  # that a link takes at most, but for its jobs
MOST_REQUESTS: Final = 3  # the same with one job, where more is learned of a link than was foreseen
# of the time of a check; the rest is for links that turn out to be opened, whose messages and jobs
# are then read too, and for the batch that is under way when the planned time is over
PLANNED: Final = 0.93
BATCH: Final = 64  # links queried at a time, at most
_SECONDS: Final = 60


class LinkCheck(NamedTuple):
    """What a check of links did; `stopped` is the cause (a code) that ended it early."""

    links: int  # linked rows
    asked: int  # rows with questions
    unanswered: int  # of them without any answer
    messages: int  # responses that were stored
    waiting: int  # links that are due and are left to the next check
    questions: Counter[Question]
    stopped: str


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
        """How many requests are planned for; no more links are begun with after them."""
        return math.inf if self.recheck else self.most_requests * PLANNED

    @property
    def planned_seconds(self) -> float:
        """After how many seconds no more links are begun with."""
        return math.inf if self.recheck else self.settings.look_minutes * _SECONDS * PLANNED

    @property
    def batch(self) -> int:
        """How many links are queried at a time, so that the last batch ends within the time."""
        unplanned = self.most_requests * (1 - PLANNED)
        return min(BATCH, max(1, int(unplanned / MOST_REQUESTS)))

    def chosen(self, due: pl.DataFrame) -> pl.DataFrame:
        """Return the most urgent links of those that are due, as many as there is time for."""
        most = max(REQUESTS, self.planned_requests)
        ordered = due.sort("urgency", descending=True)
        return ordered.filter(pl.col("requests").cum_sum() <= most)


def check_links(
    context: IssuerContext,
    service: Placing,
    settings: ServiceSettings,
    runs: Sequence[StoredRun],
    *,
    recheck: bool = False,
) -> LinkCheck:
    """Query the service for the links of some runs that are due (`due_links`), store the results.

    With `recheck` every active link is due, and there is no limit. Links whose URLs have one id are
    not queried: it is not theirs. Jobs are reported by cardholder, so of two links of one
    cardholder the one that is checked first gets the job: the newer one is more likely to have led
    to it. Raises ClaimedError if another check is running. A service that stops responding, or
    rejects our credentials, ends the check: what was learned is stored.
    """
    issuer = context.issuer.issuer
    subject = Subject(context.adapters.database, issuer, f"the links of {issuer}")
    turn = Turn(settings, context.adapters.now(), recheck)
    with claimed(context.adapters, subject):
        return _Check(context, service, turn).check(runs)


class _Check:
    """One check of the links of some runs."""

    def __init__(self, context: IssuerContext, service: Placing, turn: Turn) -> None:
        self._turn = turn
        self._stored = StoredPlacements(context.adapters, context.issuer.issuer, turn.settings)
        self._context = QueryContext(service, turn.settings, self._stored, context.adapters.now)
        self._counts = Counter[str]()  # of the numbers of LinkCheck
        self._questions = Counter[Question]()
        self._silent = 0  # links in a row without a response
        self._stopped = ""

    def check(self, runs: Sequence[StoredRun]) -> LinkCheck:
        """Query the links that are due."""
        self._stored.read_anew(self._turn.now)
        newest_first = list(reversed(runs))
        due = pl.concat([_NOTHING_DUE, *map(self._due, newest_first)])
        chosen = self._turn.chosen(due)
        until = time.monotonic() + self._turn.planned_seconds
        with ThreadPoolExecutor(REQUESTS_AT_A_TIME) as threads:
            for ids, batch in self._batches(newest_first, chosen):
                query = partial(self._query, ids)
                answers = threads.map(query, batch.iter_rows(named=True))
                self._note([answer for answer in answers if answer is not None])
                if self._stopped or self._is_over(until):
                    break
        return LinkCheck(
            links=self._counts["links"],
            asked=self._counts["asked"],
            unanswered=self._counts["unanswered"],
            messages=self._counts["messages"],
            waiting=due.height - self._counts["queried"],
            questions=self._questions,
            stopped=self._stopped,
        )

    def _due(self, run: StoredRun) -> pl.DataFrame:
        links = followed_links(run)
        self._counts["links"] += links.height
        return due_links(run, links, self._turn)

    def _batches(
        self, runs: Sequence[StoredRun], due: pl.DataFrame
    ) -> Iterator[tuple[LinkIds, pl.DataFrame]]:
        """Yield the links run by run, so many at a time, with what finds their ids."""
        for run in runs:
            of_run = due.filter(run=run.id)
            if of_run.height:
                ids = LinkIds(self._turn.settings, run)
                yield from ((ids, batch) for batch in of_run.iter_slices(self._turn.batch))

    def _is_over(self, until: float) -> bool:
        """Return whether no more links are to be begun with."""
        is_spent = self._questions.total() >= self._turn.planned_requests
        return is_spent or time.monotonic() >= until

    def _query(self, ids: LinkIds, row: Mapping[str, Any]) -> LinkAnswer | None:
        """Query one link; None once the check is to stop: the link stays as it was."""
        if self._stopped:
            return None
        answer = query_link(self._context, ids, Placement.from_record(row), row["url"])
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

    def _note(self, answers: Sequence[LinkAnswer]) -> None:
        """Store what a batch has learned, and count it."""
        self._stored.write([answer.placement for answer in answers])
        for answer in answers:
            self._questions += answer.questions
            self._counts["queried"] += 1
            self._counts["asked"] += bool(answer.questions)
            self._counts["unanswered"] += bool(answer.questions) and not answer.has_learned
            self._counts["messages"] += answer.messages


# Which links are due
# --------------------------------------------------------------------------------------------------

_DUE = pl.Schema({**PLACEMENTS, "cuid": pl.String(), "url": pl.String(), "expires_on": pl.Date()})
_NOTHING_DUE = pl.DataFrame(schema={**_DUE, "urgency": pl.Float64(), "requests": pl.UInt32()})


def followed_links(run: StoredRun) -> pl.DataFrame:
    """Return the linked rows of a run (PLACEMENTS, cuid, url, expires_on)."""
    known = read_placements(run.adapters, run.issuer, [run.id]).drop("run")
    links = linked_rows(run, "row", "cuid", "url", "expires_on")
    rows = links.join(known, on="row", how="left").with_columns(run=pl.lit(run.id))
    return rows.select(*_DUE).cast(_DUE)


def due_links(run: StoredRun, links: pl.DataFrame, turn: Turn) -> pl.DataFrame:
    """Return the links of a run that are due, with `urgency` and `requests`.

    `links`: as `followed_links` has them. A link is due until its card is placed, while it is
    active or a job runs. `requests`: how many it takes to query a link, about.
    """
    since = datetime.combine(run.committed().as_of, datetime.min.time(), UTC)
    running = pl.col("running").fill_null(value=False)
    expires = pl.col("expires_on")
    active = expires.is_null() | (expires >= turn.now.date()) | running
    is_settled = pl.col("placed_at").is_not_null() & (pl.col("open_jobs") == 0)
    # what comes due while the check may take is due
    waited = pl.lit(turn.now) - pl.col("seen_at") + timedelta(minutes=turn.settings.look_minutes)
    ratio = waited / _pause(turn, since, running)
    unanswered = _is_unanswered(turn.settings)
    due = pl.col("seen_at").is_null() | (ratio >= 1) | unanswered | turn.recheck
    urgency = (
        pl.when(running)
        .then(RUNNING)
        .when(pl.col("seen_at").is_null() & pl.col("trouble").is_null())
        .then(NEVER_QUERIED)
        .otherwise(pl.max_horizontal(ratio.fill_null(1.0), pl.when(unanswered).then(1.0)))
    )
    # of equally urgent links some are a little more so, always the same
    order = pl.concat_str("run", "row").hash() / 2.0**64
    rows = links.filter(~is_settled.fill_null(value=False) & active & due)
    return rows.with_columns(urgency=urgency * (1 + order / 1e6), requests=_requests(turn)).sort(
        "urgency", descending=True
    )


def _requests(turn: Turn) -> pl.Expr:
    """Return how many requests a link takes: its record where it is not known to be opened, its
    cardholder's messages where these are to be read, and its jobs that run or were never read.

    Messages of a link that is not opened, so that no job can have written some, are read from time
    to time all the same: a record may not know of every opening.
    """
    reads_record = pl.col("cardholder_id").is_null() | ~pl.col("opened").fill_null(value=False)
    is_recent = pl.lit(turn.now) - pl.col("messages_at") < READ_ANYWAY_AFTER
    has_no_messages = (~pl.col("opened") & is_recent).fill_null(value=False)
    reads_messages = ~has_no_messages & turn.settings.follow_cardholders
    return pl.sum_horizontal(reads_record, reads_messages, "open_jobs").cast(pl.UInt32)


def _pause(turn: Turn, since: datetime, running: pl.Expr) -> pl.Expr:
    """Return the time after which a link is queried again.

    It grows with the time in which nothing happened, counted from the date of its run.
    """
    quiet = (pl.lit(turn.now) - pl.col("moved_at").fill_null(since)) / QUIET_SHARE
    return (
        pl.when(running).then(SHORTEST_PAUSE).otherwise(quiet.clip(SHORTEST_PAUSE, LONGEST_PAUSE))
    )


def _is_unanswered(settings: ServiceSettings) -> pl.Expr:
    """Return which rows are due at once: the last check left something that can be asked."""
    silent_record = pl.col("trouble") == NO_OPENING
    knows_jobs = pl.col("running").is_not_null()
    # a record that does not say will not say it later: its jobs do
    refused = pl.col("trouble").is_not_null() & ~(silent_record & knows_jobs)
    has_missed = pl.sum_horizontal("lost", "unread") > 0
    never_asked = ~knows_jobs & ~has_missed & settings.follow_cardholders
    return refused | pl.col("jobs_trouble").is_not_null() | never_asked
