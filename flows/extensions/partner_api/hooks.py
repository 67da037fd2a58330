"""What the kernel is told of the partner's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.commands import on_first_use

with on_first_use():
    from flows.extensions.partner_api import (
        connection,
        follow_links,
        funnel_words,
        link_stages,
    )
    from flows.extensions.partner_api import (
        personal_data as own_data,
    )
    from flows.operations import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import date
    from typing import Any

    import polars as pl

    from flows.operations.personal_data import Mention
    from flows.reports.sections import Section
    from flows.runs.context import IssuerContext
    from flows.runs.erased import People
    from flows.runs.store import Cleaner
    from flows.runs.stored_run import StoredRun
    from flows.runs.stored_runs import StoredRuns
    from schemas.manifest import LedgerPart
    from schemas.personal_data import Place


def checks(context: IssuerContext) -> Iterator[tuple[str, str]]:
    """Try the partner's service: credentials, login, clock, one record."""
    for line in connection.check_service(context):
        yield "service", line


def summary_facts(run: StoredRun, today: date) -> dict[str, Any]:
    """Return the funnel of a run; nothing where nobody has reported anything."""
    funnel = follow_links.run_funnel(run, today)
    return {"funnel": funnel} if funnel is not None else {}


def across_facts(context: IssuerContext) -> dict[str, Any]:
    """Return the funnel over an issuer's runs, as the last check found it."""
    issuer = context.issuer.issuer
    return {"funnel": funnel_words.stored_funnel(context.adapters.store, issuer)}


def sections(facts: Mapping[str, Any]) -> Iterator[Section]:
    """Yield the funnel as a report shows it."""
    if facts.get("funnel"):
        yield funnel_words.section(facts["funnel"])


def gauges() -> list[metrics.Gauge]:
    """Return how many cardholders reached a stage, and of how many that is not known."""
    known = "Cardholders who reached a stage."
    unknown = "Cardholders of whom nobody knows."
    return [
        metrics.Gauge("cardholders_reached", known, "stage", funnel_words.reached),
        metrics.Gauge("cardholders_unknown", unknown, "stage", funnel_words.unknown),
    ]


def stages(runs: StoredRuns) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return what says of cards how far their links came."""
    return link_stages.stages_of(runs)


def personal_places() -> dict[str, Place]:
    """Return the places in which cardholders are named."""
    from schemas.personal_data import Place  # which asks for this while it is imported

    place = Place(
        "ids at the partner, whether the link was opened, merchants at which the card was placed",
        "the funnel",
        "[retention] ledger_days after the last answer",
        erased=True,
    )
    return {"placements": place}


def data_of_rows(run: StoredRun, part: LedgerPart, rows: Sequence[int]) -> Iterator[Mention]:
    """Yield the placements of rows."""
    return own_data.placements_of_rows(run, part, rows)


def personal_data(context: IssuerContext, people: People) -> Iterator[Mention]:
    """Yield what transaction reports say of cardholders."""
    return own_data.reports_on(context, people)


def erase_rows(cleaner: Cleaner, run: StoredRun, part: LedgerPart, rows: Sequence[int]) -> None:
    """Take rows out of the placements."""
    own_data.erase_placements(cleaner, run, part, rows)


def erase_people(context: IssuerContext, people: People, named: Iterable[Mention]) -> None:
    """Take cardholders out of transaction reports."""
    own_data.erase_in_reports(context, people, named)
