"""The report in sentences, and as one self-contained HTML page without scripts or external
addresses.

Here the sizes of its charts are computed; colours and markup are in the templates.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from itertools import accumulate, groupby
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from flows.reports import summary as summaries
from flows.reports.summary import (
    ABOVE_LIMIT,
    AGES,
    BALANCED,
    MISSING,
    OUT_OF_BALANCE,
    SOON,
    UNSETTLED,
    WAITING,
)
from flows.runs.run_status import headline
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import KINDS

# Where a source row can end: done, failed, waiting, not sent.
ENDS = {
    "linked": "linked",
    "error": "error (partner)",
    "awaiting": "awaiting",
    "rejected": "rejected (by us)",
    "duplicate": "duplicate",
    "suppressed": "suppressed",
}
BAR_WIDTH = 1000.0
LEAST = 4.0  # width that even a single row among millions gets, so that it is visible
TREND_HEIGHT = 149.0
SLOT = 100  # width of one run in the trend
TREND = 14  # runs in the trend chart

MOST_REASONS, MOST_SHAPES, PLACES = 30, 15, 6
OPEN_CHUNKS, WORST_CHUNKS, RUNS = 50, 10, 60

TONES = {BALANCED: "good", WAITING: "wait", ABOVE_LIMIT: "warn", OUT_OF_BALANCE: "bad"}
SENTENCES = {
    BALANCED: "Every row of the extract is accounted for, and no row sent waits for an answer.",
    WAITING: "Every row of the extract is accounted for; some rows sent have no answer yet.",
    ABOVE_LIMIT: "Every row is accounted for, but more rows failed than the issuer's limits allow.",
    OUT_OF_BALANCE: "The numbers do not add up: see the breaks and the control totals that differ.",
}
CLEAR, AWAITED, OVERDUE = "nothing outstanding", "answers awaited", "answers overdue"  # across runs
ACROSS_TONES = {CLEAR: "good", AWAITED: "wait", OVERDUE: "warn", OUT_OF_BALANCE: "bad"}


def rows(number: int, word: str = "row") -> str:
    """Return a count with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def advice(summary: Mapping[str, Any]) -> list[str]:
    """Return what to do now about a run, most urgent first; empty where nothing is open."""
    steps = [*_broken(summary), *_waiting(summary), *_reasons(summary)]
    soon = sum(one["links"] for one in summary["links"] if one["when"] == SOON)
    return [
        *steps,
        *([f"Remind {rows(soon, 'cardholder')} now: their links expire {SOON}."] if soon else []),
    ]


def _broken(summary: Mapping[str, Any]) -> Iterator[str]:
    open_breaks = [one for one in summary["breaks"] if not one["notice"]]
    counted = Counter(one["name"] for one in open_breaks)
    for name, number in counted.most_common():
        size = sum(one["rows"] for one in open_breaks if one["name"] == name)
        yield f"{number:,} × {name} ({rows(size)}): {KINDS[name].then}"


def _waiting(summary: Mapping[str, Any]) -> Iterator[str]:
    waiting = summary["open"]
    late, counts = waiting["overdue"], {one["kind"]: one["items"] for one in waiting["items"]}
    if late["chunks"]:
        yield (
            f"Download the missing results of {rows(late['chunks'], 'chunk')} ({rows(late['rows'])}) from the portal. "
            f"They are overdue: answers are expected within {waiting['answer_within_hours']} hours."
        )
        return
    if counts[MISSING]:
        yield f"Upload {rows(counts[MISSING], 'chunk')} if not done yet, and download the results."
    if counts[summaries.PARTIAL]:
        yield f"Download the remaining results of {rows(counts[summaries.PARTIAL], 'partly answered chunk')}."
    if counts[UNSETTLED]:
        yield f"Ask the partner about {rows(counts[UNSETTLED], 'chunk')} with answers that do not count: questions.csv."


def _reasons(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield who has to fix what; a row with two reasons counts once for each."""
    refused = summary["rows"]["rejected"]
    if refused:
        yield f"Send rejects.csv to the issuer: {rows(refused)} refused before sending, to be fixed at source."
    attempts = summary.get("attempts")
    # each was sent again, and has a link or awaits one
    if attempts and not attempts["after"]["error"]:
        return
    todo: Counter[str] = Counter()
    for one in summary["reasons"]["partner"]:
        todo[one["action"]] += one["rows"]
    reported = {
        FIX: "Send errors.csv to the issuer: {} from the partner to be fixed at source.",
        RESUBMIT: f"Resubmit {{}} as is: cardlink resubmit {summary['run']} --action 'resubmit as is' --reason WHY",
        ASK: "Ask the partner about {} in errors.csv.",
    }
    for action, sentence in reported.items():
        if todo[action]:
            yield sentence.format(rows(todo[action], "error"))


def across_advice(facts: Mapping[str, Any]) -> list[str]:
    """Return how many things of each kind are to be done about all runs of an issuer, due first."""
    steps = [
        f"{kind}: {number:,} (cardlink worklist {facts['issuer']})"
        for kind, number in facts["to_do"].items()
    ]
    if twice := facts["active_twice"]:
        steps.append(
            f"Look at {rows(twice, 'card')} with a link or a wait in more than one run: see active-twice.csv."
        )
    return steps


def refused_by(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the reasons of both stages, most rows first, each with who refused and its size next
    to the largest.
    """
    found: Sequence[dict[str, Any]] = [
        {"by": "warning only" if one["warned"] == one["rows"] else by, "kind": kind, **one}
        for stage, by, kind in (("submit", "us", "rejected"), ("partner", "the partner", "error"))
        for one in summary["reasons"][stage]
    ]
    most = max((one["rows"] for one in found), default=1)
    ordered = sorted(found, key=lambda one: (-one["rows"], one["code"]))
    return [{**one, "share": one["rows"] / most} for one in ordered]


def bar(rows: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the pieces of the bar of where every row went, without empty ones: where each starts,
    how wide it is.
    """
    counts = {kind: rows[kind] for kind in ENDS if rows[kind]}
    total = sum(counts.values())
    widths = [max(LEAST, BAR_WIDTH * count / total) for count in counts.values()]
    scale = BAR_WIDTH / sum(widths) if widths else 0.0
    shown = [width * scale for width in widths]
    return [
        {
            "kind": kind,
            "name": ENDS[kind],
            "rows": count,
            "share": count / total,
            "start": start,
            "width": width,
        }
        for (kind, count), start, width in zip(
            counts.items(), accumulate(shown, initial=0.0), shown, strict=False
        )
    ]


def trend(runs: Sequence[Mapping[str, Any]], current: str) -> list[dict[str, Any]]:
    """Return a column for each of the last fourteen runs, oldest left, on one scale, its parts from
    the bottom up.
    """
    shown = runs[-TREND:]
    most = max((run["read"] for run in shown), default=0) or 1
    columns: list[dict[str, Any]] = []
    before = ""
    for at, run in enumerate(shown):
        day = date.fromisoformat(run["as_of"])
        month, pieces, top = f"{day:%b}", [], TREND_HEIGHT
        for kind in ENDS:
            height = TREND_HEIGHT * run[kind] / most
            top -= height
            if height:
                pieces.append({"kind": kind, "top": top, "height": height})
        label = month if month != before else ""
        place = {
            "x": at * SLOT + 18,
            "day": day.day,
            "month": label,
            "current": run["run"] == current,
        }
        columns.append({**place, "parts": pieces})
        before = month
    return columns


def run_page(summary: Mapping[str, Any], chunks: pl.DataFrame) -> str:
    """Return the page of a run from its summary (with `trend`) and its chunks (`lists.chunks`)."""
    reasons = refused_by(summary)
    reported = chunks.with_columns(summaries.missing())
    waiting = reported.filter(pl.col("awaiting") > 0)
    worst = reported.filter(pl.col("error") > 0).sort("error", "chunk", descending=[True, False])
    return render(
        "run.html",
        run=summary,
        tone=TONES[summary["verdict"]],
        headline=headline(summary["verdict"], summary["rows"]["awaiting"]),
        sentence=SENTENCES[summary["verdict"]],
        advice=advice(summary),
        figures=_figures(summary["rows"]),
        bar=bar(summary["rows"]),
        ages=AGES,
        reasons=reasons[:MOST_REASONS],
        more_reasons=max(0, len(reasons) - MOST_REASONS),
        funnel=summary.get("funnel"),
        shapes=[
            {**one, "shape": one["shape"].removeprefix(f"{one['reason']}: ")}
            for one in summary["shapes"][:MOST_SHAPES]
        ],
        repairs=sorted(summary["repairs"].items()),
        breaks=_by_kind(summary["run"], summary["breaks"], datetime.fromisoformat(summary["seen"])),
        more_breaks=summary["more_breaks"],
        expiry=_expiry(summary["links"]),
        chunk_counts=[
            (name, summary["chunks"][name]) for name in ("sent", "answered", "partial", "awaiting")
        ],
        missing=MISSING,
        hours=hours_line(summary.get("hours")),
        open_chunks=waiting.head(OPEN_CHUNKS).to_dicts(),
        more_open=max(0, waiting.height - OPEN_CHUNKS),
        worst_chunks=worst.head(WORST_CHUNKS).to_dicts(),
        nights=summary["trend"],
        columns=trend(summary["trend"], summary["run"]),
    )


def across_page(facts: Mapping[str, Any]) -> str:
    """Return the page across runs from the facts of `flows.reports.across.reconcile_runs`."""
    newest = sorted(facts["runs"], key=lambda one: (one["as_of"], one["run"]))
    return render(
        "across.html",
        all=facts,
        tone=ACROSS_TONES[facts["verdict"]],
        advice=across_advice(facts),
        figures=_figures(facts["rows"]),
        ages=AGES,
        work_lines=OPEN_CHUNKS,
        hours=hours_line(facts.get("hours")),
        runs=newest[: -RUNS - 1 : -1],
        columns=trend(newest, ""),
        funnel=facts.get("funnel"),
        days=sorted({one["as_of"] for one in newest})[-TREND:],
        reasons=facts["reasons"][:MOST_REASONS],
        expiry=_expiry(facts["links"]),
    )


def render(template: str, **facts: Any) -> str:
    """Return the page of a template; every text is escaped, and the policy allows only our own
    style sheet.
    """
    environment = _environment()
    style = environment.get_template("style.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=Markup(style),  # noqa: S704 - our own style sheet, without any input
        style_hash=Markup(f"sha256-{digest}"),  # noqa: S704 - Base64
        **facts,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("flows.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": lambda number: f"{number:,}",
        "signed": lambda number: f"{number:+,}",
        "percent": percent,
        "day": lambda text: _day(datetime.fromisoformat(text)),
        "moment": lambda text: (
            f"{_day(datetime.fromisoformat(text))}, {datetime.fromisoformat(text):%H:%M %Z}"
        ),
    }
    return environment


def percent(share: float) -> str:
    """Return a share in percent: never 0% for something, never 100% for less than all."""
    if 0 < share < 0.001:
        return "< 0.1%"
    if 0.999 < share < 1:
        return "> 99.9%"
    return f"{share:.1%}" if 0 < share < 1 else f"{share:.0%}"


def hours_line(hours: Mapping[str, Any] | None) -> str:
    """Return the sentence of the hours from drop to link; empty before the first link."""
    if not hours or not hours["links"]:
        return ""
    share, since = percent(hours["share"]), hours.get("since", "the extract's drop")
    return (
        f"From {since} to the link: median {hours['median']} h, slowest {hours['slowest']} h; "
        f"{share} of {hours['links']:,} links within the agreed {hours['within']} h."
    )


def _day(day: datetime) -> str:
    return f"{day.day} {day:%B %Y}"


def _by_kind(run: str, breaks: Sequence[Mapping[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Return one line per kind of break: how many, their rows, the oldest, and the first places."""
    lines = []
    for _, group in groupby(breaks, key=lambda one: one["name"]):
        found = list(group)
        places = [f"{one['place']} ({one['rows']:,})" for one in found]
        lines.append(
            {
                **found[0],
                "number": len(found),
                "rows": sum(one["rows"] for one in found),
                "age": summaries.duration(
                    now - min(datetime.fromisoformat(one["since"]) for one in found)
                ),
                "places": places[:PLACES],
                "more": max(0, len(places) - PLACES),
                "ways": [] if found[0]["notice"] else summaries.decisions_on(run, found[0]["name"]),
            }
        )
    return lines


def _figures(rows: Mapping[str, int]) -> list[tuple[str, str, int, str]]:
    """Return the six figures: kind (colour), name, rows, and a note below."""
    sent = rows["linked"] + rows["error"] + rows["awaiting"]
    aside = rows["duplicate"] + rows["suppressed"]
    return [
        ("read", "read", rows["read"], "rows of the extract"),
        (
            "linked",
            "linked",
            rows["linked"],
            f"{percent(rows['linked'] / sent) if sent else 'none'} of sent",
        ),
        ("error", "error", rows["error"], "refused by partner"),
        ("awaiting", "awaiting", rows["awaiting"], "sent, still open"),
        ("rejected", "rejected", rows["rejected"], "refused, not sent"),
        ("aside", "set aside", aside, "duplicate, suppressed"),
    ]


def _expiry(links: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    most = max((one["links"] for one in links), default=0) or 1
    kinds = {"expired": "error", "within 7 days": "rejected"}
    return [
        {**one, "share": one["links"] / most, "kind": kinds.get(one["when"], "linked")}
        for one in links
    ]
