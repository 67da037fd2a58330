"""What the oracle of the lives knows of a row that the portal has, or has not, in its chunk."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.lives.census import Census, Fates
from tests.lives.clerk import Closed
from tests.lives.portal import ERROR, LINK, LOST, Made, Portal, Sent
from tests.lives.rows import Row

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
CHUNK = "bank-20261120-00000000-00001.csv.pgp"
ENDS = date(2027, 1, 20)
OWN = Row("a", "4242424242424242" + "3012", (CHUNK, 1))
OTHER = Row("b", "4111111111111111" + "3012", (CHUNK, 1))  # in the same place


def fates(*decisions: str, answered: bool = False) -> Fates:
    """Return what became of the rows of a chunk: the portal has OWN at its first place."""
    portal = Portal("bank", cast("Any", None), random.Random(1), lambda *_: None, lambda: NOW)
    made = Made(CHUNK, 1, OWN.cuid, OWN.number, "https://links.example.com/c/a", ENDS)
    portal.received.append(Sent(NOW.date(), made, 0))
    if answered:
        portal.plain[CHUNK, 1] = NOW
    closed = [Closed(NOW.date(), CHUNK, decision) for decision in decisions]
    life = SimpleNamespace(operator=SimpleNamespace(shelf={}, closed=closed))
    bank = SimpleNamespace(portal=portal, delivered={})
    return Fates(cast("Any", life), cast("Any", bank))


def states(known: Fates, row: Row) -> list[str]:
    """Return in which states a row may be."""
    return [state for state, _ in known.of(row)]


def test_an_answer_is_that_of_the_card_which_the_portal_has_in_that_place() -> None:
    known = fates(answered=True)

    assert [("linked", ENDS)] == known.of(OWN)
    assert ["awaiting"] == states(known, OTHER)


@pytest.mark.parametrize(
    ("decision", "of_own", "of_other"),
    [
        (LOST, ["lost"], ["lost"]),
        (LINK, ["linked"], ["awaiting", "lost"]),
        (ERROR, ["refused"], ["awaiting", "lost"]),
    ],
)
def test_a_row_that_the_portal_has_not_in_its_chunk_is_at_most_lost(
    decision: str, of_own: list[str], of_other: list[str]
) -> None:
    known = fates(decision)

    assert (of_own, of_other) == (states(known, OWN), states(known, OTHER))


def test_a_row_waits_for_the_upload_until_the_portal_has_a_chunk_of_its_name() -> None:
    elsewhere = OWN._replace(place=(CHUNK.replace("00001", "00002"), 1))

    assert ["to upload"] == states(fates(), elsewhere)


def test_a_link_that_is_not_updated_counts_as_linked_only_where_the_operator_keeps_it() -> None:
    census = Census(runs=[cast("Any", SimpleNamespace(run="bank-20261120-00000000"))])
    known = fates(answered=True)
    rows = [(0, OWN), (0, OWN._replace(place=None))]

    def kept() -> bool:
        return census.is_kept(OWN.card, rows, known, "bank")

    before = kept()
    census.note(["mend", "keep-link", "bank-20261120-00000000", "--refused"], "bank", [])
    decided = kept()
    census.keeping.clear()  # another day

    assert (False, True, True) == (before, decided, kept())
