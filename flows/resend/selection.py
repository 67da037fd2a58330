"""Which rows of a run are resent: no linked or awaiting card, and no row that would be refused as before."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

import polars as pl

from flows.results.lineage import CANCELLED, RUN_ROW
from flows.runs.attempts import active
from schemas import ledger
from schemas.corrections import AT_SOURCE
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.reasons import reason

REFUSED = (ERROR, ledger.REJECTED, ledger.DUPLICATE)
ASKED = {name: RUN_ROW[name] for name in ("row", "cuid", "last_4", "state", "reasons")} | {
    "reason": pl.String,
    "named": pl.Boolean,
}

CARD = ["cuid", "last_4"]
# Why a selected row does not go out.
STANDS = (LINKED, AWAITING)
NOT_IN_EXTRACT = "not in the corrected extract"
SOURCE = "card fields are corrected at the source only"
UNCHANGED = "would be refused as before"
REPEATED = "repeats another of these rows"
EXCLUDED = "the filter leaves it out"

TRIED = {name: ledger.dtypes()[name] for name in ("row", "cuid", "last_4", "fate", "reasons")}
STANDING = dict.fromkeys(("run", "cuid", "last_4", "state"), pl.String)


class RowSelection(NamedTuple):
    """Which rows an operator selects; every part adds rows."""

    errors: bool = False  # every row the partner refused
    codes: frozenset[str] = frozenset()  # reason codes, ours or the partner's, or their first parts
    actions: frozenset[str] = frozenset()  # (schemas.reasons), such as "resubmit as is"
    missing: bool = False  # rows without a result
    rejects: bool = False  # rows we refused
    rows: frozenset[int] = frozenset()  # numbers of the run's rows

    @property
    def anything(self) -> bool:
        """True where any row is selected."""
        return any(self)


def asked(rows: pl.DataFrame, wanted: RowSelection, also: frozenset[int] = frozenset()) -> pl.DataFrame:
    """Return the selected rows (RUN_ROW) as ASKED, and those of a corrected file (`also`).

    `reason`: the first code it was refused for. `named`: selected by number or as missing, not by its errors.
    """
    state = pl.col("state")
    found = rows["reasons"].explode().drop_nulls().unique()
    hits = [reported for reported in found if _selects(reported.rpartition("|")[2], wanted)]
    by_reason = state.is_in(REFUSED) & pl.col("reasons").list.eval(pl.element().is_in(hits)).list.any()
    by_kind = (
        (pl.lit(wanted.errors) & (state == ERROR))
        | (pl.lit(wanted.rejects) & (state == ledger.REJECTED))
        | by_reason.fill_null(value=False)
        | pl.col("row").is_in(sorted(also))
    )
    by_name = (pl.lit(wanted.missing) & state.is_in([AWAITING, CANCELLED])) | pl.col("row").is_in(sorted(wanted.rows))
    first = pl.col("reasons").list.first().str.split("|").list.last()
    reported = rows.with_columns(reason=pl.when(state.is_in(REFUSED)).then(first), named=by_name)
    return reported.filter(by_kind | pl.col("named")).select(pl.col(name).cast(kind) for name, kind in ASKED.items())


def _selects(code: str, wanted: RowSelection) -> bool:
    by_code = any(code == one or code.startswith(f"{one}.") for one in wanted.codes)
    return by_code or reason(code).action in wanted.actions


class RowFacts(NamedTuple):
    """What is known of the selected rows.

    `asked`: ASKED. `picks`: row of the source, and origin, the selected row it stands for. `tried`: TRIED, today's
    verdict on each row of the source. `standing`: STANDING, cards that are linked or awaiting in any run.
    `corrected`: numbers of the selected rows that a corrected file changes.
    """

    asked: pl.DataFrame
    picks: pl.DataFrame
    tried: pl.DataFrame
    standing: pl.DataFrame
    corrected: pl.Series


def active_attempts(attempts: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the attempts (STANDING and expires_on) that keep a card from being resent: awaiting, or a living link."""
    return attempts.filter(active(today)).select(pl.col(name).cast(kind) for name, kind in STANDING.items())


def cards(asked: pl.DataFrame, picks: pl.DataFrame, tried: pl.DataFrame) -> pl.DataFrame:
    """Return origin, cuid, last_4 of the card of every selected row, as it was and as it would be now."""
    before = asked.select(pl.col("row").alias("origin"), *CARD)
    now = tried.join(picks, on="row").select("origin", *CARD)
    return pl.concat([before, now]).drop_nulls().unique(maintain_order=True)


def decide(facts: RowFacts, lifted: frozenset[str] | None = None) -> pl.DataFrame:
    """Return every selected row: row (of the source), origin, cuid, last_4, state, reason, named, why, where, over.

    `why` is null where it goes out; for LINKED and AWAITING `where` names the run. `lifted`: an override is given; it
    lifts active attempts of all runs but these, and such rows go out with `over` true.
    """
    # of a row's active attempts the last counts, and one of a run in `lifted` before all
    found = cards(facts.asked, facts.picks, facts.tried).join(facts.standing, on=CARD, maintain_order="right")
    ordered = found.sort(pl.col("run").is_in(sorted(lifted or ())), maintain_order=True)
    blocking = ordered.group_by("origin", maintain_order=True).agg(
        stands=pl.col("state").last(), where=pl.col("run").last()
    )
    verdicts = facts.tried.select("row", "fate", now="reasons")
    reported = (
        facts.asked.rename({"row": "origin"})
        .join(facts.picks, on="origin", how="left", maintain_order="left")
        .join(blocking, on="origin", how="left", maintain_order="left")
        .join(verdicts, on="row", how="left", maintain_order="left")
    )
    stands = pl.col("stands").is_not_null()
    free = pl.lit(value=False) if lifted is None else ~pl.col("where").is_in(sorted(lifted)).fill_null(value=False)
    decided = reported.with_columns(why=pl.when(stands & ~free).then("stands").otherwise(_refused(facts.corrected)))
    return decided.select(
        "row", "origin", *(name for name in ASKED if name not in ("row", "reasons")), "why",
        pl.when(stands).then("where").alias("where"), (stands & pl.col("why").is_null()).alias("over"),
    )  # fmt: skip


def _refused(corrected: pl.Series) -> pl.Expr:
    """Return why a row is not sent; one that was corrected goes out all the same, to be rejected in its own run."""
    column = pl.element().str.split("|").list.first()
    at_source = pl.col("now").list.eval(column.is_in(sorted(AT_SOURCE))).list.any().fill_null(value=False)
    rejected = (pl.col("fate") == ledger.REJECTED) & ~pl.col("origin").is_in(corrected.implode())
    return (
        pl.when(pl.col("row").is_null()).then(pl.lit(NOT_IN_EXTRACT))
        .when(pl.col("fate") == ledger.DUPLICATE).then(pl.lit(REPEATED))
        .when(pl.col("fate") == ledger.SUPPRESSED).then(pl.lit(EXCLUDED))
        .when(rejected & at_source).then(pl.lit(SOURCE))
        .when(rejected).then(pl.lit(UNCHANGED))
    )  # fmt: skip
