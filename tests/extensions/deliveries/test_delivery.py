"""Deliveries of links: whoever applies the confirmed ones in order has exactly the links that
live.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from flows.adapters.local import LocalStore
from flows.adapters.s3 import S3Store
from flows.book import upkeep
from flows.book.stages import served_cards
from flows.book.standing import SERVED
from flows.database.connection import Database
from flows.extensions.deliveries.delivered import deliveries, delivery_folder, line_of
from flows.extensions.deliveries.delivery import (
    Delivered,
    deliver,
    links_now,
)
from flows.extensions.deliveries.formats import Delivery
from flows.extensions.deliveries.handover import Handed, HandedOverMeanwhileError, handed
from flows.extensions.deliveries.matters import TO_DELIVER
from flows.extensions.deliveries.receivers import confirm
from flows.extensions.deliveries.settings import DEFAULT
from flows.extensions.partner_api.link_requests import Terms
from flows.extensions.partner_api.linking import link_row, link_typed
from flows.operations.break_decisions import close_break
from flows.operations.giving_up import Which, give_up
from flows.reports.rebuild import rebuild
from flows.reports.survey import survey
from flows.runs.adapters import NoReasonError
from flows.runs.context import overlaid
from flows.runs.errors import NotFoundError
from schemas.breaks import CONFLICTING_RESULT, LINK
from schemas.database import METADATA
from schemas.portal import PAN
from schemas.settings import LinkSettings
from tests import servers
from tests.builders import quick, share_of
from tests.copies import copy_folder
from tests.extensions.partner_api.linker import SERVICE, TYPED, Linker, night
from tests.extensions.partner_api.town import town
from tests.night import BANK, DAY, NOON, Bench, issuer, local_bench, moved_to
from tests.stores import impatient

HEAD = "cuid,last_4,url,expiration_date,error"
LAST_4 = {1: "4242", 2: "1111", 3: "4444", 4: "2222"}
WHERE = "https://links.example.com/l/"
SOON, LATER = "2026-12-01", "2027-01-20"


def linked(row: int, url: str, until: str = LATER) -> str:
    return f"c-{row},{LAST_4[row]},{WHERE}{url},{until},"


def refused(row: int) -> str:
    return f',,,,"{{""cuid"": ""c-{row}"", ""errors"": [""address: try again""]}}"'


def bench_of(place: Path, rows: int = 4) -> tuple[Bench, str]:
    """Return a copy of a night of some rows that has no results yet, and its run."""
    made, run = _night(rows)
    copy_folder(made, place)
    return Bench(LocalStore(place / "store"), issuer(service=SERVICE)), run


@cache
def _night(rows: int) -> tuple[Path, str]:
    bench = local_bench(place := Path(mkdtemp(prefix="delivery-")), service=SERVICE)
    return place, night(bench, *[{}] * rows)


def answer(bench: Bench, *lines: str, name: str = "result.csv") -> None:
    bench.drop_result("\n".join([HEAD, *lines]).encode(), name)
    bench.ingest()


def lines(bench: Bench, number: int, name: str = "links.csv") -> list[tuple[str, ...]]:
    """Return url, change and why of the rows of a delivery."""
    table = pl.read_csv(
        BytesIO(bench.content(delivery_folder(BANK, number) + name)), infer_schema=False
    )
    return [
        (url.removeprefix(WHERE), change, why)
        for url, change, why in table.select("url", "change", "why").rows()
    ]


def delivery_of(bench: Bench, number: int) -> Handed[Delivery]:
    """Return what the database has of a delivery."""
    known = handed(bench.adapters, line_of(BANK, DEFAULT), number)
    assert known is not None
    return known


def delivered(bench: Bench, number: int) -> list[tuple[str, ...]]:
    """Deliver, confirm and return the rows of that delivery."""
    assert number == deliver(bench.context).number
    confirm(bench.context, number, "receipt 1")
    return lines(bench, number)


def test_a_delivery_has_each_link_once_and_the_next_one_only_what_changed(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a"), linked(2, "b"))

    first = delivered(bench, 1)
    answer(bench, linked(3, "c"), name="later.csv")
    second = delivered(bench, 2)

    assert [("a", "new", "no other link"), ("b", "new", "no other link")] == first
    assert [("c", "new", "no other link")] == second
    assert Delivered() == deliver(bench.context)
    # links.csv, links.parquet, done.json
    assert 3 == len(list(bench.store.keys(delivery_folder(BANK, 1))))


@pytest.mark.slow
def test_the_worklist_says_what_the_next_delivery_has_once_links_are_delivered(
    tmp_path: Path,
) -> None:
    bench, _ = bench_of(tmp_path)

    def due() -> list[str]:
        work = survey(bench.context).work
        return [each.note for each in work if each.kind == TO_DELIVER.name]

    answer(bench, linked(1, "a"), linked(2, "b"))
    unused = due()
    delivered(bench, 1)
    settled = due()
    answer(bench, linked(3, "c"), name="later.csv")
    give_up(bench.context, Which(cuids=frozenset({"c-1"})), "the account is closed")
    waiting = due()
    delivered(bench, 2)

    assert ([], []) == (unused, settled)
    assert ["New: 1; to be withdrawn: 1."] == waiting
    assert [] == due()


def test_what_the_receiving_side_must_no_longer_use_is_withdrawn_with_the_reason(
    tmp_path: Path,
) -> None:
    bench, run = bench_of(tmp_path)
    answer(bench, linked(1, "a", SOON), linked(2, "b"), linked(3, "c"))
    delivered(bench, 1)

    # the portal's corrected file, under the same name; the partner confirms one of the new links
    answer(bench, linked(1, "a", SOON), linked(2, "b2"), linked(3, "c2"))
    close_break(bench.context, run, CONFLICTING_RESULT, "", "ticket 1", LINK, rows=[2])
    bench.now = lambda: NOON + timedelta(days=12)
    found = delivered(bench, 2)

    assert [
        ("a", "withdrawn", "expired"),
        ("b", "withdrawn", "replaced"),
        ("c", "withdrawn", "contradicted"),
        ("b2", "replaced", "replaces a link withdrawn"),
    ] == found


@pytest.mark.slow
def test_single_links_are_delivered_and_leave_the_errors_of_their_run(tmp_path: Path) -> None:
    bench, run = bench_of(tmp_path, 2)
    answer(bench, linked(1, "a"), refused(2))
    link_row(bench.context, Linker(), run, 2)
    link_typed(bench.context, Linker(_link("typed")), {**TYPED, "cardholder.cuid": "c-9"})

    found = delivered(bench, 1)

    assert {"a", "abc", "typed"} == {url for url, _, _ in found}
    assert 2 == pl.read_csv(bench.report(run, "links.csv")).height
    assert 0 == pl.read_csv(bench.report(run, "errors.csv")).height


def test_an_unconfirmed_delivery_is_superseded_by_one_with_everything_since(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a"), linked(2, "b"))
    deliver(bench.context)

    answer(bench, linked(1, "a"), linked(2, "b2"), linked(3, "c"))
    found = delivered(bench, 2)

    assert [
        ("b", "withdrawn", "contradicted"),  # somebody may have it, though nobody confirmed it
        ("a", "new", "no other link"),
        ("c", "new", "no other link"),
    ] == found
    assert Delivered() == deliver(bench.context)


def test_a_superseded_delivery_that_is_confirmed_not_before_its_successor_may_be_applied_after_it(
    tmp_path: Path,
) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a"), linked(2, "b"))
    deliver(bench.context)
    answer(bench, linked(1, "a"), linked(2, "b2"))
    delivered(bench, 2)

    confirm(bench.context, 1, "a receipt that was late")  # at the same moment

    assert [("b", "withdrawn", "contradicted")] == delivered(bench, 3)
    assert Delivered() == deliver(bench.context)


def test_a_link_is_delivered_on_its_last_day_and_not_on_the_next(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a", SOON))

    bench.now = lambda: NOON + timedelta(days=12)
    after = deliver(bench.context)
    bench.now = lambda: NOON + timedelta(days=11)

    assert Delivered() == after
    assert [("a", "new", "no other link")] == delivered(bench, 1)


def test_of_the_links_of_a_card_that_of_its_newest_issue_is_delivered_else_the_longest() -> None:
    standing = SERVED[0].name
    cards = pl.DataFrame(
        [
            ("a", "2911", standing, 5, False, 1),
            ("a", "3111", standing, 9, False, 2),
            ("b", "2911", standing, 9, False, 3),
            ("b", "3111", standing, 5, True, 4),
            ("c", "2911", standing, -1, True, 5),
            ("d", "2911", "refused", 9, True, 6),
        ],
        ["cuid", "expiration", "standing", "days", "current", "row"],
        orient="row",
    ).with_columns(
        holder="cuid",
        twin=0,
        last_4=pl.lit("4242"),
        run=pl.lit("r"),
        until=pl.lit(DAY) + pl.duration(days="days"),
    )

    served = served_cards(cards, DAY)

    assert {"a": 2, "b": 4} == dict(served.select("cuid", "row").rows())


def test_the_same_state_is_the_same_delivery_byte_for_byte(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(2, "b"), linked(1, "a"))
    first = deliver(bench.context)
    before = bench.snapshot()

    again = deliver(bench.context)

    assert before == bench.snapshot()
    assert (1, True) == (first.number, first.fresh)
    assert (1, False) == (again.number, again.fresh)


def test_a_dry_run_shows_the_delivery_and_writes_nothing(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a"))
    before = bench.snapshot()

    shown = deliver(overlaid(bench.context))

    assert before == bench.snapshot()
    assert shown == deliver(bench.context)


def test_a_receipt_with_the_digests_confirms_and_one_with_others_does_not(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    bench.issuer = bench.issuer.model_copy(update={"links": LinkSettings(rows_per_file=1)})
    answer(bench, linked(1, "a"), linked(2, "b"))
    deliver(bench.context)
    place = delivery_folder(BANK, 1)
    sums = [sha256(bench.content(f"{place}links-0000{at}.csv")).hexdigest() for at in (1, 2)]

    bench.store.replace(f"{place}received", [sums[0].encode()])
    half = deliver(bench.context)
    bench.store.replace(
        f"{place}received", ["\n".join(f"{one}  links.csv" for one in sums).encode()]
    )
    whole = deliver(bench.context)

    assert (1, (f"{place}received",)) == (half.number, half.doubts)
    assert Delivered() == whole
    confirmed = delivery_of(bench, 1).confirmed
    assert confirmed is not None
    assert "receipt of the receiving side" == confirmed.reason


def test_a_delivery_is_confirmed_once_and_only_with_a_reason(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a"))
    deliver(bench.context)

    with pytest.raises(NoReasonError):
        confirm(bench.context, 1, " ")
    with pytest.raises(NotFoundError):
        confirm(bench.context, 2, "receipt 2")
    first = confirm(bench.context, 1, "receipt 1")

    assert first == confirm(bench.context, 1, "receipt 2")


@pytest.mark.parametrize(("receiver", "to"), [("one", " to one"), (DEFAULT, "")])
def test_a_delivery_that_is_not_there_is_named_with_its_receiver(
    tmp_path: Path, receiver: str, to: str
) -> None:
    bench = local_bench(tmp_path)

    with pytest.raises(NotFoundError) as caught:
        confirm(bench.context, 7, "receipt", receiver)

    assert f"complete delivery 7{to}" == caught.value.fields["what"]
    look = f"cardlink deliver bank{to.removeprefix(' to')} --dry-run"
    assert look == str(caught.value.fields["command"])


def test_no_row_of_a_delivery_has_a_url_and_the_journal_nobody_who_was_delivered_a_link(
    tmp_path: Path,
) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a"))

    delivered(bench, 1)

    with bench.database.snapshot() as connection:
        rows = {
            table.name: str(connection.execute(select(table)).all())
            for table in METADATA.sorted_tables
        }
    assert "c-1" in rows["delivery_change"]
    assert "delivery confirmed" in rows["journal"]
    assert "c-1" not in rows["journal"]
    with_url = [name for name, text in rows.items() if "links.example.com" in text]
    assert ["answer"] == with_url  # as the result file said it


class Killed(BaseException):
    """The process is killed."""


class Mortal:
    """A store or a database whose process dies right before or after one of its writes."""

    def __init__(self, alive: Any, writes: int, *, late: bool = False) -> None:
        self._alive, self._left, self._late = alive, writes, late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._alive, name)

    def create(self, key: str, data: bytes) -> bool:
        return bool(self._written(lambda: self._alive.create(key, data)))

    def act(self, issuer: str, work: Any) -> Any:
        return self._written(lambda: self._alive.act(issuer, work))

    def _written(self, write: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left < 0 and not self._late:
            raise Killed
        result = write()
        if self._left < 0:
            raise Killed
        return result


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("writes", [0, 1])  # made and done; links.parquet and links.csv
@pytest.mark.parametrize("part", ["store", "database"])
def test_a_killed_delivery_is_finished_by_the_same_command(
    tmp_path: Path, database: Database, part: str, writes: int, late: bool
) -> None:
    bench = moved_to(bench_of(tmp_path)[0], database)
    answer(bench, linked(1, "a"))
    expected = deliver(overlaid(bench.context))
    mortal: Any = {part: Mortal(getattr(bench, part), writes, late=late)}

    with pytest.raises(Killed):
        deliver(replace(bench, **mortal).context, now=links_now(bench.context))
    done = deliver(bench.context)

    assert expected.record is not None
    assert done.record is not None
    assert (1, expected.record.files) == (done.number, done.record.files)
    assert [("a", "new", "no other link")] == lines(bench, 1)
    assert delivery_of(bench, 1).is_done
    assert not any(bench.store.keys(f"{deliveries(BANK)}000002"))
    delivered(bench, 1)
    assert Delivered() == deliver(bench.context)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize("part", ["store", "database"])
def test_of_a_killed_delivery_what_may_have_been_taken_is_withdrawn_and_nothing_else(
    tmp_path: Path, database: Database, part: str, writes: int, late: bool
) -> None:
    bench = moved_to(bench_of(tmp_path)[0], database)
    answer(bench, linked(1, "a"))
    mortal: Any = {part: Mortal(getattr(bench, part), writes, late=late)}
    with pytest.raises(Killed):
        deliver(replace(bench, **mortal).context, now=links_now(bench.context))
    was_written = any(bench.store.keys(deliveries(BANK)))

    answer(bench, linked(1, "a2"), linked(2, "b"))
    done = deliver(bench.context)
    confirm(bench.context, done.number, "receipt")

    withdrawn = [("a", "withdrawn", "contradicted")] * was_written
    assert [*withdrawn, ("b", "new", "no other link")] == lines(bench, done.number)
    assert Delivered() == deliver(bench.context)


def test_a_killed_delivery_whose_links_have_changed_is_superseded(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a"))
    with pytest.raises(Killed):
        deliver(replace(bench, store=cast(Any, Mortal(bench.store, 1))).context)

    answer(bench, linked(1, "a2"), linked(2, "b"))
    with pytest.raises(NotFoundError):
        confirm(bench.context, 1, "receipt 1")

    assert [("a", "withdrawn", "contradicted"), ("b", "new", "no other link")] == delivered(
        bench, 2
    )


@pytest.fixture(params=quick(1, ["directory", "s3"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    bench, _ = bench_of(tmp_path)
    answer(bench, linked(1, "a"), linked(2, "b"))
    if request.param == "directory":
        return bench
    server = request.getfixturevalue("moto_server")
    store = S3Store("cards", tmp_path.name, servers.client(server.endpoint), impatient())
    for key, content in bench.snapshot().items():
        store.replace(key, [content])
    return _with(bench, store)


def test_of_two_processes_at_once_one_delivers_and_the_other_is_told(
    place: Bench, database: Database
) -> None:
    place = moved_to(place, database)

    def once(_: int) -> object:
        try:
            return deliver(place.context).number
        except HandedOverMeanwhileError as error:
            return type(error)

    with ThreadPoolExecutor(4) as processes:
        told = set(processes.map(once, range(4)))

    assert {1} <= told <= {1, HandedOverMeanwhileError}
    assert 2 == len(delivered(place, 1))
    assert not any(place.store.keys(f"{deliveries(BANK)}000002"))


STEP = st.one_of(
    st.tuples(
        st.just("result"),
        st.sampled_from("xyz"),
        st.lists(st.sampled_from("abcdef-!"), min_size=4, max_size=4),
    ),
    st.tuples(st.just("days"), st.integers(1, 20), st.none()),
    st.tuples(st.just("link"), st.integers(1, 4), st.none()),
    st.tuples(st.just("deliver"), st.booleans(), st.booleans()),
)


@pytest.mark.slow
@settings(max_examples=share_of(0.16))
@given(st.lists(STEP, min_size=3, max_size=9))
def test_all_confirmed_deliveries_in_order_are_the_links_that_live(
    steps: list[tuple[str, Any, Any]],
) -> None:
    with TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "TOGETHER", 1)  # what is known of closed runs is used at once
        bench, run = bench_of(Path(made) / "bank")
        received: dict[str, str] = {}
        for at, (kind, what, more) in enumerate([*steps, ("deliver", True, True)]):
            if kind == "result":
                answer(bench, *_results(what, more), name=f"{what}.csv")
            elif kind == "days":
                bench.now = _later(bench, what)
            elif kind == "link":
                link_row(
                    bench.context,
                    Linker(_link(f"single{at}")),
                    run,
                    what,
                    terms=Terms("the cardholder called"),
                )
            else:
                received = _received(bench, received, confirmed=what, applied=what or more)

        assert _living(bench, run) == received


def _results(name: str, cells: list[str]) -> list[str]:
    """Return a file's lines: for each row a link, the later its letter the longer it lasts, an
    error, or nothing.
    """
    until = {letter: f"2026-12-{5 * at + 1:02d}" for at, letter in enumerate("abcdef")}
    answers = [(row, cell) for row, cell in enumerate(cells, start=1) if cell != "-"]
    return [
        refused(row) if cell == "!" else linked(row, f"{name}{row}{cell}", until[cell])
        for row, cell in answers
    ]


def _received(
    bench: Bench, received: dict[str, str], *, confirmed: bool, applied: bool
) -> dict[str, str]:
    """Deliver, and return what somebody has who applied it; only what was applied may be
    confirmed.
    """
    done = deliver(bench.context)
    if done.record is None:
        return received
    table = pl.read_csv(
        BytesIO(bench.content(delivery_folder(BANK, done.number) + "links.csv")), infer_schema=False
    )
    if confirmed:
        confirm(bench.context, done.number, "receipt")
    changes = [
        (url, cuid)
        for url, cuid in table.filter(pl.col("change") != "withdrawn").select("url", "cuid").rows()
    ]
    gone = set(table.filter(change="withdrawn")["url"])
    return (
        {url: cuid for url, cuid in received.items() if url not in gone} | dict(changes)
        if applied
        else received
    )


def _living(bench: Bench, run: str) -> dict[str, str]:
    """Return the cuids of the links of the run's report that have not expired, by URL."""
    rebuild(bench.context, bench.stored(run))
    table = pl.read_csv(BytesIO(bench.report(run, "links.csv")), infer_schema=False)
    alive = table.filter(pl.col("expires_on") >= bench.now().date().isoformat())
    return dict(alive.select("url", "cuid").iter_rows())


def _later(bench: Bench, days: int) -> Callable[[], Any]:
    moment = bench.now() + timedelta(days=days)
    return lambda: moment


def _link(name: str) -> Any:
    from flows.extensions.partner_api.service_objects import CardLink

    until = (DAY + timedelta(days=60)).isoformat()
    return CardLink.model_validate({"id": name, "url": f"{WHERE}{name}", "expiration_date": until})


def _with(bench: Bench, store: Any) -> Bench:
    return Bench(store, bench.issuer, bench.now, database=bench.database)


@pytest.mark.slow
def test_the_link_of_who_left_a_portfolio_is_withdrawn_and_comes_back_with_its_holder(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b")
    first = [change for _, change, _ in delivered(place.bench, 1)]
    gone = place.people.pop("b")
    place.night()
    without = [(change, why) for _, change, why in delivered(place.bench, 2)]
    place.people["b"] = gone
    place.night()

    back = [(change, why) for _, change, why in delivered(place.bench, 3)]

    assert ["new", "new"] == first
    assert [("withdrawn", "left")] == without
    assert [("new", "no other link")] == back


@pytest.mark.slow
def test_of_a_card_that_was_replaced_the_link_is_withdrawn_before_the_new_one_is_there(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b")
    delivered(place.bench, 1)
    place.people["a"] |= {PAN: "5555555555554444"}
    place.night()

    changes = [(change, why) for _, change, why in delivered(place.bench, 2)]

    assert [("withdrawn", "left")] == changes
