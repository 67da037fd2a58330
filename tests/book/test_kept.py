"""The kept book says what everything that is recorded says, whatever was done to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.book import kept
from flows.book.attempts import ATTEMPT, NO_ATTEMPTS
from flows.book.book import read_book
from flows.book.head import CODE, Head, News, Page, forget_book, generation, head_key
from flows.book.kept import keep_book
from flows.book.kept_stages import KeptStages
from flows.operations.delivery import deliver
from flows.partner_api.follow_links import follow_links
from flows.runs.audit_trail import audited
from flows.runs.context import overlaid
from flows.runs.frames import write_parquet
from flows.runs.identity import canonical, digest
from flows.runs.keys import book, keys_of, transactions
from flows.runs.outbox import move
from flows.runs.store import StoreBusyError, StoreDeniedError
from flows.runs.stored_runs import StoredRuns
from flows.submissions.submit import Request, submit
from schemas.records import Purged
from schemas.tables import parquet
from tests.memory import MemoryStore
from tests.night import DAY, NOON, Bench, local_bench, made_once
from tests.storms import FailingStore

HEAD = f"{book('bank')}head.json"
SETTLED = f"{book('bank')}settled.parquet"
STAGES = f"{book('bank')}stages.json"
KEPT_ROWS = parquet(pl.DataFrame([{"turn": 1}, {"turn": 2}], ATTEMPT))


def with_trail(folder: Path) -> Bench:
    """Return a bench whose store has an audit trail, as that of every command."""
    return trailed(local_bench(folder, portal={"rows_per_chunk": 3}))


def trailed(bench: Bench) -> Bench:
    return replace(bench, store=audited(bench.store, "tester", bench.now))


def after_a_night(folder: Path) -> tuple[Bench, str]:
    """Return a bench with an audit trail after its first night, and the run of that."""
    bench, run = _first_night(folder)
    return trailed(bench), run


@made_once
def _first_night(folder: Path, /) -> tuple[Bench, str]:
    bench = local_bench(folder, portal={"rows_per_chunk": 3})
    return bench, night(trailed(bench), 1)


def stands(bench: Bench) -> list[tuple[object, ...]]:
    """Return all that the book says of each card."""
    cards = read_book(bench.store, "bank").cards(DAY)
    return sorted(cards.rows(), key=str)


def from_ledgers(bench: Bench) -> list[tuple[object, ...]]:
    """Return what a book says that is made from the ledgers alone."""
    dry = overlaid(bench.context).adapters.store
    forget_book(dry, "bank")
    return stands(replace(bench, store=dry))


def night(bench: Bench, number: int) -> str:
    """Submit one night; return its run."""
    return bench.submit(bench.drop(6, f"bank-202611{number:02d}.csv", seed=number)).manifest.run


def spoil(key: str) -> Callable[[Bench], object]:
    """Return what writes foreign bytes into the book."""
    return lambda bench: bench.store.replace(key, [b"not ours"])


def answer(bench: Bench) -> None:
    bench.answer(fail_share=0.4, seed=1)
    bench.ingest()


def cancel(bench: Bench) -> None:
    """Cancel the first chunk of the last run that still waits."""
    for run in reversed(list(bench.runs.committed())):
        waiting = [item.chunk.number for item in run.outbox if item.state == "waiting"]
        if waiting:
            move(bench.context.adapters, run.id, "cancelled", waiting[:1], "by request")
            return


def die_while_keeping(bench: Bench) -> None:
    """Let the store fail from the second write into the book on."""
    written: list[str] = []

    def fail(does: str, key: str) -> Exception | None:
        if does == "replace" and key.startswith(book("bank")):
            written.append(key)
        return StoreBusyError(place="x", code="503") if len(written) > 1 else None

    with suppress(StoreBusyError):  # where there is as much to write
        keep_book(StoredRuns(FailingStore(bench.store, fail), "bank"), DAY)


def report(bench: Bench) -> None:
    """Drop a transaction report about every second cardholder, and take it up."""
    cuids = read_book(bench.store, "bank").attempts["cuid"].drop_nulls().unique().sort()[::2]
    lines = [f"{cuid},SUCCESSFUL,2026-12-01\n" for cuid in cuids]
    key = f"{transactions('bank')}t{len(lines)}.csv"
    bench.store.replace(key, ["".join(["cuid,status,completed_on\n", *lines]).encode()])
    follow_links(bench.context, None)


STEPS: dict[str, Callable[[Bench], object]] = {
    "answer": answer,
    "cancel": cancel,
    "keep": lambda bench: keep_book(bench.runs, DAY),
    "forget": lambda bench: forget_book(bench.store, "bank"),
    "die": die_while_keeping,
    "spoil head": spoil(HEAD),
    "spoil settled": spoil(SETTLED),
    "deliver": lambda bench: deliver(bench.context),
    "report": report,
    "spoil stages": spoil(STAGES),
}


@settings(deadline=None, max_examples=10)
@given(st.lists(st.sampled_from(["night", *STEPS]), min_size=3, max_size=8), st.booleans())
def test_whatever_happens_the_book_says_what_the_ledgers_say(
    steps: list[str], has_trail: bool
) -> None:
    with TemporaryDirectory() as folder:
        bench = (with_trail if has_trail else local_bench)(Path(folder))
        for number, step in enumerate(steps, start=1):
            if step == "night":
                night(bench, number)
            else:
                STEPS[step](bench)
            assert from_ledgers(bench) == stands(bench)


def test_finished_runs_are_settled_and_one_that_changes_afterwards_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SETTLED_TOGETHER", 3)
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 3})
    runs = [night(bench, number) for number in range(1, 4)]
    answer(bench)
    settled = pl.read_parquet(bench.content(SETTLED))
    before = stands(bench)

    rows = bench.stored(runs[0]).keys.report("rows/part-00001.parquet")
    answered = pl.read_parquet(bench.content(rows))
    refused = answered.with_columns(state=pl.lit("error"), url=None, expires_on=None)
    write_parquet(bench.store, rows, refused)

    assert 6 * 3 == settled.height
    assert digest(bench.content(SETTLED)) == json.loads(bench.content(HEAD))["settled"]
    assert before != stands(bench)
    assert from_ledgers(bench) == stands(bench)


def kept_objects(bench: Bench) -> dict[str, bytes]:
    """Return everything that is kept of the book."""
    return {
        key: content
        for key, content in bench.snapshot().items()
        if key.startswith(book("bank")) or key.endswith("/book.parquet")
    }


def rebuild(bench: Bench) -> None:
    forget_book(bench.store, "bank")
    keep_book(bench.runs, DAY)


def test_a_rebuild_writes_nothing_but_the_book_and_a_second_one_writes_the_same(
    tmp_path: Path,
) -> None:
    bench, _ = after_a_night(tmp_path)
    answer(bench)
    others = bench.snapshot().keys() - kept_objects(bench).keys()

    rebuild(bench)
    first = bench.content(head_key("bank", 1))
    pages = {key for key in kept_objects(bench) if key.endswith(".parquet")}
    rebuild(bench)

    assert others == bench.snapshot().keys() - kept_objects(bench).keys()
    assert first == bench.content(head_key("bank", 2))
    assert pages == {key for key in kept_objects(bench) if key.endswith(".parquet")}
    assert json.loads(first)["code"] == CODE


def test_a_rebuild_removes_what_no_ledger_has(tmp_path: Path) -> None:
    bench, run = after_a_night(tmp_path)
    keep_book(bench.runs, DAY)
    right = stands(bench)
    head = json.loads(bench.content(HEAD))
    invented = str(keys_of(run).run._replace(sha8="0badcafe"))
    page = bench.content(keys_of(run).page)
    bench.store.replace(keys_of(invented).page, [page])
    head["pages"][invented] = head["pages"][run]
    bench.store.replace(HEAD, [canonical(head)])
    wrong = read_book(bench.store, "bank").attempts.height

    rebuild(bench)

    assert (12, 6) == (wrong, read_book(bench.store, "bank").attempts.height)
    assert right == stands(bench)


def test_who_began_before_a_rebuild_cannot_undo_it(tmp_path: Path) -> None:
    bench, _ = after_a_night(tmp_path)
    right = stands(bench)
    run = night(bench, 2)
    head = json.loads(bench.content(HEAD))
    del head["pages"][run]  # what is to be mended by the rebuild
    bench.store.replace(HEAD, [canonical({**head, "recent": {}})])
    wrong = stands(bench)
    begun: list[str] = []

    def rebuild_meanwhile(does: str, key: str) -> Exception | None:
        if does == "replace" and key.endswith("/book.parquet") and not begun:
            begun.append(key)
            rebuild(bench)
        return None

    answer(replace(bench, store=FailingStore(bench.store, rebuild_meanwhile)))

    assert right == wrong
    assert begun
    assert 12 == read_book(bench.store, "bank").attempts.height
    assert from_ledgers(bench) == stands(bench)


def test_two_rebuilds_at_once_are_two_generations(tmp_path: Path) -> None:
    bench, _ = after_a_night(tmp_path)
    begun: list[str] = []

    def another(does: str, key: str) -> Exception | None:
        if does == "create" and not begun:
            begun.append(key)
            forget_book(bench.store, "bank")
        return None

    forget_book(FailingStore(bench.store, another), "bank")

    assert 2 == generation(bench.store, "bank")
    assert from_ledgers(bench) == stands(bench)


def test_the_page_of_a_run_is_written_by_whoever_keeps_the_book_after_its_submit(
    tmp_path: Path,
) -> None:
    bench, run = after_a_night(tmp_path)
    by_ledger = read_book(bench.store, "bank").attempts
    has_page = keys_of(run).page in bench.snapshot()

    keep_book(bench.runs, DAY)

    assert not has_page
    assert by_ledger.equals(read_book(bench.store, "bank").attempts)
    assert by_ledger.equals(pl.read_parquet(bench.content(keys_of(run).page)))


def test_foreign_bytes_on_a_page_are_discarded(tmp_path: Path) -> None:
    bench, run = after_a_night(tmp_path)
    keep_book(bench.runs, DAY)
    before = stands(bench)

    bench.store.replace(keys_of(run).page, [b"not ours"])

    assert before == stands(bench)


def test_a_dry_run_sees_its_own_runs_in_the_book_and_writes_nothing(tmp_path: Path) -> None:
    bench, _ = after_a_night(tmp_path)
    kept = bench.content(HEAD)
    dry = overlaid(bench.context)
    with dry.sealer() as sealer:
        assert sealer
    name = bench.drop(6, "bank-20261102.csv", seed=2)

    submit(dry, Request(name))

    assert 12 == read_book(dry.adapters.store, "bank").attempts.height
    assert kept == bench.content(HEAD)


def test_a_store_that_does_not_let_the_book_be_written_costs_a_night_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = local_bench(tmp_path)
    denied = FailingStore(
        bench.store,
        lambda does, key: (
            StoreDeniedError(place=key, code="403")
            if (does, key.startswith(book("bank"))) == ("replace", True)
            else None
        ),
    )

    done = replace(bench, store=denied).submit(bench.drop(6))

    assert 6 == done.manifest.counts.submitted
    assert "The book was not brought up to date" in caplog.text


@pytest.mark.parametrize(("content", "rows"), [(KEPT_ROWS, 2), (b"not ours", 1), (None, 1)])
def test_settled_attempts_are_put_together_anew_where_what_is_kept_is_not_that(
    monkeypatch: pytest.MonkeyPatch, content: bytes | None, rows: int
) -> None:
    keeper = object.__new__(kept._Keeper)
    page = Page(objects="x", turn=1, committed=True, settled=True)
    keeper._store, keeper._issuer, keeper._pages = MemoryStore(), "bank", {"r": page}
    keeper._kept, keeper._settled_fits = Head(settled=digest(KEPT_ROWS)), True
    anew = pl.DataFrame([{"turn": 1}], ATTEMPT)
    monkeypatch.setattr(kept._Keeper, "_frames_of", lambda *_: [anew])
    if content is not None:
        keeper._store.create(SETTLED, content)

    assert rows == keeper._settled().height


def test_the_runs_of_a_book_are_looked_at_as_purged_where_their_ledger_was() -> None:
    store = MemoryStore()
    run = "bank-20261120-0123abcd"
    facts = {"part": "ledger", "at": NOON, "by": "x", "since": NOON, "setting": "ledger_days = 9"}
    record = Purged(run=run, objects={}, bytes=0, **facts)
    store.create(keys_of(run).purged("ledger"), record.model_dump_json().encode())

    keeper = kept._Keeper(StoredRuns(store, "bank"))

    assert {run} == set(keeper.runs.purged)


def test_pages_are_made_in_the_order_of_the_commits_whatever_the_names_of_the_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = object.__new__(kept._Keeper)
    keeper._pages, keeper._purged = {}, frozenset()
    turns = {"a": 3, "b": 1, "c": 2}
    read: list[str] = []
    monkeypatch.setattr(kept._Keeper, "_turns", lambda *_: turns)
    monkeypatch.setattr(kept._Keeper, "_objects", lambda _, run: run)
    monkeypatch.setattr(kept._Keeper, "_make_page", lambda _, run, *__: read.append(run))

    keeper._bring_up_to_date(News({}, 0, "", {}, frozenset(turns)))

    assert ["b", "c", "a"] == read


def test_a_row_sent_again_has_the_number_that_its_card_had_last_among_those_that_look_the_same() -> (
    None
):
    sent = [{"row": row, "twin": twin} for row, twin in ((1, 0), (2, 0), (2, 1))]
    again = [{"row": 7, "origin": 2}, {"row": 8, "origin": 1}, {"row": 9, "twin": 3}]

    numbered = kept.with_twins_of(pl.DataFrame(again, ATTEMPT), pl.DataFrame(sent, ATTEMPT))

    assert [(7, 1), (8, 0), (9, 3)] == numbered.select("row", "twin").rows()


def test_what_is_kept_is_not_read_again(tmp_path: Path) -> None:
    bench, run = after_a_night(tmp_path)
    answer(bench)
    opened: list[str] = []
    store = FailingStore(
        bench.store, lambda does, key: opened.append(key) if does == "open" else None
    )

    read_book(store, "bank")

    assert not [key for key in opened if "/ledger/" in key or f"{run}/report/" in key]
    assert pl.read_parquet(bench.content(keys_of(run).page)).height


def test_stages_that_are_kept_are_not_made_again() -> None:
    written: list[str] = []
    store = FailingStore(
        MemoryStore(), lambda does, key: written.append(key) if does == "replace" else None
    )

    for _ in range(2):
        KeptStages(store, "bank", (), lambda _: NO_ATTEMPTS).keep()

    assert [f"{book('bank')}followed.parquet", STAGES] == written
