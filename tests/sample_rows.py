"""The rows of `sample_data`: each with what it is for, and what must become of it."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import NamedTuple

from flows.extensions.simulator.people import PLACES
from flows.extensions.simulator.validation import REQUIRED
from schemas import ledger, portal, rules
from schemas.expressions import PUBLISHED
from schemas.issuer import RuleSettings
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    CVV_HASH,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    NICKNAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)

# a placeholder elsewhere is like one of the card number
FREE_TEXT = (CUID, ADDRESS1, CITY, FIRST_NAME, LAST_NAME)
BOSTON = {CITY: "Boston", SUBNATIONAL: "MA", POSTAL_CODE: "02108", COUNTRY: "US"}
QUEBEC = {CITY: "Québec", SUBNATIONAL: "QC", POSTAL_CODE: "G1R 4S9", COUNTRY: "CA"}
SAME_AS = "same as row"  # in the fields of a case that repeats another
NOTHING: Mapping[str, str] = MappingProxyType({})


class Case(NamedTuple):
    """One row: what it is for, how it differs from an ordinary one, and what must become of it."""

    why: str
    fields: Mapping[str, str] = NOTHING
    reasons: tuple[str, ...] = ()  # "column|code"
    fate: str = ledger.SUBMITTED
    sent: Mapping[str, str] = NOTHING  # what the portal gets where normalising changes a field
    damage: str = ""  # what happens to the written line


def hashed(cvv: str) -> str:
    return b64encode(sha256(cvv.encode()).digest()).decode()


def card(number: int) -> str:
    """Return a Luhn-valid card number of the test range that is nobody's."""
    body = f"400000{number * 7_654_321 % 10**9:09d}"
    doubled = [int(digit) * (2 - at % 2) for at, digit in enumerate(body)]
    return body + str(-sum(two // 10 + two % 10 for two in doubled) % 10)


def ordinary() -> Iterator[Case]:
    for city, state, postal, area in PLACES[::2]:
        country = "CA" if " " in postal else "US"
        here = {
            CITY: city,
            SUBNATIONAL: state,
            POSTAL_CODE: postal,
            COUNTRY: country,
            PHONE: f"{area}-555-0123",
        }
        yield Case(f"an ordinary row: {city}, {state}", here)


def awkward_names() -> Iterator[Case]:
    names = (
        ("Seán", "O'Brien-Núñez", "apostrophe, hyphen, tilde"),
        ("Thị Hồng", "Nguyễn", "two marks on one letter"),
        ("Łukasz", "Żółć", "letters outside Latin-1"),
        ("小龙", "李", "Chinese characters"),
        ("Ana María", "de la Cruz y Borbón", "several words"),
        ("Pieter", "van der Berg", "lower-case particles"),
        ("J.", "O", "one letter each"),
        ("Robert", "Null", "a family name that looks like nothing"),
        ("Ada", "Test", "a family name that looks like a test"),
        ("True", "Noone", "a first name that looks like a boolean"),
        ("Keihanaikukauakahihuliheekahaunaele", "Kaikioewa-Kalanianaole", "very long"),
        ("Martin Luther", "King, Jr.", "a comma inside quotes"),
        ('Anne "Annie"', "Smith", "quotes inside quotes"),
        ("Saint-Élie", "Côté d'Arc", "both accents and apostrophe"),
    )
    for first, last, why in names:
        yield Case(f"name: {why}", {FIRST_NAME: first, LAST_NAME: last})


def spellings() -> Iterator[Case]:
    yield Case("ZIP with a leading zero", BOSTON)
    yield Case(
        "ZIP+4 becomes the ZIP a cardholder knows",
        BOSTON | {POSTAL_CODE: "02108-1234"},
        sent={POSTAL_CODE: "02108"},
    )
    yield Case(
        "state by its name", BOSTON | {SUBNATIONAL: "Massachusetts"}, sent={SUBNATIONAL: "MA"}
    )
    yield Case("country in full", BOSTON | {COUNTRY: "United States"}, sent={COUNTRY: "US"})
    yield Case("country with dots", BOSTON | {COUNTRY: "U.S.A."}, sent={COUNTRY: "US"})
    yield Case(
        "Puerto Rico", {CITY: "San Juan", SUBNATIONAL: "PR", POSTAL_CODE: "00907", COUNTRY: "US"}
    )
    yield Case(
        "a soldier abroad", {CITY: "APO", SUBNATIONAL: "AE", POSTAL_CODE: "09012", COUNTRY: "US"}
    )
    yield Case(
        "postal code without blank", QUEBEC | {POSTAL_CODE: "G1R4S9"}, sent={POSTAL_CODE: "G1R 4S9"}
    )
    yield Case(
        "postal code in lower case",
        QUEBEC | {POSTAL_CODE: "g1r 4s9"},
        sent={POSTAL_CODE: "G1R 4S9"},
    )
    yield Case(
        "province by its name, accent included",
        QUEBEC | {SUBNATIONAL: "Québec"},
        sent={SUBNATIONAL: "QC"},
    )
    yield Case("Canada spelled out", QUEBEC | {COUNTRY: "CANADA"}, sent={COUNTRY: "CA"})
    yield Case("card number in groups", {PAN: _grouped(card(402), " ")}, sent={PAN: card(402)})
    yield Case("card number with dashes", {PAN: _grouped(card(403), "-")}, sent={PAN: card(403)})
    yield Case("month of one digit", {MONTH: "7"}, sent={MONTH: "07"})
    yield Case("year of four digits", {YEAR: "2029"}, sent={YEAR: "29"})
    yield Case("yes for TRUE", {IS_PRIMARY: "yes"}, sent={IS_PRIMARY: "TRUE"})
    yield Case("0 for FALSE", {IS_PRIMARY: "0"}, sent={IS_PRIMARY: "FALSE"})
    yield Case(
        "blanks around, a no-break space among them",
        {CITY: " \u00a0Boston ", SUBNATIONAL: "MA", POSTAL_CODE: "02108", COUNTRY: "US"},
        sent={CITY: "Boston"},
    )
    yield Case(
        "an accent written as two characters", {FIRST_NAME: "Jose\u0301"}, sent={FIRST_NAME: "José"}
    )
    yield Case(
        "a line break inside a field",
        {ADDRESS2: "Building 4\nFloor 2"},
        sent={ADDRESS2: "Building 4 Floor 2"},
    )
    yield Case(
        "text a spreadsheet takes for a formula goes out as it is",
        {NICKNAME: "=1+1", PHONE: "+1 617 555 0123"},
    )
    yield Case("CVV with leading zeros", {CVV: "007"})
    yield Case("CVV of four digits", {CVV: "0123"})
    yield Case("a hash instead of the CVV", {CVV: "", CVV_HASH: hashed("042")})
    yield Case("CVV and its own hash", {CVV: "815", CVV_HASH: hashed("815")})
    yield Case("no cuid: one is made that is the same on every rerun", {CUID: ""})


def warned() -> Iterator[Case]:
    yield Case("no CVV and no hash: the link may not open", {CVV: ""}, (f"{CVV}|card.cvv.missing",))
    yield Case(
        "the card dies before its link",
        {YEAR: "26", MONTH: "12"},
        (f"{YEAR}|card.expiration.soon",),
    )
    yield Case(
        "not an e-mail address", {EMAIL: "nobody at example"}, (f"{EMAIL}|address.email.format",)
    )
    yield Case(
        "not a telephone number", {PHONE: "ask her"}, (f"{PHONE}|address.phone_number.format",)
    )
    yield Case(
        "digits in the name on the card",
        {NAME_ON_CARD: "MARY 2"},
        (f"{NAME_ON_CARD}|card.name_on_card.format",),
    )
    yield Case("another card of somebody above: goes into the next chunk", {CUID: "SB-0001"})
    yield Case(
        "the card of somebody above under another cuid",
        {PAN: card(10)},
        (f"{PAN}|card.pan.other_cuid",),
    )


def refused() -> Iterator[Case]:
    required = [f"service_card.{field}" for field in REQUIRED]
    for column in required:
        yield _refused("is missing", {column: ""}, f"{_stem(column)}.missing")
    for column in FREE_TEXT:
        yield _refused("holds a placeholder", {column: "N/A"}, f"{_stem(column)}.placeholder")
    yield _refused(
        "is all zeros, which passes its check digit", {PAN: "0" * 16}, "card.pan.placeholder"
    )
    yield _refused(
        "is the card number", {CUID: card(400), PAN: card(400)}, "cardholder.cuid.card_number"
    )
    yield _refused(
        "could be a card number", {CUID: "4111111111111111"}, "cardholder.cuid.card_number"
    )
    yield _refused("holds a tab", {CUID: "SB\t1"}, "cardholder.cuid.format")
    yield _refused("has 15 digits", {PAN: card(401)[:15]}, "card.pan.format")
    yield _refused("does not pass its check digit", {PAN: "4242424242424241"}, "card.pan.luhn")
    yield _refused("is no year", {YEAR: "2"}, "card.expiration_year.format")
    yield _refused("is no month", {MONTH: "13"}, "card.expiration_month.format")
    yield _refused("is past", {YEAR: "26", MONTH: "10"}, "card.expiration.expired")
    yield _refused("is further off than any card's", {YEAR: "62"}, "card.expiration.far")
    yield _refused("has five digits", {CVV: "12345"}, "card.cvv.format")
    for why, wrong, kind in wrong_hashes():
        yield _refused(
            why,
            {CVV_HASH: wrong, CVV: "123" if kind == "mismatch" else ""},
            f"card.cvv_hash.{kind}",
        )
    yield from refused_addresses()


def refused_addresses() -> Iterator[Case]:
    abroad = (f"{COUNTRY}|address.country.not_served",)
    why = "country is neither the US nor Canada"
    yield Case(why, {COUNTRY: "Mexico"}, abroad, ledger.INELIGIBLE)
    nowhere = _refused("is no state", BOSTON | {SUBNATIONAL: "ZZ"}, "address.subnational.unknown")
    yield nowhere._replace(
        reasons=(*nowhere.reasons, f"{POSTAL_CODE}|address.postal_code.mismatch")
    )
    yield _refused("is no ZIP", BOSTON | {POSTAL_CODE: "2108X"}, "address.postal_code.format")
    yield _refused(
        "is no Canadian code", QUEBEC | {POSTAL_CODE: "GIR 4S9"}, "address.postal_code.format"
    )
    yield _refused(
        "is in another state", BOSTON | {POSTAL_CODE: "90012"}, "address.postal_code.mismatch"
    )
    yield _refused(
        "is in another province",
        QUEBEC | {POSTAL_CODE: "M5V 2T6"},
        "address.postal_code.mismatch",
    )
    yield _refused("is neither yes nor no", {IS_PRIMARY: "perhaps"}, "address.is_primary.format")


def wrong_hashes() -> Iterator[tuple[str, str, str]]:
    """Yield the usual mistakes of an issuer that hashes by itself: what, the text, and the kind of
    its reason.
    """
    digest = sha256(b"063").digest()
    yield "is no base64 of 32 bytes", "not a hash", "format"
    yield "is the hash of no CVV", hashed("12345"), "unknown"
    yield "is the hash of another CVV than the row's", hashed("321"), "mismatch"
    yield "hashed the newline too", hashed("063\n"), "newline"
    yield "is written in hexadecimal", digest.hex(), "hex"
    yield (
        "is base64 of the hexadecimal text",
        b64encode(digest.hex().encode()).decode(),
        "base64_of_hex",
    )
    yield (
        "is the hash of UTF-16 text",
        b64encode(sha256("063".encode("utf-16-le")).digest()).decode(),
        "utf16",
    )
    yield "lost its padding", hashed("063").rstrip("="), "unpadded"
    yield "is base64 for URLs", next(_url_safe()), "base64url"
    yield "is the hash of nothing", hashed(""), "empty"
    yield "hashed a CVV that lost its zero", hashed("63"), "lost_zero"


def broken_lines() -> Iterator[Case]:
    for damage, why, code in (
        ("short", "a field is missing", "line.fields.too_few"),
        ("long", "a comma without quotes around it", "line.fields.too_many"),
        ("bare", "a quote in the middle of a field", "line.quote.bare"),
        ("open", "a quote that is never closed", "line.quote.unterminated"),
        ("control", "a control character that ends files", "line.character.control"),
        ("latin", "a letter in another encoding", "line.encoding.invalid"),
        ("commas", "nothing but commas", "line.fields.empty"),
    ):
        yield Case(f"line: {why}", {}, (f"|{code}",), ledger.REJECTED, damage=damage)


def examples(covered: frozenset[str]) -> Iterator[Case]:
    """Yield the example of every rule that has no row of its own, so that a rule is one entry of
    one table.
    """
    for rule in rules.RULES:
        severity = rule.severity_by(RuleSettings())
        if rule.code not in covered | elsewhere() and severity != "off":
            fate = ledger.REJECTED if severity == "reject" else ledger.SUBMITTED
            fields = {name: cell or "" for name, cell in rule.example.items()}
            yield Case(
                f"the example of `{rule.code}`", fields, (f"{rule.column}|{rule.code}",), fate
            )


def elsewhere() -> frozenset[str]:
    """Return the codes that the sample shows on other columns only, or that its settings do not let
    happen.
    """
    placeholders = {
        f"{_stem(column)}.placeholder"
        for column in portal.columns()
        if column not in (*FREE_TEXT, PAN)
    }
    kinds = (
        "unmapped",
        "length",
        "card_number",
        "invisible",
        "garbled",
        "garbled_twice",
        "replaced",
    )
    texts = {
        f"{_stem(column)}.{kind}"
        for column in portal.TEXT
        if column not in (CUID, ADDRESS2)
        for kind in kinds
    }
    cuid = {f"cardholder.cuid.{kind}" for kind in kinds if kind != "card_number"}
    # filled from first and last name
    return frozenset(placeholders | texts | cuid | {"card.name_on_card.missing"})


def own_cases() -> list[Case]:
    """Return the rows that are described one by one, in order; the refused stand between good
    ones.
    """
    good = [*ordinary(), *awkward_names(), *spellings(), *warned()]
    pairs = zip_longest(good, [*refused(), *broken_lines()])
    mixed = [case for case in chain.from_iterable(pairs) if case is not None]
    return [*(Case("published test card", {PAN: pan}) for pan in PUBLISHED), *mixed]


def cases() -> list[Case]:
    """Return every row of the sample, in order."""
    own = own_cases()
    covered = frozenset(reason.partition("|")[2] for case in own for reason in case.reasons)
    return [*own, *examples(covered), *repeats()]


def repeats() -> Iterator[Case]:
    yield Case("the same row again", {SAME_AS: "1"}, ("|row.content.repeated",), ledger.DUPLICATE)
    yield Case(
        "the same cuid and card again, at another address",
        {CUID: "SB-0008", PAN: card(8)},
        (f"{PAN}|card.pan.repeated",),
        ledger.DUPLICATE,
    )


def _grouped(pan: str, marker: str) -> str:
    return marker.join(pan[at : at + 4] for at in range(0, 16, 4))


def _stem(column: str) -> str:
    """Return entity and property of a column: `service_card.pan` is the card's pan."""
    short = column.removeprefix("service_card.")
    return short if "." in short else f"card.{short}"


def _refused(why: str, fields: Mapping[str, str], code: str) -> Case:
    name = code.split(".")[1]
    # what is past is said of the year
    ends = ".expiration_year" if name == "expiration" else f".{name}"
    column = next(column for column in portal.columns() if column.endswith(ends))
    return Case(f"{name} {why}", fields, (f"{column}|{code}",), ledger.REJECTED)


def _url_safe() -> Iterator[str]:
    """Yield hashes of CVVs whose base64 for URLs differs from the plain one."""
    for number in range(1000):
        digest = sha256(f"{number:03d}".encode()).digest()
        if (text := urlsafe_b64encode(digest)) != b64encode(digest):
            yield text.decode()
