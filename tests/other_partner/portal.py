"""The portal's files: cardholders in, links out, and the report of transactions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Container, Sequence
from datetime import UTC, datetime

from tests.other_partner import wire
from tests.other_partner.world import World

RESULT = ("cuid", "last_4", "url", "expiration_date", "error")
TRANSACTION = (
    "Transaction Time",
    "External Ref",
    "merchant_site_hostname",
    "Result",
    "Termination",
)
REQUIRED = (
    "service_card.pan",
    "service_card.expiration_year",
    "service_card.expiration_month",
    "service_card.address.address1",
    "service_card.address.city",
    "service_card.address.subnational",
    "service_card.address.country",
    "service_card.address.postal_code",
    "service_card.address.first_name",
    "service_card.address.last_name",
    "service_card.address.is_primary",
)
RESULTS = {
    "SUCCESSFUL": "Card Placed Successfully",
    "DUPLICATE_CARD": "Card Already On File",
    "TIMEOUT_TFA": "Cardholder Did Not Respond",
    "AUTH_FAILURE": "Invalid Credentials",
    "SITE_UNAVAILABLE": "Merchant Site Unavailable",
}


def table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as CSV below their header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows(rows)
    return out.getvalue()


def result_of(world: World, uploaded: str, refused: Container[str] = ()) -> str:
    """Make a link for each cardholder of an uploaded file; return the output file.

    `refused`: cuids for which nothing can be made today.
    """
    rows = list(csv.DictReader(io.StringIO(uploaded)))
    if len(rows) > 1000:
        raise ValueError("a file has at most 1000 cardholders")
    return table(RESULT, [_result_row(world, row, refused) for row in rows])


def _result_row(world: World, row: dict[str, str], refused: Container[str]) -> tuple[str, ...]:
    cuid = row.get("cardholder.cuid", "")
    missing = [name for name in REQUIRED if not row.get(name)]
    if missing:
        error = {"cuid": cuid, "errors": [f"{name} is required" for name in missing]}
        return ("", "", "", "", json.dumps(error))
    if cuid in refused:
        error = {"cuid": cuid, "errors": ["Vault unavailable, try again later"]}
        return ("", "", "", "", json.dumps(error))
    link = world.make_link(cuid, row["service_card.pan"][-4:])
    ends = datetime.fromtimestamp(link.expires, UTC)
    address = f"{wire.START}?k={link.key}"
    return (link.cuid, link.last_4, address, f"{ends:%Y-%m-%d}", "")


def transactions(world: World) -> str:
    """Return the report of the jobs that have ended."""
    world.pass_time()
    ended = [job for job in world.jobs.values() if job.now.termination]
    rows = [
        (
            f"{datetime.fromtimestamp(job.updated, UTC):%Y-%m-%d %H:%M:%S}",
            job.link.cuid,
            job.site,
            RESULTS[job.now.status],
            job.now.termination or "",
        )
        for job in ended
    ]
    return table(TRANSACTION, rows)
