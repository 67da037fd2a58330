"""A link of an issuer that its service can be asked about, and a job of its cardholder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.partner_api.link_ids import LinkIds
from flows.partner_api.stored_placements import linked_rows
from flows.runs.placements import read_placements
from flows.runs.stored_run import StoredRun
from flows.steps import Sentence, Slot, Step
from schemas.partner_api.service import ServiceSettings


class NothingToProbeError(OperatorError):
    """There is no link whose record could be asked for."""

    message = "There is no link of {issuer} to ask about: {why}."
    next_step = Sentence(
        "Ingest results first; {placements} says what is known of links. Where no id is found, "
        "correct [service] link_id or link_id_from.",
        placements=Step("placements", Slot("issuer")),
    )


class KnownLink(NamedTuple):
    """A linked row: its link's id at the service, and the id of a job that is known of it."""

    run: str
    row: int
    link_id: str | None
    job_id: str | None


def newest_link(
    runs: Sequence[StoredRun], settings: ServiceSettings, row: int | None = None
) -> KnownLink | None:
    """Return a link of the newest of these runs that has any, or of a row; None without one.

    One whose cardholder has a job comes first.
    """
    for run in reversed(runs):
        link = next(_links_of(run, settings, row), None)
        if link is not None:
            return link
    return None


def _links_of(run: StoredRun, settings: ServiceSettings, row: int | None) -> Iterator[KnownLink]:
    if run.summary is None:
        return
    ids = LinkIds(settings, run)
    for part in run.committed().ledger:
        jobs = read_placements(run, part, ["row", "job_id"])
        rows = linked_rows(run, part).join(jobs, on="row", how="left")
        if row is not None:
            rows = rows.filter(row=row)
        for link in rows.sort(pl.col("job_id").is_null(), "row").iter_rows(named=True):
            link_id = ids.of(link["url"], link["cuid"])
            yield KnownLink(run.id, link["row"], link_id, link["job_id"])
