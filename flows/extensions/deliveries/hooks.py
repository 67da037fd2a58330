"""What the kernel is told of deliveries and acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flows.commands import on_first_use

with on_first_use():
    from flows import install
    from flows.extensions.deliveries import (
        acknowledgement,
        commands,
        delivered,
        delivery,
        personal,
        reaching,
        settings,
        watching,
    )
    from flows.extensions.deliveries import matters as waiting
    from flows.operations import alert_kinds as alert_kinds_of
    from flows.operations import metrics


if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    import polars as pl
    from sqlalchemy import Connection

    from flows.book.book import Book
    from flows.commands.result import Result
    from flows.commands.trace import History
    from flows.errors import CardlinkError
    from flows.install import Scheduled
    from flows.operations.alert_kinds import Cause
    from flows.operations.alert_kinds import Kind as AlertKind
    from flows.reports.balance import Line
    from flows.reports.work import Work
    from flows.reports.work_kinds import Kind
    from flows.runs.adapters import Adapters
    from flows.runs.context import IssuerContext
    from flows.runs.erased import Mention, People, Place
    from flows.runs.notices import Event
    from flows.runs.store import Cleaner, Entry
    from flows.runs.stored_run import StoredRun
    from flows.steps import Step
    from schemas.issuer import Issuer


def after_commit(context: IssuerContext, result: Result) -> Result:
    """Tell the issuer of its extracts."""
    return commands.with_acknowledgements(context, result)


def after_ingest(context: IssuerContext, result: Result) -> Result:
    """Deliver links to the receivers that want them now, and tell the issuer of its extracts."""
    delivered = commands.with_deliveries(context, result)
    return commands.with_acknowledgements(context, delivered)


def work_kinds() -> Iterable[Kind]:
    """Return the kinds of lines of the worklist."""
    return waiting.KINDS


def matters(context: IssuerContext, book: Book, now: datetime) -> Iterator[Work]:
    """Yield the lines of the worklist."""
    return waiting.matters(context, book, now)


def names_erased(adapters: Adapters, issuer: str) -> bool:
    """Return whether erased cardholders may be named until somebody confirms a withdrawal."""
    return waiting.names_erased(adapters, issuer)


def alert_kinds() -> dict[str, AlertKind]:
    """Return the kinds of alerts."""
    return {
        "issuer-not-told": alert_kinds_of.Kind(
            "The issuer was not told of an extract, or has not confirmed it",
            "Acknowledge by hand, which says what stands in the way; ask for the receipt.",
        ),
        "links-not-taken": alert_kinds_of.Kind(
            "Links have not come to a receiver, or it has not confirmed them",
            "Check the issuer, which says what stands in the way; ask the receiver. "
            "It is tried again.",
        ),
    }


def alerts(context: IssuerContext) -> Iterator[Cause]:
    """Yield what is wrong now."""
    return watching.alerts(context)


def checks(context: IssuerContext) -> Iterator[tuple[str, str | CardlinkError]]:
    """Try where the issuer is told, and each receiver of links."""
    return watching.checks(context)


def gauges() -> list[metrics.Gauge]:
    """Return the metric of how many deliveries there were."""
    return [
        metrics.Gauge("deliveries", "Deliveries of links.", "", delivered.written, "counter"),
    ]


def balance_lines(context: IssuerContext, run: StoredRun) -> Iterator[Line]:
    """Yield the equation of what the issuer was told of a run."""
    return acknowledgement.balance_lines(context, run)


def delivered_links(connection: Connection, issuer: str) -> pl.DataFrame:
    """Return the links that receivers were handed, and may use."""
    return delivered.delivered_links(delivered.read_changes(connection, issuer))


def history(adapters: Adapters, issuer: str, cuid: str) -> History:
    """Return what receivers have of a cardholder's links."""
    return delivered.history(adapters, issuer, cuid)


def events(context: IssuerContext) -> Iterator[Event]:
    """Bring to receivers what they lack, and yield the events of deliveries."""
    return reaching.events(context)


def scheduled(issuer: Issuer) -> Scheduled:
    """Return the deployments of receivers that have a schedule of their own."""
    tables = settings.receivers_in(issuer)
    crons = {name: table.cron for name, table in tables.items() if table.cron}
    variables = {
        name: {"CARDLINK_RECEIVER": name, "CARDLINK_CRON": cron} for name, cron in crons.items()
    }
    return install.Scheduled("deliver", "prefect-receiver.yaml", variables)


def evidence() -> str:
    """Return the pattern of what decides who has which link."""
    return r"[^/]+/deliveries/([a-z][a-z0-9-]*/)?\d{6}/(links[^/]*|done\.json)"


def folders() -> tuple[str, ...]:
    """Return the folders of an issuer that retention and erasures clean."""
    return ("deliveries", "acknowledgements")


def places() -> dict[str, Place]:
    """Return where personal data is kept."""
    return personal.PLACES


def mentions(context: IssuerContext, people: People, runs: Collection[str]) -> Iterator[Mention]:
    """Yield what names some cardholders."""
    return personal.mentions(context, people, runs)


def erase(
    _context: IssuerContext, cleaner: Cleaner, _people: People, named: Iterable[Mention]
) -> None:
    """Delete what names them and nobody has to confirm first."""
    personal.erase(cleaner, named)


def withdrawal_step(context: IssuerContext, people: People) -> Step | None:
    """Return the step that withdraws their links; None where nobody may use one."""
    return delivery.withdrawal_step(context, people)


def erase_confirmed(
    context: IssuerContext,
    cleaner: Cleaner,
    people: People,
    named: Iterable[Mention],
    note: Callable[[Sequence[str]], None],
) -> None:
    """Take them out of deliveries, once nobody may use a link of theirs."""
    personal.erase_confirmed(context, cleaner, people, named, note)


def purgeable(context: IssuerContext, until: datetime) -> Mapping[str, Sequence[Entry]]:
    """Return what names cardholders and is as old as that, by kind."""
    return personal.purgeable(context, until)


def before_purge(context: IssuerContext, keys: Collection[str]) -> None:
    """Delete the rows of deliveries whose links are among these."""
    personal.before_purge(context, keys)


def recovered(adapters: Adapters, issuer: str) -> None:
    """Read from the store what the journal does not have."""
    personal.recovered(adapters, issuer)
