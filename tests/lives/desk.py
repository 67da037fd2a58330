"""The real command line, and the operator who settles refusals by its output alone."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from click.testing import CliRunner

from flows.cli.main import main
from tests.lives.mortal import KilledError
from tests.lives.place import Place

PASTE = re.compile(r"`cardlink (?:--config \S+ )?([^`]+)`")
REFUSED = re.compile(r"^(?:refused|cardlink): (.*)$", re.MULTILINE)
FORESEEN = {  # exit codes: an extract may be refused or held, and results may lack rows
    "submit": (0, 2, 3),
    "report": (0, 3, 4),
    "ingest": (0, 3, 4),
    "mend": (0, 3, 4),
    "resubmit": (0, 3),
    "reconcile": (0, 3, 4),
}
HELD = "--open changed-extract"
OPENED = 0.6  # of the files that are held; the others are dismissed


class Output(NamedTuple):
    """What a command printed, and its exit code."""

    words: tuple[str, ...]
    code: int
    text: str
    report: dict[str, Any]  # where it was asked for JSON


@dataclass
class CommandLine:
    """Gives commands, some of which are killed and given again."""

    place: Place
    odd: list[str] = field(default_factory=list)  # commands that ended as none should

    def give(self, *words: str, options: tuple[str, ...] = ()) -> Output:
        """Give one command as often as it takes."""
        return self.place.reaper.survive(words[0], lambda: self._once(words, options))

    def _once(self, words: tuple[str, ...], options: tuple[str, ...]) -> Output:
        command = ["--config", str(self.place.folder), *options, *words]
        done = CliRunner().invoke(main, command)
        # the command line turns whatever ends a command into an exit code
        if self.place.store.life.over:
            raise KilledError
        text = done.stdout + done.stderr
        if done.exit_code not in FORESEEN.get(words[0], (0,)):
            day = self.place.clock.day
            self.odd.append(f"{day} {shlex.join(words)}: exit {done.exit_code}: {text}"[:600])
        report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return Output(words, done.exit_code, text, report)


@dataclass
class Desk:
    """Decides what is done with a file that is refused or held."""

    command_line: CommandLine
    chance: random.Random
    stuck: list[str] = field(default_factory=list)  # refusals that no line of theirs settles
    unsettled: set[str] = field(default_factory=set)  # refusals that the issuer was told of
    settled: Counter[str] = field(default_factory=Counter)
    dismissed: set[str] = field(default_factory=set)  # names, tonight

    def submit(self, issuer: str) -> list[Output]:
        """Submit what is new, and settle every file that is refused or held; return what was
        printed.
        """
        outputs = [self.command_line.give("submit", issuer)]
        for refusal in REFUSED.findall(outputs[0].text):
            outputs += self._settle(refusal)
        return outputs

    def _settle(self, refusal: str) -> Iterator[Output]:
        """Open or dismiss a file that is held, dismiss one that is refused, by the line that the
        refusal offers.
        """
        held = HELD in refusal
        command = "submit" if held and self.chance.random() < OPENED else "dismiss"
        words = _offered(refusal, command)
        if not words:  # the issuer sends it again, it says; another night it must be gone
            if held or refusal in self.unsettled:
                self.stuck.append(f"no line to {command}: {refusal}")
            self.unsettled.add(refusal)
            return
        if "--reason" in words:
            words[words.index("--reason") + 1] = "the issuer says so"
        output = self.command_line.give(*words)
        if output.code:
            self.stuck.append(f"{shlex.join(words)}: {output.text}")
        elif command == "dismiss":
            self.dismissed.add(words[2].rpartition("/")[2])
        self.settled[f"{'held' if held else 'refused'}, {command}: exit {output.code}"] += 1
        yield output


def _offered(refusal: str, command: str) -> list[str]:
    """Return the first line that a refusal offers to dismiss the file, or to submit it opened."""
    for line in PASTE.findall(refusal):
        words = shlex.split(line)
        if words[0] == command and (command == "dismiss" or "--open" in words):
            return words
    return []
