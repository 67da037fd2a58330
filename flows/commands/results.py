"""Results and reports: ingest, report, reconcile, status, extracts, history, trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import chain, groupby
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import DRY_OR_SEND, Form
from flows.commands.parameters import DryRun, Field, Issuer, Number, Reason, RunName
from flows.commands.result import Link, Part, Result, Table, artifact
from flows.configuration import load_issuer
from flows.steps import RECEIPT, Sentence, Step, Text
from flows.wiring import edges, now, open_store, report_link, wire

with on_first_use():
    from flows.operations import delivery
    from flows.operations import history as run_history
    from flows.reports import (
        across,
        advice,
        cardholder,
        cardholder_trace,
        hours,
        ingestion,
        rebuild,
        summary,
        survey,
        verdicts,
    )
    from flows.reports import worklist as worklists
    from flows.runs import business_date, keys, run_status, stored_run, stored_runs
    from flows.runs import context as contexts
    from flows.runs import keys as run_keys
    from flows.submissions import extract_states, plan
    from schemas import ledger

WORK = ("kind", "run", "chunk", "rows", "age", "who", "command")
LONGEST, ARTIFACT = 50, 1000  # lines of the worklist on a terminal, and in Prefect
TOP = 10  # lines of a table on a terminal; the files have them all
NAMED = 3  # runs of an ingest in its sentence
READ_ONLY = "it changes nothing; the tables of the other flows show the same"
FILES = "report.html report.xlsx links.csv errors.csv rejects.csv awaiting.csv breaks.csv questions.csv summary.json"
INGEST = Form("ingest", "results of {issuer}", hours=2, retries=(10, 60), actor="optional")
STAGES = (
    ("submit", "why we refused or warned", "rejects.csv"),
    ("partner", "why the partner refused", "errors.csv"),
)


@entry("ingest", form=INGEST)
def ingest(context: Context, issuer: Issuer, *, run: RunName = "") -> Result:
    """Ingest new result files, attribute every row, and bring the reports up to date.

    Args:
        issuer: Whose results. All new files are ingested.
        run: A run whose report is rebuilt even without new results.
    """
    issuer_context = wire(context.folder, issuer)
    done = ingestion.ingest(issuer_context, run)
    line = (
        f"{issuer}: {done.files:,} new result files, {done.rows:,} rows"
        if done.files
        else f"{issuer}: nothing new"
    )
    line += f"; {done.open_files:,} files with open breaks" if done.open_files else ""
    line += f"; {done.unjudged:,} files wait for their malware verdict" if done.unjudged else ""
    return ingested(issuer_context, done, line, done._asdict())


def ingested(
    context: contexts.IssuerContext, done: ingestion.Ingested, line: str, facts: dict[str, Any]
) -> Result:
    """Show what an ingest did, and the report of each run it concerns."""
    name = context.issuer.issuer
    reports = [report_of(context, report.summary) for report in done.reports]
    shown: list[Part] = [line, *(f"break: {problem}" for problem in done.breaks)]
    shown += [part for one in reports for part in ("", *one.shown)]
    facts = {**facts, "issuer": name, "reports": [one.facts for one in reports]}
    code = max([one.exit_code for one in reports] + [4 if done.breaks else 0])
    headline = "; ".join([line, *(one.headline for one in reports[:NAMED])])
    headline += f"; and {len(reports) - NAMED:,} more runs" if len(reports) > NAMED else ""
    outbox = name if reports else ""
    return Result(facts, shown, Step("status", name), code, outbox, headline)


@entry("history", form=READ_ONLY)
def history(context: Context, run: RunName) -> Result:
    """Show the audit trail of RUN: who did what and when, from its first plan to its last
    result.
    """
    found = run_history.history(context.context_of(run).adapters.store, run)
    lines = []
    for one in found:
        lines.append(
            f"{one.at[:19].replace('T', ' ')}  {one.what}{f' by {one.by}' if one.by else ''}"
        )
        for name, value in one.facts.items():
            lines.append(
                f"    {name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
            )
    return Result({"run": run, "history": [one._asdict() for one in found]}, lines)


@entry("report", form="the form of `ingest` rebuilds the report of a run")
def report(context: Context, run: RunName) -> Result:
    """Rebuild the report of RUN from its ledger and results, and print its balance."""
    issuer_context = context.context_of(run)
    stored = stored_run.StoredRun.by_id(issuer_context.adapters.store, run)
    return report_of(issuer_context, rebuild.rebuild(issuer_context, stored).summary)


def report_of(context: contexts.IssuerContext, summary: dict[str, Any]) -> Result:
    """Show a run's report: rows, balance, the most frequent reasons, breaks, and where the files
    are.
    """
    run, verdict, place = (
        summary["run"],
        summary["verdict"],
        run_keys.keys_of(summary["run"]).report,
    )
    equations = []
    for line in summary["balance"]:
        closed = f", {line['closed']:,} closed by hand" if line["closed"] else ""
        equations.append(
            [
                line["name"],
                line["left"],
                line["right"],
                f"{'ok' if line['holds'] else 'DIFFERS'}{closed}",
            ]
        )
    shown: list[Part] = [
        f"{run}: {run_status.headline(verdict, summary['rows']['awaiting'])}",
        "",
        Table(("rows", "count"), list(summary["rows"].items())),
        "",
        Table(("balance", "left", "right", ""), equations, f"{run}-balance", verdict),
    ]
    for stage, title, file in STAGES:
        reasons = [[one["code"], one["rows"], one["action"]] for one in summary["reasons"][stage]]
        shown += ["", Table((title, "rows", "what to do"), reasons[:TOP])] if reasons else []
        shown += [f"and {len(reasons) - TOP:,} more: {file}"] if len(reasons) > TOP else []
    if attempts := summary.get("attempts"):
        states = ("rows", "linked", "error", "awaiting")
        resent = [[one["run"], *(one[state] for state in states)] for one in attempts["runs"]]
        after = list(attempts["after"].items())
        shown += [
            "",
            Table(("sent again", *states), resent),
            "",
            Table(("rows after all attempts", "count"), after),
        ]
    for one in summary["breaks"]:
        shown += break_lines(one, one["then"])
        shown += [_way(run, one, way) for way in one["decide"]]
    if summary["breaks"]:
        shown += [
            artifact(summary["breaks"], f"{run}-breaks", "What does not balance, and what to do")
        ]
    for one in summary["closed"]:
        shown += break_lines(one, f"closed by {one['by']}: {one['reason']}. {one['decision']}")
    shown += ["", f"files: {context.issuer.root}/{place('')} ({FILES})"]
    if url := report_link(context, place("report.html")):
        shown += [Link(url, f"The report of {run}", f"{run}-report")]
    next_step = None
    if verdict == verdicts.WAITING:
        next_step = Step("outbox list", context.issuer.issuer, run=run)
    rows = ", ".join(
        f"{number:,} {state}"
        for state, number in summary["rows"].items()
        if number and state != "read"
    )
    return Result(
        summary,
        shown,
        next_step,
        verdicts.OF_A_RUN[verdict].exit_code,
        headline=f"{run}: {verdict}, {rows}",
    )


def _way(run: str, one: Mapping[str, Any], way: Mapping[str, str]) -> Sentence:
    """Return the line of a decision about a break."""
    step = summary.close_step(run, one["name"], one["place"], way["decision"])
    return Sentence("  {step:bare}  # {effect}", step=step, effect=way["effect"])


def break_lines(one: Mapping[str, Any], what: str) -> list[str]:
    """Return the lines of a break: its name, rows and place; what to do about it, or who closed
    it.
    """
    return ["", f"{one['name']} ({one['rows']:,} rows) {one['place']}", f"  {what}"]


@entry("reconcile", form=Form("reconciliation", "reconciliation {issuer}", actor="optional"))
def reconcile(
    context: Context,
    issuer: str = "",
    *,
    from_date: Annotated[date | None, Field("--from")] = None,
    to_date: Annotated[date | None, Field("--to")] = None,
) -> Result:
    """Report across runs: what is outstanding or overdue, errors over time, cardholders without a
    link.

    Args:
        issuer: The issuer, as its TOML file is named (default: all of them).
        from_date: First business date (default: the first there is).
        to_date: Last business date (default: the last there is).
    """

    def of_one(name: str) -> list[tuple[dict[str, Any], list[Part]]]:
        issuer_context = wire(context.folder, name)
        known = survey.survey(issuer_context, from_date, to_date)
        facts = across.report_across(issuer_context, known, from_date, to_date)
        place = f"files: {issuer_context.issuer.root}/{keys.reconciliation(name)}"
        return [(facts, [*_across(facts, known), place, ""])]

    done, unread = context.each(issuer, of_one)
    found, shown = [facts for facts, _ in done], [line for _, lines in done for line in lines]
    codes = {one["issuer"]: verdicts.ACROSS_RUNS[one["verdict"]].exit_code for one in found}
    next_step = Step("status", next((name for name, code in codes.items() if code), ""))
    code = max(codes.values(), default=0)
    return Result({"issuers": found}, shown[:-1] or ["no issuers yet"], next_step, code).beside(
        unread
    )


def _across(facts: dict[str, Any], known: survey.Survey) -> list[Part]:
    name, waiting = facts["issuer"], facts["outstanding"]
    shown: list[Part] = [
        f"{name}: {len(facts['runs']):,} runs, {facts['verdict']}",
        "",
        Table(("rows", "count"), list(facts["rows"].items())),
        "",
        Table(("cardholders by last state", "count"), list(facts["cardholders"].items())),
        artifact(facts["worklist"], f"{name}-worklist", f"{name}: what is to be done, due first"),
    ]
    shown += ["", hours.hours_line(facts["hours"])] if facts["hours"]["links"] else []
    if waiting["count"]:
        ages = [[age, sizes["count"], sizes["rows"]] for age, sizes in waiting["ages"].items()]
        shown += ["", Table(("outstanding since", "chunks", "rows"), ages)]
    if known.work:
        shown += ["", _to_do(known.work[:TOP], known.terms.now)]
    if len(known.work) > TOP:
        shown.append(Sentence("and more: {worklist:bare}", worklist=Step("worklist", name)))
    return [
        *shown,
        "",
        *(f"{at}. {one}" for at, one in enumerate(advice.across_advice(facts), start=1)),
    ]


@entry("worklist", form=Form("worklist", "worklist {issuer}", actor="none"))
def worklist(context: Context, issuer: str = "") -> Result:
    """List what is to be done about all runs, due first: who acts, and the command to paste.

    Args:
        issuer: The issuer, as its TOML file is named (default: all of them).
    """
    found, unread = context.each(
        issuer, lambda name: survey.survey(wire(context.folder, name)).work
    )
    work, moment = sorted(found, key=lambda line: line.order), now()
    lines = [line.facts(moment) for line in work]
    title = f"{issuer or 'all issuers'}: {len(work):,} things to do"
    shown: list[Part] = [_to_do(work[:LONGEST], moment) if work else "nothing to do"]
    shown += [artifact(lines[:ARTIFACT], f"{issuer or 'all'}-worklist", title)]
    if len(work) > LONGEST:
        template = "and {number:,} more: worklist.csv of {reconcile}"
        more = len(work) - LONGEST
        shown.append(Sentence(template, number=more, reconcile=Step("reconcile")))
    return Result({"worklist": lines}, shown, work[0].command if work else None).beside(unread)


def _to_do(work: Sequence[worklists.Work], moment: datetime) -> Table:
    rows = []
    for line in work:
        facts = line.facts(moment)
        named = [facts[name] or "" for name in WORK[:-1]]
        rows.append([facts["due"][:16], *named, line.command])
    return Table(("due", *WORK), rows)


@entry(
    "deliver",
    form=Form("deliver", "links of {issuer}", hours=2, choices=(DRY_OR_SEND,), retries=(10, 60)),
)
def deliver(
    context: Context,
    issuer: Issuer,
    *,
    confirm: Number | None = None,
    reason: Reason = "",
    dry_run: DryRun = False,
) -> Result:
    """Deliver ISSUER's links: those new since the last confirmed delivery, and those no longer to
    be used.

    Args:
        issuer: Whose links, of all runs and single links.
        confirm: Record that the receiving side has this delivery; then give the reason, such as its
            receipt.
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    prefix = "dry run, nothing was written: " if dry_run else ""
    if confirm is not None:
        confirmed = delivery.confirm(issuer_context, confirm, reason)
        line = f"{prefix}{issuer}: delivery {confirm} confirmed {confirmed.at:%Y-%m-%d %H:%M} by {confirmed.by}"
        facts = {
            "issuer": issuer,
            "number": confirm,
            "dry_run": dry_run,
            **confirmed.model_dump(mode="json"),
        }
        return Result(facts, [f"{line}: {confirmed.reason}"])
    done = delivery.deliver(issuer_context)
    facts = {
        "issuer": issuer,
        "number": done.number,
        "fresh": done.fresh,
        "dry_run": dry_run,
        "doubts": done.doubts,
    }
    doubts = [f"{key} names other bytes than were delivered: not confirmed" for key in done.doubts]
    if done.record is None:
        return Result(facts, [f"{issuer}: nothing new since the last confirmed delivery", *doubts])
    one, place = done.record, delivery.folder(issuer, done.number)
    state = "written" if done.fresh else "not confirmed yet, nothing new since"
    lines = [
        f"{prefix}{issuer}: delivery {done.number} {state}: {one.new:,} new, {one.replaced:,} replaced, "
        f"{one.withdrawn:,} withdrawn; {one.living:,} living links",
        *doubts,
        f"files: {issuer_context.issuer.root}/{place} ({' '.join(one.files)})",
    ]
    next_step = Step("deliver", issuer, confirm=done.number, reason=RECEIPT)
    return Result({**facts, **one.model_dump(mode="json")}, lines, next_step)


@entry("status", form=READ_ONLY)
def status(context: Context, issuer: str = "") -> Result:
    """List all runs, newest first: where their rows went and what is open.

    Args:
        issuer: Only this issuer's runs (default: those of all that are configured).
    """

    def of_one(name: str) -> list[run_status.RunStatus]:
        store = open_store(load_issuer(context.folder, name), context.folder)
        return stored_runs.StoredRuns(store, name).statuses()

    found, unread = context.each(issuer, of_one)
    table = Table(run_status.RunStatus._fields, found)
    return Result(
        {"runs": [one._asdict() for one in found]}, [table if found else "no runs yet"]
    ).beside(unread)


@entry("extracts", form=READ_ONLY)
def extracts(context: Context, issuer: str = "") -> Result:
    """List every extract: pending, held or refused and why, committed as which run, dismissed by
    whom and why.

    Args:
        issuer: Only this issuer's extracts (default: those of all that are configured).
    """
    facts, unread = context.each(issuer, lambda name: _extracts(wire(context.folder, name)))
    next_step = next(
        (
            plan.dismiss_step(one["key"])
            for one in facts
            if "".join(one["why"]).startswith("refused")
        ),
        None,
    )
    below = f"{issuer}/extracts/"
    lines = [
        [one["key"].removeprefix(below), one["state"], one["run"], "; ".join(one["why"])]
        for one in facts
    ]
    shown = [Table(("extract", "state", "run", "why"), lines) if lines else "no extracts yet"]
    return Result({"issuer": issuer, "extracts": facts}, shown, next_step).beside(unread)


def _extracts(context: contexts.IssuerContext) -> list[dict[str, Any]]:
    """Return every extract of an issuer, and why it is in its state."""
    facts = []
    for one in extract_states.extract_states(context):
        tried = one.run and (one.state in extract_states.WAITING or one.entry is None)
        refused = None
        if tried:
            refused = stored_run.StoredRun.by_id(context.adapters.store, one.run).refusal
        why = [f"refused: {refused.sentence}"] if refused else []
        why += (
            [f"{'other content than' if one.state == 'held' else 'same bytes as'} {one.other}"]
            if one.other
            else []
        )
        why += [
            f"{last.what} by {last.by} on {last.at:%Y-%m-%d}: {last.reason}"
            for last in one.dismissals[-1:]
        ]
        why += [one.waits] if one.waits else []
        why += ["the file is gone or has other content"] if one.entry is None else []
        chain = [record.model_dump(mode="json") for record in one.dismissals]
        facts.append(
            {**one._asdict(), "entry": one.entry is not None, "why": why, "dismissals": chain}
        )
    return facts


@entry("trace", form="what is known of one person is kept out of every form's log")
def trace(context: Context, cuid: str, *, issuer: str = "", url: bool = False) -> Result:
    """Show everything that happened to one cardholder, over all runs, and what to do next.

    Args:
        cuid: The cardholder's reference at the issuer.
        issuer: Only this issuer's runs (default: those of all that are configured).
        url: Show the links themselves: they are personal secrets.
    """
    cardholder_trace.refuse_card_number(cuid)

    def of_one(
        name: str,
    ) -> list[tuple[cardholder_trace.CardholderTrace, list[cardholder.CardStatus]]]:
        settings = load_issuer(context.folder, name)
        found = cardholder_trace.trace(edges(settings, context.folder), name, cuid, urls=url)
        return [
            (
                found,
                cardholder.card_statuses(
                    found.attempts, business_date.local_day(now(), settings.time_zone)
                ),
            )
        ]

    done, unread = context.each(issuer, of_one)
    attempts = [one for found, _ in done for one in found.attempts]
    purged, cards = (
        [run for found, _ in done for run in found.purged],
        [one for _, each in done for one in each],
    )
    lines: list[Text] = list(_attempt_lines(attempts))
    lines += [
        f"now: card {_card(one.last_4, one.expiration)} at {one.issuer} {one.stands}"
        for one in cards
    ]
    lines = lines or ["no run with a ledger has this cuid"]
    if purged:
        lines.append(
            f"not searched: {len(purged):,} runs whose ledgers are purged, {purged[0]} to {purged[-1]}"
        )
    known = {
        "attempts": [one._asdict() for one in attempts],
        "stands": [card.facts for card in cards],
    }
    advised = [card for card in cards if card.then]
    lines += [
        Sentence(
            "next for card {card}: {then}",
            card=_card(card.last_4, card.expiration),
            then=card.then,
        )
        for card in advised
    ]
    steps = [card.then.steps for card in advised if isinstance(card.then, Sentence)]
    next_step = next(chain.from_iterable(steps), None)
    return Result({"cuid": cuid, **known, "purged": purged}, lines, next_step).beside(unread)


def _attempt_lines(attempts: list[cardholder.Attempt]) -> Iterator[str]:
    """Yield the lines of every attempt; consecutive runs that suppressed the row for the same
    reason are one line.
    """
    for (state, *_), alike in groupby(attempts, lambda one: (one.state, one.reasons, one.issuer)):
        found = list(alike)
        if state == ledger.SUPPRESSED and len(found) > 1:
            why = ", ".join(found[0].reasons)
            yield f"{found[0].at:%Y-%m-%d %H:%M}  {len(found):,} runs to {found[-1].run}: not sent, {why}"
        else:
            yield from (line for one in found for line in _attempt(one))


def _attempt(one: cardholder.Attempt) -> Iterator[str]:
    where = f", chunk {one.chunk} position {one.position}" if one.chunk else ""
    row = f"{one.run} row {one.row}" if one.run else "typed in"
    yield f"{one.at:%Y-%m-%d %H:%M}  {row}{where}: card {_card(one.last_4, one.expiration)}, {one.state}"
    known = {
        "repeats": one.origin,
        "chunk": one.sent,
        "why": ", ".join(one.reasons),
        "the partner": one.message,
        "link until": one.expires_on,
        "link": one.url,
        "result": f"{one.result} ({one.how})" if one.result else None,
    }
    yield from (f"    {name}: {value}" for name, value in known.items() if value)


def _card(last_4: str | None, expiration: str | None) -> str:
    until = f" {expiration[2:]}/{expiration[:2]}" if expiration else ""
    return f"..{last_4 or '????'}{until}"
