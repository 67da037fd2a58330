"""The correction template: one line per refused row and reason, to be filled in."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from flows.book.book import read_book
from flows.reports.lists import with_actions
from flows.reports.unlinked import without_link
from flows.resend.selected_runs import newest_first
from flows.results.lineage import settled_since
from flows.results.row_states import run_rows
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun
from schemas.actions import FIX
from schemas.corrections import (
    SOURCE_ONLY,
    UNNAMED,
    WRONG,
    Template,
    column_of,
    is_at_source,
)
from schemas.ledger import ERROR, REJECTED
from schemas.reasons import reason


class _CodeWords(NamedTuple):
    """What the template says of a reason code; `column` is the portal's, where it names one."""

    code: str
    column: str | None
    wrong: str
    accepted: str


def correction_template(context: IssuerContext, run: str) -> Iterator[pl.DataFrame]:
    """Yield the template (`schemas.corrections.Template`) for a committed run's refused rows.

    One frame per ledger part. Rows that are linked or awaiting in a later attempt are left out.
    UnknownRunError.
    """
    stored = StoredRun.by_id(context.adapters.store, run)
    stored.committed()
    is_settled = pl.col("row").is_in(settled_since(stored).implode())
    is_refused = pl.col("state").is_in([ERROR, REJECTED])
    for rows in run_rows(stored):
        yield template(rows.filter(is_refused & ~is_settled), run)


def template_of_all_runs(context: IssuerContext) -> Iterator[pl.DataFrame]:
    """Yield the template of the cards that wait for a correction by the issuer.

    A frame for each run that decided last about such cards, the newest first: of each card the row
    of its last attempt.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    store = context.adapters.store
    cards = read_book(store, context.issuer.issuer).cards(today)
    lacking = with_actions(without_link(cards)).filter(
        (pl.col("action") == FIX) & pl.col("stage").is_in(["submit", "partner"])
    )
    rows_of = {run: frame["row"] for (run,), frame in lacking.group_by("run") if run}
    for run in newest_first(rows_of):
        is_waiting = pl.col("row").is_in(rows_of[run].implode())
        parts = run_rows(StoredRun.by_id(store, run))
        yield from (template(rows.filter(is_waiting), run) for rows in parts)


def template(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return the template for refused rows (RUN_ROW), one line per reason."""
    reported = rows.select("row", "cuid", "last_4", "reasons").explode("reasons")
    parts = pl.col("reasons").str.split("|")
    named_column = pl.when(parts.list.len() > 1).then(parts.list.first()).replace("", None)
    listed = reported.drop_nulls("reasons").with_columns(
        named_column.alias("column"),
        parts.list.last().alias("code"),
        run=pl.lit(run),
        correction=pl.lit(None, pl.String),
    )
    words = pl.DataFrame(
        [_words(code) for code in listed["code"].unique()],
        dict.fromkeys(("code", "column of code", "wrong", "accepted"), pl.String),
        orient="row",
    )
    beside = listed.join(words, on="code", maintain_order="left")
    column = pl.coalesce("column", "column of code").alias("column")
    return beside.with_columns(column).select(*Template.dtypes())


def _words(code: str) -> _CodeWords:
    """Return in words what is wrong and what is accepted."""
    entity, _, subject_and_kind = code.partition(".")
    subject, _, kind = subject_and_kind.partition(".")
    name = "the line" if entity in ("line", "row") else subject.replace("_", " ")
    wrong = f"{name} {WRONG.get(kind, UNNAMED)}"
    hint = reason(code).hint
    accepted = str(hint or reason(code).action)
    if is_at_source(code):
        accepted = f"{SOURCE_ONLY}; accepted: {hint}" if hint else str(SOURCE_ONLY)
    return _CodeWords(code, column_of(code), wrong, accepted)
