"""What a receiver of links has, or may have, of the deliveries to it."""

from __future__ import annotations

from datetime import date

import polars as pl
import pytest

from flows.book.deliveries import CHANGE, Deliveries, KnownDelivery
from flows.operations import delivered_so_far as module
from flows.runs.delivered import CONFIRMED, delivery_folder
from flows.runs.identity import canonical
from flows.runs.store import StoreBusyError
from schemas.handover import DEFAULT
from schemas.records import Confirmed
from tests.memory import MemoryStore
from tests.memory_bench import memory_bench
from tests.night import NOON
from tests.storms import FailingStore


def test_what_a_superseded_delivery_added_and_its_successor_does_not_know_may_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    links = [(1, "b"), (2, "a"), (3, "c")]
    rows = [
        {"receiver": DEFAULT, "delivery": number, "cuid": cuid, "link": number, "change": "new"}
        | {"until": date(2027, 1, 20)}
        for number, cuid in links
    ]
    after = {1: 0, 2: 0, 3: 2}
    deliveries = [
        KnownDelivery(receiver=DEFAULT, number=number, objects="", after=after[number])
        for number, _ in links
    ]
    known = Deliveries({each.id: each for each in deliveries}, pl.DataFrame(rows, CHANGE))
    monkeypatch.setattr(module, "last_delivery", lambda *_: (3, None))
    monkeypatch.setattr(module, "with_chain", lambda *given: given[-1])
    confirmed = Confirmed(at=NOON, by="ann", reason="receipt")
    bench.store.create(delivery_folder("bank", 2, DEFAULT) + CONFIRMED, canonical(confirmed))

    books = module.delivered_so_far(bench.context, DEFAULT, known)

    frames = (books.delivered, books.unconfirmed, books.later)
    assert (3, 2) == (books.newest, books.base)
    assert [["a"], ["a", "b", "c"], ["c"]] == [sorted(frame["cuid"]) for frame in frames]


def test_a_place_of_receipts_that_cannot_be_read_has_none_and_a_store_that_cannot_be_is_an_error() -> (
    None
):
    busy = FailingStore(MemoryStore(), lambda *_: StoreBusyError(place="x", code="503"))
    receipts = object.__new__(module._Receipts)
    receipts._issuer, receipts._receiver = "bank", DEFAULT
    receipts._store, receipts._place = MemoryStore(), busy

    assert receipts.digests(1) is None
    receipts._store = busy
    with pytest.raises(StoreBusyError):
        receipts.digests(1)
