"""The runs of an issuer whose rows a selection would send again.

Of a card that was refused in several runs, the last one counts: its row there is the newest.
"""

from collections.abc import Iterable
from datetime import date

import polars as pl

from flows.book.book import Book, read_book
from flows.errors import OperatorError
from flows.redaction import redact
from flows.reports.unlinked import unlinked
from flows.resend.selection import RowSelection, is_selected
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.keys import keys_of
from flows.steps import WHY, Sentence, Slot, Step


class OneRunError(OperatorError):
    """Rows of all runs of an issuer are selected in a way that needs one run."""

    message = (
        "{issuer} is an issuer: row numbers, missing results, a corrected extract and an override "
        "belong to one run. Nothing was sent."
    )
    next_step = Sentence(
        "Name the run in place of {issuer}; {runs} lists its runs.",
        runs=Step("worklist", Slot("issuer"), all=True),
    )


def runs_to_resend(context: IssuerContext, selection: RowSelection) -> list[str]:
    """Return the runs that decided last that a selected card has no link, newest first.

    And those that said last that a card has changed since, or did not replace its link.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = read_book(context.adapters, context.issuer.issuer)
    return newest_first(set().union(*(_of_part(part, selection, today) for part in book.parts())))


def _of_part(book: Book, selection: RowSelection, today: date) -> set[str]:
    """Return the runs that decided last about selected cards of a part of the book."""
    cards = book.cards(today)
    lacking = unlinked(cards).filter(pl.col("run") != "")
    pairs = lacking.select("run", "stage", "reason").unique().iter_rows()
    runs = {run for run, stage, code in pairs if _is_meant(selection, stage, code)}
    if selection.changed:
        runs |= set(book.changes(cards)["run"])
    if selection.replacing:
        runs |= set(book.not_replaced(cards)["run"])
    return runs


def newest_first(runs: Iterable[str]) -> list[str]:
    """Return runs, the newest first."""
    return sorted(runs, key=lambda run: keys_of(run).run.age, reverse=True)


def _is_meant(selection: RowSelection, stage: str, code: str | None) -> bool:
    by_stage = {"partner": selection.errors, "submit": selection.rejects}
    return by_stage.get(stage, False) or (code is not None and is_selected(code, selection))


def resubmit_step(
    issuer: str, selection: RowSelection, sent: int, reason: str, corrections: str
) -> Step:
    """Return the step that sends what is selected of all runs of an issuer, so many rows.

    Without a reason, it is to be named.
    """
    return Step(
        "resubmit",
        issuer,
        errors=selection.errors,
        rejects=selection.rejects,
        changed=selection.changed,
        replacing=selection.replacing,
        code=sorted(selection.codes),
        action=sorted(selection.actions),
        corrections=redact(corrections),
        rows=sent or None,
        reason=redact(reason) or WHY,
    )
