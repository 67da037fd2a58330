"""Which run of an extract's content a submit means: one that there is, or a new one of which name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import pytest

from flows.runs.context import IssuerContext
from flows.runs.identity import digest, row_settings
from flows.runs.keys import RunId, keys_of
from flows.runs.run_records import records_where
from flows.submissions.begun import abandon_run
from flows.submissions.run_choice import RunInputs, changes, pick
from schemas.manifest import Plan, Selection, SourceIdentity
from schemas.rules import RECIPE
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import BANK, DAY
from tests.planted import a_manifest, plant, plant_commit

SHA = "0123456789abcdef" * 4
SOURCE = SourceIdentity(key="bank/extracts/a.csv", version="1", size=1, sha256=SHA)
NEXT = DAY + timedelta(days=1)
ROWS = Selection(kind="resubmit", of="x", rows=1, sha256="some rows", reason="wrong")


class Earlier(NamedTuple):
    """A run of the chain: `planned` as it would be planned now, or with one thing otherwise."""

    state: str
    reason: str = ""
    day: date = DAY
    selection: str = ""


PLANNED = Earlier("planned")
COMMITTED = Earlier("committed")
ABANDONED = Earlier("abandoned")
OUTDATED = Earlier("known")  # other runs have sent cards since it was planned


def plan_of(context: IssuerContext, run: str, **otherwise: Any) -> Plan:
    settings = row_settings(context.issuer, context.header)
    fields = {
        "run": run,
        "source": SOURCE,
        "as_of": keys_of(run).run.day,
        "settings_sha256": "",
        "settings": settings,
        "recipe": RECIPE,
        "recipients": context.issuer.portal.fingerprints,
        "release": "1.2.3",
    }
    return Plan(**fields | otherwise)


OTHERWISE: Mapping[str, Mapping[str, Any]] = {
    "known": {"known": "other cards"},
    "key": {"source": SOURCE.model_copy(update={"key": "bank/extracts/b.csv"})},
    "keys": {"recipients": ("B" * 40,)},
    "recipe": {"recipe": RECIPE - 1},
    "settings": {"settings": {}},
}


def bench_with(earlier: Sequence[Earlier], **issuer: Any) -> MemoryBench:
    """Return a bench with earlier runs of the extract."""
    bench = memory_bench(**issuer)
    days: list[date] = []
    for one in earlier:
        days.append(one.day)
        run = str(RunId(BANK, one.day, SHA[:8], days.count(one.day)))
        rows = ROWS.model_copy(update={"sha256": one.selection}) if one.selection else None
        otherwise = {"reason": one.reason, "selection": rows, **OTHERWISE.get(one.state, {})}
        plan = plan_of(bench.context, run, **otherwise)
        plant(bench.adapters, plan)
        if one.state == "committed":
            plant_commit(bench.adapters, a_manifest(plan))
        if one.state == "abandoned":
            abandon_run(bench.adapters, run, "why not")
    return bench


def meant(bench: MemoryBench, as_of: date = DAY, **inputs: Any) -> Meant:
    with bench.adapters.database.snapshot() as connection:
        runs = records_where(connection, BANK)
    choice = pick(bench.context, SOURCE, runs, RunInputs(as_of, **inputs))
    return Meant(choice.run, choice.reason, choice.record is None)


class Meant(NamedTuple):
    """The run that is meant, and whether it is a new one."""

    run: str
    reason: str
    is_new: bool


def name(number: int, day: date = DAY, content: str = SHA) -> str:
    return str(RunId(BANK, day, content[:8], number))


@pytest.mark.parametrize(
    ("earlier", "number"),
    [
        ([], 1),
        ([PLANNED], 1),
        ([COMMITTED], 1),
        ([ABANDONED], 1),
        ([OUTDATED], 2),
        ([PLANNED, PLANNED], 2),
        ([PLANNED, OUTDATED], 1),
        ([PLANNED, ABANDONED, OUTDATED], 1),
        ([COMMITTED, PLANNED], 1),
        ([COMMITTED, ABANDONED], 1),
        ([OUTDATED, COMMITTED, OUTDATED], 2),
        ([PLANNED, ABANDONED], 2),
        ([ABANDONED, PLANNED], 2),
        ([ABANDONED, OUTDATED], 3),
        *([[Earlier(state)], 2] for state in ("key", "keys", "recipe", "settings")),
    ],
    ids=str,
)
def test_a_submit_means_the_committed_run_else_the_last_that_ended_or_can_be_finished(
    earlier: list[Earlier], number: int
) -> None:
    bench = bench_with(earlier)

    submission = meant(bench)

    assert (name(number), "", number > len(earlier)) == submission


@pytest.mark.parametrize(
    ("reasons", "new_run", "number", "reason"),
    [
        ([""], "lost", 2, "lost"),
        ([], "lost", 1, "lost"),
        (["", "lost"], "lost", 2, "lost"),
        (["", "lost"], "", 2, "lost"),
        (["", "lost"], "lost again", 3, "lost again"),
        (["", "lost", "lost again"], "lost", 4, "lost"),
        (["", "lost", "lost", "lost"], "", 2, "lost"),
    ],
)
def test_the_same_reason_is_the_same_new_run_and_without_one_the_latest_is_meant(
    reasons: list[str], new_run: str, number: int, reason: str
) -> None:
    bench = bench_with([Earlier("committed", reason) for reason in reasons])

    submission = meant(bench, new_run=new_run)

    assert (name(number), reason, number > len(reasons)) == submission


def test_of_runs_with_other_reasons_none_is_finished_for_the_latest_one() -> None:
    bench = bench_with([PLANNED, Earlier("known", "lost")])

    submission = meant(bench)

    assert (name(3), "lost", True) == submission


@pytest.mark.parametrize(
    ("earlier", "dated", "expected"),
    [
        # as it was planned: also after midnight the rows are the same
        ("planned", False, name(1)),
        ("known", False, name(2)),
        # a date that an operator gives counts
        ("planned", True, name(1, NEXT)),
        ("known", True, name(1, NEXT)),
    ],
)
def test_a_run_that_is_planned_anew_keeps_its_date_unless_one_is_given(
    earlier: str, dated: bool, expected: str
) -> None:
    bench = bench_with([Earlier(earlier)])

    later = meant(bench, NEXT, dated=dated).run
    same_day = meant(bench_with([Earlier(earlier)]), DAY, dated=True).run

    assert expected == later
    assert name(2 if earlier == "known" else 1) == same_day


def test_the_number_of_a_run_counts_those_of_its_date() -> None:
    bench = bench_with([COMMITTED, Earlier("committed", "lost"), Earlier("committed", day=NEXT)])

    assert name(2, NEXT) == meant(bench, NEXT, new_run="lost again").run
    assert name(3) == meant(bench, DAY, new_run="lost once more").run


def test_the_same_bytes_of_a_portfolio_on_another_date_are_another_run() -> None:
    bench = bench_with([COMMITTED], full_portfolio=True)

    assert name(1) == meant(bench, DAY).run
    assert name(1, NEXT) == meant(bench, NEXT).run


@pytest.mark.parametrize("full_portfolio", [False, True])
@pytest.mark.parametrize(
    ("states", "is_new"),
    [
        ([], True),
        (["planned"], False),
        (["known"], True),
        (["committed"], True),
        (["abandoned"], True),
        (["committed", "planned"], False),
        (["planned", "committed"], True),
        (["planned", "abandoned", "committed"], True),
    ],
)
def test_selected_rows_may_be_sent_again_and_only_an_open_run_of_them_is_meant(
    states: list[str], is_new: bool, full_portfolio: bool
) -> None:
    rows = [Earlier(state, "wrong", selection="some rows") for state in states]
    bench = bench_with([COMMITTED, *rows], full_portfolio=full_portfolio)

    submission = meant(bench, NEXT, new_run="wrong", selection=ROWS)

    content = digest(f"{SHA} some rows".encode())
    run = name(1, NEXT, content) if is_new else name(1 + len(states))
    assert (run, "wrong", is_new) == submission


def test_selected_rows_do_not_take_the_run_of_the_whole_extract_nor_of_other_rows() -> None:
    bench = bench_with([PLANNED, Earlier("planned", "wrong", selection="other rows")])

    selected = meant(bench, new_run="wrong", selection=ROWS)

    assert digest(f"{SHA} some rows".encode())[:8] == keys_of(selected.run).run.sha8
    assert name(1) == meant(bench).run
    assert ("some rows", "") == (RunInputs(DAY, selection=ROWS).rows, RunInputs(DAY).rows)


@pytest.mark.parametrize(
    ("otherwise", "named"),
    [
        ({}, []),
        ({"recipe": RECIPE - 1}, ["recipe (another version of cardlink)"]),
        ({"recipients": ("B" * 40,)}, ["portal.fingerprints"]),
        ({"as_of": NEXT}, ["the business date"]),
    ],
)
def test_what_changed_since_a_plan_was_made_is_named(
    otherwise: dict[str, Any], named: list[str]
) -> None:
    context = memory_bench().context
    plan = plan_of(context, name(1), **otherwise)
    wider = plan.model_copy(update={"settings": {**plan.settings, "repairs": "all"}})

    assert named == changes(context, plan, RunInputs(DAY, dated=True))
    assert ["repairs", *named] == changes(context, wider, RunInputs(DAY, dated=True))
    assert "the business date" not in changes(context, plan, RunInputs(NEXT, dated=False))
