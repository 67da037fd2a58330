"""What the kernel asks of governance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.commands import on_first_use

with on_first_use():
    from flows.extensions.governance import before_act as acts_of_two
    from flows.extensions.governance import in_force, lines, requests, tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from sqlalchemy import Table

    from flows.book.book import Book
    from flows.commands.context import Context
    from flows.commands.entry import Entry
    from flows.commands.result import Result
    from flows.errors import CardlinkError
    from flows.reports.work import Work
    from flows.reports.work_kinds import Kind
    from flows.runs.context import IssuerContext
    from flows.runs.erased import Mention, People, Place
    from flows.runs.store import Cleaner
    from flows.runs.stored_run import StoredRun
    from flows.steps import Text
    from schemas.settings import Act


def before_act(
    entry: Entry[...],
    context: Context,
    actor: str,
    values: Mapping[str, Any],
    acts: Collection[Act],
) -> Result | None:
    """Let two persons do what needs two: one requests it, another carries it out."""
    return acts_of_two.before_act(entry, context, actor, values, acts)


def govern(context: IssuerContext, *, is_rehearsal: bool) -> list[Text]:
    """Compare the settings of a command with those in force."""
    return in_force.govern(context, is_rehearsal=is_rehearsal)


def checks(context: IssuerContext) -> Iterator[tuple[str, Text | CardlinkError]]:
    """Say what of the settings changed, and what nobody agreed to yet."""
    return in_force.checks(context)


def work_kinds() -> Iterable[Kind]:
    """Return the kinds of lines about requests."""
    return lines.KINDS


def matters(context: IssuerContext, _book: Book, _now: datetime) -> Iterator[Work]:
    """Yield the lines about requests."""
    return lines.matters(context)


def evidence_of(run: StoredRun) -> dict[str, Any]:
    """Return the settings that a run was made with, and the requests that name it."""
    return {
        "settings_in_force.json": in_force.made_with(run),
        "requests.json": requests.evidence(run),
    }


def row_finding(table: Table, entered: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return what is wrong with a request of which the journal has a part."""
    return requests.finding(entered, values) if table is tables.REQUEST else ""


def places() -> dict[str, Place]:
    """Return where personal data is kept."""
    return requests.PLACES


def mentions(context: IssuerContext, people: People, _runs: Collection[str]) -> Iterator[Mention]:
    """Yield the requests that name some of these cardholders."""
    return requests.mentions(context, people)


def erase(
    context: IssuerContext, _cleaner: Cleaner, _people: People, named: Iterable[Mention]
) -> None:
    """Remove what requests say of them."""
    requests.erase(context, named)
