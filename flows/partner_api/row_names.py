"""Names of the rows that single links are wanted for: what the partner refused, or a file's lines.

A line of a file is `RUN,ROW`, or a cuid: the last attempt of each of its cards.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Final

import polars as pl

from flows.book.book import read_book
from flows.book.people import is_counted
from flows.book.standing import UNKNOWN
from flows.errors import OperatorError
from flows.partner_api.link_plan import RowName
from flows.reports.unlinked import without_link
from flows.results.row_states import run_rows
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.errors import numbered
from flows.runs.keys import RunId
from flows.runs.stored_run import StoredRun
from schemas.ledger import ERROR

HEADS: Final = ("run,row", "cuid")  # first lines that name columns
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class RowsFileError(OperatorError):
    """A file of rows has lines that name none."""

    message = "{file} names no row of {issuer} in these lines: {lines}. Nothing was requested."
    next_step = "A line is RUN,ROW, the row as errors.csv of that run has it, or a cuid."


def refused_rows(run: StoredRun) -> list[RowName]:
    """Return the rows of a run that the partner refused and that have no link since."""
    run.refuse_purged()
    refused = pl.concat(part.filter(state=ERROR)["row"] for part in run_rows(run))
    return [RowName(run.id, row) for row in refused]


def refused_rows_of_all_runs(context: IssuerContext) -> list[RowName]:
    """Return the rows by which the partner refused last the cards that have no link.

    And those of cards whose link was requested singly without an answer, as lost as those of a run.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = read_book(context.adapters, context.issuer.issuer)
    rows = pl.concat(_without_link(part.cards(today)) for part in book.parts())
    return [RowName(*pair) for pair in rows.sort("run", "row").iter_rows()]


def _without_link(cards: pl.DataFrame) -> pl.DataFrame:
    """Return run and row of the cards that the partner refused, or has not answered about."""
    lacking = without_link(cards)
    refused = lacking.filter(pl.col("stage") == "partner")
    unanswered = cards.filter(is_counted(cards) & (cards["standing"] == UNKNOWN.name))
    columns = ("run", "row")
    rows = pl.concat([refused.select(columns), unanswered.select(columns)])
    return rows.filter(pl.col("run") != "")


def rows_of_file(context: IssuerContext, file: str, content: bytes) -> list[RowName]:
    """Return the rows that the lines of a file name, each once, in order; RowsFileError.

    A line that names none is reported by its number alone: it may hold anything.
    """
    lines = _lines(content)
    issuer = context.issuer.issuer
    cuids = {line for line in lines.values() if not _is_row(line)}
    by_cuid = _last_rows(context, cuids) if cuids else {}
    named = {number: _rows(line, issuer, by_cuid) for number, line in lines.items()}
    unknown = [number for number, rows in named.items() if not rows] if named else [1]
    if unknown:
        raise RowsFileError(file=file, issuer=issuer, lines=numbered(unknown))
    return list(dict.fromkeys(chain.from_iterable(named.values())))


def _lines(content: bytes) -> dict[int, str]:
    """Return the lines of a file that say something, by their number; a header says nothing."""
    lines = [line.strip() for line in content.decode("utf-8-sig", "replace").splitlines()]
    if lines and lines[0].lower().replace(" ", "") in HEADS:
        lines[0] = ""
    return {number: line for number, line in enumerate(lines, 1) if line}


def _is_row(line: str) -> bool:
    """Return whether a line names a row of a run, of whatever issuer."""
    run, _, row = line.partition(",")
    return RunId.parse(run.strip()) is not None and _NUMBER.fullmatch(row.strip()) is not None


def _rows(line: str, issuer: str, by_cuid: Mapping[str, list[RowName]]) -> list[RowName]:
    """Return the rows of the issuer that a line names."""
    if not _is_row(line):
        return by_cuid.get(line, [])
    run, _, row = line.partition(",")
    run_id = RunId.parse(run.strip())
    is_own = run_id is not None and run_id.issuer == issuer
    return [RowName(run.strip(), int(row))] if is_own else []


def _last_rows(context: IssuerContext, cuids: Collection[str]) -> dict[str, list[RowName]]:
    """Return the row of the last attempt for each card of these cuids, by cuid."""
    book = read_book(context.adapters, context.issuer.issuer)
    is_of_run = pl.col("cuid").is_in(sorted(cuids)) & (pl.col("run") != "")
    attempts = book.attempts.filter(is_of_run & pl.col("row").is_not_null())
    last = attempts.unique(["cuid", "last_4", "twin"], keep="last", maintain_order=True)
    rows = dict[str, list[RowName]]()
    for cuid, run, row in last.select("cuid", "run", "row").iter_rows():
        rows.setdefault(cuid, []).append(RowName(run, row))
    return rows
