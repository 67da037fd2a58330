"""What the partner's transaction reports say of each cardholder, over all reports."""

from collections.abc import Iterable

import polars as pl
from sqlalchemy import select

from flows.database.bulk import read_frame
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
from flows.extensions.partner_api.tables import REPORTED_ROW, TRANSACTION_REPORT
from flows.runs.adapters import Adapters

POSITION = "position"
REPORTED = pl.Schema(
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
        **{name: kind for name, kind in REPORTED.items() if name != "opened"},
    }
)


def reported(adapters: Adapters, issuer: str, share: pl.Expr) -> pl.DataFrame:
    """Return what all reports say (REPORTED), one row per cuid.

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
    """Return one row (REPORTED) per cuid over any reports in any order.

    It is placed, else its latest end, else running. A transaction has no number of its own, so a
    row that ended stands over one that runs: it may be the same.
    """
    rows = pl.concat(
        [pl.DataFrame(schema=REPORTED), *(frame.select(*REPORTED) for frame in frames)]
    )
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
    return joined.select(*REPORTED).sort("cuid")


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
