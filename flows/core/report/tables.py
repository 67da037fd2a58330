"""The tables of a report, made of ledger and reconciled rows (`schemas.reports`); derived and free of card numbers."""

from __future__ import annotations

import polars as pl

from flows.core.results.masking import spreadsheet_safe
from schemas import ledger
from schemas.links import LinkSettings
from schemas.manifest import Manifest
from schemas.reasons import reason
from schemas.states import ERROR, LINKED

LINK = ["cuid", "last_4", "url", "expires_on"]
FAILED = pl.col("state") == ERROR  # what errors.csv is of
UNSENT = pl.col("fate").is_in([ledger.REJECTED, ledger.DUPLICATE])  # what rejects.csv is of
REFUSAL = ["row", "cuid", "last_4", "stage", "column", "reason", "message", "action"]


def links(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the links of reconciled rows (`schemas.reports.Links`): verified ones only, cells exactly as they are."""
    return rows.filter(state=LINKED).select(LINK)


def mailing(links: pl.DataFrame, settings: LinkSettings) -> pl.DataFrame:
    """Return links as the sending system wants them: its columns, its names, its date format, text throughout."""
    written = links.with_columns(pl.col("expires_on").dt.strftime(settings.strftime))
    return written.select(pl.col(column).alias(name) for column, name in settings.columns.items())


def errors(rows: pl.DataFrame) -> pl.DataFrame:
    """Return errors.csv of reconciled rows: one line per row and reason the partner gave."""
    told = rows.filter(FAILED).select("row", "cuid", "last_4", "message", pl.col("reasons").alias("reason"))
    listed = told.explode("reason").with_columns(
        pl.lit("partner").alias("stage"), pl.lit(None, pl.String).alias("column")
    )
    return _refusals(listed)


def rejects(records: pl.DataFrame) -> pl.DataFrame:
    """Return rejects.csv of ledger records: one line per row we did not send and reason, never a value."""
    told = records.filter(UNSENT).select("row", "cuid", "last_4", "reasons").explode("reasons")
    split = pl.col("reasons").str.split_exact("|", 1)
    listed = told.with_columns(
        split.struct.field("field_0").replace("", None).alias("column"),
        split.struct.field("field_1").alias("reason"),
        pl.lit("submit").alias("stage"),
    )
    codes = listed["reason"].unique().drop_nulls().to_list()
    hints = pl.DataFrame(
        {
            "reason": codes,
            "message": [f"accepted: {reason(code).hint}" if reason(code).hint else None for code in codes],
        },
        schema={"reason": pl.String, "message": pl.String},
    )
    return _refusals(listed.join(hints, on="reason", how="left", maintain_order="left"))


def chunks(manifest: Manifest, reconciled: pl.DataFrame) -> pl.DataFrame:
    """Return chunks.csv: every chunk as it is uploaded, and what came back for it."""
    sealed = pl.DataFrame(
        [(one.number, one.name, one.bytes, one.sha256) for one in manifest.chunks],
        schema={"chunk": pl.UInt32, "name": pl.String, "bytes": pl.UInt64, "sha256": pl.String},
        orient="row",
    )
    told = reconciled.with_columns(pl.col("results").list.join(" | "))
    counts = [pl.col(name).cast(pl.UInt32) for name in ("sent", "answers", "linked", "error", "awaiting")]
    joined = sealed.join(told, on="chunk", how="left", maintain_order="left")
    return joined.select(
        "chunk", spreadsheet_safe("name"), "bytes", "sha256", *counts, "state", spreadsheet_safe("results")
    )


def action_of(codes: pl.Series) -> pl.DataFrame:
    """Return reason and action, one row per different code."""
    known = codes.unique().drop_nulls().to_list()
    return pl.DataFrame(
        {"reason": known, "action": [reason(code).action for code in known]},
        schema={"reason": pl.String, "action": pl.String},
    )


def _refusals(listed: pl.DataFrame) -> pl.DataFrame:
    safe = [spreadsheet_safe(name) for name in ("cuid", "message")]
    joined = listed.join(action_of(listed["reason"]), on="reason", how="left", maintain_order="left")
    return joined.with_columns(safe).select(REFUSAL)
