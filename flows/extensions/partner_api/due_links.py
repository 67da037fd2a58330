"""Which links a check queries: those that are due, the most urgent first, in the requests it may
send.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Final, NamedTuple

import polars as pl

from flows.extensions.partner_api.link_placements import dtypes
from flows.extensions.partner_api.link_queries import READ_ANYWAY_AFTER
from flows.extensions.partner_api.placements import (
    read_placements,
)
from flows.extensions.partner_api.run_links import linked_rows
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.unknowns import NO_OPENING
from flows.runs.stored_run import StoredRun
from schemas.manifest import LedgerPart

LONGEST_PAUSE = 72.0  # hours after which a link is queried again, where nothing happens at it
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
