"""The one table of rules: what must hold of every row that is sent (interface.md 2.6, 2.10, 8).

A rule is one entry: its code, the column it is reported on, an expression that is false where a row
breaks it, an example that breaks it, its severity, who acts, and what would be accepted. Everything
else is derived from the entries: the pandera schema (`flows.submissions.validate`), the verdicts,
hints and actions (`schemas.reasons`),
`deploy/REASONS.md`, and a row of the sample extract. Of the rules that a cell breaks, the first of the table is
reported. Rules see cells as the portal would get them: trimmed, in its spelling, null where there
is nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import get_args

import polars as pl

from schemas import cvv, expressions, places
from schemas.actions import FIX
from schemas.issuer import RuleSettings, Severity
from schemas.portal import COLUMNS, subject

(
    CUID, PAN, YEAR, MONTH, NAME_ON_CARD, CVV_HASH, CVV, CUSTOMER_KEY, NICKNAME, ADDRESS1, ADDRESS2, CITY,
    SUBNATIONAL, COUNTRY, POSTAL_CODE, EMAIL, PHONE, FIRST_NAME, LAST_NAME, IS_PRIMARY
) = COLUMNS  # fmt: skip
NAME = r"^[^0-9]*\p{L}[^0-9]*$"
LONGEST = 254  # characters, as many as an e-mail address may have
FARTHEST = 20 * 12  # months; no card is valid for longer, so the digits mean something else
SETTINGS = {
    name
    for name, one in RuleSettings.model_fields.items()
    if get_args(one.annotation) == get_args(Severity)
}

# or a function of business date and settings
Holds = pl.Expr | Callable[[date, RuleSettings], pl.Expr]


@dataclass(frozen=True, eq=False)  # told apart by identity: a dict of cells has no hash
class Rule:
    """One rule of the table."""

    code: str  # entity.property.kind
    column: str  # the portal column it is reported on
    holds: Holds  # false where a row breaks it; true or null, which is nothing to judge, where not
    example: Mapping[str, str | None]  # cells that break it, in a row that is good otherwise
    severity: str = "reject"  # reject, warn, or the setting of `[rules]` that decides
    action: str = FIX  # who acts
    hint: str = ""  # what would be accepted, where that is not what its column accepts
    # a wider rule, broken by every row that breaks this one, which names the mistake exactly
    narrows: str = ""
    # a cheaper question, asked first: the shape that a cell has which may break it
    screen: str = ""

    def __post_init__(self) -> None:
        """Refuse an entry that could not work, or that nobody could see at work."""
        if not self.example:
            raise ValueError(f"{self.code}: a rule needs an example that breaks it")
        if unknown := {self.column, *self.example} - COLUMNS.keys() | {self.severity} - {
            "reject",
            "warn",
            *SETTINGS,
        }:
            raise ValueError(
                f"{self.code}: no such column or severity: {', '.join(sorted(unknown))}"
            )

    def severity_by(self, settings: RuleSettings) -> Severity:
        """Return what happens to a row that breaks the rule."""
        severity: Severity = getattr(settings, self.severity, self.severity)  # type: ignore[arg-type]  # a literal else
        return severity

    def expression(self, as_of: date, settings: RuleSettings) -> pl.Expr:
        """Return the expression on a business date; a rule judges only what is there, so null
        holds.
        """
        holds = self.holds if isinstance(self.holds, pl.Expr) else self.holds(as_of, settings)
        return (holds | unlike(self.column, self.screen) if self.screen else holds).fill_null(True)


def unlike(column: str, *shapes: str) -> pl.Expr:
    """Return whether cells have none of these shapes."""
    text = "|".join(dict.fromkeys(shapes))
    return ~pl.col(column).str.contains(text).fill_null(False) if text else pl.lit(value=True)


def _matches(column: str, shape: str) -> pl.Expr:
    return pl.col(column).str.contains(shape)


def _expiry() -> pl.Expr:
    """Return YYMM, which sorts as text; null if either is unreadable."""
    text = pl.concat_str(YEAR, MONTH)
    return pl.when(text.str.contains("^[0-9]{2}(0[1-9]|1[0-2])$")).then(text)


def _no_placeholder(column: str) -> Holds:
    filler = expressions.FILLER_SHAPE
    return lambda _, settings: (
        ~pl.col(column).str.contains(expressions.one_of(settings.placeholders, filler))
    )


def _present(column: str) -> pl.Expr:
    return pl.col(column).is_not_null()


def _by_country(american: pl.Expr, canadian: pl.Expr) -> pl.Expr:
    """Return the expression of the row's country; null, which holds, where the country is
    unknown.
    """
    there = (
        pl.col(COUNTRY).is_in([one for one in places.COUNTRIES if one[0].upper() == first])
        for first in "UC"
    )
    return pl.when(next(there)).then(american).when(next(there)).then(canadian)


def _in_its_state() -> pl.Expr:
    american, canadian = (
        pl.col(POSTAL_CODE).str.slice(0, size) + pl.col(SUBNATIONAL) for size in (3, 1)
    )
    return _by_country(american, canadian).is_in(
        pl.Series(sorted(places.postal_places())).implode()
    )


def _outlives_its_link(as_of: date, settings: RuleSettings) -> pl.Expr:
    ends = expressions.yymm(as_of, settings.link_life_months)
    return (_expiry() < expressions.yymm(as_of)) | (_expiry() >= ends)


# The ways to get a CVV hash wrong that can be named.
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
# Their rules allow few shapes or words; every other column is a text, with the rules for texts.
CLOSED = (PAN, YEAR, MONTH, CVV_HASH, CVV, SUBNATIONAL, COUNTRY, POSTAL_CODE, IS_PRIMARY)
TEXT = tuple(column for column in COLUMNS if column not in CLOSED)
# Without one of these every row would be rejected (interface.md 2.6).
REQUIRED = (
    PAN, YEAR, MONTH, ADDRESS1, CITY, SUBNATIONAL, COUNTRY, POSTAL_CODE, FIRST_NAME, LAST_NAME, IS_PRIMARY
)  # fmt: skip


def _text_rules(column: str) -> Iterator[Rule]:
    """Yield what must hold of every text, whatever it is for."""
    entity = subject(column)
    long = {EMAIL: "a" * 250 + "@example.com", PHONE: "617" + " " * 255 + "5550123"}
    card = "4242424242424242@example.com" if column == EMAIL else "4242 4242 4242 4242"
    unmapped = pl.col(column) != expressions.UNREADABLE
    hint = "a text that [columns] can read: a name in its `format`, a text in its `lookup`"
    yield Rule(f"{entity}.unmapped", column, unmapped, {column: expressions.UNREADABLE}, hint=hint)
    yield Rule(
        f"{entity}.length",
        column,
        lambda _, settings: (
            pl.col(column).str.len_chars() <= settings.max_length.get(column, LONGEST)
        ),
        {column: long.get(column, "abc" * 99)},
        "too_long",
        hint=f"at most {LONGEST} characters, or those of [rules] max_length",
    )
    if column != CUID:
        screen = expressions.LONGEST_PHONE if column == PHONE else expressions.LONG_NUMBER
        holds = ~expressions.holds_card(pl.col(column), pl.col(PAN))
        hint = "no card number"
        yield Rule(
            f"{entity}.card_number",
            column,
            holds,
            {column: card},
            "card_in_text",
            hint=hint,
            screen=screen,
        )
    if column not in (CUSTOMER_KEY, EMAIL, PHONE):  # the last two have a form of their own
        characters = f"{expressions.INVISIBLE_SHAPE}|{expressions.GARBLED_SHAPE}"
        for kind, shape, example, hint in (
            (
                "invisible",
                expressions.INVISIBLE_SHAPE,
                "Ann\u200b\u202e Lee",
                "no characters that cannot be seen",
            ),
            (
                "garbled",
                expressions.GARBLED_SHAPE,
                "JosÃ© Lee",
                "text in the encoding that [source] names",
            ),
        ):
            holds = ~pl.col(column).str.contains(shape)
            yield Rule(
                f"{entity}.{kind}",
                column,
                holds,
                {column: example},
                kind,
                hint=hint,
                screen=characters,
            )


EXPIRATION_HINT = "a card valid on the business date and until its link expires"

RULES: tuple[Rule, ...] = (
    *(rule for column in TEXT for rule in _text_rules(column)),
    *(
        rule
        for one in REQUIRED
        for rule in (
            Rule(f"{subject(one)}.placeholder", one, _no_placeholder(one), {one: "N/A"}),
            Rule(f"{subject(one)}.missing", one, _present(one), {one: None}),
        )
    ),
    Rule("cardholder.cuid.placeholder", CUID, _no_placeholder(CUID), {CUID: "NULL"}),
    Rule(  # it would put a card number in the ledger
        "cardholder.cuid.card_number",
        CUID,
        ~expressions.holds_card(pl.col(CUID), pl.col(PAN)),
        {CUID: "4111111111111111"},
        screen=expressions.LONG_NUMBER,
    ),
    # sent as is
    Rule(
        "cardholder.cuid.format",
        CUID,
        ~pl.col(CUID).str.contains(r"\p{Cc}"),
        {CUID: "C-1\u0085C-2"},
    ),
    Rule("card.pan.format", PAN, _matches(PAN, expressions.PAN_SHAPE), {PAN: "424242424242424"}),
    Rule(
        "card.pan.luhn", PAN, expressions.luhn_holds(pl.col(PAN)), {PAN: "4242424242424241"}, "luhn"
    ),
    Rule("card.expiration_year.format", YEAR, _matches(YEAR, expressions.YEAR_SHAPE), {YEAR: "9"}),
    Rule(  # valid to the end of its month
        "card.expiration.expired",
        YEAR,
        lambda as_of, _: _expiry() >= expressions.yymm(as_of),
        {YEAR: "20", MONTH: "01"},
        hint=EXPIRATION_HINT,
    ),
    Rule(
        "card.expiration.far",
        YEAR,
        lambda as_of, _: _expiry() <= expressions.yymm(as_of, FARTHEST),
        {YEAR: "98"},
        hint=f"a date within {FARTHEST // 12} years",
    ),
    Rule(  # the example, at the end of November 2026
        "card.expiration.soon",
        YEAR,
        _outlives_its_link,
        {YEAR: "26", MONTH: "12"},
        "expires_soon",
        hint=EXPIRATION_HINT,
    ),
    Rule(
        "card.expiration_month.format",
        MONTH,
        _matches(MONTH, expressions.MONTH_SHAPE),
        {MONTH: "13"},
    ),
    Rule(
        "card.name_on_card.missing",
        NAME_ON_CARD,
        _present(NAME_ON_CARD),
        {NAME_ON_CARD: None, FIRST_NAME: None},
        "name_on_card",
    ),
    Rule(
        "card.name_on_card.format",
        NAME_ON_CARD,
        _matches(NAME_ON_CARD, NAME),
        {NAME_ON_CARD: "MARY 2"},
        "name_on_card",
    ),
    *(
        Rule(
            f"card.cvv_hash.{kind}",
            CVV_HASH,
            cvv.mistake(pl.col(CVV_HASH)).ne_missing(pl.lit(kind)),
            {CVV: None, CVV_HASH: cvv.mistaken(kind)},
            hint=hint,
            narrows="card.cvv_hash.unknown",
        )
        for kind, hint in MISTAKES.items()
    ),
    Rule(
        "card.cvv_hash.format",
        CVV_HASH,
        _matches(CVV_HASH, expressions.HASH_SHAPE),
        {CVV: None, CVV_HASH: "abc"},
        narrows="card.cvv_hash.unknown",
    ),
    Rule(
        "card.cvv_hash.unknown",
        CVV_HASH,
        pl.col(CVV_HASH).is_in(cvv.hashes().implode()),
        {CVV: None, CVV_HASH: cvv.mistaken("unknown")},
        hint="the hash of a CVV of three or four digits, without salt",
    ),
    Rule(
        "card.cvv_hash.mismatch",
        CVV_HASH,
        cvv.hash_of(pl.when(_present(CVV_HASH)).then(CVV)) == pl.col(CVV_HASH),
        {CVV: "123", CVV_HASH: cvv.hashed("007")},
        hint="the hash of the CVV beside it, or only one of the two",
    ),
    Rule("card.cvv.missing", CVV, _present(CVV) | _present(CVV_HASH), {CVV: None}, "cvv_missing"),
    Rule("card.cvv.format", CVV, _matches(CVV, expressions.CVV_SHAPE), {CVV: "12"}),
    Rule(
        "address.subnational.unknown",
        SUBNATIONAL,
        _by_country(
            pl.col(SUBNATIONAL).is_in(list(places.STATES)),
            pl.col(SUBNATIONAL).is_in(list(places.PROVINCES)),
        ),
        {SUBNATIONAL: "ON", COUNTRY: "US"},
    ),
    Rule(
        "address.country.unknown",
        COUNTRY,
        pl.col(COUNTRY).is_in(places.COUNTRIES),
        {COUNTRY: "Atlantis"},
    ),
    Rule(
        "address.postal_code.format",
        POSTAL_CODE,
        _by_country(
            _matches(POSTAL_CODE, expressions.ZIP_SHAPE),
            _matches(POSTAL_CODE, expressions.CANADIAN_SHAPE),
        ),
        {POSTAL_CODE: "021", COUNTRY: "US", SUBNATIONAL: "MA"},
    ),
    Rule(
        "address.postal_code.mismatch",
        POSTAL_CODE,
        _in_its_state(),
        {POSTAL_CODE: "10001", COUNTRY: "US", SUBNATIONAL: "MA"},
        "address_mismatch",
    ),
    Rule(
        "address.email.format",
        EMAIL,
        _matches(EMAIL, expressions.EMAIL_SHAPE),
        {EMAIL: "ada@example"},
        "email",
    ),
    Rule(
        "address.phone_number.format",
        PHONE,
        _matches(PHONE, expressions.PHONE_SHAPE),
        {PHONE: "call me"},
        "phone",
    ),
    Rule(
        "address.is_primary.format",
        IS_PRIMARY,
        pl.col(IS_PRIMARY).is_in(["TRUE", "FALSE"]),
        {IS_PRIMARY: "maybe"},
    ),
)
