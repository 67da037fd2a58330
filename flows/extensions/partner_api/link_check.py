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
from datetime import datetime
from typing import Any, NamedTuple

import polars as pl

from flows.errors import TryAgainError
from flows.extensions.partner_api.due_links import Turn, due_links, followed_rows
from flows.extensions.partner_api.job_records import Placement, read_anew, reading_of
from flows.extensions.partner_api.link_placements import Placements, dtypes
from flows.extensions.partner_api.link_queries import (
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
    read_with,
)
from flows.extensions.partner_api.run_links import LinkIds
from flows.extensions.partner_api.service import AnswerLostError, Placing, UnauthorisedError
from flows.extensions.partner_api.settings import ServiceSettings
from flows.runs.claim import Subject, claimed
from flows.runs.context import IssuerContext
from flows.runs.frames import write_parquet
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from schemas.manifest import LedgerPart

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
