"""All runs of an issuer, or of all issuers: what became of them, and what is to be done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.cardholders import standing_table
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Field
from flows.commands.result import Link, Part, Result, Table
from flows.commands.results import READ_ONLY, TOP
from flows.configuration import load_issuer
from flows.errors import CardlinkError
from flows.steps import Sentence, Step
from flows.wiring import now, open_store, report_link, wire

with on_first_use():
    from flows.book import book, people
    from flows.operations import arrivals_beat, undecided_work
    from flows.reports import across, advice, hours, verdicts
    from flows.reports import survey as surveys
    from flows.reports import work as works
    from flows.runs import business_date, keys, run_status, stored_run, stored_runs
    from flows.runs import context as contexts
    from flows.submissions import extract_states, plan

if TYPE_CHECKING:
    from flows.runs.store import Store

WORK = (
    "due",
    "kind",
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


class _Overview(NamedTuple):
    """What is known across the runs of an issuer, and how it is shown."""

    facts: dict[str, Any]
    shown: list[Part]


class _Conversation(NamedTuple):
    """A line of the worklist, and the issuer whose it is."""

    line: works.Line
    context: contexts.IssuerContext


class _Status(NamedTuple):
    """An issuer's runs, and its business result: in one sentence, and as facts where known.

    `arrivals`: whether runs start when a file arrives, None where that is not wanted.
    """

    issuer: str
    runs: list[run_status.RunStatus]
    sentence: str
    cardholders: dict[str, Any] | None
    arrivals: arrivals_beat.Liveness | None


class _Extract(NamedTuple):
    """An extract as plain facts, and whether its run was refused."""

    facts: dict[str, Any]
    is_refused: bool


@entry("reconcile", form=Form("reconciliation", "reconciliation {issuer}", actor="optional"))
def reconcile(
    context: Context,
    issuer: str = "",
    *,
    from_date: Annotated[date | None, Field("--from")] = None,
    to_date: Annotated[date | None, Field("--to")] = None,
) -> Result:
    """Report across runs: open and overdue chunks, errors over time, cardholders without a link.

    Of a period, the files are in a folder of their own: those of all runs stay as they are.

    Args:
        issuer: The issuer, as its TOML file is named (default: all of them).
        from_date: First business date (default: the first there is).
        to_date: Last business date (default: the last there is).

    Example:
        cardlink reconcile first-bank --from 2026-11-01 --to 2026-11-30
    """

    def of_issuer(name: str) -> list[_Overview]:
        issuer_context = wire(context.folder, name)
        beside = undecided_work.beside_runs()
        survey = surveys.survey(issuer_context, from_date, to_date, beside)
        facts = across.report_across(issuer_context, survey, from_date, to_date)
        place = _place(issuer_context, keys.period(name, from_date, to_date))
        return [_Overview(facts, [*_across(facts, survey, issuer_context), place, ""])]

    overviews, unread = context.each(issuer, of_issuer)
    shown = list(chain.from_iterable(overview.shown for overview in overviews))
    facts = [overview.facts for overview in overviews]
    codes = [verdicts.ACROSS_RUNS[across_runs["verdict"]].exit_code for across_runs in facts]
    worth_a_look = [known["issuer"] for known, code in zip(facts, codes, strict=True) if code]
    next_step = Step("status", *worth_a_look[:1])
    result = Result(
        {"issuers": facts}, shown[:-1] or ["no issuers yet"], next_step, max(codes, default=0)
    )
    return result.beside(unread)


def _place(context: contexts.IssuerContext, folder: str) -> Part:
    """Return where the files are: a link to the page among them where its address is known."""
    issuer = context.issuer
    url = report_link(context, f"{folder}report.html")
    if url:
        return Link(url, f"All runs of {issuer.issuer}", f"{issuer.issuer}-all-runs")
    return f"files: {issuer.root}/{folder}"


def _across(
    facts: dict[str, Any], survey: surveys.Survey, context: contexts.IssuerContext
) -> Iterator[Part]:
    """Yield the report across runs: rows, cardholders, what is outstanding, and what is to do."""
    name = facts["issuer"]
    yield f"{name}: {facts['cardholders']['sentence']}"
    yield f"{len(facts['runs']):,} runs, {facts['verdict']}"
    yield ""
    yield Table(("rows", "count"), list(facts["rows"].items()))
    yield ""
    yield standing_table(facts["cardholders"])
    moment = survey.terms.now
    lines = works.lines(survey.work)
    yield _everything([_Conversation(line, context) for line in lines], moment, name)
    if facts["hours"]["links"]:
        yield ""
        yield hours.hours_line(facts["hours"])
    yield from _outstanding(facts["outstanding"])
    for line in lines[:TOP]:
        yield ""
        yield from _conversation(line, moment)
    if len(lines) > TOP:
        yield Sentence("and more: {worklist:bare}", worklist=Step("worklist", name))
    yield ""
    for number, sentence in enumerate(advice.across_advice(facts), start=1):
        yield f"{number}. {sentence}"


def _outstanding(outstanding: Mapping[str, Any]) -> Iterator[Part]:
    if outstanding["count"]:
        ages = outstanding["ages"].items()
        yield ""
        yield Table(
            ("outstanding since", "chunks", "rows"),
            [[age, sizes["count"], sizes["rows"]] for age, sizes in ages],
        )


@entry("worklist", form=Form("worklist", "worklist {issuer}", actor="none"))
def worklist(context: Context, issuer: str = "") -> Result:
    """List what is to be done about all runs, due first: what is the matter, who acts, the first
    step, and the decisions that can follow.

    What several issuers have of one kind is one line, whose commands take all of them.

    Args:
        issuer: The issuer, as its TOML file is named (default: all of them).

    Example:
        cardlink worklist first-bank
    """

    def of_issuer(name: str) -> list[_Conversation]:
        issuer_context = wire(context.folder, name)
        work = surveys.survey(issuer_context, beside=undecided_work.beside_runs()).work
        return [_Conversation(line, issuer_context) for line in works.lines(work)]

    conversations, unread = context.each(issuer, of_issuer)
    conversations.sort(key=lambda conversation: conversation.line.order)
    lines = [conversation.line for conversation in conversations]
    moment = now()
    joined = works.together(lines)
    shown: list[Part] = []
    for line in joined[:LONGEST]:
        shown += [*_conversation(line, moment), ""]
    everything = _everything(conversations, moment, issuer)
    shown = [*(shown[:-1] or ["nothing to do"]), everything]
    if len(joined) > LONGEST:
        template = "and {more:,} more: worklist.csv of {reconcile}"
        more = len(joined) - LONGEST
        shown.append(Sentence(template, more=more, reconcile=Step("reconcile")))
    facts = [_line_facts(line, moment) for line in lines]
    next_step = joined[0].first if joined else None
    merged = [_aged_facts(line, moment) for line in joined]
    result = Result(
        {"worklist": facts, "together": merged}, shown, next_step, headline=everything.title
    )
    return result.beside(unread)


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


def _conversation(line: works.Line, moment: datetime) -> Iterator[Part]:
    """Yield a line as a person reads it: the matter, the first step, then the decisions."""
    facts = line.facts(moment)
    about = ", ".join(filter(None, [facts["issuer"], facts["run"]]))
    head = f"due {facts['due'][:16]}, open for {facts['age']}, {facts['who']} acts"
    yield f"{facts['kind']} ({about}; {head})"
    yield f"   {line.sentence}"
    yield Sentence("   first: {step:bare}", step=line.first)
    for choice in line.choices:
        template = "   or {name}: {step:bare}"
        yield Sentence(template, name=choice.name, step=choice.command)


def _everything(conversations: Sequence[_Conversation], moment: datetime, issuer: str) -> Table:
    """Return the worklist as a table of its own in Prefect."""
    rows = [_row(conversation, moment) for conversation in conversations[:ARTIFACT]]
    title = f"{issuer or 'all issuers'}: {len(conversations):,} things to do"
    return Table(WORK, rows, f"{issuer or 'all'}-worklist", title, on_terminal=False)


def _row(conversation: _Conversation, moment: datetime) -> list[object]:
    """Return the cells of WORK; the report is a link where its address is known."""
    line = conversation.line
    facts = line.facts(moment)
    decisions = "; ".join(map(str, line.choices))
    cells = [facts[name] for name in WORK[:-2]]
    return [*cells, _with_address(conversation.context, line), decisions]


def _with_address(context: contexts.IssuerContext, line: works.Line) -> Step | Link:
    step = line.first
    if step.entry != "report":
        return step
    url = report_link(context, keys.keys_of(line.run).report("report.html"))
    return Link(url, step) if url else step


@entry("status", form=READ_ONLY)
def status(context: Context, issuer: str = "") -> Result:
    """Say who has a link, and list all runs, newest first: where their rows went, what is open.

    Args:
        issuer: Only this issuer's runs (default: those of all that are configured).

    Example:
        cardlink status first-bank
    """

    def of_issuer(name: str) -> list[_Status]:
        settings = load_issuer(context.folder, name)
        store = open_store(settings, context.folder)
        today = business_date.local_day(now(), settings.time_zone)
        arrivals = arrivals_beat.liveness(store, settings, now())
        return [_status(store, name, today, arrivals)]

    issuers, unread = context.each(issuer, of_issuer)
    statuses = list(chain.from_iterable(known.runs for known in issuers))
    if not statuses:
        return Result({"cardholders": {}, "runs": [], "arrivals": {}}, ["no runs yet"]).beside(
            unread
        )
    sentences = [f"{known.issuer}: {known.sentence}" for known in issuers if known.runs]
    facts = {
        "cardholders": {known.issuer: known.cardholders for known in issuers},
        "runs": [status_of_run._asdict() for status_of_run in statuses],
        "arrivals": {known.issuer: known.arrivals._asdict() for known in issuers if known.arrivals},
    }
    lines = [f"{known.issuer}: {known.arrivals.line}" for known in issuers if known.arrivals]
    shown: list[Part] = [*sentences, *lines, "", Table(run_status.RunStatus._fields, statuses)]
    return Result(facts, shown, headline=" ".join(sentences)).beside(unread)


def _status(
    store: Store, issuer: str, today: date, arrivals: arrivals_beat.Liveness | None
) -> _Status:
    """Return an issuer's runs and who has a link; the runs also where the book cannot be read."""
    runs = stored_runs.StoredRuns(store, issuer)
    try:
        known = book.read_book(store, issuer)
    except CardlinkError as error:
        sentence = f"it is not known where its cardholders stand: {error.what_happened}"
        return _Status(issuer, runs.statuses(), sentence, None, arrivals)
    result = people.balance(known.cards(today))
    return _Status(issuer, known.runs.statuses(runs), result.sentence, result.facts, arrivals)


@entry("extracts", form=READ_ONLY)
def extracts(context: Context, issuer: str = "") -> Result:
    """List every extract: pending, held, refused, committed or dismissed, by whom and why.

    Args:
        issuer: Only this issuer's extracts (default: those of all that are configured).

    Example:
        cardlink extracts first-bank
    """
    listed, unread = context.each(issuer, lambda name: _extracts(wire(context.folder, name)))
    facts = [extract.facts for extract in listed]
    # only what is still there can be dismissed; other content of its name may be committed by now
    refused = [
        extract.facts["key"] for extract in listed if extract.is_refused and extract.facts["entry"]
    ]
    next_step = plan.dismiss_step(refused[0]) if refused else None
    below = f"{issuer}/extracts/"
    rows = [
        [each["key"].removeprefix(below), each["state"], each["run"], "; ".join(each["why"])]
        for each in facts
    ]
    shown = Table(("extract", "state", "run", "why"), rows) if rows else "no extracts yet"
    return Result({"issuer": issuer, "extracts": facts}, [shown], next_step).beside(unread)


def _extracts(context: contexts.IssuerContext) -> list[_Extract]:
    """Return every extract of an issuer, and why it is in its state."""
    return [
        _extract(state, _refusal(context, state))
        for state in extract_states.extract_states(context)
    ]


def _refusal(
    context: contexts.IssuerContext, extract: extract_states.ExtractState
) -> run_status.Refusal | None:
    """Return what refused the last run of an extract that still needs one, or is gone."""
    is_open = extract.state in extract_states.UNSUBMITTED or extract.entry is None
    if not extract.run or not is_open:
        return None
    return stored_run.StoredRun.by_id(context.adapters.store, extract.run).refusal


def _extract(extract: extract_states.ExtractState, refusal: run_status.Refusal | None) -> _Extract:
    facts = {
        **extract._asdict(),
        "entry": extract.entry is not None,
        "why": list(_why(extract, refusal)),
        "dismissals": [record.model_dump(mode="json") for record in extract.dismissals],
    }
    return _Extract(facts, is_refused=refusal is not None)


def _why(extract: extract_states.ExtractState, refusal: run_status.Refusal | None) -> Iterator[str]:
    """Yield why an extract is in its state."""
    if refusal is not None:
        yield f"refused: {refusal.sentence}"
    if extract.other:
        content = "other content than" if extract.state == "held" else "same bytes as"
        yield f"{content} {extract.other}"
    for record in extract.dismissals[-1:]:
        yield f"{record.what} by {record.by} on {record.at:%Y-%m-%d}: {record.reason}"
    if extract.waits:
        yield extract.waits
    if extract.entry is None:
        yield "the file is gone or has other content"
