"""The placements of a run's links: one record per linked row, `placements/part-00001.parquet`.

No address of a link, no token, no card data, and none of the texts the service shows to a
cardholder.
"""

from __future__ import annotations

from typing import Final

import pandera.polars as pa
import polars as pl

from schemas.tables import Table

BILLABLE: Final = "BILLABLE"  # the success exit (interface.md 7)
# statuses of a transaction report that mean: card placed
PLACED: Final = frozenset({BILLABLE, "SUCCESSFUL"})
# interface.md 2.1; an open set
FAILURES: Final = ("USER_DATA_FAILURE", "SITE_INTERACTION_FAILURE", "PROCESS_FAILURE")
# statuses reached after authentication with the site only
AUTHENTICATED: Final = frozenset({"UPDATING", *PLACED})
# statuses before it: the service still authenticates, waits for input, or gave up at that
AUTHENTICATING: Final = frozenset({"AUTH", "TIMEOUT_TFA", "NEVER_STARTED"})
# anything that is no code: the partner's statuses are open sets, and we do not store its texts
OTHER: Final = "OTHER"
CODE: Final = r"^[A-Z][A-Z0-9_]{0,39}$"

# ends a report may name without a day; the last is seen in the wild
ENDS: Final = frozenset({*FAILURES, "NEVER_STARTED"})
# ends a report names with its day: statuses of interface.md 2.3
ENDS_WITH_DAY: Final = frozenset({"DUPLICATE_CARD", "TIMEOUT_TFA"})

# How far a cardholder came, least first; each stage holds all those after it.
STAGES: Final = ("cardholders", "sent", "linked", "opened", "authenticated", "placed")

JOB: Final = pl.Struct(
    {
        "job_id": pl.String,
        "status": pl.String,
        "termination_type": pl.String,  # null while it runs
        "authenticated": pl.Boolean,  # with the merchant site; null if nothing says so
        "percent": pl.UInt8,  # null if the service does not say
        "merchant_site": pl.String,  # null if the service does not say
        "recorded": pl.Boolean,  # its record was read: messages alone do not name the site
    }
)


class Placements(Table):
    """One record per linked row of a ledger part, what the service last reported of it."""

    row: pl.UInt32 = pa.Field(ge=1, unique=True)
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True, str_matches=r"^[0-9]{4}$")
    # the service's id; null until the link record has it
    cardholder_id: pl.String = pa.Field(nullable=True)
    # Its link record says so, or a job of the cardholder runs or ran. Null in this and the next
    # columns: not known.
    opened: pl.Boolean = pa.Field(nullable=True)
    # the first check that learned it: the service does not say when; null also in older tables
    opened_seen: pl.Datetime("us", "UTC") = pa.Field(nullable=True)  # type: ignore[valid-type]  # mypy wants a class, pandera a dtype
    # with a merchant site, in one job at least
    authenticated: pl.Boolean = pa.Field(nullable=True)
    # all that are known
    jobs: pl.List(JOB)  # type: ignore[valid-type]  # mypy wants a class, pandera a dtype
    job_id: pl.String = pa.Field(nullable=True)  # the best of them, and its state
    status: pl.String = pa.Field(nullable=True, str_matches=CODE)
    termination_type: pl.String = pa.Field(nullable=True, str_matches=CODE)
    merchant_site: pl.String = pa.Field(nullable=True)
    # a job has not ended, and none has placed the card; null: nothing is known of jobs
    running: pl.Boolean = pa.Field(nullable=True)
    # the card is placed and every job's record was read: this row is not queried any more
    settled: pl.Boolean
    reads: pl.UInt32  # objects below placements/messages/ that are counted in
    # answers with messages that were lost or could not be read; each message is given once
    missed: pl.UInt32
    # why the last check did not learn whether the link was opened, such as link.record.missing
    trouble: pl.String = pa.Field(nullable=True)
    # the same for its cardholder's jobs
    jobs_trouble: pl.String = pa.Field(nullable=True)
    # the last check that learned something
    seen: pl.Datetime("us", "UTC") = pa.Field(nullable=True)  # type: ignore[valid-type]  # as above
    # the last check at which something had happened: opened, or a job; null also in older tables
    moved: pl.Datetime("us", "UTC") = pa.Field(nullable=True)  # type: ignore[valid-type]  # as above
    # the last check that read its cardholder's messages; null also in older tables
    messages_seen: pl.Datetime("us", "UTC") = pa.Field(nullable=True)  # type: ignore[valid-type]  # as above


def dtypes() -> dict[str, pl.DataType]:
    """Return the columns and polars types, in order."""
    return {name: column.dtype.type for name, column in Placements.to_schema().columns.items()}
