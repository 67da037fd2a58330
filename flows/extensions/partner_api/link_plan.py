"""Which rows get a single link in one command, and what is known of the others before it begins.

The rows are read again from their extracts, each of which is opened once, and refined exactly as in
a run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import polars as pl

from flows.book import standing
from flows.book.book import read_book
from flows.book.people import is_counted
from flows.errors import OperatorError
from flows.extensions.partner_api.link_requests import service_of
from flows.extensions.partner_api.service import LinkRequestError
from flows.extracts.decode import Readable
from flows.extracts.opening import open_extract
from flows.reports.unlinked import without_link
from flows.resend.corrections import by_row, cells_of
from flows.resend.selected_run import reopen_source
from flows.results.row_states import run_rows
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.errors import NoSuchRowError, numbered
from flows.runs.keys import RunId
from flows.runs.single_links import SingleLink
from flows.runs.stored_run import StoredRun
from flows.submissions.gates import WrongCardsError
from flows.submissions.row_scope import PICK, RowScope, SelectedRows
from flows.submissions.scan import Scan
from schemas.ledger import ERROR
from schemas.manifest import SourceIdentity
from schemas.portal import (
    ADDRESS1,
    CITY,
    COUNTRY,
    CUID,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
)
from schemas.records import LINKED, REFUSED, UNKNOWN

# what a request requires beside the card (interface.md 2.8)
HOLDER: Final = (
    *(FIRST_NAME, LAST_NAME, ADDRESS1, CITY, SUBNATIONAL, POSTAL_CODE, COUNTRY, PHONE),
)
NO_RECORD = "row.record.missing"  # the extract has no such row any more


class NotTypedError(OperatorError):
    """A row's extract is gone, and what a request requires of its cardholder was not typed in."""

    message = (
        "No link was requested: the extract of {run} is gone or has changed, and name, address and "
        "phone number of row {row} were not typed in."
    )
    next_step = "Run {same_command} at a terminal and type them in, or put the same file back."


class RefinedRows(NamedTuple):
    """Rows that a request can be made of, with all columns, and the codes of the others."""

    rows: pl.DataFrame
    refused: Mapping[int, str]

    def single(self) -> dict[str, Any]:
        """Return the only row; LinkRequestError says why there is none."""
        for row in self.rows.iter_rows(named=True):
            return row
        raise LinkRequestError(codes=", ".join(self.refused.values()) or NO_RECORD)


def refined_rows(context: IssuerContext, run: StoredRun, rows: Collection[int]) -> RefinedRows:
    """Return rows (from 1) of a run's source, refined, with what was corrected.

    Raises LedgerPurgedError, NoSuchRowError, SourceGoneError, WrongCardsError.
    """
    manifest = run.committed()
    # without its ledger it is unknown whether the card has a link
    run.refuse_purged()
    numbers = pl.Series("row", sorted(rows), pl.UInt32)
    stored = pl.concat(part["row"] for part in run.ledger(["row"]))
    missing = numbers.filter(~numbers.is_in(stored.implode()))
    if missing.len():
        raise NoSuchRowError(place=run.id, rows=numbered(missing))
    entry, source = reopen_source(context, run.id, manifest.source)
    picks = pl.DataFrame({"row": numbers, "origin": numbers}, PICK)
    selected = SelectedRows(picks, by_row(cells_of(context, manifest)))
    with open_extract(context, entry, source) as stream:
        return refine(context, stream, source, RowScope(selected, keep_cells=True))


def typed_row(run: StoredRun, row: int, supply: Callable[[str], str]) -> dict[str, Any]:
    """Return a row without its extract: what the ledger has of the card, and HOLDER as supplied.

    Nothing of the card number is in it, so that only a reference can name the card. Raises
    NotTypedError.
    """
    records = pl.concat(run.ledger(["row", "cuid", "last_4", "expiration"])).filter(row=row)
    [(cuid, last_4, expiration)] = records.select("cuid", "last_4", "expiration").rows()
    typed = {column: supply(column) for column in HOLDER}
    if not all(typed.values()):
        raise NotTypedError(run=run.id, row=row)
    known = {CUID: cuid, "last_4": last_4, "expiration": expiration}
    return {"row": row, **known, IS_PRIMARY: "TRUE", **typed}


def refine(
    context: IssuerContext, stream: Readable, source: SourceIdentity, scope: RowScope
) -> RefinedRows:
    """Return the rows of a source that a scope selects; WrongCardsError for cards of the other
    kind.
    """
    issuer = context.issuer
    today = local_day(context.adapters.now(), issuer.time_zone)
    scan = Scan(context, stream, source, today, scope)
    pieces = list(scan)
    _refuse_wrong_cards(source, scan, is_test=issuer.test)
    chunks = list(chain.from_iterable(piece.chunks for piece in pieces))
    refused = pl.concat(piece.others for piece in pieces).select("row", "reasons")
    codes = {row: _codes(reasons) for row, reasons in refused.iter_rows()}
    return RefinedRows(pl.concat(chunks) if chunks else pl.DataFrame(), codes)


def _refuse_wrong_cards(source: SourceIdentity, scan: Scan, *, is_test: bool) -> None:
    """Refuse real cards of a test issuer, and test cards of any other."""
    if is_test:
        count = scan.route.other_cards
        kind = "real"
    else:
        count = scan.route.test_cards
        kind = "test"
    if count:
        raise WrongCardsError(extract=source.key, count=count, kind=kind, test=str(is_test).lower())


def _codes(reasons: Collection[str]) -> str:
    """Return reasons (`column|code`) as their codes, each once."""
    codes = [reason.rpartition("|")[2] for reason in reasons or ()]
    return ", ".join(dict.fromkeys(codes)) or NO_RECORD


LOST: Final = "lost"  # requested, and its answer is not known
UNREQUESTED: Final = "not requested"
NO_ANSWER: Final = "no answer is recorded"


class RowName(NamedTuple):
    """A row of a run, by its number from 1."""

    run: str
    row: int


class RowOutcome(NamedTuple):
    """What became of a row; `is_earlier`: of an earlier command, so that nothing was requested."""

    outcome: str
    why: str = ""
    is_earlier: bool = False


class RunRows(NamedTuple):
    """The rows of a run that are due, refined, and how often each was requested before."""

    run: StoredRun
    rows: pl.DataFrame
    requests: Counter[int]


class LinkPlan(NamedTuple):
    """What is to be requested, and the outcomes of the rows for which nothing is."""

    due: Sequence[RunRows]
    outcomes: dict[RowName, RowOutcome]
    runs: Sequence[StoredRun]

    @property
    def cuids(self) -> frozenset[str]:
        """The cuids of the rows that are due."""
        return frozenset(chain.from_iterable(part.rows[CUID] for part in self.due))

    @property
    def names(self) -> Iterator[RowName]:
        """The rows that are due."""
        for part in self.due:
            for row in part.rows["row"]:
                yield RowName(part.run.id, row)


def plan_links(
    context: IssuerContext, names: Iterable[RowName], *, retry_refused: bool = False
) -> LinkPlan:
    """Read the named rows from their extracts, each of which is opened once.

    A row that was linked, refused or lost as a single link before is not requested again; with
    `retry_refused` one that was refused is. Raises as `refined_rows` and NoServiceError.
    """
    service_of(context)
    by_run = dict[str, set[int]]()
    for name in names:
        by_run.setdefault(name.run, set()).add(name.row)
    plan = LinkPlan([], {}, [StoredRun.by_id(context.adapters, run) for run in by_run])
    parts = [_planned(context, run, by_run[run.id], plan, retry_refused) for run in plan.runs]
    return plan._replace(due=[part for part in parts if not part.rows.is_empty()])


def _planned(
    context: IssuerContext, run: StoredRun, rows: set[int], plan: LinkPlan, retry_refused: bool
) -> RunRows:
    """Return the rows of a run that are due, and note the outcomes of the others."""
    requests = Counter[int]()
    settled = dict[int, RowOutcome | None]()  # by the last attempt of each row
    for attempt in run.single_link_attempts:
        row = attempt.asked.row
        if row in rows:
            requests[row] += 1
            settled[row] = _earlier(context, attempt, retry_refused)
    due = {row for row in rows if settled.get(row) is None}
    outcomes = {row: outcome for row, outcome in settled.items() if outcome is not None}
    frame = pl.DataFrame()
    if due:
        refined = refined_rows(context, run, due)
        frame = refined.rows
        good = set() if frame.is_empty() else set(frame["row"])
        for row in due - good:
            outcomes[row] = RowOutcome(UNREQUESTED, refined.refused.get(row, NO_RECORD))
    plan.outcomes.update({RowName(run.id, row): outcomes[row] for row in sorted(outcomes)})
    return RunRows(run, frame, requests)


def _earlier(context: IssuerContext, attempt: SingleLink, retry_refused: bool) -> RowOutcome | None:
    """Return what an earlier request for a row came to; None where it may be requested again."""
    answer = attempt.answered
    if answer is None or attempt.state == UNKNOWN:
        return RowOutcome(LOST, NO_ANSWER, is_earlier=True)
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    if attempt.state == LINKED and (answer.expires_on is None or answer.expires_on >= today):
        return RowOutcome(LINKED, is_earlier=True)
    if attempt.state == REFUSED and not retry_refused:
        return RowOutcome(REFUSED, ", ".join(answer.reasons), is_earlier=True)
    return None


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
    unanswered = cards.filter(is_counted(cards) & (cards["standing"] == standing.UNKNOWN.name))
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
