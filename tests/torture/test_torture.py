"""The small size of the torture; `make torture` is the large one."""

from pathlib import Path

import pytest

from tests.torture.__main__ import torture
from tests.torture.whole_system import live_many


@pytest.mark.timeout(900)  # half a minute where nothing else runs
def test_nothing_is_lost_and_nothing_is_doubled_whatever_ends_a_night(tmp_path: Path) -> None:
    tallies = list(torture(6, tmp_path, seed=1))

    assert [loss for tally in tallies for loss in tally.losses] == []


def test_after_each_step_of_a_whole_system_in_any_order_the_books_balance() -> None:
    tally = live_many(12)

    assert (12, []) == (tally.nights, tally.losses)
