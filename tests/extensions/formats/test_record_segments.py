"""Records of several types by a copybook: every row with its parts as they were written."""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import pytest

from flows.extensions.formats.fields import NUMBER
from flows.extensions.formats.settings import FormatSettings
from flows.extracts.rows import open_rows
from tests.extensions.formats import mainframe
from tests.extensions.formats.two_files import whole

COPYBOOK = """\
       01  BRANCH-RECORD.
           05  REC-TYPE     PIC X(2).
           05  BRANCH       PIC 9(4).
       01  CARD-RECORD.
           05  REC-TYPE     PIC X(2).
           05  CUST-ID      PIC X(6).
           05  CARD-NUMBER  PIC 9(16) COMP-3.
       01  ADDRESS-RECORD.
           05  REC-TYPE     PIC X(2).
           05  STREET       PIC X(20).
           05  ZIP          PIC 9(5) COMP.
"""
SIZE = 26
SOURCE: dict[str, Any] = {
    "encoding": "cp037",
    "record_format": "FB",
    "copybook": COPYBOOK,
    "segment_field": "REC-TYPE",
    "segments": {"01": "BRANCH-RECORD", "02": "CARD-RECORD", "03": "ADDRESS-RECORD"},
    "segment_row": "02",
}
Record = tuple[str, bytes, tuple[str, ...]]


def branch(number: int) -> Record:
    data = mainframe.text("01", 2) + mainframe.zoned(number, 4)
    return "01", data, ("01", f"{number:04d}")


def card(number: int) -> Record:
    pan = mainframe.card_number(number)
    data = mainframe.text("02", 2) + mainframe.text(f"C{number}", 6)
    return "02", data + mainframe.packed(int(pan), 16), ("02", f"C{number}", pan)


def address(number: int) -> Record:
    street = f"{number} ELM STREET"
    data = mainframe.text("03", 2) + mainframe.text(street, 20) + mainframe.binary(2108, 4)
    return "03", data, ("03", street, "02108")


def bank(count: int, chance: random.Random) -> list[Record]:
    records: list[Record] = []
    for number in range(count):
        if number % 4 == 0:
            records.append(branch(number))
        records.append(card(number))
        if chance.random() < 0.8:
            records.append(address(number))
    return records


def oracle(records: list[Record]) -> tuple[list[tuple[int, Any]], list[int]]:
    """Group the records one by one: what is said of each row, and the record it is."""
    said: list[Any] = []
    places: list[int] = []
    above: tuple[str, ...] | None = None
    is_open = False
    for number, (kind, _, cells) in enumerate(records, 1):
        if kind == "01":
            above, is_open = cells, False
        elif kind == "02" and above is not None:
            said.append([cells, above, ("", "", "")])
            places.append(number)
            is_open = True
        elif kind == "03" and is_open:
            taken = said[-1] == "segment.order.repeated" or said[-1][2][0]
            said[-1] = "segment.order.repeated" if taken else [*said[-1][:2], cells]
        else:
            said.append("segment.order.orphan")
            places.append(number)
    flat = [each if isinstance(each, str) else sum(map(tuple, each), ()) for each in said]
    return list(enumerate(flat, 1)), places


def read(data: bytes, block: int, **changes: Any) -> tuple[list[tuple[int, Any]], list[int]]:
    source = FormatSettings.model_validate(SOURCE | changes)
    blocks = list(open_rows(BytesIO(data), source, "cards.dat", block=block))
    places: dict[int, int] = {}
    for each in blocks:
        places |= dict(each.rows.select("row", "line").rows())
        places |= dict(each.refused.select("row", "line").rows())
    return whole(blocks), [places[row] for row in sorted(places)]


def written(records: list[Record], record_format: str) -> bytes:
    padding = {"FB": SIZE, "VB": 0}[record_format]
    return mainframe.FILES[record_format]([data.ljust(padding, b"\x40") for _, data, _ in records])


@pytest.mark.parametrize("record_format", ["FB", "VB"])
@pytest.mark.parametrize("block", [60, 500, 1 << 20])
def test_every_row_has_its_parts_in_every_format_and_block_size(
    record_format: str, block: int
) -> None:
    records = bank(80, random.Random(1))

    said = read(written(records, record_format), block, record_format=record_format)

    assert oracle(records) == said
    assert 80 == len(said[1])


def test_records_that_belong_to_no_row_are_refused_and_names_that_are_taken_have_their_type() -> (
    None
):
    records = [card(1), branch(1), address(1), card(2), address(2), address(3), card(4)]
    source = FormatSettings.model_validate(SOURCE)

    rows = open_rows(BytesIO(written(records, "FB")), source, "cards.dat")

    assert oracle(records)[0] == whole(list(rows))
    assert (
        *("CARD-RECORD.REC-TYPE", "CUST-ID", "CARD-NUMBER", "BRANCH-RECORD.REC-TYPE", "BRANCH"),
        *("ADDRESS-RECORD.REC-TYPE", "STREET", "ZIP"),
    ) == rows.header


def test_a_part_that_cannot_be_read_refuses_its_row_with_byte_and_field() -> None:
    records = [branch(1), card(1), address(1), card(2), address(2)]
    data = bytearray(written(records, "FB"))
    data[4 * SIZE + 22] = 0x7F  # more digits than PIC has

    source = FormatSettings.model_validate(SOURCE)
    blocks = list(open_rows(BytesIO(bytes(data)), source, "cards.dat"))

    assert [(2, 4, NUMBER, f"ZIP, at byte {4 * SIZE + 23:,}")] == [
        row for block in blocks for row in block.refused.rows()
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"segments": {"01": ["A"], "02": ["B"]}, "segment_row": "01"}, "group or record"),
        ({"segment_field": "KIND"}, "has no field KIND"),
        ({"segments": {"01": "A", "02": "CARD-RECORD"}, "segment_row": "02"}, "A: no 01 record"),
    ],
)
def test_types_that_the_copybook_does_not_describe_are_refused(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        FormatSettings.model_validate(SOURCE | changes)


@pytest.mark.slow
def test_five_hundred_orders_of_records_are_grouped_as_the_oracle_groups_them() -> None:
    chance = random.Random(36)
    differences = []
    for number in range(500):
        records = bank(12, chance)
        for _ in range(chance.choice([1, 2, 4])):
            place = chance.randrange(len(records))
            match chance.randrange(3):
                case 0:
                    del records[place]
                case 1:
                    records.insert(place, records[chance.randrange(len(records))])
                case 2:
                    records.append(records.pop(place))
        record_format = chance.choice(["FB", "VB"])
        block = chance.choice([30, 100, 1 << 20])
        if read(written(records, record_format), block, record_format=record_format) != oracle(
            records
        ):
            differences.append(number)

    assert [] == differences
