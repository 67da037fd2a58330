"""The scanner itself: every form of a secret, planted in every container, is found; clean things
stay clean.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random
from uuid import UUID

import polars as pl
import pytest

from tests.builders import quick
from tests.leaks.planting import CARD, FORMS, PACKS, missed, scanner, soil, with_log


@pytest.mark.parametrize("name", quick(8, list(PACKS)))
def test_every_form_is_found_in_every_container(name: str) -> None:
    assert [] == missed(PACKS[name])


@pytest.mark.parametrize("outer", quick(6, list(PACKS)))
def test_containers_are_opened_within_containers(outer: str) -> None:
    secret = b"".join(soil(form) for form in FORMS[:1])

    unseen = [
        inner
        for inner, pack in PACKS.items()
        if not scanner().scan("planted", PACKS[outer](pack(secret)))
    ]

    assert [] == unseen


def test_a_database_is_read_with_its_log() -> None:
    packed = {form.name: with_log(soil(form)) for form in FORMS}

    looking = scanner()

    assert [] == [
        name for name, (data, log) in packed.items() if not looking.scan("planted", data, log)
    ]


def test_numbers_in_tables_are_found_whatever_their_type(tmp_path: Path) -> None:
    number = int(CARD)
    frame = pl.DataFrame(
        {
            "a": [1, number],
            "b": [0.5, float(number)],
            "c": [["x"], [CARD]],
            "d": [{"e": 1}, {"e": number}],
        }
    )
    connection = sqlite3.connect(tmp_path / "a.db")
    with connection:
        connection.execute("create table kept (cell)")
        connection.execute("insert into kept values (?)", (number,))
    connection.close()
    for name in frame.columns:
        frame.select(name).write_parquet(tmp_path / f"{name}.parquet")
        frame.select(name).write_ipc(tmp_path / f"{name}.arrow", compression="zstd")

    leaks = scanner().scan_folder(tmp_path)

    found = {leak.place.partition("/")[0] for leak in leaks}
    assert {path.name for path in tmp_path.iterdir()} == found


def test_names_links_and_exceptions_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / f"{CARD}.csv").touch()
    (tmp_path / "folder 5555-5555-5555-4444").mkdir()
    (tmp_path / "link").symlink_to(f"/nowhere/{CARD}")
    error = RuntimeError("all well")
    error.__cause__ = ValueError(f"bad cell: {CARD}")

    looking = scanner()

    assert 3 == len({leak.place for leak in looking.scan_folder(tmp_path)})
    assert looking.scan_error("error", error)


def test_what_is_left_out_is_not_looked_at_and_all_else_is(tmp_path: Path) -> None:
    for folder in ("source", "kept"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "extract.csv").write_text(CARD)

    leaks = scanner().scan_folder(tmp_path, without=[tmp_path / "source"])

    assert {"kept/extract.csv"} == {leak.place for leak in leaks}


@pytest.mark.slow
def test_ids_digests_and_noise_raise_no_alarm() -> None:
    random = Random(7)
    ids = "\n".join(str(UUID(int=random.getrandbits(128))) for _ in range(20_000))
    noise = random.randbytes(2_000_000)

    looking = scanner()

    assert [] == [*looking.scan_text("ids", ids), *looking.scan("noise", noise)]
    assert looking.scanned.bytes > 2_700_000


def test_a_leak_is_told_without_showing_the_secret() -> None:
    leaks = scanner().scan_text("a log", f"refused {CARD}")

    assert {("a log", "card 1", "card, ascii")} == {(leak.place, *leak.secret) for leak in leaks}
    assert not any(CARD in repr(leak) for leak in leaks)
