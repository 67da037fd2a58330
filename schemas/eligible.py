"""Which cards are eligible for a link (`[eligible]`), apart from whether their rows are right.

The partner takes numbers of 16 digits, and serves the US and Canada (interface.md 2.6). Whatever
else an issuer wants to leave aside it says here. A row that is not eligible is not wrong: nobody
has to correct it.
"""

from typing import Annotated, Final, Literal

import polars as pl
from pydantic import Field, StringConstraints, model_validator

from schemas.foreign_countries import foreign_spellings
from schemas.patterns import Pattern
from schemas.settings import Settings, setting
from schemas.status import Values

Network = Literal["visa", "mastercard", "discover", "jcb", "unionpay", "diners", "maestro"]
NETWORKS: Final[dict[Network, str]] = {
    "visa": "^4",
    "mastercard": "^(?:5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720)",
    "discover": "^(?:6011|64[4-9]|65)",
    "jcb": "^35(?:2[89]|[3-8])",
    "unionpay": "^62",
    "diners": "^3(?:0[0-5]|[689])",
    "maestro": "^(?:50|5[6-9]|6[0137])",
}
# Numbers of cards that have other than 16 digits: American Express, Diners Club, Visa, Maestro and
# UnionPay. Any other number of another length is a mistake.
OTHER_LENGTHS: Final = (
    "^(?:3[47][0-9]{13}|3(?:0[0-5]|[689])[0-9]{11}|4(?:[0-9]{12}|[0-9]{18})"
    "|(?:5[06-9]|6)[0-9]{10,13}|(?:5[06-9]|6)[0-9]{16,18})$"
)


class Condition(Settings):
    """What the text of a source column must be for its row to be eligible: all that is given."""

    values: Values | None = setting(None, "one of these texts")
    none_of: Values | None = setting(None, "none of these texts")
    prefix: Values | None = setting(None, "it begins with one of these")
    length: int | tuple[int, int] | None = setting(None, "its characters; or `[fewest, most]`")
    pattern: Pattern | None = setting(None, "regular expression of the whole text")
    at_least: float | None = setting(None, "a number of at least this")
    at_most: float | None = setting(None, "a number of at most this")

    @model_validator(mode="after")
    def _asks_something(self) -> "Condition":
        if not self.model_fields_set:
            raise ValueError("a condition needs at least one key")
        return self

    def holds(self, text: pl.Expr) -> pl.Expr:
        """Return whether a text, "" for none, fulfils the condition."""
        number = text.cast(pl.Float64, strict=False)
        tests = [pl.lit(value=True)]
        if self.values is not None:
            tests.append(text.is_in(list(self.values)))
        if self.none_of is not None:
            tests.append(~text.is_in(list(self.none_of)))
        if self.prefix is not None:
            tests.append(pl.any_horizontal(text.str.starts_with(start) for start in self.prefix))
        if self.length is not None:
            bounds = self.length if isinstance(self.length, tuple) else (self.length, self.length)
            tests.append(text.str.len_chars().is_between(*bounds))
        if self.pattern is not None:
            tests.append(text.str.contains(f"^(?:{self.pattern})$"))
        if self.at_least is not None:
            tests.append((number >= self.at_least).fill_null(value=False))
        if self.at_most is not None:
            tests.append((number <= self.at_most).fill_null(value=False))
        return pl.all_horizontal(tests)


class Eligibility(Settings):
    """Which cards are eligible for a link. Rows of others are not sent, are no rejects, and are for
    nobody to correct.

    Never eligible are numbers of other than 16 digits, such as those of American Express, and
    addresses outside the countries.
    """

    networks: tuple[Network, ...] = setting((), "card networks; none: all of 16 digits")
    countries: tuple[Literal["US", "CA"], ...] = setting(
        ("US", "CA"), "countries of the address", min_length=1
    )
    ending_cards: bool = setting(
        True,
        "`false`: a card that ends before its link does ([rules] `link_life_months`) is not "
        "eligible, and neither is one that has ended",
    )
    where: dict[Annotated[str, StringConstraints(min_length=1)], Condition] = Field(
        default={},
        description="source column = what its text must be: `values`, `none_of`, `prefix`, "
        "`length`, `pattern` (of the whole text), `at_least` and `at_most` (numbers)",
    )

    def __hash__(self) -> int:
        """Return the hash of all settings; a table has none of its own."""
        return hash(self.model_dump_json())


def is_foreign(country: pl.Expr) -> pl.Expr:
    """Return whether a text names a country that is not served."""
    plain = country.str.to_uppercase().str.replace_all(".", " ", literal=True)
    plain = plain.str.replace_all(r"\s+", " ").str.strip_chars()
    return plain.is_in(sorted(foreign_spellings()))
