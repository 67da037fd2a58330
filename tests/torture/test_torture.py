"""The small sizes of the torture; `make torture` is the large one."""

from collections import Counter
from pathlib import Path

import pytest

from tests.leaks.tracing import can_trace
from tests.stores import Place, places
from tests.torture.acts import ACTS, unharmed
from tests.torture.every_command import Stage, harm_every_command
from tests.torture.harm import torture
from tests.torture.night import Children, undisturbed
from tests.torture.nursery import forkserver
from tests.torture.power import lose_power
from tests.torture.whole_system import live_many


# its small size: whole systems below, and kills of single commands in test_signals
@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_doubled_whatever_ends_a_night(tmp_path: Path) -> None:
    tallies = torture(12, tmp_path, seed=1)

    assert [loss for tally in tallies for loss in tally.losses] == []


# one harm and one SIGKILL to each command in make test-all, some to a single one in make test
@pytest.mark.parametrize(
    ("harms", "names"),
    [(2, ["outbox hold"]), pytest.param(len(ACTS), [*ACTS], marks=pytest.mark.slow)],
)
def test_whatever_harms_a_command_its_repetition_ends_as_the_quiet_run_and_says_what_is_true(
    tmp_path: Path, harms: int, names: list[str]
) -> None:
    with forkserver() as born:
        stage = Stage(tmp_path, iter(()), on_disk=True, born=born)

        tally = harm_every_command(stage, "directory", harms, seed=3, names=names)

    killed = Counter(what for what in tally.done if what.endswith("SIGKILL"))
    assert ({f"{name} SIGKILL": 1 for name in names}, []) == (killed, tally.losses)


def test_every_command_that_changes_something_is_harmed_or_its_own_torture_is_named() -> None:
    assert set() == unharmed()


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="needs strace, and the right to trace")
def test_a_disk_that_only_says_that_it_has_synced_is_found_out(tmp_path: Path) -> None:
    quiet = Place("directory", str(tmp_path), "quiet/store")
    with forkserver() as born, undisturbed(quiet) as night:
        children = Children(born, tmp_path)
        stores = places("directory", str(tmp_path))

        tally = lose_power(night, children, stores, 4, synced=False)

    assert [loss for loss in tally.losses if "a commit that was reported" in loss]


@pytest.mark.parametrize(
    ("systems", "steps"), [(10, 4), pytest.param(24, 12, marks=pytest.mark.slow)]
)
def test_after_each_step_of_a_whole_system_in_any_order_the_books_balance(
    systems: int, steps: int
) -> None:
    tally = live_many(systems, steps)

    assert (systems, []) == (tally.nights, tally.losses)
