"""The rows of an extract as its issuer is told of them: done, refused or open, and why.

Where a card stands now counts, whichever run brought it there; a row that names no card that the
book knows stands as its own run says.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from flows.book import standing as book
from flows.book.attempts import CANCELLED
from flows.extensions.deliveries.formats import (
    DONE,
    OPEN,
    REFUSED,
    ROW_STATUSES,
    AcknowledgedRows,
    ReasonTotal,
    RowStatus,
    RowTotals,
)
from flows.reports.bank_words import CAUSE, BankWords, words_of
from flows.reports.lists import by_reason, with_actions
from flows.results.row_states import run_rows
from flows.runs.cards import CONTENT_FINGERPRINTS, holder
from flows.runs.frames import shaped
from flows.runs.stored_run import StoredRun
from schemas.ledger import (
    AWAITING,
    DUPLICATE,
    ERROR,
    INELIGIBLE,
    LINKED,
    REJECTED,
    SUPPRESSED,
)
from schemas.reasons import DELETED, EXCLUDED

_SETTLED = (
    book.HAS_LINK,
    book.DELIVERED,
    book.OPENED,
    book.AUTHENTICATED,
    book.FAILED,
    book.PLACED,
)
_CHANGED = (book.CHANGED_SINCE, book.NOT_REPLACED, book.NOT_UPDATED)
_OVER = (book.REFUSED, book.NOT_SENT, book.NOT_ELIGIBLE, book.GIVEN_UP)
# by where the card of a row stands that was sent
_BY_STANDING = {
    **dict.fromkeys((state.name for state in book.STATES), OPEN),
    **dict.fromkeys((state.name for state in (*_SETTLED, *_CHANGED, book.LEFT)), DONE),
    **dict.fromkeys((state.name for state in _OVER), REFUSED),
}
# the same of a row that was not sent: a link that the card had before is none of it
_BY_STANDING_UNSENT = _BY_STANDING | dict.fromkeys((state.name for state in _CHANGED), REFUSED)
# the same of a row that was suppressed for what is known of its card: its change is not decided
_BY_STANDING_SUPPRESSED = _BY_STANDING | dict.fromkeys((state.name for state in _CHANGED), OPEN)
_BY_STATE = {
    LINKED: DONE,
    ERROR: REFUSED,
    AWAITING: OPEN,
    CANCELLED: OPEN,
    REJECTED: REFUSED,
    INELIGIBLE: REFUSED,
    DUPLICATE: REFUSED,
    SUPPRESSED: OPEN,
}
_AS_THE_FILE_SAYS = [f"|{EXCLUDED}", f"|{DELETED}", EXCLUDED, DELETED]
CARDS = ["holder", "last_4", "standing", "until"]


def acknowledged_rows(run: StoredRun, cards: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of a committed run (AcknowledgedRows), a frame for each part of its ledger.

    `cards`: where the cards stand (CARDS), each once in its newest issue.
    """
    words = words_of(run)
    known = _by_look(cards)
    identities = run.ledger(["row", "expiration", *CONTENT_FINGERPRINTS])
    for rows, identity in zip(run_rows(run), identities, strict=True):
        identified = rows.join(identity, on="row", how="left", maintain_order="left")
        yield _with_causes(_judged(identified, known), words)


def totals(frames: Sequence[pl.DataFrame]) -> tuple[RowTotals, ...]:
    """Return the rows of each status, and their totals of last four digits; each row once."""
    rows = pl.concat([frame.unique("row") for frame in frames])
    digits = pl.col("last_4").cast(pl.UInt64, strict=False).fill_null(0)
    summed = rows.group_by("status").agg(pl.len().alias("rows"), digits.sum().alias("total"))
    of_status = {status: numbers for status, *numbers in summed.iter_rows()}

    def total(status: RowStatus) -> RowTotals:
        number, last_4_total = of_status.get(status, (0, 0))
        return RowTotals(status=status, rows=number, last_4_total=last_4_total)

    return tuple(map(total, ROW_STATUSES))


def reason_totals(frames: Sequence[pl.DataFrame]) -> tuple[ReasonTotal, ...]:
    """Return why rows are refused, the most frequent reason first."""
    columns = ["reason", "source", "wrong", "expected", "action"]
    refused = pl.concat([frame.filter(status=REFUSED).drop_nulls("reason") for frame in frames])
    counted = refused.group_by(columns).agg(pl.len().alias("rows"))
    most_first = counted.sort("rows", *columns, descending=[True] + [False] * len(columns))
    return tuple(ReasonTotal(**line) for line in most_first.iter_rows(named=True))


def _by_look(cards: pl.DataFrame) -> pl.DataFrame:
    """Return where the cards of each cardholder and last four digits stand, the worst of twins."""
    order = pl.col("standing").cast(pl.Enum([state.name for state in book.STATES]))
    worst_first = cards.select(CARDS).drop_nulls("holder").sort(order, maintain_order=True)
    return worst_first.unique(["holder", "last_4"], keep="first", maintain_order=True)


def _judged(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Add to rows (RUN_ROW) their `status`, and where their card stands."""
    placed = rows.with_columns(holder=holder(rows)).join(
        known, on=["holder", "last_4"], how="left", nulls_equal=True, maintain_order="left"
    )
    standing = pl.col("standing").cast(pl.String)
    state = pl.col("state")
    is_as_said = pl.col("reasons").list.eval(pl.element().is_in(_AS_THE_FILE_SAYS)).list.any()
    status = (
        pl.when(is_as_said.fill_null(value=False))
        .then(pl.lit(DONE))
        .when(state == DUPLICATE)
        .then(pl.lit(REFUSED))
        .when(state.is_in([REJECTED, INELIGIBLE]))
        .then(_by(standing, _BY_STANDING_UNSENT))
        .when(state == SUPPRESSED)
        .then(_by(standing, _BY_STANDING_SUPPRESSED))
        .otherwise(_by(standing, _BY_STANDING))
    )
    return placed.with_columns(
        status=pl.coalesce(status, _by(state, _BY_STATE)),
        link=standing.fill_null("not known"),
        link_ends="until",
    )


def _by(column: pl.Expr, table: Mapping[str, str]) -> pl.Expr:
    return column.replace_strict(table, default=None, return_dtype=pl.String)


def _with_causes(rows: pl.DataFrame, words: BankWords) -> pl.DataFrame:
    """Return a line for each row, or for each reason where it is refused or open for more."""
    unfinished = rows.filter(pl.col("status") != DONE)
    listed = words.causes(by_reason(unfinished, "row"))
    causes = with_actions(listed.with_columns(reason="code"))
    columns = ["row", "reason", *CAUSE, "found", "action"]
    lines = rows.drop("reasons", "found").join(
        causes.select(columns), on="row", how="left", maintain_order="left"
    )
    return shaped(lines, AcknowledgedRows.dtypes())
