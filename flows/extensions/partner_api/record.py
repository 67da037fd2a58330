"""`cardlink record` and `cardlink service probe`: what the partner's record of one link says.

In words, and by the types of its fields, without its secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field, Issuer, Number, RunName
from flows.commands.private_files import write_new
from flows.commands.result import Part, Result, Table
from flows.configuration import FileThereError
from flows.redaction import redact
from flows.wiring import wire

with on_first_use():
    from flows.extensions.partner_api import (
        connection,
        link_requests,
        probe,
        run_links,
        settings,
        translation,
    )
    from flows.extensions.partner_api import profile as profiles
    from flows.runs import business_date, stored_run, stored_runs

if TYPE_CHECKING:
    from flows.extensions.partner_api.profile import Profile
    from flows.extensions.partner_api.run_links import KnownLink, LinkedRow
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
    settings = link_requests.service_of(wired)
    with connection.service_client(wired.issuer) as client:
        document = client.link_document(query.link_id)
    record = probe.read_record(document, settings)
    doubts = list(probe.differences(record, query.row)) if query.row else []
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
    settings = link_requests.service_of(wired)
    if not context.issuer_of(target):
        row = _row(wired, target, link)
        if row.link_id is None:
            raise run_links.NothingToProbeError(issuer=issuer, why="its URL has no id of its own")
        return QueriedLink(row.link_id, f"{issuer}: the link of row {row.row} of {target}", row)
    link_id = settings.id_of(link) if "://" in link else link
    if not link_id:
        raise run_links.NothingToProbeError(issuer=issuer, why="no id is found in its URL")
    return QueriedLink(link_id, f"{issuer}: the link")


def _row(wired: IssuerContext, run: str, number: str) -> LinkedRow:
    """Return a linked row of a run."""
    stored = stored_run.StoredRun.by_id(wired.adapters, run)
    links = run_links.RunLinks(link_requests.service_of(wired), stored)
    row = links.of_row(int(number)) if number.isdecimal() else None
    if row is None:
        why = f"{redact(number)} is no linked row of {run}"
        raise run_links.NothingToProbeError(issuer=wired.issuer.issuer, why=why)
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


NO_PROBE_FORM = "it shows the shape of the partner's answers to a person who writes the settings"


@entry("service probe", form=NO_PROBE_FORM)
def service_probe(
    context: Context,
    issuer: Issuer,
    run: RunName = "",
    row: Number | None = None,
    *,
    job: Annotated[str, Field(metavar="JOB")] = "",
    write: Path | None = None,
) -> Result:
    """Ask ISSUER's service for one link and one job, show which fields came, by name and type, and
    propose the names of [service] that fit them.

    No value is shown, and no message is read, since each is given only once.

    Args:
        issuer: Whose service.
        run: A run with links (default: the newest).
        row: A linked row of the run, by its number.
        job: A job's id at the partner (default: one that is known of the link).
        write: A new file for the proposed names.

    Example:
        cardlink service probe first-bank --write service.toml
    """
    if write is not None and write.exists():
        raise FileThereError(path=str(write))
    wired = wire(context.folder, issuer)
    with connection.service_client(wired.issuer) as client:
        link = _link(wired, run, row)
        job_id = job or link.job_id
        record = client.link_document(link.link_id or "")
        job_record = client.job_document(job_id) if job_id else None
    facts = {
        "issuer": issuer,
        "run": link.run,
        "row": link.row,
        "link": translation.fields_of(record),
        "job": translation.fields_of(job_record) if job_id else {},
    }
    profile = wired.issuer.table(settings.ServiceSettings) or profiles.INTERFACE
    facts |= _proposed(profile, facts, record, job_record)
    if write is not None:
        write_new(write, [f"{facts['profile']}\n".encode()])
        facts["file"] = str(write)
    return Result(facts, list(_shape_shown(facts)))


def _proposed(
    settings: Profile, facts: Mapping[str, Any], record: object, job_record: object
) -> dict[str, Any]:
    """Return the tables that fit what was answered, and what a person has to answer."""
    proposals = [probe.guessed("link", record, facts["link"], settings)]
    doubts = list[str]()
    if facts["job"]:
        proposals.append(probe.guessed("job", job_record, facts["job"], settings))
    else:
        doubts.append("job: no job of this link is known; name one with --job")
    lines = list(chain.from_iterable(proposal.lines for proposal in proposals))
    table = ["[service.names]", *lines] if lines else []
    in_proposals = chain.from_iterable(proposal.doubts for proposal in proposals)
    return {"profile": "\n".join(table), "doubts": [*in_proposals, *doubts], "file": ""}


def _link(wired: IssuerContext, run: str, row: int | None) -> KnownLink:
    """Return the link to ask about; NothingToProbeError without one."""
    issuer = wired.issuer.issuer
    service_settings = link_requests.service_of(wired)
    if run:
        runs = [stored_run.StoredRun.by_id(wired.adapters, run)]
    else:
        runs = list(stored_runs.StoredRuns(wired.adapters, issuer).with_ledger())
    link = run_links.newest_link(runs, service_settings, row)
    if link is None or link.link_id is None:
        why = "no row has a link" if link is None else "no id is found in its URL"
        raise run_links.NothingToProbeError(issuer=issuer, why=why)
    return link


def _shape_shown(facts: Mapping[str, Any]) -> Iterator[Part]:
    yield f"{facts['issuer']}: the link of row {facts['row']} of {facts['run']}"
    for name in ("link", "job"):
        if facts[name]:
            yield ""
            yield Table((f"field of the {name}", "type"), list(facts[name].items()))
    yield ""
    profile = facts["profile"] or "the interface's own names fit: no table is needed"
    yield from profile.splitlines()
    yield from (f"doubt: {doubt}" for doubt in facts["doubts"])
    if facts["file"]:
        yield f"written: {facts['file']}"
