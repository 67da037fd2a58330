"""`cardlink service probe`: one link and one job of the real service, and a first profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field, Issuer, Number, RunName
from flows.commands.private_files import write_new
from flows.commands.result import Part, Result, Table
from flows.configuration import FileThereError
from flows.wiring import wire

with on_first_use():
    from flows.partner_api import connection, fields, guesses, known_links, service
    from flows.runs import stored_run, stored_runs
    from schemas.partner_api import profile as profiles

if TYPE_CHECKING:
    from flows.partner_api.known_links import KnownLink
    from flows.runs.context import IssuerContext
    from schemas.partner_api.profile import Profile

NO_FORM = "it shows the shape of the partner's answers to a person who writes the settings"


@entry("service probe", form=NO_FORM)
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
    propose the tables of [service] that fit them.

    No value is shown, and no message is read, since each is given only once.

    Args:
        issuer: Whose service.
        run: A run with links (default: the newest).
        row: A linked row of the run, by its number.
        job: A job's id at the partner (default: one that is known of the link).
        write: A new file for the proposed tables.

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
        "link": fields.fields_of(record),
        "job": fields.fields_of(job_record) if job_id else {},
    }
    facts |= _proposed(wired.issuer.service or profiles.INTERFACE, facts, record, job_record)
    if write is not None:
        write_new(write, [f"{facts['profile']}\n".encode()])
        facts["file"] = str(write)
    return Result(facts, list(_shown(facts)))


def _proposed(
    settings: Profile, facts: Mapping[str, Any], record: object, job_record: object
) -> dict[str, Any]:
    """Return the tables that fit what was answered, and what a person has to answer."""
    proposals = [guesses.guessed_link(record, facts["link"], settings.link)]
    doubts = list[str]()
    if facts["job"]:
        proposals.append(guesses.guessed_job(job_record, facts["job"], settings.job))
    else:
        doubts.append("job: no job of this link is known; name one with --job")
    tables = ["\n".join(proposal.lines) for proposal in proposals if proposal.lines]
    in_proposals = chain.from_iterable(proposal.doubts for proposal in proposals)
    return {"profile": "\n\n".join(tables), "doubts": [*in_proposals, *doubts], "file": ""}


def _link(wired: IssuerContext, run: str, row: int | None) -> KnownLink:
    """Return the link to ask about; NothingToProbeError without one."""
    settings = wired.issuer.service
    issuer = wired.issuer.issuer
    if settings is None:
        raise service.NoServiceError(issuer=issuer)
    if run:
        runs = [stored_run.StoredRun.by_id(wired.adapters, run)]
    else:
        runs = list(stored_runs.StoredRuns(wired.adapters, issuer).with_ledger())
    link = known_links.newest_link(runs, settings, row)
    if link is None or link.link_id is None:
        why = "no row has a link" if link is None else "no id is found in its URL"
        raise known_links.NothingToProbeError(issuer=issuer, why=why)
    return link


def _shown(facts: Mapping[str, Any]) -> Iterator[Part]:
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
