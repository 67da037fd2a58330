"""What a receiver of links has, or may have, of the deliveries to it."""

from __future__ import annotations

from datetime import date

import polars as pl
import pytest

from flows.book.stored_book import insert_rows
from flows.extensions.deliveries.delivered import CHANGE, line_of
from flows.extensions.deliveries.formats import Delivery
from flows.extensions.deliveries.handover import DONE, make, note
from flows.extensions.deliveries.receipts import newest_receipt
from flows.extensions.deliveries.receivers import confirm, delivered_so_far
from flows.extensions.deliveries.settings import DEFAULT, PLAIN
from flows.extensions.deliveries.tables import DELIVERY_CHANGE
from flows.runs.journal import Act, enter
from flows.runs.store import StoreBusyError
from tests.extensions.deliveries.test_neighbours import delivered
from tests.memory import MemoryStore
from tests.memory_bench import memory_bench
from tests.night import BANK, NOON
from tests.storms import FailingStore

COUNTS = dict.fromkeys(("new", "replaced", "withdrawn", "living"), 0)


def test_what_a_superseded_delivery_added_and_its_successor_does_not_know_may_be_there() -> None:
    bench = memory_bench()
    line = line_of(BANK, DEFAULT)
    made = [(1, 0, "b"), (2, 0, "a"), (3, 2, "c")]
    link = {"receiver": DEFAULT, "change": "new", "until": date(2027, 1, 20)}

    def work(act: Act) -> None:
        for number, after, cuid in made:
            record = Delivery(at=NOON, by="ann", files={}, after=after, **COUNTS)
            make(act, line, number, record, tries=0)
            row = pl.DataFrame([{**link, "delivery": number, "cuid": cuid, "link": number}], CHANGE)
            rows = row.drop("at").with_row_index("place")
            insert_rows(act.connection, DELIVERY_CHANGE, BANK, rows)

    enter(bench.adapters, BANK, "delivery made", work)
    for number, *_ in made:
        note(bench.adapters, line, number, DONE)
    confirm(bench.context, 2, "receipt")

    books = delivered_so_far(bench.context, DEFAULT)

    frames = (books.delivered, books.unconfirmed, books.later)
    assert (3, 2) == (books.last.number if books.last else 0, books.base)
    assert [["a"], ["a", "b", "c"], ["c"]] == [sorted(frame["cuid"]) for frame in frames]


def test_a_place_of_receipts_that_cannot_be_read_has_none_and_a_store_that_cannot_be_is_an_error() -> (
    None
):
    busy = FailingStore(MemoryStore(), lambda *_: StoreBusyError(place="x", code="503"))
    bench = memory_bench()
    sent = [delivered(bench, DEFAULT)]
    line = line_of(BANK, DEFAULT)
    elsewhere = PLAIN.model_copy(update={"to": "away"})
    away = bench.context._replace(place_of=lambda _: busy)
    broken = bench.context._replace(adapters=bench.adapters._replace(store=busy))

    assert (0, ()) == newest_receipt(away, line, elsewhere, sent)
    with pytest.raises(StoreBusyError):
        newest_receipt(broken, line, PLAIN, sent)
