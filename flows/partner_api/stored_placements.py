"""What is stored of a run's links: the linked rows, and the placements that were read for them.

Messages are stored, create-only, before they are interpreted, because the partner gives each one
once. Everything else can be derived from them again, in any order.
"""

from __future__ import annotations

from io import BytesIO

import polars as pl

from flows.partner_api.row_stages import ENDS
from flows.runs.frames import shaped
from flows.runs.single_links import LINK
from flows.runs.store import ObjectMissingError, read
from flows.runs.stored_run import StoredRun
from schemas.ledger import LINKED
from schemas.manifest import LedgerPart
from schemas.partner_api.link_placements import dtypes
from schemas.partner_api.unknowns import (
    LOST_MESSAGES,
    NEVER_ASKED,
    NO_AUTHENTICATION,
    NO_CARDHOLDER,
)


def placements_key(run: StoredRun, part: LedgerPart) -> str:
    """Return the placements key of one ledger part."""
    return run.keys.placements + part.name


def read_placements(
    run: StoredRun, part: LedgerPart, columns: list[str] | None = None
) -> pl.DataFrame:
    """Return the placements of one ledger part; none before the first check.

    They have the columns of `schemas.partner_api.link_placements.Placements`, or `columns` of them.
    Those of an earlier version are read as `from_earlier` says.
    """
    try:
        content = BytesIO(read(run.store, placements_key(run, part)))
    except ObjectMissingError:
        return pl.DataFrame(schema=dtypes()).select(columns or list(dtypes()))
    if "missed" in pl.read_parquet_schema(content):
        return pl.read_parquet(content, columns=columns or list(dtypes()))
    return from_earlier(pl.read_parquet(content)).select(columns or pl.all())


def from_earlier(placements: pl.DataFrame) -> pl.DataFrame:
    """Return the placements of a version that stored false where it knew nothing.

    What it saw stands. That a link was not opened is known where its record was read, and of jobs
    only those that are there: it did not store whether it had asked for others.
    """
    has_jobs = pl.col("jobs").list.len() > 0
    was_read = pl.col("seen").is_not_null() & _is_without_trouble()
    unread = pl.when(pl.col("trouble") != NO_CARDHOLDER).then("trouble")
    return shaped(
        placements.with_columns(
            pl.when(pl.col("opened") | was_read).then("opened"),
            pl.when(has_jobs).then("authenticated"),
            pl.when(has_jobs).then("running"),
            pl.lit(0).alias("missed"),
            unread.alias("trouble"),
            pl.col("trouble").alias("jobs_trouble"),
            # it set the time also where it had learned nothing
            pl.when(was_read | pl.col("opened")).then("seen"),
        ),
        dtypes(),
    )


def _is_without_trouble() -> pl.Expr:
    return pl.col("trouble").is_null() | (pl.col("trouble") == NO_CARDHOLDER)


def service_stages(run: StoredRun, part: LedgerPart) -> pl.DataFrame:
    """Return row, ENDS and CAUSES of one ledger part: what the service says of its links."""
    columns = ["row", *ENDS, "missed", "trouble", "jobs_trouble"]
    return read_placements(run, part, columns).select("row", *ENDS, *_causes())


def _causes() -> list[pl.Expr]:
    """Return why a row's stages are not known (CAUSES); null where they are."""
    lost = pl.when(pl.col("missed") > 0).then(pl.lit(LOST_MESSAGES))
    unknown_jobs = pl.coalesce("jobs_trouble", lost, pl.lit(NEVER_ASKED))
    opened = pl.coalesce("trouble", pl.lit(NEVER_ASKED))
    authenticated = pl.when(pl.col("running").is_null()).then(unknown_jobs)
    silent = pl.lit(NO_AUTHENTICATION)
    return [
        pl.when(pl.col("opened").is_null()).then(opened).alias("opened_cause"),
        pl.when(pl.col("authenticated").is_null())
        .then(authenticated.otherwise(silent))
        .alias("authenticated_cause"),
        pl.when(pl.col("running").is_null()).then(unknown_jobs).alias("ended_cause"),
    ]


def linked_rows(run: StoredRun, part: LedgerPart) -> pl.DataFrame:
    """Return the rows of a ledger part that have a link (LINK), single links included.

    Every report has those.
    """
    columns = ["row", "cuid", "last_4", "state", "url", "expires_on"]
    return run.rows_part(part, columns, pl.col("state") == LINKED).select(*LINK)
