"""Where every card stands on a day by what town, portal and operator did, and what the book says.

The census knows nothing of how the pipeline decides or adds up. Of what is stored it uses which file
a run is of, in which order runs were committed, and what is sealed in their chunks, which it opens.
Of a row whose answer is in dispute it knows only what may have become of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from flows.book.book import read_book
from flows.book.people import counted_cards
from flows.runs.commits import read_commits
from flows.runs.stored_run import StoredRun
from flows.wiring import wire
from schemas.manifest import Manifest
from tests.lives.portal import ERROR, LINK, Position
from tests.lives.rows import Card, Row, content_of, named_of, opened, refused_of
from tests.lives.town import Line

if TYPE_CHECKING:
    from tests.lives.bank import Bank
    from tests.lives.life import Life

# where a card can stand, what needs attention first; a cardholder is where its first card is
STATES = (
    "lost",
    "unsettled",
    "cancelled",
    "on hold",
    "to upload",
    "expired",
    "refused",
    "awaiting",
    "not sent",
    "changed",
    "not replaced",
    "not updated",
    "linked",
    "delivered",
    "not eligible",
    "given up",
    "left",
)
WAITING = ("unsettled", "on hold", "to upload", "awaiting")
WITHOUT_LINK = {"lost", "cancelled", "expired", "refused", "not sent"}
LINKED = {"linked", "delivered"}
UNSENT = ("not sent", "not eligible")
KEPT = {"not replaced", "not updated"}
DISPUTED = frozenset({"awaiting", "unsettled", "linked", "refused"})
DECIDED = {LINK: "linked", ERROR: "refused"}  # by other decisions a row is lost
MOST = 256  # ways in which disputes may have ended that are gone through

Whereabouts = frozenset[str]  # where something may be: one of STATES, or several in a dispute


class Try(NamedTuple):
    """What became of one row: its state, with the end of its link, and whether that is delivered."""

    turn: int
    issue: str
    state: str
    ends: date = date.max
    is_delivered: bool = False


@dataclass
class Census:
    """The runs of an issuer as they were committed, and the rows of each."""

    runs: list[Manifest] = field(default_factory=list)
    rows: list[list[Row]] = field(default_factory=list)  # of each run
    # of each run of a whole extract: the lines of its file, and their cards
    lines: list[dict[Line, Card]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)  # runs, or the issuer: given up today
    keeping: list[str] = field(default_factory=list)  # likewise: their links are kept
    # cards that may have been given up: which of a run's codes they have is the partner's word
    given_up: set[Card] = field(default_factory=set)
    kept: set[tuple[Card, int]] = field(default_factory=set)  # with the run of the link

    def forget(self) -> None:
        """Begin anew, as store and rows were put back."""
        self.runs.clear()
        self.rows.clear()
        self.lines.clear()

    def note(self, words: Sequence[str], issuer: str, targets: Iterable[str]) -> None:
        """Note what a command gives up, or whose links it keeps; `targets`: what its line names."""
        match words[:2]:
            case ["mend", "give-up"]:
                self.targets += targets
            case ["mend", "keep-link"]:
                self.keeping.append(issuer if "," in words[2] else words[2])

    def differing(self, life: Life, bank: Bank) -> Iterator[str]:
        """Yield the cards of which the book says something else today; "" for one it lacks."""
        day = life.place.clock.day
        expected = self.standing(life, bank)
        adapters = wire(life.place.folder, bank.name).adapters
        cards = counted_cards(read_book(adapters, bank.name).cards(day))
        listed = cards.select("holder", "last_4", "standing").rows()
        booked: dict[Card, str] = {(holder, last_4): state for holder, last_4, state in listed}
        for card in sorted(expected.keys() | booked.keys()):
            states = expected.get(card, frozenset())
            if booked.get(card, "") not in states:
                allowed = " or ".join(sorted(states)) or "never named"
                what = booked.get(card, "vanished")
                yield f"{day} {bank.name}: {card[0]}, {card[1]}: {what}, where it is {allowed}"

    def standing(self, life: Life, bank: Bank) -> dict[Card, Whereabouts]:
        """Return where every card that was ever named may stand today."""
        self._read_on(life, bank)
        day = life.place.clock.day
        tries: dict[Card, list[tuple[int, Row]]] = defaultdict(list)
        for turn, rows in enumerate(self.rows):
            for row in rows:
                tries[row.card].append((turn, row))
        is_over = self._freed(bank)
        for card, of_card in tries.items():
            counting = [(turn, row) for turn, row in of_card if row.place or not is_over(turn, row)]
            tries[card] = counting or of_card
        fates = Fates(life, bank)
        gone = self.gone(bank)
        issues = self._issues(bank)
        standing = {
            card: frozenset({"left"})
            if card in gone
            else _whereabouts(of_card, fates, issues[card], day)
            for card, of_card in tries.items()
        }
        for card, states in standing.items():
            if not states.isdisjoint(KEPT) and self.is_kept(card, tries[card], fates, bank.name):
                standing[card] = states | LINKED
        self.keeping.clear()
        meant = {
            card
            for card, of_card in tries.items()
            if standing[card] & WITHOUT_LINK and self._is_meant(of_card, bank.name)
        }
        self.targets.clear()
        self.given_up |= meant
        for card, is_surely in self._changed(bank, tries, fates).items():
            if standing[card] & (LINKED | KEPT):
                others = standing[card] - LINKED if is_surely else standing[card]
                standing[card] = others | {"changed"}
        return standing | {card: standing[card] | {"given up"} for card in self.given_up}

    def _issues(self, bank: Bank) -> Mapping[Card, Sequence[str]]:
        """Return the issues of each card, by the last file that named each."""
        issues: dict[Card, dict[str, int]] = defaultdict(dict)
        for turn in self._whole_extracts:
            for line, card in self.lines[turn].items():
                issue = _issue(bank.town.people.card(line))
                issues[card].pop(issue, None)
                issues[card][issue] = turn
        return defaultdict(tuple, {card: tuple(each) for card, each in issues.items()})

    def _freed(self, bank: Bank) -> Callable[[int, Row], bool]:
        """Return what says of a row that cannot be sent whether a later file has its card in one
        that can: if it was not sent, the card has or awaits a link.
        """
        people = bank.town.people
        last: dict[str, tuple[date, int]] = {}
        for turn in self._whole_extracts:
            as_of = self.runs[turn].as_of
            fit = (line for line in self.lines[turn] if people.is_fit(line, as_of))
            last |= dict.fromkeys(map(people.card, fit), (as_of, turn))

        def is_over(turn: int, row: Row) -> bool:
            day, freed = last.get(row.number, (date.min, -1))
            return freed >= turn and day >= self.runs[turn].as_of

        return is_over

    def _is_meant(self, rows: list[tuple[int, Row]], issuer: str) -> bool:
        """Return whether a card is one of what was given up today."""
        return not self._names(rows, issuer).isdisjoint(self.targets)

    def is_kept(self, card: Card, rows: list[tuple[int, Row]], fates: Fates, issuer: str) -> bool:
        """Return whether the operator may have decided that the link of a card is enough."""
        links = [turn for turn, row in rows if any(state == "linked" for state, _ in fates.of(row))]
        link = card, max(links, default=-1)
        if not self._names(rows, issuer).isdisjoint(self.keeping):
            self.kept.add(link)
        return link in self.kept

    def _names(self, rows: list[tuple[int, Row]], issuer: str) -> set[str]:
        """Return what a command can name that is about a card: its runs, or the issuer."""
        return {self.runs[turn].run for turn, _ in rows} | {issuer}

    def _read_on(self, life: Life, bank: Bank) -> None:
        """Open the chunks of the runs that were committed since."""
        for _, manifest in read_commits(life.place.adapters, bank.name, len(self.runs)):
            run = StoredRun.by_id(life.place.adapters, manifest.run)
            sealed = [bank.content(stored.key) for _, stored in sorted(run.sealed_chunks.items())]
            rows = [*refused_of(bank, manifest)]
            for chunk, content in zip(manifest.chunks, sealed, strict=True):
                rows += opened(bank, chunk.name, content)
            self.runs.append(manifest)
            self.rows.append(rows)
            self.lines.append(named_of(bank, manifest))

    def _changed(
        self, bank: Bank, tries: Mapping[Card, list[tuple[int, Row]]], fates: Fates
    ) -> dict[Card, bool]:
        """Return the cards of a delta whose name or address is not the same in all of its files,
        and whether it surely is another than at the last sending: no file since the last one that
        was sent has the same as that. Of a portfolio, which sends a change by itself, those whose
        newest row was to be sent and is in a cancelled chunk.
        """
        if bank.town.feed.portfolio:
            return {card: False for card, rows in tries.items() if _is_unsent(rows, fates)}
        named: dict[Card, list[tuple[int, Line]]] = defaultdict(list)
        for turn in self._whole_extracts:
            for line, card in self.lines[turn].items():
                if not line.deleted:
                    named[card].append((turn, line))
        return {
            card: self._is_surely_changed(tries[card], lines)
            for card, lines in named.items()
            if len({content_of(line) for _, line in lines}) > 1 and card in tries
        }

    def _is_surely_changed(
        self, rows: list[tuple[int, Row]], lines: list[tuple[int, Line]]
    ) -> bool:
        """Return whether the newest row of a card is another than each that was sent of it: all of
        these are of earlier files, and none was corrected.
        """
        turn, newest = lines[-1]
        sent = [last for last, row in rows if row.place is not None]
        is_whole = all(self.runs[last].selection is None for last in sent)
        before = {content_of(line) for last, line in lines if last in sent}
        is_newer = all(last < turn for last, _ in rows)
        is_fit = newest.fit and newest.eligible
        return is_fit and is_whole and is_newer and content_of(newest) not in before

    @property
    def _whole_extracts(self) -> list[int]:
        """The runs of whole extracts, by business date."""
        whole = [turn for turn, manifest in enumerate(self.runs) if manifest.selection is None]
        return sorted(whole, key=lambda turn: (self.runs[turn].as_of, turn))

    def gone(self, bank: Bank) -> set[Card]:
        """Return the cards that have left: the last file that counts for them is a portfolio that
        does not name them, or a file that marks them as deleted.
        """
        whole = self._whole_extracts
        if bank.town.feed.portfolio:
            del whole[:-1]
        gone = set[Card]()
        for turn in whole:
            cards = self.lines[turn]
            named = {card for line, card in cards.items() if not line.deleted}
            if bank.town.feed.portfolio:
                gone |= {row.card for rows in self.rows[: turn + 1] for row in rows}
            gone |= set(cards.values())
            gone -= named
        return gone


class Fates:
    """What became of each row by now."""

    def __init__(self, life: Life, bank: Bank) -> None:
        self._portal = bank.portal
        # by place and card: where a store was put back, a run may come again under its name with
        # other rows, and its chunk is marked as uploaded though the portal has another one
        self._sent = {(sent.position, sent.row.card): sent.row for sent in bank.portal.received}
        self._uploaded = bank.portal.uploaded
        self._shelf: Mapping[str, str] = life.operator.shelf
        self._delivered = {
            (row["cuid"], row["last_4"], row["expires_on"]) for row in bank.delivered.values()
        }
        self._answered = {chunk for chunk, _ in bank.portal.plain}
        self._decided: dict[str, str] = {}
        for closed in life.operator.closed:
            self._decided[closed.chunk] = closed.decision

    def of(self, row: Row) -> list[tuple[str, date]]:
        """Return in which states a row may be, each with the end of its link."""
        if row.place is None:
            return [("not sent" if row.eligible else "not eligible", date.max)]
        sent = self._sent.get((row.place, row.number))
        if sent is not None and row.place in self._portal.plain:
            answer = ("refused" if sent.error else "linked", sent.ends)
            return [answer, ("unsettled", date.max)] if self._is_open(row.place) else [answer]
        states = self._without_answer(row.place, is_there=sent is not None)
        return [(state, sent.ends if sent else date.max) for state in states]

    def _without_answer(self, place: Position, *, is_there: bool) -> list[str]:
        """Return in which states a row without a plain answer may be.

        `is_there`: the portal has it in its chunk.
        """
        chunk, _ = place
        decision = self._decided.get(chunk)
        disputes = sorted(DISPUTED) if place in self._portal.disputed else []
        if chunk in self._shelf and decision is None and chunk not in self._answered:
            # where none of its rows has a plain answer, one that is in dispute may have come
            return [self._shelf[chunk], *disputes]
        if chunk not in self._uploaded:
            return ["to upload"]
        if decision in DECIDED and not is_there:
            return ["awaiting", "lost"]  # what was decided was about the other rows
        if decision is not None:
            return [DECIDED.get(decision, "lost")]
        return disputes or ["awaiting"]

    def has_delivered(self, row: Row, ends: date) -> bool:
        """Return whether a link of a card that ends on a day was delivered."""
        return (*row.card, f"{ends}") in self._delivered

    def _is_open(self, place: Position) -> bool:
        return place in self._portal.disputed and place[0] not in self._decided


def _issue(number: str) -> str:
    """Return the issue of a card: its expiration (YYMM)."""
    return number[16:]


def _whereabouts(
    rows: list[tuple[int, Row]], fates: Fates, issues: Sequence[str], day: date
) -> Whereabouts:
    """Return where a card may stand: of each way in which its disputes may have ended.

    `issues`: those that files named, the newest last.
    """
    states = [
        [
            Try(turn, _issue(row.number), state, ends, fates.has_delivered(row, ends))
            for state, ends in fates.of(row)
        ]
        for turn, row in rows
    ]
    outcomes: Iterable[tuple[Try, ...]] = product(*states)
    ways = zip(outcomes, range(MOST), strict=False)
    return frozenset(_standing(tries, issues, day) for tries, _ in ways)


def _is_unsent(rows: list[tuple[int, Row]], fates: Fates) -> bool:
    """Return whether the newest row of a card that was to be sent is in a cancelled chunk."""
    sent = [row for _, row in rows if row.place]
    return bool(sent) and any(state == "cancelled" for state, _ in fates.of(sent[-1]))


def _standing(tries: tuple[Try, ...], named: Sequence[str], day: date) -> str:
    """Return where the newest issue of a card stands: of those tried the one named last."""
    issues: dict[str, list[Try]] = defaultdict(list)
    for attempt in tries:
        issues[attempt.issue].append(attempt)
    newest = next((issue for issue in reversed(named) if issue in issues), max(issues))
    return _of_issue(issues[newest], day)


def _of_issue(tries: list[Try], day: date) -> str:
    """Return where an issue stands: a link that can be opened, a wait, or the last word."""
    waiting = [attempt.state for attempt in tries if attempt.state in WAITING]
    living = [attempt for attempt in tries if attempt.state == "linked" and attempt.ends >= day]
    if living:
        is_delivered = max(living, key=lambda attempt: attempt.ends).is_delivered
        of_link = "delivered" if is_delivered else "linked"
        if waiting:
            return of_link
        is_refused = tries[-1].state == "not sent"
        not_replaced = dict.fromkeys(("refused", "lost"), "not replaced")
        return "not updated" if is_refused else not_replaced.get(_last_word(tries).state, of_link)
    state = waiting[-1] if waiting else _last_word(tries).state
    return "expired" if state == "linked" else state


def _last_word(tries: list[Try]) -> Try:
    """Return the last try that was not cancelled, of those of one run one that was sent."""
    tried = [attempt for attempt in tries if attempt.state != "cancelled"] or tries
    of_last_run = [attempt for attempt in tried if attempt.turn == tried[-1].turn]
    sent = [attempt for attempt in of_last_run if attempt.state not in UNSENT]
    return (sent or of_last_run)[-1]
