"""What the oracles of all lives find, and how it is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

EXAMPLES = 5  # of each kind of finding are printed


@dataclass
class Findings:
    """What is wrong, each with issuer, day and whose it is (never a card), and figures of what is
    right.
    """

    # cards sent again without a cause or anybody's word
    twice: list[str] = field(default_factory=list)
    # rows fit to be sent that were neither sent nor rightly held
    lost: list[str] = field(default_factory=list)
    # rows that were sent, or called duplicates, and ought not
    unfit: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)  # cut files that passed
    # whole files that nobody dismissed and that became no run
    left: list[str] = field(default_factory=list)
    # runs whose counts are not those of the books
    unbalanced: list[str] = field(default_factory=list)
    # rows of which a report says something else than the books
    differing: list[str] = field(default_factory=list)
    # cards that are elsewhere in the book than by the oracle, on some day
    misplaced: list[str] = field(default_factory=list)
    # counts of the reconciliation that are not those of the books
    miscounted: list[str] = field(default_factory=list)
    # runs whose output does not say how many rows were held
    untold: list[str] = field(default_factory=list)
    # cardholders with neither a link nor a reason
    forgotten: list[str] = field(default_factory=list)
    # without a link, though the partner would give one
    hopeful: list[str] = field(default_factory=list)
    # links that are not the cardholder's, or do not count
    misdelivered: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)  # cards with two links delivered
    too_soon: list[str] = field(default_factory=list)  # what was purged before its time
    # files of others that were deleted, or written
    foreign: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)  # what is left on a worklist at the end
    # refusals and worklist lines that stay, though done as they say
    stuck: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)  # commands that ended as none should
    figures: Counter[str] = field(default_factory=Counter)

    @property
    def wrong(self) -> dict[str, list[str]]:
        """What is wrong, by name."""
        kinds = vars(self).items()
        return {name: faults for name, faults in kinds if name != "figures" and faults}

    def add(self, others: Findings) -> None:
        """Add what was found before."""
        self.figures.update(others.figures)
        for name, faults in others.wrong.items():
            vars(self)[name] += faults

    def count(self, subject: str, numbers: Counter[str]) -> None:
        """Add figures of a subject."""
        self.figures.update({f"{subject}: {name}": number for name, number in numbers.items()})

    def lines(self) -> Iterator[str]:
        """Yield figures first, then what is wrong, the first examples of each."""
        for name, number in sorted(self.figures.items()):
            yield f"{name}: {number:,}"
        for name, faults in self.wrong.items():
            yield f"WRONG {name}: {len(faults):,}"
            yield from (f"    {fault}" for fault in faults[:EXAMPLES])
