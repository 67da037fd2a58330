"""Of the rows that an extract has of a card, a later one that ends it counts for those before it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from flows.book.book import read_book
from schemas import portal
from schemas.ledger import SUBMITTED
from schemas.portal import CUID, MONTH, PAN, YEAR
from schemas.reasons import DELETED, EXCLUDED
from tests.builders import GOOD
from tests.night import Bench, local_bench
from tests.sample_rows import card

CARD = GOOD[PAN]
OTHER = card(7)
STATUS = {"ACTION": {"send": ["A"], "leave_out": ["P"], "delete": ["D"]}}
Row = tuple[str, dict[str, str]]  # what it does, and how its cells differ


def night(folder: Path, *rows: Row) -> tuple[Bench, list[tuple[str, str]]]:
    """Submit an extract; return the bench, and fate and reason of each row."""
    bench = local_bench(folder, columns={name: name for name in portal.columns()}, status=STATUS)
    bench.drop_bytes(written([("A", {PAN: OTHER, CUID: "c-9"}), *rows]))
    ledger = bench.ledger(bench.submit("bank-20261120.csv").manifest.run)
    fates = ledger.select("fate", reason="reasons").rows()[1:]
    return bench, [(fate, (reasons or ["|"])[0].split("|")[1]) for fate, reasons in fates]


def written(rows: Sequence[Row]) -> bytes:
    names = portal.columns()
    lines = [",".join(["ACTION", *names])]
    for action, cells in rows:
        changed = GOOD | cells
        lines.append(",".join([action, *(changed.get(name, "") for name in names)]))
    return "\n".join([*lines, ""]).encode()


@pytest.mark.parametrize(
    ("rows", "fates"),
    [
        ([("A", {}), ("D", {})], [("suppressed", DELETED), ("suppressed", DELETED)]),
        ([("D", {}), ("A", {})], [("suppressed", DELETED), (SUBMITTED, "")]),
        ([("A", {}), ("P", {})], [("suppressed", EXCLUDED), ("suppressed", EXCLUDED)]),
        (
            [("A", {}), ("P", {}), ("D", {})],
            [("suppressed", DELETED), ("suppressed", EXCLUDED), ("suppressed", DELETED)],
        ),
        (
            [("A", {}), ("D", {}), ("A", {})],
            [("suppressed", DELETED), ("suppressed", DELETED), (SUBMITTED, "")],
        ),
        (
            [("A", {}), ("D", {MONTH: "", YEAR: "", PAN: "4242 4242 4242 4242"})],
            [("suppressed", DELETED), ("suppressed", DELETED)],
        ),
        # another issue of the card, another cardholder, and another card
        ([("A", {}), ("D", {YEAR: "26"})], [(SUBMITTED, ""), ("suppressed", DELETED)]),
        ([("A", {}), ("D", {CUID: "c-2"})], [(SUBMITTED, ""), ("suppressed", DELETED)]),
        ([("A", {}), ("D", {PAN: OTHER})], [(SUBMITTED, ""), ("suppressed", DELETED)]),
    ],
)
def test_a_later_row_that_ends_the_card_counts_for_the_rows_before_it(
    tmp_path: Path, rows: list[Row], fates: list[tuple[str, str]]
) -> None:
    _, found = night(tmp_path, *rows)

    assert fates == found


@pytest.mark.slow
def test_a_card_that_is_named_and_then_deleted_has_left(tmp_path: Path) -> None:
    bench, _ = night(tmp_path, ("A", {}))
    bench.answer()
    bench.ingest()

    bench.drop_bytes(written([("A", {}), ("D", {})]), "bank-20261121.csv")
    bench.submit("bank-20261121.csv")

    departed = read_book(bench.context.adapters, bench.issuer.issuer).departed
    assert [(GOOD[CUID], CARD[-4:], True)] == departed.select("holder", "last_4", "closed").rows()
