"""Limits and precedence in what people read: the limit and its neighbours, the first and the last, by
the functions that hold them and a few values in memory.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.book.attempts import ATTEMPT
from flows.reports import hours, link_forms, page, summary, tally, workbook, worklist
from flows.reports import work_kinds as kinds
from flows.reports.asked import _Asked, _with_day
from flows.reports.balance import verdict
from flows.reports.charts import trend
from flows.reports.link_work import NAMED, _refused_work, _work
from flows.reports.links import _files
from flows.reports.lists import by_reason
from flows.reports.open_items import MISSING, ReportTerms, WaitingChunk
from flows.reports.page import PLACES, _breaks_by_kind, _expiry, refused_by, run_page
from flows.reports.tally import SHAPES, ResultFile
from flows.reports.unlinked_work import OLD, unlinked_work
from flows.reports.verdicts import ABOVE_LIMIT, BALANCED, WAITING
from flows.reports.work import Line, Work
from flows.results.learned_forms import ENOUGH
from flows.runs.store import Entry
from schemas.actions import RESUBMIT
from schemas.breaks import DECISIONS, EXPLAINED, LAST4_MISMATCH
from schemas.issuer import Limits
from tests.facts import facts
from tests.memory_bench import memory_bench
from tests.night import DAY, NOON, issuer

SECOND = timedelta(seconds=1)
MOMENTS = (NOON - SECOND, NOON, NOON + SECOND)
ROWS = pl.List(pl.String)


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


# Balance, hours
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rejected", "errors", "awaiting", "expected"),
    [
        (10, 5, 2, BALANCED),
        (10, 5, 3, WAITING),
        (11, 5, 2, ABOVE_LIMIT),
        (10, 6, 2, ABOVE_LIMIT),
    ],
)
def test_a_run_may_have_as_many_rejects_and_errors_as_the_limits_say(
    rejected: int, errors: int, awaiting: int, expected: str
) -> None:
    manifest = cast(Any, SimpleNamespace(counts=SimpleNamespace(rejected=rejected, read=100)))
    states = {"linked": 50 - errors, "error": errors, "awaiting": awaiting}
    limits = Limits(max_reject_rate=0.1, max_error_rate=0.1)

    assert expected == verdict(manifest, states, [], limits, cancelled=2)


def test_a_link_that_came_before_its_extract_by_our_clock_took_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hours, "_start", lambda _: (hours.PLAN, NOON))
    moments = [NOON - timedelta(hours=1), NOON + timedelta(hours=2)]

    told = hours.run_hours(cast(Any, None), pl.DataFrame({"at": moments, "links": [1, 1]}), 24)

    assert {"0.0": 1, "2.0": 1} == told["spread"]


# What is counted of a run
# --------------------------------------------------------------------------------------------------


def test_a_refused_row_counts_by_its_first_reason_and_kinds_of_text_by_the_least_word() -> None:
    failed = pl.DataFrame(
        [(["b", "a"], "x", "two"), (["c"], "x", "one"), (["d"], "w", "one"), (["e"], "v", "one")],
        {"reasons": ROWS, "shape": pl.String, "message": pl.String},
        orient="row",
    )

    first = dict(tally._count_first_reasons(failed).iter_rows())
    shapes = tally._count_shapes(failed)

    assert {"b": 1, "c": 1, "d": 1, "e": 1} == first
    assert [("x", "b", 2, "one"), ("v", "e", 1, "one"), ("w", "d", 1, "one")] == shapes.rows()


def test_reasons_are_counted_by_their_code_with_the_first_rows() -> None:
    last = 2 * tally.MOST_ROWS
    rows = pl.DataFrame(
        [(number, ["city|city.missing"], ["empty"]) for number in range(last, 0, -1)],
        {"row": pl.UInt32, "reasons": ROWS, "found": ROWS},
        orient="row",
    )

    [(code, count, _, first)] = tally._count_reasons(
        rows, {"first": "row"}, pl.lit(value=False)
    ).rows()

    assert ("city.missing", last) == (code, count)
    assert [*range(1, tally.MOST_ROWS + 1)] == first
    assert [("city.missing|empty", last)] == tally._count_found(rows).rows()


@pytest.mark.parametrize("counted", [tally._count_shapes, tally._count_found])
def test_the_most_frequent_are_kept_and_of_equal_ones_the_first(counted: Any) -> None:
    names = [f"{number:04d}" for number in range(20 * SHAPES)]
    twice = names[-1]
    rows = pl.DataFrame(
        [(["|x"], [name], name, "") for name in [*names, twice]],
        {"reasons": ROWS, "found": ROWS, "shape": pl.String, "message": pl.String},
        orient="row",
    )

    kept = counted(rows)[counted(rows).columns[0]].str.strip_prefix("x|").to_list()

    assert [twice, *names[: 10 * SHAPES - 1]] == kept


def test_a_row_is_listed_once_a_reason_and_not_without_one() -> None:
    rows = pl.DataFrame(
        [(1, ["city|city.missing", "|row.odd", "plain"], None), (2, [], None)],
        {"row": pl.UInt32, "reasons": ROWS, "found": ROWS},
        orient="row",
    )

    listed = by_reason(rows, "row").select("row", "column", "code").rows()

    assert [(1, "city", "city.missing"), (1, None, "row.odd"), (1, None, "plain")] == listed


# The summary and the page
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("more", "ends"), [(0, False), (1, True)])
def test_what_was_found_is_said_by_the_most_frequent_shapes(more: int, ends: bool) -> None:
    cause = cast(Any, SimpleNamespace(_asdict=dict))
    shapes = {f"s{number}": 1 for number in range(summary.MOST_SHAPES + more)}

    of_cause = summary._cause_facts(cause, shapes, 1, [1])

    assert ends == of_cause["found"].endswith(f" and {more} more")


def test_the_newest_results_come_first_and_a_chunk_is_open_since_its_first() -> None:
    days = [None, DAY, DAY + timedelta(1), DAY]
    files = [ResultFile(f"{at}", f"{at}.csv", day, 1) for at, day in enumerate(days)]
    named = {"chunk": [1], "results": [[file.name for file in files]]}
    total = cast(Any, SimpleNamespace(files=files, chunks=pl.DataFrame(named)))

    newest = [fact["name"] for fact in summary._newest_results(files)]

    assert ["2.csv", "3.csv", "1.csv", "0.csv"] == newest
    assert DAY == summary._days_by_place(total)["chunk 1"]


def test_breaks_of_a_kind_are_as_old_as_the_oldest_and_named_by_the_first_places() -> None:
    breaks = [
        {"name": "RESULT_SHORT", "place": f"chunk {number}", "rows": 1, "notice": True}
        | {"since": (NOON - timedelta(hours=number % 5)).isoformat()}
        for number in range(PLACES + 2)
    ]

    [few] = _breaks_by_kind("run", breaks[:2], NOON)
    [line] = _breaks_by_kind("run", breaks, NOON)

    assert ("1 h", 0, "4 h", 2) == (few["age"], few["more"], line["age"], line["more"])


def test_the_largest_reason_expiry_and_night_have_the_whole_width() -> None:
    codes = [("a.b.c", 2), ("a.b.d", 4)]
    ours = [{"code": code, "rows": rows, "warned": 0} for code, rows in codes]
    links = [{"when": "later", "links": number} for number in (3, 6)]
    nights = [
        {"run": f"r{number}", "as_of": "2026-11-20", "read": rows, "linked": rows}
        for number, rows in enumerate((5, 10))
    ]

    reasons = refused_by({"reasons": {"submit": ours, "partner": []}})
    heights = [column["parts"][0]["height"] for column in trend(nights, "r1")]

    assert [1.0, 0.5] == [reason["share"] for reason in reasons]
    assert [0.5, 1.0] == [line["share"] for line in _expiry(links)]
    assert 0 < 2 * heights[0] == heights[1]


def test_a_page_has_the_first_open_chunks_the_worst_ones_and_how_many_more_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "render", lambda _, **shown: shown)
    monkeypatch.setattr(page, "refused_by", lambda _: [{}] * (page.MOST_REASONS + 3))
    report, _ = facts()
    states = [(1, 0), *((1, number) for number in range(1, page.OPEN_CHUNKS + 2)), (0, 0)]
    chunks = pl.DataFrame(
        [(at, 9, 1, waits, errors) for at, (waits, errors) in enumerate(states, 1)],
        ["chunk", "sent", "answers", "awaiting", "error"],
        orient="row",
    )

    shown = cast(Any, run_page(report, chunks))
    few = cast(Any, run_page(report, chunks[:1]))

    first = [chunk["chunk"] for chunk in shown["open_chunks"]]
    worst = [chunk["error"] for chunk in shown["worst_chunks"]]
    assert ([*range(1, page.OPEN_CHUNKS + 1)], 2, 0) == (
        first,
        shown["more_open"],
        few["more_open"],
    )
    assert [*range(page.OPEN_CHUNKS + 1, 0, -1)][: page.WORST_CHUNKS] == worst
    assert ([], 3) == (few["worst_chunks"], shown["more_reasons"])


def test_chunks_of_equally_many_errors_are_listed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "render", lambda _, **shown: shown)
    report, _ = facts()
    chunks = pl.DataFrame({"chunk": [1, 2], "sent": 9, "answers": 9, "awaiting": 0, "error": 1})

    shown = cast(Any, run_page(report, chunks[::-1]))

    assert [1, 2] == [chunk["chunk"] for chunk in shown["worst_chunks"]]


def test_a_workbook_has_the_first_rows_and_a_reason_its_own_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workbook, "MOST_CHUNKS", 2)
    monkeypatch.setattr(workbook, "workbook", dict)
    monkeypatch.setattr(workbook, "_run_sheets", lambda _, chunks: {"rows": chunks})
    rows = pl.DataFrame({"chunk": [1, 2, 3]})

    of_run = cast(Any, workbook.run_workbook({}, rows))["rows"]
    across = cast(Any, workbook.across_workbook({"runs": rows}))["Runs"]
    cells = workbook._reason({"code": "a.b.c", "lines": "1, 2", "more_lines": 3})

    assert [(1,), (2,)] == of_run.rows() == list(across.rows)
    assert ("a.b.c", "1, 2 and 3 more") == (cells[0], cells[-1])


def test_links_are_mailed_in_files_of_just_so_many_rows() -> None:
    def sizes(*frames: int) -> list[list[int]]:
        rows = iter([pl.DataFrame({"a": range(rows)}) for rows in frames])
        return [[frame.height for frame in file] for file in _files(rows, 3)]

    first = [next(iter(file))["a"][0] for file in _files(iter([pl.DataFrame({"a": [1, 2]})]), 1)]

    assert [[3]] == sizes(3) == sizes(1, 2)
    assert [[3], [1]] == sizes(4) == sizes(3, 1)
    assert [1, 2] == first


# Forms of links
# --------------------------------------------------------------------------------------------------


def test_the_form_of_links_is_learned_from_so_many_of_the_newest_runs() -> None:
    half = link_forms.LINKS // 2

    def run(number: int, links: int) -> Any:
        frame = pl.DataFrame({"url": [f"{number}-{at}" for at in range(links)]})
        return SimpleNamespace(
            id=f"r{number}", summary={"verdict": BALANCED}, rows=lambda *_: [frame]
        )

    known = {f"r{number}": run(number, half) for number in range(3)}
    runs = cast(Any, SimpleNamespace(ids=list(known), run=known.get, without_ledger=()))
    read = [each.id for each in link_forms._balanced_runs(runs)]
    known["r0"].rows = None  # two are enough

    links = link_forms.received_links(runs)
    known["r2"] = run(2, link_forms.LINKS + 1)
    of_one = link_forms.received_links(runs)

    assert ["r2", "r1", "r0"] == read
    assert (["2-0", "1-0"], 2 * half) == (links[0, half].to_list(), len(links))
    assert ("2-0", link_forms.LINKS) == (of_one[0], len(of_one))


def test_a_person_is_asked_about_a_form_of_enough_links(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = [SimpleNamespace(links=ENOUGH + more) for more in (-1, 0, 1)]
    monkeypatch.setattr(link_forms, "received_links", lambda _: None)
    monkeypatch.setattr(link_forms, "_other_forms", lambda *_: forms)

    asked = link_forms.forms_to_confirm(memory_bench().context, cast(Any, None), depart=False)

    assert forms[1:] == asked


# The worklist
# --------------------------------------------------------------------------------------------------


def work(since: datetime = NOON, **changes: Any) -> Work:
    return Work(NOON, kinds.SEND_AGAIN, "bank", since, run="bank-20261110-0a1b2c3d")._replace(
        **changes
    )


def test_a_line_is_due_and_as_old_as_the_first_of_it_and_was_asked_about_last() -> None:
    days = [DAY, DAY + timedelta(days=2), DAY + timedelta(days=1)]
    works = [work(midnight(day), due=midnight(day), asked_on=day) for day in (*days[1:], DAY)]
    line = Line(tuple(works))

    assert midnight(DAY) == line.due
    assert "2 d" == line.facts(midnight(days[1]))["age"]
    assert "were written on 2026-11-22." in line.sentence


@pytest.mark.parametrize("asked_about", [kinds.OVERDUE, kinds.ASK_ABOUT])
def test_questions_say_nothing_of_what_became_known_after_them(asked_about: str) -> None:
    works = [(work(due=moment, kind=asked_about), _Asked(NOON, moment)) for moment in MOMENTS]

    days = [_with_day(*asked).asked_on for asked in works]

    assert [DAY, DAY, None] == days


@pytest.mark.parametrize(
    ("after", "kind", "is_late"),
    [
        (timedelta(hours=48) - SECOND, kinds.AWAITED, False),
        (timedelta(hours=48), kinds.AWAITED, False),
        (timedelta(hours=48) + SECOND, kinds.OVERDUE, False),
        (timedelta(days=14) - SECOND, kinds.OVERDUE, False),
        (timedelta(days=14), kinds.OVERDUE, True),
        (timedelta(days=14) + SECOND, kinds.OVERDUE, True),
    ],
)
def test_an_answer_is_overdue_after_its_hours_and_given_up_from_its_days_on(
    after: timedelta, kind: str, is_late: bool
) -> None:
    chunk = WaitingChunk("run", 1, MISSING, 3, NOON)

    told = worklist._chunk(issuer(limits={"lost_after_days": 14}), chunk, terms(NOON + after))

    assert (kind, is_late) == (told.kind, told.is_late)


@pytest.mark.parametrize(("closed", "rows"), [(2, 2), (3, 3), (4, 3)])
def test_no_more_rows_of_a_closed_break_wait_than_of_its_chunk(closed: int, rows: int) -> None:
    closing = {"name": LAST4_MISMATCH, "place": "chunk 1, rows 2", "rows": closed}
    breaks = ({**closing, "decision": DECISIONS[EXPLAINED].meaning},)
    chunk = WaitingChunk("run", 1, MISSING, 3, NOON)
    run = cast(Any, SimpleNamespace(closed=breaks, breaks=(), waiting=[chunk]))

    told = list(worklist._chunks(issuer(), run, terms(NOON), ()))

    left = [3 - rows] if rows < 3 else []
    assert [rows, *left] == [each.rows for each in told]


def terms(now: datetime) -> ReportTerms:
    return ReportTerms(now, 48)


@pytest.mark.parametrize(("age", "is_new"), [(SECOND, True), (0 * SECOND, False), (-SECOND, False)])
def test_the_newest_result_file_may_be_copied_for_a_while(
    monkeypatch: pytest.MonkeyPatch, age: timedelta, is_new: bool
) -> None:
    newest = NOON - worklist.MAY_BE_COPIED + age
    files = [Entry(f"bank/results/{day}.csv", 1, day, "") for day in (NOON - 9 * OLD, newest)]
    monkeypatch.setattr(worklist, "result_files", lambda *_: [])
    monkeypatch.setattr(worklist, "files_to_ingest", lambda *_: files)

    notes = [each.note for each in worklist._results(cast(Any, None), "bank", NOON)]

    assert [is_new] * 2 == list(map(bool, notes))


def test_refused_rows_are_work_since_the_first_of_them_with_the_most_frequent_reasons() -> None:
    codes = ["z", "z", *map(str, range(NAMED))]
    rows = [
        {"run": "r1", "reason": code, "since": NOON - timedelta(hours=at % 3)}
        for at, code in enumerate(codes)
    ]

    [told] = _refused_work("bank", kinds.NAMELESS, [], pl.DataFrame(rows, ATTEMPT), NOON)

    assert NOON - timedelta(hours=2) == told.since
    assert told.note.startswith("Why: z (2)")


@pytest.mark.parametrize("days", [[-1, 3], [3, -1], [2, 3]])
def test_links_that_end_are_due_on_the_first_day_and_no_work_of_the_future(days: list[int]) -> None:
    ends = [DAY + timedelta(days=ahead) for ahead in days]
    rows = pl.DataFrame({"ends": ends, "standing": "has a link"})

    told = _work("bank", kinds.NAMELESS, rows, NOON)

    assert (midnight(min(ends)), min(midnight(min(ends)), NOON)) == (told.due, told.since)


@pytest.mark.parametrize(
    ("late", "is_late"), [(-SECOND, False), (0 * SECOND, False), (SECOND, True)]
)
def test_who_lacks_a_link_is_work_since_the_first_answer_and_late_after_two_weeks(
    late: timedelta, is_late: bool
) -> None:
    plan = cast(Any, SimpleNamespace(run="r1", as_of=DAY, since=NOON, midnight=midnight(DAY)))
    answers = [NOON, NOON - timedelta(hours=3), NOON - timedelta(hours=1)]
    lacking = pl.DataFrame(
        [
            ("r1", "partner", code, RESUBMIT, at)
            for code, at in zip("bcccd", (NOON, *answers, NOON), strict=True)
        ],
        ["run", "stage", "reason", "action", "since"],
        orient="row",
    )

    [told] = unlinked_work("bank", [plan], lacking, plan.midnight + OLD + late)

    assert (answers[1], is_late) == (told.since, told.is_late)
