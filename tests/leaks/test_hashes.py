"""Nothing kept is a function of a card number: not even a hash of a text that echoes one."""

from __future__ import annotations

from datetime import date

import polars as pl
import pytest

from flows.results.links import LinkRules
from schemas.expressions import PUBLISHED
from tests.builders import quick
from tests.leaks.echoes import HEAD, WAYS, echo, result_csv
from tests.results.outcomes import attribute, read_result

SENT = pl.DataFrame(
    [("bank-20261120-00000000", 1, "c-1", "4242", 1, 1)],
    schema={
        "run": pl.String,
        "row": pl.UInt32,
        "cuid": pl.String,
        "last_4": pl.String,
        "chunk": pl.UInt32,
        "position": pl.UInt16,
    },
    orient="row",
)


@pytest.mark.parametrize("way", [way for way in WAYS if "hash" not in way])
@pytest.mark.parametrize("place", quick(1, range(len(HEAD))[::-1]))
def test_results_that_differ_in_an_echoed_card_only_leave_the_same_outcome(
    way: str, place: int
) -> None:
    def outcome(card: str) -> pl.DataFrame:
        cells = ["c-1", "", "", "", ""]
        cells[place] = echo(way, card, "731")
        return attribute(
            read_result(result_csv([tuple(cells)]), "r.csv", date(2026, 11, 20)),
            SENT,
            LinkRules(["links.example.com"]),
        ).outcomes

    first, second = (outcome(card[:12] + "4242") for card in PUBLISHED[:2])

    assert first.equals(second)
