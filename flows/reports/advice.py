"""What to do now about a run, or about all runs of an issuer, in sentences."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from flows.reports.ages import SOON
from flows.reports.open_items import MISSING, PARTIAL, UNSETTLED
from flows.steps import WHY, Sentence, Step, Text, counted
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import KINDS


def advice(summary: Mapping[str, Any]) -> list[str]:
    """Return what to do now about a run, most urgent first; empty where nothing is open."""
    return [
        *_about_breaks(summary),
        *_about_waiting_chunks(summary["open"]),
        *_about_refusals(summary),
        *_about_links(summary),
    ]


def _about_breaks(summary: Mapping[str, Any]) -> Iterator[str]:
    number: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for run_break in summary["breaks"]:
        if not run_break["notice"]:
            number[run_break["name"]] += 1
            size[run_break["name"]] += run_break["rows"]
    for name, count in number.most_common():
        yield f"{count:,} × {name} ({counted(size[name], 'row')}): {KINDS[name].then}"


def _about_waiting_chunks(open_items: Mapping[str, Any]) -> Iterator[str]:
    overdue = open_items["overdue"]
    if overdue["chunks"]:
        chunks = counted(overdue["chunks"], "chunk")
        rows = counted(overdue["rows"], "row")
        hours = open_items["answer_within_hours"]
        yield (
            f"Download the missing results of {chunks} ({rows}) from the portal. "
            f"They are overdue: answers are expected within {hours} hours."
        )
        return
    chunks_by_lack = {line["kind"]: line["items"] for line in open_items["items"]}
    if chunks_by_lack[MISSING]:
        chunks = counted(chunks_by_lack[MISSING], "chunk")
        yield f"Upload {chunks} if not done yet, and download the results."
    if chunks_by_lack[PARTIAL]:
        chunks = counted(chunks_by_lack[PARTIAL], "partly answered chunk")
        yield f"Download the remaining results of {chunks}."
    if chunks_by_lack[UNSETTLED]:
        chunks = counted(chunks_by_lack[UNSETTLED], "chunk")
        yield f"Ask the partner about {chunks} with answers that do not count: questions.csv."


def _about_refusals(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield who has to fix what; a row with two reasons counts once for each."""
    rejected = summary["rows"]["rejected"]
    if rejected:
        yield (
            f"Send rejects.csv to the issuer: {counted(rejected, 'row')} refused before sending, "
            "to be fixed at source."
        )
    if _all_resent(summary):
        return
    todo: Counter[str] = Counter()
    for refusal in summary["reasons"]["partner"]:
        todo[refusal["action"]] += refusal["rows"]
    resubmit = Step("resubmit", summary["run"], action=RESUBMIT, reason=WHY, dry_run=True)
    sentences = {
        FIX: "Send errors.csv to the issuer: {} from the partner to be fixed at source.",
        RESUBMIT: f"Resubmit {{}} as is: {resubmit}",
        ASK: "Ask the partner about {} in errors.csv.",
    }
    for action, sentence in sentences.items():
        if todo[action]:
            yield sentence.format(counted(todo[action], "error"))


def _all_resent(summary: Mapping[str, Any]) -> bool:
    """Return whether each error was sent again, and has a link or awaits one."""
    attempts = summary.get("attempts")
    return attempts is not None and not attempts["after"]["error"]


def _about_links(summary: Mapping[str, Any]) -> Iterator[str]:
    ending = sum(line["links"] for line in summary["links"] if line["when"] == SOON)
    if ending:
        yield f"Remind {counted(ending, 'cardholder')} now: their links expire {SOON}."


def across_advice(facts: Mapping[str, Any]) -> list[Text]:
    """Return how many things of each kind are to be done about all runs of an issuer, due first."""
    worklist = Step("worklist", facts["issuer"])
    steps: list[Text] = [
        Sentence(f"{{kind}}: {number:,} ({{worklist:bare}})", kind=kind, worklist=worklist)
        for kind, number in facts["to_do"].items()
    ]
    twice = facts["active_twice"]
    if twice:
        steps.append(
            f"Look at {counted(twice, 'card')} with a link or a wait in more than one run: "
            "see active-twice.csv."
        )
    return steps
