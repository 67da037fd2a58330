"""Normalise cells to the spelling that the portal accepts; repair columns, as all rows of the
extract decide.

Most cells need no change, and looking is five times cheaper than rewriting: every step finds the
cells that need it and changes only those.
"""

from collections import Counter
from collections.abc import Callable, Collection

import polars as pl

from flows.errors import ExtractError
from schemas import places, portal
from schemas.expressions import MONTH_SHAPE, YEAR_SHAPE
from schemas.issuer import Repairs, RuleSettings
from schemas.portal import (
    COUNTRY,
    CVV,
    MONTH,
    PAN,
    POSTAL_CODE,
    REQUIRED,
    SUBNATIONAL,
    VERBATIM,
    YEAR,
)

# NULL means absent
OPTIONAL = [name for name in portal.columns() if name not in (*REQUIRED, portal.CUID)]
# Printable ASCII and composed Latin letters, no blank at either end: nothing to trim. One anchored
# regex is fastest.
TIDY = r"^[!-~\x{C0}-\x{FF}](?:[ -~\x{C0}-\x{FF}]*[!-~\x{C0}-\x{FF}])?$"
BREAKS = r"[\p{Cc}\x{2028}\x{2029}]+"  # no line break inside a field may be sent
# digits separated by blanks, dashes, invisible characters
SPACED = r"^[0-9]+[\s\p{Pd}\p{Cf}][0-9\s\p{Pd}\p{Cf}]*$"
# strip_chars() alone leaves U+200B, U+FEFF and the like: invisible, but different in every
# comparison.
INVISIBLE = (0x1680, *range(0x2000, 0x200E), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)
EDGES = "".join(chr(n) for n in (*range(0x21), *range(0x7F, 0xA1), *INVISIBLE))
_ODD = (
    pl.col(portal.PAN).str.contains(SPACED),
    pl.col(portal.MONTH).str.contains("^[1-9]$"),
    pl.col(portal.YEAR).str.contains("^20[0-9]{2}$"),
)
_ODD_CODES = tuple(
    ((pl.col(portal.COUNTRY) == country) & ~pl.col(portal.POSTAL_CODE).str.contains(shape)).alias(
        country
    )
    for country, shape in (
        (places.US, "^[0-9]{5}$"),
        (places.CANADA, "^[A-Z][0-9][A-Z] [0-9][A-Z][0-9]$"),
    )
)
TRUTHS = dict.fromkeys(("TRUE", "T", "YES", "Y", "1"), "TRUE") | dict.fromkeys(
    ("FALSE", "F", "NO", "N", "0"), "FALSE"
)


def normalise(rows: pl.DataFrame, rules: RuleSettings) -> pl.DataFrame:
    """Return `rows` (row, line, the portal's columns) as the portal spells them; idempotent
    (interface.md 2.6).
    """
    filler = pl.col(OPTIONAL).is_in(rules.placeholders)
    rows = _trim(rows).with_columns(pl.when(~filler).then(pl.col(OPTIONAL)))
    odd = rows.select(_ODD)
    rows = rows.with_columns(
        _replace(rows[portal.PAN], odd[portal.PAN], lambda pan: pan.str.replace_all("[^0-9]", "")),
        _replace(rows[portal.MONTH], odd[portal.MONTH], lambda month: "0" + month),
        _replace(rows[portal.YEAR], odd[portal.YEAR], lambda year: year.str.slice(2)),
        _spell(rows[portal.COUNTRY], places.country_spellings()),
        _spell(rows[portal.IS_PRIMARY], TRUTHS),
    )
    rows = rows.with_columns(_subnational(rows), _postal_code(rows, rules))
    # Optional in the file, but required by the partner's sibling interface.
    whole = pl.concat_str(portal.FIRST_NAME, portal.LAST_NAME, separator=" ")
    return (
        rows.with_columns(pl.col(portal.NAME_ON_CARD).fill_null(whole))
        if rules.fill_name_on_card
        else rows
    )


def _trim(rows: pl.DataFrame) -> pl.DataFrame:
    """Trim, join lines, compose accents; a cell that is empty then is absent."""
    odd = rows.select(~pl.col(portal.columns()).str.contains(TIDY))
    return rows.with_columns(
        _replace(rows[name], odd[name], _plain if name in VERBATIM else _text)
        for name in portal.columns()
        if odd[name].any()
    )


def _plain(cells: pl.Series) -> pl.Series:
    trimmed = cells.str.strip_chars(EDGES)
    return trimmed.set(trimmed == "", None)


def _text(cells: pl.Series) -> pl.Series:
    return _plain(cells.str.replace_all(BREAKS, " ").str.normalize("NFC"))


def _replace(cells: pl.Series, odd: pl.Series, how: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Return `cells` with `how` applied to those that are `odd`; null never is."""
    at = odd.arg_true()
    return cells if at.is_empty() else cells.clone().scatter(at, how(cells.gather(at)))


def _spell(cells: pl.Series, spellings: dict[str, str]) -> pl.Series:
    """Replace each known spelling, whatever its case, dots and spaces; looked up once for each
    distinct cell.
    """
    plain = {
        cell: " ".join(cell.upper().replace(".", " ").split())
        for cell in cells.drop_nulls().unique()
    }
    known = {cell: spellings.get(key, cell) for cell, key in plain.items()}
    changed = {cell: spelled for cell, spelled in known.items() if cell != spelled}
    return cells.replace(changed) if changed else cells


def _subnational(rows: pl.DataFrame) -> pl.Series:
    """Spell states and provinces as codes, by country: NL is a province, not a state."""
    cells = rows[portal.SUBNATIONAL]
    for country in (places.US, places.CANADA):
        there = (rows[portal.COUNTRY] == country).fill_null(False)
        cells = _spell(cells, places.subnational_spellings(country)).zip_with(there, cells)
    return cells


def _postal_code(rows: pl.DataFrame, rules: RuleSettings) -> pl.Series:
    """Spell ZIP and Canadian codes; ZIP+4 is cut, since the challenge at the link asks for what a
    cardholder knows.
    """
    american, canadian = rows.select(_ODD_CODES).get_columns()
    kept = "${1}-${2}" if rules.keep_zip_plus_4 else "${1}"
    longer = r"^([0-9]{5})[-\s]?([0-9]{4})$"
    cells = _replace(
        rows[portal.POSTAL_CODE], american, lambda zips: zips.str.replace(longer, kept)
    )
    code = r"^([A-Z][0-9][A-Z])[-\s]*([0-9][A-Z][0-9])$"
    return _replace(
        cells, canadian, lambda codes: codes.str.to_uppercase().str.replace(code, "${1} ${2}")
    )


# Repairs of whole columns: decided by all rows of the extract, for all of them; never row by row.

EVIDENCE = (COUNTRY, SUBNATIONAL, POSTAL_CODE, CVV, YEAR, MONTH, PAN)
# values; one CVV in ten starts with 0, so if none of twenty does, zeros were probably lost
ENOUGH = 20


class ExcelDamageError(ExtractError):
    """A spreadsheet has destroyed digits of the extract's card numbers."""

    message = "Extract {name}: card numbers were damaged by a spreadsheet ({sign})."
    next_step = (
        "Nothing was sent. The issuer must export it again without opening it in a spreadsheet."
    )


_ZIP, _CVV, _YEAR, _MONTH, _PAN = map(pl.col, (POSTAL_CODE, CVV, YEAR, MONTH, PAN))
_AMERICAN = pl.col(COUNTRY) == places.US
_SHORT_ZIP, _SHORT_CVV = (
    _AMERICAN & _ZIP.str.contains("^[0-9]{3,4}$"),
    _CVV.str.contains("^[0-9]{1,2}$"),
)
_IN_STATE = (_ZIP.str.zfill(5).str.slice(0, 3) + pl.col(SUBNATIONAL)).is_in(
    pl.Series(sorted(places.postal_places())).implode()
)
_DATED = _YEAR.is_not_null() & _MONTH.is_not_null()
# How many rows of an extract show what; sums, so neither blocks nor the order of rows change a
# decision.
SIGNS = {
    "zips_short": _SHORT_ZIP,
    "zips_in_state": _SHORT_ZIP & _IN_STATE,
    "zips_with_zero": _AMERICAN & _ZIP.str.contains("^0[0-9]{4}"),
    "cvvs": _CVV.is_not_null(),
    "cvvs_short": _SHORT_CVV,
    "cvvs_with_zero": _CVV.str.contains("^0[0-9]{2}$"),
    "dates": _DATED,
    "dates_as_read": _DATED & _MONTH.str.contains(MONTH_SHAPE) & _YEAR.str.contains(YEAR_SHAPE),
    "dates_swapped": _DATED & _YEAR.str.contains(MONTH_SHAPE) & _MONTH.str.contains(YEAR_SHAPE),
    "pans": _PAN.is_not_null(),
    "pans_ending_in_0": _PAN.str.ends_with("0"),
}


class Evidence:
    """What the rows of an extract show so far of each repair; where they may need one, all rows
    decide.
    """

    def __init__(self, repairs: Repairs, name: str) -> None:
        self._repairs, self._name = repairs, name
        self._signs: Counter[str] = Counter()

    def add(self, rows: pl.DataFrame) -> None:
        """Count the signs of a normalised block; ExcelDamageError where a card number lost its
        digits.
        """
        self._signs.update(
            rows.select(sign.sum().alias(name) for name, sign in SIGNS.items()).row(0, named=True)
        )
        refuse_scientific(rows, self._repairs, self._name)

    @property
    def possible(self) -> dict[str, bool]:
        """Which repairs no row speaks against, however few rows were read; of the last one, the
        refusal.
        """
        signs, asked = self._signs, self._repairs
        return {
            "zip_zeros": asked.zip_zeros and not signs["zips_with_zero"],
            "cvv_zeros": asked.cvv_zeros and not signs["cvvs_with_zero"],
            "expiration_order": asked.expiration_order and signs["dates"] == signs["dates_swapped"],
            "refuse_excel": asked.refuse_excel and signs["pans"] == signs["pans_ending_in_0"],
        }

    @property
    def wanted(self) -> bool:
        """Whether a row would be changed, or the extract refused, by something that is still
        possible.
        """
        signs, needs = (
            self._signs,
            ("zips_short", "cvvs_short", "dates_swapped", "pans_ending_in_0"),
        )
        return any(
            possible and signs[sign]
            for possible, sign in zip(self.possible.values(), needs, strict=True)
        )

    def decide(self) -> frozenset[str]:
        """Return the repairs that all rows together need; ExcelDamageError where all card numbers
        end in 0.
        """
        signs, possible = self._signs, self.possible
        # Excel keeps fifteen digits and writes 0 for the 16th
        if possible["refuse_excel"] and signs["pans"] >= ENOUGH:
            raise ExcelDamageError(name=self._name, sign="every number ends in 0")
        needed = {
            "zip_zeros": 0 < 0.95 * signs["zips_short"] <= signs["zips_in_state"],
            "cvv_zeros": signs["cvvs"] >= ENOUGH and 0 < signs["cvvs_short"] < 0.3 * signs["cvvs"],
            "expiration_order": signs["dates_as_read"] < signs["dates"],
        }
        return frozenset(name for name, needs in needed.items() if needs and possible[name])


def refuse_scientific(rows: pl.DataFrame, repairs: Repairs, name: str) -> None:
    """Raise ExcelDamageError where a card number is written like 4.11E+15."""
    marked = rows.filter(_PAN.str.contains("[eE]"))[PAN]
    if repairs.refuse_excel and marked.str.contains("^[0-9][.,]?[0-9]*[eE][+]?[0-9]+$").any():
        raise ExcelDamageError(name=name, sign="scientific notation")


# Per repair: the rows it changes, the columns after it.
_STEPS = {
    "zip_zeros": (_SHORT_ZIP, [pl.when(_SHORT_ZIP).then(_ZIP.str.zfill(5)).otherwise(_ZIP)]),
    "cvv_zeros": (_SHORT_CVV, [pl.when(_SHORT_CVV).then(_CVV.str.zfill(3)).otherwise(_CVV)]),
    "expiration_order": (
        _YEAR.is_not_null() | _MONTH.is_not_null(),
        [_MONTH.alias(YEAR), _YEAR.alias(MONTH)],
    ),
}


def repair(rows: pl.DataFrame, decided: Collection[str]) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return a normalised block repaired, and the cells changed per repair, named as in the
    settings `[repairs]`.
    """
    counts: dict[str, int] = {}
    for name, (changes, columns) in _STEPS.items():
        if name in decided:
            counts[name] = rows.filter(changes).height
            rows = rows.with_columns(columns)
    return rows, counts
