"""A night of record types in one file: rows are sent with their parts, and orphans are rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from tests.extensions.formats import two_files
from tests.night import local_bench

SOURCE: dict[str, Any] = {
    "header_rows": 0,
    "segment_field": "TYPE",
    "segments": {
        "01": ["TYPE", *two_files.CARDS],
        "02": ["TYPE", "STREET", "CITY", "STATE", "ZIP"],
    },
}


@pytest.mark.slow
def test_rows_are_sent_with_their_parts_and_an_orphan_is_a_reject_in_the_balance(
    tmp_path: Path,
) -> None:
    limits = {"max_reject_rate": 0.2}
    bench = local_bench(tmp_path, source=SOURCE, columns=two_files.COLUMNS, limits=limits)
    pairs = [
        f"01,{','.join(card)}\n02,{number} Elm Street,Boston,MA,02108\n"
        for number, card in enumerate(two_files.cards(10), 1)
    ]
    content = "02,9 Oak Street,Boston,MA,02108\n" + "".join(pairs)

    bench.drop_bytes(content.encode(), "cards-20261120.csv")
    checked = rehearse(bench.context, Request("cards-20261120.csv"))

    assert (11, 10, 1) == (checked.counts.read, checked.counts.submitted, checked.counts.rejected)
    assert ("segment.order.orphan", 1, (1,)) in checked.found
    assert 21 == checked.counts.lines
