"""What each portal column is made of, guessed from the headers and values of a sample.

A card number is recognised by its check digits, not by its header; a date by what all rows allow; a
country by the postal codes. A column without a telling header is guessed from its values alone,
with a question. A lookup is never made of the values seen: no cell is written to the TOML.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from typing import Final

from flows.extensions.init.column_signs import (
    BLIND,
    EXPIRY,
    HOUSE,
    NAME,
    NO_MATTER,
    SIGNS,
    Candidate,
    are_headers,
    fit,
    is_house_number,
    is_of_the_address,
    may_be_second_line,
    says_only,
    share,
    words_of,
    written_as,
)
from flows.extensions.init.guess import LIKELY, SURE, Column, Guess, Sample
from schemas import expressions, places, portal
from schemas.portal import REQUIRED
from schemas.reference import toml

# portal columns that one column may hold together
PAIRS: Final = {EXPIRY: (portal.YEAR, portal.MONTH), NAME: (portal.FIRST_NAME, portal.LAST_NAME)}
WHICH: Final = "Which column is it?"
# What a person should know where an optional column is missing.
WITHOUT: Final = {
    portal.CUID: (
        "Which column differs for each cardholder? Without one, cardlink makes a reference up"
    ),
    portal.CVV: "Is there no CVV? A link may not open without it",
}
_COUNTRIES = {
    **dict.fromkeys("0123456789", places.US),
    **dict.fromkeys("ABCEGHJKLMNPRSTVXY", places.CANADA),
}


class ColumnGuesses:
    """The columns of a sample, and what each portal column is made of.

    `test`: whether its cards are test cards, once they are guessed.
    """

    def __init__(self, sample: Sample, today: date) -> None:
        self._free = [column for column in sample.columns if "old" not in words_of(column.heading)]
        headings = [column.heading for column in sample.columns]
        self._named = sample.named and are_headers(headings)
        self._today = today
        self._zip: Column | None = None
        self._has_unit = False  # something is guessed of the second line of the address
        self.test = False

    def guesses(self) -> Iterator[Guess]:
        """Yield a guess for each portal column that has one or needs one."""
        for target in SIGNS:
            if target in PAIRS:
                yield from self._pair(*PAIRS[target], target)
            elif target == portal.PAN:
                yield self._pan()
            elif target not in (*chain(*PAIRS.values()), HOUSE):
                guess = self._single(target)
                if guess is not None:
                    yield guess
                self._has_unit |= target == portal.ADDRESS2 and guess is not None
        if not self._has_unit:
            yield from self._second_line()

    # What all guesses need

    def _ranked(self, target: str) -> list[Candidate]:
        """Return the free columns that may be it, best first."""
        candidates = [
            Candidate(fit(column.heading, target), share(column, target, self._today), column)
            for column in self._free
        ]
        likely = [candidate for candidate in candidates if self._is_likely(target, candidate)]
        return sorted(likely, key=lambda candidate: candidate.rank)

    def _is_likely(self, target: str, candidate: Candidate) -> bool:
        if candidate.fit and candidate.share >= LIKELY:
            return True
        if candidate.fit >= 1 and target in NO_MATTER:
            return True
        may_be_unnamed = target == portal.PAN or (target in BLIND and not self._named)
        if not may_be_unnamed or candidate.share <= SURE:
            return False
        return len(set(candidate.column.present)) > 2

    def _take(self, *columns: Column) -> None:
        """Leave out columns that are used from now on."""
        self._free = [column for column in self._free if column not in columns]

    def _question(self, question: str) -> str:
        """Return the question of a guess: this one, and never none where columns have no names."""
        if question or self._named:
            return question
        return "Is it the right column? None has a name"

    def _missing(self, target: str, question: str = WHICH) -> Guess:
        need = "required; " if target in REQUIRED else ""
        others = tuple(column.spec for column in self._free[:9])
        return Guess(target, "", f"{need}no column looks like it", question, others)

    def _best(self, target: str, ranked: Sequence[Candidate]) -> Guess:
        """Take the best column.

        It has a question where another is as good, or its values are of another shape and it has
        not the portal's own name.
        """
        first = ranked[0]
        column = first.column
        others = [rival.column.spec for rival in _rivals(ranked)]
        question = _question_of_best(target, first, has_rivals=bool(others))
        if target == portal.CUID and len(set(column.present)) < 0.9 * len(column.values):
            question = (
                f"{column.name} repeats, or is empty in some rows: "
                "does it differ for each cardholder?"
            )
            others += [column.spec for column in self._free if _differs(column)][:4]
        self._take(column)
        supported = "name and values" if first.fit else "values"
        return Guess(
            target,
            column.spec,
            f"{supported} fit ({first.share:.0%})",
            self._question(question),
            tuple(dict.fromkeys(others)),
        )

    # Columns by their kind

    def _pan(self) -> Guess:
        """Return the card number: right check digits, few BINs, all different."""
        ranked = self._ranked(portal.PAN)
        if not ranked:
            return self._missing(portal.PAN)
        best = max(
            ranked, key=lambda candidate: (candidate.fit, len(set(candidate.column.present)))
        )
        others = [candidate.column for candidate in ranked if candidate.column != best.column]
        self._take(best.column, *others)
        cards = _cards(best.column)
        bins = {card[: expressions.BIN] for card in cards}
        reason = (
            f"16 digits, check digits right in {best.share:.0%}, "
            f"{len(bins)} BIN, {len(cards):,} different"
        )
        question = ""
        if others or self._is_doubtful(best):
            question = f"Is {best.column.name or 'it'} the number of the card?"
        specs = tuple(dict.fromkeys(column.spec for column in others))
        self.test = sum(map(_is_test_card, cards)) > LIKELY * len(cards)
        return Guess(portal.PAN, best.column.spec, reason, question, specs)

    def _is_doubtful(self, pan: Candidate) -> bool:
        """Return whether header or values leave a doubt about the card number."""
        if pan.share < SURE or (self._named and not pan.fit):
            return True
        if pan.fit >= 2:  # the portal's own name
            return False
        return len(_cards(pan.column)) < 0.9 * len(pan.column.present)

    def _pair(self, first: str, second: str, whole: str) -> Iterator[Guess]:
        """Yield two portal columns: of a column each, or of one with both, which has a format."""
        together = self._ranked(whole)
        other_half = [candidate for candidate in together if _is_other_half(candidate.column)]
        halves = self._ranked_halves(first, second, other_half)
        if all(halves) and (self._named or not together):
            yield self._best(first, halves[0])
            yield self._best_or_missing(second, self._ranked(second) or other_half)
        elif together:
            yield from self._halves(first, second, whole, together)
        else:
            for target in (first, second):
                yield self._best_or_missing(target, self._ranked(target))

    def _ranked_halves(
        self, first: str, second: str, other_half: list[Candidate]
    ) -> list[list[Candidate]]:
        """Return the columns that may be each of two: beside a half with a name, the other half."""
        halves = [self._ranked(target) for target in (first, second)]
        if self._named and any(halves):
            return [ranked or other_half for ranked in halves]
        return halves

    def _best_or_missing(self, target: str, ranked: Sequence[Candidate]) -> Guess:
        if ranked:
            return self._best(target, ranked)
        return self._missing(target)

    def _halves(
        self, first: str, second: str, whole: str, ranked: Sequence[Candidate]
    ) -> Iterator[Guess]:
        """Yield two portal columns that one column holds."""
        best = ranked[0]
        columns = [best.column, *(rival.column for rival in _rivals(ranked))]
        forms = (written_as(column, whole, self._today) for column in columns)
        values = list(chain.from_iterable(forms))
        reason = "the one form that fits"
        question = ""
        if len(values) > 1:
            reason = "the likeliest of several forms"
            question = "How is it written, or is it another column?"
        elif best.share <= SURE:
            question = _unlike(best)
        self._take(best.column)
        others = tuple(dict.fromkeys(values[1:]))
        for target in (first, second):
            yield Guess(target, values[0], reason, self._question(question), others)

    def _single(self, target: str) -> Guess | None:
        """Return a portal column that is one source column, or can do without; None: it does."""
        ranked = self._ranked(target)
        if not ranked:
            return self._without(target)
        match target:
            case portal.POSTAL_CODE:
                return self._postal_code(ranked)
            case portal.ADDRESS1:
                return self._street(ranked)
            case portal.ADDRESS2:
                return self._unit(ranked)
            case portal.IS_PRIMARY:
                column = ranked[0].column
                return self._primary_of(self._best(target, ranked), column)
        return self._best(target, ranked)

    def _postal_code(self, ranked: Sequence[Candidate]) -> Guess:
        column = ranked[0].column
        self._zip = column
        guess = self._best(portal.POSTAL_CODE, ranked)
        if _lost_zeros(column):
            padded = f"{{ {column.source}, pad = 5 }}"
            return guess._replace(value=padded, reason="ZIPs lost their zeros")
        return guess

    def _street(self, ranked: Sequence[Candidate]) -> Guess:
        """Return the street line, joined with a column of house numbers if there is one."""
        column = ranked[0].column
        guess = self._best(portal.ADDRESS1, ranked)
        ranked_houses = [candidate.column for candidate in self._ranked(HOUSE)]
        houses = [column for column in ranked_houses if is_house_number(column.heading)]
        if not houses or not self._named:
            return guess
        house = houses[0]
        self._free.remove(house)
        numbered = sum(bool(re.match(r"\d+\w?\s", street)) for street in column.present)
        question = guess.question
        if says_only(house, "number"):
            question = f"Is {house.name} the house number?"
        if numbered > 0.05 * len(column.present):
            question = f"Has {column.name} the house number too?"
        return Guess(
            portal.ADDRESS1,
            f"{{ join = [{house.spec}, {column.spec}] }}",
            "house number and street are separate columns",
            question,
            (column.spec, *guess.others),
        )

    def _unit(self, ranked: Sequence[Candidate]) -> Guess:
        """Return the second line, with a question where neither header nor values show a unit."""
        column = ranked[0].column
        guess = self._best(portal.ADDRESS2, ranked)
        if is_of_the_address(column.heading) or _have_digits(column):
            return guess
        question = f"Is {column.name} the apartment, suite or building?"
        return guess._replace(question=guess.question or question, others=(*guess.others, ""))

    def _second_line(self) -> Iterator[Guess]:
        """Yield a doubt where a column that is left over may be the second line of the address."""
        columns = [column for column in self._free if may_be_second_line(column)]
        if columns:
            question = "Is one of these columns the apartment, suite or building?"
            others = tuple(column.spec for column in columns)
            yield Guess(portal.ADDRESS2, "", "no header says so", question, others)

    def _without(self, target: str) -> Guess | None:
        """Return what a portal column is without a source column; None where nothing is needed."""
        match target:
            case portal.COUNTRY:
                return self._country()
            case portal.IS_PRIMARY:
                return self._is_primary()
            case portal.CVV if self._ranked(portal.CVV_HASH):
                return None
            case portal.ADDRESS2 if not self._named:
                return self._missing(target)
        if target in REQUIRED or target in WITHOUT:
            return self._missing(target, WITHOUT.get(target, WHICH))
        return None

    def _primary_of(self, guess: Guess, column: Column) -> Guess:
        """Return the guess with a question where a header speaks of the person or the card."""
        if is_of_the_address(column.heading):
            return guess
        question = (
            f"Does {column.name} say whether the address is the cardholder's primary one? "
            "It may say who is the main cardholder"
        )
        return guess._replace(question=question, others=('{ constant = "TRUE" }', *guess.others))

    def _is_primary(self) -> Guess:
        """Return a constant, with a question where a column seems to say it in other words."""
        unclear = [column for column in self._free if "primary" in words_of(column.heading)]
        question = ""
        if unclear:
            question = f"Does {unclear[0].name} say it? Then write a `lookup`"
        reason = "no column: a row has one address"
        return Guess(portal.IS_PRIMARY, '{ constant = "TRUE" }', reason, question)

    def _country(self) -> Guess:
        """Return the country that the postal codes show: a constant where all are of one."""
        codes = self._zip.present if self._zip else []
        canadian = sum(code[:1].isalpha() for code in codes)
        if self._zip and 0 < canadian < len(codes):
            cells = [f"{letter} = {toml(country)}" for letter, country in _COUNTRIES.items()]
            table = ", ".join(cells)
            value = f"{{ {self._zip.source}, slice = [1, 1], lookup = {{ {table} }} }}"
            reason = "no column: by the first character of the postal code"
            return Guess(portal.COUNTRY, value, reason)
        country = places.CANADA if canadian else places.US
        question = ""
        if not codes:
            question = "Are all cardholders in one country?"
        reason = f"no column: all postal codes are of {country}"
        return Guess(portal.COUNTRY, f'{{ constant = "{country}" }}', reason, question)


def _rivals(ranked: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates after the first whose headers are nearly as good."""
    return [candidate for candidate in ranked[1:] if candidate.fit > ranked[0].fit - 0.25]


def _have_digits(column: Column) -> bool:
    """Return whether at least half of a column's values have a digit."""
    return 2 * sum(bool(re.search("[0-9]", value)) for value in column.present) >= len(
        column.present
    )


def _lost_zeros(column: Column) -> bool:
    """Return whether postal codes that look like ZIPs, as most do, are too short."""
    zips = [value for value in column.present if value.isdigit()]
    return 2 * len(zips) > len(column.present) and any(len(code) < 5 for code in zips)


def _is_other_half(column: Column) -> bool:
    """Return whether a column named "name" alone is the half of names that no other column has."""
    single = sum(" " not in value for value in column.present)
    return says_only(column, "name") and single > LIKELY * len(column.present)


def _question_of_best(target: str, best: Candidate, *, has_rivals: bool) -> str:
    """Return what a person is asked about the best column, "" for nothing."""
    is_named = best.fit >= 2 or (best.fit >= 1 and target in NO_MATTER)
    if best.share < SURE and not is_named:
        return _unlike(best)
    if has_rivals:
        return f"Is it {best.column.name or best.column.source}, or another?"
    return ""


def _unlike(candidate: Candidate) -> str:
    """Return the question where values are of another shape."""
    name = candidate.column.name
    return f"{1 - candidate.share:.0%} of {name} look different: is it the right column?"


def _differs(column: Column) -> bool:
    """Return whether nearly every row has another value."""
    return len(set(column.values)) > 0.99 * len(column.values)


def _cards(column: Column) -> set[str]:
    return {re.sub("[ -]", "", value) for value in column.present}


def _is_test_card(card: str) -> bool:
    return card in expressions.PUBLISHED or card.startswith(expressions.GENERATED)
