"""The partner's portal, written from its interface alone: takes chunks, makes links, answers with
every bad habit.

It shares no code with the simulator. It remembers what it did with every row, so that it can be
asked, and what of it came plainly: the truth the pipeline is held against. How a chunk is answered
(`manners.py`) is drawn from a deck.
"""

from __future__ import annotations

import csv
import io
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import NamedTuple

from flows.runs.sealing import Opener

HOST = "https://links.example.com/c/"
HEADER = ("cuid", "last_4", "url", "expiration_date", "error")
MOST = 1000  # rows of an upload
LIFE, SHORT_LIFE = 61, 9  # days of a link
TEMPORARY = "the service is temporarily unavailable, try again later"
UNDELIVERABLE = "postal_code is not a valid postal code"
UNSUPPORTED = "this card product is not supported"
# of the cards, at their first upload
FATES = {TEMPORARY: 0.05, UNDELIVERABLE: 0.04, UNSUPPORTED: 0.03}
GRANTED = 0.7  # of the unsupported cards are taken, once somebody asked about them
SHORT = 0.02  # of the links

LINK, ERROR, LOST, EXPIRED, EXPLAINED = "link", "error", "lost", "expired", "explained"


class Made(NamedTuple):
    """What the portal made of one row: a link with its last day, or an error."""

    chunk: str
    position: int
    cuid: str
    card: str  # number and expiration
    url: str = ""
    ends: date = date.max
    error: str = ""

    @property
    def last_4(self) -> str:
        """The last digits of the card's number."""
        return self.card[12:16]

    def refused(self, error: str) -> Made:
        """Return the row with an error instead of a link."""
        return self._replace(url="", ends=date.max, error=error)


class Letter(NamedTuple):
    """A result file that will come; `plain`: the rows it answers in a way that needs nobody's
    decision.
    """

    day: date
    name: str
    content: bytes
    plain: tuple[Made, ...] = ()
    way: str = ""  # "merged" or "swapped" with the others of its day


@dataclass
class Word:
    """What the partner says of a chunk when asked: a decision, to wait until a day, or the file
    once more.
    """

    decision: str = LOST
    until: date = date.min
    again: Letter | None = None
    spoils: tuple[Made, ...] = ()  # whose links are void with that decision


@dataclass
class Portal:
    """A portal for one issuer, with its books."""

    issuer: str
    opener: Opener
    chance: random.Random
    # how a chunk is answered, and what is said of it
    answer: Callable[[Portal, str, list[Made]], None]
    day: date
    other: Portal | None = None  # of the other issuer
    received: list[tuple[date, Made]] = field(default_factory=list)  # every row of every upload
    coming: list[Letter] = field(default_factory=list)
    words: dict[str, Word] = field(default_factory=dict)
    # the day a row's answer came, needing no decision
    plain: dict[tuple[str, int], date] = field(default_factory=dict)
    links: dict[str, Made] = field(default_factory=dict)  # by URL, whatever came of them
    void: set[str] = field(default_factory=set)  # URLs that do not count
    errors: list[Made] = field(default_factory=list)
    # postal codes that were refused, by card
    wrong_code: dict[str, str] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    never: set[str] = field(default_factory=set)  # cards that are refused for good
    did: Counter[str] = field(default_factory=Counter)

    def upload(self, name: str, content: bytes) -> None:
        """Take a chunk (interface.md 2.6), and promise its answer."""
        rows = list(
            csv.DictReader(
                io.StringIO(self.opener.open(content, 1 << 24).decode(), newline=""), strict=True
            )
        )
        assert 1 <= len(rows) <= MOST
        short = [{key.partition(".")[2]: value for key, value in row.items()} for row in rows]
        made = [self._make(name, at, row) for at, row in enumerate(short, 1)]
        self.errors += [one for one in made if one.error]
        self.answer(self, name, made)

    def _make(self, chunk: str, at: int, row: dict[str, str]) -> Made:
        card = row["pan"] + row["expiration_year"] + row["expiration_month"]
        made = Made(chunk, at, row["cuid"], card)
        first = card not in {one.card for _, one in self.received}
        self.received.append((self.day, made))
        fate = (
            self.chance.choices([*FATES, ""], [*FATES.values(), 1 - sum(FATES.values())])[0]
            if first
            else ""
        )
        if fate == UNDELIVERABLE or self.wrong_code.get(card) == row["address.postal_code"]:
            self.wrong_code[card] = row["address.postal_code"]
            return made.refused(UNDELIVERABLE)
        if fate == UNSUPPORTED or card in self.unsupported:
            self.unsupported.add(card)
            return made.refused(UNSUPPORTED)
        return made.refused(fate) if fate else self.linked(made)

    def linked(self, made: Made) -> Made:
        """Return the row with a new link."""
        url = f"{HOST}{self.chance.getrandbits(64):016x}"
        days = SHORT_LIFE if self.chance.random() < SHORT else LIFE
        self.links[url] = made._replace(url=url, ends=self.day + timedelta(days=days), error="")
        return self.links[url]

    def send(
        self,
        name: str,
        made: Sequence[Made],
        *,
        after: int = 1,
        content: bytes = b"",
        plain: bool = True,
        way: str = "",
    ) -> Letter:
        """Promise a result file of these rows in some days; without `plain` they need a decision
        first.
        """
        letter = Letter(
            self.day + timedelta(days=after),
            name,
            content or result(made),
            tuple(made) if plain else (),
            way,
        )
        self.coming.append(letter)
        return letter

    def bring(self) -> list[Letter]:
        """Return the result files of the day, some merged into one or under each other's names."""
        due = [one for one in self.coming if one.day <= self.day]
        self.coming = [one for one in self.coming if one.day > self.day]
        merged = [one for one in due if one.way == "merged"]
        if len(merged) > 1:
            self.did["two in one file"] += 1
            rest = b"".join(one.content.partition(b"\n")[2] for one in merged[1:])
            rows = tuple(row for one in merged for row in one.plain)
            due = [one for one in due if one.way != "merged"]
            due.append(merged[0]._replace(content=merged[0].content + rest, plain=rows))
        swapped = [at for at, one in enumerate(due) if one.way == "swapped"]
        names = [due[at].name for at in swapped]
        for at, name in zip(swapped, names[1:] + names[:1], strict=True):
            due[at] = due[at]._replace(name=name)
            self.did["under another chunk's name"] += len(names) > 1
        for one in due:
            self.book(one)
        return due

    def book(self, letter: Letter) -> None:
        """Note the plain answers of a file that is brought."""
        for made in letter.plain:
            self.plain.setdefault((made.chunk, made.position), self.day)

    def asked_about(self, chunk: str) -> Word:
        """Say what became of a chunk; with the word the links that do not count are void."""
        word = self.words.get(chunk, Word())
        if word.until <= self.day and word.again is None:
            self.void |= {made.url for made in word.spoils if made.url}
        return word

    def again(self, chunk: str) -> Letter:
        """Return a chunk's whole result once more; from then on there is nothing else to say."""
        letter = self.words.pop(chunk).again
        assert letter is not None
        self.book(letter)
        return letter

    def take_now(self, run: str) -> bool:
        """Decide about the refused cards of a run when asked about them, each once; True where some
        are taken now.
        """
        last = {made.card: made.chunk for _, made in self.received}
        refused = [
            one
            for one in self.errors
            if last[one.card] == one.chunk and one.chunk.startswith(f"{run}-")
        ]
        for card in sorted({one.card for one in refused} & self.unsupported - self.never):
            if self.chance.random() < GRANTED:
                self.unsupported.remove(card)
            else:
                self.never.add(card)
        return any(one.card not in self.never for one in refused)


def result(made: Sequence[Made], errors: Callable[[Made], str] = lambda one: spoken(one)) -> bytes:
    """Return a result file (interface.md 2.7)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(
        ("", "", "", "", errors(one))
        if one.error
        else (one.cuid, one.last_4, one.url, f"{one.ends}", "")
        for one in made
    )
    return out.getvalue().encode()


def spoken(made: Made) -> str:
    """Return an error as one of several programmers would have written it, apostrophes and all."""
    cuid, text = made.cuid, made.error
    forms = (
        f'{{"cuid":"{cuid}","errors":[{{"message":"{text}"}}]}}',
        f"{{ cuid: '{cuid}', errors: [ '{text}' ] }}",
        f"Could not create the card of {cuid}: {text}",
        f"{{'cuid': '{cuid}', 'errors': ['{text}']}}",
        f"CardError: {text} (cardholder {cuid})",
    )
    return forms[made.position % len(forms)]
