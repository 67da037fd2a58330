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
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from datetime import date
    from typing import Any

    import polars as pl

    from flows.reports.sections import Section
    from flows.runs.context import IssuerContext
    from flows.runs.erased import Mention, People, Place
    from flows.runs.store import Cleaner
    from flows.runs.stored_run import StoredRun
    from flows.runs.stored_runs import StoredRuns


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


def folders() -> tuple[str, ...]:
    """Return the folders of an issuer that erasures clean."""
    return ("placements",)


def places() -> dict[str, Place]:
    """Return where personal data is kept."""
    return own_data.PLACES


def mentions(context: IssuerContext, people: People, runs: Collection[str]) -> Iterator[Mention]:
    """Yield what is known of some cardholders."""
    return own_data.mentions(context, people, runs)


def erase(
    context: IssuerContext, cleaner: Cleaner, people: People, named: Iterable[Mention]
) -> None:
    """Take them out of it."""
    own_data.erase(context, cleaner, people, named)
