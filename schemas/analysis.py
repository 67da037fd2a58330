"""The tables of the analysts' export, column by column; deploy/ANALYSIS.md shows the same.

None has card data: neither last four digits nor expiry, link or CVV, nor what the partner wrote.
Only `rows` names cardholders, by the issuer's own id (cuid).
"""

from typing import Any

import pandera.polars as pa
import polars as pl

from schemas.tables import Table

EXPORT = 1  # version of these tables: an export of another one is made anew
TIME = pl.Datetime("us", "UTC")


def column(meaning: str, *, nullable: bool = True) -> Any:
    """Return a column with its meaning."""
    return pa.Field(nullable=nullable, description=meaning)


class ExportedRows(Table):
    """Every row of every committed run, also those that were not sent.

    Key: `issuer`, `run`, `row`.
    """

    run: pl.String = column("id of the run", nullable=False)
    row: pl.UInt32 = column("record of the extract, from 1", nullable=False)
    line: pl.UInt32 = column("physical line on which it starts, from 1", nullable=False)
    cuid: pl.String = column(
        "the cardholder, as sent; null: the line is unreadable, the id held a card number, or the "
        "cardholder is forgotten"
    )
    cuid_made: pl.Boolean = column("we made the cuid up: the row had none", nullable=False)
    fate: pl.String = column(
        "what we did with it: submitted, rejected, ineligible, duplicate or suppressed",
        nullable=False,
    )
    state: pl.String = column(
        "of a row that was sent linked, error, awaiting or cancelled; else its fate",
        nullable=False,
    )
    reason: pl.String = column("code of the first reason why it has no link (REASONS.md)")
    who: pl.String = column("who acts about that reason: issuer, operator, partner; empty: nobody")
    reasons: pl.List(pl.String) = column(  # type: ignore[valid-type]  # mypy wants a class
        "all reasons, each as column|code; the partner's have no column"
    )
    chunk: pl.UInt32 = column("number of the chunk in which it was sent, from 1")
    position: pl.UInt16 = column("row within that chunk, from 1")
    origin: pl.UInt32 = column("row that it repeats, of the run that `runs.repeats` names")
    expires_on: pl.Date = column("last day of its link")
    answered_at: TIME = column("when its answer was ingested first")  # type: ignore[valid-type]
    trouble: pl.String = column("kind of the break of an answer that settled nothing")


class ExportedRuns(Table):
    """Every run, from its plan on. Key: `issuer`, `run`."""

    run: pl.String = column("id of the run", nullable=False)
    kind: pl.String = column("extract, resubmit or renew", nullable=False)
    repeats: pl.String = column("run whose rows it sends again")
    state: pl.String = column("state in words, as lists of runs show it", nullable=False)
    ended: pl.String = column("committed or abandoned; null: neither yet")
    sequence: pl.Int64 = column("sequence number of the extract, where it has one")
    dropped_at: TIME = column("when its extract was dropped")  # type: ignore[valid-type]
    committed_at: TIME = column("when it was committed")  # type: ignore[valid-type]
    read: pl.UInt32 = column("rows read: the sum of the next seven")
    linked: pl.UInt32 = column("rows with a link")
    error: pl.UInt32 = column("rows that the partner refused")
    awaiting: pl.UInt32 = column("rows sent that have no answer")
    rejected: pl.UInt32 = column("rows that we refused")
    ineligible: pl.UInt32 = column("rows that are not eligible for a link")
    duplicate: pl.UInt32 = column("rows that repeat another row")
    suppressed: pl.UInt32 = column("rows suppressed: their card has or awaits a link")
    chunks: pl.UInt32 = column("chunks sealed")
    answered: pl.UInt32 = column("chunks of which every row has an answer")
    breaks: pl.UInt32 = column("open breaks")
    hours_median: pl.Float64 = column("hours from the extract's drop to half of its links")
    hours_slowest: pl.Float64 = column("hours to the last link")
    in_time: pl.Float64 = column("share of links within the agreed hours, from 0 to 1")
    settings: pl.String = column("digest of the settings in force when it was planned")


class ExportedBook(Table):
    """Where each issue of each card stood at the last export of a day.

    Key: `issuer`, `as_of`, `card_run`, `card_row`; a link whose fields were typed in has no row.
    """

    card_run: pl.String = column(
        "run of the first row of this issue of the card: with `card_row` its key from day to day",
        nullable=False,
    )
    card_row: pl.UInt32 = column("that row")
    run: pl.String = column("run of the row that decides; empty: typed in", nullable=False)
    row: pl.UInt32 = column("that row: `rows` has whose it is")
    is_current: pl.Boolean = column("the newest issue of its card", nullable=False)
    standing: pl.String = column("where it stands (README, Operating)", nullable=False)
    since: TIME = column("since when, where that is known")  # type: ignore[valid-type]
    who: pl.String = column("who acts: issuer, operator, partner; empty: nobody", nullable=False)
    reason: pl.String = column("code of the refusal that decides")
    until: pl.Date = column("last day of its last link")
    first_seen: pl.Date = column("business date of its first row")
    tries: pl.UInt32 = column("how often it was tried", nullable=False)
    sendings: pl.UInt32 = column("how often it was sent", nullable=False)
    opened: pl.Boolean = column("its link was opened; null: nobody knows")
    placed: pl.Boolean = column("the card was placed; null: nobody knows")


TABLES: dict[str, type[Table]] = {"rows": ExportedRows, "runs": ExportedRuns, "book": ExportedBook}
