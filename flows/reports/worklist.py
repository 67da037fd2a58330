"""The worklist: what is to be done about all runs of an issuer, by whom, and the commands to paste.

Due first on top. It is derived from the facts of the runs and from what waits beside them; nothing
of it is kept. What is said about each kind of work is in `flows.reports.work_kinds`; work that no
committed run knows of comes from `flows.operations.undecided_work`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.book.people import counted_cards
from flows.book.standing import UNKNOWN
from flows.reports import work_kinds as kinds
from flows.reports.ages import duration
from flows.reports.open_items import MISSING, ReportTerms, WaitingChunk
from flows.reports.run_facts import RunFacts
from flows.reports.wording import rows
from flows.reports.work_kinds import WORK, Choice, Kind
from flows.results.learned_forms import LearnedForm
from flows.results.markers import read_waiting
from flows.runs.business_date import day_off, due, local_day
from flows.runs.chains import last_record
from flows.runs.closings import chunk_of, place_of
from flows.runs.keys import deliveries
from flows.runs.store import Store
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Step
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import DECISIONS, EXPIRED, LOST
from schemas.corrections import is_at_source
from schemas.issuer import Issuer
from schemas.manifest import Manifest
from schemas.reasons import CANCELLED_CHUNK
from schemas.records import Delivery

NAMED = 3  # files or days named in a sentence
MISSED = timedelta(days=31)  # business days without an extract are looked for so far back
# what is to be done about cardholders without a link, by the reason of their last attempt
_BY_REASON = {
    DECISIONS[LOST].reason: kinds.LOST_ROWS,
    DECISIONS[EXPIRED].reason: kinds.EXPIRED_ROWS,
    CANCELLED_CHUNK: kinds.CANCELLED_ROWS,
}
# and else by its action
_BY_ACTION = {FIX: kinds.CORRECT, RESUBMIT: kinds.SEND_AGAIN, ASK: kinds.ASK_ABOUT}


class Work(NamedTuple):
    """One thing to do: about a run, a chunk, a break or a file; it ages since `since`.

    `fields` fill the slots of its kind's steps. `step`, where it has one, is its first step instead
    of its kind's. `note` is said after its kind's sentence.
    """

    due: datetime
    kind: str  # of WORK
    issuer: str
    run: str
    chunk: int | None
    rows: int
    since: datetime
    fields: tuple[tuple[str, Any], ...] = ()
    step: Step | None = None
    # the time that an answer is waited for is over, or some of its links have ended
    is_late: bool = False
    note: str = ""
    codes: frozenset[str] = frozenset()  # the reasons of its rows


class Line(NamedTuple):
    """A line of the worklist: work of one kind and issuer, about one run or several."""

    works: tuple[Work, ...]

    @property
    def kind(self) -> Kind:
        """What is said about it."""
        return WORK[self.works[0].kind]

    @property
    def due(self) -> datetime:
        """When the first of it is due."""
        return min(work.due for work in self.works)

    @property
    def runs(self) -> list[str]:
        """Its runs."""
        return sorted({work.run for work in self.works if work.run})

    @property
    def run(self) -> str:
        """Its run, "" where it is about several or none."""
        return self.runs[0] if len(self.runs) == 1 else ""

    @property
    def rows(self) -> int:
        """The rows, cardholders or links it is about."""
        return sum(work.rows for work in self.works)

    @property
    def order(self) -> tuple[object, ...]:
        """What the worklist is sorted by: what is due first comes first."""
        first = self.works[0]
        return (self.due, first.kind, first.issuer, self.run, first.chunk or 0, str(self.first))

    @property
    def sentence(self) -> str:
        """What is the matter, how much of it there is, and what to do about it."""
        kind = self.kind
        sentences = [f"{kind.matter}: {self._extent}.", kind.then, self.works[0].note]
        return " ".join(filter(None, sentences))

    @property
    def _extent(self) -> str:
        kind = self.kind
        parts: list[str] = []
        if kind.noun == "run":
            parts.append(rows(len(self.runs), "run"))
        elif kind.noun:
            of_runs = f" of {len(self.runs)} runs" if len(self.runs) > 1 else ""
            parts.append(rows(len(self.works), kind.noun) + of_runs)
        if self.rows:
            parts.append(rows(self.rows, kind.rows))
        names = [str(dict(work.fields)["name"]) for work in self.works if dict(work.fields)]
        named = ", ".join(names[:NAMED])
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        return ", ".join(parts) + (f" ({named}{more})" if names else "")

    @property
    def first(self) -> Step:
        """The first step."""
        own = self.works[0].step
        return self.kind.first.filled(self._values) if own is None else own

    @property
    def choices(self) -> list[Choice]:
        """The decisions that can follow, the one that can do least harm first."""
        is_late = all(work.is_late for work in self.works)
        offered = [choice for choice in self.kind.choices if is_late or not choice.late]
        return [
            choice._replace(command=choice.command.filled(self._values))
            for choice in offered
            if self._is_within(choice)
        ]

    def _is_within(self, choice: Choice) -> bool:
        """Return whether one command can take all of it."""
        match choice.widest:
            case "chunk":
                return len(self.works) == 1
            case "run":
                return bool(self.run)
            case "issuer":
                return True

    @property
    def _values(self) -> Mapping[str, Any]:
        """The values of the slots; those of one chunk or break are empty where it is of several."""
        first = self.works[0]
        is_one = len(self.works) == 1
        chunk = first.chunk if is_one else None
        return {
            "issuer": first.issuer,
            "run": self.run,
            "target": self.run or first.issuer,
            "chunk": chunk,
            "chunks": [work.chunk for work in self.works if work.chunk],
            "place": f"chunk {chunk}" if chunk else "",
            "codes": sorted(frozenset[str]().union(*(work.codes for work in self.works))),
            # one command for several runs closes just these rows, or none
            "limit": None if self.run else self.rows,
            **dict(set(first.fields).intersection(*(work.fields for work in self.works))),
        }

    def facts(self, now: datetime) -> dict[str, Any]:
        """Return the line as the tables show it."""
        first = self.works[0]
        return {
            "due": self.due.isoformat(timespec="seconds"),
            "kind": first.kind,
            "issuer": first.issuer,
            "run": self.run,
            "runs": len(self.runs),
            "rows": self.rows,
            "age": duration(now - min(work.since for work in self.works)),
            "who": self.kind.who,
            "matter": self.sentence,
            "first": str(self.first),
            "decisions": [choice.facts for choice in self.choices],
        }

    def record(self, now: datetime) -> dict[str, Any]:
        """Return the line of one thing to do as a row of worklist.csv (`schemas.tables.Work`)."""
        facts = self.facts(now)
        del facts["runs"]
        decisions = " | ".join(map(str, self.choices))
        return facts | {"chunk": self.works[0].chunk, "decisions": decisions}


def lines(works: Iterable[Work]) -> list[Line]:
    """Return work by kind and issuer, due first; by run too where a command takes one run."""
    grouped: dict[tuple[object, ...], list[Work]] = {}
    for work in works:
        own = (work.run, work.fields) if WORK[work.kind].of_one_run else ()
        grouped.setdefault((work.kind, work.issuer, own), []).append(work)
    ordered = (sorted(group, key=_order) for group in grouped.values())
    return sorted((Line(tuple(group)) for group in ordered), key=lambda line: line.order)


def each(works: Iterable[Work]) -> list[Line]:
    """Return a line for each thing to do, due first: worklist.csv."""
    return sorted((Line((work,)) for work in works), key=lambda line: line.order)


def _order(work: Work) -> tuple[object, ...]:
    return (work.due, work.run, work.chunk or 0, str(work.fields))


def worklist(
    runs: StoredRuns,
    facts: Sequence[RunFacts],
    manifests: Collection[Manifest],
    cards: pl.DataFrame,
    lacking: pl.DataFrame,
    issuer: Issuer,
    terms: ReportTerms,
    forms: Iterable[LearnedForm] = (),
) -> list[Work]:
    """Return what is to be done about these runs and beside them.

    `manifests` are those of all committed runs, `cards` where the cards stand
    (`flows.book.standing.standing`), `lacking` those without a link (`unlinked`), `forms` those of
    links that are to be confirmed.
    """
    store = runs.store
    name = runs.issuer
    work: list[Work] = []
    for run in facts:
        work += _chunks(issuer, run, terms)
        work += _breaks(name, run)
    work += _unlinked(name, manifests, lacking, terms)
    work += _unknown(name, cards, terms)
    work += _stray_results(store, name)
    work += _refused_extracts(runs, manifests)
    work += _days_without_extract(issuer, runs, manifests, terms)
    work += _unconfirmed_delivery(store, name)
    work += _link_forms(name, forms, terms)
    return work


def _chunks(issuer: Issuer, run: RunFacts, terms: ReportTerms) -> Iterator[Work]:
    """Yield the chunks to upload, on hold, and awaited; what came and does not fit is a break."""
    broken = {chunk_of(run_break["place"]) for run_break in run.breaks}
    for chunk in run.waiting:
        if chunk.chunk not in broken and chunk.state != "cancelled":
            yield _chunk(issuer, chunk, terms)


def _chunk(issuer: Issuer, chunk: WaitingChunk, terms: ReportTerms) -> Work:
    """Return what is to be done about a chunk that waits."""
    is_due = chunk.since + timedelta(hours=terms.within)
    given_up_from = chunk.since + timedelta(days=issuer.limits.lost_after_days)
    is_overdue = terms.now > is_due
    is_on_hold = chunk.state == "held"
    is_unsent = is_on_hold or (chunk.state == "waiting" and chunk.missing == MISSING)
    is_fitting = set(chunk.sealed_to) <= set(issuer.portal.fingerprints)
    table = [
        (is_unsent and not is_fitting, kinds.OTHER_KEY),
        (is_on_hold, kinds.ON_HOLD),
        (is_unsent, kinds.TO_UPLOAD),
        (not is_overdue, kinds.AWAITED),
        (chunk.missing == MISSING, kinds.OVERDUE),
        (True, kinds.INCOMPLETE),
    ]
    kind = next(kind for holds, kind in table if holds)
    is_late = terms.now >= given_up_from
    notes = {kinds.AWAITED: f"The first is expected by {is_due:%Y-%m-%d %H:%M} UTC."}
    if not is_late:
        notes[kinds.OVERDUE] = f"The first can be given up from {given_up_from:%Y-%m-%d} on."
    return Work(
        due=chunk.since if kind in (kinds.TO_UPLOAD, kinds.OTHER_KEY) else is_due,
        kind=kind,
        issuer=issuer.issuer,
        run=chunk.run,
        chunk=chunk.chunk,
        rows=chunk.awaiting,
        since=chunk.since,
        is_late=is_late,
        note=notes.get(kind, ""),
    )


def _breaks(issuer: str, run: RunFacts) -> Iterator[Work]:
    """Yield the open breaks of a run."""
    for run_break in run.breaks:
        since = datetime.fromisoformat(run_break["since"])
        place = place_of(run_break["place"])
        yield Work(
            due=since,
            kind=f"break {run_break['name']}",
            issuer=issuer,
            run=run.run,
            chunk=chunk_of(place) or None,
            rows=run_break["rows"],
            since=since,
            fields=() if chunk_of(place) else (("place", place), ("name", place)),
        )


def _unlinked(
    issuer: str, manifests: Iterable[Manifest], lacking: pl.DataFrame, terms: ReportTerms
) -> Iterator[Work]:
    """Yield the cardholders whose last attempt gave no link, by its run and what is to be done."""
    days = {manifest.run: _midnight(manifest.as_of) for manifest in manifests}
    grouped = lacking.group_by("run", "stage", "reason", "action").len()
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for run, stage, code, action, number in grouped.iter_rows():
        kind = _unlinked_kind(run, stage, code, action)
        if kind:
            counts.setdefault((run, kind), {})[code] = number
    for (run, kind), codes in counts.items():
        since = days.get(run, terms.now)
        yield Work(
            due=since,
            kind=kind,
            issuer=issuer,
            run=run,
            chunk=None,
            rows=sum(codes.values()),
            since=since,
            codes=frozenset(codes),
        )


def _unlinked_kind(run: str, stage: str, code: str, action: str) -> str:
    """Return the kind of work about cards without a link; "" where nobody has to do anything."""
    kind = _BY_REASON.get(code) or _BY_ACTION.get(action, "")
    table = [
        (stage == "link", ""),  # a renewal says what is to be done: `link_work`
        (not kind, ""),
        (not run, kinds.TYPED_IN),
        (kind == kinds.CORRECT and is_at_source(code), kinds.CORRECT_CARD),
    ]
    return next((named for holds, named in table if holds), kind)


def _unknown(issuer: str, cards: pl.DataFrame, terms: ReportTerms) -> Iterator[Work]:
    """Yield the single links whose outcome is unknown."""
    standing = pl.col("standing").cast(pl.String)
    unknown = counted_cards(cards).filter(standing == UNKNOWN.name).height
    if unknown:
        yield Work(terms.now, kinds.UNKNOWN_SINGLES, issuer, "", None, unknown, terms.now)


def _stray_results(store: Store, issuer: str) -> Iterator[Work]:
    """Yield the result files with breaks that belong to no run, while they are there."""
    for waiting in read_waiting(store, issuer).values():
        if waiting.runs or not waiting.told:
            continue
        for entry in store.keys(waiting.file):
            if entry.key == waiting.file:
                yield _about_file(issuer, kinds.STRAY_RESULTS, entry.key, entry.modified)


def _about_file(issuer: str, kind: str, key: str, since: datetime, run: str = "") -> Work:
    """Return work about a dropped file, by its name below its folder."""
    name = key.split("/", 2)[2]
    return Work(since, kind, issuer, run, None, 0, since, (("name", name),))


def _refused_extracts(runs: StoredRuns, manifests: Collection[Manifest]) -> Iterator[Work]:
    """Yield the extracts that were refused, until somebody decides about them."""
    for run, text in runs.refused(manifests).items():
        key = StoredRun.by_id(runs.store, run).planned().source.key
        refused = datetime.fromisoformat(text)
        yield _about_file(runs.issuer, kinds.REFUSED_EXTRACTS, key, refused, run)


def _days_without_extract(
    issuer: Issuer, runs: StoredRuns, manifests: Collection[Manifest], terms: ReportTerms
) -> Iterator[Work]:
    """Yield the business days since the first run on which an extract was due and none came.

    A run that was refused, or is not committed yet, has a line or a process of its own.
    """
    last_due = due(issuer.schedule, terms.now, issuer.time_zone)
    days = {manifest.as_of for manifest in manifests if manifest.selection is None}
    if last_due is None or not days:
        return
    committed = {manifest.run for manifest in manifests}
    present = days | {run.day for run in runs.ids if str(run) not in committed}
    last, _ = last_due
    first = max(min(days), local_day(terms.now - MISSED, issuer.time_zone))
    span = [first + timedelta(days=back) for back in range((last - first).days + 1)]
    missed = [day for day in span if day not in present and not day_off(issuer.schedule, day)]
    for day in missed:
        named = (("name", day.isoformat()), ("first", missed[0]), ("last", missed[-1]))
        since = _midnight(day)
        yield Work(since, kinds.NO_EXTRACT, issuer.issuer, "", None, 0, since, named)


def _unconfirmed_delivery(store: Store, issuer: str) -> Iterator[Work]:
    """Yield the last delivery of links, unless the receiving side has confirmed it."""
    number, last = last_record(store, deliveries(issuer), Delivery)
    if last is None:
        return
    confirmed = list(store.keys(f"{deliveries(issuer)}{number:06d}/confirmed.json"))
    if not confirmed:
        links = last.new + last.replaced + last.withdrawn
        named = (("name", f"{number:06d}"), ("number", number))
        yield Work(last.at, kinds.UNCONFIRMED, issuer, "", None, links, last.at, named)


def _link_forms(issuer: str, forms: Iterable[LearnedForm], terms: ReportTerms) -> Iterator[Work]:
    """Yield the forms of links that are to be confirmed."""
    for learned in forms:
        named = (("name", str(learned.form)),)
        yield Work(terms.now, kinds.LINK_FORMS, issuer, "", None, learned.links, terms.now, named)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
