"""The operator: acts by the worklist alone. It pastes its commands, does what they say next, and
asks who is to act.
"""

from __future__ import annotations

import csv
import shlex
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from flows.runs.keys import results
from tests.lives.desk import CommandLine
from tests.lives.issuers import Bank, Line
from tests.lives.portal import EXPLAINED, Portal

PLACES = {"WHY": "ticket INC0012345, agreed with the partner"}
PASSES = 12  # over the worklist of one day


class Closed(NamedTuple):
    """A decision that lets rows of a chunk be sent again."""

    day: date
    chunk: str
    decision: str


@dataclass
class Operator:
    """One operator at a command line, with the portal and the issuer at the telephone."""

    command_line: CommandLine
    given: Counter[str] = field(default_factory=Counter)  # commands, by verb
    scheduled: Counter[str] = field(default_factory=Counter)  # those that no person gives
    closed: list[Closed] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)  # lines that stay on the list, done as they say
    # the day the issuer was asked about a run's rows
    asked: dict[str, date] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the operator keeps files."""
        return self.command_line.place.folder

    @property
    def day(self) -> date:
        """Today."""
        return self.command_line.place.clock.day

    def give(self, *words: str, by: Counter[str] | None = None) -> Line:
        """Give one command; return what it reports."""
        counted = self.given if by is None else by
        counted[" ".join(words[: 2 if words[0] in ("outbox", "mend") else 1])] += 1
        return self.command_line.give(*words, options=("--json",)).report

    def work(self, bank: Bank) -> list[Line]:
        """Work through the list until nothing more can be done today; return what is left on it."""
        waits: set[str] = set()
        times = Counter[str]()
        left: list[Line] = []
        for _ in range(PASSES):
            left = self.give("worklist", bank.name)["worklist"]
            pending = [line for line in left if _key(line) not in waits]
            if not pending:
                break
            self._pass(bank, pending, times, waits)
        return left

    def _pass(self, bank: Bank, pending: list[Line], times: Counter[str], waits: set[str]) -> None:
        """Do every line once; those with which nothing can be done today wait."""
        # runs whose rows were sent again in this pass: another line may mean the same rows
        resent = set[str]()
        for line in pending:
            if "resubmit" in line["command"]:
                if line["run"] in resent:
                    continue
                resent.add(line["run"])
            # once may have been about other rows, by a decision in between
            if times[_key(line)] > 1:
                self.stuck.append(f"{self.day}: {_key(line)}")
                waits.add(_key(line))
                continue
            moved = self._act(line, bank)
            if moved is None:  # a file came: the list is another one
                return
            times[_key(line)] += moved
            if not moved:
                waits.add(_key(line))

    def _act(self, line: Line, bank: Bank) -> bool | None:
        """Do what a line says; False where only others can do something today, None where a result
        file came.
        """
        words = _filled(line["command"])
        match line["kind"].split():
            case ["results", "awaited"] | ["links", "to", "confirm"]:
                return False  # the receiving side confirms in its own time
            case ["chunks", "to", "upload"]:
                self._upload(words, bank.portal)
            case ["results", "overdue"] | ["break", *_]:
                return self._decide(line, words, bank)
            case ["rows", "to", "correct"]:
                return self._correct(line, words, bank)
            case ["errors", "to", "ask", "about"]:
                return self._ask(line, words, bank.portal)
            case ["refused", "extracts"]:
                explained = self.give(*words)
                # the issuer sends it again, and what is said next is done then
                return not bank.owed and self._go_on(explained)
            case ["result", "files", "to", "look", "at"]:
                self.give(*words)
                self.command_line.place.store.delete(
                    results(bank.name) + words[3]
                )  # it fits nothing: taken away
            case ["links", "end", *_]:
                self.give(*words)
                return False  # the new links come later
            case _:
                self.give(*words)
        return True

    def _upload(self, words: list[str], portal: Portal) -> None:
        folder = self.folder / "outbox"
        fetched = self.give(*(str(folder) if word == "FOLDER" else word for word in words))
        for chunk in fetched.get("chunks", ()):
            portal.upload(chunk["name"], (folder / chunk["name"]).read_bytes())
        self._go_on(fetched)

    def _go_on(self, report: Line) -> bool:
        """Give the command that a report names as the next, if it names one."""
        if report.get("next"):
            self.give(*_filled(report["next"]))
        return bool(report.get("next"))

    def _decide(self, line: Line, words: list[str], bank: Bank) -> bool | None:
        """Ask the partner about a chunk, then wait, take what it sends, or decide as it says."""
        chunk = f"{line['run']}-{line['chunk']:05d}.csv.pgp" if line["chunk"] else ""
        word = bank.portal.asked_about(chunk)
        if word.until > self.day:
            return False
        if word.again is not None:
            bank.bring(bank.portal.again(chunk))
            self.give("ingest", bank.name)
            return None
        place = words.index("--decision") + 1
        if word.decision != words[place] and word.decision in self._decisions(line):
            words[place] = word.decision
        self.give(*words)
        if words[place] != EXPLAINED:
            self.closed.append(Closed(self.day, chunk, words[place]))
        return True

    def _decisions(self, line: Line) -> set[str]:
        """Return the decisions that the run's report offers for a line's break."""
        breaks = self.give("report", line["run"])["breaks"]
        own = [entry for entry in breaks if line["kind"] == f"break {entry['name']}"]
        ways = chain.from_iterable(entry["decide"] for entry in own)
        return {way["decision"] for way in ways}

    def _correct(self, line: Line, words: list[str], bank: Bank) -> bool:
        """Let the issuer fill in the template, and send what it filled in."""
        if self.asked.get(line["run"]) == self.day:
            return False
        self.asked[line["run"]] = self.day
        file = self.folder / f"{line['run']}-{self.day:%m%d}.csv"
        file.unlink(missing_ok=True)
        template = self.give(*(str(file) if word == "FILE" else word for word in words))
        rows = list(csv.DictReader(file.read_text("utf-8-sig").splitlines()))
        if not rows or not bank.fill_in(rows):
            return False
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return self._go_on(self.give(*_filled(template["next"])))

    def _ask(self, line: Line, words: list[str], portal: Portal) -> bool:
        """Ask about the refused cards of a run; where the partner takes some now, do what the line
        says.
        """
        if not portal.take_now(line["run"]):
            return False
        self.give(*words)
        return True


def _key(line: Line) -> str:
    return ", ".join(
        str(line[name]) for name in ("kind", "issuer", "run", "chunk", "rows", "command")
    )


def _filled(command: str) -> list[str]:
    words = shlex.split(command)[1:]
    return [PLACES.get(word, word) for word in (words[2:] if words[0] == "--config" else words)]
