"""Repair whole columns of an extract: what a spreadsheet or an export took away from every cell.

All rows of the extract decide, and a repair is for all of them; never row by row.

While no row could need a repair, nothing is read twice. Once one could, the extract is read a
second time, for the columns of EVIDENCE alone. Lost zeros of ZIP codes are put back only where no
ZIP code of the column kept one, and 95 % of the padded ones are in their state. Lost zeros of CVVs
are put back only with 20 values or more, none of them with a leading zero, and fewer than 30 %
short.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import polars as pl

from flows.errors import ExtractError
from schemas import places
from schemas.expressions import MONTH_SHAPE, YEAR_SHAPE
from schemas.issuer import Repairs
from schemas.portal import COUNTRY, CVV, MONTH, PAN, POSTAL_CODE, SUBNATIONAL, YEAR

EVIDENCE = (COUNTRY, SUBNATIONAL, POSTAL_CODE, CVV, YEAR, MONTH, PAN)
# values; one CVV in ten starts with 0, so if none of twenty does, zeros were probably lost
ENOUGH = 20


class ExcelDamageError(ExtractError):
    """A spreadsheet has destroyed digits of the extract's card numbers."""

    message = "Extract {name}: card numbers were damaged by a spreadsheet ({sign})."
    next_step = (
        "Nothing was sent. The issuer must export it again without opening it in a spreadsheet."
    )


_ZIP = pl.col(POSTAL_CODE)
_CVV = pl.col(CVV)
_YEAR = pl.col(YEAR)
_MONTH = pl.col(MONTH)
_PAN = pl.col(PAN)
_AMERICAN = pl.col(COUNTRY) == places.US
_SHORT_ZIP = _AMERICAN & _ZIP.str.contains("^[0-9]{3,4}$")
_SHORT_CVV = _CVV.str.contains("^[0-9]{1,2}$")
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
# What speaks against putting zeros back: the file kept one.
AGAINST = {
    "zip_zeros": SIGNS["zips_with_zero"],
    "cvv_zeros": SIGNS["cvvs_with_zero"],
}
# The sign by which a row may need each repair; by the last one the extract may be refused.
NEEDS = {
    "zip_zeros": "zips_short",
    "cvv_zeros": "cvvs_short",
    "expiration_order": "dates_swapped",
    "refuse_excel": "pans_ending_in_0",
}


class Evidence:
    """The signs for and against each repair, counted over the rows that were read so far."""

    def __init__(self, repairs: Repairs, name: str) -> None:
        self._repairs = repairs
        self._name = name
        self._signs: Counter[str] = Counter()
        # repairs that a row turned off for the whole extract, by the line of the first such row
        self.turned_off: dict[str, int] = {}

    def add(self, rows: pl.DataFrame) -> None:
        """Count the signs of a normalised block.

        Raises ExcelDamageError where a card number lost its digits.
        """
        counts = rows.select(sign.sum().alias(name) for name, sign in SIGNS.items())
        self._signs.update(counts.row(0, named=True))
        self._note_turned_off(rows)
        refuse_scientific(rows, self._repairs, self._name)

    def _note_turned_off(self, rows: pl.DataFrame) -> None:
        """Note the line of the first row that turns a repair off."""
        for repair, sign in AGAINST.items():
            if getattr(self._repairs, repair) and repair not in self.turned_off:
                lines = rows.filter(sign)["line"]
                if lines.len():
                    self.turned_off[repair] = lines[0]

    @property
    def possible(self) -> dict[str, bool]:
        """Whether each repair is allowed, and no row that was read so far speaks against it.

        "refuse_excel" is no repair but the refusal of the extract.
        """
        signs = self._signs
        settings = self._repairs
        all_swapped = signs["dates"] == signs["dates_swapped"]
        all_end_in_0 = signs["pans"] == signs["pans_ending_in_0"]
        return {
            "zip_zeros": settings.zip_zeros and not signs["zips_with_zero"],
            "cvv_zeros": settings.cvv_zeros and not signs["cvvs_with_zero"],
            "expiration_order": settings.expiration_order and all_swapped,
            "refuse_excel": settings.refuse_excel and all_end_in_0,
        }

    @property
    def needs_all_rows(self) -> bool:
        """Whether a repair that is still possible would change a row, or refuse the extract."""
        return any(
            possible and self._signs[NEEDS[repair]] for repair, possible in self.possible.items()
        )

    def decide(self) -> frozenset[str]:
        """Return the repairs that all rows together need.

        Raises ExcelDamageError where all card numbers end in 0.
        """
        signs = self._signs
        possible = self.possible
        # Excel keeps fifteen digits and writes 0 for the 16th
        if possible["refuse_excel"] and signs["pans"] >= ENOUGH:
            raise ExcelDamageError(name=self._name, sign="every number ends in 0")
        few_short_cvvs = 0 < signs["cvvs_short"] < 0.3 * signs["cvvs"]
        needed = {
            "zip_zeros": 0 < 0.95 * signs["zips_short"] <= signs["zips_in_state"],
            "cvv_zeros": signs["cvvs"] >= ENOUGH and few_short_cvvs,
            "expiration_order": signs["dates_as_read"] < signs["dates"],
        }
        return frozenset(
            repair for repair, is_needed in needed.items() if is_needed and possible[repair]
        )


def refuse_scientific(rows: pl.DataFrame, repairs: Repairs, name: str) -> None:
    """Raise ExcelDamageError where a card number is written like 4.11E+15."""
    with_exponent = rows.filter(_PAN.str.contains("[eE]"))
    damaged = with_exponent.filter(_PAN.str.contains("^[0-9][.,]?[0-9]*[eE][+]?[0-9]+$"))
    if repairs.refuse_excel and not damaged.is_empty():
        line = damaged["line"][0]
        raise ExcelDamageError(name=name, sign=f"scientific notation, first on line {line}")


class _Repair(NamedTuple):
    changes: pl.Expr  # whether it changes a row
    columns: Sequence[pl.Expr]  # the columns after it


# Named as in the settings `[repairs]`.
_REPAIRS = {
    "zip_zeros": _Repair(_SHORT_ZIP, [pl.when(_SHORT_ZIP).then(_ZIP.str.zfill(5)).otherwise(_ZIP)]),
    "cvv_zeros": _Repair(_SHORT_CVV, [pl.when(_SHORT_CVV).then(_CVV.str.zfill(3)).otherwise(_CVV)]),
    "expiration_order": _Repair(
        _YEAR.is_not_null() | _MONTH.is_not_null(), [_MONTH.alias(YEAR), _YEAR.alias(MONTH)]
    ),
}


def repair(rows: pl.DataFrame, decided: Collection[str]) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return a normalised block repaired, and the cells changed per repair, named as in the
    settings `[repairs]`.
    """
    counts: dict[str, int] = {}
    for name, (changes, columns) in _REPAIRS.items():
        if name in decided:
            counts[name] = rows.filter(changes).height
            rows = rows.with_columns(columns)
    return rows, counts
