"""Limits and precedence of submitting: the limit and its neighbours, the first and the last, by the
functions that hold them and a few values in memory.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any, cast

import polars as pl
import pytest

from flows.extracts.mapping import ELIGIBLE
from flows.submissions import column_changes, eligibility, sample, schedule, sequence, shapes
from flows.submissions.dismissals import dismissal
from flows.submissions.splitter import Splitter
from schemas.manifest import SourceIdentity
from schemas.portal import CUID
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
