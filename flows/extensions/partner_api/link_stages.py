"""How far links came: what the service and transaction reports say of cards.

A transaction report names a cardholder, not a card: it says nothing of one who has several cards
with links, nor of an issue that is newer than what it reports.
"""

from collections.abc import Callable, Iterable

import polars as pl
from sqlalchemy import and_, case, or_, select

from flows.book.stages import STAGES
from flows.book.upkeep import BookOfRuns, tables
from flows.database.bulk import read_frame
from flows.extensions.partner_api.causes import REPORTS, SERVICE
from flows.extensions.partner_api.service_objects import (
    AUTHENTICATED,
    AUTHENTICATING,
    BILLABLE,
    ENDS,
    ENDS_WITH_DAY,
    PENDING,
    PLACED,
    UPDATING,
)
from flows.extensions.partner_api.tables import PLACEMENT, REPORTED_ROW, TRANSACTION_REPORT
from flows.runs.adapters import Adapters
from flows.runs.cards import ISSUE
from flows.runs.single_links import ARRIVED
from flows.runs.stored_runs import StoredRuns
from schemas.database import ATTEMPT

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


def stages(runs: StoredRuns) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return what says of cards how far their links came."""
    reports = reported_ends(reported(runs.adapters, runs.issuer, pl.lit(value=True)))
    followed = followed_links(runs)
    return lambda cards: known_of_cards(cards, followed, reports)


def followed_links(runs: StoredRuns) -> pl.DataFrame:
    """Return what the service says of an issuer's links (FOLLOWED), as their attempts name them."""
    link = PLACEMENT.c
    attempt = ATTEMPT.c
    has_failed = ~link.running & link.placed_at.is_(None)
    columns = {
        **{name: attempt[name] for name in ("run", "row", *ISSUE)},
        **{name: link[name] for name in ("opened", "opened_at", "authenticated")},
        "placed": case((link.running.is_not(None), link.placed_at.is_not(None))),
        "placed_at": link.placed_at,
        "under_way": link.running,
        "failed": case((has_failed, link.termination_type)),
        "moved_at": link.moved_at,
    }
    is_of_row = and_(*(link[name] == attempt[name] for name in ("issuer", "run", "row")))
    query = (
        select(*(columns[name] for name in FOLLOWED))
        .join_from(ATTEMPT, PLACEMENT, is_of_row)
        .where(
            attempt.issuer == runs.issuer, or_(link.opened.is_not(None), link.running.is_not(None))
        )
        .order_by(attempt.turn, attempt.place)
    )
    with tables(runs.adapters, runs.issuer, BookOfRuns(runs)) as connection:
        return read_frame(connection, query, FOLLOWED)


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


# What transaction reports say of each cardholder, over all reports
# --------------------------------------------------------------------------------------------------

POSITION = "position"
REPORT = pl.Schema(
    {
        "cuid": pl.String(),
        "status": pl.String(),
        "completed_on": pl.Date(),
        "opened": pl.Boolean(),
        "authenticated": pl.Boolean(),
        "running": pl.Boolean(),
        "termination_type": pl.String(),
        "merchant_site": pl.String(),
    }
)


REPORTED_ROWS = pl.Schema(
    {
        "file": pl.String(),
        POSITION: pl.UInt32(),
        **{name: kind for name, kind in REPORT.items() if name != "opened"},
    }
)


def reported(adapters: Adapters, issuer: str, share: pl.Expr) -> pl.DataFrame:
    """Return what all reports say (REPORT), one row per cuid.

    `share` selects the cuids.
    """
    rows = reported_rows(adapters, issuer).filter(share).drop_nulls("cuid")
    return settled([rows.with_columns(opened=pl.lit(value=True))])


def has_reports(adapters: Adapters, issuer: str) -> bool:
    """Return whether a report was read."""
    query = select(TRANSACTION_REPORT.c.file).where(TRANSACTION_REPORT.c.issuer == issuer).limit(1)
    with adapters.database.snapshot() as connection:
        return connection.execute(query).first() is not None


def reported_rows(adapters: Adapters, issuer: str) -> pl.DataFrame:
    """Return the rows of all reports (REPORTED_ROWS), in order."""
    columns = [REPORTED_ROW.c[name] for name in REPORTED_ROWS]
    query = select(*columns).where(REPORTED_ROW.c.issuer == issuer)
    with adapters.database.snapshot() as connection:
        return read_frame(connection, query.order_by(*REPORTED_ROW.primary_key), REPORTED_ROWS)


def settled(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return one row (REPORT) per cuid over any reports in any order.

    It is placed, else its latest end, else running. A transaction has no number of its own, so a
    row that ended stands over one that runs: it may be the same.
    """
    rows = pl.concat([pl.DataFrame(schema=REPORT), *(frame.select(*REPORT) for frame in frames)])
    ordered = rows.sort(
        pl.col("termination_type") == BILLABLE,
        ~pl.col("running"),
        "authenticated",
        "completed_on",
        "status",
        descending=True,
        nulls_last=True,
    )
    decisive = ordered.unique("cuid", keep="first", maintain_order=True)
    ever = rows.group_by("cuid").agg(pl.col("authenticated").any().alias("ever"))
    authenticated = pl.when("ever").then(pl.lit(value=True)).otherwise("authenticated")
    joined = decisive.join(ever, on="cuid").with_columns(authenticated.alias("authenticated"))
    return joined.select(*REPORT).sort("cuid")


def from_status() -> list[pl.Expr]:
    """Return what a status, with the day of its end, means; null where it does not say.

    A word that nobody knows says nothing: neither that a card is placed nor that it is not.
    """
    status = pl.col("status")
    not_yet = status.is_in(AUTHENTICATING) | status.str.starts_with(PENDING)
    placed = status.is_in(PLACED)
    with_day = pl.col("completed_on").is_not_null() & status.is_in(ENDS_WITH_DAY)
    has_failed = status.is_in(ENDS) | with_day
    is_running = (not_yet | (status == UPDATING)) & pl.col("completed_on").is_null()
    authenticated = (
        pl.when(placed | status.is_in(AUTHENTICATED))
        .then(pl.lit(value=True))
        .when(not_yet)
        .then(pl.lit(value=False))
    )
    running = (
        pl.when(placed | has_failed)
        .then(pl.lit(value=False))
        .when(is_running)
        .then(pl.lit(value=True))
    )
    end = pl.when(placed).then(pl.lit(BILLABLE)).when(has_failed).then(status)
    return [
        authenticated.alias("authenticated"),
        running.alias("running"),
        end.alias("termination_type"),
    ]
