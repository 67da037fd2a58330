"""The balance over people: each cardholder once, where the card that needs most attention stands.

A cardholder has one or more cards. Those that the issuer ever named are the sum over the states,
which `balance` checks, and those whom retention removed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from flows.book.book import Book
from flows.book.opening import NOBODY_REMOVED, OpeningBalance, all_removed
from flows.book.standing import SERVED, STATES
from flows.errors import BugError
from flows.runs.cards import is_single
from flows.steps import counted

WAITING_FOR = ("issuer", "partner", "operator")
_COUNTED = ("holder", "cuid", "standing", "who")
_ADDRESSED = {"issuer": "the issuer", "partner": "the partner", "operator": "you"}


class Balance(NamedTuple):
    """How many cardholders and cards are in which state (`flows.book.standing.STATES`).

    `waits`: cardholders by who has to act (WAITING_FOR); `waits_with_link`: those of them who have
    a link, about which something is to be decided. `nameless`: rows that name no cardholder and
    wait for the issuer (`flows.book.nameless`). `opening`: whom retention removed, who are in no
    state any more.
    """

    people: Mapping[str, int]
    cards: Mapping[str, int]
    waits: Mapping[str, int]
    waits_with_link: Mapping[str, int] = MappingProxyType({})
    nameless: int = 0
    opening: OpeningBalance = NOBODY_REMOVED

    @property
    def listed(self) -> int:
        """The cardholders that a ledger names."""
        return sum(self.people.values())

    @property
    def named(self) -> int:
        """The cardholders that the issuer ever named."""
        return self.listed + self.opening.total

    @property
    def linked(self) -> int:
        """The cardholders all of whose cards have a link or are placed, as far as they need one."""
        return sum(self.people[state.name] for state in SERVED)

    @property
    def is_done(self) -> bool:
        """Whether nobody waits, and no row either."""
        return not any(self.waits.values()) and not self.nameless

    @property
    def sentence(self) -> str:
        """The business result in one sentence."""
        holders = "cardholder has" if self.listed == 1 else "cardholders have"
        with_link = Counter(self.waits_with_link)
        without = Counter(self.waits) - with_link
        waiting = [waiting_sentence(without)] if without else []
        if +with_link:
            waiting.append(f"of those with a link, {waiting_sentence(with_link)}")
        if self.nameless:
            rows = counted(self.nameless, "row that names", "rows that name")
            verb = "waits" if self.nameless == 1 else "wait"
            waiting.append(f"{rows} no cardholder {verb} for the issuer")
        others = "; ".join(waiting or ["nobody waits"])
        return f"{self.linked:,} of {self.listed:,} {holders} a link; {others}."

    @property
    def facts(self) -> dict[str, object]:
        """The balance as plain facts."""
        return {
            "sentence": self.sentence,
            "named": self.named,
            "people": dict(self.people),
            "cards": dict(self.cards),
            "waits": dict(self.waits),
            "nameless": self.nameless,
            "removed": self.opening.facts,
        }


def waiting_sentence(waits: Mapping[str, int]) -> str:
    """Return how many wait for whom, in words; `waits`: by WAITING_FOR."""
    waiting = [(waits[who], _ADDRESSED[who]) for who in WAITING_FOR if waits.get(who)]
    if not waiting:
        return "nobody waits"
    verb = "waits" if waiting[0][0] == 1 else "wait"
    first, *others = [f"{number:,} for {whom}" for number, whom in waiting]
    return ", ".join([first.replace(" for ", f" {verb} for ", 1), *others])


def together(balances: Iterable[Balance]) -> Balance:
    """Return the balance over the cardholders of several issuers; nobody is in two of them."""
    issuers = list(balances)
    people = Counter[str]()
    cards = Counter[str]()
    waits = Counter[str]()
    with_link = Counter[str]()
    nameless = 0
    for issuer in issuers:
        people.update(issuer.people)
        cards.update(issuer.cards)
        waits.update(issuer.waits)
        with_link.update(issuer.waits_with_link)
        nameless += issuer.nameless
    return Balance(
        people={state.name: people[state.name] for state in STATES},
        cards={state.name: cards[state.name] for state in STATES},
        waits={name: waits[name] for name in WAITING_FOR},
        waits_with_link={name: with_link[name] for name in WAITING_FOR},
        nameless=nameless,
        opening=all_removed(issuer.opening for issuer in issuers),
    )


def counted_cards(cards: pl.DataFrame) -> pl.DataFrame:
    """Return the cards that count (`standing`), each in its newest issue (`is_counted`)."""
    return cards.filter(is_counted(cards))


def is_counted(cards: pl.DataFrame) -> pl.Series:
    """Return which issues of cards count: holder, last_4 and `current` are looked at.

    A row refused before its card number could be read counts only where its cardholder has no
    other card. A row that names no cardholder counts nowhere.
    """
    is_named = pl.col("current") & pl.col("holder").is_not_null()
    named = cards.select(is_named.fill_null(value=False)).to_series()
    is_unreadable = named & cards["last_4"].is_null()
    unreadable = cards["holder"].filter(is_unreadable)
    if unreadable.is_empty():
        return named
    of_them = named & cards["last_4"].is_not_null() & cards["holder"].is_in(unreadable.implode())
    with_other = cards["holder"].filter(of_them).implode()
    return named & ~(is_unreadable & cards["holder"].is_in(with_other))


def people(cards: pl.DataFrame) -> pl.DataFrame:
    """Return one line a cardholder: holder, cuid, `standing`, `who` acts, and number of `cards`.

    `cards`: as of `counted_cards`. The card that needs most attention says where the cardholder
    stands.
    """
    columns = cards.select("holder", "cuid", "standing", "who")
    first = columns.sort(pl.col("standing").to_physical(), maintain_order=True)
    return first.group_by("holder", maintain_order=True).agg(
        pl.col("cuid", "standing", "who").first(), cards=pl.len()
    )


def balance(cards: pl.DataFrame, opening: OpeningBalance = NOBODY_REMOVED) -> Balance:
    """Return the balance over the cards of a book on a day (`standing`), and over whom it lost.

    `opening`: whom retention removed from it. Raises BugError where a cardholder is in no state.
    """
    counts = is_counted(cards)
    single = is_single(cards, ["holder"])  # most are; grouping a million people takes a second
    several = people(cards.select(*_COUNTED).filter(counts & ~single))
    by_state = _numbers(cards["standing"].filter(counts & single), several["standing"])
    by_card = _numbers(cards["standing"].filter(counts))
    who = _numbers(cards["who"].filter(counts & single), several["who"])
    linked = _numbers(
        cards["who"].filter(counts & single & _is_served(cards)),
        several["who"].filter(_is_served(several)),
    )
    result = Balance(
        people={state.name: by_state[state.name] for state in STATES},
        cards={state.name: by_card[state.name] for state in STATES},
        waits={name: who[name] for name in WAITING_FOR},
        waits_with_link={name: linked[name] for name in WAITING_FOR},
        opening=opening,
    )
    listed = cards["holder"].drop_nulls().n_unique()
    if result.listed != listed:
        raise BugError(place="balance over people", kind=f"{result.listed} of {listed} counted")
    return result


def _is_served(cards: pl.DataFrame) -> pl.Series:
    """Return which cards, or cardholders, have a link or need none."""
    return cards["standing"].is_in([state.name for state in SERVED])


def balance_of(book: Book, today: date, opening: OpeningBalance = NOBODY_REMOVED) -> Balance:
    """Return the balance over the cardholders of a book on a day, and over whom it lost."""
    parts = (balance(part.cards(today)) for part in book.parts())
    return of_book(book, parts)._replace(opening=opening)


def of_book(book: Book, parts: Iterable[Balance]) -> Balance:
    """Return the balance over a book from those over its parts."""
    nameless = book.nameless.height
    return together(parts)._replace(opening=book.opening, nameless=nameless)


def _numbers(*series: pl.Series) -> Counter[str]:
    """Return how often there is each value."""
    numbers = Counter[str]()
    for values in series:
        numbers.update(dict(values.value_counts().iter_rows()))
    return numbers
