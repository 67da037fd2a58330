"""Lines of a worklist as the operator takes them up: with the command that it pastes, several that
one command settles as one, and what it gives up by itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

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
}
# lines that are settled together by one command, over issuers and kinds
JOINT = {
    "rows to correct": {"rows to correct"},
    "card fields to correct": {"card fields to correct"},
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
}
HOPELESS = (
    "rows to correct",
    "card fields to correct",
    "errors to ask about",
    "errors to send again",
    "links that end, extract gone",
    "links that ended, not in the extract",
    "newer rows refused",
    "business days without an extract",
)


def things(worklist: Iterable[WorkLine], hopeless: Collection[str]) -> Iterator[WorkLine]:
    """Yield what the operator does one by one: what it gives up, and whole lines of all else, with
    the command that it pastes.
    """
    for line in worklist:
        given_up = [*_given_up(line, hopeless)]
        if given_up:
            yield from given_up
            continue
        each = [{**single, **_chunk_of(single)} for single in line["each"]]
        yield {"chunk": None, **line, "each": each, "command": command_of(line)}


def _given_up(line: WorkLine, hopeless: Collection[str]) -> Iterator[WorkLine]:
    """Yield the things of a line that are given up, or whose link is kept, where that is offered."""
    if line["kind"] not in HOPELESS:
        return
    for single in line["each"]:
        offered = choices(single)
        ends = (offered.get(name) for name in ("give up", "keep the link", "dismiss"))
        command = next(filter(None, ends), None)
        if command and name_of(single) in hopeless:
            yield {**single, "each": [], "command": command, "is_alone": True}


def _chunk_of(single: WorkLine) -> WorkLine:
    """Return the name of the chunk of a single thing, and whether it may be given up by now."""
    name = chunk_name(single["run"], single["chunk"]) if single["chunk"] else ""
    return {"name": name, "late": LOST in choices(single)}


def joined(lines: Iterable[WorkLine], together: Iterable[WorkLine]) -> Iterator[WorkLine]:
    """Yield what is given up, then the others, those that one command settles as one where all of
    them are there.

    `together`: the worklist over issuers and kinds.
    """
    everything = list(lines)
    yield from (line for line in everything if "is_alone" in line)  # before others mean them too
    pending = [line for line in everything if "is_alone" not in line]
    for joint in together:
        members = [line for line in pending if _stands_for(joint, line)]
        if members and sum(line["rows"] for line in members) == joint["rows"]:
            pending = [line for line in pending if not _stands_for(joint, line)]
            yield {"chunk": None, "each": [], **joint, "command": command_of(joint)}
    yield from pending


def _stands_for(joint: WorkLine, line: WorkLine) -> bool:
    is_of_kind = line["kind"] in JOINT.get(joint["kind"], {joint["kind"]} & JOINT.keys())
    return is_of_kind and line["issuer"] in joint["issuer"].split(",")


def name_of(single: WorkLine) -> str:
    """Return what a thing is known by from day to day."""
    return f"{single['kind']} {single['issuer']} {single['run']} {single['chunk']}"


def key_of(line: WorkLine) -> str:
    """Return what makes a line the same as one of another day."""
    return ", ".join(
        str(line[name]) for name in ("kind", "issuer", "run", "chunk", "rows", "command")
    )


def choices(line: WorkLine) -> dict[str, str]:
    """Return the commands of the decisions that a line offers, by name."""
    return {choice["decision"]: choice["command"] for choice in line["decisions"]}


def is_inquiry(line: WorkLine) -> bool:
    """Return whether a line asks the partner, and is not about something that is given up."""
    return bool(_question(line)) and "give-up" not in shlex.split(line["command"])


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
