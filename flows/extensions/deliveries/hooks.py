"""What the kernel is told of deliveries and acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flows.commands import on_first_use

with on_first_use():
    from flows.commands import acknowledgement, delivery
    from flows.extensions.deliveries import alerts as alerting
    from flows.extensions.deliveries import checks as checking
    from flows.extensions.deliveries import matters as waiting
    from flows.extensions.deliveries import work
    from flows.operations import alert_kinds as alert_kinds_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from flows.book.book import Book
    from flows.commands.result import Result
    from flows.errors import CardlinkError
    from flows.operations.alert_kinds import Cause
    from flows.operations.alert_kinds import Kind as AlertKind
    from flows.reports.work import Work
    from flows.reports.work_kinds import Kind
    from flows.runs.adapters import Adapters
    from flows.runs.context import IssuerContext


def after_commit(context: IssuerContext, result: Result) -> Result:
    """Tell the issuer of its extracts."""
    return acknowledgement.with_acknowledgements(context, result)


def after_ingest(context: IssuerContext, result: Result) -> Result:
    """Deliver links to the receivers that want them now, and tell the issuer of its extracts."""
    delivered = delivery.with_deliveries(context, result)
    return acknowledgement.with_acknowledgements(context, delivered)


def work_kinds() -> Iterable[Kind]:
    """Return the kinds of lines of the worklist."""
    return work.KINDS


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
    return alerting.alerts(context)


def checks(context: IssuerContext) -> Iterator[tuple[str, str | CardlinkError]]:
    """Try where the issuer is told, and each receiver of links."""
    return checking.checks(context)
