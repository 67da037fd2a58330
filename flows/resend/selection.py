"""Which rows of a run are selected, and which of those are sent again; frames in, frames out.

No linked or awaiting card is sent again, and no row that would be refused as before.
"""

from collections.abc import Collection
from typing import NamedTuple

import polars as pl

from flows.book.attempts import CANCELLED
from flows.resend.blocking import IDENTITY
from flows.results.row_states import RUN_ROW
from schemas import ledger
from schemas.corrections import AT_SOURCE
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.reasons import CANCELLED_CHUNK, CHANGED, DELETED, UNREADABLE_DELETION, reason

REFUSED = (ERROR, ledger.REJECTED, ledger.DUPLICATE)
# A selected row. `reason`: the first code it was refused for. `named`: it was selected by number or
# as missing, not by its errors. `replaces`: it is there to replace the link of its card.
SELECTED = {name: RUN_ROW[name] for name in ("row", "cuid", "last_4", "state", "reasons")} | {
    "reason": pl.String,
    "named": pl.Boolean,
    "replaces": pl.Boolean,
}
# A row of the source by today's rules.
RECHECKED = {name: ledger.dtypes()[name] for name in ("row", *IDENTITY, "fate", "reasons")}

# a row that was suppressed because its card's name or address had changed
IS_CHANGED = (pl.col("state") == ledger.SUPPRESSED) & (
    pl.col("reasons").list.last() == f"|{CHANGED}"
)
# Why a selected row does not go out.
STANDS = (LINKED, AWAITING)
CONFIRMED = "is what its link was made from: the link is kept"
GIVEN_UP = "given up"
NOT_IN_EXTRACT = "not in the corrected extract"
SOURCE = "card fields are corrected at the source only"
UNCHANGED = "would be refused as before"
REPEATED = "repeats another of these rows"
INELIGIBLE = "is not eligible for a link"
EXCLUDED = "[status] leaves it out"
EXCLUDED_SINCE = "[status] leaves it out of a later extract"
MARKED = "the extract marks it as deleted"
LEFT = "left"


class RowSelection(NamedTuple):
    """Which rows an operator selects; every part adds rows."""

    errors: bool = False  # every row the partner refused
    codes: frozenset[str] = frozenset()  # reason codes, ours or the partner's, or their first parts
    actions: frozenset[str] = frozenset()  # (schemas.reasons), such as "resubmit as is"
    missing: bool = False  # rows without a result
    rejects: bool = False  # rows we refused
    rows: frozenset[int] = frozenset()  # numbers of the run's rows
    changed: bool = False  # rows of cards whose name or address is not what their link is made from
    replacing: bool = False  # refused rows that were to replace a link, which still stands

    @property
    def is_named(self) -> bool:
        """Whether rows are selected by their numbers, or by a file that names them, alone."""
        return not any(self._replace(rows=frozenset()))


def select_rows(
    rows: pl.DataFrame,
    selection: RowSelection,
    corrected: frozenset[int] = frozenset(),
    replacing: Collection[int] = (),
) -> pl.DataFrame:
    """Return the selected rows (SELECTED) of a run's (RUN_ROW), and the `corrected` ones.

    `replacing`: the rows that are to replace the link of their card.
    """
    state = pl.col("state")
    is_refused = state.is_in(REFUSED)
    codes = rows["reasons"].explode().drop_nulls().unique()
    selected_codes = [code for code in codes if is_selected(code, selection)]
    with_cancelled = _has_code(CANCELLED_CHUNK, selection)
    has_code = pl.col("reasons").list.eval(pl.element().is_in(selected_codes)).list.any()
    is_replacing = pl.col("row").is_in(sorted(replacing))
    is_corrected = pl.col("row").is_in(sorted(corrected))
    is_not_replaced = (state == ERROR) & is_replacing & pl.lit(selection.replacing)
    is_changed = IS_CHANGED | ((state == CANCELLED) & is_replacing)
    by_kind = (
        (pl.lit(selection.errors) & (state == ERROR))
        | (pl.lit(selection.rejects) & (state == ledger.REJECTED))
        | (is_refused & has_code).fill_null(value=False)
        | (pl.lit(with_cancelled) & (state == CANCELLED))
        | (pl.lit(selection.changed) & is_changed)
        | is_not_replaced
        | is_corrected
    )
    is_missing = state.is_in([AWAITING, CANCELLED])
    by_name = (pl.lit(selection.missing) & is_missing) | pl.col("row").is_in(sorted(selection.rows))
    first_code = pl.col("reasons").list.first().str.split("|").list.last()
    has_reason = is_refused | is_changed
    named = rows.with_columns(
        reason=pl.when(has_reason).then(first_code),
        named=by_name,
        replaces=is_changed | is_not_replaced | (is_corrected & is_replacing),
    )
    selected = named.filter(by_kind | pl.col("named"))
    return selected.select(pl.col(name).cast(kind) for name, kind in SELECTED.items())


def is_selected(reported: str, selection: RowSelection) -> bool:
    """Return whether a reason ("column|code") is selected by its code, its beginning or action."""
    code = reported.rpartition("|")[2]
    return _has_code(code, selection) or reason(code).action in selection.actions


def _has_code(code: str, selection: RowSelection) -> bool:
    beginnings = tuple(f"{selected}." for selected in selection.codes)
    return f"{code}.".startswith(beginnings)


def decide(
    selected: pl.DataFrame,
    picks: pl.DataFrame,
    rechecked: pl.DataFrame,
    blocked: pl.DataFrame,
    corrected: pl.Series,
    lifted: frozenset[str] | None = None,
) -> pl.DataFrame:
    """Return every selected row with the decision about it.

    Columns: row (of the source), origin, cuid, last_4, state, reason, named, why, where, over.
    `why` is null where a row goes out; for LINKED and AWAITING `where` names the run.

    `selected`: SELECTED. `picks`: row of the source, and origin, the selected row it stands for.
    `rechecked`: RECHECKED, today's verdict on each row of the source. `blocked`: the rows whose
    card is linked or awaiting in any run (`flows.resend.blocking.blocking`). `corrected`: numbers
    of the selected rows that a corrected file changes. `lifted`: an override is given; it lifts
    active attempts of all runs but these, and such rows go out with `over` true.
    """
    verdicts = rechecked.select("row", "fate", now="reasons")
    rows = (
        selected.rename({"row": "origin"})
        .join(picks, on="origin", how="left", maintain_order="left")
        .join(blocked, on="origin", how="left", maintain_order="left")
        .join(verdicts, on="row", how="left", maintain_order="left")
    )
    is_blocked = pl.col("stands").is_not_null()
    is_lifted = pl.lit(value=False)
    if lifted is not None:
        is_lifted = ~pl.col("where").is_in(sorted(lifted)).fill_null(value=False)
    why = pl.when(is_blocked & ~is_lifted).then("stands").otherwise(_why_refused(corrected))
    kept = [name for name in SELECTED if name not in ("row", "reasons", "replaces")]
    return rows.with_columns(why=why).select(
        "row",
        "origin",
        *kept,
        "why",
        pl.when(is_blocked).then("where").alias("where"),
        (is_blocked & pl.col("why").is_null()).alias("over"),
    )


def _why_refused(corrected: pl.Series) -> pl.Expr:
    """Return why a row is not sent by today's rules, null where it is.

    One that was corrected goes out all the same, to be rejected in its own run.
    """
    column = pl.element().str.split("|").list.first()
    at_source = pl.col("now").list.eval(column.is_in(sorted(AT_SOURCE))).list.any()
    rejected = (pl.col("fate") == ledger.REJECTED) & ~pl.col("origin").is_in(corrected.implode())
    return (
        pl.when(pl.col("row").is_null())
        .then(pl.lit(NOT_IN_EXTRACT))
        .when(pl.col("fate") == ledger.DUPLICATE)
        .then(pl.lit(REPEATED))
        .when(_is_deletion())
        .then(pl.lit(MARKED))
        .when(pl.col("fate") == ledger.SUPPRESSED)
        .then(pl.lit(EXCLUDED))
        .when(pl.col("fate") == ledger.INELIGIBLE)
        .then(pl.lit(INELIGIBLE))
        .when(rejected & at_source)
        .then(pl.lit(SOURCE))
        .when(rejected)
        .then(pl.lit(UNCHANGED))
    )


def _is_deletion() -> pl.Expr:
    """Return whether a row of the source is marked as deleted."""
    codes = [f"|{DELETED}", f"|{UNREADABLE_DELETION}"]
    is_marked = pl.col("now").list.eval(pl.element().is_in(codes)).list.any()
    return is_marked.fill_null(value=False)
