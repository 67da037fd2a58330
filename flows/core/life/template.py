"""The correction template of a run: one line per row and reason, without card numbers, safe in a spreadsheet."""

from __future__ import annotations

import polars as pl

from flows.core.results.masking import spreadsheet_safe
from schemas.corrections import AT_SOURCE, SOURCE_ONLY, UNNAMED, WRONG, template_columns
from schemas.portal import YEAR, columns
from schemas.reasons import reason

NAMED = ["code", "for", "wrong", "accepted"]
_BY_SUFFIX = {name.rpartition(".")[2]: name for name in columns()}


def template(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return the template (`schemas.corrections.Template`) of refused rows (`wanted.RUN_ROW`), a line per reason."""
    told = rows.select("row", "cuid", "last_4", "reasons").explode("reasons").drop_nulls("reasons")
    parts = pl.col("reasons").str.split("|")
    listed = told.with_columns(
        pl.lit(run).alias("run"),
        pl.when(parts.list.len() > 1).then(parts.list.first()).replace("", None).alias("column"),
        parts.list.last().alias("code"),
        pl.lit(None, pl.String).alias("correction"),
    )
    named = [(code, _column(code), *_words(code)) for code in listed["code"].unique()]
    beside = listed.join(
        pl.DataFrame(named, dict.fromkeys(NAMED, pl.String), orient="row"), on="code", maintain_order="left"
    )
    filled = beside.with_columns(pl.coalesce("column", "for").alias("column"), spreadsheet_safe("cuid"))
    return filled.select(template_columns())


def _column(code: str) -> str | None:
    """Return the portal's column that a code speaks of, None where nothing tells."""
    _, _, rest = code.partition(".")
    subject = rest.partition(".")[0]
    return YEAR if subject == "expiration" else _BY_SUFFIX.get(subject)


def _words(code: str) -> tuple[str, str]:
    """Say what is wrong and what is accepted."""
    told = reason(code)
    entity, _, rest = code.partition(".")
    subject, _, kind = rest.partition(".")
    wrong = f"{'the line' if entity in ('line', 'row') else subject.replace('_', ' ')} {WRONG.get(kind, UNNAMED)}"
    if entity == "line" or _column(code) in AT_SOURCE:
        return wrong, f"{SOURCE_ONLY}: {told.hint}" if told.hint else SOURCE_ONLY
    return wrong, told.hint or told.action
