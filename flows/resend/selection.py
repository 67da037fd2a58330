"""Which rows of a run go out again: those an operator selects, less those that must not.

Never a card that is linked or awaiting, never a row that would be refused as it was before.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

import polars as pl

from flows.results.lineage import CANCELLED
from schemas import ledger
from schemas.corrections import AT_SOURCE
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.reasons import reason

REFUSED = (ERROR, ledger.REJECTED, ledger.DUPLICATE)
ASKED: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "cuid": pl.String,
    "last_4": pl.String,
    "state": pl.String,
    "reasons": pl.List(pl.String),
    "reason": pl.String,
    "named": pl.Boolean,
}

CARD = ["cuid", "last_4"]
# Why a row that is asked for does not go out.
STANDS = (LINKED, AWAITING)
NOT_IN_EXTRACT = "not in the corrected extract"
SOURCE = "card fields are mended at the source only"
UNCHANGED = "would be refused as before"
REPEATED = "repeats another of these rows"
EXCLUDED = "the filter leaves it out"

TRIED: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "cuid": pl.String,
    "last_4": pl.String,
    "fate": pl.String,
    "reasons": pl.List(pl.String),
}
STANDING: dict[str, pl.DataType | type[pl.DataType]] = {
    "run": pl.String,
    "cuid": pl.String,
    "last_4": pl.String,
    "state": pl.String,
}


class RowSelection(NamedTuple):
    """What an operator asks for; every part adds rows."""

    errors: bool = False  # every row the partner refused
    codes: frozenset[str] = frozenset()  # reason codes, ours or the partner's, or their first dotted parts
    actions: frozenset[str] = frozenset()  # what is to be done (schemas.reasons), such as "resubmit as is"
    missing: bool = False  # rows without an answer
    rejects: bool = False  # rows we refused
    rows: frozenset[int] = frozenset()  # numbers of the run's rows

    @property
    def anything(self) -> bool:
        """True where something is asked for."""
        return any(self)


def asked(rows: pl.DataFrame, wanted: RowSelection, also: frozenset[int] = frozenset()) -> pl.DataFrame:
    """Return the rows (RUN_ROW) that are asked for, as ASKED.

    `reason`: the first code that refused it. `named`: asked for by number or as missing, not by what became of it, and
    not since a corrected file speaks of it (`also`).
    """
    state = pl.col("state")
    hits = [reported for reported in _reported(rows) if _selects(reported.rpartition("|")[2], wanted)]
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


def _reported(rows: pl.DataFrame) -> list[str]:
    return rows.get_column("reasons").explode().drop_nulls().unique().to_list()


def _selects(code: str, wanted: RowSelection) -> bool:
    by_code = any(code == one or code.startswith(f"{one}.") for one in wanted.codes)
    return by_code or reason(code).action in wanted.actions


class RowFacts(NamedTuple):
    """What is known of the rows asked for.

    `asked`: ASKED. `picks`: row of the source, and origin, the row asked for that it is. `tried`: TRIED, what the
    rules say of each row of the source today. `standing`: STANDING, cards that are linked or awaiting anywhere.
    `corrected`: rows asked for (their numbers) that do not come as they came before.
    """

    asked: pl.DataFrame
    picks: pl.DataFrame
    tried: pl.DataFrame
    standing: pl.DataFrame
    corrected: pl.Series


def active_attempts(attempts: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the attempts (STANDING and expires_on) that stand in a card's way: awaiting, or linked and not ended."""
    ended = (pl.col("expires_on") < today).fill_null(value=False)
    stands = (pl.col("state") == AWAITING) | ((pl.col("state") == LINKED) & ~ended)
    return attempts.filter(stands).select(pl.col(name).cast(kind) for name, kind in STANDING.items())


def cards(asked: pl.DataFrame, picks: pl.DataFrame, tried: pl.DataFrame) -> pl.DataFrame:
    """Return origin, cuid, last_4 of every card that the rows asked for were, and that they would be now."""
    before = asked.select(pl.col("row").alias("origin"), *CARD)
    now = tried.join(picks, on="row").select("origin", *CARD)
    return pl.concat([before, now]).drop_nulls().unique(maintain_order=True)


def decide(facts: RowFacts, lifted: frozenset[str] | None = None) -> pl.DataFrame:
    """Return every row asked for: row (of the source), origin, cuid, last_4, state, reason, named, why, where, over.

    `why` is null where it goes out; LINKED and AWAITING name the run in `where`. `lifted`: the override is given, and
    lifts what stands in any run but these; such rows go out with `over` true.
    """
    reported = facts.asked.rename({"row": "origin"}).join(facts.picks, on="origin", how="left", maintain_order="left")
    reported = reported.join(
        _blocking_attempts(facts, lifted or frozenset()), on="origin", how="left", maintain_order="left"
    )
    reported = reported.join(
        facts.tried.select("row", "fate", now="reasons"), on="row", how="left", maintain_order="left"
    )
    stands = pl.col("stands").is_not_null()
    free = pl.lit(value=False) if lifted is None else ~pl.col("where").is_in(sorted(lifted)).fill_null(value=False)
    decided = reported.with_columns(why=pl.when(stands & ~free).then("stands").otherwise(_refused(facts.corrected)))
    return decided.select(
        "row", "origin", *(name for name in ASKED if name not in ("row", "reasons")), "why",
        pl.when(stands).then("where").alias("where"), (stands & pl.col("why").is_null()).alias("over"),
    )  # fmt: skip


def _blocking_attempts(facts: RowFacts, used: frozenset[str]) -> pl.DataFrame:
    """Return origin, stands, where: the last attempt that stands in a row's way, one of a run in `used` before all."""
    found = cards(facts.asked, facts.picks, facts.tried).join(facts.standing, on=CARD, maintain_order="right")
    ordered = found.sort(pl.col("run").is_in(sorted(used)), maintain_order=True)
    last = ordered.group_by("origin", maintain_order=True).agg(pl.col("state", "run").last())
    return last.rename({"state": "stands", "run": "where"})


def _refused(corrected: pl.Series) -> pl.Expr:
    """Say why a row is not sent as it would come; one that was corrected shows its reasons as a reject of its run."""
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
