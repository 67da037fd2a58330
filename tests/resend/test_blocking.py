"""A row is blocked by what has or awaits a link for one of its issues, and by nothing else."""

from __future__ import annotations

from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.book.attempts import ATTEMPT, in_order
from flows.book.fold import fold
from flows.resend.blocking import (
    ISSUES,
    NEWER,
    REISSUED,
    STANDING,
    active_attempts,
    blocking,
    identified,
    later_rows,
    reissued,
    superseded,
    with_twins,
)
from flows.runs.cards import holder
from flows.runs.frames import shaped
from flows.submissions.prior_state import prior_state, resend_policy
from schemas.portal import CUID
from schemas.reasons import NOT_WANTED, SEEN
from tests.builders import share_of
from tests.night import issuer

TODAY = date(2026, 11, 20)


class Issue(NamedTuple):
    """An issue of a card, and what its name and address are."""

    cuid: str
    last_4: str | None
    expiration: str | None
    reissue: int | None = None
    name: int | None = 1
    address: int | None = 1


class Tried(NamedTuple):
    """An attempt for an issue: its state, and the days until its link ends."""

    issue: Issue
    state: str
    days: int


OLD = Issue("a", "1111", "2912")
NEW = OLD._replace(expiration="3112")


def rows(*issues: Issue) -> pl.DataFrame:
    """Return rows of a source, with IDENTITY."""
    names = ["cuid", "last_4", "expiration", "reissue_check", "name_check", "address_check"]
    return pl.DataFrame(issues, {name: ATTEMPT[name] for name in names}, orient="row")


def attempts(*tried: Tried) -> pl.DataFrame:
    """Return attempts as a book has them, each of a run of its own."""
    frame = rows(*(attempt.issue for attempt in tried)).with_columns(
        holder=holder(rows(*(attempt.issue for attempt in tried))),
        state=pl.Series([attempt.state for attempt in tried], dtype=pl.String),
        decided=pl.lit(value=False),
        expires_on=pl.Series(
            [
                TODAY + timedelta(attempt.days) if attempt.state == "linked" else None
                for attempt in tried
            ],
            dtype=pl.Date,
        ),
        run=pl.Series([f"r{number}" for number in range(len(tried))], dtype=pl.String),
        turn=pl.Series(range(len(tried)), dtype=pl.Int32),
        twin=pl.lit(0),
    )
    return in_order([shaped(frame, ATTEMPT)])


def is_blocked(issues: list[Issue], tried: list[Tried]) -> bool:
    """Return whether a row that is of each of these issues must stay."""
    known = rows(*issues)
    of_row = identified(pl.Series([1] * len(issues), dtype=pl.UInt32), known)
    standing = active_attempts(attempts(*tried), TODAY)
    return blocking(of_row, standing, frozenset()).height == 1


@pytest.mark.parametrize(
    ("issues", "state", "days", "blocked"),
    [
        ([OLD], "linked", 0, True),
        ([OLD], "linked", -1, False),
        ([OLD], "awaiting", 0, True),
        ([OLD], "error", 0, False),
        ([NEW], "linked", 9, False),
        ([NEW], "awaiting", 0, False),
        ([NEW, OLD], "linked", 9, True),
        ([OLD._replace(reissue=7)], "linked", 9, True),
        ([OLD._replace(last_4="2222")], "linked", 9, False),
        ([OLD._replace(last_4=None)], "linked", 9, False),
        ([OLD._replace(expiration=None)], "linked", 9, True),
        ([OLD._replace(expiration=None), NEW], "linked", 9, False),
        ([OLD._replace(expiration=None), OLD], "linked", 9, True),
    ],
)
def test_a_row_is_compared_as_it_was_and_as_it_would_be(
    issues: list[Issue], state: str, days: int, blocked: bool
) -> None:
    assert blocked == is_blocked(issues, [Tried(OLD, state, days)])


def test_two_reissues_are_told_apart_and_an_unknown_one_equals_each() -> None:
    tried = [Tried(OLD._replace(reissue=7), "linked", 9)]

    assert [False, True, True] == [
        is_blocked([OLD._replace(reissue=reissue)], tried) for reissue in (8, 7, None)
    ]


def test_cards_that_look_the_same_are_told_apart_only_among_runs_that_repeat_the_same_rows() -> (
    None
):
    sent = attempts(Tried(OLD, "linked", 9)).with_columns(row=pl.lit(1, pl.UInt32))
    second = sent.with_columns(row=pl.lit(2, pl.UInt32), twin=pl.lit(1, pl.UInt8))
    refused = second.with_columns(state=pl.lit("error", ATTEMPT["state"]))
    book = pl.concat([sent, refused])
    of_row = with_twins(identified(pl.Series([2], dtype=pl.UInt32), rows(OLD)), book, "r0")

    in_family, in_other = (
        blocking(of_row, active_attempts(book, TODAY, members), frozenset()).height
        for members in (["r0"], [])
    )

    assert (0, 1) == (in_family, in_other)


def test_the_last_attempt_blocks_and_one_of_an_own_override_before_all() -> None:
    of_row = identified(pl.Series([1], dtype=pl.UInt32), rows(OLD))
    tried = attempts(Tried(OLD, "awaiting", 0), Tried(OLD, "linked", 9))

    blocked = [
        blocking(of_row, active_attempts(tried, TODAY), frozenset(first)).row(0)[1:]
        for first in ([], ["r0"])
    ]

    assert [("linked", "r1"), ("awaiting", "r0")] == blocked
    assert list(STANDING) == active_attempts(tried, TODAY).columns
    assert list(ISSUES) == of_row.columns


def test_only_an_issue_that_expires_before_one_sent_is_superseded_and_the_last_of_those_is_named() -> (
    None
):
    issues = [OLD._replace(expiration=expiration) for expiration in ("2911", "2912", "3001")]
    of_rows = identified(pl.Series([1, 2, 3], dtype=pl.UInt32), rows(*issues))
    tried = [Tried(OLD, "linked", 9), Tried(OLD, "awaiting", 0), Tried(OLD, "error", 0)]

    blocked = superseded(of_rows, active_attempts(attempts(*tried), TODAY))

    assert [(1, NEWER, "r1")] == blocked.rows()


def runs(*selected: str) -> list[Any]:
    """Return runs as they were committed: r0 of an extract, others of these, or of extracts."""
    names = ["r0", *(f"r{number}" for number, _ in enumerate(selected, 1))]
    selections = [None, *(SimpleNamespace(of=run) if run else None for run in selected)]
    return [
        SimpleNamespace(run=run, selection=selection, as_of=TODAY)
        for run, selection in zip(names, selections, strict=True)
    ]


@pytest.mark.parametrize(
    ("state", "reason", "issue", "days", "is_replaced"),
    [
        ("error", "card.pan.other", NEW, 0, True),
        ("cancelled", None, NEW, 0, True),
        ("rejected", NOT_WANTED, NEW, 0, True),
        ("rejected", "address.city.missing", NEW, 0, False),
        ("error", None, NEW, 1, True),
        ("error", None, NEW, -1, False),
        ("error", None, OLD, 0, False),
        ("error", None, OLD._replace(expiration="2911"), 0, False),
        ("error", None, OLD._replace(reissue=8), 0, True),
        ("error", None, OLD._replace(reissue=7), 0, False),
    ],
)
def test_a_row_is_replaced_by_a_right_one_of_a_later_extract_with_a_newer_issue(
    state: str, reason: str | None, issue: Issue, days: int, is_replaced: bool
) -> None:
    of_row = identified(pl.Series([1], dtype=pl.UInt32), rows(OLD._replace(reissue=7)))
    later = attempts(Tried(issue, state, 0)).with_columns(
        run=pl.lit("r2"),
        turn=pl.lit(3, pl.Int32),
        content=pl.lit(3, pl.Int32),
        as_of=pl.lit(TODAY + timedelta(days)),
        reason=pl.lit(reason, pl.String),
    )

    known = later_rows(later, "r1", runs("r0", ""), {})

    assert ([(1, REISSUED, "r2")] if is_replaced else []) == reissued(of_row, known).rows()


def test_a_row_of_the_same_extract_that_is_sent_again_replaces_none() -> None:
    repeated = attempts(Tried(NEW, "error", 0)).with_columns(
        run=pl.lit("r1"),
        turn=pl.lit(2, pl.Int32),
        content=pl.lit(1, pl.Int32),
        as_of=pl.lit(TODAY + timedelta(1)),
    )

    assert later_rows(repeated, "r0", runs("r0"), {1: TODAY}).is_empty()
    assert later_rows(repeated, "r9", runs("r0"), {1: TODAY}).is_empty()


issues_of_cards = st.builds(
    Issue,
    st.sampled_from(["a", "b", "cl-0123456789ab-7"]),
    st.sampled_from(["1111", "2222"]),
    st.sampled_from(["2912", "3112"]),
    st.sampled_from([None, 7, 8]),
    st.integers(1, 2),
    st.integers(1, 2),
)
histories = st.lists(
    st.builds(
        Tried,
        issues_of_cards,
        st.sampled_from(["linked", "awaiting", "error"]),
        st.integers(-3, 9),
    ),
    max_size=10,
)


@pytest.mark.slow
@settings(max_examples=share_of(2))
@given(histories, issues_of_cards)
def test_the_guard_and_resubmission_say_the_same_of_the_same_row(
    tried: list[Tried], issue: Issue
) -> None:
    known = prior_state(fold(attempts(*tried)), TODAY, TODAY)
    row = rows(issue).rename({"cuid": CUID})

    guard = known.suppressed(row, TODAY, resend_policy(issuer(), TODAY)).item()

    assert is_blocked([issue], tried) == (guard in SEEN)
