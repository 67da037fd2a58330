"""The one table of rules: what must hold of every row that is sent (interface.md 2.6, 2.10, 8).

A rule is one entry: its code, the column it is reported on, an expression that is false where a row
breaks it, an example that breaks it, its severity, who acts, and what would be accepted. Everything
else is derived from the entries: the pandera schema (`schemas.input_file`), the verdicts, hints and
actions (`schemas.reasons`), `deploy/REASONS.md`, and a row of the sample extract. Of the rules that
a cell breaks, the first of the table is reported. Rules see cells as the portal would get them:
trimmed, in its spelling, null where there is nothing.

E-mail, phone and name on card warn by default, since they play no part at the link. Placeholders
are exact spellings, so that the family names "Null" and "Test" pass.
"""

from collections.abc import Iterator

import polars as pl

from schemas import cvv, places
from schemas.conditions import (
    FARTHEST,
    LONGEST,
    hash_of_a_cvv,
    hash_of_its_cvv,
    hash_without,
    no_card_number,
    no_placeholder,
    not_expired,
    not_far,
    outlives_its_link,
    postal_code_in_its_state,
    postal_code_of_its_country,
    short_enough,
    subnational_of_its_country,
    tells_nothing,
)
from schemas.expressions import (
    CVV_SHAPE,
    DIRECTION_SHAPE,
    EMAIL_SHAPE,
    GARBLED_SHAPE,
    GARBLED_TWICE_SHAPE,
    HASH_SHAPE,
    INVISIBLE_SHAPE,
    LONG_NUMBER,
    LONGEST_PHONE,
    MASKED_SHAPE,
    MONTH_SHAPE,
    PAN_SHAPE,
    PHONE_SHAPE,
    REPLACED_SHAPE,
    UNREADABLE,
    YEAR_SHAPE,
    is_present,
    lacks,
    luhn_holds,
    matches,
)
from schemas.portal import (
    COUNTRY,
    CUID,
    CVV,
    CVV_HASH,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    MONTH,
    NAME_ON_CARD,
    PAN,
    PHONE,
    POSTAL_CODE,
    PROSE,
    REQUIRED,
    SUBNATIONAL,
    TEXT,
    YEAR,
    subject,
)
from schemas.rule import Rule

# Goes up when a rule is added, changed or removed, and when anything else would make other chunks
# or ledger parts of the same extract and settings: a run that was planned before and never
# committed is then planned anew, not finished by other rules.
RECIPE = 12

NAME_SHAPE = r"^[^0-9]*\p{L}[^0-9]*$"
UNKNOWN_HASH = "card.cvv_hash.unknown"
# one screen for all rules of characters
_CHARACTERS = f"{INVISIBLE_SHAPE}|{REPLACED_SHAPE}|{GARBLED_SHAPE}|{GARBLED_TWICE_SHAPE}"
VALID_HINT = "a card valid on the business date and until its link expires"

# The ways to get a CVV hash wrong that can be named, and what would be right.
MISTAKES = {
    "newline": "the hash of the digits alone: a line break was hashed with them",
    "utf16": "the hash of the digits as ASCII: they were hashed as UTF-16",
    "lost_zero": "the hash of all three digits: leading zeros were lost before hashing",
    "empty": "an empty field where there is no CVV: the empty text was hashed",
    "hex": "the digest in Base64: it was written in hexadecimal",
    "base64_of_hex": "the Base64 of the digest's 32 bytes, not of its hexadecimal text",
    "base64url": "the plain Base64 alphabet with + and /, not the one for URLs",
    "unpadded": "Base64 with the = at its end",
}

# Of text in a wrong encoding: the shape that shows it, an example, and what would be right.
_DAMAGES = {
    "replaced": (
        REPLACED_SHAPE,
        "Jos\ufffd Lee",
        "the letters that U+FFFD stands for: they were lost before the file came to us, and no "
        "`encoding` in [source] brings them back",
    ),
    "garbled_twice": (
        GARBLED_TWICE_SHAPE,
        "GarcÃƒÂ\u00ada Lee",
        "text in one encoding from end to end: this is UTF-8 that was read as cp1252 twice",
    ),
    "garbled": (
        GARBLED_SHAPE,
        "JosÃ© Lee",
        "text in the encoding that [source] names: this is UTF-8 that was read as cp1252 (with ├ "
        "as cp850, with √ as Mac Roman)",
    ),
}


def _text_rules() -> Iterator[Rule]:
    """Yield what must hold of every text, whatever it is for."""
    too_long = {EMAIL: "a" * 250 + "@example.com", PHONE: "617" + " " * 255 + "5550123"}
    with_card = {EMAIL: "4242424242424242@example.com"}
    number_screen = {PHONE: LONGEST_PHONE}
    for column in TEXT:
        entity = subject(column)
        yield Rule(
            f"{entity}.unmapped",
            column,
            pl.col(column) != UNREADABLE,
            example={column: UNREADABLE},
            hint="a text that [columns] can read: a name in its `format`, a text in its `lookup`",
        )
        yield Rule(
            f"{entity}.length",
            column,
            short_enough(column),
            example={column: too_long.get(column, "abc" * 99)},
            severity="too_long",
            hint=f"at most {LONGEST} characters, or those of [rules] max_length",
        )
        if column != CUID:  # it has a rule of its own, which no setting turns off
            yield Rule(
                f"{entity}.card_number",
                column,
                no_card_number(column),
                example={column: with_card.get(column, "4242 4242 4242 4242")},
                severity="card_in_text",
                hint="no card number",
                screen=number_screen.get(column, LONG_NUMBER),
            )
        if column not in (CUID, *PROSE):
            # the key is reserved, so nobody reads it; the others have a rule for their whole shape
            continue
        yield from _encoding_rules(column)
        yield Rule(
            f"{entity}.invisible",
            column,
            lacks(column, INVISIBLE_SHAPE),
            example={column: "Ann\u200b Lee"},
            severity="invisible",
            hint="no characters that cannot be seen",
            screen=_CHARACTERS,
        )


def _encoding_rules(column: str) -> Iterator[Rule]:
    """Yield the rules for text that was read in a wrong encoding before it came to us.

    The first that is broken is reported, so each before those that it also breaks: a soft hyphen is
    half of an í that was read so.
    """
    for kind, (shape, example, hint) in _DAMAGES.items():
        yield Rule(
            f"{subject(column)}.{kind}",
            column,
            lacks(column, shape),
            example={column: example},
            severity="garbled",
            hint=hint,
            screen=_CHARACTERS,
        )


def _required_rules() -> Iterator[Rule]:
    """Yield what must hold of every required column: something is there, and stands for itself."""
    for column in REQUIRED:
        entity = subject(column)
        yield Rule(f"{entity}.placeholder", column, no_placeholder(column), example={column: "N/A"})
        yield Rule(f"{entity}.missing", column, is_present(column), example={column: None})


def _hash_rules() -> Iterator[Rule]:
    """Yield a rule for each way to get a CVV hash wrong that can be named."""
    for mistake, hint in MISTAKES.items():
        yield Rule(
            f"card.cvv_hash.{mistake}",
            CVV_HASH,
            hash_without(mistake),
            example={CVV: None, CVV_HASH: cvv.mistaken(mistake)},
            hint=hint,
            narrows=UNKNOWN_HASH,
        )


RULES: tuple[Rule, ...] = (
    # always rejects, and first of all: the ledger keeps a cuid that other rules reject, and no card
    # number may follow from it
    Rule(
        "cardholder.cuid.card_number",
        CUID,
        tells_nothing(CUID),
        example={CUID: "4111111111111111"},
        hint="a reference that is not made from the card: no part of its number, no digest of it",
    ),
    # links.csv has cuids as they are; before the rule for all invisible characters, which is wider
    Rule(
        "cardholder.cuid.direction",
        CUID,
        lacks(CUID, DIRECTION_SHAPE),
        example={CUID: "C-1\u202eC-2"},
        severity="cuid_direction",
        hint="no characters that turn a text around",
        screen=_CHARACTERS,
    ),
    *_text_rules(),
    *_required_rules(),
    Rule("cardholder.cuid.placeholder", CUID, no_placeholder(CUID), example={CUID: "NULL"}),
    # only the edges of a cuid are trimmed, so a control character inside it is refused here
    Rule("cardholder.cuid.format", CUID, lacks(CUID, r"\p{Cc}"), example={CUID: "C-1\u0085C-2"}),
    Rule(
        "cardholder.cuid.formula",
        CUID,
        lacks(CUID, "^[=+@-]"),
        example={CUID: "=1+1"},
        severity="cuid_formula",
        hint="a reference that begins with a letter or a digit: spreadsheets run = + - @",
    ),
    Rule(
        "card.pan.masked",
        PAN,
        lacks(PAN, MASKED_SHAPE),
        example={PAN: "424242XXXXXX4242"},
        hint="the whole number: this one is masked, so that only its ends can be seen",
        narrows="card.pan.format",
    ),
    Rule("card.pan.format", PAN, matches(PAN, PAN_SHAPE), example={PAN: "424242424242424"}),
    Rule(
        "card.pan.luhn",
        PAN,
        luhn_holds(pl.col(PAN)),
        example={PAN: "4242424242424241"},
        severity="luhn",
    ),
    Rule("card.expiration_year.format", YEAR, matches(YEAR, YEAR_SHAPE), example={YEAR: "9"}),
    Rule(
        "card.expiration.expired",
        YEAR,
        not_expired,
        example={YEAR: "20", MONTH: "01"},
        hint=VALID_HINT,
    ),
    Rule(
        "card.expiration.far",
        YEAR,
        not_far,
        example={YEAR: "98"},
        hint=f"a date within {FARTHEST // 12} years",
    ),
    Rule(
        "card.expiration.soon",
        YEAR,
        outlives_its_link,
        example={YEAR: "26", MONTH: "12"},  # at the end of November 2026
        severity="expires_soon",
        hint=VALID_HINT,
    ),
    Rule("card.expiration_month.format", MONTH, matches(MONTH, MONTH_SHAPE), example={MONTH: "13"}),
    Rule(
        "card.name_on_card.missing",
        NAME_ON_CARD,
        is_present(NAME_ON_CARD),
        example={NAME_ON_CARD: None, FIRST_NAME: None},
        severity="name_on_card",
    ),
    Rule(
        "card.name_on_card.format",
        NAME_ON_CARD,
        matches(NAME_ON_CARD, NAME_SHAPE),
        example={NAME_ON_CARD: "MARY 2"},
        severity="name_on_card",
    ),
    *_hash_rules(),
    Rule(
        "card.cvv_hash.format",
        CVV_HASH,
        matches(CVV_HASH, HASH_SHAPE),
        example={CVV: None, CVV_HASH: "abc"},
        narrows=UNKNOWN_HASH,
    ),
    Rule(
        UNKNOWN_HASH,
        CVV_HASH,
        hash_of_a_cvv(),
        example={CVV: None, CVV_HASH: cvv.mistaken("unknown")},
        hint="the hash of a CVV of three or four digits, without salt",
    ),
    Rule(
        "card.cvv_hash.mismatch",
        CVV_HASH,
        hash_of_its_cvv(),
        example={CVV: "123", CVV_HASH: cvv.hash_text("007")},
        hint="the hash of the CVV beside it, or only one of the two",
    ),
    Rule(
        "card.cvv.missing",
        CVV,
        is_present(CVV) | is_present(CVV_HASH),
        example={CVV: None},
        severity="cvv_missing",
        is_answer=True,
    ),
    Rule("card.cvv.format", CVV, matches(CVV, CVV_SHAPE), example={CVV: "12"}),
    Rule(
        "address.subnational.unknown",
        SUBNATIONAL,
        subnational_of_its_country(),
        example={SUBNATIONAL: "ON", COUNTRY: "US"},
    ),
    Rule(
        "address.country.unknown",
        COUNTRY,
        pl.col(COUNTRY).is_in(places.COUNTRIES),
        example={COUNTRY: "Atlantis"},
    ),
    Rule(
        "address.postal_code.format",
        POSTAL_CODE,
        postal_code_of_its_country(),
        example={POSTAL_CODE: "021", COUNTRY: "US", SUBNATIONAL: "MA"},
    ),
    Rule(
        "address.postal_code.mismatch",
        POSTAL_CODE,
        postal_code_in_its_state(),
        example={POSTAL_CODE: "10001", COUNTRY: "US", SUBNATIONAL: "MA"},
        severity="address_mismatch",
        is_answer=True,
    ),
    Rule(
        "address.email.format",
        EMAIL,
        matches(EMAIL, EMAIL_SHAPE),
        example={EMAIL: "ada@example"},
        severity="email",
    ),
    Rule(
        "address.phone_number.format",
        PHONE,
        matches(PHONE, PHONE_SHAPE),
        example={PHONE: "call me"},
        severity="phone",
    ),
    Rule(
        "address.is_primary.format",
        IS_PRIMARY,
        pl.col(IS_PRIMARY).is_in(["TRUE", "FALSE"]),
        example={IS_PRIMARY: "maybe"},
    ),
)
