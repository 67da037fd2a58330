"""A night of an extract that says which rows count: what is sent, and where the others go."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.submissions.gates import UnknownStatusError
from schemas.portal import CUID, NICKNAME, PAN
from schemas.reasons import DELETED, EXCLUDED, UNKNOWN_STATUS
from tests.builders import portal_rows
from tests.night import Bench, local_bench, portal_csv

CARDS = ("4242424242424242", "4111111111111111", "5555555555554444", "2223003122003222")
STATUS = {NICKNAME: {"send": ["A", ""], "leave_out": "P", "delete": "C"}}


def bench_with(folder: Path, *statuses: str) -> tuple[Bench, str]:
    """Return a bench, and an extract with a card of each of these statuses."""
    bench = local_bench(folder, status=STATUS)
    rows = [{PAN: card, NICKNAME: status} for card, status in zip(CARDS, statuses, strict=False)]
    return bench, bench.drop_bytes(portal_csv(portal_rows(*rows)))


def test_every_row_has_its_fate_with_its_reason_in_the_ledger_and_only_those_sent_in_a_chunk(
    tmp_path: Path,
) -> None:
    bench, extract = bench_with(tmp_path, "A", "P", "C", "")

    manifest = bench.submit(extract).manifest

    ledger = bench.ledger(manifest.run)
    [chunk] = bench.chunks(manifest.run)
    counts = manifest.counts
    assert ["submitted", "suppressed", "suppressed", "submitted"] == ledger["fate"].to_list()
    assert [[], [f"|{EXCLUDED}"], [f"|{DELETED}"], []] == [
        [reason for reason in reasons if not reason.startswith(NICKNAME)]
        for reasons in ledger["reasons"].to_list()
    ]
    assert (4, 2, 2) == (counts.read, counts.submitted, counts.suppressed)
    assert not any(card.encode() in chunk for card in CARDS[1:3])
    assert ["c-1", "c-2", "c-3", "c-4"] == ledger[CUID.replace("cardholder.", "")].to_list()


def test_a_status_that_nobody_named_refuses_the_extract_with_the_count_of_each_value(
    tmp_path: Path,
) -> None:
    bench, extract = bench_with(tmp_path, "A", "Z", "Smith", "Z")

    with pytest.raises(UnknownStatusError) as refused:
        bench.submit(extract)
    counts = bench.submit(extract, opened=["unknown-status", "reject-rate"]).manifest.counts

    text = str(refused.value)
    assert f"3 of 4 rows have a status that [status] does not name: {NICKNAME} AAAAA" in text
    assert f"{NICKNAME} Z: 2" in text
    assert "Smith" not in text
    assert (1, 3) == (counts.submitted, counts.rejected)


def test_rejected_one_by_one_they_stop_no_night(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, status={NICKNAME: {"send": "A", "unknown": "reject"}})
    marks = zip(CARDS, "AAZ", strict=False)
    rows = portal_rows(*({PAN: card, NICKNAME: mark} for card, mark in marks))

    manifest = bench.submit(bench.drop_bytes(portal_csv(rows))).manifest

    assert 1 == manifest.reasons[UNKNOWN_STATUS]
    assert (2, 1) == (manifest.counts.submitted, manifest.counts.rejected)
