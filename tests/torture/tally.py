"""What a torture came to: how much was done to how many nights, and what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from flows.errors import CardlinkError


@dataclass
class Tally:
    """Counts of one kind of torture on one storage."""

    what: str
    nights: int = 0
    done: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)

    def check(self, what: str, find: Callable[[], list[str]]) -> None:
        """Add what `find` names as lost; a rerun that ends in an error is a loss."""
        try:
            found = find()
        except CardlinkError as error:
            found = [f"a rerun ended in {type(error).__name__}"]
        self.losses += [f"{what}: {loss}" for loss in found]

    def __str__(self) -> str:
        """Say it in a few lines."""
        lines = [f"{self.what}: {self.nights} nights, losses {len(self.losses)}"]
        lines += [
            f"  {title}: {_reported(counts)}"
            for title, counts in (("done", self.done), ("ended", self.ended))
            if counts
        ]
        return "\n".join(lines + [f"  LOST {loss}" for loss in self.losses])


def _reported(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.most_common())
