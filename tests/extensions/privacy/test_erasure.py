"""A cardholder is forgotten: gone from all that is derived, withdrawn, and never sent again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import polars as pl
import pytest
from sqlalchemy import Connection, select, update

from flows.adapters.local import LocalStore
from flows.book import upkeep
from flows.book.book import read_book
from flows.book.people import balance
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.receivers import confirm
from flows.extensions.governance.in_force import compared
from flows.extensions.governance.requests import unexpired
from flows.extensions.governance.tables import REQUEST
from flows.extensions.governance.two_persons import Command, request
from flows.extensions.partner_api.linking import link_typed
from flows.extensions.partner_api.service import AnswerLostError, LinkRequestError
from flows.extensions.privacy.erasure import (
    NoSuchLinkError,
    OfRows,
    OfSingle,
    UnansweredError,
    UnderWayError,
    erase,
    plan_erasure,
)
from flows.operations.audit import verify
from flows.operations.purge import purge
from flows.reports.across import reconcile_runs
from flows.runs.decisions import ERASURE
from flows.runs.erased import ErasedPeople, NamedPeople, erasure_of, unfinished_erasures
from flows.runs.keys import cleaned
from flows.runs.single_links import prompted_singles
from flows.steps import Step
from schemas.database import DECISION, JOURNAL, METADATA
from schemas.portal import CITY, CUID
from tests.builders import portal_rows, quick
from tests.extensions.partner_api.linker import SERVICE, TYPED, URL, Linker
from tests.night import BANK, DAY, NOON, Bench, local_bench, made_once, portal_csv
from tests.test_dry_runs import answered, facts_of

WITHDRAW = Step("deliver", "bank")  # what withdraws a link
BY = "anna via worker:1"
GONE = "C-0003-forgotten"
OTHERS = [f"C-{number:04d}-stays" for number in range(1, 13)]
WHY = "request of 2026-11-20"
# what the issuer and the partner dropped, and what others sealed
DELIVERED = ["bank/deliveries/000001/links.csv", "bank/deliveries/000001/links.parquet"]
WITHDRAWING = ("bank/deliveries/000001/",)
DROPPED = ("bank/extracts/", "bank/results/")


def extract(*others: str) -> bytes:
    """Return an extract with the person and others."""
    cuids = [GONE, *others]
    return portal_csv(portal_rows(*({"cardholder.cuid": cuid} for cuid in cuids)))


@made_once
def delivered(folder: Path, /) -> tuple[Bench, str]:
    """Return a bench on which the person's link was delivered, and the run."""
    bench = local_bench(folder)
    named = trailed(bench)
    run = named.submit(named.drop_bytes(extract(*OTHERS))).manifest.run
    named.answer()
    named.ingest()
    deliver(named.context)
    confirm(named.context, 1, "received")
    reconcile_runs(named.context)
    return bench, run


def trailed(bench: Bench) -> Bench:
    """Return a bench on which somebody acts whom entries can be told by."""
    return replace(bench, actor=BY)


def cleaner(bench: Bench) -> LocalStore:
    """Return the store of a bench, with the right to delete."""
    store = bench.store
    assert isinstance(store, LocalStore)
    return store


def row_of(bench: Bench, run: str, cuid: str = GONE) -> int:
    """Return the row of a cardholder."""
    return int(bench.ledger(run).filter(cuid=cuid)["row"].item())


def texts_of(content: bytes) -> Iterator[bytes]:
    """Yield an object as it is, and what is in it where it is a container."""
    yield content
    if content.startswith(b"PAR1"):
        yield pl.read_parquet(BytesIO(content)).write_json().encode()
    elif is_zipfile(BytesIO(content)):
        with ZipFile(BytesIO(content)) as container:
            yield from map(container.read, container.namelist())


def naming(objects: Mapping[str, bytes], *texts: str) -> list[str]:
    """Return the keys of the objects in which any of these texts is, but for dropped ones."""
    return [
        key
        for key, content in objects.items()
        if not key.startswith(DROPPED)
        and any(text.encode() in part for part in texts_of(content) for text in texts)
    ]


def findings(bench: Bench) -> set[tuple[str, str]]:
    return {(each.key, each.what) for each in verify(bench.adapters, BANK).findings}


def link_of(bench: Bench, run: str) -> str:
    rows = pl.concat(bench.stored(run).rows(["cuid", "url"]))
    return str(rows.filter(cuid=GONE)["url"].item())


def test_a_forgotten_cardholder_is_gone_once_the_withdrawal_is_confirmed(tmp_path: Path) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    link = link_of(bench, run)
    before = balance(read_book(bench.context.adapters, BANK).cards(DAY)).named
    named_before = naming(bench.snapshot(), GONE, link)

    done = erase(bench.context, cleaner(first), OfRows(run, [row_of(bench, run)]), WHY)
    at_once = naming(bench.snapshot(), GONE, link)
    second = deliver(bench.context)
    withdrawn = bench.content("bank/deliveries/000002/links.csv").decode()
    purge(bench.context, cleaner(first))
    is_open = bool(unfinished_erasures(bench.adapters, BANK))
    confirm(bench.context, 2, "received")
    purge(bench.context, cleaner(first))

    assert (1, WITHDRAW) == (done.cardholders, done.links)
    assert list(DELIVERED) == at_once
    assert second.record is not None
    assert (0, 1) == (second.record.new, second.record.withdrawn)
    assert GONE in withdrawn
    assert "forgotten" in withdrawn
    assert (True, []) == (is_open, unfinished_erasures(bench.adapters, BANK))
    assert [] == naming(bench.snapshot(), GONE, link)
    folders = {f"{BANK}/{key.split('/')[1]}/" for key in named_before}
    assert set() == folders - {*cleaned(BANK)}
    assert set() == findings(bench)
    book = read_book(bench.context.adapters, BANK)
    assert before == balance(book.cards(DAY), book.opening).named
    assert "1 more is forgotten (erasures)." == book.opening.sentence
    # everybody else is as before
    assert deliver(bench.context).record is None
    assert sorted(OTHERS) == sorted(book.cards(DAY)["cuid"])
    summary = bench.stored(run).summary or {}
    assert ("balanced", 12, 1) == (
        summary["verdict"],
        summary["rows"]["linked"],
        summary["rows"]["error"],
    )


def test_nothing_is_ever_sent_again_for_a_forgotten_cardholder(tmp_path: Path) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    erase(bench.context, cleaner(first), OfRows(run, [row_of(bench, run)]), WHY)
    another = [f"C-{number:04d}-new" for number in range(20, 23)]

    later = bench.submit(bench.drop_bytes(extract(*another), "bank-20261121.csv")).manifest
    bench.answer()
    bench.ingest()

    assert (3, 1) == (later.counts.submitted, later.counts.suppressed)
    assert 1 == later.reasons["card.holder.erased"]
    named = naming(bench.snapshot(), GONE)
    assert [] == [key for key in named if not key.startswith(WITHDRAWING)]
    assert set() == findings(bench)


@pytest.mark.parametrize(
    "spelling", quick(1, ["c-0003-FORGOTTEN", "C\uff0d0003-forgotten", " C-0003-forgotten\u2003"])
)
def test_a_forgotten_cardholder_is_not_sent_under_another_spelling_of_the_cuid(
    spelling: str,
) -> None:
    people = NamedPeople(frozenset({GONE}))
    erased = ErasedPeople("00", ErasedPeople("00").digests_of(people))
    cuids = pl.Series([spelling, f"{GONE}-2", None, GONE])

    for known in (people, erased):
        assert [True, False, False, True] == known.named_by(cuids).to_list()


def test_what_stays_until_its_own_end_is_named(tmp_path: Path) -> None:
    bench, run = delivered(tmp_path)

    plan = plan_erasure(bench.context, OfRows(run, [row_of(bench, run)]))

    kept = {each.where for each in plan.kept}
    assert {
        "bank/extracts/bank-20261120.csv row 1",
        f"bank/runs/{run}/chunks/{run}-00001.csv.pgp",
        f"bank/results/card-links-{run}-00001-result.csv",
        "bank/deliveries/000001/links.parquet",
    } == kept
    assert {"ledger": 1, "outcomes": 1, "deliveries": 1} == plan.removed
    versioned = plan_erasure(bench.context, OfRows(run, [row_of(bench, run)]), hides=True)
    assert "the bucket keeps versions" in {each.why for each in versioned.kept}


def test_a_result_that_comes_again_brings_nobody_back(tmp_path: Path) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    content = bench.content(f"bank/results/card-links-{run}-00001-result.csv")
    erase(bench.context, cleaner(first), OfRows(run, [row_of(bench, run)]), WHY)

    bench.drop_result(content + b"\n", f"{run}-00001 (1).csv")
    bench.ingest()

    named = naming(bench.snapshot(), GONE)
    assert [] == [key for key in named if not key.startswith(WITHDRAWING)]


def test_who_awaits_an_answer_cannot_be_forgotten_yet(tmp_path: Path) -> None:
    first, _ = delivered(tmp_path)
    bench = trailed(first)
    later = bench.submit(
        bench.drop_bytes(extract("C-0099-new").replace(GONE.encode(), b"C-0098-new"), "b.csv"),
        business_date=DAY,
    ).manifest.run
    row = row_of(bench, later, "C-0098-new")

    with pytest.raises(UnansweredError) as refused:
        erase(bench.context, cleaner(first), OfRows(later, [row]), WHY)

    assert f"outbox cancel {later} 1" in str(refused.value)
    assert [] == unfinished_erasures(bench.adapters, BANK)


def test_a_store_knows_whom_it_forgot_by_keyed_digests_alone(tmp_path: Path) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    erase(bench.context, cleaner(first), OfRows(run, [row_of(bench, run)]), WHY)

    act = erasure_of(bench.adapters, BANK, GONE)

    assert act is not None
    assert WHY == act.reason
    assert erasure_of(bench.adapters, BANK, OTHERS[0]) is None
    facts = {"key": "00", "persons": list(act.persons), "what": act.what}
    other_key = update(DECISION).where(DECISION.c.kind == ERASURE, DECISION.c.number == 1)

    def change(connection: Connection) -> None:
        connection.execute(other_key.values(facts=facts))

    bench.database.act(BANK, change)
    assert erasure_of(bench.adapters, BANK, GONE) is None
    assert "decision/1" in {each.key for each in verify(bench.adapters, BANK).findings}


class _Killed(BaseException):
    """The process ends here."""


class _Dying(LocalStore):
    """A store of which the calls that change something end the process after some."""

    left = 0

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Killed

    def create(self, key: str, data: bytes) -> bool:
        """Write, unless the process ends first."""
        self._count()
        return super().create(key, data)

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write, unless the process ends first."""
        self._count()
        super().replace(key, parts)

    def delete(self, key: str) -> None:
        """Delete, unless the process ends first."""
        self._count()
        super().delete(key)


@pytest.mark.parametrize("calls", quick(2, [8, 25, 15, 11, 60, 9, 13, 17, 20, 30, 35, 40]))
def test_an_erasure_that_is_killed_anywhere_is_finished_by_the_next_purge(
    tmp_path: Path, calls: int
) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    dying = _Dying(tmp_path / "store")
    dying.left = calls
    killed = replace(bench, store=dying)

    with suppress(_Killed):
        erase(killed.context, dying, OfRows(run, [row_of(bench, run)]), WHY)
    bench = trailed(first)
    is_recorded = erasure_of(bench.adapters, BANK, GONE) is not None
    purge(bench.context, cleaner(first))

    named = [key for key in naming(bench.snapshot(), GONE) if not key.startswith(WITHDRAWING)]
    assert is_recorded is not bool(named)
    if is_recorded:
        deliver(bench.context)
        confirm(bench.context, 2, "received")
        purge(bench.context, cleaner(first))
        assert [] == naming(bench.snapshot(), GONE)
    assert set() == findings(bench)
    assert sorted(OTHERS) == sorted(
        read_book(bench.context.adapters, BANK).cards(DAY).filter(pl.col("cuid") != GONE)["cuid"]
    )


@pytest.mark.parametrize("calls", quick(1, [15, 9, 13, 17, 20, 30, 35]))
def test_an_erasure_that_is_killed_is_ended_by_the_same_command(tmp_path: Path, calls: int) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    row = row_of(bench, run)
    dying = _Dying(tmp_path / "store")
    dying.left = calls
    killed = replace(bench, store=dying)

    with suppress(_Killed):
        erase(killed.context, dying, OfRows(run, [row]), WHY)
    bench = trailed(first)
    done = erase(bench.context, cleaner(first), OfRows(run, [row]), WHY)

    assert (1, 1, WITHDRAW) == (done.cardholders, done.cards, done.links)
    assert done == plan_erasure(bench.context, OfRows(run, [row]))  # so says its dry run, too
    assert [] == [key for key in naming(bench.snapshot(), GONE) if not key.startswith(WITHDRAWING)]
    assert set() == findings(bench)


@pytest.mark.slow
def test_who_has_a_cuid_of_ours_is_known_by_the_row_in_a_later_extract(tmp_path: Path) -> None:
    first = local_bench(tmp_path)
    bench = trailed(first)
    person = portal_rows({"cardholder.cuid": None}, {"cardholder.cuid": "C-2"})
    run = bench.submit(bench.drop_bytes(portal_csv(person))).manifest.run
    bench.answer()
    bench.ingest()
    cuid = bench.ledger(run)["cuid"][0]

    erase(bench.context, cleaner(first), OfRows(run, [1]), WHY)
    again = portal_rows({"cardholder.cuid": None}, {"cardholder.cuid": "C-3"}, {})
    later = bench.submit(bench.drop_bytes(portal_csv(again), "bank-20261121.csv")).manifest

    assert 1 == later.reasons["card.holder.erased"]
    assert 0 == erase(bench.context, cleaner(first), OfRows(run, [1]), WHY).cardholders
    assert [] == naming(bench.snapshot(), cuid)
    assert set() == findings(bench)


@pytest.mark.slow
def test_who_comes_back_under_another_cuid_is_somebody_else_and_is_sent(tmp_path: Path) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    erase(bench.context, cleaner(first), OfRows(run, [row_of(bench, run)]), WHY)

    renamed = extract("C-0050-new").replace(GONE.encode(), b"C-0003-returned")
    later = bench.submit(bench.drop_bytes(renamed, "bank-20261121.csv")).manifest

    assert (2, 0) == (later.counts.submitted, later.counts.suppressed)


def test_a_row_that_was_refused_is_forgotten_too(tmp_path: Path) -> None:
    first = local_bench(tmp_path)
    bench = trailed(first)
    rows = portal_rows({"cardholder.cuid": GONE, CITY: None}, {"cardholder.cuid": "C-2"})
    run = bench.submit(bench.drop_bytes(portal_csv(rows))).manifest.run
    bench.answer()
    bench.ingest()

    erase(bench.context, cleaner(first), OfRows(run, [1]), WHY)

    assert [] == naming(bench.snapshot(), GONE)
    assert set() == findings(bench)
    assert "balanced" == (bench.stored(run).summary or {})["verdict"]


# Whom nobody but a single link names
# --------------------------------------------------------------------------------------------------


def typed_in(bench: Bench, linker: Linker | None = None) -> str:
    """Request a link for the person with fields that are typed in; return its name."""
    with suppress(AnswerLostError):
        link_typed(bench.context, linker or Linker(), {**TYPED, CUID: GONE})
    [single] = prompted_singles(bench.adapters, BANK)
    return single.id


def test_who_is_known_from_a_typed_in_link_alone_is_forgotten_and_gets_no_other(
    tmp_path: Path,
) -> None:
    first = local_bench(tmp_path, service=SERVICE)
    bench = trailed(first)
    name = typed_in(bench)
    deliver(bench.context)
    confirm(bench.context, 1, "received")

    done = erase(bench.context, cleaner(first), OfSingle(name), WHY)
    second = deliver(bench.context)
    confirm(bench.context, 2, "received")
    purge(bench.context, cleaner(first))
    with pytest.raises(LinkRequestError, match=r"card\.holder\.erased"):
        link_typed(bench.context, Linker(), {**TYPED, CUID: GONE})
    later = bench.submit(bench.drop_bytes(extract("C-1"))).manifest

    assert (1, 1, {"single": 1, "deliveries": 1}, WITHDRAW) == (
        done.cardholders,
        done.cards,
        done.removed,
        done.links,
    )
    assert second.record is not None
    assert 1 == second.record.withdrawn
    assert 1 == later.reasons["card.holder.erased"]
    assert [] == naming(bench.snapshot(), GONE, URL)
    assert set() == findings(bench)


def test_a_typed_in_link_whose_answer_is_lost_is_forgotten_once_its_request_has_ended(
    tmp_path: Path,
) -> None:
    first = local_bench(tmp_path, service=SERVICE)
    bench = trailed(first)
    lost = AnswerLostError(place="POST /card_links", kind="ReadTimeout", advice="Ask.")
    name = typed_in(bench, Linker(lost))
    after = replace(bench, now=lambda: NOON + timedelta(hours=1))

    with pytest.raises(UnderWayError):
        erase(bench.context, cleaner(first), OfSingle(name), WHY)
    erase(after.context, cleaner(first), OfSingle(name), WHY)

    assert [] == naming(bench.snapshot(), GONE)
    assert set() == findings(bench)


def test_a_result_file_that_comes_again_is_no_break_for_who_was_forgotten_since(
    tmp_path: Path,
) -> None:
    bench, run = answered(tmp_path)
    [first, *_] = bench.store.keys("bank/results/")
    facts_of(tmp_path, "person erase", target=run, row=2, reason=WHY)
    bench.drop_result(bench.content(first.key), f"again-{first.key.rpartition('/')[2]}")

    ingested = facts_of(tmp_path, "ingest", issuer="bank")

    assert () == ingested["breaks"]


def test_a_single_link_that_an_issuer_does_not_have_is_said_to_be_missing(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, service=SERVICE)

    with pytest.raises(NoSuchLinkError, match="has no link 20261120T120000000000-ab12cd34"):
        plan_erasure(bench.context, OfSingle("20261120T120000000000-ab12cd34"))


# Requests for a second person
# --------------------------------------------------------------------------------------------------


def requested(bench: Bench, cuid: str) -> str:
    """Request something that names a cardholder; return the number of the request."""
    line = f"cardlink mend give-up bank --cuid {cuid}"
    command = Command(
        "give-up", line, {"cuids": [cuid]}, (), {}, "anna", WHY, compared(bench.context)
    )
    return request(bench.context, command).number


def requests_naming(bench: Bench, cuid: str) -> list[str]:
    """Return the numbers of the requests that have a cuid anywhere."""
    with bench.database.snapshot() as connection:
        rows = connection.execute(select(REQUEST)).all()
    return [row.number for row in rows if cuid in str(row)]


@pytest.mark.parametrize("calls", [1000, *quick(1, [8, 11, 15, 20, 25, 30, 40, 60])])
def test_of_a_request_that_names_a_forgotten_cardholder_is_left_that_there_was_one(
    tmp_path: Path, calls: int
) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    gone = requested(bench, GONE)
    other = requested(bench, OTHERS[0])
    dying = _Dying(tmp_path / "store")
    dying.left = calls
    planned = plan_erasure(bench.context, OfRows(run, [row_of(bench, run)])).removed["requests"]

    with suppress(_Killed):
        erase(replace(bench, store=dying).context, dying, OfRows(run, [row_of(bench, run)]), WHY)
    bench = trailed(first)
    is_recorded = erasure_of(bench.adapters, BANK, GONE) is not None
    purge(bench.context, cleaner(first))

    assert 1 == planned
    assert ([] if is_recorded else [gone]) == requests_naming(bench, GONE)
    assert [other] == requests_naming(bench, OTHERS[0])
    waiting = {other} if is_recorded else {gone, other}
    assert waiting == {each.number for each in unexpired(bench.context)}
    with bench.database.snapshot() as connection:
        assert GONE not in str(connection.execute(select(JOURNAL)).all())
    assert set() == findings(bench)


# The book in the database
# --------------------------------------------------------------------------------------------------


def test_the_database_has_no_row_of_who_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "TOGETHER", 1)
    first, run = delivered(tmp_path)
    bench = trailed(first)
    upkeep.forget_book(bench.context.adapters, BANK)

    def tables_with(cuid: str) -> list[str]:
        read_book(bench.context.adapters, BANK).cards(DAY)
        with bench.database.snapshot() as connection:
            named = [table for table in METADATA.sorted_tables if "cuid" in table.c]
            rows = {table.name: connection.execute(select(table.c.cuid)) for table in named}
            return [name for name, cuids in rows.items() if cuid in cuids.scalars().all()]

    before = tables_with(GONE)
    erase(bench.context, cleaner(first), OfRows(run, [row_of(bench, run)]), WHY)

    # a receiver has the link until it is withdrawn
    assert ["attempt", "delivery_change", "ledger_row"] == sorted(before)
    assert ["delivery_change"] == tables_with(GONE)
    assert "attempt" in tables_with(OTHERS[0])
    number = deliver(bench.context).number
    confirm(bench.context, number, "received")
    purge(bench.context, cleaner(first))
    assert [] == tables_with(GONE)
    assert "delivery_change" in tables_with(OTHERS[0])
    with bench.database.snapshot() as connection:
        assert GONE not in str(connection.execute(select(JOURNAL)).all())
