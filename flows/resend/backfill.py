"""Backfill nights that were missed: list what would be sent, then send exactly that list."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from flows.errors import ExtractError, OperatorError
from flows.runs.context import IssuerEdges
from flows.runs.documents import AbandonedError, keys_of, plans, read_manifest
from flows.runs.identity import business_date, canonical, digest
from flows.runs.keys import backfills, extracts
from flows.runs.store import ConflictError, Entry, ObjectMissingError, read, write_once
from flows.submissions.build import Expected, Progress
from flows.submissions.dry_run import Checked, Nights, rehearse
from flows.submissions.plan import identify, pending
from flows.submissions.submit import Request, Submitted, finish_turns, submit
from schemas.manifest import Counts, Document

DIGITS = 12  # of a list's digest: typed by a person, compared with lists of one issuer


class ListChangedError(OperatorError):
    """What would be sent is not what was listed."""

    message = "{issuer}: what would be sent now is not list {asked}: {difference}. Nothing was sent."
    next_step = "Look at the new list with `cardlink backfill {issuer} --from {start} --to {end}`, and send that one."


class Span(NamedTuple):
    """A range of business dates, both ends included."""

    start: date
    end: date


class Missed(Document):
    """One extract without a committed run, and what a submit of it would send, or why it would be refused."""

    extract: str
    sha256: str
    as_of: date
    run: str = ""
    counts: Counts | None = None
    chunk_rows: tuple[int, ...] = ()
    reasons: dict[str, int] = Field(default_factory=dict)
    refused: str = ""

    def expected(self) -> Expected | None:
        """Return what a submit of it must come out as; None where it would be refused."""
        return Expected(self.sha256, self.counts, self.reasons) if self.counts and not self.refused else None


class Listed(Document):
    """What a backfill would send, oldest night first; its digest stands for exactly this."""

    issuer: str
    missed: tuple[Missed, ...]

    @property
    def digest(self) -> str:
        """The list's name: the first digits of its SHA-256."""
        return digest(canonical(self))[:DIGITS]

    @property
    def to_send(self) -> tuple[Missed, ...]:
        """The extracts that would be sent."""
        return tuple(one for one in self.missed if not one.refused)


def backfill(edges: IssuerEdges, span: Span) -> Listed:
    """List the extracts of a span that have no committed run and what each would send, the earlier ones taken for sent.

    Nothing is written.
    """
    nights = Nights()
    ordered = sorted((_day(edges, entry), entry.key, entry) for entry in pending(edges))
    missed = [_rehearsed(edges, entry, day, nights) for day, _, entry in ordered if span.start <= day <= span.end]
    return Listed(issuer=edges.issuer.issuer, missed=tuple(missed))


def missed_rows(listed: Listed) -> list[dict[str, Any]]:
    """Return one line per extract of a list: what would be sent of it, or why nothing."""
    return [_line(one) for one in listed.missed]


def _line(one: Missed) -> dict[str, Any]:
    counted = one.counts.model_dump(include={"read", "submitted", "rejected", "suppressed"}) if one.counts else {}
    told = {"extract": one.extract, "business date": one.as_of.isoformat(), "run": one.run}
    return {**told, **counted, "chunks": len(one.chunk_rows), "refused": one.refused}


def send(
    edges: IssuerEdges, span: Span, asked: str, tell: Callable[[str, Progress], None] = lambda *_: None
) -> list[Submitted]:
    """Submit exactly the list of that digest, oldest night first.

    The list is kept when it is first sent, so that the same command finishes what a crash interrupted. Raises
    ListChangedError, before anything is sent, where an extract came, changed, or would come out otherwise.
    """
    listed = _agreed(edges, span, asked)
    return [
        submit(edges, Request(one.extract, one.as_of, expected=one.expected()), partial(tell, one.extract))
        for one in listed.to_send
    ]


def _agreed(edges: IssuerEdges, span: Span, asked: str) -> Listed:
    """Return the list asked for, where what would be sent now is that list or what is left of it."""
    finish_turns(edges)
    kept, now = _kept(edges, asked), backfill(edges, span)
    wanted = kept or now
    if wanted.digest != asked:
        raise _changed(edges, span, asked, f"its digest is {now.digest}")
    left = _left(edges, wanted)
    if [one.extract for one in left] != [one.extract for one in now.missed]:
        raise _changed(edges, span, asked, f"{len(now.missed)} extracts instead of {len(left)}, or others")
    for one, other in zip(left, now.missed, strict=True):
        if one != other:
            raise _changed(edges, span, asked, f"{one.extract} would come out otherwise")
    if kept is None:
        write_once(edges.edges.store, _key(edges, asked), canonical(wanted))
    return wanted


def _left(edges: IssuerEdges, listed: Listed) -> list[Missed]:
    """Return what of a list has no committed run yet."""
    store, issuer = edges.edges.store, edges.issuer.issuer
    there = (plan for plan in plans(store, issuer) if plan.selection is None)
    done = {plan.source.sha256 for plan in there if read_manifest(store, keys_of(plan.run)) is not None}
    return [one for one in listed.missed if one.refused or one.sha256 not in done]


def _rehearsed(edges: IssuerEdges, entry: Entry, day: date, nights: Nights) -> Missed:
    name = entry.key.removeprefix(extracts(edges.issuer.issuer))
    found = Missed(extract=name, sha256=identify(edges.edges.store, entry).sha256, as_of=day)
    try:
        done = rehearse(edges, Request(name), nights)
    except (ExtractError, AbandonedError) as error:
        return found.model_copy(update={"refused": str(error)})
    refused = done.verdict if done.already else done.checked.refused
    return found.model_copy(update={**_outcome(done.checked), "refused": refused})


def _outcome(checked: Checked) -> dict[str, Any]:
    return {
        "run": checked.run,
        "as_of": checked.as_of,
        "counts": checked.counts,
        "chunk_rows": checked.chunk_rows,
        "reasons": {one.code: one.rows for one in checked.found},
    }


def _kept(edges: IssuerEdges, asked: str) -> Listed | None:
    """Return a list that was sent before, None where it was not."""
    key = _key(edges, asked)
    try:
        return Listed.model_validate_json(read(edges.edges.store, key))
    except ObjectMissingError:
        return None
    except ValidationError:
        pass
    raise ConflictError(key=key)


def _key(edges: IssuerEdges, asked: str) -> str:
    return f"{backfills(edges.issuer.issuer)}{asked}.json"


def _day(edges: IssuerEdges, entry: Entry) -> date:
    return business_date(entry.key, entry.modified, edges.issuer.time_zone)


def _changed(edges: IssuerEdges, span: Span, asked: str, what: str) -> ListChangedError:
    return ListChangedError(
        issuer=edges.issuer.issuer, asked=asked, difference=what, start=str(span.start), end=str(span.end)
    )
