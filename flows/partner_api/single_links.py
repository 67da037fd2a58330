"""One link for one cardholder, now: for a row of a run, or for fields typed in.

The row is prepared exactly as in a run, requested once, and recorded before and after the request.
"""

from __future__ import annotations

import csv
import secrets
from collections.abc import Mapping
from io import BytesIO, StringIO
from typing import Any

from flows.partner_api.card_guard import CardGuard
from flows.partner_api.service import Linking
from flows.partner_api.single_request import (
    AS_USUAL,
    SingleRequests,
    Supply,
    Terms,
    nothing_supplied,
    prepared_request,
)
from flows.partner_api.source_rows import refine, refined_rows, typed_row
from flows.redaction import hiding
from flows.reports.behind import finish_reports, report_behind
from flows.resend.selected_run import SourceGoneError
from flows.runs.context import IssuerContext
from flows.runs.keys import RunKeys, prompted_prefix
from flows.runs.single_links import SingleLink
from flows.runs.stored_run import StoredRun
from flows.submissions.row_scope import RowScope
from schemas.manifest import SourceIdentity
from schemas.portal import CUID, columns
from schemas.source import SourceSettings


def link_row(
    context: IssuerContext,
    linking: Linking,
    run: str,
    row: int,
    *,
    terms: Terms = AS_USUAL,
    supply: Supply = nothing_supplied,
) -> SingleLink:
    """Request one link for a row (from 1) of a run's source, and count it in the run's report.

    The row is read and refined again, or typed in where its extract is gone and the partner's
    reference names the card. Raises NotTypedError, NoServiceError, LedgerPurgedError,
    NoSuchRowError, SourceGoneError, LinkRequestError, CardTakenError, and what the service's client
    raises.
    """
    stored = StoredRun.by_id(context.adapters, run)
    fields = _fields(context, stored, row, terms, supply)
    earlier = [single for single in stored.single_link_attempts if single.asked.row == row]
    finish_reports(context)
    key = attempt_key(stored.keys, row, len(earlier) + 1)
    requests = SingleRequests(context, linking)
    references = terms.references
    reference = references.of(stored, row, fields[CUID]) if references else None
    prepared = prepared_request(
        context, fields, key, stored.keys, row, terms=terms, supply=supply, reference=reference
    )
    CardGuard(context).refuse_taken(prepared.attempt)
    try:
        with hiding(*prepared.secrets):  # a refusal may repeat them
            return requests.send(prepared)
    finally:
        report_behind(context, [stored.fresh()])


def _fields(
    context: IssuerContext, run: StoredRun, row: int, terms: Terms, supply: Supply
) -> dict[str, Any]:
    """Return a row as a request is made of it, from its extract.

    By reference it may be gone: what it had of the cardholder is supplied then.
    """
    try:
        return refined_rows(context, run, [row]).single()
    except SourceGoneError:
        if terms.references is None:
            raise
    return typed_row(run, row, supply)


def attempt_key(keys: RunKeys, row: int, number: int) -> str:
    """Return the key of the attempt of that number, from 1, for a row of a run."""
    return f"{keys.singles}{row:09d}-{number}.json"


def link_typed(
    context: IssuerContext, linking: Linking, typed: Mapping[str, str], *, terms: Terms = AS_USUAL
) -> SingleLink:
    """Request one link for typed-in fields, under the portal's column names.

    They pass every rule an extract's row does. Without a cuid one is made that has nothing to do
    with the card. Raises as `link_row` does.
    """
    as_the_portal_has_them = {
        "source": SourceSettings(),
        "columns": {},
        "status": {},
        "eligible": context.issuer.eligible.model_copy(update={"where": {}}),
        "full_portfolio": False,
    }
    issuer = context.issuer.model_copy(update=as_the_portal_has_them)
    text = StringIO()
    cells = [typed.get(name, "") for name in columns()]
    csv.writer(text, lineterminator="\n").writerows([columns(), cells])
    source = SourceIdentity(key="typed.csv", version="", size=0, sha256=secrets.token_hex(32))
    stream = BytesIO(text.getvalue().encode())
    scope = RowScope(keep_cells=True)
    refined = refine(context._replace(issuer=issuer), stream, source, scope)
    name = f"{context.adapters.now():%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.json"
    key = f"{prompted_prefix(context.issuer.issuer)}{name}"
    requests = SingleRequests(context, linking)
    prepared = prepared_request(context, refined.single(), key, terms=terms)
    CardGuard(context).refuse_taken(prepared.attempt)
    with hiding(*prepared.secrets):
        return requests.send(prepared)
