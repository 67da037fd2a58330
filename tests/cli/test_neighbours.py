"""Limits and precedence of what a command says: the limit and its neighbours, the first and the last,
by the functions that hold them and a few values in memory.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.commands import (
    link_forms,
    outbox,
    overview,
    purge,
    renewal,
    resubmission,
    results,
    settings,
    trace,
    worklist,
)
from flows.commands.result import BY_WEIGHT, MOST, Result, Table, worst
from flows.extensions.deliveries import commands as delivery
from flows.extensions.deliveries.delivery import Delivered
from flows.extensions.deliveries.reaching import Outcome
from flows.extensions.init import asking
from flows.operations.purge import PurgePlan
from flows.reports import advice, cardholder_status, work
from flows.reports.cardholder import Attempt
from flows.reports.link_forms import LinkForms
from flows.results.learned_forms import ENOUGH, LearnedForm
from schemas.ledger import LINKED, SUPPRESSED
from schemas.link_form import LinkForm
from tests.memory_bench import memory_bench
from tests.night import BANK, DAY, NOON

DAYS = [DAY + timedelta(days=days) for days in (-1, 0, 1)]


def as_text(parts: Any) -> str:
    return "\n".join(map(str, parts))


def test_of_several_exit_codes_the_worst_counts() -> None:
    heaviest = [worst(codes) for codes in ([], [0, 75], [75, 3], [2, 3], [4, 75, 2], [2, 1, 4])]

    assert [0, 75, 3, 2, 4, 1] == heaviest == list(BY_WEIGHT)


# How many are named
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_what_is_beyond_a_limit_is_counted_and_nothing_at_it(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(limit: int) -> list[str]:
        return [f"n{number}" for number in range(limit + more)]

    unknown = PurgePlan((), (), tuple(few(purge.SHOWN)), ())
    reasons = [{"code": name, "rows": 1, "action": ""} for name in few(results.TOP)]
    by_stage = {stage: reasons if not at else [] for at, (stage, *_) in enumerate(results.STAGES)}
    monkeypatch.setattr(worklist, "conversation", lambda *_: iter(()))
    lines = cast(Any, few(worklist.LONGEST))

    texts = {
        "chunks": outbox.numbered(range(10 + more)),
        "purge": as_text(purge._unknown(unknown)),
        "reasons": as_text(results._reasons(by_stage)),
        "page": Table(("a",), [(name,) for name in few(MOST)]).markdown,
        "named": worklist._named(few(worklist.NAMED)),
        "to do": as_text(worklist._to_do(lines, NOON)),
    }

    assert dict.fromkeys(texts, more > 0) == {of: " more" in said for of, said in texts.items()}


def test_a_column_is_as_wide_as_the_longest_of_its_texts() -> None:
    table = Table(("n", "text"), [(1, "a"), (12, "longest")])

    assert [" n  text", " 1  a", "12  longest"] == table.lines()


@pytest.mark.parametrize("more", [0, 1])
def test_of_the_rows_that_stay_the_first_are_listed(more: int) -> None:
    rows = pl.DataFrame({"origin": range(resubmission.LISTED + more), "why": "x"}).with_columns(
        state=pl.lit("linked"), where=pl.lit("r")
    )
    plan = SimpleNamespace(rows=rows, source=SimpleNamespace(strangers=()))
    nothing = pl.Series([False])
    checked = SimpleNamespace(refused=None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resubmission, "_overridden", lambda _: nothing.sum())
        parts = list(resubmission._remarks(cast(Any, plan), cast(Any, checked)))

    [table] = [part for part in parts if isinstance(part, Table)]
    assert list(range(resubmission.LISTED)) == [row[0] for row in table.rows]
    assert bool(more) == any("more" in str(part) for part in parts)


@pytest.mark.parametrize("more", [0, 1])
def test_a_report_across_runs_shows_so_much_to_do_and_says_where_the_rest_is(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["line"] * (results.TOP + more)
    monkeypatch.setattr(work, "lines", lambda _: lines)
    for name in ("everything_to_do", "Conversation", "standing_table"):
        monkeypatch.setattr(overview, name, lambda *_: "")
    for name in ("_outstanding", "conversation"):
        monkeypatch.setattr(overview, name, lambda *_: iter(()))
    monkeypatch.setattr(advice, "across_advice", lambda _: ())
    facts = {"issuer": BANK, "cardholders": {"sentence": ""}, "runs": [], "verdict": ""}
    facts |= {"rows": {}, "hours": {"links": 0}, "outstanding": []}
    survey = SimpleNamespace(terms=SimpleNamespace(now=NOON), work=())

    parts = list(overview._across(facts, cast(Any, survey), memory_bench().context))

    assert bool(more) == any("and more" in str(part) for part in parts)


@pytest.mark.parametrize("more", [0, 1])
def test_an_ingest_names_so_many_runs_in_its_sentence(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Result({}, [], headline="run")
    monkeypatch.setattr(results, "report_of", lambda *_: report)
    reports = [SimpleNamespace(summary=None)] * (results.NAMED + more)
    done = SimpleNamespace(reports=reports, breaks=())

    said = results.ingested(memory_bench().context, cast(Any, done), "line", {}).headline

    assert bool(more) == ("more runs" in said)


@pytest.mark.parametrize("runs", [1, 2])
def test_a_renewal_says_how_many_runs_it_is_where_it_is_several(
    runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_stuck", "submitted"):
        monkeypatch.setattr(renewal, name, lambda *_: [])
    for name in ("run_facts", "_facts"):
        monkeypatch.setattr(renewal, name, lambda *_: {})
    counts = SimpleNamespace(counts=SimpleNamespace(submitted=2))
    plan = SimpleNamespace(due=2, until=DAY, left_out={}, stuck=0)
    renewed = SimpleNamespace(
        plan=plan, runs=[SimpleNamespace(manifest=counts)] * runs, errors=(), remarks=()
    )

    said = as_text(renewal._renewed(memory_bench().context, cast(Any, renewed)).shown)

    assert (runs > 1) == (f"in {runs} run" in said)


# What is said
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("receivers", [["a"], ["a", "b"]])
def test_a_dry_run_to_one_receiver_names_it_in_the_command_that_delivers(
    receivers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_lines", lambda *_, **__: [])
    monkeypatch.setattr(delivery, "_facts", lambda _: {})
    outcomes = [Outcome(name, Delivered(fresh=True)) for name in receivers]

    done = delivery._delivered(memory_bench().context, outcomes, True, {})

    assert len(receivers) == 2 or f"deliver {BANK} a" in str(done.next_step)
    assert len(receivers) == 1 or str(done.next_step).endswith(f"deliver {BANK}")


def test_a_form_of_links_may_be_confirmed_once_enough_links_have_it() -> None:
    form = LinkForm.parse("https://links.example.com/l/{hex:24}")
    assert form is not None

    said = [
        as_text(link_forms.form_lines(BANK, LinkForms(9, [], [LearnedForm(form, links)], [])))
        for links in (ENOUGH - 1, ENOUGH, ENOUGH + 1)
    ]

    assert [True, False, False] == [f"from {ENOUGH} links on" in text for text in said]


def test_the_next_part_that_a_purge_keeps_is_that_which_is_due_first() -> None:
    kept = [SimpleNamespace(part="chunks", until=day) for day in (DAYS[1], DAYS[0], DAYS[2], None)]

    [said] = purge._young(cast(PurgePlan, SimpleNamespace(kept=kept)))

    assert said == f"kept for their age: chunks of 3 runs, the next until {DAYS[0]}"


def test_a_renewal_shows_who_is_left_out_where_anybody_is() -> None:
    for left_out in ({}, {"gone": 1}):
        plan = SimpleNamespace(due=2, until=DAY, left_out=left_out)

        assert bool(left_out) == renewal._left_out(BANK, cast(Any, plan)).on_terminal


def test_of_two_settings_with_one_name_the_outer_one_is_meant() -> None:
    with pytest.raises(settings.NoSettingError) as caught:
        settings._named("patern")

    assert "source.pattern" == caught.value.fields["nearest"]


def test_the_answer_behind_the_values_of_a_column_is_to_decide_value_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doubt = SimpleNamespace(others=["a"], value="b", values=["x"], table="status")
    draft = SimpleNamespace(without_status=[], answered=lambda _, value: value)
    monkeypatch.setattr(asking, "_value_by_value", lambda *_: "value by value")

    def answer(number: str) -> object:
        terminal = SimpleNamespace(say=lambda _: None, ask=lambda *_, **__: number)
        return asking._answer(cast(Any, doubt), cast(Any, draft), cast(Any, terminal))

    answers = [answer(number) for number in ("0", "1", "2", "3", "4")]

    assert [draft, "a", "b", "value by value", draft] == answers


# A cardholder
# --------------------------------------------------------------------------------------------------


def attempt(number: int, state: str, **fields: Any) -> Attempt:
    return Attempt(NOON, BANK, f"r{number}", state=state, **fields)


@pytest.mark.parametrize("day", [-1, 0, 1])
def test_a_link_that_ends_within_so_many_days_is_looked_at_for_its_renewal(
    day: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = DAY + timedelta(days=cardholder_status.SOON + day)
    ending = pl.DataFrame({"cuid": "c-1", "last_4": "1111", "why": "w"})
    monkeypatch.setattr(trace, "wire", lambda *_: None)
    monkeypatch.setattr("flows.resend.renewal.ending", lambda *_: ending)
    known = SimpleNamespace(issuer=BANK, cards=lambda _: None)
    context = SimpleNamespace(folder=None)
    attempts = [attempt(1, LINKED, expires_on=ends), attempt(2, LINKED)]

    left_out = trace._renewals(cast(Any, context), cast(Any, known), "c-1", attempts, DAY)

    assert ({} if day > 0 else {"1111": "w"}) == left_out


def test_runs_that_are_not_searched_are_named_from_the_first_to_the_last() -> None:
    said = as_text(trace._lines([], [], ["r1", "r2", "r3"]))

    assert "not searched: 3 runs whose ledgers are purged, r1 to r3" in said


def test_runs_that_did_not_send_a_row_for_one_reason_are_a_line_to_the_last_of_them() -> None:
    several = [attempt(number, SUPPRESSED, reasons=("linked",)) for number in (1, 2, 3)]
    together = list(trace._attempt_lines(several))
    [alone, *_] = trace._attempt_lines(several[:1])

    assert [f"{NOON:%Y-%m-%d %H:%M}  3 runs to r3: not sent, linked"] == together
    assert "1 run to" not in alone


def test_work_is_as_old_as_the_oldest_of_it() -> None:
    works = [SimpleNamespace(since=NOON - timedelta(seconds=age)) for age in (5, 9, 1)]
    line = SimpleNamespace(works=works, facts=lambda _: {"age": ""})

    assert 9 == worklist._aged_facts(cast(Any, line), NOON)["age_seconds"]
