"""What happened in a life: its place, its operator and its issuers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flows.runs.sealing import Opener
from tests.lives.bank import Bank
from tests.lives.clerk import Operator
from tests.lives.place import Place
from tests.lives.profile import Profile

Witness = Callable[["Life", Bank, list[dict[str, Any]]], None]


@dataclass
class Life:
    """The place, the operator, and the banks."""

    place: Place
    profile: Profile
    operator: Operator
    openers: list[Opener]  # with the portal's first key, and with its second
    watch: Witness  # looks at what is about to be purged
    banks: list[Bank] = field(default_factory=list)
    resealed: int = 0  # chunks
    restored: int = 0  # stores

    def schedule(self, *words: str) -> dict[str, Any]:
        """Give a command that no person gives; return what it reports."""
        return self.operator.give(*words, by=self.operator.scheduled)

    def note(self, bank: Bank, printed: str = "") -> None:
        """Note what was committed and dismissed since the last time, and what was printed of it."""
        bank.note_runs(printed)
        dismissed = self.operator.command_line.dismissed
        names = {name for issuer, name in dismissed if issuer == bank.name}
        bank.dismissed |= {bank.names[name] for name in names & bank.names.keys()}  # else a day
        self.operator.command_line.dismissed -= {pair for pair in dismissed if pair[0] == bank.name}
