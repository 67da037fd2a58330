"""How far links came: what the service and transaction reports say of them, in the database.

Both are brought up to date as the book is (`flows/book/upkeep.py`). Of placements only the runs
that were checked since are read again: each check marks its run before it begins and when it has
ended (`placements.py`). Of a check that has not ended the next reader reads again.

A transaction report names a cardholder, not a card: it says nothing of one who has several cards
with links, nor of an issue that is newer than what it reports.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import polars as pl
from sqlalchemy import Connection, select
from sqlalchemy import update as update_rows

from flows.book.news import read_mark
from flows.book.stages import STAGES
from flows.book.stored_book import delete_rows, insert_rows, of_turn, read_attempts, replace_row
from flows.book.upkeep import BookOfRuns, tables
from flows.database.bulk import read_frame
from flows.extensions.partner_api.link_placements import BILLABLE
from flows.extensions.partner_api.placements import (
    check_marks,
    is_checked,
    read_placements,
)
from flows.extensions.partner_api.tables import PLACEMENT, READ_CHECK
from flows.extensions.partner_api.transactions import reported
from flows.extensions.partner_api.unknowns import REPORTS, SERVICE
from flows.runs.cards import ISSUE
from flows.runs.single_links import ARRIVED
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas.database import READ_RUN, WATERMARK

FOLLOWED = pl.Schema(  # what the service says of a link; null: it does not say
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        "holder": pl.String(),
        "last_4": pl.String(),
        "twin": pl.UInt8(),
        "expiration": pl.String(),
        "reissue_check": pl.UInt32(),
        "opened": pl.Boolean(),
        "opened_at": ARRIVED,  # when the first check that found it opened was made
        "placed": pl.Boolean(),
        "placed_at": ARRIVED,  # when the check that found it placed was made
        "authenticated": pl.Boolean(),
        "under_way": pl.Boolean(),
        "failed": pl.String(),  # the kind of its end; null: it has not failed, or that is not known
        "moved_at": ARRIVED,  # when the last check that found something new was made
    }
)
REPORTED = pl.Schema(  # what transaction reports say of a cardholder
    {
        "cuid": pl.String(),
        "reported_opened": pl.Boolean(),
        "reported_placed": pl.Boolean(),
        "completed_on": pl.Date(),
        "reported_authenticated": pl.Boolean(),
        "reported_under_way": pl.Boolean(),
        "reported_failed": pl.String(),
    }
)
_OF_LINK = (*STAGES, "under_way", "failed")
_PLACED = [
    *("row", "opened", "opened_seen", "authenticated"),
    *("running", "termination_type", "settled", "seen", "moved"),
]


def followed_links(placements: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """Return what the service says of the links of a run (FOLLOWED).

    `placements`: row, opened, opened_seen, authenticated, running, termination_type, settled, seen,
    moved. `attempts`: those of the run, which say whose each link is.
    """
    rows = attempts.select("run", "row", *ISSUE).unique("row", keep="last")
    known = placements.join(rows, on="row").with_columns(
        placed=_placed(),
        under_way="running",
        failed=_failed(),
        opened_at="opened_seen",
        moved_at="moved",
        # a link is not queried any more once it is settled
        placed_at=pl.when(_is_billable() & pl.col("settled")).then("seen"),
    )
    says = pl.col("opened").is_not_null() | pl.col("placed").is_not_null()
    return known.filter(says).select(*FOLLOWED).cast(FOLLOWED)


def reported_ends(reported: pl.DataFrame) -> pl.DataFrame:
    """Return what transaction reports say of cardholders (REPORTED).

    A status that nobody can read says neither that a card is placed nor that it is not.
    """
    ends = reported.with_columns(
        reported_opened="opened",
        reported_authenticated="authenticated",
        reported_under_way="running",
        reported_failed=_failed(),
        reported_placed=_placed(),
    )
    return ends.select(*REPORTED).cast(REPORTED)


def _is_billable() -> pl.Expr:
    return pl.col("termination_type").eq_missing(BILLABLE)


def _placed() -> pl.Expr:
    """Return whether a card is placed; null where nothing is known of its jobs."""
    return pl.when(_is_billable()).then(True).when(pl.col("running").is_not_null()).then(False)


def _failed() -> pl.Expr:
    """Return the kind of an end without a placed card, null where there is none."""
    has_ended = pl.col("running").eq_missing(pl.lit(value=False))
    return pl.when(has_ended & ~_is_billable()).then("termination_type")


def known_of_cards(
    cards: pl.DataFrame, followed: pl.DataFrame, reported: pl.DataFrame
) -> pl.DataFrame:
    """Return what is known of each card (`flows.book.stages.KNOWN`).

    `followed` and `reported`: what the service says of links (FOLLOWED), and transaction reports of
    cardholders (REPORTED).
    """
    rows = _with_sources(cards, followed, reported)
    has_link = pl.col("until").is_not_null()
    by_report = {name: pl.when("counts").then(f"reported_{name}") for name in _OF_LINK}
    placed = pl.when(has_link).then(_either("issue_placed", by_report["placed"]))
    placed_by_service = pl.coalesce("issue_placed", "link_placed")
    signed_in = pl.when("issue_placed").then(True)
    return rows.select(
        *("opened_at", "moved_at"),
        opened_by=_by(["link_opened", placed_by_service], ["reported_opened", "reported_placed"]),
        authenticated_by=_by(["link_authenticated", signed_in], ["reported_authenticated"]),
        placed_by=_by([placed_by_service], ["reported_placed"]),
        opened=_either("link_opened", by_report["opened"], placed),
        authenticated=_either("link_authenticated", by_report["authenticated"], signed_in),
        failed=pl.when(~_is_set(placed) & ~_is_under_way()).then(
            pl.coalesce("link_failed", by_report["failed"])
        ),
        placed=_either(placed, "link_placed"),
        placed_at=pl.when(placed).then(
            pl.coalesce("issue_placed_at", pl.col("completed_on").cast(ARRIVED))
        ),
    )


def _with_sources(
    cards: pl.DataFrame, followed: pl.DataFrame, reported: pl.DataFrame
) -> pl.DataFrame:
    """Return of each card what its link, any link of its issue, and a transaction report say."""
    of_link = followed.unique(["run", "row"], keep="last").select(
        *("run", "row", "opened_at", "moved_at"),
        *(pl.col(name).alias(f"link_{name}") for name in _OF_LINK),
    )
    of_issue = (
        followed.filter("placed")
        .group_by(ISSUE)
        .agg(issue_placed=pl.lit(value=True), issue_placed_at=pl.col("placed_at").min())
    )
    rows = cards.select("run", "row", *ISSUE, "cuid", "until", "first", "current")
    for known, key in (
        (of_link, ["run", "row"]),
        (of_issue, list(ISSUE)),
        (reported, ["cuid"]),
    ):
        rows = _with_known(rows, known, key)
    return rows.with_columns(_is_reported(rows, reported))


def _with_known(rows: pl.DataFrame, known: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Return rows with the columns of what is known of their keys, each of which it has once."""
    if known.is_empty():  # literals take no memory
        return rows.with_columns(
            pl.lit(None, known.schema[name]).alias(name) for name in known.drop(key).columns
        )
    keys = rows.select(key)  # a join of all columns would be another copy of each
    joined = keys.join(known, on=key, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(joined.drop(key).get_columns())


def _is_under_way() -> pl.Expr:
    """Return whether a job runs; an end that the service knows is later than what a report says."""
    is_reported = _is_set("reported_under_way") & pl.col("counts")
    return _is_set("link_under_way") | (is_reported & pl.col("link_failed").is_null())


def _is_set(flag: pl.Expr | str) -> pl.Expr:
    """Return whether a flag is true, false where it is not known."""
    return (pl.col(flag) if isinstance(flag, str) else flag).fill_null(value=False)


def _is_reported(rows: pl.DataFrame, reported: pl.DataFrame) -> pl.Series:
    """Return whether what a transaction report says of a cardholder is about this card (`counts`).

    Of cardholders whom no report names it is not; theirs, which are most, are not looked at.
    """
    holders = rows["holder"].filter(rows["cuid"].is_in(reported["cuid"].implode()))
    is_asked = rows["holder"].is_in(holders.implode(), nulls_equal=True).fill_null(value=False)
    has_link = pl.col("until").is_not_null() & pl.col("current")
    is_only_card = has_link.sum().over("holder") == 1
    is_of_issue = pl.col("completed_on").is_null() | (pl.col("completed_on") >= pl.col("first"))
    counts = rows.filter(is_asked).select(has_link & is_only_card & is_of_issue).to_series()
    return is_asked.scatter(is_asked.arg_true(), counts).alias("counts")


def _by(of_service: list[pl.Expr | str], of_reports: list[str]) -> pl.Expr:
    """Return who says anything: the service, else transaction reports where they count; null."""
    service = pl.coalesce(of_service).is_not_null()
    reports = pl.coalesce(of_reports).is_not_null() & pl.col("counts")
    return pl.when(service).then(pl.lit(SERVICE)).when(reports).then(pl.lit(REPORTS))


def _either(*sources: pl.Expr | str) -> pl.Expr:
    """Return whether a source says so; where none does, whether one says that it is not so."""
    says = [pl.col(source) if isinstance(source, str) else source for source in sources]
    is_said = pl.any_horizontal(source.fill_null(value=False) for source in says)
    return pl.when(is_said).then(True).otherwise(pl.coalesce(says))


class _Update(NamedTuple):
    """What is to be written: `version` is that of the watermark it was worked out from.

    `checked`: the mark of the last check of each run whose `followed` links were read; "" where it
    has not ended. `gone`: runs that have no attempts any more.
    """

    version: int
    checked: Mapping[str, str]
    gone: Collection[str]
    followed: pl.DataFrame


class StagesOfLinks:
    """What is known of an issuer's links beyond that they came; a Projection (`upkeep.py`)."""

    def __init__(self, runs: StoredRuns) -> None:
        self._runs = runs
        self._store = runs.store
        self._issuer = runs.issuer

    def work_out(self, connection: Connection) -> _Update | None:
        """Return what is to be written, None where nothing came since."""
        version = read_mark(connection, self._issuer).version
        known = select(READ_CHECK.c.run, READ_CHECK.c.mark).where(
            READ_CHECK.c.issuer == self._issuer
        )
        read = dict(connection.execute(known).tuples().all())
        turns = self._turns(connection)
        checked, followed = self._followed(self._runs.within(connection), connection, turns, read)
        gone = read.keys() - turns.keys()
        if not (checked or gone):
            return None
        return _Update(version, checked, gone, followed)

    def write(self, connection: Connection, update: _Update) -> bool:
        """Write it; False where somebody else has written since it was worked out."""
        if read_mark(connection, self._issuer).version != update.version:
            return False
        for run in [*update.checked, *update.gone]:
            delete_rows(connection, PLACEMENT, self._issuer, run=run)
        for run in update.gone:
            delete_rows(connection, READ_CHECK, self._issuer, run=run)
        insert_rows(connection, PLACEMENT, self._issuer, update.followed)
        for run, mark in update.checked.items():
            replace_row(connection, READ_CHECK, {"issuer": self._issuer, "run": run, "mark": mark})
        version = update_rows(WATERMARK).where(WATERMARK.c.issuer == self._issuer)
        connection.execute(version.values(version=update.version + 1))
        return True

    def _turns(self, connection: Connection) -> dict[str, int]:
        """Return the turns of the runs whose attempts count."""
        query = select(READ_RUN.c.run, READ_RUN.c.turn).where(
            READ_RUN.c.issuer == self._issuer, READ_RUN.c.turn.is_not(None)
        )
        return dict(connection.execute(query).tuples().all())

    def _followed(
        self,
        runs: StoredRuns,
        connection: Connection,
        turns: Mapping[str, int],
        read: Mapping[str, str],
    ) -> tuple[dict[str, str], pl.DataFrame]:
        """Return the runs whose links were checked since, and what the service says of them."""
        marks = check_marks(self._store, self._issuer)
        changed = sorted(run for run in turns if marks.get(run) not in (None, read.get(run)))
        attempts = [self._attempts(connection, turns[run]) for run in changed]
        frames = concurrently(
            lambda pair: self._links(runs, *pair), list(zip(changed, attempts, strict=True))
        )
        checked = {
            run: marks[run] if is_checked(self._store, self._issuer, run) else "" for run in changed
        }
        return checked, pl.concat([pl.DataFrame(schema=FOLLOWED), *frames])

    def _attempts(self, connection: Connection, turn: int) -> pl.DataFrame:
        return read_attempts(connection, self._issuer, ("run", "row", *ISSUE), of_turn(turn))

    def _links(self, runs: StoredRuns, run_id: str, attempts: pl.DataFrame) -> pl.DataFrame:
        run = StoredRun.by_id(runs.adapters, run_id)
        known = [read_placements(run, part, _PLACED) for part in run.committed().ledger]
        return followed_links(pl.concat(known), attempts)


def stages(runs: StoredRuns) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return what says of cards how far their links came."""
    projections = BookOfRuns(runs), StagesOfLinks(runs)
    with tables(runs.adapters, runs.issuer, *projections) as connection:
        columns = [PLACEMENT.c[name] for name in FOLLOWED]
        query = select(*columns).where(PLACEMENT.c.issuer == runs.issuer)
        followed = read_frame(connection, query.order_by(*PLACEMENT.primary_key), FOLLOWED)
    reports = reported_ends(reported(runs.adapters, runs.issuer, pl.lit(value=True)))
    return lambda cards: known_of_cards(cards, followed, reports)
