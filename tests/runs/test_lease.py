"""Of two runs of one extract one works and the other is told, whatever dies, races, comes late or
sets its clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.database.connection import Database
from flows.runs.claim import (
    ClaimedError,
    ClaimHolder,
    Lease,
    LeaseLostError,
    Subject,
    clean_up,
    end,
    holder_of,
)
from flows.runs.keys import TEMPORARY
from flows.runs.process import is_gone, process_name
from tests.leftovers import ended
from tests.night import local_bench

NOW = datetime(2026, 11, 20, 2, 0, tzinfo=UTC)
TTL = timedelta(minutes=10)
MINUTE = timedelta(minutes=1)
RUN = "first-bank-20261120-00000000"
CHUNKS = f"first-bank/runs/{RUN}/chunks/"


@pytest.fixture
def subject(database: Database) -> Subject:
    return Subject(database, "first-bank", RUN)


def test_a_second_holder_is_told_who_works_and_until_when(subject: Subject) -> None:
    Lease.take(subject, "night-1", NOW, TTL)

    with pytest.raises(
        ClaimedError, match=rf"night-1 has claimed {RUN} until 2026-11-20T02:10:00\+00:00"
    ) as told:
        Lease.take(subject, "night-2", NOW + MINUTE, TTL)

    assert 75 == told.value.exit_code


def test_a_second_process_of_the_same_name_is_told_too(subject: Subject) -> None:
    Lease.take(subject, "operator", NOW, TTL)

    with pytest.raises(ClaimedError):
        Lease.take(subject, "operator", NOW, TTL)


def test_a_claim_that_was_given_back_is_free_at_once(subject: Subject) -> None:
    Lease.take(subject, "night-1", NOW, TTL).give_back(NOW)

    lease = Lease.take(subject, "night-2", NOW, TTL)

    assert ("night-2", 2, NOW + TTL) == (lease.holder, lease.epoch, lease.until)


def test_a_dead_holder_s_claim_is_taken_over_when_it_has_run_out_and_not_before(
    subject: Subject,
) -> None:
    Lease.take(subject, "dead", NOW, TTL)

    with pytest.raises(ClaimedError):
        Lease.take(subject, "next", NOW + TTL - MINUTE, TTL)
    lease = Lease.take(subject, "next", NOW + TTL, TTL)

    assert "next" == lease.holder


MOMENT = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("after", "is_free"),
    [(-TTL, True), (MOMENT - TTL, False), (TTL - MOMENT, False), (TTL, True)],
)
def test_a_claim_counts_until_it_ends_and_as_long_before_it_began(
    subject: Subject, after: timedelta, is_free: bool
) -> None:
    Lease.take(subject, "night-1", NOW, TTL)

    holder = holder_of(subject, NOW + after)

    assert (None if is_free else ClaimHolder("night-1", NOW, NOW + TTL)) == holder
    assert holder == holder_of(subject, NOW + after)


def test_a_holder_has_a_claim_since_the_first_link_of_its_own_without_a_break(
    subject: Subject,
) -> None:
    first = Lease.take(subject, "night-1", NOW, TTL)
    first.renew(NOW + MINUTE)
    first.renew(NOW + 2 * MINUTE)
    renewed = holder_of(subject, NOW + 2 * MINUTE)
    first.give_back(NOW + 3 * MINUTE)
    given_back = holder_of(subject, NOW + 3 * MINUTE)
    again = Lease.take(subject, "night-1", NOW + 4 * MINUTE, TTL)
    again.renew(NOW + 5 * MINUTE)
    taken_again = holder_of(subject, NOW + 5 * MINUTE)
    end(subject, "operator", NOW + 6 * MINUTE)
    other = Lease.take(subject, "night-2", NOW + 7 * MINUTE, TTL)

    assert ClaimHolder("night-1", NOW, NOW + 2 * MINUTE + TTL) == renewed
    assert given_back is None
    assert ClaimHolder("night-1", NOW + 4 * MINUTE, NOW + 5 * MINUTE + TTL) == taken_again
    assert ClaimHolder("night-2", NOW + 7 * MINUTE, other.until) == (
        holder_of(subject, NOW + 7 * MINUTE)
    )
    with pytest.raises(LeaseLostError):
        again.renew(NOW + 8 * MINUTE)
    assert again.lost
    assert subject.last() is not None
    assert subject._replace(name="another").last() is None


def test_what_killed_writers_left_long_ago_is_removed_and_counted(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.store.create(f"{CHUNKS}000001.json", b"{}")
    place = tmp_path / "store" / CHUNKS
    for name, minutes in (("old", 16), ("older", 99_000), ("new", 14)):
        left = place / f"{TEMPORARY}{name}"
        left.write_bytes(b"")
        moment = (bench.now() - minutes * MINUTE).timestamp()
        os.utime(left, (moment, moment))

    removed = clean_up(bench.context.adapters, CHUNKS, "first-bank/runs/y/")

    assert 2 == removed
    assert [f"{TEMPORARY}new", "000001.json"] == sorted(path.name for path in place.iterdir())


def test_a_renewed_claim_holds_on(subject: Subject) -> None:
    lease = Lease.take(subject, "night-1", NOW, TTL)

    for minute in range(0, 60, 5):
        lease.renew(NOW + minute * MINUTE)

    with pytest.raises(ClaimedError):
        Lease.take(subject, "night-2", NOW + 60 * MINUTE, TTL)


def test_a_holder_that_slept_too_long_learns_that_it_lost_the_claim(subject: Subject) -> None:
    slow = Lease.take(subject, "slow", NOW, TTL)
    Lease.take(subject, "next", NOW + 2 * TTL, TTL)

    with pytest.raises(LeaseLostError):
        slow.renew(NOW + 2 * TTL)


def test_a_holder_that_slept_and_was_not_missed_keeps_the_claim(subject: Subject) -> None:
    slow = Lease.take(subject, "slow", NOW, TTL)

    slow.renew(NOW + 5 * TTL)

    assert NOW + 6 * TTL == slow.until


def test_giving_back_a_lost_claim_leaves_the_new_holder_s(subject: Subject) -> None:
    slow = Lease.take(subject, "slow", NOW, TTL)
    Lease.take(subject, "next", NOW + 2 * TTL, TTL)

    slow.give_back(NOW + 2 * TTL)

    with pytest.raises(ClaimedError, match="next"):
        Lease.take(subject, "third", NOW + 2 * TTL, TTL)


def test_a_clock_set_back_by_less_than_the_claim_s_time_still_honours_it(subject: Subject) -> None:
    Lease.take(subject, "night-1", NOW, TTL)

    with pytest.raises(ClaimedError):
        Lease.take(subject, "night-2", NOW - TTL / 2, TTL)


def test_a_clock_set_back_by_a_day_does_not_block_for_a_day(subject: Subject) -> None:
    Lease.take(subject, "dead", NOW + timedelta(days=1), TTL)

    lease = Lease.take(subject, "next", NOW, TTL)

    assert NOW + TTL == lease.until


def test_of_many_that_reach_for_a_dead_claim_at_once_exactly_one_gets_it(subject: Subject) -> None:
    Lease.take(subject, "dead", NOW, TTL)

    def reach(number: int) -> str:
        try:
            return Lease.take(subject, f"night-{number}", NOW + TTL, TTL).holder
        except ClaimedError:
            return ""

    with ThreadPoolExecutor(8) as pool:
        holders = list(pool.map(reach, range(8)))

    assert 1 == len([holder for holder in holders if holder])


HOLDER = """
import os, sys
from datetime import datetime, timedelta
from flows.database.connection import Database
from flows.runs.claim import Lease, Subject
subject = Subject(Database(sys.argv[1]), "first-bank", sys.argv[2])
since = datetime.fromisoformat(sys.argv[3])
Lease.take(subject, "killed", since, timedelta(hours=1))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not process_name(os.getpid()), reason="there is no /proc here")
def test_a_killed_process_s_claim_is_free_at_once_and_a_living_one_s_is_not(
    tmp_path: Path,
) -> None:
    subject = Subject(Database(tmp_path / "held.db"), "first-bank", RUN)
    command = [sys.executable, "-c", HOLDER, f"sqlite:///{tmp_path}/held.db", RUN, NOW.isoformat()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with ended(process):
        assert process.stdout is not None
        assert "held\n" == process.stdout.readline()
        with pytest.raises(ClaimedError, match="killed"):
            Lease.take(subject, "next", NOW + MINUTE, TTL)
        process.kill()
        # ended, and nobody has collected it yet
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        lease = Lease.take(subject, "next", NOW + MINUTE, TTL)

    assert ("next", 2) == (lease.holder, lease.epoch)
    assert not is_gone(process_name(os.getpid()))


@pytest.mark.parametrize(
    ("at", "word", "gone"),
    [(0, "another-boot", False), (1, "pid:[1]", False), (3, "1", True), (2, str(2**22 + 1), True)],
    ids=["another boot", "another container", "its number is used again", "no such number"],
)
@pytest.mark.skipif(not process_name(os.getpid()), reason="there is no /proc here")
def test_only_on_its_own_boot_and_in_its_own_namespace_a_process_can_be_proven_gone(
    at: int, word: str, *, gone: bool
) -> None:
    words = process_name(os.getpid()).split()

    words[at] = word

    assert gone == is_gone(" ".join(words))


Move = tuple[str, int, int]  # what, by whom, after how many minutes


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["take", "renew", "release"]), st.integers(0, 2), st.integers(0, 7)
        )
    )
)
def test_at_any_time_at_most_one_holder_has_a_claim_that_would_be_renewed(
    moves: list[Move],
) -> None:
    with closing(Database("sqlite://")) as database:
        subject = Subject(database, "first-bank", RUN)
        held, now = dict[int, Lease](), NOW
        owner: int | None = None  # the model: who has taken it last, and until when it holds
        until = NOW
        for what, who, minutes in moves:
            now += minutes * MINUTE
            free, mine = owner is None or now >= until, owner == who and who in held
            if what == "take":
                try:
                    held[who] = Lease.take(subject, f"night-{who}", now, TTL)
                    assert free
                    owner, until = who, now + TTL
                except ClaimedError:
                    assert not free
            elif who in held and what == "renew":
                try:
                    held[who].renew(now)
                    assert mine
                    until = now + TTL
                except LeaseLostError:
                    assert not mine
                    del held[who]
            elif who in held:
                held.pop(who).give_back(now)
                owner = None if mine else owner
