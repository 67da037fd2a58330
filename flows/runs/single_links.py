"""Links requested one by one, for a row of a run or for fields typed in, and the answers: rows of
the table `single_link`.

A request is a row before it is sent, and its answer another act, so that of what must not be
requested twice there is always a record. The journal has what was asked and what came of it, and
nothing of the cardholder.
"""

from collections.abc import Collection, Iterable
from datetime import UTC
from typing import Any, Final, NamedTuple

import polars as pl
from sqlalchemy import ColumnElement, select, update

from flows.runs.adapters import Adapters
from flows.runs.documents import record_of_row
from flows.runs.identity import digest
from flows.runs.journal import Act, enter
from schemas.database import SINGLE_LINK
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.records import UNKNOWN, SingleAnswered, SingleAsked

ARRIVED = pl.Datetime("us", "UTC")
REQUESTED: Final = "single requested"  # entries of the journal, and what a run's history calls them
CAME: Final = "single"
_STATES = {"linked": LINKED, "refused": ERROR, UNKNOWN: AWAITING}  # of an attempt, by the outcome
# what names a cardholder, and is not in the journal
_PERSONAL = frozenset({"cuid", "last_4", "expiration", "link_id", "url", "expires_form", "message"})
_ASKED = {"at": "asked_at", "by": "asked_by"}  # columns that are named otherwise
_ANSWERED = {"at": "answered_at"}
# A single link as an attempt to get a card its link; `expires_on` of the link, where there is one.
ATTEMPT = pl.Schema(
    {
        "row": pl.UInt32(),
        "cuid": pl.String(),
        "last_4": pl.String(),
        "expiration": pl.String(),  # YYMM
        "state": pl.Enum([LINKED, ERROR, AWAITING]),
        "expires_on": pl.Date(),
        "url": pl.String(),
        "arrived": ARRIVED,
    }
)
LINK = pl.Schema(
    {
        "row": pl.UInt32(),
        "cuid": pl.String(),
        "last_4": pl.String(),
        "url": pl.String(),
        "expires_on": pl.Date(),
    }
)


class SingleLink(NamedTuple):
    """One attempt; without an answer its outcome is unknown."""

    id: str
    asked: SingleAsked
    answered: SingleAnswered | None
    run: str | None = None
    link: str | None = None  # digest of its URL, as the journal has it

    @property
    def name(self) -> str:
        """How a run's history names it."""
        return self.id.rpartition("/")[2]

    @property
    def place(self) -> str:
        """How findings and people name it."""
        return place_of(self.id)

    @property
    def state(self) -> str:
        """The outcome: linked, refused, unsent or unknown."""
        return self.answered.outcome if self.answered else UNKNOWN

    @property
    def ends_otherwise(self) -> bool:
        """Whether its link expires on another day than was requested."""
        until = self.asked.link_until
        ends = self.answered.expires_on if self.answered else None
        return until is not None and ends is not None and ends != until


def place_of(id_: str) -> str:
    """Return how findings and people name the single link with this id."""
    return f"{SINGLE_LINK.name}/{id_}"


def row_attempt(run: str, row: int, number: int) -> str:
    """Return the id of the attempt of that number, from 1, for a row of a run."""
    return f"{run}/{row:09d}-{number}"


def singles_of_run(adapters: Adapters, issuer: str, run: str) -> list[SingleLink]:
    """Return the single links for rows of a run, by row and in order."""
    return _read(adapters, issuer, SINGLE_LINK.c.run == run)


def prompted_singles(
    adapters: Adapters, issuer: str, *which: ColumnElement[bool]
) -> list[SingleLink]:
    """Return the single links of an issuer whose fields were typed in, the oldest first.

    `which`: conditions that hold for them.
    """
    return _read(adapters, issuer, SINGLE_LINK.c.run.is_(None), *which)


def _read(adapters: Adapters, issuer: str, *which: ColumnElement[bool]) -> list[SingleLink]:
    is_named = SINGLE_LINK.c.cuid.is_not(None)  # the journal, by which it may be recovered, is not
    query = select(SINGLE_LINK).where(SINGLE_LINK.c.issuer == issuer, is_named, *which)
    by = (SINGLE_LINK.c.row, SINGLE_LINK.c.attempt, SINGLE_LINK.c.id)
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query.order_by(*by)).mappings().all()
    return [_single_link(dict(row)) for row in rows]


def _single_link(row: dict[str, Any]) -> SingleLink:
    fields = {name: row[_ASKED.get(name, name)] for name in SingleAsked.model_fields}
    answer = None
    # recovered from the journal, which has no URL: as lost as one whose answer never came
    is_lost = row["link"] is not None and row["url"] is None
    if row["outcome"] is not None and not is_lost:
        answered = {name: row[_ANSWERED.get(name, name)] for name in SingleAnswered.model_fields}
        answer = record_of_row(answered, place_of(row["id"]), SingleAnswered)
    request = record_of_row(fields, place_of(row["id"]), SingleAsked)
    return SingleLink(row["id"], request, answer, row["run"], row["link"])


def record_request(adapters: Adapters, issuer: str, single: SingleLink) -> bool:
    """Record a link that is about to be requested; False where another process has done so."""
    columns = {_ASKED.get(name, name): value for name, value in single.asked}
    columns["asked_at"] = single.asked.at.astimezone(UTC)
    attempt = int(single.id.rpartition("-")[2]) if single.run else None

    def work(act: Act) -> bool:
        own = act.row(SINGLE_LINK, {"id": single.id})
        if act.connection.execute(select(SINGLE_LINK.c.id).where(own)).first():
            return False
        known = {name: value for name, value in columns.items() if name not in _PERSONAL}
        act.insert(SINGLE_LINK, id=single.id, run=single.run, attempt=attempt, **known)
        _write_personal(act, single.id, columns)
        return True

    return enter(adapters, issuer, REQUESTED, work, run=single.run)


def record_answer(adapters: Adapters, issuer: str, single: SingleLink) -> SingleLink:
    """Record what came of a request; return it as it is recorded."""
    assert single.answered is not None  # noqa: S101 - for the type checker: callers have one
    columns = {_ANSWERED.get(name, name): value for name, value in single.answered}
    columns["answered_at"] = single.answered.at.astimezone(UTC)
    columns["reasons"] = list(single.answered.reasons)
    url = single.answered.url
    link = digest(url.encode()) if url else None
    columns["link"] = link

    def work(act: Act) -> None:
        known = {name: value for name, value in columns.items() if name not in _PERSONAL}
        act.update(SINGLE_LINK, {"id": single.id}, **known)
        _write_personal(act, single.id, columns)

    enter(adapters, issuer, CAME, work, run=single.run)
    return single._replace(link=link)


def _write_personal(act: Act, id_: str, columns: dict[str, Any]) -> None:
    personal = {name: value for name, value in columns.items() if name in _PERSONAL}
    own = act.row(SINGLE_LINK, {"id": id_})
    act.connection.execute(update(SINGLE_LINK).where(own).values(**personal))


def remove_singles(act: Act, which: ColumnElement[bool]) -> None:
    """Remove single links."""
    query = select(SINGLE_LINK.c.id).where(SINGLE_LINK.c.issuer == act.issuer, which)
    for id_ in act.connection.execute(query).scalars().all():
        act.delete(SINGLE_LINK, {"id": id_})


def with_ids(ids: Collection[str]) -> ColumnElement[bool]:
    """Return the condition for the single links that have these ids."""
    return SINGLE_LINK.c.id.in_(list(ids))


def last_links(attempts: Iterable[SingleLink]) -> pl.DataFrame:
    """Return the last single link of each row (LINK, and when it `arrived`)."""
    linked = answers_of(attempts).filter(pl.col("state") == LINKED)
    return linked.unique("row", keep="last", maintain_order=True).select(*LINK, "arrived")


def answers_of(single_links: Iterable[SingleLink]) -> pl.DataFrame:
    """Return single links as attempts (ATTEMPT).

    One whose outcome is unknown is awaited.
    """
    rows = [_attempt(single) for single in single_links if single.state in _STATES]
    return pl.DataFrame(rows, ATTEMPT)


def _attempt(single: SingleLink) -> dict[str, Any]:
    """Return a single link as an attempt; without an answer it has no link."""
    attempt = single.asked.model_dump(include=ATTEMPT.keys() - {"state"})
    attempt["state"] = _STATES[single.state]
    answer = single.answered
    if answer is not None:
        attempt |= {"url": answer.url, "expires_on": answer.expires_on, "arrived": answer.at}
    return attempt
