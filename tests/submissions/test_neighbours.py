"""Limits and precedence of submitting: the limit and its neighbours, the first and the last, by the
functions that hold them and a few values in memory.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.extensions.init import asking
from flows.extensions.init.guess import Column
from flows.extracts.grammar import RECORD
from flows.extracts.mapping import ELIGIBLE
from flows.extracts.origins import Origin
from flows.submissions import (
    column_changes,
    drift,
    eligibility,
    extract_states,
    publisher,
    rejected_cells,
    repairs,
    rows,
    sample,
    schedule,
    sequence,
    shapes,
    superseded,
)
from flows.submissions.dismissals import dismissal
from flows.submissions.splitter import Splitter
from schemas.manifest import SourceColumn, SourceIdentity
from schemas.portal import CUID, MONTH, PAN, YEAR
from schemas.records import Dismissal
from schemas.settings import Schedule
from tests.memory_bench import memory_bench
from tests.night import DAY, NOON, issuer

SOURCE = SourceIdentity(key="bank/extracts/x.csv", version="", size=1, sha256="")


@pytest.mark.parametrize(("number", "is_used"), [(50, True), (40, True), (30, True), (20, False)])
def test_a_number_is_looked_for_back_to_the_first_run_that_is_older_than_the_look_back(
    monkeypatch: pytest.MonkeyPatch, number: int, is_used: bool
) -> None:
    limit = DAY - sequence.LOOK_BACK
    days = {60: DAY, 50: limit, 40: limit, 30: limit - timedelta(1), 20: limit - timedelta(2)}
    runs = [sequence._NumberedRun(used, f"r{used}", day) for used, day in days.items()]
    monkeypatch.setattr(sequence, "_numbered_runs", lambda *_: iter(runs))

    def look() -> bool:
        try:
            gate = sequence.out_of_sequence(memory_bench().context, SOURCE, DAY, number, ())
        except sequence.SequenceError:
            return True
        assert isinstance(gate, sequence.SequenceGapError)
        return False

    assert is_used == look()


def test_holidays_that_are_over_ended_on_the_last_of_them() -> None:
    holidays = {date(2025, 12, day): "closed" for day in (24, 26, 25)}

    told = schedule._holidays(Schedule.model_construct(holidays=(*holidays,), days=()), DAY)

    assert "which ended on 2025-12-26" in told


def test_of_all_decisions_about_an_extract_the_last_counts() -> None:
    chain = [
        Dismissal(at=NOON, by="anna", reason=f"{at}", what=cast(Any, what), key="x", size=1)
        for at, what in enumerate(["dismissed", "taken back", "dismissed"])
    ]
    context = memory_bench().context

    told = [dismissal(context, "x", chain[:records]) for records in range(4)]

    assert [None, "0", None, "2"] == [record and record.reason for record in told]


def test_of_the_reasons_why_a_row_is_not_eligible_the_first_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasons = {"a": pl.lit(value=False), "b": pl.lit(value=True), "c": pl.lit(value=True)}
    monkeypatch.setattr(eligibility, "_conditions", lambda *_: reasons)
    rows = pl.DataFrame({ELIGIBLE: [True]})

    assert ["b"] == eligibility.ineligible(rows, issuer(), DAY).to_list()


def test_a_shape_is_shown_whole_up_to_its_longest() -> None:
    shape = "A9" * shapes._LONGEST

    shown = [shapes._counted(shape[: shapes._LONGEST + more]) for more in (-1, 0, 1)]

    kept = shape[: shapes._LONGEST]
    assert [kept[:-1], kept, f"{kept}..."] == shown


def test_of_the_values_of_a_column_the_most_frequent_are_kept_and_of_equal_ones_the_first() -> None:
    values = [f"{number:03d}" for number in range(2 * sample.KEPT)]
    cells = pl.DataFrame({"column": "c", "cell": values, "n": 1}).with_columns(
        n=pl.when(pl.col("cell") == values[-1]).then(2).otherwise("n")
    )

    kept = sample._counts(cells, pl.col("cell"))["c"]

    assert [values[-1], *values[: sample.KEPT - 1]] == [*kept]


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_names_are_listed_and_how_many_more_there_are(more: int) -> None:
    names = [f"n{number}" for number in range(column_changes.SHOWN + more)]

    assert bool(more) == column_changes._listed(names).endswith("and 1 more")
    assert bool(more) == ("more" in column_changes._listed(names))


@pytest.mark.parametrize(
    ("cuids", "chunks"),
    [
        ("aab", []),  # another row may fill the chunk
        ("aabc", ["abc"]),  # it is full
        ("aaaa", []),
        ("aaaab", ["ab"]),  # as many rows have been looked at as is worth it
    ],
)
def test_a_chunk_goes_out_once_it_is_full_or_enough_rows_were_looked_at(
    cuids: str, chunks: list[str]
) -> None:
    splitter = Splitter(limit=3, patience=5)

    added = splitter.add(pl.DataFrame({CUID: list(cuids)}))

    assert chunks == ["".join(chunk[CUID]) for chunk in added]


# What decides, and what is told
# --------------------------------------------------------------------------------------------------


def test_a_card_is_the_same_issue_however_its_year_is_written_and_no_card_is_none() -> None:
    rows = pl.DataFrame(
        {
            PAN: ["4111 1111", "41111111", "", "-"],
            CUID: "a",
            YEAR: ["2027", "27", "27", "27"],
            MONTH: ["3", "03", "03", "03"],
            "row": [1, 2, 3, 4],
            "decision": 1,
        }
    )

    issues = superseded._issues(rows)

    assert [1, 2] == issues["row"].to_list()
    assert [1, 1] == [issues[name].n_unique() for name in ("card", "ends")]


@pytest.mark.parametrize(("share", "departures"), [(0.5, 0), (0.51, 1)])
def test_a_night_departs_by_more_than_its_limit(share: float, departures: int) -> None:
    usual = [drift._Measure("c", drift.FILLED, 10**9, {0: 0.0})] * drift.FEWEST
    measure = drift._Measure("c", drift.FILLED, 10**9, {0: share})

    assert departures == len([*drift._departures_of(measure, usual, 0.5)])


@pytest.mark.parametrize(("rows", "shown"), [(1, 1), (asking.ROWS, 3), (asking.ROWS + 1, 3)])
def test_the_first_rows_of_a_sample_are_shown(rows: int, shown: int) -> None:
    columns = [Column("at = [1, 2]", "", ("a",) * rows), Column("at = [3, 4]", "", ("b",) * rows)]

    assert ["a b"] * shown == asking._first_rows(columns)[RECORD].to_list()


def test_a_run_that_is_shown_is_the_last_of_its_extract() -> None:
    runs = [SimpleNamespace(run=name) for name in ("r1", "r2")]

    assert ["r2", "r1", ""] == [
        extract_states._last_id(cast(Any, some)) for some in (runs, runs[:1], [])
    ]


@pytest.mark.parametrize(("of_year", "told"), [("missing", ["year.missing"]), ("passed", None)])
def test_a_month_that_is_wrong_as_its_year_is_told_once(
    of_year: str, told: list[str] | None
) -> None:
    codes = [f"year.{of_year}", "month.missing"]
    verdicts = pl.DataFrame(
        {"row": 1, "column": [YEAR, MONTH], "code": codes, "severity": "reject"}
    )
    origin = Origin(SourceColumn(names=("EXPIRY",)), pl.lit(""))

    kept = rejected_cells.once_for_a_date(verdicts, {YEAR: origin, MONTH: origin})

    assert (told or codes) == kept["code"].to_list()


def test_nothing_is_repaired_where_nothing_has_a_sign_of_it() -> None:
    evidence = SimpleNamespace(
        _signs=Counter[str](), possible=dict.fromkeys(repairs.NEEDS, True), _name="x.csv"
    )

    assert frozenset() == repairs.Evidence.decide(cast(Any, evidence))


def test_what_is_lost_is_decided_by_the_last_block() -> None:
    nothing = pl.DataFrame()
    blocks = [
        rows.Normalised(nothing, nothing, nothing, rejected_cells.NO_TEXTS, frozenset(lost))
        for lost in (["zip_zeros"], [])
    ]

    assert frozenset() == rows._joined(blocks).lost


def test_reasons_are_counted_by_their_codes() -> None:
    route = SimpleNamespace(_reasons={}, test_cards=0, other_cards=0)
    good = pl.DataFrame({"line": [1, 2], "reasons": [["a|x.y"], ["b|x.y"]], "test": False})

    rows.Route._count(cast(Any, route), good, good.select("line", "reasons").clear())

    assert [("x.y", 2)] == [(name, each.rows) for name, each in route._reasons.items()]


def test_of_the_shapes_of_a_column_the_three_most_frequent_are_told() -> None:
    looked_at = sample.Sample()
    looked_at._kept = [pl.DataFrame({"A": ["1", "1", "AB", "A1", "1A", "AAA", None]})]

    assert (6 / 7, ["9", "9A", "A9"]) == looked_at.look("A")


@pytest.mark.parametrize(("more", "kept"), [(-1, 3), (0, 4), (1, 0)])
def test_a_sample_is_thinned_once_it_has_more_rows_than_are_kept(
    monkeypatch: pytest.MonkeyPatch, more: int, kept: int
) -> None:
    monkeypatch.setattr(sample, "SAMPLED", 4)
    numbers = pl.DataFrame({"row": pl.Series(range(1, 5 + more), dtype=pl.UInt64)})

    thinned = sample.Sample()._thinned(numbers)

    assert (kept == 0) == (thinned.height < numbers.height)


def test_a_publisher_gives_up_after_so_many_chunks_and_one_group_more_waits_than_is_sealed() -> (
    None
):
    given_up = [
        publisher.Publisher.has_given_up.fget(SimpleNamespace(_troubled=publisher.ENOUGH + more))  # type: ignore[attr-defined]
        for more in (-1, 0, 1)
    ]
    waited = list[int]()

    for under_way in range(publisher.SEALERS + 2):
        works = SimpleNamespace(
            _group=["chunk"],
            _under_way=[None] * under_way,
            _collect=lambda under_way=under_way: waited.append(under_way),
            _sealers=SimpleNamespace(submit=lambda *_: None),
            _publish=None,
        )
        publisher.Publisher.send(cast(Any, works))

    assert [False, True, True] == given_up
    assert [publisher.SEALERS + 1] == waited
