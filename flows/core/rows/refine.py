"""One block's way from the issuer's rows to rows ready to split: map, repair, normalise, check, hash, tell apart.

Every row of the block comes out exactly once: as good, or as a ledger record that says why it is not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import polars as pl

from flows.core.extract.mapping import Mapping, map_rows
from flows.core.extract.reader import Block
from flows.core.rows.cards import count_cards
from flows.core.rows.checks import check
from flows.core.rows.cvv import hash_cvv
from flows.core.rows.duplicates import SeenRows
from flows.core.rows.foreseen import Repeats
from flows.core.rows.known import CHECKS, Known, Terms, check_values
from flows.core.rows.normalise import normalise
from flows.core.rows.picked import Picked
from flows.core.rows.repairs import Decided, decide, repair
from schemas import ledger
from schemas.issuer import Issuer
from schemas.manifest import SourceIdentity
from schemas.portal import CUID, MONTH, PAN, YEAR

EXCLUDED = "row.filter.excluded"
NAMELESS = "cardholder.cuid.missing"  # of a portfolio: nobody could tell whether it was sent before


class Refined(NamedTuple):
    """`good`: ledger's identity columns plus the 20 portal columns; `others`: ledger records of the rest."""

    good: pl.DataFrame
    others: pl.DataFrame


class Choice(NamedTuple):
    """Which rows of an extract a run is of, and what was found out about them elsewhere."""

    picked: Picked | None = None
    known: Known | None = None
    repeats: Repeats | None = None  # who tells repeated rows, where others read parts of the extract
    decided: Decided | None = None  # the repairs, where another read its first rows
    keep_cvv: bool = False  # a CVV stays as the source has it: a single request takes no hash (interface.md 2.8)


EVERY_ROW = Choice()


class Refiner:
    """Refine block after block of one extract; remembers what it has seen to tell repeats apart."""

    def __init__(
        self, issuer: Issuer, mapping: Mapping, as_of: date, source: SourceIdentity, choice: Choice = EVERY_ROW
    ) -> None:
        self._mapping = mapping
        self._picked, self._known, repeats, self._decided, self._keep_cvv = choice
        self._rules = issuer.rules
        self._terms = Terms(issuer.portfolio, as_of)
        self._portfolio = issuer.full_portfolio
        self._repairs = issuer.repairs
        self._as_of = as_of
        self._name = source.key
        self._made = f"cl-{source.sha256[:12]}-"
        self._repeats = repeats or SeenRows(issuer.rules, expected=source.newlines)
        self.reasons: Counter[str] = Counter()
        self.repairs: Counter[str] = Counter()
        self.test_cards = 0
        self.other_cards = 0

    def refine(self, block: Block) -> Refined:
        """Return the block's good rows and the ledger records of the others."""
        mapped, excluded = map_rows(block.rows, self._mapping)
        rows = _identify(self._mended(mapped), self._made)
        verdicts = check(rows, self._as_of, self._rules)
        if self._known is not None:
            verdicts = pl.concat([verdicts, _nameless(rows)])
        sound = _without(rows, verdicts)
        marks = self._repeats.mark(sound)
        repeated = pl.col("code").str.ends_with(".repeated")
        repeats, strangers = marks.filter(repeated), marks.filter(~repeated)
        reasons = pl.concat([verdicts, marks])
        refusing = reasons.filter(severity="reject")
        lasting = _without(sound, marks)
        good = self._with_origin(_with_reasons(lasting if self._keep_cvv else hash_cvv(lasting), reasons))
        good, suppressed = self._suppress(good)
        others = [
            suppressed,
            _record(_only(rows, pl.concat([verdicts, strangers])), refusing, ledger.REJECTED),
            _record(_only(sound, repeats), refusing, ledger.DUPLICATE),
            _unread(self._chosen(block.refused), ledger.REJECTED),
            _unread(self._chosen(excluded).with_columns(code=pl.lit(EXCLUDED)), ledger.SUPPRESSED),
        ]
        records = self._with_origin(pl.concat(others)).select(*ledger.dtypes())
        self._tally(good, records)
        return Refined(good, records)

    def _mended(self, mapped: pl.DataFrame) -> pl.DataFrame:
        """Normalise, and repair whole columns as the whole first block decided it, whatever is picked of it."""
        rows = None
        if self._decided is None:
            rows = normalise(mapped, self._rules)
            self._decided = decide(rows, self._repairs, self._name)
        if self._picked is not None:
            rows = normalise(self._picked.correct(self._picked.keep(mapped)), self._rules)
        mended, counts = repair(normalise(mapped, self._rules) if rows is None else rows, self._decided, self._name)
        self.repairs.update(counts)
        if self._picked is None:
            return mended
        return normalise(self._picked.correct_codes(mended), self._rules)

    def _chosen(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows if self._picked is None else self._picked.keep(rows)

    def _with_origin(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self._picked is None:
            return rows.with_columns(pl.lit(None, pl.UInt32).alias("origin"))
        return rows.with_columns(self._picked.origins(rows).alias("origin"))

    def _suppress(self, good: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Part the rows to send from those that earlier runs leave nothing to do for."""
        nobody = pl.DataFrame(schema=ledger.dtypes()).drop("origin")
        if not self._portfolio:
            nothing = [pl.lit(None, pl.UInt32).alias(name) for name in CHECKS]
            return good.with_columns(nothing), nobody
        checked = check_values(good)
        if self._known is None:
            return checked, nobody
        why = self._known.suppressed(checked, self._terms)
        resting = checked.filter(why.is_not_null()).with_columns(
            pl.concat_list(pl.format("|{}", why.drop_nulls())).alias("reasons")
        )
        return checked.filter(why.is_null()), _as_record(resting, ledger.SUPPRESSED)

    def _tally(self, good: pl.DataFrame, records: pl.DataFrame) -> None:
        """Count what the ledger says: the reasons of both, and the kinds of cards that are sent."""
        told = pl.concat([good["reasons"], records["reasons"]]).explode().drop_nulls()
        codes = told.str.split("|").list.last().value_counts()
        self.reasons.update(dict(codes.iter_rows()))
        test, other = count_cards(good.get_column(PAN))
        self.test_cards += test
        self.other_cards += other


def _without(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that no verdict refuses."""
    refused = verdicts.filter(severity="reject")["row"].unique()
    return rows if refused.is_empty() else rows.filter(~rows["row"].is_in(refused.implode()))


def _only(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that a verdict refuses."""
    refused = verdicts.filter(severity="reject")["row"].unique()
    return rows.clear() if refused.is_empty() else rows.filter(rows["row"].is_in(refused.implode()))


def sent_records(chunks: Sequence[pl.DataFrame], numbers: Sequence[int]) -> pl.DataFrame:
    """Return the ledger records of the rows of some chunks, at least one, in the chunks' order."""
    heights = [chunk.height for chunk in chunks]
    places = np.concatenate([np.arange(1, height + 1, dtype=np.uint16) for height in heights])
    return pl.concat(chunks).select(
        "row",
        "line",
        pl.col(CUID).alias("cuid"),
        "cuid_made",
        "last_4",
        "expiration",
        pl.lit(ledger.SUBMITTED).alias("fate"),
        pl.Series("chunk", np.repeat(np.array(numbers, np.uint32), heights)),
        pl.Series("position", places),
        "origin",
        "name_check",
        "address_check",
        "reasons",
    )


def _identify(rows: pl.DataFrame, made: str) -> pl.DataFrame:
    """Add cuid_made, last_4 and expiration (YYMM); give a row without cuid the one its place in the extract makes.

    The made cuid is `cl-<12 hex of the extract's SHA-256>-<row>`: the same again when the run is repeated,
    unique within and across extracts, and traceable by hand.
    """
    pan, month, year = pl.col(PAN), pl.col(MONTH), pl.col(YEAR)
    dated = year.str.contains("^[0-9]{2}$") & month.str.contains("^(0[1-9]|1[0-2])$")
    absent = rows[CUID].is_null()
    if absent.any():  # rare, and making the texts for all rows is not free
        rows = rows.with_columns(pl.col(CUID).fill_null(pl.format(made + "{}", "row")))
    return rows.with_columns(
        absent.alias("cuid_made"),
        pl.when(pan.str.contains("^[0-9]{16}$")).then(pan.str.slice(-4)).alias("last_4"),
        pl.when(dated).then(year + month).alias("expiration"),
    )


def _with_reasons(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Add the list column `reasons` ("column|code" each, empty where there is none)."""
    told = verdicts.select("row", reasons=pl.format("{}|{}", "column", "code")).group_by("row", maintain_order=True)
    joined = rows.join(told.agg("reasons"), on="row", how="left", maintain_order="left")
    return joined.with_columns(pl.col("reasons").fill_null([]))


def _record(rows: pl.DataFrame, verdicts: pl.DataFrame, fate: str) -> pl.DataFrame:
    """Return ledger records of rows that are not sent; a cuid that holds a card number is left out of them."""
    return _as_record(_with_reasons(rows, verdicts), fate)


def _as_record(rows: pl.DataFrame, fate: str) -> pl.DataFrame:
    holds_card = pl.col("reasons").list.contains(f"{CUID}|cardholder.cuid.card_number")
    return rows.select(
        "row",
        "line",
        pl.when(~holds_card).then(CUID).alias("cuid"),
        "cuid_made",
        "last_4",
        "expiration",
        *_unsent(fate),
        "reasons",
    )


def _unread(lines: pl.DataFrame, fate: str) -> pl.DataFrame:
    """Return ledger records of lines nothing is known of but their place and one code."""
    nothing = pl.lit(None, pl.String)
    return lines.select(
        "row",
        "line",
        nothing.alias("cuid"),
        pl.lit(False).alias("cuid_made"),
        nothing.alias("last_4"),
        nothing.alias("expiration"),
        *_unsent(fate),
        pl.concat_list(pl.format("|{}", "code")).alias("reasons"),
    )


def _unsent(fate: str) -> tuple[pl.Expr, ...]:
    return (
        pl.lit(fate).alias("fate"),
        pl.lit(None, pl.UInt32).alias("chunk"),
        pl.lit(None, pl.UInt16).alias("position"),
        pl.lit(None, pl.UInt32).alias("name_check"),
        pl.lit(None, pl.UInt32).alias("address_check"),
    )


def _nameless(rows: pl.DataFrame) -> pl.DataFrame:
    """Refuse the rows of a portfolio that have no cuid of their own: they would be sent anew every night."""
    return rows.filter("cuid_made").select("row", column=pl.lit(CUID), code=pl.lit(NAMELESS), severity=pl.lit("reject"))
