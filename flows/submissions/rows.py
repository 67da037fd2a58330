"""The one route from a source row to a chunk line: map, normalise, repair, validate, hash, write,
find duplicates.

Every row that is sent, by whatever command and however large its file, passes these functions in
this order. Every row of a block comes out exactly once: as good, or as a ledger record that says
why it is not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extracts.mapping import REISSUE, Mapping, Note, map_rows, stop, with_dates
from flows.extracts.reader import Block
from flows.runs.prior_state import CHECKS, PriorState, check_values, crc, resend_policy
from flows.submissions.chunk_csv import lines
from flows.submissions.drift import Sample, shapes
from flows.submissions.duplicates import Table, keyed, mark
from flows.submissions.ledger import unread_records, unsent_records, with_reasons
from flows.submissions.normalise import EVIDENCE, Evidence, normalise, refuse_scientific, repair
from flows.submissions.validate import VERDICT, validate
from schemas import ledger
from schemas.cvv import hash_cvv
from schemas.expressions import is_test_card
from schemas.issuer import Issuer
from schemas.manifest import SourceIdentity
from schemas.portal import CUID, MONTH, PAN, POSTAL_CODE, YEAR, columns

EXCLUDED = "row.filter.excluded"
FIRST_ROWS = 5  # row numbers named for each reason
NAMELESS = "cardholder.cuid.missing"  # in a portfolio such a row would be sent again every night
_REJECTED, _DUPLICATE, _SUPPRESSED = map(
    pl.lit, (ledger.REJECTED, ledger.DUPLICATE, ledger.SUPPRESSED)
)
_IDENTITY = ["row", "line", CUID, "cuid_made", "last_4", "expiration"]
_KEPT = [*_IDENTITY, "key", "tag", "test", *CHECKS, "text"]


class Inspection:
    """What a check learns of the rows: errors it went on after, a sample of them, and the rows not
    sent.
    """

    def __init__(self) -> None:
        self.errors: list[CardlinkError] = []
        # ledger records, and what was found in them
        self.unsent: list[tuple[pl.DataFrame, pl.DataFrame]] = []
        self.verdicts = Counter[tuple[str, str, str]]()  # column, code, severity
        self.sample = Sample()


class ReasonRows(NamedTuple):
    """One reason: how many rows of an extract have it, and the first of them."""

    code: str
    rows: int
    first: tuple[int, ...]


class RowScope(NamedTuple):
    """Which rows of an extract a run sends, and what earlier runs know of its cards."""

    selected: SelectedRows | None = None
    prior: PriorState | None = None
    inspection: Inspection | None = None  # of a check
    note: Note = stop  # what is done with an error of the mapping: a check notes it and goes on
    # all columns are kept, with the CVV as in the source (single links, interface.md 2.8)
    keep_cells: bool = False


EVERY_ROW = RowScope()


class Normalised(NamedTuple):
    """A block's rows, normalised and repaired; and the lines `unread` or `excluded`."""

    rows: pl.DataFrame
    unread: pl.DataFrame
    excluded: pl.DataFrame


class Validated(NamedTuple):
    """A block after `normalise`, and the verdicts on its rows."""

    block: Normalised
    verdicts: pl.DataFrame


class Route:
    """Take the blocks of one extract along the route, in order; remembers their rows to find
    duplicates.

    `normalise`, `validate` and `process` each take every block in order, and may run beside each other.
    """

    def __init__(
        self,
        issuer: Issuer,
        mapping: Mapping,
        as_of: date,
        source: SourceIdentity,
        scope: RowScope,
        order: Sequence[str],
        reread: Callable[[], Iterator[Block]],
    ) -> None:
        self._issuer, self._mapping, self._as_of, self._name = issuer, mapping, as_of, source.key
        self._scope, self._order, self._reread = scope, order, reread
        self._cuid_prefix = f"cl-{source.sha256[:12]}-"
        self._evidence = Evidence(issuer.repairs, source.key)
        self._decided: frozenset[str] | None = None
        self._dated = False
        self._seen = Table(source.newlines)
        self.sample = scope.inspection.sample if scope.inspection else Sample()
        self._reasons: dict[str, ReasonRows] = {}
        self.repairs: Counter[str] = Counter()
        self.test_cards = self.other_cards = 0

    def normalise(self, block: Block) -> Normalised:
        """Map, normalise and repair a block."""
        rules, selected = self._issuer.rules, self._scope.selected
        if not self._dated:
            self._mapping, self._dated = (
                with_dates(self._mapping, block.rows, self._reread, self._scope.note),
                True,
            )
        mapped, excluded = map_rows(block.rows, self._mapping)
        self.sample.add(mapped)
        rows, unread = normalise(mapped, rules), block.refused
        decided = self._decide(rows)
        if selected is not None:
            rows = normalise(selected.correct(selected.keep(mapped)), rules)
            unread, excluded = selected.keep(unread), selected.keep(excluded)
        rows, repaired = repair(rows, decided)
        self.repairs.update(repaired)
        if selected is not None:  # a corrected postal code is never repaired
            rows = normalise(selected.correct(rows, codes=True), rules)
        return Normalised(_identify(rows, self._cuid_prefix), unread, excluded)

    def _decide(self, rows: pl.DataFrame) -> frozenset[str]:
        """Return the repairs of the extract: none while no row would need one, then those that all
        rows together need.

        Once one could be needed, the extract is read a second time, only for the columns that are
        evidence.
        """
        if self._decided is not None:
            refuse_scientific(rows, self._issuer.repairs, self._name)
            return self._decided
        self._evidence.add(rows)
        if self._evidence.wanted:
            few = self._mapping.only(EVIDENCE)
            self._evidence = Evidence(self._issuer.repairs, self._name)
            for block in self._reread():
                self._evidence.add(normalise(map_rows(block.rows, few)[0], self._issuer.rules))
            self._decided = self._evidence.decide()
        elif not any(self._evidence.possible.values()):
            self._decided = frozenset()
        return self._decided or frozenset()

    def validate(self, block: Normalised) -> Validated:
        """Validate a block with pandera, by the table of rules."""
        rows, verdicts = block.rows, validate(block.rows, self._as_of, self._issuer.rules)
        if self._scope.prior is not None and self._issuer.full_portfolio:
            named = {"column": pl.lit(CUID), "code": pl.lit(NAMELESS), "severity": pl.lit("reject")}
            verdicts = pl.concat(
                [verdicts, rows.filter("cuid_made").select("row", **named).select(*VERDICT)]
            )
        if self._scope.inspection is not None:
            self._scope.inspection.verdicts.update(
                verdicts.select("column", "code", "severity").iter_rows()
            )
        return Validated(block, verdicts)

    def process(self, validated: Validated) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return a block's good rows and the ledger records of the others, by what the blocks
        before it held.

        Good rows have the ledger's columns, the cuid, and `text`, a chunk's line.
        """
        block, verdicts = validated
        rows = block.rows
        refused = _refused(rows, verdicts)
        sound = self._written(rows.filter(~refused))
        found = mark(self._seen, sound, self._issuer.rules)
        reasons = pl.concat([verdicts, found])
        rejects, warnings = (
            reasons.filter(severity="reject"),
            reasons.filter(pl.col("severity") != "reject"),
        )
        clashing = _refused(sound, found)
        good, suppressed = self._suppress(
            self._with_origin(with_reasons(sound.filter(~clashing), warnings))
        )
        unsent = pl.concat(
            [rows.filter(refused).select(_IDENTITY), sound.filter(clashing).select(_IDENTITY)]
        )
        repeated = _refused(unsent, found.filter(pl.col("code").str.ends_with(".repeated")))
        others = [
            suppressed,
            unsent_records(
                with_reasons(unsent, rejects),
                pl.when(repeated).then(_DUPLICATE).otherwise(_REJECTED),
            ),
            unread_records(block.unread, _REJECTED),
            unread_records(block.excluded.with_columns(code=pl.lit(EXCLUDED)), _SUPPRESSED),
        ]
        records = self._with_origin(pl.concat(others)).select(*ledger.dtypes())
        self._tally(good, records)
        if self._scope.inspection is not None:
            listed = records.filter(pl.col("fate") != ledger.SUPPRESSED)
            self._scope.inspection.unsent.append((listed, shapes(rows, verdicts)))
        return good.drop("key", "tag", "test"), records

    @property
    def reasons(self) -> list[ReasonRows]:
        """The reasons in the ledger, the most frequent first."""
        return sorted(self._reasons.values(), key=lambda one: (-one.rows, one.code))

    def _written(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Hash CVVs, write each row's line, add the keys that identify it in other blocks and runs,
        drop its cells.
        """
        keep = self._scope.keep_cells
        hashed = hash_cvv(rows)
        text = lines(hashed, self._order)
        rows = (rows if keep else hashed).with_columns(
            text.alias("text"), is_test_card(pl.col(PAN)).alias("test")
        )
        rows = _checked(keyed(rows), everyone=self._issuer.full_portfolio)
        return rows if keep else rows.select(_KEPT)

    def _with_origin(self, rows: pl.DataFrame) -> pl.DataFrame:
        selected = self._scope.selected
        origin = pl.lit(None, pl.UInt32) if selected is None else selected.origins(rows)
        return rows.with_columns(origin.alias("origin"))

    def _suppress(self, good: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Separate the rows to send from those that earlier runs have made unnecessary."""
        prior = self._scope.prior
        if prior is None:
            return good, pl.DataFrame(schema=ledger.dtypes()).drop("origin")
        why = prior.suppressed(good, self._as_of, resend_policy(self._issuer, self._as_of))
        resting = good.filter(why.is_not_null()).with_columns(
            reasons=pl.concat_list("|" + pl.lit(why.drop_nulls()))
        )
        return good.filter(why.is_null()), unsent_records(resting, _SUPPRESSED)

    def _tally(self, good: pl.DataFrame, records: pl.DataFrame) -> None:
        """Count the reasons in the ledger and the kinds of cards that are sent."""
        told = (
            pl.concat(frame.select("row", "reasons") for frame in (good, records))
            .explode("reasons")
            .drop_nulls()
        )
        code = pl.col("reasons").str.split("|").list.last().alias("code")
        for one, rows, first in (
            told.group_by(code).agg(pl.len(), pl.col("row").bottom_k(FIRST_ROWS)).iter_rows()
        ):
            before = self._reasons.get(one, ReasonRows(one, 0, ()))
            self._reasons[one] = ReasonRows(
                one, before.rows + rows, (*before.first, *sorted(first))[:FIRST_ROWS]
            )
        test = int(good["test"].sum())
        self.test_cards += test
        self.other_cards += good.height - test


def _checked(rows: pl.DataFrame, *, everyone: bool) -> pl.DataFrame:
    """Add CHECKS, by which other runs know a card; of name and address for everyone, or where we
    made the cuid.
    """
    reissue = pl.lit(None, pl.UInt32)
    if REISSUE in rows.columns:
        reissue = pl.when(pl.col(REISSUE).is_not_null()).then(crc(rows, REISSUE))
    rows = rows.with_columns(
        **dict.fromkeys(CHECKS, pl.lit(None, pl.UInt32)) | {"reissue_check": reissue}
    )
    if everyone:
        return check_values(rows)
    at = rows["cuid_made"].arg_true()
    if at.is_empty():
        return rows
    made = check_values(rows[at])
    return rows.with_columns(
        rows[name].scatter(at, made[name]) for name in ("name_check", "address_check")
    )


def _refused(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.Series:
    """Return which rows a verdict rejects."""
    return rows["row"].is_in(verdicts.filter(severity="reject")["row"].unique().implode())


def _identify(rows: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """Add cuid_made, last_4, expiration (YYMM); the cuid `cl-<12 hex of the extract's
    SHA-256>-<row>` for none.
    """
    pan, month, year = pl.col(PAN), pl.col(MONTH), pl.col(YEAR)
    dated = year.str.contains("^[0-9]{2}$") & month.str.contains("^(0[1-9]|1[0-2])$")
    absent = rows[CUID].is_null()
    if absent.any():  # rare, and texts for all rows are not free
        rows = rows.with_columns(pl.col(CUID).fill_null(prefix + pl.col("row").cast(pl.String)))
    return rows.with_columns(
        absent.alias("cuid_made"),
        pl.when(pan.str.contains("^[0-9]{16}$")).then(pan.str.slice(-4)).alias("last_4"),
        pl.when(dated).then(year + month).alias("expiration"),
    )


CLEARED = "(empty)"  # a correction that clears the field
PICK: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "origin": pl.UInt32}


class SelectedRows:
    """Rows to send again: `rows` has row, and origin, the row of the earlier run that is repeated.

    `corrections`: row and any of the portal's columns; null keeps the source's value, CLEARED removes it.
    """

    def __init__(self, rows: pl.DataFrame, corrections: pl.DataFrame | None = None) -> None:
        self.rows = rows.select(pl.col(name).cast(kind) for name, kind in PICK.items())
        given = pl.DataFrame(schema={"row": pl.UInt32}) if corrections is None else corrections
        self._corrections = given.select(
            pl.col("row").cast(pl.UInt32), *(name for name in columns() if name in given)
        )

    def keep(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the selected rows of a frame (with `row`)."""
        return frame.join(self.rows.select("row"), on="row", how="semi", maintain_order="left")

    def origins(self, rows: pl.DataFrame) -> pl.Series:
        """Return the row of the earlier run that each row repeats."""
        return rows.select("row").join(self.rows, on="row", how="left", maintain_order="left")[
            "origin"
        ]

    def correct(self, rows: pl.DataFrame, *, codes: bool = False) -> pl.DataFrame:
        """Replace mapped values by corrected ones; postal codes, which have lost no zeros, only
        after the repairs.
        """
        names = [name for name in self._corrections.columns[1:] if (name == POSTAL_CODE) == codes]
        if not names or self._corrections.is_empty():
            return rows
        given = self._corrections.select("row", pl.col(names).name.prefix("new "))
        beside = rows.join(given, on="row", how="left", maintain_order="left")
        new = {name: pl.col(f"new {name}") for name in names}
        return beside.with_columns(
            pl.when(one == CLEARED).then(None).otherwise(pl.coalesce(one, name)).alias(name)
            for name, one in new.items()
        ).select(rows.columns)
