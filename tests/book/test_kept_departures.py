"""Who has left, as it is kept, and which links stay as they are, in memory."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Literal

import polars as pl
import pytest

from flows.book.attempts import ATTEMPT
from flows.book.departures import DEPARTED, FOLLOWED, WholeExtract
from flows.book.head import Head
from flows.book.kept_departures import KeptDepartures
from flows.book.kept_links import KEPT, kept_links
from flows.runs.identity import canonical, digest
from flows.runs.keys import book
from flows.runs.keys import kept_links as chain
from schemas.records import KeptLink, LinkKept
from schemas.tables import parquet
from tests.memory import MemoryStore

DAY = date(2026, 11, 20)
AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def extract(day: int, turn: int) -> WholeExtract:
    return WholeExtract(day=DAY + timedelta(days=day), turn=turn, full=True)


@pytest.mark.parametrize(
    ("later", "is_last"),
    [((1, 2), False), ((2, 2), False), ((2, 3), False), ((2, 4), True), ((3, 1), True)],
)
def test_what_is_kept_of_departures_counts_where_all_later_extracts_come_after_it(
    later: tuple[int, int], is_last: bool
) -> None:
    extracts = {"r1": extract(1, 1), "r2": extract(2, 3), "r3": extract(*later)}
    kept = KeptDepartures(MemoryStore(), "bank", Head(left_runs=("r1", "r2")), extracts)

    assert is_last is kept._came_last({"r3": extracts["r3"]})


def test_who_left_by_an_extract_that_was_removed_since_has_left() -> None:
    store = MemoryStore()
    left = {"holder": "a", "last_4": "1111", "since": DAY, "closed": False}
    content = parquet(pl.DataFrame([left], DEPARTED))
    store.create(f"{book('bank')}left.parquet", content)
    head = Head(left=digest(content), left_runs=("r1", "r2"))
    attempt = {"holder": "a", "cuid": "a", "last_4": "1111", "as_of": DAY, "turn": 0}

    kept = KeptDepartures(store, "bank", head, {"r2": extract(2, 2)})

    departed = kept.read(
        pl.DataFrame([{**attempt, "run": "r0"}], {name: ATTEMPT[name] for name in FOLLOWED})
    )
    assert [("a", DAY)] == departed.select("holder", "since").rows()


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
