"""Which rows of a run an operator asks for: by what became of them, by reason, by what is to be done, by number."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from schemas import ledger
from schemas.reasons import reason
from schemas.states import AWAITING, ERROR

CANCELLED = "cancelled"  # its chunk was cancelled before its upload: never sent
REFUSED = (ERROR, ledger.REJECTED, ledger.DUPLICATE)
# A row of a run as it stands: `state` is linked, error, awaiting, CANCELLED, or the fate of a row that was not sent.
RUN_ROW: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "origin": pl.UInt32,  # the row of the run it repeats, where it does
    "cuid": pl.String,
    "last_4": pl.String,
    "state": pl.String,
    "reasons": pl.List(pl.String),  # "column|code" each; the partner's have no column
}
ASKED: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "cuid": pl.String,
    "last_4": pl.String,
    "state": pl.String,
    "reasons": pl.List(pl.String),
    "reason": pl.String,
    "named": pl.Boolean,
}


class Wanted(NamedTuple):
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


def asked(rows: pl.DataFrame, wanted: Wanted, also: frozenset[int] = frozenset()) -> pl.DataFrame:
    """Return the rows (RUN_ROW) that are asked for, as ASKED.

    `reason`: the first code that refused it. `named`: asked for by number or as missing, not by what became of it, and
    not since a corrected file speaks of it (`also`).
    """
    state = pl.col("state")
    hits = [told for told in _told(rows) if _meant(told.rpartition("|")[2], wanted)]
    by_reason = state.is_in(REFUSED) & pl.col("reasons").list.eval(pl.element().is_in(hits)).list.any()
    by_kind = (
        (pl.lit(wanted.errors) & (state == ERROR))
        | (pl.lit(wanted.rejects) & (state == ledger.REJECTED))
        | by_reason.fill_null(value=False)
        | pl.col("row").is_in(sorted(also))
    )
    by_name = (pl.lit(wanted.missing) & state.is_in([AWAITING, CANCELLED])) | pl.col("row").is_in(sorted(wanted.rows))
    first = pl.col("reasons").list.first().str.split("|").list.last()
    told = rows.with_columns(reason=pl.when(state.is_in(REFUSED)).then(first), named=by_name)
    return told.filter(by_kind | pl.col("named")).select(pl.col(name).cast(kind) for name, kind in ASKED.items())


def _told(rows: pl.DataFrame) -> list[str]:
    return rows.get_column("reasons").explode().drop_nulls().unique().to_list()


def _meant(code: str, wanted: Wanted) -> bool:
    by_code = any(code == one or code.startswith(f"{one}.") for one in wanted.codes)
    return by_code or reason(code).action in wanted.actions
