"""The report as one self-contained HTML page, without scripts or external addresses.

Colours and markup are in the templates.

The page of a run knows only its `summary.json` and the table of its chunks. Its content security
policy admits its one style sheet by hash, and nothing else.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from flows.readable import readable
from flows.reports.advice import across_advice, advice
from flows.reports.ages import AGES, duration
from flows.reports.charts import TREND, bar, trend
from flows.reports.hours import hours_line
from flows.reports.open_items import MISSING, missing
from flows.reports.sections import sections
from flows.reports.summary import decisions_on
from flows.reports.verdicts import ACROSS_RUNS, OF_A_RUN
from flows.reports.wording import day, day_and_time, first_spans, percent
from flows.runs.run_status import PURGED, headline
from flows.steps import Step
from schemas.breaks import DECIDED

MOST_REASONS = 30
MOST_SHAPES = 15
MOST_SPANS = 20  # of lines named for a reason; rejects.csv has them all
PLACES = 6
OPEN_CHUNKS = 50
WORST_CHUNKS = 10
RUNS = 60


class Figure(NamedTuple):
    """One of the large numbers: kind (its colour), name, rows, and a note below."""

    kind: str
    name: str
    rows: int
    note: str


def run_page(summary: Mapping[str, Any], chunks: pl.DataFrame, forms: str = "") -> str:
    """Return the page of a run from its summary (with `trend`) and its chunks (`lists.chunks`).

    `forms`: where the forms are, "" where nobody says.
    """
    verdict = OF_A_RUN[summary["verdict"]]
    seen = datetime.fromisoformat(summary["seen"])
    reasons = refused_by(summary)
    reported = chunks.with_columns(missing())
    waiting = reported.filter(pl.col("awaiting") > 0)
    worst = reported.filter(pl.col("error") > 0).sort("error", "chunk", descending=[True, False])
    chunk_counts = [
        (name, summary["chunks"][name]) for name in ("sent", "answered", "partial", "awaiting")
    ]
    return render(
        "run.html",
        run=summary,
        tone=_tone(verdict.tone, summary["open"]["result"]["waits"]),
        result=summary["open"]["result"]["sentence"],
        headline=headline(summary),
        sentence=verdict.sentence,
        advice=advice(summary),
        figures=_figures(summary["rows"], _who_refused(summary)),
        bar=bar(summary["rows"]),
        ages=AGES,
        reasons=[_with_few_lines(reason) for reason in reasons[:MOST_REASONS]],
        more_reasons=max(0, len(reasons) - MOST_REASONS),
        sections=list(sections(summary)),
        shapes=[_without_reason(shape) for shape in summary["shapes"][:MOST_SHAPES]],
        repairs=sorted(summary["repairs"].items()),
        breaks=_breaks_by_kind(summary["run"], summary["breaks"], seen),
        more_breaks=summary["more_breaks"],
        expiry=_expiry(summary["links"]),
        chunk_counts=chunk_counts,
        missing=MISSING,
        hours=hours_line(summary.get("hours")),
        open_chunks=waiting.head(OPEN_CHUNKS).to_dicts(),
        more_open=max(0, waiting.height - OPEN_CHUNKS),
        worst_chunks=worst.head(WORST_CHUNKS).to_dicts(),
        nights=summary["trend"],
        columns=trend(summary["trend"], summary["run"]),
        rebuild=Step("report", summary["run"]),
        forms=forms,
    )


def without_links_out(page: bytes) -> bytes:
    """Return a page without the links out of its folder, which lead nowhere from a copy."""
    return re.sub(rb'<a href="\.\./[^"]*">.*?</a>', b"", page)


def _reports(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return where the page of each run is that has one, seen from the page across runs."""
    up = "../../" if facts["from"] or facts["to"] else "../"  # of a period: one folder deeper
    return {
        run["run"]: f"{up}runs/{run['run']}/report/report.html"
        for run in facts["runs"]
        if run["state"].startswith(tuple(OF_A_RUN)) and not run["state"].endswith(PURGED)
    }


def across_page(facts: Mapping[str, Any], forms: str = "") -> str:
    """Return the page across runs from the facts of `flows.reports.across.reconcile_runs`."""
    by_date = sorted(facts["runs"], key=lambda run: (run["as_of"], run["run"]))
    days = {run["as_of"] for run in by_date}
    return render(
        "across.html",
        all=facts,
        tone=_tone(ACROSS_RUNS[facts["verdict"]].tone, facts["cardholders"]["waits"]),
        result=facts["cardholders"]["sentence"],
        advice=[str(sentence) for sentence in across_advice(facts)],
        figures=_figures(facts["rows"], "by partner, or decided"),
        ages=AGES,
        work_lines=OPEN_CHUNKS,
        hours=hours_line(facts.get("hours")),
        runs=by_date[: -RUNS - 1 : -1],
        reports=_reports(facts),
        columns=trend(by_date, ""),
        sections=list(sections(facts)),
        days=sorted(days)[-TREND:],
        reasons=facts["reasons"][:MOST_REASONS],
        expiry=_expiry(facts["links"]),
        rebuild=Step("reconcile", facts["issuer"]),
        forms=forms,
    )


def _tone(tone: str, waits: Mapping[str, int]) -> str:
    """Return the tone of a page: good only where nobody waits."""
    return "wait" if tone == "good" and any(waits.values()) else tone


def refused_by(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the reasons of both stages, most rows first.

    Each has who refused (`by`), and its size next to the largest (`share`).
    """
    reasons = [
        *_refused_at(summary["reasons"]["submit"], "us", "rejected"),
        *_refused_at(summary["reasons"]["partner"], "the partner", "error"),
    ]
    most = max((reason["rows"] for reason in reasons), default=1)
    reasons.sort(key=lambda reason: (-reason["rows"], reason["code"]))
    return [{**reason, "share": reason["rows"] / most} for reason in reasons]


def _refused_at(reasons: Sequence[Mapping[str, Any]], by: str, kind: str) -> list[dict[str, Any]]:
    """Return the reasons of a stage; one that only warned says so."""
    listed = []
    for reason in reasons:
        only_warned = reason["warned"] == reason["rows"]
        who = "warning only" if only_warned else by
        if reason["code"] in DECIDED:
            who = "an operator"
        listed.append({"by": who, "kind": kind, **reason})
    return listed


def _with_few_lines(reason: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reason of ours with the first of its lines only."""
    if "lines" not in reason:
        return reason
    few, more = first_spans(reason["lines"], MOST_SPANS)
    return {**reason, "lines": few, "more_lines": reason["more_lines"] + more}


def _figures(rows: Mapping[str, int], errors: str) -> list[Figure]:
    """Return the figures of a page; `errors`: who made the rows in error."""
    sent = rows["linked"] + rows["error"] + rows["awaiting"]
    aside = rows["ineligible"] + rows["duplicate"] + rows["suppressed"]
    linked_share = percent(rows["linked"] / sent) if sent else "none"
    return [
        Figure("read", "read", rows["read"], "rows of the extract"),
        Figure("linked", "linked", rows["linked"], f"{linked_share} of sent"),
        Figure("error", "error", rows["error"], errors),
        Figure("awaiting", "awaiting", rows["awaiting"], "sent, still open"),
        Figure("rejected", "rejected", rows["rejected"], "refused, not sent"),
        Figure("aside", "set aside", aside, "not eligible, duplicate, suppressed"),
    ]


def _who_refused(summary: Mapping[str, Any]) -> str:
    """Say whose answer made the errors of a run: the partner's, or an operator's decision."""
    errors = summary["rows"]["error"]
    reasons = summary["reasons"]["partner"]
    decided = sum(reason["rows"] for reason in reasons if reason["code"] in DECIDED)
    if not decided:
        return "refused by partner"
    if decided == errors:
        return "decided by an operator"
    return f"{errors - decided:,} by partner, {decided:,} decided"


def _without_reason(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kind of error text without its reason, which the page shows beside it."""
    return {**shape, "shape": shape["shape"].removeprefix(f"{shape['reason']}: ")}


def _breaks_by_kind(
    run: str, breaks: Sequence[Mapping[str, Any]], now: datetime
) -> list[dict[str, Any]]:
    """Return one line per kind of break: how many, their rows, the oldest, and the first places."""
    lines = []
    for name, group in groupby(breaks, key=lambda run_break: run_break["name"]):
        of_kind = list(group)
        rows = sum(run_break["rows"] for run_break in of_kind)
        places = [f"{run_break['place']} ({run_break['rows']:,})" for run_break in of_kind]
        oldest = min(datetime.fromisoformat(run_break["since"]) for run_break in of_kind)
        lines.append(
            {
                **of_kind[0],
                "number": len(of_kind),
                "rows": rows,
                "age": duration(now - oldest),
                "places": places[:PLACES],
                "more": max(0, len(places) - PLACES),
                "ways": [] if of_kind[0]["notice"] else decisions_on(run, name, rows),
            }
        )
    return lines


def _expiry(links: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of the links by expiry, each with its size next to the largest."""
    most = max((line["links"] for line in links), default=0) or 1
    kinds = {"expired": "error", "within 7 days": "rejected"}
    return [
        {**line, "share": line["links"] / most, "kind": kinds.get(line["when"], "linked")}
        for line in links
    ]


def render(template: str, **facts: Any) -> str:
    """Return the page of a template.

    Every text is escaped, and the policy allows only our own style sheet.
    """
    environment = _environment()
    style = environment.get_template("style.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=Markup(style),  # noqa: S704 - our own style sheet, without any input
        style_hash=Markup(f"sha256-{digest}"),  # noqa: S704 - Base64
        **facts,
    )


def _finalized(fact: Any) -> Any:
    """Return a fact as a page may show it; what a template made itself stays."""
    if isinstance(fact, str) and not isinstance(fact, Markup):
        return readable(fact)
    return fact


def _code(text: str) -> Markup:
    """Return a text whose parts in backticks are shown as code."""
    escaped = str(escape(readable(text)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))  # noqa: S704 - it is escaped


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("flows.reports", "templates"),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": _code,
        "number": lambda number: f"{number:,}",
        "signed": lambda number: f"{number:+,}",
        "percent": percent,
        "day": lambda text: day(datetime.fromisoformat(text)),
        "moment": lambda text: day_and_time(datetime.fromisoformat(text)),
    }
    return environment
