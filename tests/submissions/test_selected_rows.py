"""Selected rows, of which a block may have few, go along the route together."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from flows.submissions import rows as route
from flows.submissions.rejected_cells import NO_TEXTS
from flows.submissions.rows import Normalised, together


def block(*numbers: int, lost: Sequence[str] = ()) -> Normalised:
    """Return a block with these rows, each of which is refused and known too."""
    rows = pl.DataFrame({"row": numbers}, {"row": pl.UInt32})
    return Normalised(rows, rows, rows, NO_TEXTS, frozenset(lost))


def test_blocks_are_joined_in_order_until_they_have_enough_rows_and_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route, "TOGETHER", 3)
    blocks = [block(1), block(), block(4, 5), block(6, lost=["last_name"])]

    [first, last] = together(iter(blocks))

    for frame in (first.rows, first.unread, first.known, first.texts.rows):
        assert [1, 4, 5] == frame["row"].to_list()
    assert ([6], frozenset(["last_name"])) == (last.rows["row"].to_list(), last.lost)
