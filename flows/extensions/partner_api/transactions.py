"""What the partner's transaction reports say of each cardholder, over all that were kept."""

from collections.abc import Iterable
from io import BytesIO

import polars as pl

from flows.extensions.partner_api.jobs import PENDING, UPDATING
from flows.extensions.partner_api.link_placements import (
    AUTHENTICATED,
    AUTHENTICATING,
    BILLABLE,
    ENDS,
    ENDS_WITH_DAY,
    PLACED,
)
from flows.extensions.partner_api.placements import placements
from flows.runs.store import Store, read

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


def kept_reports(store: Store, issuer: str) -> list[str]:
    """Return the keys of the transaction reports that were kept."""
    return [entry.key for entry in store.keys(f"{placements(issuer)}reports/")]


def kept_frame(store: Store, key: str, columns: list[str]) -> pl.DataFrame:
    """Return columns of a transaction report that was kept."""
    return pl.read_parquet(BytesIO(read(store, key)), columns=columns)


def reported(store: Store, issuer: str, share: pl.Expr) -> pl.DataFrame:
    """Return what all kept reports say (REPORTED), one row per cuid.

    `share` selects the cuids.
    """
    frames = (kept_frame(store, key, list(REPORTED)) for key in kept_reports(store, issuer))
    return settled(frame.filter(share).drop_nulls("cuid") for frame in frames)


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
