"""Alerts open once and close once, whatever order the looks come in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flows.operations.alert_history import Change, changes
from flows.operations.alert_kinds import Alert, alert_kinds

A, B = (Alert("out-of-balance", "bank", run, "out") for run in ("run-1", "run-2"))


def test_a_new_alert_opens_and_one_that_stands_is_not_opened_again() -> None:
    first = changes({}, [A])
    second = changes({A.place: Change(A, 1)}, [A])

    assert [(change.number, change.opened) for change in first] == [(1, True)]
    assert second == []


def test_an_alert_that_no_longer_holds_closes_and_may_open_again_later() -> None:
    closed = changes({A.place: Change(A, 1)}, [])
    again = changes({A.place: Change(A, 2)}, [A])

    assert [(change.number, change.opened) for change in closed + again] == [(2, False), (3, True)]


@given(st.lists(st.sets(st.sampled_from([A, B])), max_size=12))
def test_after_any_looks_exactly_what_holds_is_open_and_nothing_was_told_twice(
    looks: list[set[Alert]],
) -> None:
    standing: dict[str, Change] = {}
    told: list[tuple[str, int]] = []

    for holding in looks:
        for change in changes(standing, holding):
            standing[change.alert.place] = change
            told.append((change.alert.place, change.number))

    assert len(told) == len(set(told))
    assert {last.alert for last in standing.values() if last.opened} == (
        looks[-1] if looks else set()
    )


def test_every_kind_says_what_to_do() -> None:
    assert all(kind.title and kind.then.endswith(".") for kind in alert_kinds().values())
