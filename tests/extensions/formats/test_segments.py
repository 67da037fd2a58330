"""Record types in one file: every row with its parts as the oracle says, on its own line."""

from __future__ import annotations

import random
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import polars as pl
import pytest

from flows.errors import CardlinkError
from flows.extensions.formats.settings import FormatSettings
from flows.extracts.rows import open_rows
from tests.extensions.formats.two_files import whole

Line = tuple[str, ...]
TYPES: dict[str, Line] = {
    "01": ("TYPE", "BRANCH"),
    "02": ("TYPE", "CUST", "CARD", "NAME"),
    "03": ("TYPE", "CUST", "STREET", "CITY"),
    "04": ("TYPE", "MAIL"),
}
SOURCE: dict[str, Any] = {
    "delimiter": "|",
    "header_rows": 0,
    "comment": "00",
    "trailer": r"^99\|([0-9]+)",
    "segment_field": "TYPE",
    "segments": {kind: list(names) for kind, names in TYPES.items()},
    "segment_row": "02",
}
HEADER = ("TYPE", "CUST", "CARD", "NAME", "01.TYPE", "BRANCH", "03.TYPE", "03.CUST", "STREET")


def bank(customers: int, chance: random.Random) -> list[str]:
    """Return the lines of a file: branches, their cards, of most an address, of some a mail."""
    lines = ["00|HEADER"]
    for number in range(customers):
        if number % 5 == 0:
            lines.append(f"01|B{number}")
        lines.append(f"02|C{number}|4{number}|Ann")
        if chance.random() < 0.9:
            lines.append(f"03|C{number}|{number} Elm St|Boston")
        if chance.random() < 0.3:
            lines.append(f"04|c{number}@example.com")
        if chance.random() < 0.1:
            lines.append("")
    return [*lines, f"99|{customers}"]


def content(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def read(lines: Sequence[str], block: int = 1 << 20, **changes: Any) -> tuple[Any, Any, Any]:
    """Return header, what is said of each row, and the line of each row."""
    source = FormatSettings.model_validate(SOURCE | changes)
    rows = open_rows(BytesIO(content(lines)), source, "cards.txt", block=block)
    blocks = list(rows)
    assert (len(lines), rows.height) == (rows.lines, rows.lines - sum(rows.set_aside.values()))
    places = pl.concat(
        [each.rows.select("row", "line") for each in blocks]
        + [each.refused.select("row", "line") for each in blocks]
    )
    return rows.header, whole(blocks), dict(places.sort("row").rows())


def oracle(lines: Sequence[str]) -> tuple[list[tuple[int, Line | str]], dict[int, int]]:
    """Group the records one by one, as slowly as can be: what is said of each row, and its line."""
    said: list[Any] = []
    places: dict[int, int] = {}
    branch: list[str] | None = None
    row: dict[str, Any] | None = None
    bad_branch = False
    for number, line in enumerate(lines, 1):
        cells = line.split("|")
        kind = cells[0].strip(" ")
        if not line.strip() or line.startswith("00") or kind == "99":
            continue
        is_sound = kind in TYPES and len(cells) == len(TYPES[kind])
        wrong = "" if is_sound or kind not in TYPES else _size(cells, kind)
        if kind == "01":
            branch, bad_branch, row = cells, bool(wrong), None
            bad = wrong
        elif kind == "02" and branch is not None:
            row = {"02": cells, "bad": wrong or (bad if bad_branch else "")}
            said.append(row | {"01": branch})
            row = said[-1]
            places[len(said)] = number
        elif kind in ("03", "04") and row is not None:
            row["bad"] = ("segment.order.repeated" if kind in row else "") or row["bad"] or wrong
            row[kind] = cells
        else:
            known = kind in TYPES
            said.append({"bad": f"segment.{'order.orphan' if known else 'type.unknown'}"})
            places[len(said)] = number
            row = None if kind == "02" or not known else row
    return [(place, _cells(each)) for place, each in enumerate(said, 1)], places


def _size(cells: Sequence[str], kind: str) -> str:
    few = len(cells) < len(TYPES[kind])
    return f"line.fields.too_{'few' if few else 'many'}"


def _cells(row: dict[str, Any]) -> Line | str:
    if row["bad"]:
        return str(row["bad"])
    parts = [row["02"], row["01"], row.get("03", ["", "", "", ""]), row.get("04", ["", ""])]
    return tuple(cell for part in parts for cell in part)


@pytest.mark.parametrize("block", [40, 700, 1 << 20])
def test_every_row_has_what_is_above_it_and_what_follows_it(block: int) -> None:
    lines = bank(60, random.Random(1))

    header, said, places = read(lines, block)

    assert HEADER == header[:9]
    assert oracle(lines) == (said, places)
    assert 60 == len(said)


def test_what_belongs_to_no_row_is_refused_and_no_row_takes_two_parts_of_a_type() -> None:
    lines = [
        *("02|C0|40|Ann", "01|B1", "03|C1|1 Elm St|Boston", "02|C1|41|Ann"),
        *("03|C1|1 Elm St|Boston", "03|C1|2 Elm St|Boston", "02|C2|42|Ann", "07|x", "04|m"),
        "99|1",
    ]

    _, said, places = read(lines)

    assert [
        (1, "segment.order.orphan"),
        (2, "segment.order.orphan"),
        (3, "segment.order.repeated"),
        (4, ("02", "C2", "42", "Ann", "01", "B1", "", "", "", "", "", "")),
        (5, "segment.type.unknown"),
        (6, "segment.order.orphan"),
    ] == said
    assert {1: 1, 2: 3, 3: 4, 4: 7, 5: 8, 6: 9} == places


def test_a_part_that_cannot_be_read_refuses_its_row_and_no_other() -> None:
    lines = ["01|B", "02|C1|41|Ann", "03|C1|1 Elm St", "02|C2|42|Ann", '04|"a" b', "02|C3|43|A"]

    _, said, _ = read([*lines, "99|3"])

    assert ["line.fields.too_few", "line.quote.bare"] == [said[0][1], said[1][1]]
    assert "C3" == said[2][1][1]


def test_a_delimiter_within_quotes_divides_nothing() -> None:
    _, [(_, cells)], _ = read(["01|B", '02|C1|41|"Ann|Li"', "99|1"])

    assert ("02", "C1", "41", "Ann|Li") == cells[:4]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"segment_field": None}, "belong together"),
        ({"segment_row": "09"}, "segment_row one of them"),
        ({"header_rows": 1}, "header_rows = 0"),
        (
            {"segments": {"01": ["TYPE", "A"], "02": ["B", "TYPE"]}, "segment_row": "01"},
            "same place",
        ),
        ({"segments": {"01": ["TYPE", "A"], "02": ["B", "C"]}, "segment_row": "01"}, "each type"),
        ({"segments": {"01": "A", "02": "B"}, "segment_row": "01"}, "column names of each type"),
    ],
)
def test_types_that_cannot_be_told_apart_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FormatSettings.model_validate(SOURCE | changes)


@pytest.mark.slow
def test_five_hundred_mutations_are_grouped_as_the_oracle_groups_them() -> None:
    chance = random.Random(36)
    differences = []
    refused = 0
    for number in range(500):
        lines = bank(20, chance)
        for _ in range(chance.choice([1, 1, 2, 4])):
            place = chance.randrange(1, len(lines) - 1)
            match chance.randrange(4):
                case 0:
                    del lines[place]
                case 1:
                    lines[place] = lines[place] + "|x"
                case 2:
                    lines.insert(place, lines[chance.randrange(1, len(lines) - 1)])
                case 3:
                    lines[place] = lines[place][chance.randrange(4) :]
        try:
            _, said, places = read(lines, chance.choice([60, 300, 1 << 20]))
        except CardlinkError:
            refused += 1
            continue
        if (said, places) != oracle(lines):
            differences.append(number)

    assert ([], True) == (differences, refused < 100)
