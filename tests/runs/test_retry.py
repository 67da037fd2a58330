"""Trying again is bounded in time and number, and its waits are spread."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.runs.retry import Retry


class PassingError(Exception):
    """Worth another try."""


@dataclass
class World:
    """A clock that only sleeping moves, and an act that fails a number of times."""

    failures: int
    now: float = 0.0
    slept: list[float] = field(default_factory=list)
    tried: int = 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)

    def act(self) -> str:
        self.tried += 1
        if self.tried <= self.failures:
            raise PassingError(self.tried)
        return "done"

    def retry(self, *, random: float = 1.0, budget: float = 60.0, attempts: int = 40) -> Retry:
        return Retry(lambda: self.now, self.sleep, lambda: random, budget, attempts)


def test_what_works_the_first_time_is_not_repeated() -> None:
    world = World(failures=0)

    outcome = world.retry()(world.act, PassingError)

    assert ("done", 1, []) == (outcome, world.tried, world.slept)


def test_waits_double_up_to_the_cap() -> None:
    world = World(failures=8)

    world.retry()(world.act, PassingError)

    assert [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0] == world.slept


def test_chance_shortens_a_wait_to_anything_down_to_nothing() -> None:
    world = World(failures=3)

    world.retry(random=0.5)(world.act, PassingError)

    assert [0.05, 0.1, 0.2] == world.slept


def test_the_last_error_is_raised_where_the_budget_ends() -> None:
    world = World(failures=99)

    with pytest.raises(PassingError) as last:
        world.retry(budget=10)(world.act, PassingError)

    assert world.now <= 10
    assert (world.tried,) == last.value.args


def test_a_clock_that_stands_still_does_not_make_it_endless() -> None:
    world = World(failures=99)

    with pytest.raises(PassingError):
        world.retry(random=0.0, attempts=7)(world.act, PassingError)

    assert 7 == world.tried


def test_another_error_is_raised_at_once() -> None:
    world = World(failures=1)

    with pytest.raises(PassingError):
        world.retry()(world.act, KeyError)

    assert 1 == world.tried


@given(st.integers(0, 60), st.floats(0, 1), st.floats(0, 100), st.integers(1, 50))
def test_it_ends_done_or_with_the_last_error_and_never_beyond_its_bounds(
    failures: int, random: float, budget: float, attempts: int
) -> None:
    world = World(failures)

    try:
        done = (
            world.retry(random=random, budget=budget, attempts=attempts)(world.act, PassingError)
            == "done"
        )
    except PassingError:
        done = False

    assert done == (world.tried > failures)
    assert world.tried <= attempts
    assert world.now <= budget
