"""Single links for many rows: each is requested once, whatever stops the command, and every row is
in the balance.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flows.adapters.local import LocalSource, LocalStore
from flows.database.connection import Database
from flows.errors import CardlinkError
from flows.extensions.partner_api import linking
from flows.extensions.partner_api.link_plan import (
    LinkPlan,
    RowName,
    RowsFileError,
    plan_links,
    refused_rows,
    refused_rows_of_all_runs,
    rows_of_file,
)
from flows.extensions.partner_api.link_requests import Terms
from flows.extensions.partner_api.linking import link_row, rehearse_links, request_links
from flows.extensions.partner_api.service import (
    AnswerLostError,
    ServiceBusyError,
    StrangeAnswerError,
)
from flows.extensions.partner_api.service_objects import CardLink, CardLinkRequest, Refusal
from flows.reports.across import reconcile_runs
from flows.runs.store import Entry
from schemas.portal import CITY, CUID, PAN, PHONE
from tests.builders import portal_rows
from tests.extensions.partner_api.linker import PANS, REACHED, SERVICE, URL, Linker, answered
from tests.facts import people
from tests.lives.mortal import KilledError, MortalStore
from tests.night import NOON, Bench, issuer, local_bench, made_once, portal_csv

EVERY_ROW = [1, 2, 3, 4]


class Desk:
    """A service that answers each cuid as it is told, else with a link, and remembers the cuids."""

    def __init__(self, **answers: Refusal | Exception) -> None:
        self._answers = {cuid.replace("_", "-"): answer for cuid, answer in answers.items()}
        self.cuids: list[str] = []

    def create_link(self, request: CardLinkRequest) -> CardLink | Refusal:
        cuid = str(request.cardholder.cuid)
        self.cuids.append(cuid)
        answer = self._answers.get(cuid)
        if isinstance(answer, Exception):
            raise answer
        return answer or CardLink.model_validate({"id": cuid, "url": f"{URL}/{cuid}"})


def lost() -> AnswerLostError:
    return AnswerLostError(place="POST /card_links", kind="ReadTimeout", advice="Ask.")


@made_once
def refused_night(folder: Path) -> str:
    """Return a run of four rows, all of which the partner refused."""
    bench = local_bench(folder, service=SERVICE)
    rows = [{PAN: pan, **REACHED} for pan in PANS[:4]]
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows(*rows)))).manifest.run
    errors = [f',,,,"{{""cuid"": ""c-{row}"", ""errors"": [""busy""]}}"' for row in EVERY_ROW]
    answered(bench, run, *errors)
    return run


@pytest.fixture
def run(tmp_path: Path) -> str:
    return refused_night(tmp_path / "bank")


@pytest.fixture
def bench(tmp_path: Path, run: str) -> Bench:
    return bench_at(tmp_path)


def bench_at(folder: Path, **service: object) -> Bench:
    """Return a bench on the night of `run`."""
    root = folder / "bank"
    store = LocalStore(root / "store")
    settings = issuer(service={**SERVICE, **service})
    return Bench(store, settings, folder=root, database=Database(root / "cardlink.db"))


def planned(bench: Bench, run: str, **choices: bool) -> LinkPlan:
    return plan_links(bench.context, [RowName(run, row) for row in EVERY_ROW], **choices)


def states(bench: Bench, run: str) -> dict[int | None, list[str]]:
    """Return the states of the single links of each row, in order."""
    by_row: dict[int | None, list[str]] = {}
    for single in bench.stored(run).single_link_attempts:
        by_row.setdefault(single.asked.row, []).append(single.state)
    return by_row


@pytest.mark.slow
def test_each_refused_row_gets_its_link_and_counts_in_every_report(bench: Bench, run: str) -> None:
    desk = Desk()

    links = request_links(bench.context, desk, planned(bench, run))

    assert {"rows": 4, "linked": 4, "linked before": 0} == links.balance
    assert ["c-1", "c-2", "c-3", "c-4"] == sorted(desk.cuids)
    assert {"linked": 4} == people(reconcile_runs(bench.context))
    assert "balanced" == (bench.stored(run).summary or {})["verdict"]
    assert [] == refused_rows(bench.stored(run))


class CountingStore(LocalStore):
    """Counts how often each key is opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened = Counter[str]()

    def open(self, key: str, pin: Entry | None = None) -> LocalSource:
        self.opened[key] += 1
        return super().open(key, pin)


def opened_by(folder: Path, rows: list[int]) -> Counter[str]:
    """Return how often each key is opened to request links for rows of a night."""
    run = refused_night(folder / "bank")
    bench = bench_at(folder)
    store = bench.store = CountingStore(folder / "bank" / "store")
    plan = plan_links(bench.context, [RowName(run, row) for row in rows])
    request_links(bench.context, Desk(), plan)
    return store.opened


def test_extract_book_and_reports_are_opened_as_often_for_many_rows_as_for_one(
    tmp_path: Path,
) -> None:
    single = opened_by(tmp_path / "single", [1])
    many = opened_by(tmp_path / "many", EVERY_ROW)

    assert {} == {key: count for key, count in (many - single).items() if "/journal/" not in key}


def test_every_row_is_in_the_balance_whatever_came_of_it(bench: Bench, run: str) -> None:
    link_row(bench.context, Linker(), run, 1)
    desk = Desk(c_2=Refusal("card.pan.exists", "exists"), c_3=lost())

    links = request_links(bench.context, desk, planned(bench, run))

    outcomes = {name.row: (each.outcome, each.why) for name, each in links.outcomes.items()}
    assert {
        1: ("linked", ""),
        2: ("refused", "card.pan.exists"),
        3: ("lost", "no answer is recorded"),
        4: ("linked", ""),
    } == outcomes
    assert {
        "rows": 4,
        "linked": 2,
        "refused": 1,
        "lost": 1,
        "linked before": 1,
    } == links.balance


def test_the_same_command_again_requests_nothing_twice(bench: Bench, run: str) -> None:
    refusing = Desk(c_2=Refusal("card.pan.exists", "exists"), c_3=lost())
    request_links(bench.context, refusing, planned(bench, run))
    repeated = Desk()
    retried = Desk()

    again = request_links(bench.context, repeated, planned(bench, run))
    request_links(bench.context, retried, planned(bench, run, retry_refused=True))

    assert [] == repeated.cuids
    assert {"linked": 2, "refused": 1, "lost": 1} == {
        outcome: again.balance[outcome] for outcome in ("linked", "refused", "lost")
    }
    assert ["c-2"] == retried.cuids


@pytest.mark.slow
def test_a_card_that_has_a_link_or_is_named_by_two_rows_is_requested_once(tmp_path: Path) -> None:
    bench = local_bench(tmp_path / "twice", service=SERVICE)
    card = {**REACHED, CUID: "c-1", PAN: PANS[0]}
    first = bench.submit(bench.drop_bytes(portal_csv(portal_rows(card)))).manifest.run
    answered(bench, first, ',,,,"{""cuid"": ""c-1"", ""errors"": [""busy""]}"')
    moved = portal_csv(portal_rows({**card, CITY: "Salem"}))
    second = bench.submit(bench.drop_bytes(moved, "bank-20261121.csv")).manifest.run
    answered(bench, second, ',,,,"{""cuid"": ""c-1"", ""errors"": [""busy""]}"')
    desk = Desk()
    names = [RowName(first, 1), RowName(second, 1)]

    links = request_links(bench.context, desk, plan_links(bench.context, names))

    assert ["c-1"] == desk.cuids
    assert linking.SAME_CARD == links.outcomes[RowName(second, 1)].why


def test_a_row_that_breaks_a_rule_today_is_not_requested_and_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path / "phoneless", service=SERVICE)
    rows = portal_rows({**REACHED, PAN: PANS[0]}, {PHONE: None, PAN: PANS[1]})
    run = bench.submit(bench.drop_bytes(portal_csv(rows))).manifest.run
    names = [RowName(run, row) for row in (1, 2)]
    desk = Desk()

    links = request_links(
        bench.context, desk, plan_links(bench.context, names), terms=Terms("the cardholders called")
    )

    assert ["c-1"] == desk.cuids
    assert ("not requested", "address.phone_number.missing") == links.outcomes[names[1]][:2]


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ServiceBusyError(place="POST /card_links", kind="HTTP 429"), "not requested"),
        (StrangeAnswerError(place="POST /card_links", problem="no link record"), "lost"),
    ],
)
def test_a_service_that_takes_no_request_ends_the_command_and_the_next_goes_on(
    tmp_path: Path, run: str, error: CardlinkError, state: str
) -> None:
    bench = bench_at(tmp_path)
    desk = Desk(c_2=error)

    links = request_links(bench.context, desk, planned(bench, run))
    request_links(bench.context, desk_again := Desk(), planned(bench, run))

    assert error is links.stopped
    assert ["c-1", "c-2"] == desk.cuids
    assert ["linked", state, "not requested", "not requested"] == [
        links.outcomes[RowName(run, row)].outcome for row in EVERY_ROW
    ]
    expected = ["c-2", "c-3", "c-4"] if state == "not requested" else ["c-3", "c-4"]
    assert expected == desk_again.cuids


@pytest.mark.usefixtures("one_at_a_time")
def test_answers_lost_one_after_another_end_the_command(tmp_path: Path, run: str) -> None:
    bench = bench_at(tmp_path)
    desk = Desk(c_1=lost(), c_2=lost(), c_3=lost())

    links = request_links(bench.context, desk, planned(bench, run))

    assert isinstance(links.stopped, AnswerLostError)
    assert ["c-1", "c-2", "c-3"] == desk.cuids


@pytest.mark.usefixtures("one_at_a_time")
def test_a_stop_signal_is_heard_between_two_batches_and_what_came_is_reported(
    tmp_path: Path, run: str
) -> None:
    bench = bench_at(tmp_path)
    desk = Desk()

    def stop(done: int, _all: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    links = request_links(bench.context, desk, planned(bench, run), on_row=stop)

    assert isinstance(links.stopped, linking.LinkingStoppedError)
    assert {"rows": 4, "linked": 2, "not requested": 2, "linked before": 0} == links.balance
    assert 2 == (bench.stored(run).summary or {})["rows"]["linked"]


@pytest.mark.usefixtures("one_at_a_time")
def test_a_run_that_is_registered_meanwhile_keeps_its_cards_from_a_second_link(
    tmp_path: Path, run: str
) -> None:
    bench = bench_at(tmp_path)
    desk = Desk()
    plan = planned(bench, run)

    def submit(done: int, _all: int) -> None:
        if done == 1:
            later = portal_csv(portal_rows({**REACHED, CUID: "c-3", PAN: PANS[2]}))
            bench.submit(bench.drop_bytes(later, "bank-20261121.csv"))

    links = request_links(bench.context, desk, plan, on_row=submit)

    assert "c-3" not in desk.cuids
    assert "is sent and not answered" in links.outcomes[RowName(run, 3)].why


@pytest.mark.slow
def test_a_rehearsal_says_what_is_then_requested_and_writes_nothing(bench: Bench, run: str) -> None:
    link_row(bench.context, Linker(), run, 1)
    before = bench.snapshot()
    desk = Desk()

    links = rehearse_links(bench.context, planned(bench, run))
    after = bench.snapshot()
    request_links(bench.context, desk, planned(bench, run))

    due = [name.row for name, each in links.outcomes.items() if each.outcome == linking.DUE]
    assert {"rows": 4, "linked": 1, "to be requested": 3, "linked before": 1} == links.balance
    assert before == after
    assert [f"c-{row}" for row in due] == sorted(desk.cuids)


def killed(folder: Path, run: str, operations: int) -> tuple[Bench, Desk, bool]:
    """Kill a command before an operation of the store; return whether it was killed at all."""
    bench = bench_at(folder)
    store = MortalStore(folder / "bank" / "store", lambda: NOON)
    bench.store = store
    desk = Desk()
    store.die_after(operations)
    try:
        request_links(bench.context, desk, planned(bench, run))
    except KilledError:
        return bench, desk, True
    finally:
        store.die_after(None)
    return bench, desk, False


@pytest.mark.slow
@pytest.mark.usefixtures("one_at_a_time")
def test_a_kill_anywhere_loses_no_link_and_repeats_none(tmp_path: Path) -> None:
    operations = 0
    is_killed = True
    while is_killed:
        folder = tmp_path / str(operations)
        run = refused_night(folder / "bank")
        bench, desk, is_killed = killed(folder, run, operations)
        repeated = Desk()

        links = request_links(bench.context, repeated, planned(bench, run))

        cuids = [*desk.cuids, *repeated.cuids]
        requested = {f"c-{row}" for row in states(bench, run)}
        lost_rows = links.balance.get("lost", 0)
        assert sorted(set(cuids)) == sorted(cuids)
        assert requested.issuperset(cuids)
        assert 4 == links.balance.get("linked", 0) + lost_rows
        assert lost_rows <= 1
        assert 4 - lost_rows == people(reconcile_runs(bench.context))["linked"]
        operations += 7


def test_a_file_names_rows_and_cuids(bench: Bench, run: str) -> None:
    content = f"run,row\r\n{run},2\nc-3\n\n {run}, 2\n".encode()

    names = rows_of_file(bench.context, "rows.csv", content)

    assert [RowName(run, 2), RowName(run, 3)] == names


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("{run},1\nnobody\nother-20261120-01234567,1", "2, 3"),
        ("", "1"),
        ("{run},0\n{run},x", "1, 2"),
        ("x\n" * 12, "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more"),
    ],
)
def test_lines_that_name_no_row_are_told_by_their_numbers(
    bench: Bench, run: str, content: str, lines: str
) -> None:
    with pytest.raises(RowsFileError, match=f"these lines: {lines}\\."):
        rows_of_file(bench.context, "rows.csv", content.format(run=run).encode())


def test_of_an_issuer_the_last_refusals_and_what_was_lost_of_cards_without_a_link_are_meant(
    bench: Bench, run: str
) -> None:
    link_row(bench.context, Linker(), run, 1)
    with pytest.raises(AnswerLostError):
        link_row(bench.context, Linker(lost()), run, 4)

    names = refused_rows_of_all_runs(bench.context)

    assert [RowName(run, row) for row in (2, 3, 4)] == names
