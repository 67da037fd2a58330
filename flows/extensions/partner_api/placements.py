"""What the service said of an issuer's links, as the database has it.

Messages are stored before they are used, because the partner gives each one once. What they say is
in the row of their link, and is read anew where a check was killed, or the settings are others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import polars as pl
from sqlalchemy import ColumnElement, Connection, and_, func, insert, or_, select, update

from flows.book.stored_book import delete_rows, replace_row
from flows.database.bulk import read_frame
from flows.extensions.partner_api.job_records import Placement, read_anew, reading_of
from flows.extensions.partner_api.link_stages import POSITION, reported_rows
from flows.extensions.partner_api.profile import Profile
from flows.extensions.partner_api.tables import FUNNEL, PLACEMENT, REPORTED_ROW, SERVICE_MESSAGE
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.erased import IDENTITY, Mention, People, Place, rows_of
from flows.runs.journal import plain
from flows.runs.keys import issuer_prefix
from flows.runs.keys import runs as runs_of
from flows.runs.single_links import ARRIVED, LINK
from flows.runs.store import Cleaner
from flows.runs.stored_run import StoredRun
from schemas.ledger import LINKED

transactions = issuer_prefix("transactions")  # the partner's transaction reports are dropped here

PLACEMENTS = pl.Schema(  # columns of the table
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        "cardholder_id": pl.String(),
        "opened": pl.Boolean(),
        "opened_at": ARRIVED,
        "authenticated": pl.Boolean(),
        "running": pl.Boolean(),
        "termination_type": pl.String(),
        "placed_at": ARRIVED,
        "merchant_site": pl.String(),
        "jobs": pl.String(),  # JSON
        "open_jobs": pl.UInt32(),
        "lost": pl.UInt32(),
        "unread": pl.UInt32(),
        "trouble": pl.String(),
        "jobs_trouble": pl.String(),
        "seen_at": ARRIVED,
        "moved_at": ARRIVED,
        "messages_at": ARRIVED,
    }
)
_READ_AT_A_TIME = 500  # rows whose messages are read anew in one transaction


def read_placements(
    adapters: Adapters, issuer: str, runs: Collection[str], *which: ColumnElement[bool]
) -> pl.DataFrame:
    """Return what the service said of the links of some runs (PLACEMENTS), in order.

    `which`: conditions that hold for them.
    """
    query = select(*(PLACEMENT.c[name] for name in PLACEMENTS)).where(
        PLACEMENT.c.issuer == issuer, PLACEMENT.c.run.in_(list(runs)), *which
    )
    with adapters.database.snapshot() as connection:
        return read_frame(connection, query.order_by(*PLACEMENT.primary_key), PLACEMENTS)


def linked_rows(run: StoredRun, *columns: str) -> pl.DataFrame:
    """Return the rows of a run that have a link, single links included; none before its report.

    `columns`: some of LINK; without any, all.
    """
    names = list(columns or LINK)
    if run.summary is None:
        return LINK.to_frame().select(names)
    frames = run.rows(names, pl.col("state") == LINKED)
    return pl.concat([LINK.to_frame().select(names), *frames])


class StoredPlacements:
    """The rows of the links and messages of an issuer, written as a check learns of them."""

    def __init__(self, adapters: Adapters, issuer: str, profile: Profile) -> None:
        self._adapters = adapters
        self._issuer = issuer
        self._profile = profile
        self._reading = reading_of(profile)

    def store_messages(self, link: Placement, now: datetime, messages: Sequence[Any]) -> None:
        """Store the messages of a response; they are not counted in yet."""
        message = SERVICE_MESSAGE.c
        key = {"issuer": self._issuer, "run": link.run, "row": link.row}
        of_link = and_(*(message[name] == value for name, value in key.items()))

        def work(connection: Connection) -> None:
            last = connection.scalar(select(func.max(message.number)).where(of_link)) or 0
            row = {**key, "number": last + 1, "at": now, "content": messages, "reading": ""}
            connection.execute(insert(SERVICE_MESSAGE).values(row))

        self._adapters.database.act(self._issuer, work)

    def write(self, links: Iterable[Placement]) -> None:
        """Write what is known of links, in which their messages are counted."""
        rows = [{"issuer": self._issuer, **link.record()} for link in links]
        message = SERVICE_MESSAGE.c

        def work(connection: Connection) -> None:
            for row in rows:
                replace_row(connection, PLACEMENT, row)
                of_link = and_(*(message[name] == row[name] for name in ("issuer", "run", "row")))
                connection.execute(
                    update(SERVICE_MESSAGE).where(of_link).values(reading=self._reading)
                )

        self._adapters.database.act(self._issuer, work)

    def read_anew(self, now: datetime) -> None:
        """Count in the messages that a killed check left, or that other settings were read with."""
        messages = self._other_messages()
        keys = list(messages)
        for start in range(0, len(keys), _READ_AT_A_TIME):
            block = keys[start : start + _READ_AT_A_TIME]
            known = self._known(block)
            links = []
            for run, row in block:
                before = known.get((run, row), Placement(run, row))
                link = read_anew(before, messages[run, row], self._profile)
                links.append(link.dated(before, now))
            self.write(links)

    def _other_messages(self) -> dict[tuple[str, int], list[Any]]:
        """Return all messages of the links that have some that were read otherwise, in order."""
        message = SERVICE_MESSAGE.c
        is_other = or_(message.reading < self._reading, message.reading > self._reading)
        other = select(message.run, message.row).where(message.issuer == self._issuer, is_other)
        links = other.distinct().subquery()
        query = (
            select(message.run, message.row, message.content)
            .join(links, and_(links.c.run == message.run, links.c.row == message.row))
            .where(message.issuer == self._issuer)
            .order_by(message.run, message.row, message.number)
        )
        contents: dict[tuple[str, int], list[Any]] = {}
        with self._adapters.database.snapshot() as connection:
            for run, row, content in connection.execute(query):
                contents.setdefault((run, row), []).append(content)
        return contents

    def _known(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Placement]:
        is_meant = PLACEMENT.c.row.in_([row for _, row in keys])
        runs = {run for run, _ in keys}
        known = read_placements(self._adapters, self._issuer, runs, is_meant)
        links = map(Placement.from_record, known.iter_rows(named=True))
        return {(link.run, link.row): link for link in links}


def has_placements(adapters: Adapters, issuer: str, run: str) -> bool:
    """Return whether the service was asked about a link of a run."""
    own = (PLACEMENT.c.issuer == issuer) & (PLACEMENT.c.run == run)
    with adapters.database.snapshot() as connection:
        return connection.execute(select(PLACEMENT.c.row).where(own).limit(1)).first() is not None


def store_funnel(adapters: Adapters, issuer: str, facts: Mapping[str, Any]) -> None:
    """Keep the funnel over an issuer's runs, in place of the one before."""
    row = {"issuer": issuer, "facts": facts}
    adapters.database.act(issuer, lambda connection: replace_row(connection, FUNNEL, row))


def stored_funnel(adapters: Adapters, issuer: str) -> dict[str, Any] | None:
    """Return the funnel over an issuer's runs of the last check; None without one."""
    query = select(FUNNEL.c.facts).where(FUNNEL.c.issuer == issuer)
    with adapters.database.snapshot() as connection:
        funnel: dict[str, Any] | None = connection.scalar(query)
    return funnel


# Personal data: found for an export or an erasure, and taken out; it goes with a run's ledger
# --------------------------------------------------------------------------------------------------

PLACE = "placements"
REPORTS = f"database, table {REPORTED_ROW.name}"
PLACES = {
    PLACE: Place(
        "ids at the partner, whether the link was opened, merchants at which the card was placed",
        "the funnel",
        "[retention] ledger_days after the last answer",
        erased=True,
    )
}
_OF_LINKS = (PLACEMENT, SERVICE_MESSAGE)


def places() -> dict[str, Place]:
    """Return where personal data is kept."""
    return PLACES


def mentions(context: IssuerContext, people: People, runs: Collection[str]) -> Iterator[Mention]:
    """Yield what is known of cardholders: of their rows of these runs, and by reports."""
    for run in sorted(runs):
        yield from _in_run(StoredRun.by_id(context.adapters, run), people)
    rows = reported_rows(context.adapters, context.issuer.issuer)
    named = rows.filter(people.named_by(rows["cuid"]))
    if not named.is_empty():
        yield Mention(PLACE, REPORTS, named.to_dicts())
        # the reports themselves were dropped by the partner
        yield Mention("results", transactions(context.issuer.issuer), ())


def _in_run(run: StoredRun, people: People) -> Iterator[Mention]:
    """Yield what is known of the links of cardholders in a run, and their messages."""
    own = (part.filter(rows_of(people, part))["row"] for part in run.ledger(IDENTITY))
    rows = tuple(chain.from_iterable(own))
    for table in _OF_LINKS:
        of_run = (table.c.issuer == run.issuer) & (table.c.run == run.id)
        query = select(table).where(of_run, table.c.row.in_(rows))
        with run.adapters.database.snapshot() as connection:
            facts = [plain(row) for row in connection.execute(query).mappings()]
        if facts:
            yield Mention(PLACE, f"database, table {table.name}, run {run.id}", facts, run.id, rows)


def erase(
    context: IssuerContext, _cleaner: Cleaner, _people: People, named: Iterable[Mention]
) -> None:
    """Take cardholders out of what is known of links, and of transaction reports."""
    of_place = [mention for mention in named if mention.place == PLACE]
    issuer = context.issuer.issuer

    def work(connection: Connection) -> None:
        for mention in of_place:
            for facts in mention.facts:
                if mention.key == REPORTS:
                    place = {"file": facts["file"], POSITION: facts[POSITION]}
                    delete_rows(connection, REPORTED_ROW, issuer, **place)
                else:
                    _delete_links(connection, issuer, run=facts["run"], row=facts["row"])

    context.adapters.database.act(issuer, work)


def before_purge(context: IssuerContext, keys: Collection[str]) -> None:
    """Delete what is known of the links of the runs whose ledgers are among these objects."""
    issuer = context.issuer.issuer
    below_runs = (key.removeprefix(runs_of(issuer)) for key in keys)
    parts = (below.split("/") for below in below_runs)
    runs = {run for run, folder, *_ in parts if folder == "ledger"}

    def work(connection: Connection) -> None:
        for run in runs:
            _delete_links(connection, issuer, run=run)

    context.adapters.database.act(issuer, work)


def _delete_links(connection: Connection, issuer: str, **of_link: object) -> None:
    for table in _OF_LINKS:
        delete_rows(connection, table, issuer, **of_link)
