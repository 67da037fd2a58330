"""Of several decisions about a link the last counts, in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest

from flows.book.kept_links import KEPT, kept_links
from flows.runs.adapters import Adapters
from flows.runs.decisions import LINKS, decide
from flows.runs.journal import Act, enter
from flows.runs.persons import by_person
from schemas.records import KeptLink, LinkKept
from tests.memory import MemoryStore
from tests.night import edges

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def decision(adapters: Adapters, act: Act, what: Literal["kept", "asked again"]) -> LinkKept:
    links = by_person(adapters, act, [KeptLink("a", "1111", "r1", 1, 1, "")])
    return LinkKept(what=what, links=links, at=AT, by="ann", reason="the ZIP is the same")


@pytest.mark.parametrize(
    ("decisions", "stays"),
    [(["kept"], 1), (["kept", "asked again"], 0), (["asked again", "kept"], 1)],
)
def test_of_several_decisions_about_a_link_the_last_counts(
    decisions: list[Literal["kept", "asked again"]], stays: int
) -> None:
    adapters = edges(MemoryStore())
    for each in decisions:

        def work(act: Act, what: Literal["kept", "asked again"] = each) -> int:
            return decide(act, LINKS, "", decision(adapters, act, what))

        enter(adapters, "bank", "", work)

    kept = kept_links(adapters, "bank")
    assert (stays, KEPT) == (kept.height, kept.schema)
