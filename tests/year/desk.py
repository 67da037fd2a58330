"""The operator's desk: the real command line, a refusal read and acted on by nothing but what the
output says.
"""

from __future__ import annotations

import random
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from flows.cli.main import main
from tests.quarter.mortal import KilledError, Reaper

PASTE = re.compile(r"`cardlink (?:--config \S+ )?([^`]+)`")
REFUSED = re.compile(r"^(?:refused|cardlink): (.*)$", re.MULTILINE)
FORESEEN = {  # exit codes: an extract may be refused or held, and results may lack rows
    "submit": (0, 2, 3),
    "ingest": (0, 3, 4),
    "dismiss": (0,),
}
HELD = "--open changed-extract"


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    words: tuple[str, ...]
    code: int
    text: str


@dataclass
class Desk:
    """Gives commands, some of which are killed and given again, and decides what is done with a
    file that is held.
    """

    folder: Path
    reaper: Reaper
    chance: random.Random
    opens: float = 0.6  # of the files that are held; the others are dismissed
    odd: list[Said] = field(default_factory=list)  # ended in no way that is foreseen
    stuck: Counter[str] = field(default_factory=Counter)  # refusals that no line of theirs settles
    asked: Counter[str] = field(default_factory=Counter)  # refusals that the issuer was told of
    settled: Counter[str] = field(default_factory=Counter)
    dismissed: set[str] = field(default_factory=set)  # names, tonight

    def give(self, *words: str) -> Said:
        """Give one command as often as it takes."""
        return self.reaper.survive(words[0], lambda: self._once(words))

    def _once(self, words: tuple[str, ...]) -> Said:
        done = CliRunner().invoke(main, ["--config", str(self.folder), *words])
        # the command line turns whatever ends a command into an exit code
        if self.reaper.store.life.over:
            raise KilledError
        said = Said(words, done.exit_code, done.stdout + done.stderr)
        if done.exit_code not in FORESEEN[words[0]]:
            self.odd.append(said)
        return said

    def submit(self, issuer: str) -> list[Said]:
        """Submit what is new, and settle every file that is refused or held; return what was
        printed.
        """
        said = [self.give("submit", issuer)]
        for refusal in REFUSED.findall(said[0].text):
            said += self._settle(refusal)
        return said

    def _settle(self, refusal: str) -> Iterator[Said]:
        """Open or dismiss a file that is held, dismiss one that is refused, by the line that the
        refusal offers.
        """
        held = HELD in refusal
        verb = "submit" if held and self.chance.random() < self.opens else "dismiss"
        offered = [shlex.split(line) for line in PASTE.findall(refusal)]
        words = next(
            (
                line
                for line in offered
                if line[0] == verb and (verb == "dismiss" or "--open" in line)
            ),
            None,
        )
        if words is None:  # the issuer sends it again, it says; another night it must be gone
            self.asked[refusal] += 1
            if held or self.asked[refusal] > 1:
                self.stuck[f"no line to {verb}: {refusal}"] += 1
            return
        if "--reason" in words:
            words[words.index("--reason") + 1] = "the issuer says so"
        said = self.give(*words)
        if said.code:
            self.stuck[f"{shlex.join(words)}: {said.text}"] += 1
        elif verb == "dismiss":
            self.dismissed.add(words[2].rpartition("/")[2])
        self.settled[f"{'held' if held else 'refused'}, {verb}: exit {said.code}"] += 1
        yield said
