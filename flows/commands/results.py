"""Results of a run: ingest them, and show its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Issuer, RunName
from flows.commands.result import Link, Part, Place, Result, Table, artifact, worst
from flows.extensions import continued
from flows.steps import Sentence, Step, counted
from flows.wiring import report_link, wire

with on_first_use():
    from flows.operations import kept_answers
    from flows.reports import ingestion, verdicts
    from flows.reports import summary as summaries
    from flows.runs import context as contexts
    from flows.runs import keys, run_status

TOP = 10  # lines of a table on a terminal; the files have them all
NAMED = 3  # runs of an ingest in its sentence
FILES = (
    "report.html report.xlsx links.csv errors.csv rejects.csv awaiting.csv breaks.csv "
    "questions.csv summary.json"
)
INGEST = Form("ingest", "results of {issuer}", hours=2, retries=(10, 60), actor="optional")
STAGES = (
    ("submit", "why we refused or warned", "rejects.csv"),
    ("partner", "why rows sent have no link", "errors.csv"),
)
ATTEMPT_STATES = ("rows", "linked", "error", "awaiting")


@entry("ingest", form=INGEST)
def ingest(context: Context, issuer: Issuer, *, run: RunName = "") -> Result:
    """Ingest new result files, attribute every row, and bring the reports up to date.

    Args:
        issuer: Whose results. All new files are ingested.
        run: A run whose report is rebuilt even without new results.

    Example:
        cardlink ingest first-bank
    """
    issuer_context = wire(context.folder, issuer)
    done = ingestion.ingest(issuer_context, run)
    decided = kept_answers.apply_kept(issuer_context)
    news = "nothing new"
    if done.files:
        news = f"{counted(done.files, 'new result file')}, {counted(done.rows, 'row')}"
    parts = [f"{issuer}: {news}"]
    if done.open_breaks:
        parts.append(counted(done.open_breaks, "open break"))
    if done.open_files:
        parts.append(f"{counted(done.open_files, 'file')} not fully matched")
    if done.unjudged:
        waiting = counted(done.unjudged, "file waits for its", "files wait for their")
        parts.append(f"{waiting} malware verdict")
    result = ingested(issuer_context, done, "; ".join(parts), done._asdict())
    result = result._replace(shown=[*result.shown, *decided])
    before = result.shown
    result = continued("after_ingest", issuer_context, result)
    is_idle = not done.files and not done.reports and not decided and result.shown == before
    return result._replace(is_idle=is_idle)


def ingested(
    context: contexts.IssuerContext, done: ingestion.Ingested, line: str, facts: dict[str, Any]
) -> Result:
    """Show what an ingest did, and the report of each run it concerns."""
    issuer = context.issuer.issuer
    reports = [report_of(context, report.summary) for report in done.reports]
    shown: list[Part] = [line, *(f"break: {problem}" for problem in done.breaks)]
    for report in reports:
        shown += ["", *report.shown]
    codes = [4] if done.breaks else []
    codes += [report.exit_code for report in reports]
    headlines = [report.headline for report in reports[:NAMED]]
    if len(reports) > NAMED:
        headlines.append(f"and {len(reports) - NAMED:,} more runs")
    headlines.append(line)
    return Result(
        {**facts, "issuer": issuer, "reports": [report.facts for report in reports]},
        shown,
        Step("worklist", issuer),
        worst(codes),
        outbox=issuer if reports else "",
        headline="; ".join(headlines),
    )


def report_of(context: contexts.IssuerContext, summary: dict[str, Any]) -> Result:
    """Show a run's report from its summary.

    Rows, balance, the most frequent reasons, breaks, and where the files are.
    """
    run = summary["run"]
    verdict = summary["verdict"]
    rows = summary["rows"]  # without those of which it has none
    shown: list[Part] = [
        f"{run}: {summary['open']['result']['sentence']}",
        run_status.headline(summary),
        "",
        Table(("rows", "count"), [[name, rows.get(name, 0)] for name in summaries.FIGURES]),
        "",
        _balance(run, verdict, summary["balance"]),
        *_reasons(summary["reasons"]),
        *_attempts(summary.get("attempts")),
        *_breaks(run, summary),
        *_files(context, run),
    ]
    next_step = None
    if verdict == verdicts.WAITING:
        next_step = Step("upload", run)
    counts = [f"{number:,} {state}" for state, number in rows.items() if number and state != "read"]
    headline = f"{run}: {summary['open']['result']['sentence']} {verdict}, {', '.join(counts)}"
    exit_code = verdicts.OF_A_RUN[verdict].exit_code
    return Result(summary, shown, next_step, exit_code, headline=headline)


def _balance(run: str, verdict: str, lines: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for line in lines:
        state = "ok" if line["holds"] else "DIFFERS"
        if line["closed"]:
            state += f", {line['closed']:,} closed by hand"
        rows.append([line["name"], line["left"], line["right"], state])
    return Table(("balance", "left", "right", ""), rows, f"{run}-balance", verdict)


def _reasons(reasons: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Part]:
    """Yield the most frequent reasons of each stage."""
    for stage, title, file in STAGES:
        rows = [[reason["code"], reason["rows"], reason["action"]] for reason in reasons[stage]]
        if rows:
            yield ""
            yield Table((title, "rows", "what to do"), rows[:TOP])
        if len(rows) > TOP:
            yield f"and {len(rows) - TOP:,} more: {file}"


def _attempts(attempts: Mapping[str, Any] | None) -> Iterator[Part]:
    """Yield what became of rows that were sent again."""
    if not attempts:
        return
    rows = [[run["run"], *(run[state] for state in ATTEMPT_STATES)] for run in attempts["runs"]]
    yield ""
    yield Table(("sent again", *ATTEMPT_STATES), rows)
    yield ""
    yield Table(("rows after all attempts", "count"), list(attempts["after"].items()))


def _breaks(run: str, summary: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the breaks with what can be decided about them, and those that are closed."""
    for open_break in summary["breaks"]:
        yield from break_lines(open_break, open_break["then"])
        for way in open_break["decide"]:
            yield _way(run, open_break, way)
    if summary["breaks"]:
        title = "What does not balance, and what to do"
        yield artifact(summary["breaks"], f"{run}-breaks", title)
    for closed in summary["closed"]:
        decision = f"closed by {closed['by']}: {closed['reason']}. {closed['decision']}"
        yield from break_lines(closed, decision)


def _way(run: str, open_break: Mapping[str, Any], way: Mapping[str, str]) -> Sentence:
    """Return the line of a decision about a break."""
    of_break = (open_break["name"], open_break["rows"], open_break["place"])
    step = summaries.close_step(run, *of_break, way["decision"])
    return Sentence("  {step:bare}  # {effect}", step=step, effect=way["effect"])


def break_lines(run_break: Mapping[str, Any], action: str) -> list[str]:
    """Return the lines of a break: its name, rows and place; what to do, or who closed it."""
    where = f"{run_break['name']} ({counted(run_break['rows'], 'row')}) {run_break['place']}"
    return ["", where, f"  {action}"]


def _files(context: contexts.IssuerContext, run: str) -> Iterator[Part]:
    place = keys.keys_of(run).report
    yield ""
    url = report_link(context, place("report.html"))
    if url:
        yield Link(url, f"The report of {run}", f"{run}-report")
    else:
        yield Place(f"files: {context.issuer.root}/{place('')} ({FILES})")
