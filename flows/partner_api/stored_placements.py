"""What is stored of a run's links: the linked rows, and the placements that were read for them.

Messages are stored, create-only, before they are interpreted, because the partner gives each one
once. Everything else can be derived from them again, in any order.
"""

from __future__ import annotations

from io import BytesIO

import polars as pl

from flows.runs.single_links import LINK
from flows.runs.store import ObjectMissingError, read
from flows.runs.stored_run import StoredRun
from schemas.ledger import LINKED
from schemas.manifest import LedgerPart
from schemas.partner_api.link_placements import dtypes


def placements_key(run: StoredRun, part: LedgerPart) -> str:
    """Return the placements key of one ledger part."""
    return run.keys.placements + part.name


def read_placements(
    run: StoredRun, part: LedgerPart, columns: list[str] | None = None
) -> pl.DataFrame:
    """Return the placements of one ledger part; none before the first check.

    They have the columns of `schemas.partner_api.link_placements.Placements`, or `columns` of them.
    """
    try:
        content = read(run.store, placements_key(run, part))
    except ObjectMissingError:
        return pl.DataFrame(schema=dtypes()).select(columns or list(dtypes()))
    return pl.read_parquet(BytesIO(content), columns=columns)


def linked_rows(run: StoredRun, part: LedgerPart) -> pl.DataFrame:
    """Return the rows of a ledger part that have a link (LINK), single links included.

    Every report has those.
    """
    columns = ["row", "cuid", "last_4", "state", "url", "expires_on"]
    return run.rows_part(part, columns, pl.col("state") == LINKED).select(*LINK)
