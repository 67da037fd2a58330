"""A report is rebuilt from what is stored: each file of it, what its facts are made from, and when."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import timedelta
from io import BytesIO
from typing import Any

import polars as pl
import pytest

from flows import __version__
from flows.reports import page, rebuild, workbook
from flows.reports.business_result import with_attempts
from flows.reports.lists import BREAKS
from flows.reports.reconciled import reconciled_parts
from flows.reports.tally import Tally, add
from flows.results.row_states import STATES
from flows.runs.closings import add_closing
from flows.runs.events import ANSWERED
from flows.runs.journal import enter
from flows.runs.outbox import move
from flows.runs.single_links import row_attempt
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.breaks import Break
from schemas.records import Closing, SingleAsked
from schemas.tables import Awaiting, Questions, Refusals
from tests.builders import quick
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import BANK, DAY, NOON
from tests.reports.test_lists import HEAD, link, refusal
from tests.singles import recorded
from tests.submissions.test_begun_runs import committed, name

Calls = list[tuple[Any, ...]]


def night(**settings: Any) -> tuple[MemoryBench, StoredRun]:
    """Return a committed run of three chunks that nobody has answered."""
    bench = memory_bench(portal={"rows_per_chunk": 4}, **settings)
    run = bench.submit(bench.drop(14, bad=0.3, seed=2)).manifest.run
    return bench, bench.stored(run)


def tally_of(run: StoredRun) -> Tally:
    return add([tally for part in reconciled_parts(run, DAY) for tally in part.tallies])


def table(bench: MemoryBench, run: StoredRun, list_name: str) -> pl.DataFrame:
    return pl.read_csv(bench.report(run.id, list_name), infer_schema=False)


def test_the_report_of_a_run_that_nobody_answered_has_every_file_and_every_row() -> None:
    bench, run = night()
    closing = Closing(at=NOON, by="a", reason="b", what="reopened", name="x", place="y")
    enter(bench.adapters, BANK, "", lambda act: add_closing(act, run.id, closing, []))
    del bench.store.objects[run.keys.report("rejects.csv")]  # which the commit wrote

    report = rebuild.rebuild(bench.context._replace(forms_url="https://forms.example.com/"), run)

    counts = run.committed().counts
    part = run.committed().ledger[0].name
    files = {f"{name}.csv" for name in ("awaiting", "breaks", "chunks", "errors", "links")}
    files |= {"questions.csv", "rejects.csv", "report.html", "report.xlsx", "summary.json"}
    files |= {f"rows/{part}", f"links/{part}"}
    folder = f"{run.keys.base}report/"
    written = {key.removeprefix(folder) for key in bench.snapshot() if key.startswith(folder)}
    assert files <= written
    assert files | {"suppressed.csv"} >= written
    last = max(bench.store.keys(folder), key=lambda entry: int(entry.version))
    assert f"{folder}summary.json" == last.key  # a report whose facts are there is whole
    assert () == report.breaks
    summary = json.loads(bench.report(run.id, "summary.json"))
    assert summary == json.loads(json.dumps(report.summary))
    assert {"closed": 1, "answers": 0} == summary["open"]["recorded"]
    assert (counts.submitted, 0) == (summary["rows"]["awaiting"], summary["rows"]["linked"])
    rows = pl.read_parquet(BytesIO(bench.content(run.rows_key(run.committed().ledger[0]))))
    assert counts.submitted == rows.height
    assert counts.rejected == table(bench, run, "rejects.csv")["row"].n_unique()
    awaiting = table(bench, run, "awaiting.csv")
    assert sorted(map(str, rows["row"])) == sorted(awaiting["row"])
    heads = {
        "errors.csv": [*Refusals.dtypes()],
        "awaiting.csv": [*Awaiting.dtypes()],
        "questions.csv": [*Questions.dtypes()],
        "breaks.csv": list(BREAKS),
    }
    assert heads == {name: table(bench, run, name).columns for name in heads}
    chunks = table(bench, run, "chunks.csv")
    assert ["1", "2", "3"] == chunks["chunk"].to_list()
    assert b"forms.example.com" in bench.report(run.id, "report.html")


def test_the_report_of_a_portfolio_has_no_list_of_what_was_suppressed() -> None:
    bench = memory_bench(full_portfolio=True)
    bench.submit(bench.drop(3, "bank-20261119.csv"))
    manifest = bench.submit(bench.drop(4)).manifest

    rebuild.rebuild(bench.context, bench.stored(manifest.run))

    assert 3 == manifest.counts.suppressed
    assert bench.stored(manifest.run).keys.report("suppressed.csv") not in bench.snapshot()


def test_what_was_answered_is_in_its_lists() -> None:
    bench, run = night()
    sent = bench.ledger(run.id).filter(fate="submitted").sort("chunk", "position").rows(named=True)
    move(bench.context.adapters, run.id, "uploaded")
    wrong = {**sent[3], "last_4": "9999"}
    lines = [link(sent[0]), refusal(sent[1]), link(sent[2]), link(wrong)]
    bench.drop_result((HEAD + "".join(lines)).encode(), f"{run.id}-00001.csv")
    bench.ingest()
    bench.now = lambda: NOON + timedelta(days=40)  # the others are overdue

    report = rebuild.rebuild(bench.context, run)

    errors = table(bench, run, "errors.csv")
    assert [str(sent[1]["row"])] == errors["row"].to_list()
    assert [sent[1]["cuid"]] == errors["cuid"].to_list()
    assert [sent[1]["last_4"]] == errors["last_4"].to_list()
    assert sorted(str(row["row"]) for row in sent[3:]) == sorted(
        table(bench, run, "awaiting.csv")["row"]
    )
    links = pl.read_csv(BytesIO(bench.report(run.id, "links.csv")))
    part = run.committed().ledger[0].name
    kept = pl.read_parquet(BytesIO(bench.report(run.id, f"links/{part}")))
    assert (2, 2) == (links.height, kept.height)
    assert list(report.breaks) == sorted(report.breaks)
    breaks = table(bench, run, "breaks.csv")
    assert {one.name for one in report.breaks} <= set(breaks[breaks.columns[0]])
    assert {"linked": 2, "error": 1} == {
        state: report.summary["rows"][state] for state in ("linked", "error")
    }
    questions = table(bench, run, "questions.csv")
    assert questions.height >= 2


def test_a_run_without_a_part_of_a_ledger_has_lists_without_lines() -> None:
    bench, answered = night()
    run = bench.stored(committed(bench, name(9)))
    total = tally_of(answered)

    rebuild._write_lists(run, total, NOON, timedelta(hours=1))

    assert [0, 0] == [table(bench, run, f"{name}.csv").height for name in ("questions", "errors")]


@pytest.mark.parametrize("full_portfolio", quick(1, [True, False]))
def test_a_report_of_a_portfolio_has_no_list_of_what_was_suppressed(full_portfolio: bool) -> None:
    bench = memory_bench(full_portfolio=full_portfolio)
    content = bench.content("bank/extracts/" + bench.drop(3, "bank-20261119.csv"))
    bench.submit("bank-20261119.csv")
    extract = bench.drop_bytes(content.replace(b"\n", b"\r\n"))
    run = bench.stored(bench.submit(extract).manifest.run)
    key = run.keys.report("suppressed.csv")
    bench.store.objects.pop(key, None)

    rebuild.rebuild(bench.context, run)

    assert full_portfolio != (key in bench.store.objects)


# What the facts are made from


class Noted:
    """Stands for a function: notes its arguments, and returns what it was given."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.calls: Calls = []

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self.result


@pytest.mark.parametrize("funnel", quick(1, [{"steps": 1}, None]))
@pytest.mark.parametrize("attempts", [None, {"after": {**dict.fromkeys(STATES, 0), "linked": 2}}])
def test_the_facts_are_those_of_the_run_as_of_the_day_at_the_issuer(
    monkeypatch: pytest.MonkeyPatch, funnel: Any, attempts: Any
) -> None:
    bench, run = night(time_zone="Pacific/Kiritimati")
    result = {"cards": 2, "linked": 1, "waits": {"issuer": 1}, "sentence": "1 of 2"}
    pairs = [(Break(name, 1, "x", ""), closing(name)) for name in ("b", "a", "c")]
    total = tally_of(run)._replace(closed=pairs)  # type: ignore[arg-type]  # in an order of its own
    noted = {
        "summarise": Noted({"rows": {"read": 1}, "open": {"result": result}}),
        "run_hours": Noted({"median": 1}),
        "attempts_after": Noted(attempts),
    }
    for function, stand_in in noted.items():
        monkeypatch.setattr(rebuild, function, stand_in)
    facts_of = Noted({"funnel": funnel} if funnel else {})
    monkeypatch.setattr(
        rebuild, "hooks", lambda name: [facts_of] if name == "summary_facts" else []
    )

    facts = rebuild._summary(bench.context, run, total, NOON)

    told = with_attempts(result, attempts["after"]) if attempts else result
    expected: dict[str, Any] = {"rows": {"read": 1}, "hours": {"median": 1}}
    expected |= {"open": {"result": told}}
    expected |= {"funnel": funnel} if funnel else {}
    expected |= {"attempts": attempts} if attempts else {}
    assert expected == facts
    versions = {
        "cardlink": __version__,
        "polars": pl.__version__,
        "python": platform.python_version(),
    }
    in_order = [pairs[1], pairs[0], pairs[2]]
    manifest = run.committed()
    assert noted["summarise"].calls == [
        (manifest, total, bench.issuer, run.outbox, NOON, versions, in_order, [])
    ]
    within = bench.issuer.portal.link_within_hours
    assert [(run, total.arrivals, within)] == noted["run_hours"].calls
    assert [(run, {"read": 1})] == noted["attempts_after"].calls
    assert [(run, DAY + timedelta(days=1))] == facts_of.calls


def closing(name: str) -> Closing:
    return Closing(at=NOON, by="a", reason="why", what="closed", name=name, place="x")


def test_of_breaks_that_look_the_same_each_keeps_its_own_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, run = night()
    same = [(Break("a", 1, "x", ""), closing(name)) for name in ("b", "a")]
    total = tally_of(run)._replace(closed=same)  # type: ignore[arg-type]  # in an order of its own
    summarise = Noted({"rows": {}})
    monkeypatch.setattr(rebuild, "summarise", summarise)

    rebuild._summary(bench.context, run, total, NOON)

    assert same == summarise.calls[0][6]


def test_page_and_workbook_are_made_of_the_facts_the_trend_and_the_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, run = night()
    made_page, made_book = Noted("the page"), Noted(b"the book")
    monkeypatch.setattr(page, "run_page", made_page)
    monkeypatch.setattr(workbook, "run_workbook", made_book)
    monkeypatch.setattr(rebuild, "_trend", lambda of, _, facts: [{"of": of, "facts": facts}])
    chunks = pl.DataFrame({"chunk": [1, 2]})
    facts = {"run": run.id}

    rebuild._write_pages(run, bench.runs, facts, chunks, "https://forms")

    reported = {**facts, "trend": [{"of": run, "facts": facts}]}
    assert [(reported, chunks, "https://forms")] == made_page.calls
    assert [(reported, chunks)] == made_book.calls
    assert b"the page" == bench.report(run.id, "report.html")
    assert b"the book" == bench.report(run.id, "report.xlsx")
    assert b"chunk\n1\n2\n" == bench.report(run.id, "chunks.csv")


def test_the_trend_has_the_last_runs_up_to_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = memory_bench()
    monkeypatch.setattr(rebuild, "TREND", 4)
    days = [DAY + timedelta(days=at) for at in (-3, -2, -1, 0, 1)]
    for day in days:
        committed(bench, name(1, day))
    committed(bench, name(2, DAY))
    run = bench.stored(name(2, DAY))
    facts = {"verdict": "balanced", "rows": _rows(awaiting=3), "open": {"cancelled": 0}}

    trend = rebuild._trend(run, bench.runs, facts)

    names = [name(1, days[1]), name(1, days[2]), name(1, DAY), name(2, DAY)]
    assert names == [status["run"] for status in trend]
    assert [str(day) for day in (days[1], days[2], DAY, DAY)] == [one["as_of"] for one in trend]
    assert ("balanced; 3 rows still wait", 3) == (trend[-1]["state"], trend[-1]["awaiting"])


@pytest.mark.parametrize("is_listed", [False, True])
def test_the_trend_is_of_the_runs_that_were_listed_or_of_all_of_the_issuer(
    monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    bench, run = night()
    trends: list[StoredRuns] = []
    listed = bench.runs if is_listed else None

    def note(run: StoredRun, runs: StoredRuns, facts: object) -> list[str]:
        trends.append(runs)
        return []

    monkeypatch.setattr(rebuild, "_trend", note)
    rebuild.rebuild_lasting(bench.context, run, listed)

    [runs] = trends
    assert ([*run.store.keys("")], BANK) == ([*runs.store.keys("")], runs.issuer)
    assert is_listed == (runs is listed)


def _rows(**figures: int) -> Mapping[str, int]:
    names = ("read", "linked", "error", "awaiting", "rejected", "duplicate", "suppressed")
    return dict.fromkeys(names, 0) | figures


@pytest.mark.parametrize("is_single", [True, False])
def test_a_report_is_made_again_until_nothing_was_added_while_it_was_made(
    monkeypatch: pytest.MonkeyPatch, *, is_single: bool
) -> None:
    bench = memory_bench()
    run = bench.stored(committed(bench, name(1)))
    calls: Calls = []

    def adding(*arguments: Any) -> str:
        calls.append(arguments)
        if len(calls) < 3 and is_single:
            asked = SingleAsked(
                row=1, cuid="c", last_4="4242", expiration="3001", at=bench.now(), by="tester"
            )
            recorded(bench.adapters, row_attempt(run.id, 1, len(calls)), asked)
        elif len(calls) < 3:
            enter(bench.adapters, BANK, ANSWERED, lambda act: act.note(ANSWERED, run.id))
        return f"report {len(calls)}"

    context = bench.context
    monkeypatch.setattr(rebuild, "rebuild", adding)

    report: Any = rebuild.rebuild_lasting(context, run)

    assert ("report 3", [(context, run, None)] * 3) == (report, calls)
