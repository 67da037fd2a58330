"""`cardlink cardholders`: the balance over people, and the book made anew."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import update

from flows.commands.cardholders import cardholders, coverage_lines
from flows.commands.context import Context
from flows.wiring import open_database
from schemas.database import ATTEMPT
from tests.cli.test_reconcile import bank


def test_every_cardholder_ever_named_is_in_one_state(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    bench.answer(fail_share=0.2)
    bench.ingest()

    (facts,) = cardholders(Context(tmp_path), "bank").facts["issuers"]

    assert (20, 20) == (facts["named"], sum(facts["people"].values()))
    assert 20 - facts["people"]["linked"] == sum(facts["waits"].values())
    assert facts["sentence"].startswith(f"{facts['people']['linked']} of 20 cardholders have")


def test_a_book_that_was_right_is_made_anew_and_says_the_same(tmp_path: Path) -> None:
    bank(tmp_path)

    lines = cardholders(Context(tmp_path), "bank", rebuild=True).lines

    assert "it says the same as before" in lines[0]


def forge(folder: Path) -> None:
    """Make the book in the database say that everybody is linked."""
    linked = update(ATTEMPT).values(state="linked")
    open_database(folder).act("bank", lambda connection: connection.execute(linked).close())


def test_a_book_that_was_wrong_is_right_after_a_rebuild_which_says_so(tmp_path: Path) -> None:
    bank(tmp_path)
    cardholders(Context(tmp_path), "bank")
    forge(tmp_path)
    before = cardholders(Context(tmp_path), "bank").facts["issuers"][0]

    lines = cardholders(Context(tmp_path), "bank", rebuild=True).lines

    after = cardholders(Context(tmp_path), "bank").facts["issuers"][0]
    assert "IT HAD BEEN WRONG" in lines[0]
    assert (20, 0) == (
        before["people"]["expired"] + before["people"]["linked"],
        after["people"]["linked"],
    )


def test_how_far_links_came_is_said_with_who_knows_it_and_of_how_many() -> None:
    coverage = {
        "links": 70,
        "opened": {"cards": 50, "known_by": {"service": 60, "transaction reports": 4}},
        "authenticated": {"cards": 0, "known_by": {}},
        "placed": {"cards": 20, "known_by": {"service": 60}},
        "failed": {"PROCESS_FAILURE": 3},
    }

    assert [
        "opened: 50 of 64 known (service 60, transaction reports 4), of 70 with a link",
        "placed: 20 of 60 known (service 60), of 70 with a link",
        "failed, of those of whom it is known whether they are placed: PROCESS_FAILURE 3",
    ] == list(coverage_lines(coverage))
