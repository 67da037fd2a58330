"""The clock of the lives."""

from __future__ import annotations

import pytest

from tests.lives.place import Clock


@pytest.mark.parametrize("hours", [0, 7.25, 9])
def test_a_morning_is_later_than_what_its_night_did_however_long_that_took(hours: float) -> None:
    clock = Clock()
    clock.begin_night(9)
    clock.wait(hours)
    last = clock.now()

    clock.begin_morning()

    assert last < clock.now()
    assert clock.hour >= 9
