"""The sentences of a report: the verdict in plain words, and what to do now, most urgent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.reports import across
from flows.reports.summary import ABOVE_LIMIT, BALANCED, MISSING, OUT_OF_BALANCE, PARTIAL, SOON, UNSETTLED, WAITING
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import KINDS

TONES = {BALANCED: "good", WAITING: "wait", ABOVE_LIMIT: "warn", OUT_OF_BALANCE: "bad"}
SENTENCES = {
    BALANCED: "Every row of the extract is accounted for, and no row sent waits for an answer.",
    WAITING: "Every row of the extract is accounted for; some rows sent have no answer yet.",
    ABOVE_LIMIT: "Every row is accounted for, but more rows failed than the issuer's limits allow.",
    OUT_OF_BALANCE: "The numbers do not add up: see the breaks and the control totals that differ.",
}
ACROSS_TONES = {across.CLEAR: "good", across.WAITING: "wait", across.OVERDUE: "warn", OUT_OF_BALANCE: "bad"}


def rows(number: int, word: str = "row") -> str:
    """Return a count with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def advice(summary: Mapping[str, Any]) -> list[str]:
    """Return what to do now about a run, most urgent first; empty where nothing is open."""
    return [*_breaks(summary), *_waiting(summary), *_reasons(summary), *_links(summary)]


def _breaks(summary: Mapping[str, Any]) -> Iterator[str]:
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
    if counts[PARTIAL]:
        yield f"Download the remaining results of {rows(counts[PARTIAL], 'partly answered chunk')}."
    if counts[UNSETTLED]:
        yield f"Ask the partner about {rows(counts[UNSETTLED], 'chunk')} with answers that do not count: questions.csv."


def _reasons(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield who has to fix what; a row with two reasons counts once for each."""
    refused = summary["rows"]["rejected"]
    if refused:
        yield f"Send rejects.csv to the issuer: {rows(refused)} refused before sending, to be fixed at source."
    attempts = summary.get("attempts")
    if attempts and not attempts["after"]["error"]:  # each was sent again, and has a link or awaits one
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


def _links(summary: Mapping[str, Any]) -> Iterator[str]:
    soon = sum(one["links"] for one in summary["links"] if one["when"] == SOON)
    if soon:
        yield f"Remind {rows(soon, 'cardholder')} now: their links expire {SOON}."


def across_advice(facts: Mapping[str, Any]) -> list[str]:
    """Return how many things of each kind are to be done about all runs of an issuer, due first."""
    steps = [f"{kind}: {number:,} (cardlink worklist {facts['issuer']})" for kind, number in facts["to_do"].items()]
    if twice := facts["active_twice"]:
        steps.append(f"Look at {rows(twice, 'card')} with a link or a wait in more than one run: see active-twice.csv.")
    return steps


def refused_by(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the reasons of both stages, most rows first, each with who refused and its size next to the largest."""
    found: Sequence[dict[str, Any]] = [
        {"by": "warning only" if one["warned"] == one["rows"] else by, "kind": kind, **one}
        for stage, by, kind in (("submit", "us", "rejected"), ("partner", "the partner", "error"))
        for one in summary["reasons"][stage]
    ]
    most = max((one["rows"] for one in found), default=1)
    ordered = sorted(found, key=lambda one: (-one["rows"], one["code"]))
    return [{**one, "share": one["rows"] / most} for one in ordered]
