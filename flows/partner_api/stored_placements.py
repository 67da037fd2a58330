"""The linked rows of a run, and how far the service says that they came."""

from __future__ import annotations

import polars as pl

from flows.partner_api.row_stages import ENDS
from flows.runs.placements import read_placements
from flows.runs.single_links import LINK
from flows.runs.stored_run import StoredRun
from schemas.ledger import LINKED
from schemas.manifest import LedgerPart
from schemas.partner_api.unknowns import LOST_MESSAGES, NEVER_ASKED, NO_AUTHENTICATION


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
