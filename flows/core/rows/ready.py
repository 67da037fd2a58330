"""The fast way of rows that are ready as they come, which most rows of most extracts are.

One regex over the line a row would be sent as stands in for trimming it and for the rules of its cells; whatever it
does not know goes the whole way. A ready row comes out just as the whole way would have brought it, without a verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.extract.blocks import Plain
from flows.core.extract.reader import parse_lines
from flows.core.rows.chunk_csv import lines, quoted
from flows.core.rows.cvv import NO_CVV, sent_hash
from flows.core.rows.normalise import name_on_card, spell
from schemas.expressions import FILLER_SHAPE, luhn_holds, one_of, yymm
from schemas.places import US, postal_places
from schemas.portal import (
    COUNTRY,
    CUID,
    CVV,
    CVV_HASH,
    FARTHEST,
    FIRST_NAME,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    NO_PLACEHOLDER,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
    columns,
)
from schemas.ready import FREE, is_secret, may_be, placeholder_between_commas, plain_line, ready_line
from schemas.rules import Rules

_PLACES = pl.Series(sorted(postal_places())).implode()


class Parted(NamedTuple):
    """`ready`: rows spelled as the portal takes them, and `text`, each one's line of a chunk; `rest`: as they came."""

    ready: pl.DataFrame
    rest: pl.DataFrame


class Ready:
    """Tell the rows of an extract that are ready; `order` is that of the portal's columns in its header."""

    def __init__(self, order: Sequence[str], as_of: date, rules: Rules) -> None:
        self._order = tuple(order)
        self._rules = rules
        self._unquoted = ready_line(order, quotes=False)
        self._quoted = ready_line(order, quotes=True)
        # What changes in the line of an extract of the portal's own form; what comes after it goes as it stands.
        changed = {CVV_HASH, CVV} | ({NAME_ON_CARD} if rules.fill_name_on_card else set())
        self._head = self._order[: 1 + max(self._order.index(name) for name in changed)]
        placeholder = one_of(rules.placeholders, FILLER_SHAPE)
        ends = [name for name in (order[0], order[-1]) if name in NO_PLACEHOLDER and may_be(name, placeholder)]
        self._cells = {
            *self._head,
            PAN,
            CUID,
            YEAR,
            MONTH,
            FIRST_NAME,
            LAST_NAME,
            SUBNATIONAL,
            COUNTRY,
            POSTAL_CODE,
            *ends,
        }
        first, last = yymm(as_of, rules.link_life_months), yymm(as_of, FARTHEST)
        self._holds = (
            pl.col(CUID).is_not_null(),
            ~pl.col("text").str.contains(placeholder_between_commas(rules.placeholders)),
            *(~pl.col(end).str.contains(placeholder) for end in ends),
            luhn_holds(pl.col(PAN)),
            pl.col("expiration").is_between(pl.lit(first), pl.lit(last)),
            _lies_there(),
        )

    def plain(self, more: Collection[str]) -> Plain | None:
        """Return what lines of the portal's own form look like, with `more` cells to read; None if nobody could say."""
        if any(is_secret(word) for word in self._rules.placeholders):
            return None  # a CVV that stands for nothing: no line that is sent would show it
        shape = plain_line(self._order, self._head, fill_name=self._rules.fill_name_on_card)
        return Plain(shape, [name for name in self._order if name in self._cells or name in more])

    def part(self, mapped: pl.DataFrame) -> Parted:
        """Part the mapped rows of a block (row, line, the 20 columns); both kinds keep their order."""
        spelled = spell(mapped, self._rules)
        spelled = spelled.with_columns(sent_hash(spelled), NO_CVV)
        text, fits = self._lines(spelled)
        rows, holds = self._held(spelled.with_columns(text.alias("text")))
        ready = holds & fits
        return Parted(rows.filter(ready), mapped.filter(~ready))

    def part_plain(self, plain: pl.DataFrame) -> Parted:
        """Part the plain rows of a block (row, line, the cells, the line as `text`); both kinds keep their order."""
        head = (pl.col(name).str.len_bytes().fill_null(0) + 1 for name in self._head)
        tail = pl.col("text").cast(pl.Binary).bin.slice(pl.sum_horizontal(head)).cast(pl.String).alias("tail")
        name = [name_on_card()] if NAME_ON_CARD in self._head else []
        spelled = plain.with_columns(*name, sent_hash(plain), NO_CVV, tail)
        rows, holds = self._held(spelled.with_columns(self._with_tail(spelled).alias("text")))
        ready = holds & rows[CVV_HASH].is_not_null()
        cells = parse_lines(plain["text"].filter(~ready), self._order, columns(), ",")
        return Parted(rows.filter(ready), plain.select("row", "line").filter(~ready).hstack(cells))

    def _held(self, spelled: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows as a ledger knows them, and whether what no shape can say holds of each."""
        rows = spelled.with_columns(
            pl.lit(False).alias("cuid_made"),
            pl.col(PAN).str.slice(-4).alias("last_4"),
            (pl.col(YEAR) + pl.col(MONTH)).alias("expiration"),
        )
        return rows, rows.lazy().select(pl.all_horizontal(self._holds).fill_null(False)).collect().to_series()

    def _lines(self, rows: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Return each row's line, and whether its cells have their shapes; few lines have quotes."""
        text = lines(rows, self._order, quoting=())
        fits = text.str.contains(self._unquoted)
        odd = (~fits).arg_true()
        again = lines(rows[odd], self._order, quoting=FREE)
        return text.scatter(odd, again), fits.scatter(odd, again.str.contains(self._quoted))

    def _with_tail(self, rows: pl.DataFrame) -> pl.Series:
        """Return each row's line: the cells of its head, where a name that was made may need quotes, then its tail."""
        order = self._head if self._head == self._order else (*self._head, "tail")
        if NAME_ON_CARD in self._head:
            rows = rows.with_columns(quoted(rows[NAME_ON_CARD]))
        return lines(rows, order, quoting=())


def _lies_there() -> pl.Expr:
    """Return whether the postal code lies in its state or province, which knows the country by the way."""
    letters = pl.when(pl.col(COUNTRY) == US).then(3).otherwise(1)
    return (pl.col(POSTAL_CODE).str.slice(0, letters) + pl.col(SUBNATIONAL)).is_in(_PLACES)
