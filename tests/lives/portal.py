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
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import chain
from string import ascii_lowercase
from typing import NamedTuple

from flows.runs.sealing import Opener

HOST = "https://links.example.com/c/"
MOST = 1000  # rows of an upload
COLUMNS = 20
LIFE, SHORT_LIFE, LONG_LIFE = 61, 9, 200  # days of a link
TEMPORARY = "the service is temporarily unavailable, try again later"
UNDELIVERABLE = "postal_code is not a valid postal code"
UNSUPPORTED = "this card product is not supported"
# of the cards, at their first upload
FATES = {TEMPORARY: 0.05, UNDELIVERABLE: 0.04, UNSUPPORTED: 0.03}
GRANTED = 0.7  # of the unsupported cards are taken, once somebody asked about them
SHORT = 0.02  # of the links

Position = tuple[str, int]  # chunk and data row
LINK, ERROR, LOST, EXPIRED, EXPLAINED = "link", "error", "lost", "expired", "explained"
SEND_AGAIN = "send again"  # the answer about a card that is taken now


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
    def place(self) -> Position:
        """Where it was sent."""
        return self.chunk, self.position

    @property
    def last_4(self) -> str:
        """The last digits of the card's number."""
        return self.card[12:16]

    @property
    def look(self) -> tuple[str, str]:
        """What a card looks like where its number is not kept."""
        return self.cuid, self.last_4

    def refused(self, error: str) -> Made:
        """Return the row with an error instead of a link."""
        return self._replace(url="", ends=date.max, error=error)


class Sent(NamedTuple):
    """A row that the portal opened, the day it did, what it made of it, and what was in it."""

    day: date
    row: Made
    content: int  # a hash of all its cells

    @property
    def position(self) -> Position:
        """Its chunk and data row."""
        return self.row.place

    @property
    def run(self) -> str:
        """The run that sent it."""
        return run_of(self.row.chunk)


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
    now: Callable[[], datetime]
    other: Portal | None = None  # of the other issuer
    long_from: date = date.max  # from then on links have a long life
    received: list[Sent] = field(default_factory=list)  # every row of every upload
    cards: set[str] = field(default_factory=set)  # of those rows
    coming: list[Letter] = field(default_factory=list)
    words: dict[str, Word] = field(default_factory=dict)
    # when a row's answer came, needing no decision
    plain: dict[Position, datetime] = field(default_factory=dict)
    links: dict[str, Made] = field(default_factory=dict)  # by URL, whatever came of them
    void: set[str] = field(default_factory=set)  # URLs that do not count
    errors: list[Made] = field(default_factory=list)
    # postal codes that were refused, by card
    wrong_code: dict[str, str] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    never: set[str] = field(default_factory=set)  # cards that are refused for good
    unasked: set[str] = field(default_factory=set)  # cancelled chunks that somebody uploaded
    disputed: set[Position] = field(default_factory=set)  # rows whose answer is not plain
    did: Counter[str] = field(default_factory=Counter)

    @property
    def day(self) -> date:
        """Today."""
        return self.now().date()

    def upload(self, name: str, content: bytes) -> None:
        """Take a chunk (interface.md 2.6), and promise its answer."""
        text = io.StringIO(self.opener.open(content, 1 << 24).decode(), newline="")
        rows = list(csv.DictReader(text, strict=True))
        assert 1 <= len(rows) <= MOST
        assert len(rows[0]) == COLUMNS
        assert len({row["cardholder.cuid"] for row in rows}) == len(rows)
        answers = [self._make(name, position, row) for position, row in enumerate(rows, 1)]
        self.errors += [row for row in answers if row.error]
        self.answer(self, name, answers)

    def _make(self, chunk: str, position: int, row: dict[str, str]) -> Made:
        cell = {name.partition(".")[2]: value for name, value in row.items()}
        card = cell["pan"] + cell["expiration_year"] + cell["expiration_month"]
        answer = self._judged(
            Made(chunk, position, cell["cuid"], card), cell["address.postal_code"]
        )
        self.received.append(Sent(self.day, answer, hash(tuple(row.values()))))
        return answer

    def _judged(self, answer: Made, code: str) -> Made:
        """Return a row with a link or an error."""
        card = answer.card
        fate = ""
        if card not in self.cards:
            fates = FATES | {"": 1 - sum(FATES.values())}
            fate = self.chance.choices([*fates], [*fates.values()])[0]
        self.cards.add(card)
        if fate == UNDELIVERABLE or self.wrong_code.get(card) == code:
            self.wrong_code[card] = code
            return answer.refused(UNDELIVERABLE)
        if fate == UNSUPPORTED or card in self.unsupported:
            self.unsupported.add(card)
            return answer.refused(UNSUPPORTED)
        return answer.refused(fate) if fate else self.linked(answer)

    def linked(self, answer: Made) -> Made:
        """Return the row with a new link."""
        # letters: digits by chance would be taken for a card number, and the link for a leak
        url = HOST + "".join(self.chance.choices(ascii_lowercase, k=16))
        usual = LIFE if self.day < self.long_from else LONG_LIFE
        days = SHORT_LIFE if self.chance.random() < SHORT else usual
        self.links[url] = answer._replace(url=url, ends=self.day + timedelta(days=days), error="")
        return self.links[url]

    def send(
        self,
        name: str,
        answers: Sequence[Made],
        *,
        after: int = 1,
        content: bytes = b"",
        plain: bool = True,
        way: str = "",
    ) -> Letter:
        """Promise a result file of these rows in some days; without `plain` they need a decision
        first.
        """
        day = self.day + timedelta(days=after)
        rows = tuple(answers) if plain else ()
        letter = Letter(day, name, content or result(answers), rows, way)
        self.coming.append(letter)
        return letter

    def bring(self) -> list[Letter]:
        """Return the result files of the day, some merged into one or under each other's names."""
        due = [letter for letter in self.coming if letter.day <= self.day]
        self.coming = [letter for letter in self.coming if letter.day > self.day]
        due = self._swapped(self._merged(due))
        for letter in due:
            self.book(letter)
        return due

    def _merged(self, due: list[Letter]) -> list[Letter]:
        merged = [letter for letter in due if letter.way == "merged"]
        if len(merged) < 2:
            return due
        self.did["two in one file"] += 1
        bodies = [letter.content.partition(b"\n")[2] for letter in merged[1:]]
        content = b"".join([merged[0].content, *bodies])
        rows = tuple(chain.from_iterable(letter.plain for letter in merged))
        others = [letter for letter in due if letter.way != "merged"]
        return [*others, merged[0]._replace(content=content, plain=rows)]

    def _swapped(self, due: list[Letter]) -> list[Letter]:
        swapped = [letter for letter in due if letter.way == "swapped"]
        self.did["under another chunk's name"] += len(swapped) if len(swapped) > 1 else 0
        names = deque(letter.name for letter in swapped)
        names.rotate(-1)
        return [
            letter._replace(name=names.popleft()) if letter.way == "swapped" else letter
            for letter in due
        ]

    def book(self, letter: Letter) -> None:
        """Note the plain answers of a file that is brought."""
        for answer in letter.plain:
            self.plain.setdefault(answer.place, self.now())

    def asked_about(self, chunk: str) -> Word:
        """Say what became of a chunk; with the word the links that do not count are void."""
        word = self.words.get(chunk, Word())
        if word.until <= self.day and word.again is None:
            self.void |= {answer.url for answer in word.spoils if answer.url}
        return word

    def promise(self, questions: Iterable[dict[str, str]]) -> set[str]:
        """Promise for tomorrow the whole result of each chunk of these questions that is at hand
        once more; from then on there is nothing else to say. Return these chunks.
        """
        chunks = {question["chunk"] for question in questions} & self.at_hand
        for chunk in sorted(chunks):
            letter = self.words.pop(chunk).again
            assert letter is not None
            self.coming.append(letter._replace(day=self.day + timedelta(days=1)))
        return chunks

    @property
    def uploaded(self) -> set[str]:
        """Name the chunks that it lists as uploaded."""
        return {sent.row.chunk for sent in self.received}

    @property
    def at_hand(self) -> set[str]:
        """Name the chunks whose result is brought once more where somebody asks."""
        words = self.words.items()
        return {chunk for chunk, word in words if word.again is not None and word.until <= self.day}

    def answer_to(self, question: dict[str, str]) -> str:
        """Answer a question about a row or a chunk; "" where that is not known yet."""
        chunk = question["chunk"]
        offered = question["answers"].split(" | ")
        if offered == [SEND_AGAIN]:
            return SEND_AGAIN if self._takes_now(chunk, question["cuid"]) else ""
        word = self.asked_about(chunk)
        if word.until > self.day or word.again is not None:
            return ""
        return word.decision if word.decision in offered else offered[0]

    def _takes_now(self, chunk: str, cuid: str) -> bool:
        """Decide about a refused card when asked about it, each once; True where it is taken."""
        refused = {row.card for row in self.errors if (row.chunk, row.cuid) == (chunk, cuid)}
        for card in sorted(refused & self.unsupported - self.never):
            if self.chance.random() < GRANTED:
                self.unsupported.remove(card)
            else:
                self.never.add(card)
        return not refused <= self.never


class Cells(NamedTuple):
    """A row of a result file (interface.md 2.7)."""

    cuid: str = ""
    last_4: str = ""
    url: str = ""
    expiration_date: str = ""
    error: str = ""


def cells(answer: Made) -> Cells:
    """Return the cells of a row with a link."""
    return Cells(answer.cuid, answer.last_4, answer.url, f"{answer.ends}")


def result(
    answers: Sequence[Made], errors: Callable[[Made], str] = lambda row: spoken(row)
) -> bytes:
    """Return a result file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Cells._fields)
    for row in answers:
        writer.writerow(Cells(error=errors(row)) if row.error else cells(row))
    return out.getvalue().encode()


def spoken(answer: Made) -> str:
    """Return an error as one of several programmers would have written it, apostrophes and all."""
    cuid, text = answer.cuid, answer.error
    forms = (
        f'{{"cuid":"{cuid}","errors":[{{"message":"{text}"}}]}}',
        f"{{ cuid: '{cuid}', errors: [ '{text}' ] }}",
        f"Could not create the card of {cuid}: {text}",
        f"{{'cuid': '{cuid}', 'errors': ['{text}']}}",
        f"CardError: {text} (cardholder {cuid})",
    )
    return forms[answer.position % len(forms)]


def run_of(chunk: str) -> str:
    """Return the run of a chunk."""
    match = re.match(r".+-\d{8}-[0-9a-f]{8}(-r\d+)?(?=(-e\d+)?-\d{5}\.)", chunk)
    assert match is not None
    return match[0]


def number_of(chunk: str) -> int:
    """Return the number of a chunk in its run."""
    return int(chunk.partition(".")[0][-5:])


def chunk_name(run: str, number: int) -> str:
    """Return the name under which a chunk is uploaded."""
    return f"{run}-{number:05d}.csv.pgp"
