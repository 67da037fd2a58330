"""The corrections of a run: files of an issuer's corrections, and the cells they change."""

import polars as pl

from flows.errors import OperatorError
from flows.extracts.errors import checked_name
from flows.resend.filled_template import CorrectionsUnreadableError, misplaced, read_filled, refuse
from flows.resend.selected_run import reopen_source
from flows.results.row_states import run_rows
from flows.runs.context import IssuerContext
from flows.runs.dropped_files import dropped_files
from flows.runs.identity import digest
from flows.runs.keys import corrections, extracts
from flows.runs.store import Entry, read
from flows.runs.stored_run import StoredRun
from flows.steps import Option, Sentence
from schemas.manifest import Manifest, SourceIdentity

LARGEST = 64 << 20  # bytes of a filled-in template: it is read in memory
CELL = {"row": pl.UInt32, "column": pl.String, "correction": pl.String}


class CorrectionsNotFoundError(OperatorError):
    """There is no filled-in template or corrected extract of that name."""

    message = "No file {name} under {prefix}."
    next_step = Sentence(
        "Put it there, or name a file on this machine with {corrections}.",
        corrections=Option("--corrections", of="resubmit"),
    )


class CorrectedExtractNotFoundError(OperatorError):
    """There is no corrected extract of that name among the corrections."""

    message = "No file {name} under {prefix}, where corrected extracts are; {others}."
    next_step = "Put a copy of the corrected extract there, and run {same_command} again."


def find_dropped(context: IssuerContext, name: str) -> Entry | None:
    """Return the issuer's correction file of that name, None where there is none."""
    prefix = corrections(context.issuer.issuer)
    for entry in dropped_files(context.adapters.store, prefix).files:
        if entry.key in (checked_name(name), prefix + name):
            return entry
    return None


def find_corrected_extract(context: IssuerContext, name: str) -> Entry:
    """Return the corrected extract of that name; CorrectedExtractNotFoundError."""
    entry = find_dropped(context, name)
    if entry is not None:
        return entry
    issuer = context.issuer.issuer
    key = extracts(issuer) + name
    is_extract = any(dropped.key == key for dropped in context.adapters.store.keys(key))
    others = f"{extracts(issuer)} has one" if is_extract else f"{extracts(issuer)} has none either"
    raise CorrectedExtractNotFoundError(name=name, prefix=corrections(issuer), others=others)


def read_corrections(context: IssuerContext, name: str) -> tuple[SourceIdentity, bytes]:
    """Return a stored, filled-in template; CorrectionsNotFoundError, CorrectionsUnreadableError."""
    entry = find_dropped(context, name)
    if entry is None:
        raise CorrectionsNotFoundError(name=name, prefix=corrections(context.issuer.issuer))
    if entry.size > LARGEST:
        problem = Sentence(
            "it is {size:,} bytes; the limit is {limit:,}. To use a corrected extract: {option}",
            size=entry.size,
            limit=LARGEST,
            option=Option("--extract", of="resubmit"),
        )
        raise CorrectionsUnreadableError(name=entry.key, problem=problem)
    content = read(context.adapters.store, entry.key)
    sha256 = digest(content)
    identity = SourceIdentity(
        key=entry.key, version=entry.version, size=len(content), sha256=sha256
    )
    return identity, content


def corrected_cells(name: str, content: bytes, run: StoredRun) -> pl.DataFrame:
    """Return row, column, correction of a filled-in template, checked against its run.

    Raises as `read_filled`.
    """
    filled = read_filled(content, name, run.id)
    is_corrected = pl.col("row").is_in(filled["row"].unique().implode())
    parts = [rows.filter(is_corrected) for rows in run_rows(run)]
    refuse(name, misplaced(filled, pl.concat(parts)))
    return filled.select(*CELL)


def cells_of(context: IssuerContext, manifest: Manifest) -> pl.DataFrame:
    """Return row, column, correction of every cell that a run took from filled-in templates.

    First those of the run it repeats, if that has the same source; the last one of a cell counts.
    SourceGoneError.
    """
    store = context.adapters.store
    selection = manifest.selection
    none = pl.DataFrame(schema=CELL)
    if selection is None:
        return none
    run = StoredRun.by_id(context.adapters, selection.of)
    repeated = run.manifest
    if repeated is None or repeated.source.sha256 != manifest.source.sha256:
        return none
    cells = cells_of(context, repeated)
    if selection.corrections is None:
        return cells
    entry, _ = reopen_source(context, manifest.run, selection.corrections)
    content = read(store, entry.key)
    later = corrected_cells(entry.key.rpartition("/")[2], content, run)
    return pl.concat([cells, later])


def by_row(cells: pl.DataFrame) -> pl.DataFrame:
    """Return one line per row, with the last corrections, as `SelectedRows` takes them."""
    if cells.is_empty():
        return pl.DataFrame(schema={"row": pl.UInt32})
    return cells.pivot(on="column", index="row", values="correction", aggregate_function="last")
