import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.reports.charts import BAR_WIDTH, ENDS, TREND_HEIGHT, bar, trend

rows = st.fixed_dictionaries({kind: st.integers(0, 10**8) for kind in ENDS})


@given(rows)
def test_the_bar_shows_every_end_that_has_a_row_and_fills_its_width(counts: dict[str, int]) -> None:
    parts = bar(counts)

    assert [kind for kind in ENDS if counts[kind]] == [part["kind"] for part in parts]
    assert all(part["width"] > 2 for part in parts)
    if parts:
        assert pytest.approx(BAR_WIDTH) == sum(part["width"] for part in parts)
        assert pytest.approx(1.0) == sum(part["share"] for part in parts)


@given(st.lists(rows, max_size=20))
def test_no_column_of_the_trend_is_higher_than_the_drawing(nights: list[dict[str, int]]) -> None:
    runs = [
        {**night, "run": str(number), "as_of": "2026-11-20", "read": sum(night.values())}
        for number, night in enumerate(nights)
    ]

    columns = trend(runs, "0")

    assert min(len(nights), 14) == len(columns)
    assert all(part["top"] >= -0.001 for column in columns for part in column["parts"])
    assert all(
        sum(part["height"] for part in column["parts"]) <= TREND_HEIGHT + 0.001
        for column in columns
    )
