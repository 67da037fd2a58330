"""Rows of a run go out again: which, from where, once."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.operations.history import history
from flows.reports.rebuild import rebuild
from flows.reports.verdicts import OUT_OF_BALANCE
from flows.resend.corrected_extract import AmbiguousRowsError
from flows.resend.resubmission import NothingAskedError, Request, StandingRowsError, plan_resubmit
from flows.resend.resubmission_run import NothingToSendError, resubmit_step
from flows.resend.selected_run import SourceGoneError
from flows.resend.selection import RowSelection
from flows.runs.adapters import NoReasonError
from flows.runs.errors import NoSuchRowError
from flows.runs.keys import corrections, keys_of
from flows.runs.outbox import move
from schemas.portal import ADDRESS1, CITY, CUID, CVV, PAN, YEAR
from tests.again import ERRORS, PANS, REJECTS, again, correct, in_state, night, of_rows, sent
from tests.builders import portal_rows
from tests.extensions.partner_api.town import town
from tests.night import NOON, Bench, local_bench, portal_csv, submitted


def test_what_the_partner_refused_goes_out_again_as_a_run_of_its_own(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    failed = in_state(bench, run, "error")

    manifest = again(bench, run).manifest

    found = bench.ledger(manifest.run)
    assert [(row, row, "submitted") for row in failed] == found.select(
        "row", "origin", "fate"
    ).rows()
    assert manifest.selection is not None
    assert ("resubmit", run, len(failed)) == (
        manifest.selection.kind,
        manifest.selection.of,
        manifest.selection.rows,
    )


def test_the_same_command_again_does_nothing_and_says_so(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    first = again(bench, run)

    second = again(bench, run)

    assert (first.manifest, True) == (second.manifest, second.already)


@pytest.mark.slow
def test_errors_that_fail_again_go_out_again_under_the_same_reason(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    first = again(bench, run).manifest
    bench.answer(fail_share=1.0, seed=1)

    second = again(bench, run).manifest

    assert first.run != second.run
    assert first.counts.submitted == second.counts.submitted


@pytest.mark.slow
def test_results_that_are_there_are_taken_up_before_it_is_decided(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    again(bench, run)
    bench.answer()  # all linked, and nobody ingests

    with pytest.raises(NothingToSendError, match="7 linked"):
        again(bench, run, reason="once more")


def test_the_dry_run_writes_nothing(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    before = bench.snapshot()

    chosen = plan_resubmit(bench.context, Request(run, ERRORS, ""))

    assert in_state(bench, run, "error") == chosen.outgoing["origin"].to_list()
    assert before == bench.snapshot()


def test_a_linked_row_asked_for_by_number_is_refused_with_the_run_it_is_linked_in(
    tmp_path: Path,
) -> None:
    bench, run = night(tmp_path)
    linked = in_state(bench, run, "linked")[:2]

    with pytest.raises(StandingRowsError) as refused:
        again(bench, run, RowSelection(rows=frozenset(linked)))

    assert {
        "run": run,
        "count": 2,
        "rows": ", ".join(map(str, linked)),
        "where": run,
    } == refused.value.fields


@pytest.mark.slow
def test_a_row_linked_in_a_later_run_stays_and_is_told_where_errors_are_asked_for(
    tmp_path: Path,
) -> None:
    bench, run = night(tmp_path)
    first, *others = in_state(bench, run, "error")
    other = again(bench, run, RowSelection(rows=frozenset({first}))).manifest.run
    bench.answer()
    bench.ingest()

    chosen = plan_resubmit(bench.context, Request(run, ERRORS, "again"))

    assert others == chosen.outgoing["origin"].to_list()
    assert [(first, "linked", other)] == chosen.rows.drop_nulls("why").select(
        "origin", "why", "where"
    ).rows()


def test_a_card_that_another_nights_run_sent_stays(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {ADDRESS1: None})
    second = portal_rows({PAN: PANS[0]}, {PAN: PANS[1]})
    other = bench.submit(bench.drop_bytes(portal_csv(second), "bank-20261121.csv")).manifest.run

    chosen = plan_resubmit(
        bench.context, Request(run, REJECTS, "", extract=correct(bench, portal_csv(second)))
    )

    assert [(2, "awaiting", other)] == chosen.rows.select("origin", "why", "where").rows()


@pytest.mark.slow
def test_a_reissued_card_that_the_partner_refused_goes_again_while_the_link_of_the_old_lives(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", settings={"full_portfolio": False})
    place.people["a"] |= {YEAR: "31"}
    reissued = place.night().manifest.run
    place.answer(errors="a")

    repeated = again(place.bench, reissued)

    assert {"a"} == place.sent(repeated)


@pytest.mark.parametrize(
    ("refused_again", "why"),
    [
        (None, "1 a newer issue of its card"),
        pytest.param("", "1 a newer issue of its card", marks=pytest.mark.slow),
        ("b", "1 a later extract has a newer issue of its card"),
    ],
)
def test_a_refused_card_is_not_sent_again_once_it_was_reissued(
    tmp_path: Path, refused_again: str | None, why: str
) -> None:
    place = town(tmp_path, "a", settings={"full_portfolio": False})
    place.settle("b")
    refused = place.night().manifest.run
    place.answer(errors="b")
    place.people["b"] |= {YEAR: "31"}
    place.night()
    if refused_again is not None:
        place.answer(errors=refused_again)

    with pytest.raises(NothingToSendError, match=why):
        again(place.bench, refused)


@pytest.mark.slow
def test_a_row_that_went_again_with_another_expiration_is_not_sent_as_it_was_while_that_waits(
    tmp_path: Path,
) -> None:
    bench, run = of_rows(tmp_path, {CUID: "a"})
    bench.answer(fail_share=1.0, seed=1)
    bench.ingest()
    corrected = correct(bench, portal_csv(portal_rows({CUID: "a", PAN: PANS[0], YEAR: "31"})))
    again(bench, run, extract=corrected)

    with pytest.raises(NothingToSendError, match="1 awaiting"):
        again(bench, run, reason="as it was")


@pytest.mark.slow
def test_an_override_sends_what_is_linked_once_and_is_recorded(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    row = in_state(bench, run, "linked")[0]
    wanted = RowSelection(rows=frozenset({row}))

    done = again(bench, run, wanted, override="the partner lost it")
    twice = again(bench, run, wanted, override="the partner lost it")

    assert [row] == bench.ledger(done.manifest.run)["origin"].to_list()
    assert (done.manifest.run, True) == (twice.manifest.run, twice.already)
    assert done.manifest.selection is not None
    assert done.manifest.selection.override == "the partner lost it"
    told = [
        one.facts for one in history(bench.adapters, done.manifest.run) if one.what == "overridden"
    ]
    assert [{"rows": 1, "runs": [run], "reason": "the partner lost it"}] == told


@pytest.mark.slow
def test_missing_answers_are_awaiting_and_refused_without_an_override(tmp_path: Path) -> None:
    bench, _, manifest = submitted(tmp_path, 5)
    run = manifest.run

    with pytest.raises(StandingRowsError) as refused:
        again(bench, run, RowSelection(missing=True))
    done = again(bench, run, RowSelection(missing=True), override="never uploaded, the portal says")

    assert {"run": run, "count": 5, "rows": "1, 2, 3, 4, 5", "where": run} == refused.value.fields
    assert done.manifest.counts.submitted == 5


def test_rows_of_cancelled_chunks_await_nothing(tmp_path: Path) -> None:
    bench, _, manifest = submitted(tmp_path, 8, portal={"rows_per_chunk": 3})
    run = manifest.run
    move(bench.context.adapters, run, "cancelled", [2], "another key")

    chosen = plan_resubmit(bench.context, Request(run, RowSelection(rows=frozenset({4, 5, 6})), ""))

    assert [4, 5, 6] == chosen.outgoing["origin"].to_list()


@pytest.mark.slow
def test_reason_codes_match_by_their_dotted_parts_and_actions_by_name(tmp_path: Path) -> None:
    bench, run = night(tmp_path, fail=0.6)
    errors = {
        one["code"]: one["first"]
        for one in json.loads(bench.report(run, "summary.json"))["reasons"]["partner"]
    }

    by_code = plan_resubmit(
        bench.context, Request(run, RowSelection(codes=frozenset({"cardholder.cuid"})), "")
    )
    by_action = plan_resubmit(
        bench.context, Request(run, RowSelection(actions=frozenset({"resubmit as is"})), "")
    )

    assert "cardholder.cuid.unavailable" in errors
    assert {"cardholder.cuid.unavailable"} == set(by_code.outgoing["reason"])
    assert by_code.outgoing.equals(by_action.outgoing)


def test_rejects_whose_source_is_unchanged_stay(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {PAN: None}, {CITY: None})

    with pytest.raises(NothingToSendError) as refused:
        again(bench, run, REJECTS)

    told = "1 card fields are corrected at the source only, 1 would be refused as before"
    assert {"run": run, "reason": told} == refused.value.fields


@pytest.mark.slow
def test_rejects_go_out_where_the_rules_let_them_pass_now(tmp_path: Path) -> None:
    bench, _ = of_rows(tmp_path, {})
    rules = {"cvv_missing": "reject"}
    strict = Bench(
        bench.store,
        bench.issuer.model_copy(update={"rules": bench.issuer.rules.model_copy(update=rules)}),
    )
    rows = portal_rows({CUID: "z-1"}, {CUID: "z-2", CVV: None})
    refused = strict.submit(strict.drop_bytes(portal_csv(rows), "b.csv")).manifest.run

    done = again(bench, refused, REJECTS)

    assert [(2, "z-2")] == bench.ledger(done.manifest.run).select("origin", "cuid").rows()


@pytest.mark.slow
def test_a_corrected_extract_replaces_rows_by_number(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {PAN: None}, {CITY: None}, {CITY: None})
    fixed = portal_rows(
        {CUID: "c-3", PAN: PANS[2]}, {CUID: "c-2", PAN: PANS[1]}, {CUID: "c-1", PAN: PANS[0]}
    )
    content = (
        fixed.drop("row", "line")
        .with_columns(row=pl.Series(["3", "2", "1"]), run=pl.lit(run))
        .write_csv()
    )

    done = again(bench, run, REJECTS, extract=correct(bench, content.encode()))

    found = bench.ledger(done.manifest.run)
    assert [(1, 3, "c-3"), (2, 2, "c-2")] == found.select("row", "origin", "cuid").rows()


@pytest.mark.slow
def test_a_corrected_extract_replaces_rows_by_cuid_and_strangers_in_it_are_told(
    tmp_path: Path,
) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None}, {CITY: None})
    fixed = portal_rows(
        {CUID: "c-9", PAN: PANS[3]}, {CUID: "c-2", PAN: PANS[1]}, {CUID: "c-1", PAN: PANS[0]}
    )
    name = correct(bench, portal_csv(fixed))

    chosen = plan_resubmit(bench.context, Request(run, REJECTS, "", extract=name))
    done = again(bench, run, REJECTS, extract=name)

    assert [1, 3] == chosen.source.strangers.to_list()
    assert {"not in the corrected extract": 1} == chosen.left
    assert [("c-2", PANS[1])] == sent(bench, done.manifest.run, CUID, PAN)


def test_a_corrected_extract_alone_asks_for_the_rows_it_replaces(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None})
    name = correct(
        bench, portal_csv(portal_rows({CUID: "c-2", PAN: PANS[1]}, {CUID: "c-1", PAN: PANS[0]}))
    )

    chosen = plan_resubmit(bench.context, Request(run, RowSelection(), "", extract=name))

    assert [(1, "awaiting"), (2, None)] == chosen.rows.select("origin", "why").rows()


def test_a_cuid_of_several_rows_is_refused_by_their_numbers(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {CUID: "same"}, {CUID: "same", CITY: None})
    name = correct(bench, portal_csv(portal_rows({CUID: "same", PAN: PANS[1]})))

    with pytest.raises(AmbiguousRowsError) as refused:
        again(bench, run, REJECTS, extract=name)

    assert {
        "extract": corrections("bank") + name,
        "rows": "1",
        "run_rows": "1, 2",
        "run": run,
    } == refused.value.fields


@pytest.mark.slow
def test_a_resubmission_is_resubmitted_from_its_own_source(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None}, {CITY: None})
    fixed = portal_rows({CUID: "c-3", PAN: PANS[2]}, {CUID: "c-2", PAN: PANS[1]})
    first = again(bench, run, REJECTS, extract=correct(bench, portal_csv(fixed))).manifest.run
    bench.answer(fail_share=1.0)

    second = again(bench, first)

    rows = bench.ledger(second.manifest.run).select("row", "origin", "cuid").rows()
    assert [(1, 1, "c-3"), (2, 2, "c-2")] == rows
    assert second.manifest.source.key == corrections("bank") + "corrected.csv"


def test_a_source_that_changed_since_says_so(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    bench.drop(31, seed=5)

    with pytest.raises(SourceGoneError):
        again(bench, run)


def test_row_numbers_the_run_has_not_are_named(tmp_path: Path) -> None:
    bench, run = night(tmp_path)

    with pytest.raises(NoSuchRowError) as refused:
        again(bench, run, RowSelection(rows=frozenset({1, 31, 70})))

    assert {"place": run, "rows": "31, 70"} == refused.value.fields


def test_rows_must_be_asked_for_and_a_reason_given(tmp_path: Path) -> None:
    bench, run = night(tmp_path)

    with pytest.raises(NothingAskedError):
        again(bench, run, RowSelection())
    with pytest.raises(NoReasonError):
        again(bench, run, reason=" ")


@pytest.mark.slow
def test_the_chunk_limit_and_one_cuid_per_chunk_hold_on_this_way_too(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 3}, limits={"max_error_rate": 1.0})
    rows = [{CUID: cuid, PAN: PANS[at]} for at, cuid in enumerate(["a", "a", "b", "b", "c"])]
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows(*rows)))).manifest.run
    bench.answer(fail_share=1.0)

    done = again(bench, run)

    chunks = (
        bench.ledger(done.manifest.run).group_by("chunk").agg(pl.col("cuid").sort()).sort("chunk")
    )
    assert [(1, ["a", "b", "c"]), (2, ["a", "b"])] == chunks.rows()


@pytest.mark.slow
def test_its_reports_balance_like_those_of_a_night(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    done = again(bench, run)
    bench.answer(fail_share=0.5, seed=3)

    reports = bench.ingest().reports

    assert {run, done.manifest.run} == {report.summary["run"] for report in reports}
    assert OUT_OF_BALANCE not in {report.summary["verdict"] for report in reports}


def test_a_run_that_is_long_over_is_resubmitted_too(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    bench.now = lambda: NOON + timedelta(days=200)

    chosen = plan_resubmit(bench.context, Request(run, ERRORS, ""))

    assert in_state(bench, run, "error") == chosen.outgoing["origin"].to_list()


def test_the_command_that_finishes_a_resubmission_can_be_pasted() -> None:
    wanted = RowSelection(errors=True, codes=frozenset({"card.pan"}), rows=frozenset({7, 3}))

    request = Request("bank-20261120-3f9c21aa", wanted, "they said so", override="lost")
    line = str(resubmit_step(request, 12))

    assert line == (
        "cardlink resubmit bank-20261120-3f9c21aa --errors --code card.pan --row 3 --row 7 "
        "--rows 12 --reason 'they said so' --override lost"
    )


def history_of(bench: Bench, run: str) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Return the attempts a run's summary tells: run, rows, linked, error, awaiting of each, and
    what is after all.
    """
    told = json.loads(bench.report(run, "summary.json"))["attempts"]
    figures = [
        tuple(one[name] for name in ("run", "rows", "linked", "error", "awaiting"))
        for one in told["runs"]
    ]
    return figures, told["after"]


@pytest.mark.slow
def test_the_report_of_a_run_tells_what_became_of_its_rows_after_all_attempts(
    tmp_path: Path,
) -> None:
    bench, run = of_rows(tmp_path, {}, {}, {}, {CITY: None})
    bench.answer(fail_share=1.0)

    once = again(bench, run).manifest.run
    waiting = history_of(bench, run)
    bench.answer(fail_share=0.5, seed=1)
    bench.ingest()
    answered = history_of(bench, run)
    twice = again(bench, once, reason="and again").manifest.run
    bench.answer()
    bench.ingest()
    done = history_of(bench, run)

    linked = len(in_state(bench, once, "linked"))
    assert linked in (1, 2)
    first = (once, 3, linked, 3 - linked, 0)
    refused = {"error": 0, "refused": 1}
    assert ([(once, 3, 0, 0, 3)], {"linked": 0, "awaiting": 3, **refused}) == waiting
    assert (
        [first],
        {"linked": linked, "awaiting": 0, "error": 3 - linked, "refused": 1},
    ) == answered
    second = (twice, 3 - linked, 3 - linked, 0, 0)
    assert ([first, second], {"linked": 3, "awaiting": 0, **refused}) == done


@pytest.mark.slow
def test_a_report_that_was_deleted_is_rebuilt_with_the_same_attempts(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {}, {}, {CITY: None})
    bench.answer(fail_share=0.5, seed=1)
    again(bench, run)
    before = history_of(bench, run)

    shutil.rmtree(tmp_path / "store" / keys_of(run).report(""))
    rebuild(bench.context, bench.stored(run))

    assert before == history_of(bench, run)


@pytest.mark.slow
def test_a_reject_that_is_corrected_counts_by_its_last_state(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None})
    bench.answer()
    fixed = portal_rows({CUID: "c-2", PAN: PANS[1]})

    again(bench, run, REJECTS, extract=correct(bench, portal_csv(fixed)))
    bench.answer()
    bench.ingest()

    assert {"linked": 2, "awaiting": 0, "error": 0, "refused": 0} == history_of(bench, run)[1]


@pytest.mark.slow
def test_a_portfolio_leaves_alone_what_was_sent_again(tmp_path: Path) -> None:
    bench = local_bench(
        tmp_path, full_portfolio=True, limits={"max_error_rate": 1.0, "max_reject_rate": 1.0}
    )
    rows = [
        {CUID: cuid, PAN: PANS[at], CITY: city}
        for at, (cuid, city) in enumerate([("a", "Boston"), ("b", None)])
    ]
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows(*rows)))).manifest.run
    remediated = portal_rows({CUID: "b", PAN: PANS[1]})
    again(bench, run, REJECTS, extract=correct(bench, portal_csv(remediated)))
    every = portal_csv(
        portal_rows({CUID: "a", PAN: PANS[0]}, {CUID: "b", PAN: PANS[1]}, {CUID: "c", PAN: PANS[2]})
    )

    night = bench.submit(bench.drop_bytes(every, "bank-20261121.csv")).manifest

    assert (1, 2) == (night.counts.submitted, night.counts.suppressed)
    assert [("c",)] == sent(bench, night.run, CUID)
