"""Rules of time and of precedence of what is handed over: the moment itself and its neighbours."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.book.standing import NAMES
from flows.extensions.deliveries import (
    acknowledged_rows,
    acknowledgement,
    handover,
    matters,
    reaching,
    receipts,
)
from flows.extensions.deliveries.acknowledgement import acknowledgements_to
from flows.extensions.deliveries.delivered import (
    DeliveryId,
    delivered_links_key,
    delivery_folder,
    line_of,
)
from flows.extensions.deliveries.due import Due, _of_dismissed
from flows.extensions.deliveries.formats import REFUSED, Acknowledgement, Delivery
from flows.extensions.deliveries.handover import (
    DONE,
    FIRST_WAIT,
    LONGEST_WAIT,
    Handed,
    Trouble,
    make,
    note,
)
from flows.extensions.deliveries.receipts import late_receipt
from flows.extensions.deliveries.receivers import confirm
from flows.extensions.deliveries.settings import acknowledging, settings_of
from flows.extensions.deliveries.webhook import Answer
from flows.runs.journal import enter
from flows.runs.store import Entry
from flows.submissions.extract_states import ExtractState
from schemas.records import Dismissal
from tests.memory import MemoryStore
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import BANK, NOON

SECOND = timedelta(seconds=1)
MOMENTS = (NOON - SECOND, NOON, NOON + SECOND)
AROUND = (-1, 0, 1)


def test_reasons_are_told_the_most_frequent_first_and_of_equal_ones_by_name() -> None:
    names = ["reason", "source", "wrong", "expected", "action"]
    rows = [(code, None, "is empty", "a city", "fix") for code in "cbbad"]
    frame = pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")

    totals = acknowledged_rows.reason_totals([frame.with_columns(status=pl.lit(REFUSED))])

    assert [("b", 2), ("a", 1), ("c", 1), ("d", 1)] == [(each.reason, each.rows) for each in totals]


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_cards_that_look_the_same_the_worse_one_is_told(order: int) -> None:
    states = NAMES.categories[[0, -1]].to_list()[::order]
    twins = {"holder": "a", "last_4": "1111", "standing": states, "until": None}

    told = acknowledged_rows._by_look(pl.DataFrame(twins))

    assert [NAMES.categories[0]] == told["standing"].to_list()


def test_the_newest_receipt_is_taken_and_its_first_reason_stays() -> None:
    bench = memory_bench(acknowledgement={})
    line = acknowledgements_to(BANK)
    facts: dict[str, Any] = {"run": "", "extract": "x", "sha256": "", "status": "PEND", "rows": {}}
    for number in (1, 2, 3):
        files = {"x.json": f"{number}" * 64}
        record = Acknowledgement(at=NOON, by="anna", files=files, **facts)
        values: Any = {
            "line": line,
            "number": number,
            "record": record,
            "subject": "x",
            "says": None,
        }
        enter(bench.adapters, BANK, "made", partial(make, **values))
        note(bench.adapters, line, number, DONE)
        receipt = files["x.json"].replace("3", "4").encode()
        bench.store.create(f"{line.folder(number)}received", receipt)

    numbers = [acknowledgement.take_receipts(bench.context)]
    reasons = [acknowledgement.confirm(bench.context, 2, "another").reason]

    assert ([2], ["receipt of the issuer"]) == (numbers, reasons)


def test_the_issuer_is_not_told_of_what_was_known_before_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    due = Due("run-1", "says", lambda: cast(Any, None), NOON)
    monkeypatch.setattr(acknowledgement, "still_open", lambda *_: [due])

    late = [acknowledgement.not_told(memory_bench().context, moment) for moment in MOMENTS]

    assert [[], [], ["run-1"]] == late


def test_an_extract_is_dismissed_since_it_was_last() -> None:
    records = [
        Dismissal(at=moment, by="anna", reason="wrong", what="dismissed", key="x.csv", size=1)
        for moment in MOMENTS
    ]
    entry = Entry("bank/extracts/x.csv", 1, NOON, "v1")
    extract = ExtractState(entry.key, "dismissed", "1", entry=entry, dismissals=tuple(records))

    due = _of_dismissed(memory_bench().context, extract)

    assert due is not None
    assert MOMENTS[-1] == due.since


def delivered(bench: MemoryBench, receiver: str = "core", **columns: Any) -> Handed[Delivery]:
    """Make a delivery that is complete; `columns`: what else its row has."""
    line = line_of(BANK, receiver)
    counts = dict.fromkeys(("after", "new", "replaced", "withdrawn", "living"), 0)
    files = {"links.csv": "1", "links.json": "2"}
    record = Delivery(at=NOON - timedelta(hours=24), by="anna", files=files, **counts)
    values = {"tries": 0, **columns}
    enter(bench.adapters, BANK, "made", lambda act: make(act, line, 1, record, **values))
    return note(bench.adapters, line, 1, DONE)


def test_a_receiver_is_tried_again_from_the_moment_on_that_was_noted() -> None:
    trouble = Trouble(1, "away", NOON, NOON, not_before=NOON)
    problems = []
    for moment in MOMENTS:
        bench = receiving(moment)
        delivered(bench, **trouble._asdict())
        problems.append(reaching.hand_over(bench.context, "core", at_once=False))

    assert ["away", "", ""] == problems


def test_a_receipt_is_late_from_the_end_of_its_hours_on() -> None:
    late = []
    for moment in MOMENTS:
        bench = receiving(moment)
        delivered(bench)
        settings = settings_of(bench.issuer, "core")
        late.append(late_receipt(bench.context, line_of(BANK, "core"), settings, moment))

    assert [None, 1, 1] == [each and each.last for each in late]


def receiving(now: datetime) -> MemoryBench:
    """Return a bench with a receiver that has a day to confirm."""
    receiver = {"receipt_within_hours": 24, "webhook": "https://core.example/links"}
    return memory_bench(lambda: now, deliveries={"core": receiver})


@pytest.mark.parametrize(("stored", "is_complete"), [("links.csv", False), ("links.json", True)])
def test_a_delivery_is_handed_over_while_the_last_of_its_files_is_there(
    stored: str, is_complete: bool
) -> None:
    bench = memory_bench(deliveries={"default": {"prefect_event": True}})
    delivery = delivered(bench, "default")
    bench.store.create(delivery_folder(BANK, 1) + stored, b"x")
    posted = Answer(is_taken=False, problem="posted")
    line = line_of(BANK, "default")
    settings = settings_of(bench.issuer, "default")

    answer = handover._attempt(
        bench.context, line, settings, "done.json", lambda _: posted, delivery
    )

    assert is_complete == (answer is posted)


def test_of_the_confirmations_of_a_delivery_the_first_stays() -> None:
    bench = memory_bench()
    delivered(bench, "default")

    assert "they have it" == confirm(bench.context, 1, "they have it").reason
    assert "they have it" == confirm(bench.context, 1, "they said it again").reason


@pytest.mark.parametrize(
    ("tries", "wait"),
    [
        (0, FIRST_WAIT),
        (1, 2 * FIRST_WAIT),
        (2, 4 * FIRST_WAIT),
        (7, LONGEST_WAIT),
        (5_000_000_000, LONGEST_WAIT),
    ],
)
def test_a_receiver_is_tried_again_after_waits_that_double_up_to_the_longest(
    tries: int, wait: timedelta
) -> None:
    earlier = Trouble(tries, "away", NOON, NOON, NOON) if tries else None

    kept = handover._failed(NOON, Answer(is_taken=False, problem="away"), earlier)

    assert NOON + wait == kept["not_before"]


def test_of_the_links_of_a_delivery_that_were_written_anew_the_last_count() -> None:
    store = MemoryStore()
    folder = delivery_folder(BANK, 1, "bank")
    for number in (2, 10, 9):
        store.create(f"{folder}links-erased-{number}.parquet", b"x")

    key = delivered_links_key(store, BANK, DeliveryId("bank", 1))

    assert f"{folder}links-erased-10.parquet" == key


@pytest.mark.parametrize("seconds", AROUND)
def test_a_receipt_is_late_from_the_end_of_its_time_on(seconds: int) -> None:
    bench = memory_bench(acknowledgement={"receipt_within_hours": 1})
    line = acknowledgements_to(BANK)
    facts: dict[str, Any] = {"run": "", "extract": "x", "sha256": "", "status": "PEND"}
    facts |= {"rows": {}, "files": {}, "by": "anna", "at": NOON - timedelta(hours=1)}
    for number in range(1, 13):
        record = Acknowledgement(**facts)
        values: Any = {
            "line": line,
            "number": number,
            "record": record,
            "subject": "x",
            "says": None,
        }
        enter(bench.adapters, BANK, "made", partial(make, **values))
        if number != 11:  # its process died
            note(bench.adapters, line, number, DONE)
    for number in (1, 10, 9):
        acknowledgement.confirm(bench.context, number, "receipt")

    now = NOON + seconds * SECOND
    settings = acknowledging(bench.issuer)
    assert settings is not None
    late = late_receipt(bench.context, line, settings, now)

    assert (None if seconds < 0 else (12, 12, Acknowledgement(**facts))) == late


@pytest.mark.parametrize(("last", "named"), [(7, "000007"), (8, "000007, the newest is 000008")])
def test_a_late_receipt_names_the_newest_where_that_is_another(
    monkeypatch: pytest.MonkeyPatch, last: int, named: str
) -> None:
    record = SimpleNamespace(at=NOON, run="r1", rows={})
    late = receipts.Late(7, last, cast(Any, record))
    monkeypatch.setattr(matters, "late_receipt", lambda *_: late)
    bench = memory_bench(acknowledgement={"receipt_within_hours": 24})

    [told] = matters._late_receipts(bench.context, NOON)

    assert named == dict(told.fields)["name"]
