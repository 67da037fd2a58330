"""Two files that are joined by key: every row as the oracle says, in the order of the extract."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.errors import CardlinkError
from flows.extensions.formats.joined import JoinedRows, JoinFileError
from flows.extensions.formats.settings import FormatSettings
from flows.extensions.formats.spill import Spill, SpillError
from flows.extracts.errors import MappingError
from schemas.manifest import JoinedRows as Tally
from tests.extensions.formats import two_files
from tests.extensions.formats.two_files import (
    cards,
    cards_file,
    opened,
    oracle,
    places,
    places_file,
    whole,
)


def pair_of(count: int, seed: int = 1) -> tuple[bytes, bytes]:
    return cards_file(cards(count)), places_file(places(count, random.Random(seed)))


@pytest.mark.parametrize("block", [300, 5_000, 1 << 20])
def test_every_row_has_its_address_in_the_order_of_the_extract(block: int) -> None:
    first, second = pair_of(400)

    rows = opened(first, second, block)
    said = whole(list(rows))

    assert oracle(first, second) == said
    assert list(range(1, 401)) == [row for row, _ in said]
    assert (400, 401) == (rows.height, rows.lines)


def test_columns_of_both_files_are_told_apart_and_the_key_stands_once() -> None:
    rows = opened(*pair_of(3))

    assert ("CUST", "CARD", "EXP", "CVV", "FIRST", "LAST", "NOTE") == rows.header[:7]
    assert ("STREET", "CITY", "STATE", "ZIP", "join.NOTE") == rows.header[7:]


def test_a_row_without_address_or_with_two_is_refused_and_an_address_without_row_is_counted() -> (
    None
):
    addresses = places(10, random.Random(1))
    lost = [place for place in addresses if place[0] != "C00003"]
    other = ("C00004", "9 Oak Street", "Boston", "MA", "02108", "y")
    same = next(place for place in addresses if place[0] == "C00005")
    nobody = ("C99999", "9 Oak Street", "Boston", "MA", "02108", "y")
    second = places_file([*lost, other, same, nobody, ("", *nobody[1:])])

    rows = opened(cards_file(cards(10)), second, 200)
    alone = [block.alone for block in rows if block.alone is not None]
    refused = pl.concat(alone).select("row", "line", "code", "found").rows()

    assert [
        (4, 5, "join.row.missing", "no row with its CUST"),
        (5, 6, "join.row.ambiguous", "2 rows with its CUST"),
    ] == refused
    assert isinstance(rows, JoinedRows)
    assert Tally(read=13, used=11, unused=2, refused=0) == rows.tally


def test_one_customer_with_several_cards_has_the_same_address_on_each() -> None:
    own = cards(600)
    several = [("C00001", *card[1:]) for card in own]
    first, second = cards_file(several), places_file(places(2, random.Random(1)))

    rows = opened(first, second, 2_000)

    assert oracle(first, second) == whole(list(rows))


@pytest.mark.parametrize(
    ("first", "second", "error", "problem"),
    [
        (cards_file(cards(2)), b"", JoinFileError, "places-1.csv is empty"),
        (cards_file(cards(2)), places_file([]), JoinFileError, "has no row"),
        (cards_file(cards(2)), b"A,B,C\n1,2,3\n", MappingError, "has no column NO"),
        (b"A;B;C\n1;2;3\n", places_file([]), MappingError, "it has no column CUST"),
        (*pair_of(2)[:1], pair_of(2)[1][:-9], CardlinkError, "places-1.csv is truncated"),
    ],
)
def test_two_files_that_cannot_be_joined_are_refused_as_a_whole(
    first: bytes, second: bytes, error: type[CardlinkError], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        list(opened(first, second))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"pattern": "*.*"}, "needs one `\\*`"),
        ({"join": two_files.JOIN | {"pattern": "places.csv"}}, "needs one `\\*`"),
        ({"join": two_files.JOIN | {"pattern": "cards-*.csv"}}, "different patterns"),
        ({"join": two_files.JOIN | {"other_key": ["A", "B"]}}, "as many columns as key"),
        ({"join": two_files.JOIN | {"record_format": "F"}}, "needs record_length"),
    ],
)
def test_settings_that_name_no_two_files_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FormatSettings.model_validate(two_files.SOURCE | changes)


def test_what_waits_on_disk_is_in_a_file_without_name_and_cannot_be_read_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    frame = pl.DataFrame({"CARD": ["4000000000000002"] * 1000, "NAME": ["Smith"] * 1000})
    spill = Spill()

    spill.put(0, frame)

    spill._file.seek(0)
    stored = spill._file.read()
    assert [] == list(tmp_path.iterdir())
    assert not any(text in stored for text in (b"40000000", b"Smith", b"CARD"))
    assert [True] == [frame.equals(taken) for taken in spill.take(0)]
    spill.close()


def test_a_folder_for_temporary_files_that_takes_none_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")

    with pytest.raises(SpillError, match=r"No such file or directory.*TMPDIR"):
        Spill()


@pytest.mark.slow
def test_five_hundred_mutations_of_two_files_are_joined_as_the_oracle_joins_them() -> None:
    chance = random.Random(36)
    letters = "C0139 ;,x\n"
    differences = []
    for number in range(500):
        files = list(pair_of(30, seed=number))
        place = chance.randrange(2)
        victim = bytearray(files[place])
        start = victim.index(b"\n") + 1
        for _ in range(chance.choice([1, 1, 2, 5])):
            victim[chance.randrange(start, len(victim) - 1)] = ord(chance.choice(letters))
        files[place] = bytes(victim)
        block = chance.choice([150, 700, 1 << 20])
        try:
            said = whole(list(opened(files[0], files[1], block)))
        except CardlinkError:
            continue  # refused as a whole
        if said != oracle(*files):
            differences.append(number)

    assert [] == differences
