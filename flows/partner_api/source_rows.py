"""Rows for single links: read again from their extract and refined exactly as in a run.

An extract is opened once, however many of its rows are requested. Where the partner has the card,
a row whose extract is gone is what its ledger has and what is typed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.extracts.decode import Readable
from flows.extracts.opening import open_extract
from flows.partner_api.service import LinkRequestError
from flows.resend.corrections import by_row, cells_of
from flows.resend.selected_run import reopen_source
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.errors import NoSuchRowError, numbered
from flows.runs.stored_run import StoredRun
from flows.submissions.gates import WrongCardsError
from flows.submissions.row_scope import PICK, RowScope, SelectedRows
from flows.submissions.scan import Scan
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
    return {CUID: cuid, "last_4": last_4, "expiration": expiration, IS_PRIMARY: "TRUE", **typed}


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
