"""When the head of the kept book is believed, and which runs may have changed since."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.book.head import LATER, Head, forget_book, head_key, news_since, read_head
from flows.book.kept import keep_book
from flows.runs.identity import canonical
from flows.runs.trail_entries import entries_since
from tests.book.test_kept import after_a_night, night
from tests.night import DAY, Bench

MOMENT = timedelta(microseconds=1)


def kept(folder: Path) -> tuple[Bench, Head]:
    """Return a bench after a night, and the head of its book."""
    bench, _ = after_a_night(folder)
    keep_book(bench.runs, DAY)
    return bench, read_head(bench.store, "bank", 0)


@pytest.mark.parametrize(
    ("change", "is_believed"),
    [
        ({}, True),
        ({"trail": 0, "seal": "another"}, True),
        ({"registered": 0}, True),
        ({"code": "another"}, False),
        ({"seal": "another"}, False),
        ({"trail": 1000}, False),
        ({"registered": 1000}, False),
    ],
)
def test_a_head_is_believed_where_trail_and_chain_have_what_it_read_last(
    tmp_path: Path, change: dict[str, Any], is_believed: bool
) -> None:
    bench, head = kept(tmp_path)
    stored = head.model_copy(update=change)
    bench.store.replace(head_key("bank"), [canonical(stored)])

    assert (stored if is_believed else Head()) == read_head(bench.store, "bank", 0)
    assert head.trail
    assert head.registered


def test_a_run_may_have_changed_for_a_day_after_the_trail_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, head = kept(tmp_path)
    entry = list(entries_since(bench.store, "bank", 0))[-1]
    last = entry.at
    two = [entry.model_copy(update={"at": last - MOMENT, "seal": ""}), entry]
    named = {"young": last - LATER, "old": last - LATER - MOMENT}
    before = head.model_copy(update={"recent": named})

    monkeypatch.setattr("flows.book.head.entries_since", lambda *_: iter(two))
    news = news_since(bench.store, "bank", before)
    monkeypatch.setattr("flows.book.head.entries_since", lambda *_: iter(()))
    quiet = news_since(bench.store, "bank", head.model_copy(update={"recent": named}))

    assert {"young", "old"} <= news.runs
    assert {"young"} == named.keys() & news.recent.keys()
    assert (named, head.seal, entry.seal) == (quiet.recent, quiet.seal, news.seal)


def test_a_head_knows_the_last_run_that_was_registered_and_the_latest_day(tmp_path: Path) -> None:
    bench, _ = after_a_night(tmp_path)
    night(bench, 2)
    forget_book(bench.store, "bank")

    keep_book(bench.runs, DAY)

    head = read_head(bench.store, "bank", 1)
    assert (2, date(2026, 11, 2)) == (head.registered, head.newest)
