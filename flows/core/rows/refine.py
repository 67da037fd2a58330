"""One block's way from the issuer's rows to rows ready to split: map, repair, normalise, check, hash, tell apart.

Every row of the block comes out exactly once: as good, or as a ledger record that says why it is not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.extract.blocks import Block, Plain
from flows.core.extract.mapping import Mapping, map_rows
from flows.core.rows.cards import is_test_card
from flows.core.rows.checks import check
from flows.core.rows.chunk_csv import lines
from flows.core.rows.cvv import hash_cvv
from flows.core.rows.duplicates import SeenRows
from flows.core.rows.foreseen import Repeats
from flows.core.rows.known import ADDRESS, CHECKS, NAME, Known, Terms, check_values
from flows.core.rows.normalise import normalise
from flows.core.rows.picked import Picked
from flows.core.rows.ready import Ready
from flows.core.rows.records import resting_records, unread_records, unsent_records, with_reasons
from flows.core.rows.repairs import Decided, decide, repair
from schemas import ledger
from schemas.issuer import Issuer
from schemas.manifest import SourceIdentity
from schemas.portal import CUID, MONTH, PAN, YEAR, columns

_NONE_READY = pl.DataFrame(
    schema={
        "row": pl.UInt32, "line": pl.UInt32, CUID: pl.String, "cuid_made": pl.Boolean, "last_4": pl.String,
        "expiration": pl.String, "key": pl.UInt64, "tag": pl.UInt32, "test": pl.Boolean,
        **dict.fromkeys(CHECKS, pl.UInt32), "text": pl.String,
    }
)  # fmt: skip
_LEAN = _NONE_READY.columns  # what is kept of a row that is not wanted cell by cell
_UNCHECKED = [pl.lit(None, pl.UInt32).alias(name) for name in CHECKS]
SMALL = 2_000  # rows of a block that is not worth parting: both ways cost more than either
ENOUGH, FEW = 50_000, 10_000  # ready rows, and others, that are refined at once
EXCLUDED = "row.filter.excluded"
NAMELESS = "cardholder.cuid.missing"  # of a portfolio: nobody could tell whether it was sent before


class Sifted(NamedTuple):
    """A block's rows: those `ready` as they come, the `rest`, and the lines that are `unread` or `excluded`."""

    ready: pl.DataFrame
    rest: pl.DataFrame
    unread: pl.DataFrame
    excluded: pl.DataFrame


def gathered(blocks: Iterable[Sifted]) -> Iterator[Sifted]:
    """Join small blocks: what few rows need costs as much for a block of one as for a hundred thousand."""
    waiting: list[Sifted] = []
    for block in blocks:
        waiting.append(block)
        if sum(one.ready.height for one in waiting) >= ENOUGH or sum(one.rest.height for one in waiting) >= FEW:
            yield Sifted(*map(pl.concat, zip(*waiting, strict=True)))
            waiting = []
    if waiting:
        yield Sifted(*map(pl.concat, zip(*waiting, strict=True)))


class Refined(NamedTuple):
    """`good`: ledger's identity columns, the cuid and `text`, a chunk's line; `others`: ledger records of the rest.

    Rows that were chosen one by one keep all 20 portal columns.
    """

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
        self,
        issuer: Issuer,
        mapping: Mapping,
        as_of: date,
        source: SourceIdentity,
        choice: Choice,
        order: Sequence[str],
    ) -> None:
        self._mapping = mapping
        self._picked, self._known, repeats, self._decided, self._keep_cvv = choice
        self._whole = choice.picked is not None or choice.keep_cvv
        self._rules = issuer.rules
        self._terms = Terms(issuer.portfolio, as_of)
        self._portfolio = issuer.full_portfolio
        self._repairs = issuer.repairs
        self._first: pl.DataFrame | None = None
        self._order = order
        self._ready = Ready(order, as_of, issuer.rules)
        self._as_of = as_of
        self._name = source.key
        self._made = f"cl-{source.sha256[:12]}-"
        self._repeats = repeats or SeenRows(issuer.rules, expected=source.newlines)
        self.reasons: Counter[str] = Counter()
        self.repairs: Counter[str] = Counter()
        self.test_cards = 0
        self.other_cards = 0

    def plain(self, header: Sequence[str]) -> Plain | None:
        """Return what lines look like that need no look, in an extract of the portal's own form; a block was sifted."""
        own = tuple(header) == tuple(self._order) and self._mapping.changes_nothing
        if not own or self._whole or self._decided is None or any(self._decided):
            return None
        return self._ready.plain((*NAME, *ADDRESS) if self._portfolio else ())

    def sift(self, block: Block) -> Sifted:
        """Part off what is ready as it comes; blocks come in their order, the next maybe before this one is refined."""
        mapped, excluded = map_rows(block.rows, self._mapping)
        ready, rest = _NONE_READY, mapped
        if self._decided is None:
            self._first = normalise(mapped, self._rules)
            self._decided = decide(self._first, self._repairs, self._name)
        if block.plain is not None:
            parted = self._ready.part_plain(block.plain)
            ready, rest = self._keyed(parted.ready), pl.concat([mapped, parted.rest]).sort("row")
        elif mapped.height >= SMALL and not (self._whole or any(self._decided)):
            parted = self._ready.part(mapped)
            ready, rest = self._keyed(parted.ready), parted.rest
        return Sifted(ready, rest, self._chosen(block.refused), self._chosen(excluded))

    def refine(self, sifted: Sifted) -> Refined:
        """Return a block's good rows and the ledger records of the others, by what the blocks before it held."""
        rows = _identify(self._mended(sifted.rest), self._made)
        verdicts = check(rows, self._as_of, self._rules)
        if self._known is not None:
            verdicts = pl.concat([verdicts, _nameless(rows)])
        sound = _merged(sifted.ready, self._keyed(_without(rows, verdicts)))
        marks = self._repeats.mark(sound)
        repeated = pl.col("code").str.ends_with(".repeated")
        repeats, strangers = marks.filter(repeated), marks.filter(~repeated)
        reasons = pl.concat([verdicts, marks])
        refusing = reasons.filter(severity="reject")
        good = self._with_origin(with_reasons(_without(sound, marks), reasons.filter(pl.col("severity") != "reject")))
        good, suppressed = self._suppress(good)
        others = [
            suppressed,
            unsent_records(_only(rows, verdicts), refusing, ledger.REJECTED),
            unsent_records(_only(sound, strangers), refusing, ledger.REJECTED),
            unsent_records(_only(sound, repeats), refusing, ledger.DUPLICATE),
            unread_records(sifted.unread, ledger.REJECTED),
            unread_records(sifted.excluded.with_columns(code=pl.lit(EXCLUDED)), ledger.SUPPRESSED),
        ]
        records = self._with_origin(pl.concat(others)).select(*ledger.dtypes())
        self._tally(good, records)
        return Refined(good.drop("key", "tag", "test"), records)

    def _keyed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Write each row's line, note what other rows and runs know it by, and drop its cells, the cuid apart."""
        if "text" not in rows.columns and not self._keep_cvv:
            rows = hash_cvv(rows)
            rows = rows.with_columns(lines(rows, self._order, quoting=columns()).alias("text"))
        rows = self._repeats.keyed(rows).with_columns(is_test_card(pl.col(PAN)).alias("test"))
        rows = check_values(rows) if self._portfolio else rows.with_columns(_UNCHECKED)
        return rows if self._whole else rows.select(*_LEAN)

    def _mended(self, mapped: pl.DataFrame) -> pl.DataFrame:
        """Normalise, and repair whole columns as the whole first block decided it, whatever is picked of it."""
        first, self._first = self._first, None
        if self._picked is not None:
            first, mapped = None, self._picked.correct(self._picked.keep(mapped))
        same = first is not None and first["row"].equals(mapped["row"])  # a small night is one block, normalised once
        rows = first if first is not None and same else normalise(mapped, self._rules)
        mended, counts = repair(rows, self._decided or Decided(), self._name)
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
        if self._known is None:
            return good, pl.DataFrame(schema=ledger.dtypes()).drop("origin")
        why = self._known.suppressed(good, self._terms)
        resting = good.filter(why.is_not_null()).with_columns(
            pl.concat_list("|" + pl.lit(why.drop_nulls())).alias("reasons")
        )
        return good.filter(why.is_null()), resting_records(resting, ledger.SUPPRESSED)

    def _tally(self, good: pl.DataFrame, records: pl.DataFrame) -> None:
        """Count what the ledger says: the reasons of both, and the kinds of cards that are sent."""
        told = pl.concat([good["reasons"], records["reasons"]]).explode().drop_nulls()
        codes = told.str.split("|").list.last().value_counts()
        self.reasons.update(dict(codes.iter_rows()))
        test = int(good["test"].sum())
        self.test_cards += test
        self.other_cards += good.height - test


def _merged(ready: pl.DataFrame, sound: pl.DataFrame) -> pl.DataFrame:
    """Return both kinds of rows in the order of the extract."""
    if ready.is_empty():
        return sound
    return ready if sound.is_empty() else pl.concat([ready, sound]).sort("row")


def _without(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that no verdict refuses."""
    refused = _refused(verdicts)
    return rows if refused.is_empty() else rows.filter(~rows["row"].is_in(refused.implode()))


def _only(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that a verdict refuses."""
    refused = _refused(verdicts)
    return rows.clear() if refused.is_empty() else rows.filter(rows["row"].is_in(refused.implode()))


def _refused(verdicts: pl.DataFrame) -> pl.Series:
    return verdicts["row"] if verdicts.is_empty() else verdicts.filter(severity="reject")["row"].unique()


def _identify(rows: pl.DataFrame, made: str) -> pl.DataFrame:
    """Add cuid_made, last_4 and expiration (YYMM); give a row without cuid the one its place in the extract makes.

    The made cuid is `cl-<12 hex of the extract's SHA-256>-<row>`: the same again when the run is repeated,
    unique within and across extracts, and traceable by hand.
    """
    pan, month, year = pl.col(PAN), pl.col(MONTH), pl.col(YEAR)
    dated = year.str.contains("^[0-9]{2}$") & month.str.contains("^(0[1-9]|1[0-2])$")
    absent = rows[CUID].is_null()
    if absent.any():  # rare, and making the texts for all rows is not free
        rows = rows.with_columns(pl.col(CUID).fill_null(made + pl.col("row").cast(pl.String)))
    return rows.with_columns(
        absent.alias("cuid_made"),
        pl.when(pan.str.contains("^[0-9]{16}$")).then(pan.str.slice(-4)).alias("last_4"),
        pl.when(dated).then(year + month).alias("expiration"),
    )


def _nameless(rows: pl.DataFrame) -> pl.DataFrame:
    """Refuse the rows of a portfolio that have no cuid of their own: they would be sent anew every night."""
    return rows.filter("cuid_made").select("row", column=pl.lit(CUID), code=pl.lit(NAMELESS), severity=pl.lit("reject"))
