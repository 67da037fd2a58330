"""The operator: acts by the worklist alone. It pastes its commands, does what they say next, and
asks who is to act.
"""

from __future__ import annotations

import csv
import json
import random
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from flows.cli.main import main
from tests.twenty.portal import EXPLAINED, Letter, Portal

FORESEEN = {
    "submit": (0, 2, 3),
    "report": (0, 3, 4),
    "ingest": (0, 3, 4),
    "mend": (0, 3, 4),
    "resubmit": (0, 3),
    "reconcile": (0, 3, 4),
}
PLACES = {"WHY": "ticket INC0012345, agreed with the partner"}
PASSES = 12  # over the worklist of one day
Line = dict[str, Any]


class Closed(NamedTuple):
    """A decision that lets rows of a chunk be sent again."""

    day: date
    chunk: str
    decision: str


@dataclass
class Operator:
    """One operator at a command line, with the portal and the issuer at the telephone."""

    folder: Path
    chance: random.Random
    day: date
    bring: Callable[[str, Letter], None]  # drops a downloaded result file
    correct: Callable[[str, list[dict[str, str]]], bool]  # the issuer fills in a template
    whole: Callable[[str], bool]  # whether an issuer has sent again what was cut
    remove: Callable[[str, str], None]  # takes a result file out of an issuer's folder
    gave: Counter[str] = field(default_factory=Counter)  # commands, by verb
    scheduled: Counter[str] = field(default_factory=Counter)  # those that no person gives
    closed: list[Closed] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)  # commands that ended as none should
    stuck: list[str] = field(default_factory=list)  # lines that stay on the list, done as they say
    # the day the issuer was asked about a run's rows
    asked: dict[str, date] = field(default_factory=dict)

    def give(self, *words: str, by: Counter[str] | None = None) -> Line:
        """Give one command; return what it reports."""
        counted = self.gave if by is None else by
        counted[" ".join(words[: 2 if words[0] in ("outbox", "mend") else 1])] += 1
        done = CliRunner().invoke(main, ["--config", str(self.folder), "--json", *words])
        if done.exit_code not in FORESEEN.get(words[0], (0,)):
            self.odd.append(
                f"{self.day} {shlex.join(words)}: exit {done.exit_code}: {done.stdout}{done.stderr}"[
                    :600
                ]
            )
        told: Line = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return told

    def work(self, portal: Portal) -> list[Line]:
        """Work through the list until nothing more can be done today; return what is left on it."""
        waits: set[str] = set()
        given = Counter[str]()
        left: list[Line] = []
        for _ in range(PASSES):
            left = self.give("worklist", portal.issuer)["worklist"]
            todo = [one for one in left if _key(one) not in waits]
            # runs whose rows were sent again in this pass: another line may mean the same rows
            sent = set[str]()
            for one in todo:
                if "resubmit" in one["command"] and one["run"] in sent:
                    continue
                sent |= {one["run"]} if "resubmit" in one["command"] else set()
                # once may have been about other rows, by a decision in between
                if given[_key(one)] > 1:
                    self.stuck.append(f"{self.day}: {_key(one)}")
                    waits.add(_key(one))
                    continue
                moved = self._act(one, portal)
                if moved is None:  # a file came: the list is another one
                    break
                given[_key(one)] += moved
                waits |= set() if moved else {_key(one)}
            if not todo:
                break
        return left

    def _act(self, line: Line, portal: Portal) -> bool | None:
        """Do what a line says; False where only others can do something today, None where a result
        file came.
        """
        kind, words = line["kind"], _filled(line["command"])
        chunk = f"{line['run']}-{line['chunk']:05d}.csv.pgp" if line["chunk"] else ""
        # the receiving side confirms in its own time
        if kind in ("results awaited", "links to confirm"):
            return False
        if kind == "chunks to upload":
            self._upload(words, portal)
        elif kind == "results overdue" or kind.startswith("break "):
            return self._decide(line, words, chunk, portal)
        elif kind == "rows to correct":
            return self._correct(line, words)
        elif kind == "errors to ask about":
            return self._ask(line, words, portal)
        elif kind == "refused extracts":
            return self._refused(line, words)
        elif kind == "result files to look at":
            self._look(words, portal)
        elif kind.startswith("links end"):
            self.give(*words)
            return False  # the new links come later
        else:
            self.give(*words)
        return True

    def _upload(self, words: list[str], portal: Portal) -> None:
        folder = self.folder / "outbox"
        told = self.give(*(str(folder) if one == "FOLDER" else one for one in words))
        for one in told.get("chunks", ()):
            portal.upload(one["name"], (folder / one["name"]).read_bytes())
        if told.get("next"):
            self.give(*_filled(told["next"]))

    def _decide(self, line: Line, words: list[str], chunk: str, portal: Portal) -> bool | None:
        """Ask the partner about a chunk, then wait, take what it sends, or decide as it says."""
        word = portal.asked_about(chunk)
        if word.until > portal.day:
            return False
        if word.again is not None:
            self.bring(portal.issuer, portal.again(chunk))
            self.give("ingest", portal.issuer)
            return None
        at = words.index("--decision") + 1
        if word.decision != words[at]:
            offered = self.give("report", line["run"])["breaks"]
            ways = {
                way["decision"]
                for one in offered
                for way in one["decide"]
                if line["kind"] == f"break {one['name']}"
            }
            words[at] = word.decision if word.decision in ways else words[at]
        self.give(*words)
        if words[at] != EXPLAINED:
            self.closed.append(Closed(portal.day, chunk, words[at]))
        return True

    def _correct(self, line: Line, words: list[str]) -> bool:
        """Let the issuer fill in the template, and send what it filled in."""
        if self.asked.get(line["run"]) == self.day:
            return False
        self.asked[line["run"]] = self.day
        file = self.folder / f"{line['run']}-{self.day:%m%d}.csv"
        file.unlink(missing_ok=True)
        told = self.give(*(str(file) if one == "FILE" else one for one in words))
        rows = list(csv.DictReader(file.read_text("utf-8-sig").splitlines()))
        if not rows or not self.correct(line["issuer"], rows):
            return False
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        tried = self.give(*_filled(told["next"]))
        if tried.get("next"):
            self.give(*_filled(tried["next"]))
        return bool(tried.get("next"))

    def _ask(self, line: Line, words: list[str], portal: Portal) -> bool:
        """Ask about the refused cards of a run; where the partner takes some now, do what the line
        says.
        """
        if not portal.take_now(line["run"]):
            return False
        self.give(*words)
        return True

    def _refused(self, line: Line, words: list[str]) -> bool:
        """Ask the issuer about a refused extract; where it came again, do what is said next."""
        told = self.give(*words)
        if not told["next"] or not self.whole(line["issuer"]):
            return False
        self.give(*_filled(told["next"]))
        return True

    def _look(self, words: list[str], portal: Portal) -> None:
        """Look at a result file that fits nothing, and take it away."""
        self.give(*words)
        self.remove(portal.issuer, words[3])


def _key(line: Line) -> str:
    return ", ".join(
        str(line[name]) for name in ("kind", "issuer", "run", "chunk", "rows", "command")
    )


def _filled(command: str) -> list[str]:
    words = shlex.split(command)[1:]
    return [PLACES.get(word, word) for word in (words[2:] if words[0] == "--config" else words)]
