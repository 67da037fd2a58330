"""Damaged extracts by the hundred: every line accounted for, nothing silently wrong, nothing
shown.
"""

import csv
import io
import random
import re

import polars as pl
import pytest

from flows.errors import ExtractError
from flows.extracts.line_kinds import Kind
from flows.extracts.mapping import plan_mapping
from flows.extracts.reader import Extract
from schemas import portal
from schemas.source import SourceSettings
from tests.night import issuer

SETTINGS = SourceSettings()
HEADER = portal.columns()
# Cells are made of words that stand in no message of ours, so that a leak is plain to see.
WORDS = ("Qaanaaq", "Wyżyna", "Zzyzx", "Vrbnik", "Ängelholm", "Jokkmokk", "Kvænangen", "Xochimilco")
MUTANTS = [
    '"',
    ",",
    "\n",
    "\r\n",
    "\r",
    "\x00",
    "\x1a",
    '""',
    "\\",
    ";",
    "\ufeff",
    " ",
    "7",
    "\n\n",
    "#",
    "é",
    '",',
    ',"',
]


def good_extract(rng: random.Random, rows: int) -> str:
    """Return a small sound extract with quotes, doubled quotes and quoted newlines in it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for at in range(rows):
        cells = [rng.choice(WORDS) + str(at) for _ in HEADER]
        cells[1] = "4242424242424242"
        cells[8] = f'{WORDS[0]}, "{at}"'
        cells[10] = rng.choice(["", f"{WORDS[1]}\n{WORDS[2]}", f"{WORDS[3]}"])
        writer.writerow(cells)
    return text.getvalue()


def mutated(rng: random.Random, text: str) -> bytes:
    """Return the extract with one to three accidents."""
    for _ in range(rng.randint(1, 3)):
        at, length = rng.randrange(len(text) + 1), rng.choice((0, 1, 1, 2, 30))
        match rng.randrange(5):
            case 0:
                text = text[:at] + text[at + length :]
            case 1:
                text = text[:at] + text[at : at + length] + text[at:]
            case 2:
                text = text[:at]
            case _:
                text = text[:at] + rng.choice(MUTANTS) + text[at + length // 2 :]
    data = text.encode()
    if rng.random() < 0.2 and data:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return data


def expected_rows(data: bytes, extract: Extract, lines: list[int]) -> list[list[str | None]]:
    """Return what the standard library reads from the physical lines on which accepted rows
    begin.
    """
    physical = data.decode("utf-8", errors="replace").removeprefix("\ufeff").split("\n")
    physical = [line.removesuffix("\r") for line in physical]
    rows = []
    for line in lines:
        text = physical[line - 1]
        while text.count('"') % 2:
            line += 1
            text += "\n" + physical[line - 1]
        fields = next(csv.reader(io.StringIO(text, newline=""), strict=True))
        assert len(extract.header) == len(fields)
        rows.append([field or None for field in fields])
    return rows


def check_one(data: bytes, block: int) -> pl.DataFrame | None:
    """Read one extract and check it; return its accepted rows, None where it is refused as a
    whole.
    """
    said, rows = "", None
    try:
        rows, _ = check(data, block)
        plan_mapping(rows.columns[2:], issuer(), "a.csv", {})
    except ExtractError as error:
        said = str(error)
    assert not re.search("|".join(WORDS) + "|4242", said)
    return rows


def check(data: bytes, block: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read one extract, hold what came out against its physical lines; return rows and refused
    lines.
    """
    extract = Extract(io.BytesIO(data), SETTINGS, "a.csv", block=block)
    blocks = list(extract)
    counts = extract
    rows, refused = pl.concat(b.rows for b in blocks), pl.concat(b.refused for b in blocks)
    numbers = sorted([*rows["row"], *refused["row"]])
    others = sum(
        counts.kinds[kind]
        for kind in (Kind.HEADER, Kind.CONTINUES, Kind.BLANK, Kind.REPEATED_HEADER)
    )
    assert list(range(1, counts.height + 1)) == numbers
    assert counts.lines == counts.height + others
    assert counts.lines == data.count(b"\n") + (not data.endswith(b"\n"))
    assert (rows.height, refused.height) == (counts.kinds[Kind.RECORD], counts.kinds[Kind.REFUSED])
    values = [list(row) for row in rows.drop("row", "line").iter_rows()]
    assert expected_rows(data, extract, rows["line"].to_list()) == values
    return rows, refused


@pytest.mark.parametrize("extracts", [200, pytest.param(3000, marks=pytest.mark.slow)])
def test_accepted_rows_are_what_the_extract_contains_however_it_was_damaged(extracts: int) -> None:
    rng = random.Random(extracts)
    text = good_extract(rng, 6)

    outcomes = [check_one(mutated(rng, text), rng.choice((1 << 24, 400))) for _ in range(extracts)]

    assert extracts / 2 < sum(rows is not None for rows in outcomes)


@pytest.mark.parametrize("extracts", [3, pytest.param(24, marks=pytest.mark.slow)])
def test_thousands_of_accidents_in_one_extract_cost_only_the_lines_they_happened_to(
    extracts: int,
) -> None:
    rng = random.Random(extracts)

    for _ in range(extracts):
        header, *lines = good_extract(rng, 3000).split("\n")
        sound = {line for line in lines if not line.count('"') % 2}
        hurt = [
            line if rng.random() < 0.6 or not line else wounded(rng, line) for line in lines[:-20]
        ]
        # one that ends inside quotes is truncated
        data = "\n".join([header, *hurt, *lines[-20:]]).encode()

        rows, refused = check(data, rng.choice((1 << 24, 1 << 16)))

        physical = data.decode().split("\n")
        assert not {physical[line - 1] for line in refused["line"]} & sound
        assert 0.4 * len(lines) < rows.height


def wounded(rng: random.Random, line: str) -> str:
    """Return a line with one accident in it."""
    at, length = rng.randrange(len(line)), rng.choice((0, 1, 1, 2, 30))
    match rng.randrange(3):
        case 0:
            return line[:at] + line[at + length :]
        case 1:
            return line[: at + length] + line[at:]
        case _:
            return line[:at] + rng.choice(MUTANTS) + line[at + length // 2 :]


@pytest.mark.parametrize("extracts", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_the_size_of_blocks_does_not_change_what_is_read(extracts: int) -> None:
    rng = random.Random(99)
    text = good_extract(rng, 40)

    for _ in range(extracts):
        data = mutated(rng, text)
        whole, pieces = check_one(data, 1 << 24), check_one(data, rng.choice((200, 1000)))

        assert (whole is None) == (pieces is None)
        assert whole is None or pieces is None or whole.equals(pieces)
