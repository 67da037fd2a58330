"""The small size of the torture; `make torture` is the large one."""

from pathlib import Path

from tests.torture.__main__ import torture


def test_nothing_is_lost_and_nothing_is_doubled_whatever_ends_a_night(tmp_path: Path) -> None:
    tallies = list(torture(12, tmp_path, seed=1))

    assert [loss for tally in tallies for loss in tally.losses] == []
