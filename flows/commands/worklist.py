"""The worklist: where cardholders, extracts and runs stand, and what is to be done, due first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.extract_facts import Extract, extract_table, extracts_of
from flows.commands.form import Form
from flows.commands.parameters import Field
from flows.commands.result import Link, Part, Result, Table
from flows.steps import Sentence, Step, counted
from flows.wiring import now, report_link, wire

with on_first_use():
    from flows.operations import conditions as beside
    from flows.operations import matters, undecided_work
    from flows.reports import open_items, run_facts, summary
    from flows.reports import survey as surveys
    from flows.reports import work as works
    from flows.reports import work_kinds as kinds
    from flows.runs import context as contexts
    from flows.runs import keys, run_status

WORK = (
    "due",
    "kind",
    "numbers",
    "issuer",
    "run",
    "runs",
    "rows",
    "age",
    "who",
    "matter",
    "first",
    "decisions",
)
LONGEST = 50  # lines of the worklist on a terminal
ARTIFACT = 1000  # and in Prefect
NAMED = 3  # extracts or days named in a line
OVER = ("refused", "replaced by another run", "abandoned")  # of runs that are not committed
UPLOADED = "uploaded"
PLACES = {"waiting": "to be uploaded", "held": "on hold"}  # of chunks without an answer
FORM = Form("worklist", "worklist {issuer}", actor="none", without=("everything",))


class Conversation(NamedTuple):
    """A line of the worklist, and the issuer whose it is."""

    line: works.Line
    context: contexts.IssuerContext


class _Issuer(NamedTuple):
    """Where an issuer stands, and what is to be done about it."""

    context: contexts.IssuerContext
    survey: surveys.Survey
    extracts: list[Extract]
    runs: list[run_status.RunStatus]  # newest first
    under_way: frozenset[str]
    conditions: list[beside.Condition]

    @property
    def name(self) -> str:
        return self.context.issuer.issuer

    def extracts_shown(self, everything: bool) -> list[Extract]:
        """Return all extracts, or those that still need something."""
        return [extract for extract in self.extracts if everything or extract.is_open]

    @property
    def has_pending(self) -> bool:
        """Whether an extract waits for the next submit."""
        return any(extract.word == "pending" for extract in self.extracts)

    def runs_shown(self, everything: bool) -> list[run_status.RunStatus]:
        """Return all runs, or those under way."""
        return [run for run in self.runs if everything or run.run in self.under_way]

    @property
    def conversations(self) -> list[Conversation]:
        return [Conversation(line, self.context) for line in works.lines(self.survey.work)]


@entry("worklist", form=FORM)
def worklist(
    context: Context,
    issuer: str = "",
    *,
    everything: Annotated[bool, Field("--all")] = False,
) -> Result:
    """List what is to be done, due first, below where cardholders, extracts and runs stand.

    A line says what is the matter, who acts, the first step, and the decisions that can follow.
    What several issuers have of one kind is one line, whose commands take all of them.

    Args:
        issuer: The issuer, as its TOML file is named (default: all of them).
        everything: Every extract and every run too, as tables.

    Example:
        cardlink worklist first-bank
    """
    issuers, unread = context.each(issuer, lambda name: [_issuer(context, name)])
    conversations = list(chain.from_iterable(known.conversations for known in issuers))
    conversations.sort(key=lambda conversation: conversation.line.order)
    lines = [conversation.line for conversation in conversations]
    joined = works.together(lines)
    moment = now()
    to_do = everything_to_do(conversations, moment, issuer)
    tables = [*_tables(issuers)] if everything else []
    standing = chain.from_iterable(map(_standing, issuers))
    facts = {
        **_standing_facts(issuers, everything),
        "worklist": [_line_facts(line, moment) for line in lines],
        "together": [_aged_facts(line, moment) for line in joined],
    }
    pending = [known.name for known in issuers if known.has_pending]
    shown = [*standing, *tables, *_to_do(joined, moment, is_pending=bool(pending)), to_do]
    next_step = joined[0].first if joined else None
    if not joined and pending:
        next_step = Step("submit", ",".join(pending))
    return Result(facts, shown, next_step, headline=to_do.title).beside(unread)


def _standing_facts(issuers: Sequence[_Issuer], everything: bool) -> dict[str, Any]:
    """Return where issuers stand, as facts."""
    extracts = chain.from_iterable(known.extracts_shown(everything) for known in issuers)
    runs = chain.from_iterable(known.runs_shown(everything) for known in issuers)
    return {
        "cardholders": {known.name: known.survey.balance.facts for known in issuers},
        "conditions": {known.name: list(map(_facts_of, known.conditions)) for known in issuers},
        "extracts": [extract.facts for extract in extracts],
        "runs": [run._asdict() for run in runs],
    }


def _facts_of(state: beside.Condition) -> dict[str, Any]:
    return {"name": state.name, "text": state.text, "is_down": state.trouble is not None}


def _issuer(context: Context, name: str) -> _Issuer:
    """Return where an issuer stands, and what is to be done about it."""
    issuer_context = wire(context.folder, name)
    store = issuer_context.adapters.store
    survey = surveys.survey(issuer_context, beside=undecided_work.beside_runs())
    survey = survey._replace(work=matters.numbered(issuer_context, survey.work))
    known = survey.known
    statuses = known.statuses(survey.stored)
    waiting = {run.run for run in survey.runs if run.rows_awaited}
    ended = {plan.run for plan in known.plans.values() if plan.end}
    begun = {run.run for run in statuses if run.run not in ended and run.state not in OVER}
    states = beside.conditions(issuer_context.issuer, store, now())
    extracts = extracts_of(issuer_context, known.plans.values())
    facts = {run.run: run for run in survey.runs}
    runs = [located(run, facts.get(run.run)) for run in statuses]
    return _Issuer(issuer_context, survey, extracts, runs, frozenset(waiting | begun), states)


def located(status: run_status.RunStatus, run: run_facts.RunFacts | None) -> run_status.RunStatus:
    """Return the status of a run with where its chunks with rows that wait are.

    Where the rows are of one that is not committed is not known.
    """
    if status.state in (*OVER, "not committed"):
        unknown: dict[str, Any] = dict.fromkeys(summary.FIGURES)
        return status._replace(**unknown)
    chunks = [chunk for chunk in run.waiting if not chunk.is_cancelled] if run else []
    if not run or not chunks:
        return status
    numbers = Counter(_place(chunk) for chunk in chunks)
    where = [counted(numbers[place], f"chunk {place}", f"chunks {place}") for place in numbers]
    parts = [status.state, ", ".join(where)]
    if status.state == run_status.UNREPORTED:
        rows = counted(run.rows_awaited, "row waits", "rows wait")
        parts = ["committed", parts[1], rows]
    return status._replace(state="; ".join(parts))


def _place(chunk: open_items.WaitingChunk) -> str:
    """Return where a chunk is; one that has answers was uploaded, whatever was recorded."""
    is_unsent = chunk.missing in (open_items.MISSING, open_items.NOT_DUE)
    return PLACES.get(chunk.state, UPLOADED) if is_unsent else UPLOADED


def _standing(known: _Issuer) -> Iterator[Part]:
    """Yield where an issuer stands: cardholders, what runs beside, extracts, runs under way."""
    yield f"{known.name}: {known.survey.balance.sentence}"
    for state in known.conditions:
        yield f"   {state.name}: {state.text}"
    yield f"   extracts: {_extracts(known)}"
    for run in known.runs_shown(everything=False):
        yield f"   under way: {run.run}: {run.state}"
    yield ""


def _extracts(known: _Issuer) -> str:
    """Say which extracts are open, and on which days none came."""
    by_state: dict[str, list[str]] = {}
    for extract in known.extracts_shown(everything=False):
        by_state.setdefault(extract.word, []).append(extract.name)
    parts = [f"{len(names):,} {state} ({_named(names)})" for state, names in by_state.items()]
    missing = [work for work in known.survey.work if work.kind == kinds.NO_EXTRACT]
    if missing:
        days = [str(dict(work.fields)["name"]) for work in missing]
        parts.append(f"{len(days):,} missing ({_named(days)})")
    if parts:
        return ", ".join(parts)
    return "each has its run" if known.extracts else "none yet"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _tables(issuers: Sequence[_Issuer]) -> Iterator[Part]:
    """Yield every extract and every run of issuers."""
    yield extract_table(list(chain.from_iterable(known.extracts for known in issuers)))
    yield ""
    runs = list(chain.from_iterable(known.runs for known in issuers))
    yield Table(run_status.RunStatus._fields, runs)
    yield ""


def _to_do(
    joined: Sequence[works.Line], moment: datetime, *, is_pending: bool = False
) -> Iterator[Part]:
    """Yield what is to be done, as far as a terminal shows it."""
    if not joined:
        yield "nothing to do but submit the pending extracts" if is_pending else "nothing to do"
        return
    yield f"{counted(len(joined), 'thing')} to do, due first:"
    for line in joined[:LONGEST]:
        yield ""
        yield from conversation(line, moment)
    if len(joined) > LONGEST:
        template = "and {more:,} more: worklist.csv of {reconcile}"
        yield ""
        yield Sentence(template, more=len(joined) - LONGEST, reconcile=Step("reconcile"))


def _line_facts(line: works.Line, moment: datetime) -> dict[str, Any]:
    """Return a line as plain facts, with each thing to do in it."""
    facts = _aged_facts(line, moment)
    facts["each"] = [
        {"chunk": single.works[0].chunk, **_aged_facts(single, moment)}
        for single in works.each(line.works)
    ]
    return facts


def _aged_facts(line: works.Line, moment: datetime) -> dict[str, Any]:
    """Return a line as plain facts, its age as a number."""
    facts = line.facts(moment)
    del facts["age"]
    oldest = min(work.since for work in line.works)
    return {**facts, "age_seconds": int((moment - oldest).total_seconds())}


def conversation(line: works.Line, moment: datetime) -> Iterator[Part]:
    """Yield a line as a person reads it: the matter, the first step, then the decisions."""
    facts = line.facts(moment)
    about = ", ".join(filter(None, [facts["issuer"], facts["run"]]))
    head = f"due {facts['due'][:16]}, open for {facts['age']}, {facts['who']} acts"
    named = f"{facts['kind']} {facts['numbers']}".rstrip()
    yield f"{named} ({about}; {head})"
    yield f"   {line.sentence}"
    yield Sentence("   first: {step:bare}", step=line.first)
    for part in line.by_issuer:
        for choice in part.decisions:
            template = "   or {name}: {step:bare}"
            yield Sentence(template, name=choice.name, step=choice.command)


def everything_to_do(conversations: Sequence[Conversation], moment: datetime, issuer: str) -> Table:
    """Return the worklist as a table of its own in Prefect."""
    rows = [_row(conversation, moment) for conversation in conversations[:ARTIFACT]]
    title = f"{issuer or 'all issuers'}: {counted(len(conversations), 'thing')} to do"
    return Table(WORK, rows, f"{issuer or 'all'}-worklist", title, on_terminal=False)


def _row(conversation: Conversation, moment: datetime) -> list[object]:
    """Return the cells of WORK; the report is a link where its address is known."""
    line = conversation.line
    facts = line.facts(moment)
    decisions = "; ".join(map(str, line.decisions))
    cells = [facts[name] for name in WORK[:-2]]
    return [*cells, _with_address(conversation.context, line), decisions]


def _with_address(context: contexts.IssuerContext, line: works.Line) -> Step | Link:
    step = line.first
    if step.entry != "report":
        return step
    url = report_link(context, keys.keys_of(line.run).report("report.html"))
    return Link(url, step) if url else step
