"""Normalise cells to the spelling that the portal accepts. Decides nothing, rejects nothing.

Most cells need no change, and looking is five times cheaper than rewriting: every step finds the cells that need it
and changes only those.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from schemas import places, portal
from schemas.row_settings import RuleSettings
from schemas.rules import REQUIRED

VERBATIM = (portal.CUID, portal.CVV, portal.CVV_HASH)  # others' identifiers and secrets: trimmed, never rewritten
OPTIONAL = [name for name in portal.columns() if name not in (*REQUIRED, portal.CUID)]  # NULL means absent
# Printable ASCII and composed Latin letters, no blank at either end: nothing to trim. One anchored regex is fastest.
TIDY = r"^[!-~\x{C0}-\x{FF}](?:[ -~\x{C0}-\x{FF}]*[!-~\x{C0}-\x{FF}])?$"
BREAKS = r"[\p{Cc}\x{2028}\x{2029}]+"  # no line break inside a field may be sent
SPACED = r"^[0-9]+[\s\p{Pd}\p{Cf}][0-9\s\p{Pd}\p{Cf}]*$"  # digits separated by blanks, dashes, invisible characters
# strip_chars() alone leaves U+200B, U+FEFF and the like: invisible, but different in every comparison.
INVISIBLE = (0x1680, *range(0x2000, 0x200E), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)
EDGES = "".join(chr(n) for n in (*range(0x21), *range(0x7F, 0xA1), *INVISIBLE))
_ODD = (
    pl.col(portal.PAN).str.contains(SPACED),
    pl.col(portal.MONTH).str.contains("^[1-9]$"),
    pl.col(portal.YEAR).str.contains("^20[0-9]{2}$"),
)
_ODD_CODES = tuple(
    ((pl.col(portal.COUNTRY) == country) & ~pl.col(portal.POSTAL_CODE).str.contains(shape)).alias(country)
    for country, shape in ((places.US, "^[0-9]{5}$"), (places.CANADA, "^[A-Z][0-9][A-Z] [0-9][A-Z][0-9]$"))
)
TRUTHS = dict.fromkeys(("TRUE", "T", "YES", "Y", "1"), "TRUE") | dict.fromkeys(("FALSE", "F", "NO", "N", "0"), "FALSE")


def normalise(rows: pl.DataFrame, rules: RuleSettings) -> pl.DataFrame:
    """Return `rows` (row, line, the portal's columns) as the portal spells them; idempotent (interface.md 2.6)."""
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
    return rows.with_columns(pl.col(portal.NAME_ON_CARD).fill_null(whole)) if rules.fill_name_on_card else rows


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
    """Replace each known spelling, whatever its case, dots and spaces; looked up once for each distinct cell."""
    plain = {cell: " ".join(cell.upper().replace(".", " ").split()) for cell in cells.drop_nulls().unique()}
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
    """Spell ZIP and Canadian codes; ZIP+4 is cut, since the challenge at the link asks for what a cardholder knows."""
    american, canadian = rows.select(_ODD_CODES).get_columns()
    kept = "${1}-${2}" if rules.keep_zip_plus_4 else "${1}"
    longer = r"^([0-9]{5})[-\s]?([0-9]{4})$"
    cells = _replace(rows[portal.POSTAL_CODE], american, lambda zips: zips.str.replace(longer, kept))
    code = r"^([A-Z][0-9][A-Z])[-\s]*([0-9][A-Z][0-9])$"
    return _replace(cells, canadian, lambda codes: codes.str.to_uppercase().str.replace(code, "${1} ${2}"))
