"""One look at a run's links: what is asked, what is kept, and what a killed look leaves to the
next.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import polars as pl
import pytest
from sqlalchemy import Connection, delete, func, select, update

from flows.database.connection import Transactions
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.link_check import check_links
from flows.extensions.partner_api.placements import read_placements
from flows.extensions.partner_api.responses import link_of
from flows.extensions.partner_api.service import NoSuchRecordError, ServiceBusyError
from flows.extensions.partner_api.service_objects import CardLink, JobRecord
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.tables import PLACEMENT, SERVICE_MESSAGE
from flows.reports.across import reconcile_runs
from flows.reports.rebuild import rebuild
from flows.runs.claim import ClaimedError
from flows.runs.keys import reconciliation
from flows.runs.single_links import row_attempt
from schemas.records import SingleAnswered, SingleAsked
from tests.night import BANK, NOON, Bench, issuer, local_bench, made_once
from tests.singles import recorded

T = TypeVar("T")
SERVICE = {"base_url": "http://127.0.0.1:1", "follow_cardholders": True, "requests_per_second": 1e6}


@dataclass
class Partner:
    """A service of three methods: links by id, messages by cardholder (given once), jobs by id."""

    links: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    before: Callable[[str], None] = lambda _: None
    lock: Lock = field(default_factory=Lock)

    def card_link(self, link_id: str) -> CardLink:
        self._note("link")
        if link_id not in self.links:
            raise NoSuchRecordError(place="the link")
        link = link_of(json.dumps(self.links[link_id]).encode())
        assert link is not None
        return link

    def cardholder_messages(self, cardholder_id: str) -> bytes:
        self._note("messages")
        return json.dumps(self.messages.pop(cardholder_id, [])).encode()

    def job(self, job_id: str) -> JobRecord:
        self._note("job")
        if job_id not in self.jobs:
            raise NoSuchRecordError(place="the job")
        return JobRecord.model_validate(self.jobs[job_id])

    def _note(self, what: str) -> None:
        with self.lock:
            self.asked[what] += 1
            self.before(what)


def night(folder: Path, rows: int = 12, **service: Any) -> tuple[Bench, str, pl.DataFrame]:
    """Return a bench whose run has links, its id, and its linked rows with the id of each link."""
    bench, run = _answered(folder, rows)
    bench.issuer = issuer(service={**SERVICE, **service}, portal={"rows_per_chunk": 5})
    linked = pl.read_parquet(
        next((folder / "store").glob("bank/runs/*/report/rows/*.parquet"))
    ).filter(state="linked")
    return (
        bench,
        run,
        linked.with_columns(pl.col("url").str.split("/").list.last().alias("link_id")),
    )


@made_once
def _answered(folder: Path, rows: int) -> tuple[Bench, str]:
    bench = local_bench(folder, portal={"rows_per_chunk": 5})
    run = bench.submit(bench.drop(rows)).manifest.run
    bench.answer()
    bench.ingest()
    return bench, run


def know_all(partner: Partner, linked: pl.DataFrame) -> None:
    """Give every link a record: cardholder `h-<row>`, not opened yet."""
    for row, link_id in linked.select("row", "link_id").iter_rows():
        card = {"cardholder": {"id": f"h-{row}"}}
        partner.links[link_id] = {"id": link_id, "card": card, "opened_on": None}


def status(job_id: str, state: str, **more: Any) -> dict[str, Any]:
    return {"type": "job_status", "job_id": job_id, "message": {"status": state, **more}}


def looked(bench: Bench, run: str) -> pl.DataFrame:
    """Return the placements of a run, by row."""
    return read_placements(bench.adapters, BANK, [run])


def _always(moment: datetime) -> Callable[[], datetime]:
    return lambda: moment


def settings(bench: Bench) -> Any:
    assert bench.issuer.table(ServiceSettings) is not None
    return bench.issuer.table(ServiceSettings)


def test_a_link_is_followed_to_the_end_of_its_jobs(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    first, second = linked["row"][:2]
    partner.messages[f"h-{first}"] = [status("7", "AUTH"), status("8", "AUTH")]
    partner.messages[f"h-{second}"] = [status("9", "PENDING")]
    partner.jobs["7"] = {"id": 7, "status": "TIMEOUT_TFA", "termination_type": "USER_DATA_FAILURE"}
    partner.jobs["8"] = {
        "id": 8,
        "status": "SUCCESSFUL",
        "termination_type": "BILLABLE",
        "merchant_site": "Books",
    }
    partner.jobs["9"] = {"id": 9, "status": "PENDING", "percent_complete": 30}

    done = check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    told = (
        looked(bench, run)
        .filter(pl.col("opened"))
        .select("row", "merchant_site", "termination_type", "running")
    )
    assert [(first, "Books", "BILLABLE", False), (second, None, None, True)] == told.rows()
    assert (12, 12, 0, 2) == done[:4]


def test_a_link_is_seen_opened_on_the_day_of_the_first_look_that_found_it_so(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    first, second, *others = linked["link_id"]

    for link_id, moment in ((first, NOON), (second, NOON + timedelta(1))):
        partner.links[link_id]["opened_on"] = "2026-11-19"
        bench = replace(bench, now=_always(moment))
        check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    moments = looked(bench, run)["opened_at"].to_list()
    assert [NOON, NOON + timedelta(1), *[None] * len(others)] == moments


def test_a_second_look_right_after_the_first_asks_nothing(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    check_links(bench.context, partner, settings(bench), [bench.stored(run)])
    before = looked(bench, run)
    partner.asked.clear()

    done = check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    assert (12, 0, Counter()) == (done.links, done.asked, partner.asked)
    assert before.equals(looked(bench, run))


def test_a_link_the_service_does_not_know_is_asked_of_again_at_once(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    check_links(bench.context, partner, settings(bench), [bench.stored(run)])
    before = looked(bench, run)["trouble"].unique().to_list()
    know_all(partner, linked)

    check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    assert ["link.record.missing"] == before
    assert [None] == looked(bench, run)["trouble"].unique().to_list()


def test_messages_of_a_look_that_died_before_it_kept_anything_else_are_counted_in_by_the_next(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    row = linked["row"][0]
    partner.messages[f"h-{row}"] = [status("7", "AUTH")]
    check_links(bench.context, partner, settings(bench), [bench.stored(run)])
    # as a kill leaves it: the messages are there, what was made of them is not
    with bench.database.snapshot() as connection:
        assert 1 == connection.scalar(select(func.count()).select_from(SERVICE_MESSAGE))
    bench.database.act(BANK, forget_placements)

    partner.jobs["7"] = {"id": 7, "status": "SUCCESSFUL", "termination_type": "BILLABLE"}
    check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    placed = looked(bench, run).filter("opened").select("row", "termination_type")
    assert [(row, "BILLABLE")] == placed.rows()


@pytest.mark.usefixtures("one_at_a_time")
def test_a_service_that_falls_silent_ends_the_look_and_what_was_learnt_stays(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path, rows=60)
    partner = Partner()
    know_all(partner, linked)

    def fall_silent(_: str) -> None:
        if sum(partner.asked.values()) > 20:
            raise ServiceBusyError(place="the link", kind="HTTP 503")

    partner.before = fall_silent
    stopped = check_links(bench.context, partner, settings(bench), [bench.stored(run)]).stopped
    first = looked(bench, run)["seen_at"].is_not_null().sum()
    partner.before = lambda _: None

    done = check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    assert ("service.answer.unavailable.503", 10, 50) == (stopped, first, done.asked)


def test_nothing_of_a_link_or_of_a_text_for_people_is_kept(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    asks = {
        "type": "tfa",
        "job_id": 7,
        "envelope_id": "guid-1",
        "account_link": [{"key_name": "tfa", "label": "sent to 42"}],
        "message": {"status": "PENDING", "status_message": "Dear Ada, 4242 4242 4242 4242"},
    }
    partner.messages[f"h-{linked['row'][0]}"] = [asks, {"odd": "4242424242424242"}]

    check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    with bench.database.snapshot() as connection:
        contents = connection.scalars(select(SERVICE_MESSAGE.c.content)).all()
    messages = json.dumps(contents).encode()
    table = looked(bench, run).write_json().encode()
    assert b"job_id" in messages
    for secret in (b"4242424242424242", b"4242 4242", b"Ada", b"guid-1", b"sent to", b"https://"):
        assert secret not in messages + table
    assert [link_id for link_id in linked["link_id"] if link_id.encode() in messages + table] == []


def test_without_leave_no_cardholders_messages_are_read(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path, follow_cardholders=False)
    partner = Partner()
    know_all(partner, linked)

    check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    assert {"link": 12} == partner.asked


def test_the_round_counts_the_funnel_and_the_report_shows_it(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    row = linked["row"][0]
    partner.messages[f"h-{row}"] = [status("7", "AUTH")]
    partner.jobs["7"] = {
        "id": 7,
        "status": "SUCCESSFUL",
        "termination_type": "BILLABLE",
        "merchant_site": "Books",
    }

    facts = follow_links(bench.context, partner)

    reached = [one["cardholders"] for one in facts["funnel"]["stages"]]
    assert [12, 12, 12, 1, 1, 1] == reached
    assert facts["funnel"] == json.loads(bench.report(run, "summary.json"))["funnel"]
    assert b"From link to placed card" in bench.report(run, "report.html")
    assert [] == follow_links(bench.context, partner)["rebuilt"]


class Killed(BaseException):
    """What a killed process leaves: nothing after it runs, whatever tries to tidy up."""


@dataclass
class DyingDatabase:
    """A database whose process is killed right after its last act: everything later fails too."""

    database: Transactions
    acts: int

    @property
    def place(self) -> str:
        return self.database.place

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        self.check()
        self.acts -= 1
        done = self.database.act(issuer, work)
        self.check()
        return done

    def rehearsal(self, issuer: str) -> AbstractContextManager[Connection]:
        return self.database.rehearsal(issuer)

    def snapshot(self) -> AbstractContextManager[Connection]:
        return self.database.snapshot()

    def check(self) -> None:
        if self.acts <= 0:
            raise Killed


def forget_placements(connection: Connection) -> None:
    """Take away what was made of messages, which a killed check had not written yet."""
    connection.execute(delete(PLACEMENT))
    connection.execute(update(SERVICE_MESSAGE).values(reading=""))


def busy(linked: pl.DataFrame) -> Partner:
    """Return a partner with a job, told of in messages, for every other link."""
    partner = Partner()
    know_all(partner, linked)
    for row in linked["row"][::2]:
        partner.messages[f"h-{row}"] = [status(str(row), "AUTH")]
        partner.jobs[str(row)] = {"id": row, "status": "SUCCESSFUL", "termination_type": "BILLABLE"}
    return partner


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("acts", range(1, 9))
def test_a_look_killed_after_any_of_its_acts_and_run_again_loses_no_message(
    tmp_path: Path, acts: int
) -> None:
    bench, run, linked = night(tmp_path)
    partner, dying = busy(linked), DyingDatabase(bench.database, acts)
    partner.before = lambda _: dying.check()
    dying_bench = replace(bench, database=cast(Any, dying))
    with suppress(Killed):
        check_links(dying_bench.context, partner, settings(bench), [dying_bench.stored(run)])
    partner.before = lambda _: None

    later = replace(bench, now=lambda: NOON + timedelta(hours=7))
    check_links(later.context, partner, settings(bench), [bench.stored(run)])

    placed_rows = looked(bench, run).filter(termination_type="BILLABLE")["row"].to_list()
    assert linked["row"].to_list()[::2] == placed_rows


def test_of_two_looks_at_once_one_works_and_the_other_is_told_so(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner, told = busy(linked), list[str]()

    def look_too(_: str) -> None:
        if not told:
            told.append("")
            with pytest.raises(ClaimedError) as caught:
                check_links(
                    replace(bench, actor="other:2").context,
                    Partner(),
                    settings(bench),
                    [bench.stored(run)],
                )
            told[0] = str(caught.value)

    partner.before = look_too
    check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    assert "tester:1 has claimed" in told[0]


@pytest.mark.slow
def test_a_single_link_made_for_a_refused_row_is_followed_and_counted_with_the_others(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, service=SERVICE)
    run = bench.submit(bench.drop(40, bad=0.3)).manifest.run
    bench.answer()
    bench.ingest()
    row, cuid, last_4 = (
        bench.ledger(run)
        .filter(fate="rejected")
        .drop_nulls("cuid")
        .select("row", "cuid", "last_4")
        .row(0)
    )
    asked = SingleAsked(
        row=row, cuid=cuid, last_4=last_4 or "4242", expiration="2911", at=NOON, by="tester"
    )
    url = "https://links.example.com/verify?k=1"  # its id is the one that the service gave
    told = SingleAnswered(
        outcome="linked", at=NOON, link_id="alone", url=url, expires_on=date(2027, 1, 20)
    )
    recorded(bench.adapters, row_attempt(run, row, 1), asked, told)
    rebuild(bench.context, bench.stored(run))
    before = follow_links(bench.context, None)["funnel"]["stages"]
    partner = Partner(
        links={"alone": {"id": "alone", "card": {"cardholder": {"id": "h"}}}},
        messages={"h": [status("1", "AUTH")]},
    )
    partner.jobs["1"] = {"id": 1, "status": "SUCCESSFUL", "termination_type": "BILLABLE"}

    after = follow_links(bench.context, partner)["funnel"]["stages"]

    assert bench.ledger(run).filter(fate="submitted").height + 1 == before[2]["cardholders"]
    assert (before[2]["cardholders"], 1) == (after[2]["cardholders"], after[5]["cardholders"])
    assert row in looked(bench, run).filter(termination_type="BILLABLE")["row"]


@pytest.mark.slow
def test_the_page_across_runs_shows_the_issuers_funnel_once_links_were_looked_at(
    tmp_path: Path,
) -> None:
    bench, _, linked = night(tmp_path)
    partner = busy(linked)
    page = f"{reconciliation(BANK)}report.html"
    reconcile_runs(bench.context)
    before = bench.content(page)

    follow_links(bench.context, partner)
    facts = reconcile_runs(bench.context)

    assert b"From link to placed card" not in before
    assert b"From link to placed card" in bench.content(page)
    assert 6 == facts["funnel"]["stages"][-1]["cardholders"]


def test_a_cardholder_nobody_has_written_to_is_no_error(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)

    def unknown(what: str) -> None:
        if what == "messages":
            raise NoSuchRecordError(place="the messages")

    partner.before = unknown
    done = check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    assert (12, 0) == (done.asked, done.unanswered)
    assert [None] == looked(bench, run)["trouble"].unique().to_list()
