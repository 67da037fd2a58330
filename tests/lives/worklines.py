"""Lines of a worklist as the operator takes them up: with the command that it pastes, several that
one command settles as one, and what it gives up by itself.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from flows.runs.keys import RunId
from tests.lives.bank import WorkLine
from tests.lives.portal import LOST, chunk_name

PLACES = {"WHY": "ticket INC0012345, agreed with the partner"}
# what the operator decides about these; about the others it does what comes first, or asks
DECISIONS = {
    "chunks on hold": "release",
    "chunks sealed to another key": "seal again",
    "results still incomplete": "open again",
    "rows to send again": "send again",
    "errors to send again": "send again",
    "rows decided lost, to send again": "send again",
    "links expired on arrival, to send again": "send again",
    "rows of cancelled chunks": "send again",
    "link forms to confirm": "confirm",
    "links to renew": "renew",
    "changed since their link": "send again",
    "links not replaced": "keep the link",
    "runs left behind": "abandon",
    "refused extracts": "dismiss",
    "stopped extracts": "dismiss",
}
# lines that are settled together by one command, over issuers and kinds
JOINT = {
    "rows to correct": {"rows to correct"},
    "card fields to correct": {"card fields to correct"},
    "errors to ask about": {"errors to ask about"},
    "errors to send again": {"errors to send again"},
    "rows decided lost, to send again": {"rows decided lost, to send again"},
    "rows of cancelled chunks": {"rows of cancelled chunks"},
    "rows to send again": {
        "errors to send again",
        "rows decided lost, to send again",
        "links expired on arrival, to send again",
        "rows of cancelled chunks",
    },
    "changed since their link": {"changed since their link"},
    "links not replaced": {"links not replaced"},
    "newer rows refused": {"newer rows refused"},
    "links to renew": {"links to renew"},
    "links that end, rows refused": {"links that end, rows refused"},
}
DAY = timedelta(days=1)
NO_FILE = "business days without an extract"
GIVEN_UP_AFTER = 14  # days, whatever the hour of each, where the issuer and the partner cannot help
HOPELESS = (
    "rows to correct",
    "card fields to correct",
    "errors to ask about",
    "errors to send again",
    "links that end, rows refused",
    "links that end, extract gone",
    "links that ended, not in the extract",
    "newer rows refused",
    NO_FILE,
)


class Name(NamedTuple):
    """What a thing of the worklist is known by from day to day."""

    kind: str
    issuer: str
    run: str
    chunk: str  # as it was uploaded; "" where it is about none
    rows: int


def things(worklist: Iterable[WorkLine]) -> Iterator[WorkLine]:
    """Yield the lines of a worklist, with the command that the operator pastes."""
    for line in worklist:
        each = [{**single, **_chunk_of(single)} for single in line["each"]]
        yield {"chunk": None, **line, "each": each, "command": command_of(line)}


def _chunk_of(single: WorkLine) -> WorkLine:
    """Return the name of the chunk of a single thing, and whether it may be given up by now."""
    name = chunk_name(single["run"], single["chunk"]) if single["chunk"] else ""
    return {"name": name, "late": LOST in choices(single)}


def joined(lines: Iterable[WorkLine], together: Iterable[WorkLine]) -> Iterator[WorkLine]:
    """Yield lines, those that one command settles as one, what is given up before others mean it.

    `together`: the worklist over issuers and kinds.
    """
    pending = list(lines)
    for joint in together:
        members = [line for line in pending if _stands_for(joint, line)]
        if len(members) > 1:
            each = [*chain.from_iterable(line["each"] for line in members)]
            pending = [line for line in pending if not _stands_for(joint, line)]
            pending.append({"chunk": None, **joint, "each": each, "command": command_of(joint)})
    given_up = {id(line): [*_given_up(line)] for line in pending}
    yield from chain.from_iterable(given_up.values())
    for line in pending:
        of_line = chain.from_iterable(part["each"] for part in given_up[id(line)])
        if not line["each"] or len([*of_line]) < len(line["each"]):
            yield line


def _stands_for(joint: WorkLine, line: WorkLine) -> bool:
    is_of_kind = line["kind"] in JOINT.get(joint["kind"], ())
    return is_of_kind and line["issuer"] in joint["issuer"].split(",")


def _given_up(line: WorkLine) -> Iterator[WorkLine]:
    """Yield what of a line is given up, or whose link is kept: at once where that is offered."""
    if line["kind"] not in HOPELESS:
        return
    age = _age_of_run if "give up the old" in choices(line) else _age
    old = [each for each in line["each"] if round(age(each) / DAY) >= GIVEN_UP_AFTER]
    are_all_old = len(old) == len(line["each"])
    names = ("give up", "keep the link", "dismiss") if are_all_old else ("give up the old",)
    command = _offered(line, *names)
    if old and command:
        yield {**line, "each": old, "command": command, "is_given_up": True}
        return
    for single in old:
        command = _offered(single, "give up", "keep the link", "dismiss")
        if command:
            yield {**single, "each": [single], "command": command, "is_given_up": True}


def _age(single: WorkLine) -> timedelta:
    return timedelta(seconds=single["age_seconds"])


def _age_of_run(single: WorkLine) -> timedelta:
    """Return how long ago the business date of a run was: by it `give-up --before` counts."""
    run = RunId.parse(single["run"])
    assert run is not None
    began = datetime.combine(run.day, time(), UTC)
    return datetime.fromisoformat(single["due"]) + _age(single) - began


def _offered(line: WorkLine, *names: str) -> str:
    """Return the command of the first of these decisions that a line offers."""
    offered = choices(line)
    return next((offered[name] for name in names if name in offered), "")


def names_of(line: WorkLine) -> frozenset[Name]:
    """Return what the things of a line are known by from day to day."""
    return frozenset(
        Name(each["kind"], each["issuer"], each["run"], each["name"], each["rows"])
        for each in line["each"]
    )


def files_of(line: WorkLine) -> list[str]:
    """Return the files that the things of a line are about, as its sentences name them."""
    return [single["matter"].partition("(")[2].partition("). ")[0] for single in line["each"]]


def targets_of(line: WorkLine, issuer: str) -> list[str]:
    """Return the runs that a line is about, or the issuer where it names none."""
    runs = [single["run"] for single in line["each"] if single["issuer"] == issuer]
    return runs if all(runs) else [issuer]


def key_of(line: WorkLine) -> str:
    """Return what makes a line the same as one of another day."""
    return ", ".join(
        str(line[name]) for name in ("kind", "issuer", "run", "chunk", "rows", "command")
    )


def choices(line: WorkLine) -> dict[str, str]:
    """Return the commands of the decisions that a line offers, by name."""
    return {choice["decision"]: choice["command"] for choice in line["decisions"]}


def meanings(lines: Iterable[WorkLine]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield what each decision by number carries out, by its words without the reason."""
    for line in lines:
        for choice in line["decisions"]:
            words = filled(choice["command"])
            if words[0] == "decide":
                yield tuple(words[:4]), filled(choice["does"])
        yield from meanings(line.get("each", ()))


def is_past(line: WorkLine, over: Collection[str]) -> bool:
    """Return whether a line names days without a file, of an issuer that sends none any more."""
    return line["kind"] == NO_FILE and line["issuer"] in over


def is_inquiry(line: WorkLine) -> bool:
    """Return whether a line asks the partner, and is not about something that is given up."""
    words = shlex.split(line["command"])
    return bool(_question(line)) and not any(word.startswith("give-up") for word in words)


def _question(line: WorkLine) -> str:
    """Return the command with which a line asks the partner, "" where it does not."""
    commands = (line["first"], *choices(line).values())
    return next((command for command in commands if "questions" in shlex.split(command)), "")


def command_of(line: WorkLine) -> str:
    """Return the first step, or the decision that follows where the operator knows it; "" where
    it is not offered yet.
    """
    decision = DECISIONS.get(line["kind"])
    return str(choices(line).get(decision, "") if decision else line["first"])


def filled(command: str) -> list[str]:
    """Return the words of a command that is pasted, its places filled in."""
    words = shlex.split(command)[1:]
    return [PLACES.get(word, word) for word in (words[2:] if words[0] == "--config" else words)]


def to_file(file: Path, words: Iterable[str]) -> list[str]:
    """Return a command that writes this file."""
    return [str(file) if word == "FILE" else word for word in words]


def write_rows(file: Path, rows: list[dict[str, str]]) -> None:
    """Write rows as a CSV file."""
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
