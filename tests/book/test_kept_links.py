"""Of several decisions about a link the last counts, in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest

from flows.book.kept_links import KEPT, kept_links
from flows.runs.identity import canonical
from flows.runs.keys import kept_links as chain
from schemas.records import KeptLink, LinkKept
from tests.memory import MemoryStore

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def decision(what: Literal["kept", "asked again"]) -> LinkKept:
    links = (KeptLink("a", "1111", "r1", 1, 1, ""),)
    return LinkKept(what=what, links=links, at=AT, by="ann", reason="the ZIP is the same")


@pytest.mark.parametrize(
    ("decisions", "stays"),
    [(["kept"], 1), (["kept", "asked again"], 0), (["asked again", "kept"], 1)],
)
def test_of_several_decisions_about_a_link_the_last_counts(
    decisions: list[Literal["kept", "asked again"]], stays: int
) -> None:
    store = MemoryStore()
    for number, what in enumerate(decisions, start=1):
        store.create(f"{chain('bank')}{number:06d}.json", canonical(decision(what)))

    assert (stays, KEPT) == (kept_links(store, "bank").height, kept_links(store, "bank").schema)
