"""init finds record types in one file, and how they belong together, proven by all records."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Sequence
from datetime import date
from io import BytesIO
from typing import Any

import pytest

from flows.extensions.init.draft import Draft
from flows.extensions.init.record_types import typed_draft
from flows.extracts.rows import open_rows
from schemas.issuer import source_settings
from tests.builders import quick
from tests.extensions.formats.mainframe import card_number
from tests.extensions.formats.test_keyed_types import Record, bank, delimited, fixed
from tests.extracts.hard_exports import thirty
from tests.extracts.usual_exports import seven

DAY = date(2026, 7, 1)
WRITERS = {"delimited": delimited, "fixed": fixed}


def by_person(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record[1], record[0]))


def by_type(records: Sequence[Record]) -> list[Record]:
    return sorted(records)


ARRANGED: dict[str, Callable[[Sequence[Record]], list[Record]]] = {
    "shuffled": list,
    "by person": by_person,
    "by type": by_type,
}


def drafted(content: bytes) -> Draft:
    draft = typed_draft(BytesIO(content), "cards.txt", DAY)
    assert draft is not None
    return draft


def source(draft: Draft) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads(draft.toml)["source"]
    return settings


def whole_rows(content: bytes, settings: dict[str, Any]) -> int:
    rows = open_rows(BytesIO(content), source_settings().model_validate(settings), "cards.txt")
    return sum(block.rows.height for block in rows)


@pytest.mark.parametrize("layout", WRITERS)
@pytest.mark.parametrize("arranged", quick(1, list(ARRANGED)))
@pytest.mark.parametrize("seed", quick(1, [1, 2]))
def test_types_with_a_key_are_joined_by_it_as_a_doubt_and_all_rows_are_whole(
    layout: str, arranged: str, seed: int
) -> None:
    content = WRITERS[layout](ARRANGED[arranged](bank(60, random.Random(seed))))

    draft = drafted(content)

    settings = source(draft)
    assert ("01", ["03"]) == (settings["segment_row"], settings["segment_optional"])
    assert "segment_key" == draft.doubts[0].key
    assert "60 of 60 rows are whole so" in draft.doubts[0].question
    assert 60 == whole_rows(content, settings)


@pytest.mark.parametrize("layout", WRITERS)
def test_types_without_a_key_are_joined_by_their_order(layout: str) -> None:
    records = [
        (kind, cust if kind == "01" else " ", *cells)
        for kind, cust, *cells in by_person(bank(60, random.Random(1)))
    ]
    content = WRITERS[layout](records)

    settings = source(drafted(content))

    assert "segment_key" not in settings
    assert 60 == whole_rows(content, settings)


def test_where_a_person_says_that_no_key_joins_them_they_are_joined_by_order() -> None:
    draft = drafted(delimited(by_person(bank(60, random.Random(1)))))

    by_order = draft.answered(draft.doubts[0], "")

    assert "segment_key" not in source(by_order)


@pytest.mark.slow
@pytest.mark.parametrize("counts", ["rows", "records"])
def test_header_and_trailer_are_told_from_the_records(counts: str) -> None:
    records = bank(60, random.Random(1))
    number = {"rows": 60, "records": len(records)}[counts]
    content = b"00|CARDS\n" + delimited(records) + f"99|{number:06d}\n".encode()

    settings = source(drafted(content))

    assert ("00|", counts) == (settings["comment"], settings["trailer_counts"])
    assert 60 == whole_rows(content, settings)


def test_parts_may_be_keyed_by_the_card_number_itself() -> None:
    chance = random.Random(1)
    records: list[Record] = [("C", card_number(n), "1236", "ANN") for n in range(60)]
    records += [("A", card_number(n), f"{n} ELM STREET") for n in range(60)]
    chance.shuffle(records)
    content = delimited(records)

    settings = source(drafted(content))

    assert ("C", "column_2") == (settings["segment_row"], settings["segment_key"])
    assert 60 == whole_rows(content, settings)


def test_numbers_that_adjoin_in_fixed_columns_are_no_cards() -> None:
    cards = [f"10{n:09d}{card_number(n)}1236ANN    ".ljust(60) for n in range(60)]
    places = [f"20{n:09d}{1000 + n} ELM STREET".ljust(60) for n in range(60)]
    random.Random(1).shuffle(places)
    content = "".join(f"{line}\n" for line in [*cards, *places]).encode()

    settings = source(drafted(content))

    assert ("10", "at_3_11") == (settings["segment_row"], settings["segment_key"])
    assert 60 == whole_rows(content, settings)


EXPORTS = {**seven(), **thirty()}


@pytest.mark.parametrize("name", EXPORTS)
def test_an_extract_of_one_type_has_no_types(name: str) -> None:
    assert typed_draft(BytesIO(EXPORTS[name].content), "export.csv", DAY) is None
