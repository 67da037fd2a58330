from __future__ import annotations

from flows.submissions.build import describe_pace


def test_a_pass_tells_its_rows_its_speed_and_the_time_left() -> None:
    told = describe_pace(400_000, 0.25, 4.0)

    assert "400,000 rows, 100,000 a second, 0:00:12 left" == told


def test_before_anything_is_read_nothing_is_foretold() -> None:
    told = describe_pace(0, 0.0, 0.0)

    assert "0 rows" == told


def test_in_no_time_and_of_nothing_read_no_time_is_foretold() -> None:
    assert ("5 rows", "5 rows, 5 a second") == (
        describe_pace(5, 0.5, 0.0),
        describe_pace(5, 0.0, 1.0),
    )


def test_at_the_end_no_time_is_left() -> None:
    told = describe_pace(10, 1.0, 2.0)

    assert "10 rows, 5 a second, 0:00:00 left" == told
