"""Limits and precedence of the tables, the summary and the worklist that people read, as in
`test_neighbours.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.operations import undecided_work
from flows.reports import (
    across,
    link_forms,
    lists,
    programme,
    programme_report,
    rebuild,
    run_facts,
    summary,
    tally,
    unlinked,
    worklist,
)
from flows.reports import work_kinds as kinds
from flows.reports.open_items import (
    MISSING,
    PARTIAL,
    UNSETTLED,
    ReportTerms,
    WaitingChunk,
    missing,
    waiting_chunks,
)
from flows.reports.tally import KINDS, SHAPES
from flows.reports.work import Line, Work
from flows.runs.chunks import OutboxChunk
from flows.runs.keys import RunId
from flows.runs.store import Entry
from schemas.breaks import LAST4_MISMATCH, LINK_FORM, break_of
from schemas.manifest import ManifestChunk
from tests.facts import NOW, facts, manifest, total, waiting
from tests.memory_bench import memory_bench
from tests.night import DAY, NOON, issuer

SECOND = timedelta(seconds=1)
CITY, LUHN, STREET = "address.city.missing", "card.pan.luhn", "address.address1.missing"


# Tables
# --------------------------------------------------------------------------------------------------


def test_cards_without_a_link_are_listed_by_attempts_then_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [("b", "1", 2), ("a", "2", 1), ("a", "1", 2), ("b", "0", 2)]
    cards = pl.DataFrame(looks, ["cuid", "last_4", "tries"], orient="row").with_columns(
        *(pl.lit(None, pl.String).alias(name) for name in ("run", "stage", "reason", "since")),
        *(
            pl.lit(None, pl.String).alias(name)
            for name in unlinked.CARD
            if name not in ("cuid", "last_4")
        ),
        sendings=1,
    )
    monkeypatch.setattr(unlinked, "without_link", lambda cards, _: cards)

    listed = unlinked.unlinked(cards).select("cuid", "last_4").rows()

    assert [("a", "1"), ("b", "0"), ("b", "1"), ("a", "2")] == listed


def test_across_runs_the_most_frequent_reasons_come_first_and_of_equal_ones_the_first_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(across, "LISTED", 2)
    lacking = pl.DataFrame({"attempts": 1, "reason": [STREET, LUHN, LUHN, CITY]})

    listed = [line["code"] for line in across._unlinked(lacking)["reasons"]]

    assert [LUHN, min(CITY, STREET)] == listed


def test_counts_are_added_up_most_rows_first() -> None:
    rows = [(STREET, 1), (LUHN, 2), (CITY, 1)]
    frames = [pl.DataFrame([row], tally.FIRST_REASONS, orient="row") for row in rows]

    assert [LUHN, *sorted([CITY, STREET])] == tally._sum(frames, tally.FIRST_REASONS)[
        "reason"
    ].to_list()


def test_the_reasons_of_the_programme_are_by_week_then_rows_then_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = {LUHN: 2, STREET: 1, CITY: 1}
    runs = [SimpleNamespace(as_of=day) for day in (DAY, DAY - timedelta(days=7))]
    known = [cast(Any, SimpleNamespace(issuer=name, runs=runs)) for name in "ba"]
    each = [(stage, code, number) for code, number in counts.items() for stage in ("submit", "a")]
    monkeypatch.setattr(programme, "_reasons_of", lambda _: each)
    monkeypatch.setattr(programme_report, "LISTED", 3)

    table = programme.reasons(known)
    most = programme_report._reasons(table)

    order = table.select("week", -pl.col("rows").cast(pl.Int64), "issuer", "code", "stage").rows()
    assert sorted(order) == order
    first = min(CITY, STREET)
    assert [(LUHN, "a"), (LUHN, "submit"), (first, "a")] == [
        (line["code"], line["stage"]) for line in most
    ]


def test_links_at_the_agreed_hour_are_in_time_and_the_longest_way_to_a_placed_card_is_told() -> (
    None
):
    run = SimpleNamespace(hours=Counter({"23.9": 1, "24.0": 2, "24.1": 4}))

    assert 3 == programme._links_in_time(cast(Any, SimpleNamespace(run=run, within=24)))
    assert (3, 2.0, 9) == programme._days([2, 9, 1])


# Chunks, the summary
# --------------------------------------------------------------------------------------------------


def test_a_chunk_lacks_its_result_a_part_of_it_or_a_usable_answer() -> None:
    rows = [(1, 5, 0, 5), (2, 5, 4, 1), (3, 5, 5, 1), (4, 5, 5, 0)]
    chunks = pl.DataFrame(rows, ["chunk", "sent", "answers", "awaiting"], orient="row")
    items = [
        OutboxChunk(
            "r1",
            ManifestChunk(number=at, name="", rows=5, bytes=1, sha256=""),
            "uploaded",
            NOON,
            NOON,
        )
        for at in range(1, 5)
    ]

    waiting = waiting_chunks(chunks, items)

    assert [MISSING, PARTIAL, UNSETTLED] == [chunk.missing for chunk in waiting]
    assert [MISSING, PARTIAL, UNSETTLED, UNSETTLED] == chunks.select(missing())["missing"].to_list()


def test_an_answer_is_overdue_after_the_last_of_its_hours() -> None:
    chunk = WaitingChunk("r1", 1, MISSING, 5, NOON)
    moments = [NOON + timedelta(hours=48) + late * SECOND for late in (-1, 0, 1)]

    assert [False, False, True] == [ReportTerms(now, 48).overdue(chunk) for now in moments]


@pytest.mark.parametrize("more", [-1, 0, 2])
def test_a_summary_has_so_many_breaks_and_kinds_of_text_the_most_frequent_first(more: int) -> None:
    number = summary.MOST_BREAKS + more
    breaks = frozenset(break_of(LAST4_MISMATCH, 1, f"chunk {at}", "r1") for at in range(number))
    texts = [(f"s{at}", LUHN, 1, "") for at in range(SHAPES + max(0, more))]
    shapes = pl.DataFrame(texts, KINDS, orient="row")

    told, _ = facts(breaks=breaks, shapes=shapes)

    assert (min(number, summary.MOST_BREAKS), max(0, more)) == (
        len(told["breaks"]),
        told["more_breaks"],
    )
    assert [f"s{at}" for at in range(SHAPES)] == [shape["shape"] for shape in told["shapes"]]


def test_a_report_across_runs_is_of_the_days_from_the_first_to_the_last_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days = [DAY + timedelta(days=ahead) for ahead in (-1, 0, 1)]
    plans = [SimpleNamespace(run=f"{day}", as_of=day) for day in days]
    known = cast(Any, SimpleNamespace(committed=plans, closed={f"{day}": 0 for day in days}))
    adapters = cast(Any, SimpleNamespace(connections=1))
    monkeypatch.setattr(run_facts, "_closed", lambda plan, _: plan.as_of)

    told = [
        run_facts.facts_of(known, adapters, start, end)
        for start, end in ((None, None), (DAY, None), (None, DAY), (DAY, DAY))
    ]

    assert [days, days[1:], days[:2], [DAY]] == [[*each] for each in told]


def test_the_trend_of_a_run_has_the_others_of_its_day_and_no_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [RunId("bank", DAY + timedelta(days=ahead), "0" * 8) for ahead in (-1, 0, 1)]
    ids.insert(1, RunId("bank", DAY, "1" * 8))
    status = SimpleNamespace(status=SimpleNamespace(_asdict=dict))
    runs = cast(Any, SimpleNamespace(ids=ids, run=lambda _: status))
    monkeypatch.setattr(rebuild, "reported_status", lambda *_: status.status)
    run = cast(Any, SimpleNamespace(id="", keys=SimpleNamespace(run=ids[2])))

    trend = [night["as_of"] for night in rebuild._trend(run, runs, {})]

    assert [f"{DAY - timedelta(days=1)}", f"{DAY}", f"{DAY}"] == trend


def test_links_that_depart_are_looked_for_in_the_newest_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [
        SimpleNamespace(
            known=SimpleNamespace(is_done=False),
            entry=Entry(f"{at}", 1, NOON + timedelta(hours=at), ""),
        )
        for at in range(2 * link_forms.FILES)
    ]
    outcomes = pl.DataFrame({"position": [1], "trouble": [LINK_FORM]})

    def examine(_: object, file: Any) -> tuple[Any, Any]:
        rows = pl.DataFrame({"position": [1], "url": [file.entry.key]})
        return SimpleNamespace(rows=rows), SimpleNamespace(outcomes=outcomes)

    monkeypatch.setattr(link_forms, "result_files", lambda *_: files)
    monkeypatch.setattr(link_forms, "examine", examine)

    links = link_forms.departing_links(memory_bench().context)

    assert [file.entry.key for file in files[: link_forms.FILES - 1 : -1]] == links


# The worklist
# --------------------------------------------------------------------------------------------------


def about(issuer: str, note: str = "", name: str = "", run: str = "r1") -> Work:
    fields = (("name", name),) if name else ()
    return Work(NOON, kinds.TO_INGEST, issuer, NOON, run=run, fields=fields, note=note)


def test_a_line_of_several_issuers_says_the_first_note_of_each() -> None:
    line = Line((about("zebra", "z"), about("bank", "first"), about("bank", "second")))

    assert "bank: first zebra: z" == line._note
    assert "first" == Line(line.works[1:])._note


@pytest.mark.parametrize("more", [0, 1])
def test_a_line_names_so_many_and_says_how_many_more_there_are(more: int) -> None:
    number = kinds.WORK[kinds.TO_INGEST].named + more
    line = Line(tuple(about("bank", name=f"{at}.csv") for at in range(number)))

    assert bool(more) == (" more" in line._extent)
    assert " of 1 runs" not in line._extent


def test_missed_days_are_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    days = [DAY + timedelta(days=ahead) for ahead in range(3)]
    monkeypatch.setattr(undecided_work, "missed_days", lambda *_: days)

    told = undecided_work._days_without_extract(memory_bench().context, [], [])

    ends: list[tuple[date, date]] = [
        (dict(work.fields)["first"], dict(work.fields)["last"]) for work in told
    ]
    assert [(days[0], days[-1])] * 3 == ends


@pytest.mark.parametrize(
    ("sealed_to", "kind"),
    [("A", kinds.TO_UPLOAD), ("AB", kinds.TO_UPLOAD), ("ABC", kinds.OTHER_KEY)],
)
def test_a_chunk_goes_to_the_keys_that_are_pinned_and_no_other(sealed_to: str, kind: str) -> None:
    keys = [letter * 40 for letter in sealed_to]
    pinned = issuer(portal={"fingerprints": ["A" * 40, "B" * 40]})
    chunk = WaitingChunk("r1", 1, MISSING, 5, NOON, "waiting", tuple(keys))

    assert kind == worklist._chunk(pinned, chunk, ReportTerms(NOON, 48)).kind


# What is written anew
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fewer", "more_work"), [(-1, 0), (0, 0), (1, 1)])
def test_so_much_of_the_worklist_is_in_the_facts_and_how_much_more_there_is(
    monkeypatch: pytest.MonkeyPatch, fewer: int, more_work: int
) -> None:
    bench = memory_bench()
    bench.submit(bench.drop(1))
    later = replace(bench, now=lambda: NOON + timedelta(days=30)).context
    lines = len(across.reconcile_runs(later)["worklist"])
    monkeypatch.setattr(across, "LISTED", lines - fewer)

    listed = across.reconcile_runs(later)

    assert 0 < lines
    assert (lines - max(0, fewer), more_work) == (len(listed["worklist"]), listed["more_work"])


def test_a_row_without_a_reason_has_no_line() -> None:
    rows = pl.DataFrame(
        {"row": [1, 2], "reasons": [["a|x"], []], "found": [["9"], None]},
        {"row": pl.UInt32, "reasons": pl.List(pl.String), "found": pl.List(pl.String)},
    )

    assert [(1, "a", "x", "9")] == lists.by_reason(rows, "row").rows()


def test_a_break_of_no_day_is_open_since_the_first_chunk_was_committed() -> None:
    run = manifest(2)
    items = waiting(run)
    clocks = [NOW - timedelta(days=days) for days in (3, 9)]
    several = [item._replace(clock=clock) for item, clock in zip(items, clocks, strict=True)]
    broken = total(2, breaks=frozenset({break_of(LINK_FORM, 1, "elsewhere")}))

    [told] = summary.summarise(run, broken, issuer(), several, NOW, {})["breaks"]

    assert clocks[1].isoformat(timespec="seconds") == told["since"]
