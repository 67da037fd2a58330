"""What an operator decided about a break: which rows it covers, and which of two decisions counts."""

from __future__ import annotations

from typing import Any

import pytest

from flows.results.decisions import SHOWN, decided_rows, sort_breaks
from flows.runs.closings import ROWS
from schemas.breaks import CONFLICTING_RESULT, ERROR, LAST4_MISMATCH, LINK, Break
from schemas.records import Closing
from tests.night import NOON


def closing(name: str, by: str, **more: Any) -> Closing:
    return Closing(what="closed", name=name, place="", at=NOON, by=by, reason="they said", **more)


def test_of_two_decisions_about_a_row_the_later_one_counts_and_another_kind_has_its_own() -> None:
    decided = decided_rows(
        [
            closing(CONFLICTING_RESULT, "first", decision=LINK, covers=(1, 2)),
            closing(LAST4_MISMATCH, "other", decision=LINK, covers=(2,)),
            closing(CONFLICTING_RESULT, "last", decision=ERROR, covers=(2, 3)),
        ]
    )

    named = decided.select("kind", "row", "decision").rows()
    counting = {(kind, row): decision for kind, row, decision in named}
    assert {
        (CONFLICTING_RESULT, 1): LINK,
        (CONFLICTING_RESULT, 2): ERROR,
        (CONFLICTING_RESULT, 3): ERROR,
        (LAST4_MISMATCH, 2): LINK,
    } == counting


@pytest.mark.parametrize(("rows", "is_covered"), [(SHOWN, False), (SHOWN + 1, True)])
def test_a_closing_of_more_rows_than_a_place_shows_covers_as_many_whichever_they_are(
    rows: int, is_covered: bool
) -> None:
    first, others = (f"chunk 7{ROWS}{', '.join(map(str, range(at, at + SHOWN)))}" for at in (1, 2))
    closed = closing(LAST4_MISMATCH, "x", rows=rows).model_copy(update={"place": first})

    _, covered = sort_breaks([Break(LAST4_MISMATCH, rows, others, "")], [closed])

    assert is_covered == bool(covered)
