"""An extract that shall not be sent is dismissed with a reason, stands in history, and can be taken
back.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from flows.operations.history import history
from flows.operations.matters import holding
from flows.operations.purge import purge
from flows.operations.remediation import CommittedError, dismiss
from flows.reports.work_kinds import NO_EXTRACT
from flows.runs.adapters import NoReasonError
from flows.runs.context import overlaid
from flows.runs.decisions import EXTRACT, decisions
from flows.runs.errors import NotFoundError
from flows.submissions.extract_states import extract_states, extracts_to_submit
from flows.submissions.gates import RejectRateError
from flows.submissions.plan import DismissedError
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas.expressions import PUBLISHED
from schemas.records import Dismissal
from tests.extensions.partner_api.town import town
from tests.late import late
from tests.night import NOON, Bench, local_bench, made_once, submitted
from tests.operations.retention import YEAR, cleaner, later

COPY = "copy of bank.csv"


@made_once
def with_a_copy(folder: Path) -> Bench:
    """Return a bench with a committed extract and the same bytes under another name."""
    bench = local_bench(folder)
    bench.submit(bench.drop(10))
    bench.drop(10, name=COPY)
    return bench


def test_a_dismissed_extract_is_pending_no_more_and_alerts_nobody(tmp_path: Path) -> None:
    bench = with_a_copy(tmp_path)
    before = [alert.kind for alert in late(bench.context)]

    dismiss(bench.context, COPY, "the issuer dropped it twice")

    assert ["extracts that repeat another"] == before
    assert ([], []) == (extracts_to_submit(bench.context), late(bench.context))


def test_an_explicit_submit_of_it_says_who_dismissed_it_and_how_to_take_that_back(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    test = bench.drop(5, name="a test.csv")
    dismiss(bench.context, test, f"only a test, see {PUBLISHED[0]}")

    told = []
    for act in (lambda: bench.submit(test), lambda: rehearse(bench.context, Request(test))):
        with pytest.raises(DismissedError) as error:
            act()
        told.append(str(error.value))

    assert 1 == len(set(told))
    assert "was dismissed by tester:1 on 2026-11-20: only a test, see [masked]." in told[0]
    assert "`cardlink dismiss bank 'a test.csv' --undo --reason \"WHY\"`" in told[0]
    assert ([], []) == (bench.runs.ids, [*bench.store.keys("bank/runs/")])


def test_a_dismissal_that_is_taken_back_makes_it_pending_again(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(5)
    dismiss(bench.context, extract, "only a test")

    dismiss(bench.context, extract, "it was the right one", undo=True)
    waiting = extracts_to_submit(bench.context)
    done = bench.submit(extract)

    assert ["bank/extracts/bank-20261120.csv"] == [entry.key for entry in waiting]
    assert 5 == done.manifest.counts.submitted


def test_it_holds_for_the_same_bytes_under_any_name_and_not_for_others(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    dismiss(bench.context, bench.drop(5), "only a test")
    bench.drop(5, name="renamed.csv")
    bench.drop(5, seed=1)

    waiting = extracts_to_submit(bench.context)

    assert ["bank/extracts/bank-20261120.csv"] == [entry.key for entry in waiting]


def test_in_a_portfolio_it_holds_for_one_name_since_another_night_may_have_the_same_bytes(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b")
    names = [place.drop(f"bank-202612{day}.csv") for day in ("01", "02")]

    dismiss(place.bench.context, names[0], "nothing changed")

    assert [names[1]] == [
        entry.key.rpartition("/")[2] for entry in extracts_to_submit(place.bench.context)
    ]


def test_what_is_committed_under_that_name_cannot_be_dismissed(tmp_path: Path) -> None:
    bench, extract, manifest = submitted(tmp_path, 5)
    run = manifest.run

    with pytest.raises(CommittedError, match=run):
        dismiss(bench.context, extract, "by mistake")

    assert not decisions(bench.adapters, "bank", EXTRACT, Dismissal)


def test_a_committed_extract_stays_committed_when_its_copy_is_dismissed(tmp_path: Path) -> None:
    bench = with_a_copy(tmp_path)
    dismiss(bench.context, COPY, "dropped twice")

    again = bench.submit("bank-20261120.csv")

    assert again.already


def test_a_refused_extract_that_is_dismissed_closes_its_alert(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.01})
    extract = bench.drop(40, bad=0.3)
    with pytest.raises(RejectRateError):
        bench.submit(extract)
    before = [alert.kind for alert in late(bench.context)]

    dismiss(bench.context, extract, "a broken file, another comes")

    assert (["refused extracts"], []) == (
        before,
        [alert.kind for alert in late(bench.context)],
    )


def test_a_dry_run_and_a_repetition_add_no_record_and_a_wrong_undo_is_refused(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(5)
    with pytest.raises(NotFoundError):
        dismiss(bench.context, extract, "no", undo=True)
    with pytest.raises(NoReasonError):
        dismiss(bench.context, extract, " ")

    dismiss(overlaid(bench.context), extract, "only a test")
    dismiss(bench.context, extract, "only a test")
    again = dismiss(replace(bench, actor="another:2").context, extract, "me too")

    assert "tester:1" == again.by
    assert 1 == len(decisions(bench.adapters, "bank", EXTRACT, Dismissal))


def test_the_history_of_the_run_of_the_same_bytes_and_the_list_of_extracts_show_it(
    tmp_path: Path,
) -> None:
    bench = with_a_copy(tmp_path)
    dismiss(bench.context, COPY, "dropped twice")
    dismiss(bench.context, COPY, "no, it was right", undo=True)
    [run] = [one.run for one in extract_states(bench.context) if one.state == "committed"]

    found = [one for one in history(bench.adapters, run) if one.what.startswith("extract ")]
    listed = {one.key.rpartition("/")[2]: one for one in extract_states(bench.context)}

    assert ["extract dismissed", "extract taken back"] == [one.what for one in found]
    assert {"extract": f"bank/extracts/{COPY}", "reason": "dropped twice"} == found[0].facts
    assert ("repeated", run) == (listed[COPY].state, listed[COPY].other)
    assert ["dismissed", "taken back"] == [one.what for one in listed[COPY].dismissals]


def test_a_purge_never_deletes_what_was_decided_or_remembered(tmp_path: Path) -> None:
    bench = with_a_copy(tmp_path)
    extracts_to_submit(bench.context, remember=True)
    dismiss(bench.context, COPY, "dropped twice")
    bench.answer()
    bench.ingest()
    kept = {key for key in bench.snapshot() if key.startswith("bank/identified/")}

    due = purge(later(bench, 10 * YEAR).context, cleaner(bench))

    assert due.lots
    assert kept
    assert kept <= bench.snapshot().keys()
    assert 1 == len(decisions(bench.adapters, "bank", EXTRACT, Dismissal))


def test_a_day_without_an_extract_is_dismissed_and_missed_again_once_that_is_taken_back(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, schedule={"extract_by": "03:00:00"})
    bench.submit(bench.drop(5, "bank-20261117.csv"))
    extracts = tmp_path / "store" / "bank" / "extracts" / "bank-20261117.csv"
    os.utime(extracts, ((NOON - timedelta(days=3)).timestamp(),) * 2)

    def missed() -> tuple[list[str], list[str]]:
        work = holding(bench.context)
        days = [str(dict(one.fields)["name"]) for one in work if one.kind == NO_EXTRACT]
        return days, [alert.kind for alert in late(bench.context)]

    before = missed()
    for day in ("2026-11-18", "2026-11-19", "2026-11-20"):
        record = dismiss(bench.context, day, "the issuer was closed")
        assert (day, record) == (record.key, dismiss(bench.context, day, "said twice"))
    dismissed = missed()
    undone = dismiss(bench.context, "2026-11-20", "it comes at noon", undo=True)

    assert ("taken back", "it comes at noon") == (undone.what, undone.reason)
    assert (
        ["2026-11-18", "2026-11-19", "2026-11-20"],
        ["business days without an extract"] * 3,
    ) == before
    assert (([], []), (["2026-11-20"], ["business days without an extract"])) == (
        dismissed,
        missed(),
    )


@pytest.mark.parametrize(
    ("day", "undo"), [("2026-11-17", False), ("2026-11-21", False), ("2026-11-18", True)]
)
def test_only_a_day_that_is_missed_is_dismissed_and_only_a_dismissed_one_taken_back(
    tmp_path: Path, day: str, undo: bool
) -> None:
    bench = local_bench(tmp_path, schedule={"extract_by": "03:00:00"})
    bench.submit(bench.drop(5, "bank-20261117.csv"))

    with pytest.raises(NotFoundError, match=f"^bank has no .*{day}"):
        dismiss(bench.context, day, "the issuer was closed", undo=undo)
