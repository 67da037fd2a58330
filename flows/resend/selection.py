"""Which rows of a run are resent, and where they are read from: the very bytes of their run, or a
corrected extract.

No linked or awaiting card is resent, and no row that would be refused as before.
"""

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.extracts.mapping import map_rows, plan_mapping
from flows.extracts.opening import open_extract
from flows.extracts.reader import Extract
from flows.results.row_states import CANCELLED, RUN_ROW, run_rows
from flows.runs.attempts import active
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.frames import shaped
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.store import Entry, ObjectMissingError, write_once
from flows.runs.stored_run import StoredRun
from flows.submissions.build import Job
from flows.submissions.normalise import normalise
from flows.submissions.plan import identify, plan_selection
from flows.submissions.row_scope import PICK, RowScope, SelectedRows
from schemas import ledger
from schemas.corrections import AT_SOURCE, BESIDE, ROW, RUN
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import Manifest, Selection, SourceIdentity
from schemas.portal import CUID
from schemas.reasons import reason
from schemas.tables import parquet

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


def asked(
    rows: pl.DataFrame, wanted: RowSelection, also: frozenset[int] = frozenset()
) -> pl.DataFrame:
    """Return the selected rows (RUN_ROW) as ASKED, and those of a corrected file (`also`).

    `reason`: the first code it was refused for. `named`: selected by number or as missing, not by its errors.
    """
    state = pl.col("state")
    found = rows["reasons"].explode().drop_nulls().unique()
    codes, asked_for = (
        {one: one.rpartition("|")[2] for one in found},
        tuple(f"{one}." for one in wanted.codes),
    )
    hits = [
        one
        for one, code in codes.items()
        if f"{code}.".startswith(asked_for) or reason(code).action in wanted.actions
    ]
    by_reason = (
        state.is_in(REFUSED) & pl.col("reasons").list.eval(pl.element().is_in(hits)).list.any()
    )
    by_kind = (
        (pl.lit(wanted.errors) & (state == ERROR))
        | (pl.lit(wanted.rejects) & (state == ledger.REJECTED))
        | by_reason.fill_null(value=False)
        | pl.col("row").is_in(sorted(also))
    )
    by_name = (pl.lit(wanted.missing) & state.is_in([AWAITING, CANCELLED])) | pl.col("row").is_in(
        sorted(wanted.rows)
    )
    first = pl.col("reasons").list.first().str.split("|").list.last()
    reported = rows.with_columns(reason=pl.when(state.is_in(REFUSED)).then(first), named=by_name)
    return reported.filter(by_kind | pl.col("named")).select(
        pl.col(name).cast(kind) for name, kind in ASKED.items()
    )


def active_attempts(attempts: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the attempts (STANDING and expires_on) that keep a card from being resent: awaiting,
    or a living link.
    """
    return attempts.filter(active(today)).select(
        pl.col(name).cast(kind) for name, kind in STANDING.items()
    )


def cards(asked: pl.DataFrame, picks: pl.DataFrame, tried: pl.DataFrame) -> pl.DataFrame:
    """Return origin, cuid, last_4 of the card of every selected row, as it was and as it would be
    now.
    """
    before = asked.select(pl.col("row").alias("origin"), *CARD)
    now = tried.join(picks, on="row").select("origin", *CARD)
    return pl.concat([before, now]).drop_nulls().unique(maintain_order=True)


def decide(
    asked: pl.DataFrame,
    picks: pl.DataFrame,
    tried: pl.DataFrame,
    standing: pl.DataFrame,
    corrected: pl.Series,
    lifted: frozenset[str] | None = None,
) -> pl.DataFrame:
    """Return every selected row: row (of the source), origin, cuid, last_4, state, reason, named,
    why, where, over.

    `asked`: ASKED. `picks`: row of the source, and origin, the selected row it stands for. `tried`: TRIED, today's
    verdict on each row of the source. `standing`: STANDING, cards that are linked or awaiting in
    any run.
    `corrected`: numbers of the selected rows that a corrected file changes. `lifted`: an override is given; it lifts
    active attempts of all runs but these, and such rows go out with `over` true.

    `why` is null where a row goes out; for LINKED and AWAITING `where` names the run.
    """
    # of a row's active attempts the last counts, and one of a run in `lifted` before all
    found = cards(asked, picks, tried).join(standing, on=CARD, maintain_order="right")
    ordered = found.sort(pl.col("run").is_in(sorted(lifted or ())), maintain_order=True)
    blocking = ordered.group_by("origin", maintain_order=True).agg(
        stands=pl.col("state").last(), where=pl.col("run").last()
    )
    verdicts = tried.select("row", "fate", now="reasons")
    reported = (
        asked.rename({"row": "origin"})
        .join(picks, on="origin", how="left", maintain_order="left")
        .join(blocking, on="origin", how="left", maintain_order="left")
        .join(verdicts, on="row", how="left", maintain_order="left")
    )
    stands = pl.col("stands").is_not_null()
    free = (
        pl.lit(value=False)
        if lifted is None
        else ~pl.col("where").is_in(sorted(lifted)).fill_null(value=False)
    )
    decided = reported.with_columns(
        why=pl.when(stands & ~free).then("stands").otherwise(_refused(corrected))
    )
    return decided.select(
        "row", "origin", *(name for name in ASKED if name not in ("row", "reasons")), "why",
        pl.when(stands).then("where").alias("where"), (stands & pl.col("why").is_null()).alias("over"),
    )  # fmt: skip


def _refused(corrected: pl.Series) -> pl.Expr:
    """Return why a row is not sent; one that was corrected goes out all the same, to be rejected in
    its own run.
    """
    column = pl.element().str.split("|").list.first()
    at_source = (
        pl.col("now").list.eval(column.is_in(sorted(AT_SOURCE))).list.any().fill_null(value=False)
    )
    rejected = (pl.col("fate") == ledger.REJECTED) & ~pl.col("origin").is_in(corrected.implode())
    return (
        pl.when(pl.col("row").is_null()).then(pl.lit(NOT_IN_EXTRACT))
        .when(pl.col("fate") == ledger.DUPLICATE).then(pl.lit(REPEATED))
        .when(pl.col("fate") == ledger.SUPPRESSED).then(pl.lit(EXCLUDED))
        .when(rejected & at_source).then(pl.lit(SOURCE))
        .when(rejected).then(pl.lit(UNCHANGED))
    )  # fmt: skip


# A row of the corrected extract, with `number` and `run` where it has such columns.
CORRECTED: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "cuid": pl.String}
LISTED = 10  # rows or lines named in a message


class SourceGoneError(OperatorError):
    """The extract of a run is missing, or has other bytes now."""

    message = "{extract}, the extract of run {run}, is gone or has changed: its rows cannot be read again."
    next_step = (
        "Put the same file back; to resubmit, you can name a newer extract with --extract instead."
    )


class AmbiguousRowsError(OperatorError):
    """Rows of a corrected extract could replace several rows of the run."""

    message = "{extract}: cannot tell which of its rows {rows} replaces which of the rows {run_rows} of {run}."
    next_step = "Give each the number of the row it replaces, once, in a column `row`."


def reopen_source(
    context: IssuerContext, run: str, source: SourceIdentity
) -> tuple[Entry, SourceIdentity]:
    """Return a run's source as it is stored now, checked by its digest; SourceGoneError."""
    store = context.adapters.store
    try:
        with store.open(source.key) as stream:
            entry = stream.entry
        same = source if entry.version == source.version else identify(store, entry)
    except ObjectMissingError:
        raise SourceGoneError(extract=source.key, run=run) from None
    if same.sha256 != source.sha256:
        raise SourceGoneError(extract=source.key, run=run)
    return entry, same


def rows_digest(rows: pl.DataFrame) -> str:
    """Return the SHA-256 of selected rows (row, origin), in any order."""
    return digest(shaped(rows, PICK).sort("row").write_csv().encode())


def selection_job(
    context: IssuerContext,
    source: tuple[Entry, SourceIdentity],
    rows: SelectedRows,
    selection: Selection,
    again: str,
    since: int,
) -> Job:
    """Plan a run of selected rows of a source, and store which they are; the same rows are the same
    bytes.
    """
    entry, identity = source
    plan = plan_selection(
        context, identity, local_day(context.adapters.now(), context.issuer.time_zone), selection
    )
    write_once(context.adapters.store, keys_of(plan.run).selection, parquet(rows.rows.sort("row")))
    return Job(plan, entry, RowScope(selected=rows), (), again, since=since)


def replaced_rows(
    context: IssuerContext, entry: Entry, source: SourceIdentity, manifest: Manifest
) -> tuple[pl.DataFrame, pl.Series]:
    """Return which rows of a corrected extract replace which of a run (PICK), and all its rows;
    AmbiguousRowsError.
    """
    rows = pl.concat(
        [pl.DataFrame(schema=CORRECTED), *_rows(context, entry, source)], how="diagonal"
    )
    if "number" in rows.columns:
        picks = by_number(rows, manifest.run)
    else:
        cuids = rows["cuid"].drop_nulls().unique().implode()
        ours = [
            part.filter(pl.col("cuid").is_in(cuids))
            for part in run_rows(StoredRun.of(context.adapters.store, manifest))
        ]
        picks = by_cuid(rows, pl.concat(ours).select("row", "cuid"))
    unclear = picks.filter(pl.col("row").is_duplicated() | pl.col("origin").is_duplicated())
    if unclear.height:
        raise AmbiguousRowsError(
            extract=entry.key,
            rows=numbered(unclear["row"].unique()),
            run_rows=numbered(unclear["origin"].unique()),
            run=manifest.run,
        )
    return picks, rows["row"]


def by_number(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return row and origin by the column `number`; rows without one, or of another run, replace
    nothing.
    """
    ours = (
        pl.lit(value=True)
        if "run" not in rows.columns
        else pl.col("run").fill_null(run).is_in([run, ""])
    )
    number = pl.col("number").str.strip_chars().cast(pl.UInt32, strict=False)
    return (
        shaped(rows.filter(ours).with_columns(origin=number), PICK)
        .drop_nulls()
        .unique(maintain_order=True)
    )


def by_cuid(rows: pl.DataFrame, ours: pl.DataFrame) -> pl.DataFrame:
    """Return row and origin by cuid; `ours` has row and cuid of every row of the run with one of
    these cuids.
    """
    found = rows.join(ours.rename({"row": "origin"}), on="cuid", maintain_order="left")
    return shaped(found, PICK).drop_nulls().unique(maintain_order=True)


def numbered(rows: pl.Series) -> str:
    """List the first row numbers, and how many more there are."""
    first = ", ".join(str(row) for row in rows.sort().head(LISTED))
    return first + (f" and {len(rows) - LISTED:,} more" if len(rows) > LISTED else "")


def _rows(context: IssuerContext, entry: Entry, source: SourceIdentity) -> Iterator[pl.DataFrame]:
    """Yield row, cuid and, where there are such columns, number and run of every readable row."""
    issuer = context.issuer
    with open_extract(context, entry, source) as stream:
        extract = Extract(stream, issuer.source, source.key)
        mapping = plan_mapping(extract.header, issuer, source.key, context.header.names, BESIDE)
        given = {
            name: header
            for header, name in ((ROW, "number"), (RUN, "run"))
            if header in extract.header
        }
        for block in extract:
            mapped, _ = map_rows(block.rows, mapping)
            named = normalise(mapped, issuer.rules).select("row", pl.col(CUID).alias("cuid"))
            beside = block.rows.select("row", **given)
            named = named.join(beside, on="row", how="left", maintain_order="left")
            yield named.with_columns(pl.col("row").cast(pl.UInt32))
