"""`cardlink record`: what the partner's record of one link says, in words, without its secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field
from flows.commands.result import Part, Result, Table
from flows.redaction import redact

with on_first_use():
    from flows.partner_api import connection, known_links, link_ids, link_record, single_request
    from flows.runs import business_date, stored_run

if TYPE_CHECKING:
    from flows.partner_api.link_ids import LinkedRow
    from flows.runs.context import IssuerContext

NO_FORM = "it is for a person who asks about one cardholder's link"
UNLIKE: Final = 4  # exit code where the record is not as our own


class QueriedLink(NamedTuple):
    """The link whose record is asked for, and the row that has it, where it is known."""

    link_id: str
    title: str
    row: LinkedRow | None = None


@entry("record", form=NO_FORM)
def show_record(
    context: Context,
    target: Annotated[str, Field(metavar="RUN|ISSUER")],
    link: Annotated[str, Field(metavar="ROW|LINK")],
) -> Result:
    """Show the partner's record of one link in words: when it expires, whether it was opened, whose
    it is, and where it differs from our own.

    Neither its URL nor its token is shown, nor any other value that could be personal: other fields
    only by name and type. Exit code 4 where it differs.

    Args:
        target: A run, or an issuer.
        link: With a run, the number of a linked row; with an issuer, the link's URL or its id at
            the partner.

    Example:
        cardlink record first-bank-20261120-3f9c21aa 12
    """
    wired = context.context_of_target(target)
    query = _query(context, wired, target, link)
    settings = single_request.service_of(wired)
    with connection.service_client(wired.issuer) as client:
        document = client.link_document(query.link_id)
    record = link_record.read_record(document, settings)
    doubts = list(link_record.differences(record, query.row)) if query.row else []
    facts: dict[str, Any] = {
        "issuer": wired.issuer.issuer,
        "run": target if query.row else None,
        "row": query.row.row if query.row else None,
        "record": record.facts,
        "fields": record.others,
        "doubts": doubts,
    }
    today = business_date.local_day(wired.adapters.now(), wired.issuer.time_zone)
    shown = list(_shown(query.title, record.words(today), facts))
    return Result(facts, shown, exit_code=UNLIKE if doubts else 0)


def _query(context: Context, wired: IssuerContext, target: str, link: str) -> QueriedLink:
    """Return the link of a row, of a URL, or of an id; NothingToProbeError without one."""
    issuer = wired.issuer.issuer
    settings = single_request.service_of(wired)
    if not context.issuer_of(target):
        row = _row(wired, target, link)
        if row.link_id is None:
            raise known_links.NothingToProbeError(issuer=issuer, why="its URL has no id of its own")
        return QueriedLink(row.link_id, f"{issuer}: the link of row {row.row} of {target}", row)
    link_id = settings.id_of(link) if "://" in link else link
    if not link_id:
        raise known_links.NothingToProbeError(issuer=issuer, why="no id is found in its URL")
    return QueriedLink(link_id, f"{issuer}: the link")


def _row(wired: IssuerContext, run: str, number: str) -> LinkedRow:
    """Return a linked row of a run."""
    stored = stored_run.StoredRun.by_id(wired.adapters, run)
    links = link_ids.RunLinks(single_request.service_of(wired), stored)
    row = links.of_row(int(number)) if number.isdecimal() else None
    if row is None:
        why = f"{redact(number)} is no linked row of {run}"
        raise known_links.NothingToProbeError(issuer=wired.issuer.issuer, why=why)
    return row


def _shown(title: str, words: Mapping[str, str], facts: Mapping[str, Any]) -> Iterator[Part]:
    yield title
    yield ""
    yield Table(("record", "what it says"), list(words.items()))
    if facts["fields"]:
        yield ""
        yield Table(("other field, not shown", "type"), list(facts["fields"].items()))
    if facts["doubts"]:
        yield ""
    yield from (f"doubt: {doubt}" for doubt in facts["doubts"])
