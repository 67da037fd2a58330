"""init finds the second file of an extract by its name, and proves its key by all rows of both."""

from __future__ import annotations

import random
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows.cli.main import main
from flows.extensions.init.draft import Draft, first_draft
from flows.extensions.init.second_file import with_second_file
from tests.extensions.formats.two_files import cards, cards_file, places, places_file

NAMES = [
    ("cards-20261120.csv", "addresses-20261120.csv", "cards-*.csv", "addresses-*.csv"),
    ("2026-11-20_C.txt", "2026-11-20_A.txt", "*_C.txt", "*_A.txt"),
    ("cards.csv", "places.csv", "cards*.csv", "places*.csv"),
]


def drafted(folder: Path, name: str) -> Draft:
    with (folder / name).open("rb") as stream:
        draft = first_draft(stream, name, date(2026, 7, 1))
    return with_second_file(draft, folder / name, lambda file: file.open("rb"))


def source(draft: Draft) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads(draft.toml)["source"]
    return settings


def drop(folder: Path, first: str, second: str, *, lacking: int = 0, strange: int = 0) -> None:
    """Write a pair of files; `lacking`: rows without address, `strange`: addresses of nobody."""
    count = 60
    own = places(count, random.Random(1))
    others = [(f"X{number}", *own[0][1:]) for number in range(strange)]
    (folder / first).write_bytes(cards_file(cards(count)))
    (folder / second).write_bytes(places_file([*own[lacking:], *others]))


@pytest.mark.parametrize(("first", "second", "pattern", "other_pattern"), NAMES)
def test_a_second_file_is_proposed_with_its_key_as_a_doubt(
    tmp_path: Path, first: str, second: str, pattern: str, other_pattern: str
) -> None:
    drop(tmp_path, first, second)

    draft = drafted(tmp_path, first)

    join = {"pattern": other_pattern, "key": ["CUST"], "other_key": ["NO"]}
    assert (pattern, join) == (source(draft)["pattern"], source(draft)["join"])
    assert ["join"] == [doubt.key for doubt in draft.doubts]
    assert "STREET" == tomllib.loads(draft.toml)["columns"]["service_card.address.address1"]


@pytest.mark.parametrize(("lacking", "strange"), [(0, 0), (7, 0), (3, 5), (29, 11)])
def test_the_question_has_what_all_rows_of_both_files_say(
    tmp_path: Path, lacking: int, strange: int
) -> None:
    drop(tmp_path, *NAMES[0][:2], lacking=lacking, strange=strange)

    [doubt] = drafted(tmp_path, NAMES[0][0]).doubts

    rows = f"{60 - lacking} of 60 rows have one row there by CUST = NO"
    assert f"{rows}, and {strange} of its rows belong to none" in doubt.question


@pytest.mark.parametrize(
    ("second", "lacking"),
    [("addresses-20261120.csv", 31), ("addresses-20261119.csv", 0), ("addresses-20261120.dat", 0)],
)
def test_a_file_of_other_keys_another_day_or_another_kind_is_none(
    tmp_path: Path, second: str, lacking: int
) -> None:
    drop(tmp_path, "cards-20261120.csv", second, lacking=lacking)

    assert "join" not in source(drafted(tmp_path, "cards-20261120.csv"))


def test_a_file_that_has_no_address_either_is_none_and_a_whole_extract_needs_none(
    tmp_path: Path,
) -> None:
    drop(tmp_path, "cards-20261120.csv", "addresses-20261120.csv")
    (tmp_path / "addresses-20261120.csv").write_bytes(cards_file(cards(60)))

    assert "join" not in source(drafted(tmp_path, "cards-20261120.csv"))


def test_where_a_person_says_that_it_is_none_the_draft_is_that_of_the_extract_alone(
    tmp_path: Path,
) -> None:
    drop(tmp_path, "cards-20261120.csv", "addresses-20261120.csv")
    draft = drafted(tmp_path, "cards-20261120.csv")

    alone = draft.answered(draft.doubts[0], "")

    assert "join" not in source(alone)
    assert "*" == source(alone)["pattern"]


def test_init_checks_every_row_of_both_files(tmp_path: Path) -> None:
    drop(tmp_path, "cards-20261120.csv", "addresses-20261120.csv", lacking=1, strange=2)

    done = CliRunner().invoke(
        main,
        ["--config", str(tmp_path), "init", "bank", "--from", str(tmp_path / "cards-20261120.csv")],
    )

    assert "59 of 60 rows in 1 chunk would be sent" in done.stdout
    assert "61 rows of addresses-20261120.csv: 59 joined, 2 that no row needs" in done.stdout
