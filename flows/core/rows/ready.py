"""The fast way of rows that are ready as they come, which most rows of most extracts are.

One regex over the line a row would be sent as stands in for trimming it and for the rules of its cells; whatever it
does not know goes the whole way. A ready row comes out just as the whole way would have brought it, without a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.rows.chunk_csv import lines
from flows.core.rows.cvv import sent_hash
from flows.core.rows.normalise import spell
from schemas.expressions import FILLER_SHAPE, luhn_holds, one_of, yymm
from schemas.places import US, postal_places
from schemas.portal import (
    COUNTRY,
    CUID,
    CVV,
    FARTHEST,
    MONTH,
    NO_PLACEHOLDER,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)
from schemas.ready import FREE, placeholder_between_commas, ready_line
from schemas.rules import Rules

_PLACES = pl.Series(sorted(postal_places())).implode()


class Parted(NamedTuple):
    """`ready`: rows spelled as the portal takes them, and `text`, each one's line of a chunk; `rest`: as they came."""

    ready: pl.DataFrame
    rest: pl.DataFrame


class Ready:
    """Tell the rows of an extract that are ready; `order` is that of the portal's columns in its header."""

    def __init__(self, order: Sequence[str], as_of: date, rules: Rules) -> None:
        self._order = order
        self._rules = rules
        self._plain = ready_line(order, quotes=False)
        self._quoted = ready_line(order, quotes=True)
        ends = [pl.col(name) for name in (order[0], order[-1]) if name in NO_PLACEHOLDER]
        placeholder = one_of(rules.placeholders, FILLER_SHAPE)
        first, last = yymm(as_of, rules.link_life_months), yymm(as_of, FARTHEST)
        self._holds = (
            pl.col(CUID).is_not_null(),
            ~pl.col("text").str.contains(placeholder_between_commas(rules.placeholders)),
            *(~end.str.contains(placeholder) for end in ends),
            luhn_holds(pl.col(PAN)),
            pl.col("expiration").is_between(pl.lit(first), pl.lit(last)),
            _lies_there(),
        )

    def part(self, mapped: pl.DataFrame) -> Parted:
        """Part the mapped rows of a block (row, line, the 20 columns); both kinds keep their order."""
        spelled = spell(mapped, self._rules)
        text, fits = self._lines(spelled.with_columns(sent_hash(), pl.lit(None, pl.String).alias(CVV)))
        spelled = spelled.with_columns(
            pl.lit(False).alias("cuid_made"),
            pl.col(PAN).str.slice(-4).alias("last_4"),
            (pl.col(YEAR) + pl.col(MONTH)).alias("expiration"),
            text.alias("text"),
        )
        holds = spelled.lazy().select(pl.all_horizontal(self._holds).fill_null(False)).collect().to_series()
        ready = holds & fits
        return Parted(spelled.filter(ready), mapped.filter(~ready))

    def _lines(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Return each row's line, and whether its cells have their shapes; few lines have quotes."""
        text = lines(rows, self._order, quoting=())
        fits = text.str.contains(self._plain)
        odd = (~fits).arg_true()
        again = lines(rows[odd], self._order, quoting=FREE)
        return text.scatter(odd, again), fits.scatter(odd, again.str.contains(self._quoted))


def _lies_there() -> pl.Expr:
    """Return whether the postal code lies in its state or province, which knows the country by the way."""
    letters = pl.when(pl.col(COUNTRY) == US).then(3).otherwise(1)
    return (pl.col(POSTAL_CODE).str.slice(0, letters) + pl.col(SUBNATIONAL)).is_in(_PLACES)
