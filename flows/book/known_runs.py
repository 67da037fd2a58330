"""The runs of an issuer, as the database has them: of which extract each is, and its figures.

A run is **closed** once it is committed and reported, nothing
of it is awaited, no break is open, and the journal has not named it since: then its figures
are kept, as its report or the record of its purge has them, and of a small run whose rows it has.
Once the journal names it again, or retention removes its ledger, it is read again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import polars as pl
from pydantic import AwareDatetime, BaseModel, ConfigDict
from sqlalchemy import Connection, select

from flows.errors import CardlinkError
from flows.runs.events import last_answer
from flows.runs.keys import keys_of
from flows.runs.run_records import State
from flows.runs.run_status import RunStatus, purged_state
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas.database import RUN

LARGEST = 2000  # rows read; a larger run has an object of its own to look into: its ledger
LEDGER_ROWS = pl.Schema(
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        "cuid": pl.String(),
        "link": pl.Int64(),  # digest of its URL, null without a link
    }
)
NO_ROWS = pl.DataFrame(schema=LEDGER_ROWS)
End = Literal["committed", "abandoned", ""]


class KnownPlan(NamedTuple):
    """What is known of a run: its source, its day, what became of it."""

    run: str
    number: int
    key: str
    version: str
    size: int
    sha256: str
    as_of: date
    selection: str
    reason: str
    planned_at: datetime
    state: State
    turn: int | None
    committed_at: datetime | None

    @property
    def is_whole(self) -> bool:
        """Whether it is of the whole extract, not of a selection of its rows."""
        return not self.selection

    @property
    def end(self) -> End:
        """How it ended; "" before that."""
        match self.state:
            case "committed" | "abandoned":
                return self.state
        return ""

    @property
    def midnight(self) -> datetime:
        """When its business date began."""
        return datetime.combine(self.as_of, time(), UTC)

    @property
    def since(self) -> datetime:
        """Since when what it says of its rows is known: its commit."""
        return self.committed_at or self.midnight


class ClosedRun(BaseModel):
    """The figures of a committed run about which nothing is open: all its `chunks` are answered.

    `submit`, `partner`: rows by reason; `expires`: links by the day they end, "" where that is not
    known; `hours`: links by hours. Without the last three where its ledger was purged. `since`:
    when its last answer came, None where another run has sent rows of it again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    is_purged: bool = False
    verdict: str
    rows: dict[str, int]
    chunks: int
    submit: dict[str, int]
    partner: list[tuple[str, int]] = []
    expires: dict[str, int] = {}
    hours: dict[str, int] = {}
    since: AwareDatetime | None = None
    has_rows: bool = False  # whose rows it has is kept too (LEDGER_ROWS)

    def status(self, run: str) -> RunStatus:
        """Return the run's state in words, and where its rows are."""
        rows: dict[str, Any] = dict(self.rows)
        state = purged_state(self.verdict) if self.is_purged else self.verdict
        return RunStatus(run, state, **rows)


class KnownRuns(NamedTuple):
    """What is known of an issuer's runs: the plan of each by business date, and the closed ones.

    `runs_with` returns the closed runs that have a row with a cuid, of those whose rows are kept;
    `read_links` the links of these (LEDGER_ROWS).
    """

    plans: Mapping[str, KnownPlan]
    closed: Mapping[str, ClosedRun]
    runs_with: Callable[[str], Collection[str]] = lambda _: ()
    read_links: Callable[[], pl.DataFrame] = lambda: NO_ROWS

    def without(self, cuid: str) -> set[str]:
        """Return the closed runs that are known to have no row with this cuid."""
        known = {run for run, closed in self.closed.items() if closed.has_rows}
        return known.difference(self.runs_with(cuid)) if known else known

    def links(self) -> pl.DataFrame:
        """Return the links of the closed runs whose rows are kept: run, row, digest (`link`)."""
        known = [run for run, closed in self.closed.items() if closed.has_rows]
        return self.read_links().filter(pl.col("run").is_in(known)).select("run", "row", "link")

    def unread_state(self, run: str) -> ClosedRun | None:
        """Return the figures by which retention judges a closed run, None where it is read."""
        closed = self.closed.get(run)
        return closed if closed is not None and closed.since is not None else None

    @property
    def committed(self) -> list[KnownPlan]:
        """The plans of the committed runs, by business date."""
        return [plan for plan in self.plans.values() if plan.end == "committed"]

    def statuses(self, runs: StoredRuns) -> list[RunStatus]:
        """Return the status of every run, newest first."""

        def status(run: StoredRun) -> RunStatus:
            closed = self.closed.get(run.id)
            return run.status if closed is None else closed.status(run.id)

        return concurrently(lambda run: status(runs.run(run)), runs.ids[::-1])


NO_RUNS = KnownRuns({}, {})


# columns that have another name
_SOURCE = {name: f"source_{name}" for name in ("key", "version", "size", "sha256")}


def read_plans(connection: Connection, issuer: str) -> dict[str, KnownPlan]:
    """Return what is known of each run, by run, by business date."""
    columns = [RUN.c[_SOURCE.get(name, name)] for name in KnownPlan._fields]
    rows = connection.execute(select(*columns).where(RUN.c.issuer == issuer))
    plans = sorted((KnownPlan(*row) for row in rows), key=lambda plan: keys_of(plan.run).run.age)
    return {plan.run: plan for plan in plans}


# Closed runs
# --------------------------------------------------------------------------------------------------


def closed_among(runs: StoredRuns, ids: Iterable[str]) -> dict[str, ClosedRun]:
    """Return the figures of those of these committed runs about which nothing is open, by run."""
    listed = list(ids)
    figures = concurrently(lambda run: _figures(StoredRun.by_id(runs.adapters, run)), listed)
    judged = zip(listed, figures, strict=True)
    return {run: closed for run, closed in judged if closed is not None}


def _figures(run: StoredRun) -> ClosedRun | None:
    with suppress(CardlinkError):  # whoever needs the run meets what is unreadable
        return closed_run(run)
    return None


def closed_run(run: StoredRun) -> ClosedRun | None:
    """Return the figures of a committed run, None where something about it is open."""
    summary = run.summary
    if summary is None:
        return _closed_by_purge(run)
    if _is_open(summary) or run.purged_ledger is not None or run.is_report_behind:
        return None
    partner = summary["reasons"].get("partner", ())
    return ClosedRun(
        verdict=summary["verdict"],
        rows=summary["rows"],
        chunks=summary["chunks"]["sent"],
        submit=dict(run.committed().reasons),
        partner=[(reason["code"], reason["rows"]) for reason in partner],
        expires=summary["expires"],
        hours=summary.get("hours", {}).get("spread", {}),
        since=None if run.repeats or not run.committed().chunks else _last_answer(run),
        has_rows=summary["rows"]["read"] <= LARGEST,
    )


def _last_answer(run: StoredRun) -> datetime:
    committed = min(chunk.clock for chunk in run.chunk_states)
    return last_answer(committed, run.history)


def _is_open(summary: Mapping[str, Any]) -> bool:
    """Return whether a report has rows that wait, chunks without an answer, or open breaks."""
    breaks = [known for known in summary.get("breaks", ()) if not known["notice"]]
    chunks = summary["chunks"]
    is_answered = chunks["sent"] == chunks.get("answered") and not summary["rows"]["awaiting"]
    return not is_answered or bool(breaks) or bool(summary.get("more_breaks"))


def _closed_by_purge(run: StoredRun) -> ClosedRun | None:
    record = run.purged_ledger
    if record is None or run.cancelled_chunks:
        return None
    manifest = run.committed()
    return ClosedRun(
        is_purged=True,
        verdict=record.verdict,
        rows=record.rows,
        chunks=len(manifest.chunks),
        submit=dict(manifest.reasons),
    )


def ledger_rows(run: StoredRun) -> pl.DataFrame:
    """Return whose rows a run has, and their links (LEDGER_ROWS)."""
    cuids = pl.concat(run.ledger(["row", "cuid"])).drop_nulls("cuid")
    links = pl.concat(run.rows(["row", "url"], pl.col("url").is_not_null()))
    rows = cuids.join(links, on="row", how="left", maintain_order="left")
    named = rows.with_columns(run=pl.lit(run.id), link=link_digest(pl.col("url")))
    return named.select(*LEDGER_ROWS).cast(LEDGER_ROWS)


def link_digest(url: pl.Expr) -> pl.Expr:
    """Return the digest by which a link is known: 64 bits of its SHA-256."""
    return url.map_batches(_digests, pl.Int64)


def _digests(urls: pl.Series) -> pl.Series:
    digests = (None if url is None else sha256(url.encode()).digest() for url in urls)
    known = [digest and int.from_bytes(digest[:8], "big", signed=True) for digest in digests]
    return pl.Series(urls.name, known, pl.Int64)
