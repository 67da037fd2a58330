"""What the portal opened and answered, of whom, and what could be known of it when.

The books know nothing of how the pipeline decides. Of the store they use which file a run is of,
and when it was committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import TypeVar

from tests.lives.bank import Bank, Run
from tests.lives.life import Life
from tests.lives.portal import EXPLAINED, LINK, Sent
from tests.lives.town import Line

ACTIVE = ("awaiting", "living")
RENEWED = timedelta(days=14)  # a link that ends within these days may be replaced
FORGIVEN = timedelta(days=62)  # after a link's life a portfolio's refused card is tried again
T = TypeVar("T")


class Books:
    """The books of one issuer's portal, by cardholder."""

    def __init__(self, life: Life, bank: Bank) -> None:
        self._bank = bank
        # what only an operator with a worklist or a portfolio does
        self._renews = bank.town.feed.portfolio or life.profile.acts_on == "worklist"
        people = bank.town.people
        lines = set[Line]().union(*(drop.lines for drop in bank.drops.values()))
        holders = {people.card(line): line for line in lines}
        self.strange: list[Sent] = []  # rows of cards that no file held
        self.by_position = {sent.position: sent for sent in bank.portal.received}
        self.by_run: dict[str, list[Sent]] = defaultdict(list)
        # every sending of a person's cards, each with its line
        self.attempts: dict[int, list[tuple[Line, Sent]]] = defaultdict(list)
        for sent in bank.portal.received:
            self.by_run[sent.run].append(sent)
            line = holders.get(sent.row.card)
            if line is None:
                self.strange.append(sent)
            else:
                self.attempts[line.person].append((line, sent))
        # the first decision about a chunk: another may follow about other rows
        self._decided: dict[str, date] = {}
        for closed in sorted(life.operator.closed):
            if closed.decision not in (LINK, EXPLAINED):
                self._decided.setdefault(closed.chunk, closed.day)

    def state(self, sent: Sent, moment: datetime) -> str:
        """Return what was known of a sent row at a moment: awaiting, error, living or ended."""
        came = self._bank.portal.plain.get(sent.position)
        if came is None or came > moment:
            return "awaiting"
        if sent.row.error:
            return "error"
        return "living" if sent.row.ends >= moment.date() else "ended"

    def is_decided(self, chunk: str) -> bool:
        """Return whether rows of a chunk were decided to be without a link."""
        return chunk in self._decided

    def holds(self, line: Line, run: Run) -> bool:
        """Return whether a row was not to be sent by a run, for the sake of an earlier sending."""
        return any(
            self._is_held_by(holder, self.state(sent, run.known), line)
            for holder, sent in self.attempts[line.person]
            if sent.run != run.manifest.run and self._bank.runs[sent.run].moment <= run.moment
        )

    def _is_held_by(self, holder: Line, state: str, line: Line) -> bool:
        """Return whether a sending in this state holds a row back: of this card, or a later one of
        its holder. In a portfolio a refused card is held too, and a change waits for the answer.
        """
        is_portfolio = self._bank.town.feed.portfolio
        if is_portfolio and state == "awaiting" and holder.number == line.number:
            return True
        holding = (*ACTIVE, "error") if is_portfolio else ACTIVE
        return holder.version >= line.version and state in holding

    def cause(self, before: Sent, after: Sent) -> str:
        """Return why a card was sent again, "" where there was no reason."""
        run = self._bank.runs[after.run]
        selection = run.manifest.selection
        if selection is not None and selection.override:
            return "override"
        known = self.state(before, run.known)
        if known == "ended" or (known == "error" and self._may_retry(before, run)):
            return known
        # a link that is disputed later counts until then
        is_linked = known == "living" or before.position in self._bank.portal.disputed
        if is_linked and self._renews and before.row.ends <= run.moment.date() + RENEWED:
            return "ending link"
        came = self._bank.portal.plain.get(before.position)
        day_it_came = came.date() if came else date.max
        # the answer came after the decision, on the same day
        if self._decided.get(before.row.chunk, date.max) <= min(day_it_came, after.day):
            return "decision"
        # planned anew before anybody could know of the upload
        if before.row.chunk in self._bank.portal.unasked and day_it_came >= after.day:
            return "cancelled"
        # of a delta the operator sends it, from the worklist
        may_change = self._bank.town.feed.portfolio or selection is not None
        return "change" if may_change and before.content != after.content else ""

    def _may_retry(self, before: Sent, run: Run) -> bool:
        """Return whether a run may send a refused card again: a night of a portfolio may not."""
        if not self._bank.town.feed.portfolio or run.manifest.selection is not None:
            return True
        return self._bank.runs[before.run].manifest.as_of + FORGIVEN < run.manifest.as_of


def resendings(sendings: Iterable[tuple[object, T]]) -> Iterator[tuple[T, T]]:
    """Yield every sending of a card (or to a person) after its first, with the one before it."""
    last: dict[object, T] = {}
    for key, sending in sendings:
        if key in last:
            yield last[key], sending
        last[key] = sending
