"""The real command line, whose commands may be killed and are then given again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from click.testing import CliRunner

from flows.cli.main import main
from tests.lives.mortal import KilledError
from tests.lives.place import Place

FORESEEN = {  # exit codes: an extract may be refused or held, and results may lack rows
    "submit": (0, 2, 3),
    "report": (0, 3, 4),
    "ingest": (0, 3, 4),
    "mend": (0, 3, 4),
    "decide": (0, 3, 4),  # what `mend` closes may leave other breaks open
    "resubmit": (0, 2, 3),  # 2: of several runs one has nothing to send
    "renew": (0, 2, 3),  # 2: cards that cannot be renewed before somebody acts
    "reconcile": (0, 3, 4),
    "answers": (0, 2, 3),
}
MORTAL = ("submit", "dismiss", "ingest", "resubmit", "renew", "purge", "mend reseal", "answers")
DONE_ALREADY = "nothing to send"


class Output(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    text: str
    report: dict[str, Any]  # where it was asked for JSON


@dataclass
class CommandLine:
    """Gives commands, some of which are killed and given again."""

    place: Place
    odd: list[str] = field(default_factory=list)  # commands that ended as none should
    dismissed: set[tuple[str, str]] = field(default_factory=set)  # issuers and names, today

    def give(self, *words: str, options: tuple[str, ...] = ()) -> Output:
        """Give one command as often as it takes."""
        attempt = count()

        def give_once() -> Output:
            return self._once(words, options, is_repeated=next(attempt) > 0)

        verb = verb_of(words)
        output = self.place.reaper.survive(verb, give_once, spares=verb not in MORTAL)
        if verb == "dismiss" and not output.code:
            self.dismissed.add((words[1], words[2].rpartition("/")[2]))
        return output

    def _once(
        self, words: tuple[str, ...], options: tuple[str, ...], *, is_repeated: bool
    ) -> Output:
        command = ["--config", str(self.place.folder), *options, *words]
        done = CliRunner().invoke(main, command)
        # the command line turns whatever ends a command into an exit code
        if self.place.store.life.over:
            raise KilledError
        text = done.stdout + done.stderr
        was_done = is_repeated and DONE_ALREADY in text
        if done.exit_code not in FORESEEN.get(words[0], (0,)) and not was_done:
            day = self.place.clock.day
            self.odd.append(f"{day} {shlex.join(words)}: exit {done.exit_code}: {text}"[:600])
        report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return Output(done.exit_code, text, report)


def verb_of(words: Sequence[str]) -> str:
    """Return the name of a command."""
    return " ".join(words[: 2 if words[0] in ("outbox", "mend") else 1])
