"""What the kernel asks of privacy: the line about erasures to finish, and to go on with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.commands import on_first_use

with on_first_use():
    from flows.extensions.privacy import erasure, lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from flows.book.book import Book
    from flows.reports.work import Work
    from flows.reports.work_kinds import Kind
    from flows.runs.context import IssuerContext
    from flows.runs.store import Cleaner


def work_kinds() -> Iterable[Kind]:
    """Return the kind of lines about erasures."""
    return [lines.ERASING]


def matters(context: IssuerContext, _book: Book, _now: datetime) -> Iterator[Work]:
    """Yield the line about erasures to finish."""
    return lines.matters(context)


def after_purge(context: IssuerContext, cleaner: Cleaner) -> None:
    """Go on with erasures, and end them where nobody has a link any more."""
    erasure.finish_erasures(context, cleaner)
