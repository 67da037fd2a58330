"""A first `[source]` and `[columns]` for an extract: a reason beside each guess, a question beside
each doubt.

Header names go into the text, cells never. A guess without a question is one that header and values
support together.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from functools import cache
from itertools import chain
from typing import BinaryIO, Final, NamedTuple, Self

import polars as pl

from flows.extracts.dialect import Column, Guess, take_sample
from schemas import expressions, places, portal
from schemas.mapping import READINGS, date_shape
from schemas.portal import REQUIRED
from schemas.reference import toml

# A word of ours, and its spellings in headers.
_SPELLINGS = """
    number no nbr num nr nmbr numb id identifier ident key ref reference nummer numero
    date dt dte thru through to until
    customer cust cus client clnt member memb mbr party cardholder holder crdhldr chd ch person owner
    card crd crdt carte | customer_number cif cifno cuid custno | card_number pan cardno
    old prev previous former prior replaced | on the of
    expiration exp expiry expir expire expires expdt expdate valid validity good xpir | month mo mon mth mm mnth mois
    year yr yy yyyy annee | first_name firstname fname givenname forename prenom fstnm fnm | first fst frst given
    last_name lastname lname surname familyname nom lstnm lnm | last lst family sur | name nm nme names | full complete
    emboss emb embossed embossing embossname printed | address addr adr addrs adresse | line ln lin
    street str strt rue | house hse building bldg civic | unit apt apartment suite ste flat
    city cty town municipality locality ville | state st stt province prov region subnational
    zip zp zipcode postalcode postcode postal post pstl | phone phn | country ctry cntry cntr nation pays
    email emailaddress courriel | phone telephone tel mobile cell telno ph | cvv cvc cvn cid csc
    hash hashed sha digest | primary prim pri main | flag ind indicator flg is | code cd cde | status sts stat
    account acct acc | billing bill mailing mail residential residence res legal physical current home
    security sec verification | value val text txt field fld desc | nickname productname
"""
_WORDS = {
    spelling: own.split("_")
    for group in _SPELLINGS.replace("\n", "|").split("|")
    if (words := group.split())
    for own in words[:1]
    for spelling in words
}
_GLUED = re.compile(
    "|".join(sorted((word for word in _WORDS if len(word) > 1), key=len, reverse=True))
)
# What a header may say besides.
_NOISE = frozenset({"customer", "card", "code", "date", "flag", "value", "on", "billing", "primary", "account", "full",
                    "number", "name", "line", "1", "address"})  # fmt: skip

# what one column may hold of two, and a part of one
EXPIRY, NAME, HOUSE = "expiry", "name", "house"
_LETTERS = r"[^\d@]*[^\W\d][^\d@]*"
PAIRS: Final = {EXPIRY: (portal.YEAR, portal.MONTH), NAME: (portal.FIRST_NAME, portal.LAST_NAME)}
# What a header says, in our words, one phrase or several; and a regex of the values, "" where
# another test decides. In the order in which they are guessed: what values show best first, so that
# it is not taken for something else.
ASKED: Final = {
    portal.PAN: ("card number|card|primary account number", ""),
    EXPIRY: ("expiration|expiration month year", ""),
    portal.CVV: ("cvv|cvv 2|security", r"\d{1,4}"),
    portal.CVV_HASH: ("cvv hash|cvv 2 hash|cvv|cvv 2", expressions.HASH_SHAPE),
    portal.EMAIL: ("email|e billing", r"\S+@\S+\.\w+"),
    portal.POSTAL_CODE: ("zip|zip 5", r"\d{3,5}|\d{5}-?\d{4}|[A-Za-z]\d[A-Za-z][ -]?\d[A-Za-z]\d"),
    portal.SUBNATIONAL: ("state", ""),
    portal.COUNTRY: ("country", ""),
    portal.CUID: ("customer number|customer", r"(?=.*\d)[\w./ -]{1,40}|[\w-]{8,40}"),
    portal.CUSTOMER_KEY: ("customer key", ".*"),
    portal.NICKNAME: ("nickname", ".*"),
    portal.ADDRESS2: ("address 2|street 2|unit", ".*"),
    portal.PHONE: ("phone", r"[+(]{0,2}\d[\d ().+/-]{5,20}\d( ?x\d+)?"),
    NAME: ("name|emboss|name on card", _LETTERS),
    portal.ADDRESS1: ("address|street", r"(?=.*[^\W\d]).{4,}"),
    portal.CITY: ("city", _LETTERS),
    portal.NAME_ON_CARD: ("emboss|name on card", _LETTERS),
    portal.IS_PRIMARY: ("primary", "(?i)true|false|t|f|y|n|yes|no|1|0"),
    portal.YEAR: ("expiration year", r"\d{2}|20\d{2}"),
    portal.MONTH: ("expiration month", "0?[1-9]|1[0-2]"),
    portal.FIRST_NAME: ("first name|first", _LETTERS),
    portal.LAST_NAME: ("last name|last", _LETTERS),
    HOUSE: ("house|number street", r"\d{1,6}[ -]?\w?(?:/\d)?"),
}
STATES = {
    place
    for country in (places.US, places.CANADA)
    for place in places.subnational_spellings(country)
}
# First names that tell `FIRST LAST` from `LAST FIRST`.
COMMON = frozenset(
    """james john robert michael william david richard joseph thomas charles mary patricia jennifer linda elizabeth
    barbara susan jessica sarah karen ann anne anna emma olivia noah liam daniel matthew mark paul steven andrew
    jane laura maria jose juan luis carlos sophie marie pierre peter george kevin brian emily amy lisa nancy""".split()  # noqa: SIM905  a list of sixty lines
)


@cache
def words_of(header: str) -> frozenset[str]:
    """Return what a header says, in our words: camelCase, abbreviations and words without a gap are
    understood.
    """
    plain = unicodedata.normalize("NFKD", header).encode("ascii", "ignore").decode()
    found: list[str] = []
    for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", plain):
        token = part.lower()
        pieces = _GLUED.findall(token)
        if token in _WORDS or "".join(pieces) != token:
            pieces = [token]
        found += [word for piece in pieces for word in _WORDS.get(piece, [piece])]
    return frozenset(found)


def fit(header: str, target: str) -> float:
    """Return how well a header names a column: 1 exactly, less with words beside that tell nothing,
    0 not at all.
    """
    best, words = 0.0, words_of(header)
    for phrase in ASKED[target][0].split("|"):
        wanted = frozenset(phrase.split())
        if wanted <= words and words - wanted <= _NOISE:
            best = max(best, 1 - 0.1 * len(words - wanted))
    return max(best, 2.0 * (header == target))


SURE, LIKELY = 0.95, 0.5  # share of values that have the shape of their column
# Columns that values alone may show, always with a question.
BLIND = {*REQUIRED, EXPIRY, portal.CUID, portal.CVV, portal.EMAIL, portal.PHONE} - {
    portal.COUNTRY,
    portal.IS_PRIMARY,
}
# their values are no reason to leave them out
NO_MATTER = (portal.EMAIL, portal.PHONE, portal.NAME_ON_CARD)
WITHOUT = {
    portal.CUID: "Which column differs for each cardholder? Without one, cardlink makes a reference up",
    portal.CVV: "Is there no CVV? A link may not open without",
}
# how well the header fits, share of the values that do, the column
Ranked = list[tuple[float, float, Column]]


class Draft(NamedTuple):
    """What is guessed of an extract, its headers, and whether its cards are test cards."""

    guesses: tuple[Guess, ...]
    headers: tuple[str, ...]
    test: bool

    @property
    def doubts(self) -> list[Guess]:
        """The guesses that have a question."""
        return [one for one in self.guesses if one.question]

    def answered(self, doubt: Guess, value: str) -> Self:
        """Return the draft with the value that a person chose; also of what is made of the same
        column.
        """
        alike = {one.key for one in self.doubts if doubt.value and one[1:] == doubt[1:]} | {
            doubt.key
        }
        sure = (
            Guess(one.key, value, "as answered") if one.key in alike else one
            for one in self.guesses
        )
        return self._replace(guesses=tuple(sure))

    @property
    def toml(self) -> str:
        """The tables `[source]` and `[columns]`, with reasons and questions."""
        lines, used = ["[source]"], " ".join(one.value for one in self.guesses)
        for one in self.guesses:
            name = toml(one.key) if "." in one.key else one.key
            lines += ["", "[columns]"] if one.key == portal.CUID else []
            lines += [f"# ? {one.question}"] if one.question else []
            lines += [
                f"{name} = {one.value} # {one.reason}"
                if one.value
                else f"# {name} = ... # {one.reason}"
            ]
            lines += [f"#   or: {name} = {other}" for other in one.others if other]
        unused = [name for name in self.headers if toml(name) not in used]
        kinds = [name for name in unused if "status" in words_of(name)]
        lines += [f"# not used: {', '.join(unused)}"] if unused else []
        lines += [
            f"# ? Do rows count whatever {name} says? Otherwise, name what counts in [filter]"
            for name in kinds
        ]
        return "\n".join(lines) + "\n"


def first_draft(stream: BinaryIO, name: str, today: date) -> Draft:
    """Return what is guessed of an extract from its lines; ExtractError where they cannot be told
    apart.
    """
    source, found, named = take_sample(stream, name)
    columns = _Columns(found, named, today)
    guesses = sorted(columns.guesses(), key=lambda one: portal.columns().index(one.key))
    return Draft((*source, *guesses), tuple(one.name for one in found if one.name), columns.test)


class _Columns:
    """The columns of a sample, and what each portal column is made of."""

    def __init__(self, columns: Sequence[Column], named: bool, today: date) -> None:
        self._free = [one for one in columns if "old" not in words_of(one.name)]
        known = sum(any(fit(one.name, target) for target in ASKED) for one in columns)
        self._named, self._today = named and known > 2, today
        self._zip: Column | None = None
        self.test = False

    def guesses(self) -> Iterator[Guess]:
        """Yield a guess for each portal column that has one or needs one."""
        for target in ASKED:
            if target in PAIRS:
                yield from self._pair(*PAIRS[target], target)
            elif target == portal.PAN:
                yield self._pan()
            elif target not in (*chain(*PAIRS.values()), HOUSE):
                yield from self._one(target)

    def _ranked(self, target: str) -> Ranked:
        """Return the free columns that may be it, best first."""
        found = [(fit(one.name, target), self._share(target, one), one) for one in self._free]
        blind = target == portal.PAN or (target in BLIND and not self._named)
        likely = [
            (said, share, one)
            for said, share, one in found
            if (said and share >= LIKELY)
            or (said >= 1 and target in NO_MATTER)
            or (blind and share > SURE and len({*one.present}) > 2)
        ]
        return sorted(likely, key=lambda one: (-one[0], not one[2].present, -round(one[1], 1)))

    def _share(self, target: str, column: Column) -> float:
        """Return the share of a column's values that have the shape of a portal column."""
        values = column.present
        if not values:  # an optional column that no cardholder has yet
            return float(
                target in portal.columns()
                and target not in REQUIRED
                and fit(column.name, target) >= 1
            )
        if target == portal.PAN:
            cards = pl.Series([re.sub("[ -]", "", value) for value in values])
            holds = pl.lit(cards).str.contains("^[2-6][0-9]{15}$") & expressions.luhn_holds(
                pl.lit(cards)
            )
            right = int(pl.select(holds).to_series().sum())
        elif target == EXPIRY:
            steps, forms = self._dates(values)
            right = (
                round(_fitting(_cut(values, steps), forms[0], self._today) * len(values))
                if forms
                else 0
            )
        elif target in (portal.SUBNATIONAL, portal.COUNTRY):
            known = STATES if target == portal.SUBNATIONAL else places.country_spellings().keys()
            right = sum(
                " ".join(value.upper().replace(".", " ").split()) in known for value in values
            )
        else:
            right = sum(bool(re.fullmatch(ASKED[target][1], value, re.DOTALL)) for value in values)
        return right / len(values)

    def _guess(
        self, key: str, value: str, reason: str, question: str, others: Sequence[str], *used: Column
    ) -> Guess:
        self._free = [one for one in self._free if one not in used]
        if not self._named and key != portal.PAN:
            question = question or "Is it the right column? None has a name"
        return Guess(key, value, reason, question, tuple(dict.fromkeys(others)))

    def _missing(self, key: str, question: str = "Which column is it?") -> Guess:
        need = "required; " if key in REQUIRED else ""
        return Guess(
            key,
            "",
            f"{need}no column looks like it",
            question,
            tuple(one.spec for one in self._free[:9]),
        )

    def _best(self, target: str, ranked: Ranked) -> Guess:
        """Return the best column; with a question where another is as good, or its values are of
        another shape.
        """
        (header, share, best), others = (
            ranked[0],
            [one[2].spec for one in ranked[1:] if one[0] > ranked[0][0] - 0.25],
        )
        question = f"Is it {best.name or best.source}, or another?" if others else ""
        if share < SURE:
            question = f"{1 - share:.0%} of {best.name} are unlike it: is it the right column?"
        if target == portal.CUID and len({*best.present}) < 0.9 * len(best.values):
            question = f"{best.name} repeats, or is empty in some rows: does it differ for each cardholder?"
            others += [
                one.spec for one in self._free if len({*one.values}) > 0.99 * len(one.values)
            ][:4]
        how = "name and values" if header else "values"
        return self._guess(target, best.spec, f"{how} fit ({share:.0%})", question, others, best)

    def _pan(self) -> Guess:
        """Return the card number: right check digits, few BINs, all different."""
        ranked = self._ranked(portal.PAN)
        if not ranked:
            return self._missing(portal.PAN)
        header, share, best = max(ranked, key=lambda one: (one[0], len({*one[2].present})))
        cards = {re.sub("[ -]", "", value) for value in best.present}
        test = [
            card
            for card in cards
            if card in expressions.PUBLISHED or card.startswith(expressions.GENERATED)
        ]
        self.test = len(test) > LIKELY * len(cards)
        bins, others = (
            len({card[: expressions.BIN] for card in cards}),
            [one[2] for one in ranked if one[2] != best],
        )
        doubtful = (
            others
            or share < SURE
            or (self._named and not header)
            or len(cards) < 0.9 * len(best.present)
        )
        question = f"Is {best.name or 'it'} the number of the card?" if doubtful else ""
        reason = (
            f"16 digits, check digits right in {share:.0%}, {bins} BIN, {len(cards):,} different"
        )
        return self._guess(
            portal.PAN, best.spec, reason, question, [one.spec for one in others], best, *others
        )

    def _pair(self, one: str, other: str, whole: str) -> Iterator[Guess]:
        """Yield two portal columns: from a column each, or from one that holds both, with a
        format.
        """
        apart, together = (self._ranked(one), self._ranked(other)), self._ranked(whole)
        if all(apart) and (self._named or not together):
            first = self._best(one, apart[0])
            yield from (first, self._best(other, self._ranked(other)))
            return
        if not together:
            yield from (self._missing(one), self._missing(other))
            return
        (header, share, best), values = together[0], list[str]()
        rivals = [two[2] for two in together[1:] if two[0] > header - 0.25]
        for column in (best, *rivals):
            steps, forms = (
                self._dates(column.present)
                if whole == EXPIRY
                else ("", _name_forms(column.present))
            )
            values += [f"{{ {column.source}{steps}, format = {toml(form)} }}" for form in forms]
        question = (
            ""
            if share > SURE
            else f"{1 - share:.0%} of {best.name} are unlike it: is it the right column?"
        )
        question = "How is it written, or is it another column?" if len(values) > 1 else question
        reason = "the one form that fits" if len(values) == 1 else "the likeliest of several forms"
        yield from (
            self._guess(key, values[0], reason, question, values[1:], best) for key in (one, other)
        )

    def _one(self, target: str) -> Iterator[Guess]:
        """Yield a portal column that is one source column, or can do without."""
        if ranked := self._ranked(target):
            best, guess = ranked[0][2], self._best(target, ranked)
            if target == portal.POSTAL_CODE:
                self._zip = best
                if any(value.isdigit() and len(value) < 5 for value in best.present):
                    guess = guess._replace(
                        value=f"{{ {best.source}, pad = 5 }}", reason="ZIPs lost their zeros"
                    )
            houses = self._ranked(HOUSE) if target == portal.ADDRESS1 and self._named else []
            if houses:
                self._free.remove(houses[0][2])
                value = f"{{ join = [{houses[0][2].spec}, {best.spec}] }}"
                both = sum(
                    bool(re.match(r"\d+\w?\s", street)) for street in best.present
                ) > 0.05 * len(best.present)
                asked = f"Has {best.name} the house number too?" if both else guess.question
                guess = Guess(
                    target,
                    value,
                    "house number and street stand apart",
                    asked,
                    (best.spec, *guess.others),
                )
            yield guess
        elif target == portal.COUNTRY:
            yield self._country()
        elif target == portal.IS_PRIMARY:
            unclear = [one for one in self._free if "primary" in words_of(one.name)]
            question = f"Does {unclear[0].name} say it? Then write a `lookup`" if unclear else ""
            yield Guess(
                target, '{ constant = "TRUE" }', "no column: a row has one address", question
            )
        elif target == portal.CVV and self._ranked(portal.CVV_HASH):
            return
        elif (
            target in REQUIRED
            or target in WITHOUT
            or (not self._named and target == portal.ADDRESS2)
        ):
            yield self._missing(target, WITHOUT.get(target, "Which column is it?"))

    def _country(self) -> Guess:
        """Return the country that the postal codes show: a constant where all are of one."""
        codes = self._zip.present if self._zip else []
        canadian = sum(code[:1].isalpha() for code in codes)
        if self._zip and 0 < canadian < len(codes):
            first = {
                **dict.fromkeys("0123456789", places.US),
                **dict.fromkeys("ABCEGHJKLMNPRSTVXY", places.CANADA),
            }
            table = ", ".join(f"{letter} = {toml(country)}" for letter, country in first.items())
            value = f"{{ {self._zip.source}, slice = [1, 1], lookup = {{ {table} }} }}"
            return Guess(
                portal.COUNTRY, value, "no column: by the first character of the postal code"
            )
        country = places.CANADA if canadian else places.US
        question = "" if codes else "Are all cardholders in one country?"
        reason = f"no column: all postal codes are of {country}"
        return Guess(portal.COUNTRY, f'{{ constant = "{country}" }}', reason, question)

    def _dates(self, values: Sequence[str]) -> tuple[str, list[str]]:
        """Return the steps before a date's format, and the formats that fit as many values as the
        best one.
        """
        steps, sizes = "", {len(value) for value in values if value.isdigit()}
        timed = {re.sub(r"[ T]\d\d:\d\d.*$", "", value) for value in values}
        if len({*map(len, timed)}) == 1 and timed.isdisjoint(values):
            steps = f", slice = [1, {len(timed.pop())}]"
        if len(sizes) == 2 and max(sizes) - min(sizes) == 1 and max(sizes) in (4, 6, 8):
            steps = f", pad = {max(sizes)}"
        texts = _cut(values, steps)
        shares = {form: _fitting(texts, form, self._today) for form in READINGS}
        best = max(shares.values())
        fitting = [form for form, share in shares.items() if share > max(LIKELY, 0.98 * best)]
        # the American order first
        return steps, sorted(fitting, key=lambda form: form.startswith("DD"))


def _cut(values: Sequence[str], steps: str) -> list[str]:
    """Return the values after a step of `_dates`."""
    size = int((re.findall("[0-9]+", steps) or ["99"])[-1])
    return [value.zfill(size) if "pad" in steps else value[:size] for value in values]


def _fitting(values: Sequence[str], form: str, today: date) -> float:
    """Return the share of the values that are, in this form, the date of a card: ten years old to
    twenty ahead.
    """
    right, year = 0, re.compile(date_shape(form, "Y", real=True))
    for value, times in Counter(values).items():
        if found := year.match(value):
            right += times * (today.year - 10 <= 2000 + int(found[1]) % 100 <= today.year + 20)
    return right / len(values)


def _name_forms(values: Sequence[str]) -> list[str]:
    """Return how whole names are written; several forms where that is in doubt."""
    for mark, form in ((",", "LAST, FIRST"), ("/", "LAST/FIRST")):
        if (share := sum(mark in value for value in values) / len(values)) > LIKELY:
            return [form] if share > SURE else [form, "FIRST LAST"]
    parts = [value.lower().split() for value in values if " " in value]
    long = [
        words
        for words in parts
        if sum(len(word) > 3 for word in words) > 2 or "," in "".join(words)
    ]
    first, last = (sum(words[at] in COMMON for words in parts) for at in (0, -1))
    forms = ["FIRST LAST", "LAST FIRST"] if first >= last else ["LAST FIRST", "FIRST LAST"]
    return (
        forms[:1]
        if max(first, last) > max(2, 4 * min(first, last)) and len(long) <= 0.02 * len(parts)
        else forms
    )
