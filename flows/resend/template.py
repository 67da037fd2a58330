"""The correction template: one line per refused row and reason, to be filled in."""

from collections.abc import Iterator
from datetime import date

import polars as pl

from flows.book.attempts import active
from flows.book.book import Book, read_book
from flows.reports.bank_words import BankWords, words_of
from flows.reports.lists import by_reason, with_actions
from flows.reports.unlinked import without_link
from flows.resend.renewal import refused_rows
from flows.resend.selected_runs import newest_first
from flows.results.lineage import settled_since
from flows.results.row_states import run_rows
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun
from schemas.actions import FIX
from schemas.corrections import (
    SOURCE_ONLY,
    Template,
    column_of,
    is_at_source,
)
from schemas.ledger import ERROR, REJECTED
from schemas.reasons import reason


def correction_template(context: IssuerContext, run: str) -> Iterator[pl.DataFrame]:
    """Yield the template (`schemas.corrections.Template`) for a committed run's refused rows.

    One frame per ledger part. Rows that are linked or awaiting in a later attempt are left out, and
    those whose card has or awaits a link of a later day. UnknownRunError.
    """
    stored = StoredRun.by_id(context.adapters, run)
    stored.committed()
    settled = pl.concat([settled_since(stored), _linked_since(context, stored)])
    is_settled = pl.col("row").is_in(settled.implode())
    is_refused = pl.col("state").is_in([ERROR, REJECTED])
    words = words_of(stored)
    for rows in run_rows(stored):
        yield template(rows.filter(is_refused & ~is_settled), run, words)


def _linked_since(context: IssuerContext, run: StoredRun) -> pl.Series:
    """Return the rows of a run whose card, in the same issue, has or awaits a link by a run of a
    later day.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = read_book(context.adapters, context.issuer.issuer)
    is_later = pl.col("as_of") > run.committed().as_of
    look = ["cuid", "last_4", "expiration"]
    linked = book.attempts.filter(active(today) & is_later).select(look)
    records = pl.concat(run.ledger(["row", *look]))
    return records.join(linked, on=look, how="semi")["row"]


def template_of_all_runs(context: IssuerContext) -> Iterator[pl.DataFrame]:
    """Yield the template of the cards that wait for a correction by the issuer.

    A frame for each run that decided last about such cards, the newest first: of each card the row
    of its last attempt, also of one that has a link and of which we refused a newer row, or the row
    by which a link that ends would be renewed. Rows that name no cardholder are there, too.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = read_book(context.adapters, context.issuer.issuer)
    parts = [_to_correct(context, part, today) for part in book.parts()]
    nameless = book.nameless.select("run", "row")
    rows = pl.concat([*parts, nameless]).unique()
    rows_of = {run: frame["row"] for (run,), frame in rows.group_by("run") if run}
    for run in newest_first(rows_of):
        is_waiting = pl.col("row").is_in(rows_of[run].implode())
        stored = StoredRun.by_id(context.adapters, run)
        words = words_of(stored)
        yield from (template(rows.filter(is_waiting), run, words) for rows in run_rows(stored))


def _to_correct(context: IssuerContext, book: Book, today: date) -> pl.DataFrame:
    """Return the rows (run, row) by which cards of a part of the book wait for a correction."""
    cards = book.cards(today)
    lacking = with_actions(without_link(cards)).filter(
        (pl.col("action") == FIX) & pl.col("stage").is_in(["submit", "partner"])
    )
    newer = (book.not_updated(cards), refused_rows(context, book, cards))
    return pl.concat([frame.select("run", "row") for frame in (lacking, *newer)])


def template(rows: pl.DataFrame, run: str, words: BankWords) -> pl.DataFrame:
    """Return the template for refused rows (RUN_ROW), one line per reason."""
    listed = words.causes(by_reason(rows, "row", "line", "cuid", "last_4"))
    codes = listed["code"].unique()
    accepted = {code: _accepted(code) for code in codes}
    columns = {code: column_of(code) for code in codes}
    column_of_code = pl.col("code").replace_strict(columns, default=None, return_dtype=pl.String)
    return listed.with_columns(
        run=pl.lit(run),
        column=pl.coalesce("column", column_of_code),
        accepted=pl.col("code").replace_strict(accepted, default=None, return_dtype=pl.String),
        correction=pl.lit(None, pl.String),
    ).select(*Template.dtypes())


def _accepted(code: str) -> str:
    """Return what a correction may be, or that there is none."""
    if is_at_source(code):
        return str(SOURCE_ONLY)
    return str(reason(code).hint or reason(code).action)
