"""The corrected-file loop: write a run's correction template, take a filled-in one in, and merge what was corrected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from flows.core.errors import OperatorError
from flows.core.extract.extract_errors import checked_name
from flows.core.life.filled import misplaced, read_filled, refuse
from flows.core.life.template import template
from flows.core.life.wanted import Wanted, asked
from flows.core.names import corrections
from flows.core.ports import Entry, Store
from flows.core.run.planning import digest
from flows.steps.again.reread import source_again
from flows.steps.answers.lineage import settled_since
from flows.steps.answers.run_rows import committed, run_rows
from flows.steps.edges import IssuerEdges, read, write_once
from flows.steps.runs import keys_of, read_manifest
from schemas.manifest import Manifest, SourceIdentity

LARGEST = 64 << 20  # bytes of a filled-in template: it is read in memory
REFUSED_ROWS = Wanted(errors=True, rejects=True)
CELL = {"row": pl.UInt32, "column": pl.String, "correction": pl.String}


class CorrectionsNotFoundError(OperatorError):
    """No filled-in template, and no corrected extract, of that name."""

    message = "No file {name} under {prefix}."
    next_step = "Drop it there, or name a file of this machine with --corrections."


class CorrectionsTooLargeError(OperatorError):
    """A file far larger than any filled-in template."""

    message = "{name} is {size:,} bytes, too large for a correction template."
    next_step = "Name a corrected extract with --extract."


class Given(NamedTuple):
    """A filled-in template: what identifies its bytes, and them."""

    source: SourceIdentity
    content: bytes


def correction_template(edges: IssuerEdges, run: str, wanted: Wanted = REFUSED_ROWS) -> Iterator[pl.DataFrame]:
    """Yield the template (`schemas.corrections.Template`) of a committed run's rows, part by part; UnknownRunError.

    Rows that were sent again since and are linked or awaiting need no correction, unless they are asked for by number.
    """
    store = edges.edges.store
    manifest = committed(store, run)
    done = pl.col("row").is_in(settled_since(store, manifest).implode())
    for rows in run_rows(store, manifest):
        yield template(asked(rows, wanted).filter(pl.col("named") | ~done), run)


def given_as(edges: IssuerEdges, name: str, content: bytes) -> Given:
    """Return a filled-in template of this machine as it will be known once it is dropped."""
    key = corrections(edges.issuer.issuer) + checked_name(name)
    return Given(SourceIdentity(key=key, version="", size=len(content), sha256=digest(content)), content)


def give(edges: IssuerEdges, name: str, content: bytes) -> Given:
    """Drop a filled-in template, create-only, and return it as it is known there; ConflictError."""
    write_once(edges.edges.store, given_as(edges, name, content).source.key, content)
    return take(edges, name)


def find_dropped(edges: IssuerEdges, name: str) -> Entry:
    """Return the file of that name among the issuer's corrections; CorrectionsNotFoundError."""
    prefix = corrections(edges.issuer.issuer)
    for entry in edges.edges.store.keys(prefix):
        if entry.key in (checked_name(name), prefix + name):
            return entry
    raise CorrectionsNotFoundError(name=name, prefix=prefix)


def take(edges: IssuerEdges, name: str) -> Given:
    """Return a filled-in template that was dropped; CorrectionsNotFoundError, CorrectionsTooLargeError."""
    entry = find_dropped(edges, name)
    if entry.size > LARGEST:
        raise CorrectionsTooLargeError(name=entry.key, size=entry.size)
    content = read(edges.edges.store, entry.key)
    identity = SourceIdentity(key=entry.key, version=entry.version, size=len(content), sha256=digest(content))
    return Given(identity, content)


def corrected_cells(given: Given, manifest: Manifest, store: Store) -> pl.DataFrame:
    """Return row, column, correction of a filled-in template, held against the rows of its run.

    Raises CorrectionsUnreadableError, CorrectionsRefusedError.
    """
    name = given.source.key.rpartition("/")[2]
    filled = read_filled(given.content, name, manifest.run)
    numbers = filled["row"].unique().implode()
    found = [rows.filter(pl.col("row").is_in(numbers)) for rows in run_rows(store, manifest)]
    refuse(name, misplaced(filled, pl.concat(found)))
    return filled.select(*CELL)


def cells_of(edges: IssuerEdges, manifest: Manifest) -> pl.DataFrame:
    """Return row, column, correction of every cell that a run took from filled-in templates, its own the last.

    A run that repeats another with the same source took over what was corrected there. SourceGoneError.
    """
    selection = manifest.selection
    before = read_manifest(edges.edges.store, keys_of(selection.of)) if selection else None
    if selection is None or before is None or before.source.sha256 != manifest.source.sha256:
        return pl.DataFrame(schema=CELL)
    cells = cells_of(edges, before)
    if selection.corrections is None:
        return cells
    entry, source = source_again(edges, manifest.run, selection.corrections)
    given = Given(source, read(edges.edges.store, entry.key))
    return merge(cells, corrected_cells(given, before, edges.edges.store))


def merge(earlier: pl.DataFrame, later: pl.DataFrame) -> pl.DataFrame:
    """Return the cells of both, the later ones where both correct the same."""
    return pl.concat([earlier, later]).unique(["row", "column"], keep="last", maintain_order=True)


def by_row(cells: pl.DataFrame) -> pl.DataFrame:
    """Return one line per row with a column for each that is corrected, as `flows.core.rows.picked.Picked` takes it."""
    if cells.is_empty():
        return pl.DataFrame(schema={"row": pl.UInt32})
    return cells.pivot(on="column", index="row", values="correction")
