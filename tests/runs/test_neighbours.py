"""Limits and precedence of what is stored of runs: the limit and its neighbours, the first and the last,
by the functions that hold them and a few values in memory.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.extensions.alerts.notices import EXPIRED, LONGEST_PAUSE, PAUSE, _History
from flows.runs import erased, errors, single_links, stored_runs
from flows.runs.chunks import chunks_as_sealed
from flows.runs.closings import add_closing, closed_breaks
from flows.runs.erased import is_erased, is_interrupted
from flows.runs.events import REFUSED, record_event
from flows.runs.journal import enter
from flows.runs.keys import LONGEST_PART, RunId, RunKeys, checked
from flows.runs.openpgp import _new_length, _recipient, blocks
from flows.runs.retry import Retry
from flows.runs.sealing import SealedUnreadableError
from flows.runs.single_links import LINK, last_links
from flows.runs.store import KeyRefusedError
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.runs.trail_proof import SHORTEST, ShortKeyError, _secrets
from schemas.ledger import LINKED
from schemas.reasons import ERASED
from schemas.records import Closing
from tests.memory import MemoryStore
from tests.night import BANK, DAY, NOON, edges

SECOND = timedelta(seconds=1)
AROUND = (-1, 0, 1)


# Keys, numbers
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", AROUND)
def test_a_key_has_at_most_900_bytes_and_a_part_200(more: int) -> None:
    part = "é" + "x" * (LONGEST_PART - 2)
    for longest in (part, "/".join([part] * 4 + ["x" * 96])):
        assert len(longest.encode()) in (200, 900)
        key = f"{longest}x" if more > 0 else longest[: len(longest) + more]
        with pytest.raises(KeyRefusedError) if more > 0 else nullcontext():
            assert key == checked(key)


@pytest.mark.parametrize("more", AROUND)
def test_numbers_beyond_those_that_are_listed_are_counted(more: int) -> None:
    assert (more > 0) == errors.numbered(range(errors.LISTED + more)).endswith("and 1 more")
    assert (more > 0) == ("more" in errors.numbered(range(errors.LISTED + more)))


# Threads, waits
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("several", [2, 8])
def test_two_items_or_more_are_worked_on_side_by_side(several: int) -> None:
    together = Barrier(several, timeout=60)

    concurrently(lambda _: together.wait(), range(several))


def test_a_wait_that_ends_with_the_budget_is_waited() -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def fail() -> None:
        raise LookupError

    retry = Retry(lambda: clock[0], sleep, lambda: 1.0, budget=3.0, first=1.0, cap=9.0)
    with pytest.raises(LookupError):
        retry(fail, LookupError)

    assert [3.0] == clock


@pytest.mark.parametrize(
    ("attempts", "pause"),
    [(1, PAUSE), (2, 2 * PAUSE), (3, 4 * PAUSE), (4, 8 * PAUSE), (9, LONGEST_PAUSE)],
)
def test_a_channel_is_tried_again_after_a_pause_that_doubles(
    attempts: int, pause: timedelta
) -> None:
    history = _History(attempts, NOON, NOON)
    moments = [NOON + pause + seconds * SECOND for seconds in AROUND]

    assert [False, True, True] == [history.may_begin(now) for now in moments]


def test_a_notice_is_news_for_a_day() -> None:
    history = _History(1, NOON, NOON)

    assert [False, False, True] == [
        history.is_over(NOON + EXPIRED + seconds * SECOND) for seconds in AROUND
    ]


# OpenPGP
# --------------------------------------------------------------------------------------------------


def test_every_byte_with_the_top_bit_begins_binary_data() -> None:
    assert [b"\x80x"] == blocks(b"\x80x")


def test_the_first_byte_of_a_length_says_how_many_have_it() -> None:
    def length(*content: int) -> tuple[int, bool]:
        read = _new_length(memoryview(bytes(content)), 0)
        return read.size, read.is_partial

    assert [(191, False), (192, False), (8383, False)] == [
        length(191), length(192, 0), length(223, 255)
    ]  # fmt: skip
    assert [(1, True), (1 << 30, True), (9, False)] == [
        length(224), length(254), length(255, 0, 0, 0, 9)
    ]  # fmt: skip


def test_a_session_key_packet_has_ten_bytes_or_more() -> None:
    body = b"\x03" + bytes(range(8)) + b"\x01"

    assert "0001020304050607" == _recipient(memoryview(body))
    with pytest.raises(SealedUnreadableError):
        _recipient(memoryview(body[:9]))


# What counts of several
# --------------------------------------------------------------------------------------------------


def test_an_erasure_is_interrupted_unless_the_last_of_its_records_says_removed() -> None:
    acts: list[Any] = [SimpleNamespace(what=what) for what in ("erased", "removed")]

    assert [True, False, True] == [
        is_interrupted(acts[:1]), is_interrupted(acts), is_interrupted(acts[::-1])
    ]  # fmt: skip


def test_a_closing_that_names_rows_adds_to_others_that_do_and_any_other_replaces_them() -> None:
    adapters = edges(MemoryStore())
    run = "bank-20261120-00000000"
    shared = {"at": NOON, "by": "anna", "reason": "so it is", "name": "X"}
    first, second, third = (
        Closing(**shared, what="closed", place=f"chunk 1, rows {row}", covers=(row,))
        for row in (1, 2, 3)
    )
    whole = Closing(**shared, what="closed", place="chunk 1")
    elsewhere = Closing(**shared, what="closed", place="chunk 2")
    reopened = Closing(**shared, what="reopened", place="chunk 1")

    def after(closing: Closing) -> list[Closing]:
        standing = closed_breaks(adapters, BANK, run)
        enter(adapters, BANK, "", lambda act: add_closing(act, run, closing, standing))
        return closed_breaks(adapters, BANK, run)

    assert [elsewhere] == after(elsewhere)
    assert [first, elsewhere] == after(first)
    assert [first, second, elsewhere] == after(second)
    assert [first, second, elsewhere] == after(second)
    assert [whole, elsewhere] == after(whole)
    assert [third, elsewhere] == after(third)
    assert [elsewhere] == after(reopened)


def test_erasures_before_the_last_one_that_is_finished_are_not_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acts = [SimpleNamespace(what=what) for what in ("erased", "finished", "erased", "removed")]
    monkeypatch.setattr(erased, "erasures", lambda *_: acts)

    assert acts[2:] == erased.unfinished_erasures(edges(MemoryStore()), BANK)


def test_a_chunk_is_as_the_last_of_its_reseals_has_it() -> None:
    chunk = SimpleNamespace(number=1, name="c")
    manifest: Any = SimpleNamespace(chunks=[chunk], recipients=())
    reseals: Any = [
        SimpleNamespace(generation=number, chunks=[chunk], recipients=(f"k{number}",))
        for number in (1, 2)
    ]

    chunks = chunks_as_sealed(RunKeys(RunId(BANK, DAY, "0123abcd")), manifest, reseals)

    assert ("k2",) == chunks[1].recipients


def test_a_record_is_of_an_erased_cardholder_where_its_last_reason_says_so() -> None:
    rows = pl.DataFrame({"reasons": [["a|b", f"|{ERASED}"], [f"|{ERASED}", "a|b"], None]})

    assert [True, False, False] == rows.select(is_erased()).to_series().to_list()


def test_of_the_single_links_of_a_row_the_last_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    links = pl.DataFrame(
        {name: [f"{name}1", f"{name}2"] for name in (*LINK, "arrived")}
    ).with_columns(row=1, state=pl.lit(LINKED))
    monkeypatch.setattr(single_links, "answers_of", lambda _: links)

    assert ["arrived2"] == last_links(())["arrived"].to_list()


def test_of_several_refusals_of_a_run_the_last_says_why_and_the_first_since_when() -> None:
    outside = edges(MemoryStore())
    keys = RunKeys(RunId(BANK, DAY, "0123abcd"))
    days = [datetime(2026, 11, day, tzinfo=UTC) for day in (10, 11, 12)]
    moments = iter(days)
    then = outside._replace(now=lambda: next(moments))
    for day in days:
        record_event(then, keys, REFUSED, why=f"w{day.day}", sentence="", under="")

    run = StoredRun.by_id(outside, str(keys.run))
    refusal = run.refusal
    last = run.last_event(REFUSED)

    assert refusal is not None
    assert last is not None
    assert ("w12", days[-1], days[0]) == (refusal.error, refusal.at, refusal.first)
    assert "w12" == last.facts["why"]


def test_a_run_of_the_same_day_is_no_night_before() -> None:
    ids = [RunId(BANK, DAY + timedelta(days=days), "0123abcd") for days in AROUND]
    asked: list[RunId] = []

    def run_of(run: RunId) -> Any:
        asked.append(run)
        return SimpleNamespace(manifest=None)

    StoredRuns.nights_before(cast(Any, SimpleNamespace(ids=ids, run=run_of)), ids[1])

    assert ids[:1] == asked


@pytest.mark.parametrize("more", AROUND)
def test_parts_are_decoded_together_up_to_so_many_rows(more: int) -> None:
    rows = (stored_runs.ROWS_TOGETHER - 10, 10 + more)
    parts: Any = [(None, SimpleNamespace(rows=number)) for number in rows]

    assert (1 + (more > 0)) == len(list(stored_runs._together(parts)))


# Acknowledgements, the audit trail
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", AROUND)
def test_the_key_of_a_journal_has_32_characters_or_more(more: int) -> None:
    with pytest.raises(ShortKeyError) if more < 0 else nullcontext():
        _secrets(["x" * (SHORTEST + more)])
