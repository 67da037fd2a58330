"""What the kernel is told of the partner's API; each function imports what it needs when it is
asked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from flows.operations.metrics import Gauge
    from flows.operations.personal_data import Mention
    from flows.reports.sections import Section
    from flows.runs.context import IssuerContext
    from flows.runs.erased import People
    from flows.runs.store import Cleaner
    from flows.runs.stored_run import StoredRun
    from flows.runs.stored_runs import StoredRuns
    from schemas.manifest import LedgerPart
    from schemas.personal_data import Place


def checks(context: "IssuerContext") -> Iterator[tuple[str, str]]:
    """Yield what is fine about the partner's service; raise what is not."""
    from flows.extensions.partner_api.connection import check_service

    for line in check_service(context):
        yield "service", line


def summary_facts(run: "StoredRun", today: date) -> dict[str, Any]:
    """Return the funnel of a run; nothing where nobody has reported anything."""
    from flows.extensions.partner_api.follow_links import run_funnel

    funnel = run_funnel(run, today)
    return {"funnel": funnel} if funnel is not None else {}


def across_facts(context: "IssuerContext") -> dict[str, Any]:
    """Return the funnel over an issuer's runs, as the last check found it."""
    from flows.extensions.partner_api.funnel_words import stored_funnel

    return {"funnel": stored_funnel(context.adapters.store, context.issuer.issuer)}


def sections(facts: Mapping[str, Any]) -> "Iterator[Section]":
    """Yield the funnel as a report shows it."""
    from flows.extensions.partner_api.funnel_words import section

    if facts.get("funnel"):
        yield section(facts["funnel"])


def gauges() -> "list[Gauge]":
    """Return how many cardholders reached a stage, and of how many that is not known."""
    from flows.extensions.partner_api.funnel_words import reached, unknown
    from flows.operations.metrics import Gauge

    return [
        Gauge("cardholders_reached", "Cardholders who reached a stage.", "stage", reached),
        Gauge("cardholders_unknown", "Cardholders of whom nobody knows.", "stage", unknown),
    ]


def stages(runs: "StoredRuns") -> "Callable[[pl.DataFrame], pl.DataFrame]":
    """Return what says how far the links of cards came."""
    from flows.extensions.partner_api.link_stages import stages_of

    return stages_of(runs)


def personal_places() -> "dict[str, Place]":
    """Return the places in which cardholders are named."""
    from flows.extensions.partner_api.personal_data import PLACE

    return {"placements": PLACE}


def data_of_rows(run: "StoredRun", part: "LedgerPart", rows: Sequence[int]) -> "Iterator[Mention]":
    """Yield the placements of rows."""
    from flows.extensions.partner_api.personal_data import placements_of_rows

    return placements_of_rows(run, part, rows)


def personal_data(context: "IssuerContext", people: "People") -> "Iterator[Mention]":
    """Yield what transaction reports say of cardholders."""
    from flows.extensions.partner_api.personal_data import reports_on

    return reports_on(context, people)


def erase_rows(
    cleaner: "Cleaner", run: "StoredRun", part: "LedgerPart", rows: Sequence[int]
) -> None:
    """Take rows out of the placements."""
    from flows.extensions.partner_api.personal_data import erase_placements

    erase_placements(cleaner, run, part, rows)


def erase_people(context: "IssuerContext", people: "People", named: "Iterable[Mention]") -> None:
    """Take cardholders out of transaction reports."""
    from flows.extensions.partner_api.personal_data import erase_in_reports

    erase_in_reports(context, people, named)
