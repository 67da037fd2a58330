"""Between ordinary extracts no card is sent twice: a row whose card has or awaits a link is held
back, and that is reported.
"""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.book.book import read_book
from flows.commands.result import Result
from flows.commands.sent_runs import submitted
from flows.reports.across import reconcile_runs
from flows.reports.cardholder_status import card_statuses
from flows.resend.renewal import renew
from flows.runs.commits import OvertakenError
from flows.runs.keys import keys_of
from flows.runs.outbox import move
from flows.runs.store import StoreBusyError
from flows.submissions import submit as submit_module
from flows.submissions.gates import SeenBeforeError
from flows.submissions.prior_state import survey_cards
from flows.submissions.publisher import PartialRunError
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas.portal import ADDRESS1, CUID, FIRST_NAME, MONTH, NICKNAME, PAN, YEAR, columns
from schemas.reasons import AWAITED, CHANGED, REVERTED, STANDING
from tests.builders import portal_rows, quick
from tests.extensions.partner_api.town import Population, committed, town
from tests.night import portal_csv
from tests.submissions.test_publisher import failing


def bank(folder: Path, *cuids: str, **settings: Any) -> Population:
    """Return an issuer of ordinary extracts, with one answered night of these cardholders behind
    it.
    """
    place = town(
        folder,
        *cuids,
        settings={"full_portfolio": False, "limits": {"max_row_jump": 9.0}, **settings},
    )
    place.dated = True
    return place


def test_a_row_of_an_earlier_night_is_held_back_while_its_card_has_or_awaits_a_link(
    tmp_path: Path,
) -> None:
    place = bank(tmp_path)
    place.settle("a", "b")
    first = place.night()
    place.settle("c")
    second = place.night()
    place.answer()
    third = place.night()

    found = [(place.sent(one), place.held_back(one)) for one in (first, second, third)]

    awaited, standing = dict.fromkeys("ab", AWAITED), dict.fromkeys("abc", STANDING)
    assert [({"a", "b"}, {}), ({"c"}, awaited), (set(), standing)] == found


def test_a_card_goes_again_once_its_link_has_ended_and_not_on_the_day_before(
    tmp_path: Path,
) -> None:
    place = bank(tmp_path, "a")
    last_day = place.night(60)
    day_after = place.night()

    assert [set(), {"a"}] == [place.sent(one) for one in (last_day, day_after)]


@pytest.mark.slow
def test_an_extract_of_an_older_date_is_judged_by_the_links_that_live_today(tmp_path: Path) -> None:
    place = bank(tmp_path, "a")
    place.day += timedelta(days=61)
    name = place.drop("bank-20261201.csv")

    assert {"a"} == place.sent(place.bench.submit(name))


def test_a_row_that_the_partner_refused_goes_again_and_so_does_one_whose_chunk_was_cancelled(
    tmp_path: Path,
) -> None:
    place = bank(tmp_path)
    place.settle("a", "b")
    place.night()
    place.answer(errors="b")
    place.settle("c")
    cancelled = place.night()
    move(place.bench.context.adapters, cancelled.manifest.run, "cancelled", [1], "lost")

    assert [{"b", "c"}, {"b", "c"}] == [place.sent(cancelled), place.sent(place.night())]


@pytest.mark.parametrize("change", quick(1, [{YEAR: "31"}, {MONTH: "12"}]))
def test_a_card_with_another_expiration_is_another_card_even_while_the_first_is_awaited(
    tmp_path: Path, change: dict[str, str | None]
) -> None:
    place = bank(tmp_path)
    place.settle("a")
    place.night()
    place.people["a"] |= change

    assert [{"a"}, set()] == [place.sent(place.night()) for _ in range(2)]


@pytest.mark.parametrize(
    ("changed", "sent", "held", "change"),
    [
        ("ask", set(), CHANGED, {ADDRESS1: "2 Side St"}),
        ("hold", set(), CHANGED, {FIRST_NAME: "Augusta"}),
        ("send", {"a"}, "", {ADDRESS1: "2 Side St"}),
        ("send", {"a"}, "", {FIRST_NAME: "Augusta"}),
    ],
)
def test_a_changed_name_or_address_is_asked_about_held_or_sent(
    tmp_path: Path, changed: str, sent: set[str], held: str, change: dict[str, str | None]
) -> None:
    place = bank(tmp_path, "a", resend={"changed": changed})
    place.people["a"] |= change

    done = place.night()

    assert (sent, held) == (place.sent(done), place.held_back(done).get("a", ""))


@pytest.mark.slow
@pytest.mark.parametrize("changed", quick(1, ["ask", "send"]))
def test_a_change_that_comes_while_the_answer_is_awaited_is_kept(
    tmp_path: Path, changed: str
) -> None:
    place = bank(tmp_path, resend={"changed": changed})
    place.settle("a")
    place.night()
    place.people["a"] |= {ADDRESS1: "2 Side St"}

    assert {"a": CHANGED} == place.held_back(place.night())


@pytest.mark.slow
def test_a_change_that_is_taken_back_is_none(tmp_path: Path) -> None:
    place = bank(tmp_path, "a")
    place.people["a"] |= {ADDRESS1: "2 Side St"}
    changed = place.night()
    place.people["a"] = {CUID: "a"}

    held = [place.held_back(done)["a"] for done in (changed, place.night(), place.night())]

    assert [CHANGED, REVERTED, STANDING] == held


def test_what_an_extract_says_that_is_older_than_what_was_sent_is_no_change(
    tmp_path: Path,
) -> None:
    place = bank(tmp_path, "a")
    place.people["a"] |= {ADDRESS1: "2 Side St"}
    place.day -= timedelta(days=2)

    assert {"a": STANDING} == place.held_back(place.night())


@pytest.mark.slow
def test_a_reissued_card_goes_out_where_a_column_tells_it(tmp_path: Path) -> None:
    columns_of = {name: name for name in columns()}
    place = bank(tmp_path, columns=columns_of, resend={"reissue_column": "SEQ"})

    def night(sequence: str) -> set[str]:
        place.day += timedelta(days=1)
        head, *rows = (
            portal_csv(portal_rows({CUID: "a", NICKNAME: str(place.day)})).decode().splitlines()
        )
        lines = [f"{head},SEQ", *(f"{row},{sequence}" for row in rows)]
        name = place.bench.drop_bytes(
            "\n".join([*lines, ""]).encode(), f"bank-{place.day:%Y%m%d}.csv"
        )
        return place.sent(place.bench.submit(name))

    assert [{"a"}, set(), {"a"}, set(), set()] == [
        night(sequence) for sequence in ("1", "1", "2", "2", "1")
    ]


@pytest.mark.slow
def test_rows_without_a_cuid_are_known_by_what_they_say(tmp_path: Path) -> None:
    place = bank(tmp_path)
    place.people = {"a": {CUID: None}, "b": {CUID: None, PAN: "4111111111111111"}}
    first = place.night()
    place.people = {"c": {CUID: None, PAN: "5555555555554444"}, **place.people}
    second = place.night()

    assert [2, 1] == [one.manifest.counts.submitted for one in (first, second)]
    assert 2 == second.manifest.reasons[AWAITED]


def test_an_extract_committed_meanwhile_is_noticed_at_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bank(tmp_path)
    place.settle("a", "b")
    extract, other = place.drop(), place.drop("other-20261120.csv")
    place.bench.drop_bytes(portal_csv(portal_rows({CUID: "b"})), other)

    def looked_before_the_other(context: Any) -> Any:
        survey = survey_cards(context)
        monkeypatch.undo()
        place.bench.submit(other)
        return survey

    monkeypatch.setattr(submit_module, "survey_cards", looked_before_the_other)
    with pytest.raises(OvertakenError):
        place.bench.submit(extract)

    assert {"a"} == place.sent(place.bench.submit(extract))


@pytest.mark.slow
def test_an_issuer_may_have_such_an_extract_refused_or_sent(tmp_path: Path) -> None:
    refusing = bank(tmp_path / "refusing", "a", resend={"seen_before": "refuse"})
    sending = bank(tmp_path / "sending", "a", resend={"seen_before": "send"})
    for place in (refusing, sending):
        place.settle("b")

    with pytest.raises(SeenBeforeError) as refused:
        refusing.night()

    name = refusing.drop()
    assert (1, 2, 1) == tuple(refused.value.fields[field] for field in ("seen", "read", "others"))
    assert {"b"} == refusing.sent(refusing.bench.submit(name, opened=["seen-before"]))
    assert {"a", "b"} == sending.sent(sending.night())


@pytest.mark.slow
@pytest.mark.parametrize(("seen_before", "twice"), quick(1, [("suppress", 0), ("send", 1)]))
def test_a_card_that_somebody_sent_twice_is_counted_and_marked_while_both_are_active(
    tmp_path: Path, seen_before: str, twice: int
) -> None:
    place = bank(tmp_path, "a", resend={"seen_before": seen_before})
    place.night()
    place.people = {"b": {CUID: "b"}}
    place.night()

    facts = reconcile_runs(place.bench.context)
    (status,) = card_statuses(read_book(place.bench.context.adapters, "bank"), "a", (), place.day)

    assert twice == facts["active_twice"]
    assert bool(twice) == ("active in 2 runs" in status.stands)
    assert 1 + twice == len(
        place.bench.content("bank/reconciliation/active-twice.csv").splitlines()
    )


@pytest.mark.slow
def test_a_renewed_card_is_not_counted_as_sent_twice(tmp_path: Path) -> None:
    place = bank(tmp_path, "a")
    place.day += timedelta(days=50)
    renew(place.bench.context, 14)

    assert 0 == reconcile_runs(place.bench.context)["active_twice"]


def test_a_dry_run_says_what_the_submit_does_and_nothing_is_listed_as_rejected(
    tmp_path: Path,
) -> None:
    place = bank(tmp_path, "a")
    place.settle("b")
    place.day += timedelta(days=1)
    name = place.drop()

    tried = rehearse(place.bench.context, Request(name))
    done = place.bench.submit(name).manifest

    assert (tried.counts, tried.run) == (done.counts, done.run)
    assert "1 already have or await a link" in str(tried.verdict)
    held = place.bench.report(done.run, "suppressed.csv").decode().splitlines()
    assert [["row", "cuid", "reason"], ["1", "a", "card.link.standing"]] == [
        [cells[0], cells[2], cells[11]] for cells in csv.reader(held)
    ]
    assert 1 == len(place.bench.report(done.run, "rejects.csv").splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("portfolio", [False, True])
def test_held_csv_is_named_only_where_it_was_written(tmp_path: Path, portfolio: bool) -> None:
    place = bank(tmp_path, "a", full_portfolio=portfolio)
    done = place.night()

    result = Result({}, submitted(place.bench.context, done))
    shown = "\n".join(result.lines)

    stored = place.bench.store.keys(keys_of(done.manifest.run).base)
    is_written = any(entry.key.endswith("suppressed.csv") for entry in stored)
    assert "1 of 1 rows already have or await a link" in shown
    assert (not portfolio, not portfolio) == (is_written, "suppressed.csv" in shown)
    assert "/runs/" not in result.markdown + "".join(result.texts)  # which is what Prefect shows


def test_a_run_that_died_is_planned_anew_where_another_extract_was_committed_meanwhile(
    tmp_path: Path,
) -> None:
    place = bank(tmp_path)
    place.settle("a", "b")
    extract = place.drop()
    with pytest.raises(PartialRunError):
        failing(place.bench, "create", ".csv.pgp", StoreBusyError(place="x", code="503")).submit(
            extract
        )
    place.bench.submit(
        place.bench.drop_bytes(portal_csv(portal_rows({CUID: "b"})), "other-20261120.csv")
    )

    done = place.bench.submit(extract)

    assert {"a"} == place.sent(done)
    assert 2 == len(committed(place.bench))
    states = {one.run: one.state for one in place.bench.runs.statuses()}
    assert {"replaced by another run"} == {
        state for run, state in states.items() if run not in committed(place.bench)
    }
    assert "what other runs have sent" in done.remarks[0]
