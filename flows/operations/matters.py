"""The matters of an issuer: what has to be done or known, each with a number until it is over.

What holds is derived (`flows.reports.survey`). Whoever looks compares it with the open rows of the
table `matter`, and opens and ends them in one act. One that is past its time is an alert.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import ColumnElement, Connection, func, select

from flows.errors import CardlinkError
from flows.extensions import hooks
from flows.operations.undecided_work import beside_runs
from flows.redaction import redact
from flows.reports.survey import survey
from flows.reports.work import Line, Work
from flows.reports.work_kinds import is_news
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.journal import Act, enter
from flows.runs.stored_journal import refuse_other_journal
from schemas.database import ATTEMPT, MATTER, RUN

Place = tuple[str, str]  # kind and subject
# a deployment whose last run failed or crashed, and the state that the orchestrator reports
Failure = tuple[str, str]
_COLUMNS = MATTER.c
IS_OPEN = _COLUMNS.ended.is_(None)
IS_LATE = _COLUMNS.late.is_not(None)
IS_UNTOLD = IS_LATE & (
    _COLUMNS.told.is_(None) | (_COLUMNS.ended.is_not(None) & _COLUMNS.end_told.is_(None))
)


class Matter(NamedTuple):
    """A row of the table `matter`."""

    number: int
    kind: str
    subject: str
    run: str | None
    since: datetime
    text: str
    late: datetime | None
    told: datetime | None
    ended: datetime | None
    end_told: datetime | None
    shown: dict[str, Any] | None

    @property
    def place(self) -> Place:
        """By what it is known while it is open."""
        return self.kind, self.subject


def watch(context: IssuerContext, failures: Collection[Failure] = ()) -> list[Matter]:
    """Bring an issuer's matters up to date, news too; return those of which people were not told.

    That is that they are late, or that they are over. Killed in between, the next watch returns
    the rest.
    """
    works = holding(context, failures)
    refuse_other_journal(context.adapters, context.issuer.issuer)
    follow(context.adapters, context.issuer.issuer, works, with_news=True)
    return matters(context.adapters, context.issuer.issuer, IS_UNTOLD)


def holding(context: IssuerContext, failures: Collection[Failure] = ()) -> list[Work]:
    """Return what holds now, news too."""
    news = chain.from_iterable(find_news(context, failures) for find_news in hooks("news"))
    return [*news, *survey(context, beside=beside_runs()).work]


def matters(adapters: Adapters, issuer: str, *which: ColumnElement[bool]) -> list[Matter]:
    """Return the matters of an issuer of which all these hold, by number."""
    with adapters.database.snapshot() as connection:
        return read_matters(connection, issuer, *which)


def numbered(context: IssuerContext, works: Sequence[Work]) -> list[Work]:
    """Return work that is shown to a person, with the number of each matter.

    What has none gets one; where nothing can be written, it stays without.
    """
    adapters = context.adapters
    issuer = context.issuer.issuer
    with suppress(CardlinkError):
        refuse_other_journal(adapters, issuer)
        follow(adapters, issuer, works, is_shown=True)
    return with_numbers(adapters, issuer, works)


def with_numbers(adapters: Adapters, issuer: str, works: Iterable[Work]) -> list[Work]:
    """Return work with the numbers of the matters that are open."""
    numbers = {matter.place: matter.number for matter in matters(adapters, issuer, IS_OPEN)}
    return [work._replace(number=numbers.get((work.kind, work.subject), 0)) for work in works]


def by_numbers(adapters: Adapters, issuer: str, numbers: Collection[int]) -> list[Matter]:
    """Return the matters of these numbers, also those that are over."""
    return matters(adapters, issuer, _COLUMNS.number.in_(numbers))


def follow(
    adapters: Adapters,
    issuer: str,
    works: Iterable[Work],
    *,
    with_news: bool = False,
    is_shown: bool = False,
) -> dict[Place, Matter]:
    """Open and end matters by what holds; return those that are open by kind and subject.

    Without news, those that are open stay as they are. `is_shown`: to a person.
    """
    holding: dict[Place, Work] = {}
    for work in sorted(works, key=lambda work: (work.due, work.kind, work.subject)):
        holding.setdefault((work.kind, work.subject), work)
    looked = _Look(holding, adapters.now(), with_news=with_news, is_shown=is_shown)
    standing = _open_by_place(matters(adapters, issuer, IS_OPEN))
    if not looked.changes(standing):
        return standing

    def act(act: Act) -> dict[Place, Matter]:
        known = _open_by_place(read_matters(act.connection, issuer, IS_OPEN))
        for place, values in looked.changes(known).items():
            _enter(act, place, known.get(place), values)
        return _open_by_place(read_matters(act.connection, issuer, IS_OPEN))

    return enter(adapters, issuer, "matters", act)


class _Look(NamedTuple):
    """What somebody saw who looked: what holds, when, and whether news too and for a person."""

    holding: Mapping[Place, Work]
    now: datetime
    with_news: bool = True
    is_shown: bool = False

    def changes(self, standing: Mapping[Place, Matter]) -> dict[Place, dict[str, Any]]:
        """Return what is to be written by place: of what is new, late now, shown, or over.

        >>> _Look({}, datetime.min).changes({})
        {}
        """
        changes = {
            place: self._change(work, standing.get(place)) for place, work in self.holding.items()
        }
        for place in standing.keys() - self.holding.keys():
            if self.with_news or not is_news(place[0]):
                changes[place] = {"ended": self.now}
        return {place: values for place, values in changes.items() if values}

    def _change(self, work: Work, matter: Matter | None) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if matter is None:
            values = {"since": work.since, "run": work.run or None}
        if work.is_alert and (matter is None or matter.late is None):
            values["late"] = self.now
        if values:
            values["text"] = redact(Line((work,)).statement)
        if self.is_shown and (matter is None or matter.shown != work.shown):
            values["shown"] = work.shown
        return values


def rows_of(adapters: Adapters, work: Work, lacking: pl.DataFrame) -> list[int]:
    """Return the numbers of the rows that a matter is about, as far as its run has rows of it.

    `lacking`: the cards without a link (`flows.reports.unlinked.unlinked`).
    """
    row = ATTEMPT.c
    turn = select(RUN.c.turn).where(RUN.c.issuer == work.issuer, RUN.c.run == work.run)
    query = select(row.row, row.cuid).where(
        row.issuer == work.issuer, row.turn == turn.scalar_subquery(), row.row.is_not(None)
    )
    if work.chunk:
        query = query.where(row.chunk == work.chunk, row.state == "awaiting")
    elif work.codes:
        query = query.where(row.reason.in_(work.codes))
    else:
        return []
    own = lacking.filter(pl.col("run") == work.run, pl.col("reason").is_in(sorted(work.codes)))
    cuids = set(own["cuid"])
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query.order_by(row.row)).all()
    return [number for number, cuid in rows if work.chunk or cuid in cuids]


def _enter(act: Act, place: Place, known: Matter | None, values: Mapping[str, Any]) -> None:
    """Write a change of a matter; one that is new gets the issuer's next number."""
    if known is not None:
        act.update(MATTER, {"number": known.number}, **values)
        return
    last = select(func.max(_COLUMNS.number)).where(_COLUMNS.issuer == act.issuer)
    number = (act.connection.execute(last).scalar() or 0) + 1
    act.insert(MATTER, number=number, kind=place[0], subject=place[1], **values)


def _open_by_place(open_matters: Iterable[Matter]) -> dict[Place, Matter]:
    return {matter.place: matter for matter in open_matters}


def read_matters(connection: Connection, issuer: str, *which: ColumnElement[bool]) -> list[Matter]:
    """Return the same as an act sees them."""
    columns = (_COLUMNS[name] for name in Matter._fields)
    query = select(*columns).where(_COLUMNS.issuer == issuer, *which).order_by(_COLUMNS.number)
    return [Matter(*row) for row in connection.execute(query)]
