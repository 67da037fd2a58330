"""A database that is lost, old or a copy is rebuilt from the segments that the store has.

It begins with what is there: nothing, or an earlier backup. The entries that follow are applied in
order, in one transaction: so of what an erasure removed nothing is brought back. What follows from
others is worked out by whoever reads it next.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import (
    Connection,
    Date,
    Table,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from flows.book.upkeep import forget_book
from flows.errors import BalanceError
from flows.extensions import hooks
from flows.operations.audit import made_later
from flows.operations.audit_journal import StoredEntry, entry_findings
from flows.runs import keys
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.decisions import CARDS, LINKS, decisions
from flows.runs.journal import content_of, entries
from flows.runs.persons import holders_of
from flows.runs.stored_journal import (
    Position,
    begin_incarnation,
    entries_after,
    incarnation_of,
    store_segment,
    stored_entries,
)
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Sentence
from schemas.database import JOURNAL, METADATA, PERSON, SINGLE_LINK, Moment
from schemas.records import GivingUp, LinkKept


class SegmentsError(BalanceError):
    """Segments of a journal that are not one chain, or do not fit the database."""

    message = "The journal of {issuer} cannot be rebuilt from its segments: {why}."
    next_step = Sentence(
        "Nothing was changed. Begin with an empty database, or with a backup of the one that was "
        "lost; where segments were changed, restore them from the bucket's versions, and tell "
        "security.",
    )


class Recovered(NamedTuple):
    """What was rebuilt: how many entries, up to which moment; what only people can repeat.

    `runs`: those of the store that no entry names. `objects`: how many objects no entry names; they
    are accepted as they are. `unknown_persons`: whom decisions are about and nobody knows any more;
    `unknown_links`: single links that are lost, or whose they are.
    """

    entries: int
    until: datetime | None
    incarnation: str
    runs: tuple[str, ...]
    objects: int
    unknown_persons: int
    unknown_links: int


def recover(context: IssuerContext, reason: str) -> Recovered:
    """Apply what the segments in the store have and the database has not; begin an incarnation.

    SegmentsError, NoReasonError.
    """
    adapters = context.adapters
    issuer = context.issuer.issuer
    signed_reason = adapters.signed(reason)["reason"]
    own = entries_after(adapters, issuer, 0)
    stored = stored_entries(adapters.store, issuer)
    missing = _missing(adapters, issuer, own, stored)
    forget_book(adapters, issuer)
    if missing:
        adapters.database.act(issuer, lambda connection: _apply(connection, issuer, missing))
    for recovered in hooks("recovered"):
        recovered(adapters, issuer)
    known = [*own, *missing]
    later = made_later(adapters, issuer)
    named = {entry.run for entry in entries(adapters, issuer) if entry.run}
    runs = [run for run in _runs_in_store(adapters, issuer) if run not in named]
    begin_incarnation(
        adapters,
        issuer,
        "recovered",
        incarnation_of(adapters, issuer),
        signed_reason,
        accepted=later,
        after=len(known),
    )
    incarnation = incarnation_of(adapters, issuer)
    store_segment(adapters, issuer, Position(incarnation, max(stored, default=0)))
    until = datetime.fromisoformat(known[-1]["at"]) if known else None
    return Recovered(
        entries=len(missing),
        until=until,
        incarnation=incarnation,
        runs=tuple(runs),
        objects=sum(map(bool, later.values())),
        unknown_persons=_unknown_persons(adapters, issuer),
        unknown_links=_unknown_links(adapters, issuer),
    )


def _runs_in_store(adapters: Adapters, issuer: str) -> list[str]:
    """Return the ids of the runs that have objects in the store."""
    folders = adapters.store.keys(keys.runs(issuer), shallow=True)
    return [folder.key.rstrip("/").rpartition("/")[2] for folder in folders]


def _unknown_persons(adapters: Adapters, issuer: str) -> int:
    """Return how many persons decisions are about who are not known, those apart who were erased.

    The journal does not say who they are, so that a backup alone has it.
    """
    named = set[str]()
    for given_up in decisions(adapters, issuer, CARDS, GivingUp):
        named |= {card.holder for card in given_up.cards}
    for kept in decisions(adapters, issuer, LINKS, LinkKept):
        named |= {link.holder for link in kept.links}
    changes = chain.from_iterable(entry["changes"] for entry in entries_after(adapters, issuer, 0))
    erased = {change["key"]["person"] for change in changes if change["table"] == PERSON.name}
    return len(named - erased - holders_of(adapters, issuer).keys())


def _unknown_links(adapters: Adapters, issuer: str) -> int:
    """Fill in whose the single links are that came from the journal, by the rows they are for.

    Return how many lack that or their URL.
    """
    link = SINGLE_LINK.c
    is_unnamed = and_(link.issuer == issuer, link.cuid.is_(None))
    with adapters.database.snapshot() as connection:
        of_rows = select(link.run, link.row).where(is_unnamed, link.run.is_not(None))
        unnamed = connection.execute(of_rows).all()
    rows = defaultdict[str, list[int]](list)
    for run, row in unnamed:
        rows[run].append(row)
    runs = StoredRuns(adapters, issuer).with_ledger() if rows else ()
    cards = list(chain.from_iterable(_cards(run, rows[run.id]) for run in runs))

    def work(connection: Connection) -> int:
        for card in cards:
            is_own = and_(is_unnamed, link.run == card["run"], link.row == card["row"])
            connection.execute(update(SINGLE_LINK).where(is_own).values(**card))
        has_no_url = and_(link.link.is_not(None), link.url.is_(None))
        is_unknown = and_(link.issuer == issuer, or_(link.cuid.is_(None), has_no_url))
        count = select(func.count()).select_from(SINGLE_LINK).where(is_unknown)
        return connection.scalar(count) or 0

    return adapters.database.act(issuer, work)


def _cards(run: StoredRun, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return how the cards of rows of a run look, by its ledger."""
    columns = ["row", "cuid", "last_4", "expiration"]
    if not rows:
        return []
    records = pl.concat(run.ledger(columns, pl.col("row").is_in(rows)))
    return records.select(*columns, run=pl.lit(run.id)).to_dicts()


def _missing(
    adapters: Adapters,
    issuer: str,
    own: Sequence[Mapping[str, Any]],
    stored: Mapping[int, Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Return the entries of the store that follow those of the database, as one chain."""
    for entry in own:
        other = stored.get(entry["number"], entry)
        if other["digest"] != entry["digest"]:
            why = f"entry {entry['number']:,} of the database is not the one in the store"
            raise SegmentsError(issuer=issuer, why=why)
    missing = [stored[number] for number in sorted(stored) if number > len(own)]
    journal = [_as_entry(entry) for entry in [*own, *missing]]
    finding = next(entry_findings(journal, adapters.prover), None)
    if finding is not None:
        raise SegmentsError(issuer=issuer, why=f"{finding.key}: {finding.what}")
    return missing


def _as_entry(entry: Mapping[str, Any]) -> StoredEntry:
    fields = {name: entry[name] for name in StoredEntry._fields if name not in ("at", "content")}
    entered_at = datetime.fromisoformat(entry["at"])
    return StoredEntry(**fields, at=entered_at, content=content_of(entry))


def _apply(connection: Connection, issuer: str, missing: Iterable[Mapping[str, Any]]) -> None:
    """Write entries, and the rows that they wrote."""
    if connection.dialect.name == "sqlite":
        connection.execute(text("PRAGMA defer_foreign_keys = ON"))
    for entry in missing:
        connection.execute(insert(JOURNAL).values(**_values(JOURNAL, entry)))
        for change in entry["changes"]:
            _change(connection, issuer, change)


def _change(connection: Connection, issuer: str, change: Mapping[str, Any]) -> None:
    """Write a row as an entry says it."""
    table = METADATA.tables[change["table"]]
    key = _values(table, change.get("key") or {})
    values = _values(table, change["values"] or {})
    rows = and_(table.c.issuer == issuer, *(table.c[name] == key[name] for name in key))
    if change["values"] is None:
        connection.execute(delete(table).where(rows))
    elif "key" not in change:
        connection.execute(insert(table).values(issuer=issuer, **values))
    else:
        connection.execute(update(table).where(rows).values(**values))


def _values(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an entry as the columns of a table have them."""
    return {name: _value(table, name, value) for name, value in values.items()}


def _value(table: Table, name: str, value: Any) -> Any:
    if value is None:
        return None
    kind = table.c[name].type
    if isinstance(kind, Moment):
        return datetime.fromisoformat(value)
    return date.fromisoformat(value) if isinstance(kind, Date) else value
