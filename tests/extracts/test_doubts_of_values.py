"""One value in nearly all rows of a column is a doubt of `init`, where nearly all should differ."""

from datetime import date
from io import BytesIO

import pytest

from flows.extensions.init.draft import first_draft
from schemas import portal
from tests.extensions.formats.mainframe import card_number


def with_cells(**cells: str) -> bytes:
    """Return an extract of sixty rows in which these columns have one value."""
    lines = [
        "CUSTOMER_ID,CARD_NO,EXP_MM,EXP_YY,CVV,FIRST_NAME,LAST_NAME,STREET,CITY,STATE,ZIP,PHONE"
    ]
    for number in range(60):
        row = {
            "CUSTOMER_ID": f"C-{number:04}",
            "CARD_NO": card_number(number),
            "EXP_MM": f"{number % 12 + 1:02}",
            "EXP_YY": "36",
            "CVV": f"{number * 37 % 1000:03}",
            "FIRST_NAME": ("Ann", "Bea", "Cleo")[number % 3],
            "LAST_NAME": ("Smith", "Jones", "Li")[number // 3 % 3],
            "STREET": f"{number + 1} Elm Street",
            "CITY": "Boston",
            "STATE": "MA",
            "ZIP": "02108",
            "PHONE": f"617-555-{number:04}",
        }
        lines.append(",".join((row | cells).values()))
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.mark.parametrize(
    ("column", "value", "target"),
    [
        ("CVV", "000", portal.CVV),
        ("EXP_MM", "12", portal.MONTH),
        ("LAST_NAME", "Smith", portal.LAST_NAME),
        ("STREET", "1 Elm Street", portal.ADDRESS1),
        ("PHONE", "617-555-0100", portal.PHONE),
    ],
)
def test_one_value_where_nearly_all_should_differ_is_a_doubt_without_the_value(
    column: str, value: str, target: str
) -> None:
    draft = first_draft(BytesIO(with_cells(**{column: value})), "a.csv", date(2026, 7, 1))

    [doubt] = draft.doubts
    assert target == doubt.key
    assert doubt.question.startswith("60 of 60 rows have the same value: is this the right column")
    assert f'"{value}"' not in draft.toml


def test_a_city_that_all_share_is_no_doubt() -> None:
    assert () == tuple(first_draft(BytesIO(with_cells()), "a.csv", date(2026, 7, 1)).doubts)
