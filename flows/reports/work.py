"""What a line of the worklist is: one thing to do, or all of one kind, and what is said about it.

Which work there is comes from `flows.reports.worklist`; what is said about each kind of it is in
`flows.reports.work_kinds`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

from flows.errors import OperatorError
from flows.reports.ages import duration
from flows.reports.work_kinds import Choice, Kind, kind_named, once_asked
from flows.steps import PLACEHOLDERS, Step, counted

DAY = timedelta(days=1)
MOST_NUMBERS = 10_000  # of matters in a range


class NumbersError(OperatorError):
    """A range of numbers of matters that is none."""

    message = "{numbers} is no range of matters; nothing was done."
    next_step = "Write the lower number first, such as 15-18, or the numbers with commas between."


class Work(NamedTuple):
    """One thing to do: about a run, a chunk, a break or a file; it ages since `since`.

    `fields` fill the slots of its kind's steps. `step`, where it has one, is its first step instead
    of its kind's. `note` is said after its kind's sentence.
    """

    due: datetime
    kind: str  # its name
    issuer: str
    since: datetime
    run: str = ""
    chunk: int | None = None
    rows: int = 0
    fields: tuple[tuple[str, Any], ...] = ()
    step: Step | None = None
    late_rows: int | None = None  # of the rows, where only some are late
    # it has waited too long: for an answer, for a correction; or some of its links have ended; or
    # nothing else in the chunk of a break waits
    is_late: bool = False
    note: str = ""
    codes: frozenset[str] = frozenset()  # the reasons of its rows
    asked_on: date | None = None  # when the partner was asked about it
    day: date | None = None  # business date of its run, where a decision can be about older ones
    alert: bool | None = None  # whether it is past its time, where its kind does not say it
    number: int = 0  # of its matter, where it is known

    @property
    def subject(self) -> str:
        """What identifies it among those of its kind."""
        fields = dict(self.fields)
        named = (self.run, self.chunk and f"chunk {self.chunk}", fields.get("name"))
        return " ".join(str(part) for part in named if part)

    @property
    def shown(self) -> dict[str, Any]:
        """What a decision by number is about: it is refused where this changed since."""
        fields = dict(self.fields)
        decided: dict[str, Any] = {
            name: fields[name] for name in ("closed", "gate") if name in fields
        }
        return {"rows": self.rows, "reasons": sorted(self.codes), **decided}

    @property
    def is_alert(self) -> bool:
        """Whether it is past its time, so that people are told."""
        return kind_named(self.kind).is_alert if self.alert is None else self.alert


class Line(NamedTuple):
    """A line of the worklist: work about one run or several, mostly of one kind and issuer."""

    works: tuple[Work, ...]

    @property
    def kind(self) -> Kind:
        """What is said about it; of several kinds, what is said about the one that they join."""
        first = kind_named(self.works[0].kind)
        if len(self.rows_by_kind) > 1:
            return kind_named(first.joins)
        return once_asked(first) if all(work.asked_on for work in self.works) else first

    @property
    def rows_by_kind(self) -> Counter[str]:
        """The rows of each kind."""
        rows_by_kind = Counter[str]()
        for work in self.works:
            rows_by_kind[work.kind] += work.rows
        return rows_by_kind

    @property
    def due(self) -> datetime:
        """When the first of it is due."""
        return min(work.due for work in self.works)

    @property
    def issuers(self) -> list[str]:
        """Its issuers."""
        return sorted({work.issuer for work in self.works})

    @property
    def by_issuer(self) -> list["Line"]:
        """Its parts by issuer."""
        return [
            Line(tuple(work for work in self.works if work.issuer == issuer))
            for issuer in self.issuers
        ]

    @property
    def issuer(self) -> str:
        """Its issuer, or several as a command takes them: with commas between."""
        return ",".join(self.issuers)

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
    def numbers(self) -> str:
        """The numbers of its matters, "" where not all are known or it is of several issuers."""
        numbers = sorted({work.number for work in self.works})
        return in_ranges(numbers) if all(numbers) and len(self.issuers) == 1 else ""

    @property
    def order(self) -> tuple[object, ...]:
        """What the worklist is sorted by: what is due first comes first."""
        first = self.works[0]
        kind = self.kind.name
        return (self.due, kind, first.issuer, self.run, first.chunk or 0, str(self.first))

    @property
    def sentence(self) -> str:
        """What is the matter, how much of it there is, and what to do about it."""
        kind = self.kind
        parts = [f"{kind.matter}: {self._extent}.", kind.then, self._asked, self._note]
        return " ".join(filter(None, parts))

    @property
    def statement(self) -> str:
        """What is the matter, without what to do about it."""
        if self.kind.is_news:
            return self._note
        subject = self.run and f"{self.run}: "
        return " ".join(filter(None, [f"{subject}{self.kind.matter}: {self._extent}.", self._note]))

    @property
    def _asked(self) -> str:
        """Whether, and when last, the partner was asked about it."""
        days = [work.asked_on for work in self.works if work.asked_on]
        if not days:
            return ""
        subject = (
            "The questions" if len(days) == len(self.works) else "Questions about some of them"
        )
        return f"{subject} were written on {max(days):%Y-%m-%d}."

    @property
    def _note(self) -> str:
        """What is said after that: of several kinds, how much of each; of several issuers, the
        first note of each.
        """
        of_kinds = self.rows_by_kind
        if len(of_kinds) > 1:
            return " ".join(f"{kind_named(kind).matter}: {of_kinds[kind]:,}." for kind in of_kinds)
        if self.kind.noted > 1:
            return " ".join(dict.fromkeys(work.note for work in self.works[: self.kind.noted]))
        notes = {work.issuer: work.note for work in reversed(self.works)}
        if len(notes) == 1:
            return self.works[0].note
        return " ".join(f"{issuer}: {notes[issuer]}" for issuer in self.issuers if notes[issuer])

    @property
    def _extent(self) -> str:
        kind = self.kind
        parts: list[str] = []
        if kind.noun == "run":
            parts.append(counted(len(self.runs), "run"))
        elif kind.noun:
            of_runs = f" of {len(self.runs)} runs" if len(self.runs) > 1 else ""
            parts.append(counted(len(self.works), kind.noun) + of_runs)
        if self.rows:
            parts.append(counted(self.rows, kind.rows))
        names = [str(dict(work.fields)["name"]) for work in self.works if dict(work.fields)]
        named = ", ".join(names[: kind.named])
        more = f" and {len(names) - kind.named:,} more" if len(names) > kind.named else ""
        return ", ".join(parts) + (f" ({named}{more})" if names else "")

    @property
    def first(self) -> Step:
        """The first step."""
        own = self.works[0].step
        return self.kind.first.filled(self._values) if own is None else own

    @property
    def choices(self) -> list[Choice]:
        """The decisions that can follow, the one that can do least harm first."""
        parts = [(choice, self._part(choice)) for choice in self.kind.choices]
        return [
            choice._replace(command=choice.command.filled(part._values))
            for choice, part in parts
            if part.works and part._is_within(choice)
        ]

    @property
    def decisions(self) -> list[Choice]:
        """The choices, each with its command by the numbers of the matters, where they have some.

        Not those whose command needs more than a reason.
        """
        return [self._by_number(choice) for choice in self.choices]

    def _by_number(self, choice: Choice) -> Choice:
        words = choice.command.placeholders
        if not self.numbers or not choice.needs_reason_alone:
            return choice
        reason = PLACEHOLDERS[words[0]] if words else None
        step = Step("decide", self.issuer, self.numbers, choice.label, reason=reason)
        return choice._replace(command=step, does=choice.command)

    def _part(self, choice: Choice) -> "Line":
        """Return what of it a choice is about; nothing where it cannot be made yet."""
        late = Line(tuple(work for work in self.works if work.is_late))
        is_possible = {"": True, "all": late == self, "any": True, "mixed": late != self}
        part = late._of_late_rows if choice.late else self
        return part if is_possible[choice.late] else Line(())

    @property
    def _of_late_rows(self) -> "Line":
        """It with only those of its rows that are late."""
        return Line(
            tuple(
                work if work.late_rows is None else work._replace(rows=work.late_rows)
                for work in self.works
            )
        )

    def _is_within(self, choice: Choice) -> bool:
        """Return whether one command can take all of it, and has all that it needs."""
        if not choice.command.slots <= self._values.keys():
            return False
        if "chunks" in choice.command.slots and not all(work.chunk for work in self.works):
            return False
        match choice.widest:
            case "chunk":
                return len(self.works) == 1
            case "run":
                return bool(self.run)
            case "issuer":
                return len(self.issuers) == 1
            case "issuers":
                return True

    @property
    def _values(self) -> Mapping[str, Any]:
        """The values of the slots; those of one chunk or break are empty where it is of several."""
        first = self.works[0]
        is_one = len(self.works) == 1
        chunk = first.chunk if is_one else None
        return {
            "issuer": self.issuer,
            "run": self.run,
            "target": self.run or self.issuer,
            "chunk": chunk,
            "chunks": [work.chunk for work in self.works if work.chunk],
            "place": f"chunk {chunk}" if chunk else "",
            "name": "",
            "codes": sorted(frozenset[str]().union(*(work.codes for work in self.works))),
            # the day after the last of its runs
            "before": None if self.run else max(map(_day_of, self.works)) + DAY,
            "rows": self._rows_of_issuers,
            **dict(set(first.fields).intersection(*(work.fields for work in self.works))),
        }

    @property
    def _rows_of_issuers(self) -> str:
        """Its rows, of several issuers each, with commas between."""
        rows = Counter[str]()
        for work in self.works:
            rows[work.issuer] += work.rows
        return ",".join(str(rows[issuer]) for issuer in self.issuers)

    def facts(self, now: datetime) -> dict[str, Any]:
        """Return the line as the tables show it."""
        return {
            "due": self.due.isoformat(timespec="seconds"),
            "kind": self.kind.name,
            "numbers": self.numbers,
            "issuer": self.issuer,
            "run": self.run,
            "runs": len(self.runs),
            "rows": self.rows,
            "age": duration(now - min(work.since for work in self.works)),
            "who": self.kind.who,
            "matter": self.sentence,
            "first": str(self.first),
            "decisions": [choice.facts for choice in self.decisions],
        }

    def record(self, now: datetime) -> dict[str, Any]:
        """Return the line of one thing to do as a row of worklist.csv (`schemas.tables.Work`)."""
        facts = self.facts(now)
        del facts["runs"], facts["numbers"]
        decisions = " | ".join(map(str, self.decisions))
        own = {"number": self.works[0].number or None, "chunk": self.works[0].chunk}
        return facts | own | {"decisions": decisions}


def in_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as a command takes them, in order.

    >>> in_ranges([12, 15, 16, 17])
    '12,15-17'
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, ends)) for ends in ranges)


def numbers_in(text: str) -> list[int]:
    """Return the numbers that a text of `in_ranges` has.

    NumbersError where a range is none, or has more than a worklist ever has.

    >>> numbers_in("12,15-17,12")
    [12, 15, 16, 17]
    """
    numbers = set[int]()
    for part in text.split(","):
        ends = list(map(int, part.split("-")))
        if not 0 <= ends[-1] - ends[0] < MOST_NUMBERS:
            raise NumbersError(numbers=part)
        numbers.update(range(ends[0], ends[-1] + 1))
    return sorted(numbers)


def lines(works: Iterable[Work]) -> list[Line]:
    """Return work by kind and issuer, due first; by run too where a command takes one run."""
    grouped: dict[tuple[object, ...], list[Work]] = {}
    for work in works:
        own = (work.run, work.fields) if kind_named(work.kind).of_one_run else ()
        grouped.setdefault((work.kind, work.issuer, own), []).append(work)
    ordered = (sorted(group, key=_order) for group in grouped.values())
    return sorted((Line(tuple(group)) for group in ordered), key=lambda line: line.order)


def together(lines_of_issuers: Iterable[Line]) -> list[Line]:
    """Return lines of several issuers, those of one kind as one where its commands take several,
    and those of several kinds that one command settles.
    """
    grouped: dict[tuple[str, ...], list[Line]] = {}
    for line in lines_of_issuers:
        own = () if line.kind.several else (line.issuer, str(line.order))
        grouped.setdefault((line.kind.joins or line.kind.name, *own), []).append(line)
    joined = [chain.from_iterable(line.works for line in group) for group in grouped.values()]
    merged = [Line(tuple(sorted(works, key=_order))) for works in joined]
    return sorted(merged, key=lambda line: line.order)


def each(works: Iterable[Work]) -> list[Line]:
    """Return a line for each thing to do, due first: worklist.csv."""
    return sorted((Line((work,)) for work in works), key=lambda line: line.order)


def _day_of(work: Work) -> date:
    return work.day or work.since.date()


def _order(work: Work) -> tuple[object, ...]:
    return (work.due, work.run, work.chunk or 0, str(work.fields))
