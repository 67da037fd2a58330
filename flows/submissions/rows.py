"""The one route from a source row to a chunk line: map, normalise, repair, validate, hash, make
the line, find duplicates, look up the card in other runs.

Every row that is sent, by whatever command and however large its file, passes these functions in
this order. Every row of a block comes out exactly once: as good, or as a ledger record that says
why it is not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date
from functools import cached_property, partial
from typing import NamedTuple

import polars as pl

from flows.extracts.mapping import ELIGIBLE, REISSUE, Mapping, map_rows, with_dates
from flows.extracts.reader import Block
from flows.runs.cards import (
    FINGERPRINTS,
    add_fingerprints,
    fingerprint,
)
from flows.runs.erased import NOBODY, ErasedPeople
from flows.submissions.chunk_csv import lines
from flows.submissions.deletions import as_deletions, as_left_out
from flows.submissions.duplicates import Table, verdicts_on_duplicates, with_keys
from flows.submissions.eligibility import ineligible
from flows.submissions.erased_rows import part_by_content, part_by_cuid
from flows.submissions.ledger import (
    unread_records,
    unsent_records,
    with_changes,
    with_reasons,
)
from flows.submissions.lost_letters import LostLetters, verdicts_on_lost_letters
from flows.submissions.normalise import normalise
from flows.submissions.prior_state import resend_policy
from flows.submissions.rejected_cells import (
    NO_TEXTS,
    Texts,
    found,
    once_for_a_date,
    texts_of,
)
from flows.submissions.repairs import EVIDENCE, Evidence, refuse_scientific, repair
from flows.submissions.row_scope import RowScope
from flows.submissions.rows_alone import map_block, records_alone
from flows.submissions.sample import Sample
from flows.submissions.superseded import EndedCards
from flows.submissions.validate import VERDICT, validate
from schemas import ledger
from schemas.cvv import replace_cvvs
from schemas.expressions import is_test_card
from schemas.issuer import Issuer
from schemas.manifest import Layout, SourceIdentity
from schemas.portal import CUID, MONTH, PAN, PROSE, YEAR
from schemas.reasons import EXCLUDED, UNKNOWN_STATUS

TOGETHER = 20_000  # selected rows that go along the route at once, about
FIRST_ROWS = 5  # rows of which the lines are named, for each reason
NAMELESS = "cardholder.cuid.missing"  # in a portfolio such a row would be sent again every night
_REJECTED = pl.lit(ledger.REJECTED)
_DUPLICATE = pl.lit(ledger.DUPLICATE)
_SUPPRESSED = pl.lit(ledger.SUPPRESSED)
_IDENTITY = ["row", "line", CUID, "cuid_made", "last_4", "expiration"]
_KEPT = [*_IDENTITY, "key", "tag", "test", *FINGERPRINTS, "text"]


class ReasonRows(NamedTuple):
    """One reason: how many rows of an extract have it, and the lines of the first of them."""

    code: str
    rows: int
    lines: tuple[int, ...]


class Normalised(NamedTuple):
    """A block's rows, normalised and repaired; and those that are not sent.

    `unread` are lines with a code, `known` ledger records of those that are left out or deleted, or
    lack a part; `lost` are the columns that lost letters.
    """

    rows: pl.DataFrame
    unread: pl.DataFrame
    known: pl.DataFrame
    texts: Texts
    lost: frozenset[str]


def together(blocks: Iterable[Normalised]) -> Iterator[Normalised]:
    """Yield blocks of selected rows as fewer, larger ones: in each there may be few of them."""
    waiting: list[Normalised] = []
    for block in blocks:
        waiting.append(block)
        if sum(block.rows.height for block in waiting) >= TOGETHER:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(blocks: Sequence[Normalised]) -> Normalised:
    rows = pl.concat([block.rows for block in blocks])
    return Normalised(
        rows,
        pl.concat([block.unread for block in blocks], how="diagonal"),
        pl.concat([block.known for block in blocks]),
        texts_of(rows, {}, rows),
        blocks[-1].lost,  # decided by all rows, where the first block has a sign of it
    )


class Validated(NamedTuple):
    """A block after `normalise`, the verdicts on its eligible rows, and what rejected cells hold.

    `why` says of each row why it is not eligible, as `column|code`; null: it is.
    """

    block: Normalised
    verdicts: pl.DataFrame
    found: pl.DataFrame
    why: pl.Series


class Route:
    """Take the blocks of one extract along the route, in order; remembers their rows to find
    duplicates.

    `normalise`, `validate` and `process` each take every block in order, and may run beside each
    other.
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
        erased: ErasedPeople = NOBODY,
    ) -> None:
        self._erased = erased
        self._issuer = issuer
        self._mapping = mapping
        self._as_of = as_of
        self._name = source.key
        self._scope = scope
        self._order = order
        self._reread = reread
        self._cuid_prefix = f"cl-{source.sha256[:12]}-"
        self._evidence = Evidence(issuer.repairs, source.key)
        self._turned_off = self._evidence.turned_off
        self._decided_repairs: frozenset[str] | None = None
        self._lost_letters = LostLetters(partial(self._all_rows, PROSE))
        self._knows_date_forms = False
        self._seen = Table(source.newlines)
        self.sample = scope.inspection.sample if scope.inspection else Sample()
        self._reasons: dict[str, ReasonRows] = {}
        self.repairs: Counter[str] = Counter()
        self.unknown_values = Counter[tuple[str, str]]()  # that refuse the extract: column, label
        self.test_cards = 0
        self.other_cards = 0

    def normalise(self, block: Block) -> Normalised:
        """Map, normalise and repair a block."""
        rules = self._issuer.rules
        selected = self._scope.selected
        if not self._knows_date_forms:
            self._mapping = with_dates(self._mapping, block.rows, self._reread, self._scope.note)
            self._knows_date_forms = True
        mapped, alone = map_block(block, self._mapping)
        mapped = self._ended_cards.decide(mapped)
        self.unknown_values.update(mapped.values)
        self.sample.add(mapped.sent.drop(ELIGIBLE, strict=False))
        rows = normalise(mapped.sent, rules)
        decided = self._decide_repairs(rows)
        lost = self._lost_letters.columns(rows)
        unknown = _with_code(mapped.unknown, UNKNOWN_STATUS)
        unread = pl.concat([block.refused, unknown], how="diagonal")
        left_out = mapped.left_out
        deleted = mapped.deleted
        if selected is not None:
            rows = normalise(selected.correct(selected.keep(mapped.sent)), rules)
            unread = selected.keep(unread)
            left_out = selected.keep(left_out)
            deleted = selected.keep(deleted)
            alone = None if alone is None else selected.keep(alone)
        rows, repaired = repair(rows, decided)
        self.repairs.update(repaired)
        if selected is not None:  # a corrected postal code is never repaired
            rows = normalise(selected.correct(rows, codes=True), rules)
        rows = _with_identity(rows, self._cuid_prefix)
        origins = {} if selected is not None else self._mapping.origins
        texts = texts_of(block.rows, origins, rows)
        known = [self._left_out(left_out), self._deletions(deleted)]
        if alone is not None and not alone.is_empty():
            known.append(records_alone(alone, self._as_of, self._issuer.rules))
        return Normalised(rows, unread, pl.concat(known), texts, lost)

    def _left_out(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the ledger records of rows that `[status]` leaves out.

        Of a full portfolio without their cards, which have left as if it did not name them.
        """
        if rows.is_empty() or self._issuer.full_portfolio:
            return unread_records(_with_code(rows, EXCLUDED), _SUPPRESSED)
        rows = normalise(rows, self._issuer.rules)
        identified = _with_identity(rows, self._cuid_prefix)
        left_out = as_left_out(identified, self._as_of, self._issuer.rules)
        return unsent_records(left_out, _SUPPRESSED)

    @cached_property
    def _ended_cards(self) -> EndedCards:
        """Which cards rows of the extract leave out or delete; for that it is read a second time.

        Only where `[status]` decides.
        """
        if self._mapping.decisions.decision is None:
            return EndedCards()
        return EndedCards.of(self._reread(), self._mapping)

    def _deletions(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the ledger records of rows that are marked as deleted."""
        if rows.is_empty():
            return pl.DataFrame(schema=ledger.dtypes()).drop("origin")
        rows = normalise(rows, self._issuer.rules)
        verdicts = validate(rows, self._as_of, self._issuer.rules)
        deletions = as_deletions(_with_identity(rows, self._cuid_prefix), verdicts)
        return unsent_records(deletions, _SUPPRESSED)

    def _decide_repairs(self, rows: pl.DataFrame) -> frozenset[str]:
        """Return the repairs of the extract, which all its rows decide together.

        There are none while no row would need one.

        Once one could be needed, the extract is read a second time, only for the columns that are
        evidence.
        """
        if self._decided_repairs is not None:
            refuse_scientific(rows, self._issuer.repairs, self._name)
            return self._decided_repairs
        self._evidence.add(rows)
        if self._evidence.needs_all_rows:
            evidence = self._evidence_of_all_rows()
            self._turned_off = evidence.turned_off
            self._decided_repairs = evidence.decide()
        elif not any(self._evidence.possible.values()):
            self._decided_repairs = frozenset()
        return self._decided_repairs or frozenset()

    def _evidence_of_all_rows(self) -> Evidence:
        evidence = Evidence(self._issuer.repairs, self._name)
        for rows in self._all_rows(EVIDENCE):
            evidence.add(rows)
        return evidence

    def _all_rows(self, names: Collection[str]) -> Iterator[pl.DataFrame]:
        """Read the extract a second time, only for these columns."""
        mapping = self._mapping.only(names)
        for block in self._reread():
            yield normalise(map_rows(block.rows, mapping).sent, self._issuer.rules)

    def validate(self, block: Normalised) -> Validated:
        """Validate a block with pandera, by the table of rules."""
        rules = self._issuer.rules
        why = ineligible(block.rows, self._issuer, self._as_of)
        rows = block.rows.filter(why.is_null()) if why.null_count() < len(why) else block.rows
        verdicts = validate(rows, self._as_of, rules)
        if block.lost:
            letters = verdicts_on_lost_letters(rows, block.lost, rules.lost_letters)
            verdicts = pl.concat([verdicts, letters])
        if self._scope.prior is not None and self._issuer.full_portfolio:
            verdicts = pl.concat([verdicts, _verdicts_on_nameless(rows)])
        verdicts = once_for_a_date(verdicts, self._mapping.origins)
        if self._scope.inspection is not None:
            self._scope.inspection.verdicts.update(
                verdicts.select("column", "code", "severity").iter_rows()
            )
        cells = found(block.texts, verdicts)
        # free the extract's rows
        return Validated(block._replace(texts=NO_TEXTS), verdicts, cells, why)

    def process(self, validated: Validated) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return a block's good rows, which are sent, and the ledger records of the others.

        A row is judged by the verdicts, by the rows before it, and by what other runs know of its
        card. Good rows have the ledger's columns, the cuid, and `text`, a chunk's line.
        """
        block, verdicts, cells, why = validated
        eligible, not_eligible = _told_apart(block.rows, why)
        rows, of_erased = part_by_cuid(eligible, self._erased)
        unwanted = part_by_cuid(not_eligible, self._erased)
        decided = part_by_cuid(block.known, self._erased, "cuid")
        rejected = _is_rejected(rows, verdicts)
        known = part_by_content(self._as_lines(rows.filter(~rejected)), self._erased)
        sound = known.others
        clashes = verdicts_on_duplicates(self._seen, sound, self._issuer.rules)
        clashing = _is_rejected(sound, clashes)
        reasons = pl.concat([verdicts, clashes])
        rejects = reasons.filter(severity="reject").join(
            cells, on=["row", "column"], how="left", maintain_order="left"
        )
        warnings = reasons.filter(pl.col("severity") != "reject")
        passed = with_reasons(sound.filter(~clashing), warnings)
        good, suppressed = self._suppress(self._with_origin(passed))
        unsent = pl.concat(
            [rows.filter(rejected).select(_IDENTITY), sound.filter(clashing).select(_IDENTITY)]
        )
        repeats = clashes.filter(pl.col("code").str.ends_with(".repeated"))
        is_repeat = _is_rejected(unsent, repeats)
        fate = pl.when(is_repeat).then(_DUPLICATE).otherwise(_REJECTED)
        others = [
            suppressed,
            unsent_records(with_reasons(unsent, rejects), fate),
            unread_records(block.unread, _REJECTED),
            self._ineligible_records(unwanted.others),
            decided.others,
            *(of_erased, decided.erased, known.erased, unwanted.erased),
        ]
        records = self._with_origin(pl.concat(others)).select(*ledger.dtypes())
        self._count(good, records)
        if self._scope.inspection is not None:
            listed = records.filter(pl.col("fate") != ledger.SUPPRESSED)
            self._scope.inspection.unsent.append(listed)
        return good.drop("key", "tag", "test"), records

    def _ineligible_records(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the ledger records of rows that are not eligible, with `reasons`.

        A cuid is kept as far as it keeps the rules of its column.
        """
        if rows.is_empty():
            return pl.DataFrame(schema=ledger.dtypes()).drop("origin")
        verdicts = validate(rows.drop("reasons"), self._as_of, self._issuer.rules)
        broken = verdicts.filter(column=CUID, severity="reject")["row"].unique()
        is_kept = ~pl.col("row").is_in(broken.implode())
        kept = rows.with_columns(pl.when(is_kept).then(CUID).alias(CUID))
        return unsent_records(kept, pl.lit(ledger.INELIGIBLE))

    def layout(self, record_size: int) -> Layout:
        """Return how the extract was read, once it was; `record_size` as the reader counts it."""
        origins = self._mapping.origins
        columns = {name: origin.column for name, origin in origins.items()}
        return Layout(columns=columns, size=record_size, turned_off=self._turned_off)

    @property
    def reasons(self) -> list[ReasonRows]:
        """The reasons in the ledger, the most frequent first."""
        return sorted(self._reasons.values(), key=lambda reason: (-reason.rows, reason.code))

    def _as_lines(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the line of each (`text`) in place of its cells; CVVs are hashed.

        Keys are added by which other blocks know a row, and fingerprints for other runs.
        """
        hashed = replace_cvvs(rows)
        text = lines(hashed, self._order)
        cells = rows if self._scope.keep_cells else hashed
        as_lines = cells.with_columns(text.alias("text"), is_test_card(pl.col(PAN)).alias("test"))
        known = _with_fingerprints(with_keys(as_lines))
        return known if self._scope.keep_cells else known.select(_KEPT)

    def _with_origin(self, rows: pl.DataFrame) -> pl.DataFrame:
        selected = self._scope.selected
        origin = pl.lit(None, pl.UInt32) if selected is None else selected.origins(rows)
        return rows.with_columns(origin.alias("origin"))

    def _suppress(self, good: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Separate the rows to send from those whose card other runs have sent (`PriorState`)."""
        prior = self._scope.prior
        if prior is None:
            return good, pl.DataFrame(schema=ledger.dtypes()).drop("origin")
        why = prior.suppressed(good, self._as_of, resend_policy(self._issuer, self._as_of))
        suppressed = good.filter(why.is_not_null()).with_columns(
            reasons=pl.concat_list("|" + pl.lit(why.drop_nulls()))
        )
        records = unsent_records(suppressed, _SUPPRESSED)
        return good.filter(why.is_null()), with_changes(records, suppressed)

    def _count(self, good: pl.DataFrame, records: pl.DataFrame) -> None:
        """Count the reasons in the ledger and the kinds of cards that are sent."""
        reasons = (
            pl.concat(frame.select("line", "reasons") for frame in (good, records))
            .explode("reasons")
            .drop_nulls()
        )
        code = pl.col("reasons").str.split("|").list.last().alias("code")
        counted = reasons.group_by(code).agg(pl.len(), pl.col("line").bottom_k(FIRST_ROWS))
        for name, rows, first in counted.iter_rows():
            before = self._reasons.get(name, ReasonRows(name, 0, ()))
            lines_of_first = (*before.lines, *sorted(first))[:FIRST_ROWS]
            self._reasons[name] = ReasonRows(name, before.rows + rows, lines_of_first)
        test_cards = int(good["test"].sum())
        self.test_cards += test_cards
        self.other_cards += good.height - test_cards


def _told_apart(rows: pl.DataFrame, why: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the eligible rows, and the others with `reasons`."""
    if why.null_count() == len(why):
        return rows, rows.clear()
    others = rows.with_columns(reasons=pl.concat_list(why.alias("why")))
    return rows.filter(why.is_null()), others.filter(why.is_not_null())


def _with_code(lines: pl.DataFrame, code: str) -> pl.DataFrame:
    """Return lines as those that are refused: row, line, code."""
    return lines.with_columns(code=pl.lit(code))


def _with_fingerprints(rows: pl.DataFrame) -> pl.DataFrame:
    """Add FINGERPRINTS, by which other runs know a card and whether it has changed."""
    reissue = pl.lit(None, pl.UInt32)
    if REISSUE in rows.columns:
        reissue = pl.when(pl.col(REISSUE).is_not_null()).then(fingerprint(rows, REISSUE))
    return add_fingerprints(rows.with_columns(reissue_check=reissue))


def _verdicts_on_nameless(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the verdicts on rows of a portfolio that have no cuid of the issuer's."""
    verdict = {"column": pl.lit(CUID), "code": pl.lit(NAMELESS), "severity": pl.lit("reject")}
    return rows.filter("cuid_made").select("row", **verdict).select(*VERDICT)


def _is_rejected(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.Series:
    """Return which rows a verdict rejects."""
    return rows["row"].is_in(verdicts.filter(severity="reject")["row"].unique().implode())


def _with_identity(rows: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """Add cuid_made, last_4 and expiration (YYMM), and a cuid where there is none.

    It is `cl-<12 hex of the extract's SHA-256>-<row>`.
    """
    pan = pl.col(PAN)
    month = pl.col(MONTH)
    year = pl.col(YEAR)
    dated = year.str.contains("^[0-9]{2}$") & month.str.contains("^(0[1-9]|1[0-2])$")
    absent = rows[CUID].is_null()
    if absent.any():  # rare, and texts for all rows are not free
        rows = rows.with_columns(pl.col(CUID).fill_null(prefix + pl.col("row").cast(pl.String)))
    return rows.with_columns(
        absent.alias("cuid_made"),
        pl.when(pan.str.contains("^[0-9]{16}$")).then(pan.str.slice(-4)).alias("last_4"),
        pl.when(dated).then(year + month).alias("expiration"),
    )
