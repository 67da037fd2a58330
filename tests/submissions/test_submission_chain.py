"""Which run of an extract's content a submit means: one that there is, or a new one of which name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import pytest

from flows.runs.chains import CONTESTS
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest, row_settings
from flows.runs.keys import RunId, keys_of, submissions
from flows.runs.store import StoreBusyError
from flows.submissions.submission_chain import (
    RunInputs,
    Submission,
    changes,
    read_chain,
    submission_of,
)
from schemas.manifest import Counts, Manifest, Plan, Selection, SourceIdentity
from schemas.records import Abandoned
from schemas.rules import RECIPE
from tests.memory import MemoryStore
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import BANK, DAY, NOON

SHA = "0123456789abcdef" * 4
SOURCE = SourceIdentity(key="bank/extracts/a.csv", version="1", size=1, sha256=SHA)
COUNTS = Counts(lines=1, read=1, submitted=1, rejected=0, duplicate=0, suppressed=0)
NEXT = DAY + timedelta(days=1)
ROWS = Selection(kind="resubmit", of="x", rows=1, sha256="some rows", reason="wrong")


class Earlier(NamedTuple):
    """A run of the chain: `planned` as it would be planned now, or with one thing otherwise."""

    state: str
    reason: str = ""
    day: date = DAY
    selection: str = ""


LISTED = Earlier("listed")  # in the chain, and its process died before it was planned
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
    """Return a bench with a chain of runs."""
    bench = memory_bench(**issuer)
    days: list[date] = []
    for number, one in enumerate(earlier, 1):
        days.append(one.day)
        run = str(RunId(BANK, one.day, SHA[:8], days.count(one.day)))
        link = Submission(run=run, reason=one.reason, selection=one.selection)
        bench.store.create(f"{submissions(BANK, SHA)}{number:03d}.json", canonical(link))
        _write(bench, run, one.state)
    return bench


def _write(bench: MemoryBench, run: str, state: str) -> None:
    keys = keys_of(run)
    if state == "listed":
        return
    plan = plan_of(bench.context, run, **OTHERWISE.get(state, {}))
    bench.store.create(keys.plan, canonical(plan))
    if state == "committed":
        shared = plan.model_dump(include=set(Manifest.model_fields))
        manifest = Manifest(**shared, counts=COUNTS, reasons={}, repairs={}, chunks=(), ledger=())
        bench.store.create(keys.manifest, canonical(manifest))
    if state == "abandoned":
        record = Abandoned(run=run, at=NOON, by="tester", reason="why not")
        bench.store.create(keys.manifest, canonical(record))


def meant(bench: MemoryBench, as_of: date = DAY, **inputs: Any) -> Submission:
    return submission_of(bench.context, SOURCE, RunInputs(as_of, **inputs))


def name(number: int, day: date = DAY, content: str = SHA) -> str:
    return str(RunId(BANK, day, content[:8], number))


@pytest.mark.parametrize(
    ("earlier", "number"),
    [
        ([], 1),
        ([LISTED], 1),
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

    assert Submission(run=name(number)) == submission
    chain = read_chain(bench.store, BANK, SHA)
    assert max(len(earlier), number) == len(chain)
    assert submission == chain[number - 1]


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

    assert Submission(run=name(number), reason=reason) == submission


def test_of_runs_with_other_reasons_none_is_finished_for_the_latest_one() -> None:
    bench = bench_with([PLANNED, Earlier("known", "lost")])

    submission = meant(bench)

    assert Submission(run=name(3), reason="lost") == submission


@pytest.mark.parametrize(
    ("earlier", "dated", "expected"),
    [
        # as it was planned: also after midnight the rows are the same
        ("planned", False, name(1)),
        ("known", False, name(2)),
        ("listed", False, name(1)),
        # a date that an operator gives counts
        ("planned", True, name(1, NEXT)),
        ("listed", True, name(1, NEXT)),
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

    chain = read_chain(bench.store, BANK, SHA)
    content = digest(f"{SHA} some rows".encode())
    new = Submission(run=name(1, NEXT, content), reason="wrong", selection="some rows")
    assert (new if is_new else chain[len(states)]) == submission
    assert 1 + len(states) + is_new == len(chain)


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


class Overtaken(MemoryStore):
    """A store where other processes are first to add their runs."""

    def __init__(self, others: Sequence[Submission]) -> None:
        super().__init__()
        self.others = list(others)
        self.tried: list[str] = []

    def create(self, key: str, data: bytes) -> bool:
        self.tried.append(key)
        if self.others:
            super().create(key, canonical(self.others.pop(0)))
        return super().create(key, data)


def test_who_loses_the_race_for_a_number_looks_again_and_takes_what_is_meant_now() -> None:
    bench = memory_bench()
    bench.store = Overtaken([Submission(run=name(1), reason="first")])

    assert Submission(run=name(2), reason="lost") == meant(bench, new_run="lost")

    bench.store = Overtaken([Submission(run=name(1))])
    assert Submission(run=name(1)) == meant(bench)
    assert 1 == len(read_chain(bench.store, BANK, SHA))


def test_who_always_loses_that_race_is_told_to_try_again() -> None:
    bench = memory_bench()
    others = [Submission(run=name(at), reason=str(at)) for at in range(1, 100)]
    bench.store = Overtaken(others)

    with pytest.raises(StoreBusyError) as busy:
        meant(bench, new_run="lost")

    prefix = submissions(BANK, SHA)
    assert {"place": prefix, "code": "contested"} == busy.value.fields
    assert [f"{prefix}{at:03d}.json" for at in range(1, CONTESTS + 1)] == bench.store.tried
