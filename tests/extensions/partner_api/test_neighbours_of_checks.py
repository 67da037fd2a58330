"""Limits and precedence of a check of links: the limit and its neighbours, the first and the last, in
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.errors import CardlinkError
from flows.extensions.partner_api import coverage, follow_links, link_check, run_links
from flows.extensions.partner_api.coverage import (
    LinksRefusedError,
    LinksUnansweredError,
    problem_of,
)
from flows.extensions.partner_api.due_links import (
    PLANNED,
    REQUESTS,
    Turn,
    due_links,
    has_no_messages,
    least_urgency,
)
from flows.extensions.partner_api.job_records import Placement
from flows.extensions.partner_api.link_check import KEEP_EVERY, Limit, LinkCheck
from flows.extensions.partner_api.link_placements import dtypes
from flows.extensions.partner_api.link_queries import (
    ANSWERED,
    MESSAGES,
    READ_ANYWAY_AFTER,
    QueryContext,
    Question,
    _LinkQueries,
    query_link,
)
from flows.extensions.partner_api.service import ServiceBusyError
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.unknowns import UNREADABLE
from schemas.result import LIFE
from tests.extensions.partner_api.test_look import Partner, status
from tests.memory import MemoryStore
from tests.memory_bench import memory_bench
from tests.night import DAY, NOON

SECOND = timedelta(seconds=1)
MOMENTS = (NOON - SECOND, NOON, NOON + SECOND)
SERVICE = "http://127.0.0.1:1"
NEIGHBOURS = tuple(DAY + timedelta(days=days) for days in (-1, 0, 1))


# Why a check learned nothing
# --------------------------------------------------------------------------------------------------


def facts_of(*sources: tuple[str, int, dict[str, int]]) -> dict[str, Any]:
    """Return the facts of a check with what each source answered and why it did not."""
    coverage = [
        {
            "source": source,
            "asked": answered + sum(causes.values()),
            "answered": answered,
            "unanswered": [{"cause": c, "questions": n} for c, n in causes.items()],
        }
        for source, answered, causes in sources
    ]
    looked = [{"asked": 4, "unanswered": 0 if answered else 4} for _, answered, _ in sources[:1]]
    return {"issuer": "bank", "stopped": "", "coverage": coverage, "looked": looked}


@pytest.mark.parametrize(
    ("refused", "silent", "expected"),
    [(3, 1, LinksRefusedError), (1, 3, LinksUnansweredError)],
)
def test_a_check_that_learned_nothing_fails_by_its_most_frequent_cause(
    refused: int, silent: int, expected: type[CardlinkError]
) -> None:
    causes = {"service.answer.refused.403": refused, "service.answer.unavailable.503": silent}

    assert expected is type(problem_of(facts_of(("link records", 0, causes)), "bank/transactions"))


def test_messages_that_nobody_answers_are_an_error_whatever_else_is_unanswered() -> None:
    refused = {"service.answer.refused.403": 1}
    links = ("link records", 4, dict[str, int]())

    errors = [
        problem_of(facts_of(links, *((name, 0, refused) for name in names)), "bank/transactions")
        for names in (["messages"], ["messages", "job records"])
    ]

    assert [LinksRefusedError] * 2 == list(map(type, errors))


def test_a_check_that_had_nothing_to_ask_is_no_error() -> None:
    nobody = {"stage": "linked", "cardholders": 0}
    placed = {"stage": "placed", "cardholders": 0}

    error = problem_of({**facts_of(), "funnel": {"stages": [nobody, placed]}}, "bank/transactions")

    assert error is None


# Which links a check queries
# --------------------------------------------------------------------------------------------------

A_RUN = "bank-20261120-00000000"
RUN = cast(Any, SimpleNamespace(id="run-1", committed=lambda: SimpleNamespace(as_of=DAY)))


def turn(**service: Any) -> Turn:
    return Turn(ServiceSettings(base_url=SERVICE, **service), NOON)


def due_of(asked: Turn, **columns: Sequence[Any]) -> list[int]:
    """Return which of these links are due, the most urgent first, by their places."""
    numbers = range(len(next(iter(columns.values()))))
    known = {"settled": False, "opened": False, "running": False, "missed": 0, "jobs": []}
    rows = [
        dict.fromkeys([*dtypes(), "expires_on"])
        | known
        | {"row": row}
        | {name: values[row] for name, values in columns.items()}
        for row in numbers
    ]
    links = pl.DataFrame(rows, {**dtypes(), "expires_on": pl.Date})
    return due_links(RUN, links, asked)["row"].to_list()


def test_a_link_is_queried_up_to_the_day_on_which_it_expires() -> None:
    due = due_of(turn(), expires_on=NEIGHBOURS)

    assert [1, 2] == sorted(due)


def test_a_link_that_comes_due_at_the_end_of_a_check_is_due_in_it() -> None:
    asked = turn(look_again_hours=6, look_minutes=30)
    begins = NOON - timedelta(hours=5.5)

    due = due_of(asked, seen=[begins + SECOND, begins, begins - SECOND])

    assert [1, 2] == sorted(due)


def test_a_link_is_never_queried_more_often_than_at_least_is_waited() -> None:
    asked = turn(look_again_hours=100, look_minutes=1)

    due = due_of(asked, seen=[NOON - timedelta(hours=hours) for hours in (98, 101)])

    assert [1] == due


def test_a_check_without_the_time_for_one_link_queries_one(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = pl.DataFrame({"urgency": [3.0, 2.0], "requests": [REQUESTS, REQUESTS]})
    monkeypatch.setattr("flows.extensions.partner_api.due_links._linked", lambda _: 2)
    monkeypatch.setattr(
        "flows.extensions.partner_api.due_links._due_of_run", lambda *_: iter([requests])
    )

    least = least_urgency([RUN], turn(requests_per_second=1, look_minutes=0.01))

    assert 3.0 == least


def test_messages_of_a_link_that_is_not_opened_are_read_again_after_a_week() -> None:
    links = pl.DataFrame(
        {"opened": False, "messages_seen": [m - READ_ANYWAY_AFTER for m in MOMENTS]}
    )

    unread = links.select(has_no_messages(NOON).alias("unread"))["unread"]

    assert [False, False, True] == unread.to_list()


# Checks
# --------------------------------------------------------------------------------------------------


def queried(
    monkeypatch: pytest.MonkeyPatch, limit: Limit, seconds: Sequence[float] = ()
) -> tuple[int, int]:
    """Return how many of nine links a check queries, one at a time with two questions each, and how
    often it stores what it learned; `seconds`: what the clock says at each look.
    """
    clock = iter(seconds)
    monkeypatch.setattr(link_check, "time", SimpleNamespace(monotonic=lambda: next(clock, 0.0)))
    answer = SimpleNamespace(placement=None, questions=Counter({"links": 1, "messages": 1}))
    stored = list[int]()
    part = SimpleNamespace(
        _settings=SimpleNamespace(requests_at_a_time=1),
        _check_row=lambda _: answer,
        _replace=lambda _: None,
        _write=lambda: stored.append(1),
        _stopped="",
    )
    links = pl.DataFrame({"row": range(9)})
    answers = [*link_check._PartCheck._query(cast(Any, part), links, 1, limit)]
    return len(answers), len(stored)


@pytest.mark.parametrize(("requests", "links"), [(0, 0), (3, 2), (4, 2), (5, 3)])
def test_a_check_begins_with_links_until_its_requests_are_sent(
    monkeypatch: pytest.MonkeyPatch, requests: int, links: int
) -> None:
    assert links == queried(monkeypatch, Limit(requests=requests))[0]


@pytest.mark.parametrize(("second", "links"), [(9, 9), (10, 1), (11, 1)])
def test_a_check_begins_with_links_until_its_moment(
    monkeypatch: pytest.MonkeyPatch, second: int, links: int
) -> None:
    assert links == queried(monkeypatch, Limit(until=10), [0, second, second])[0]


@pytest.mark.parametrize(("seconds", "times"), [(-1, 0), (0, 1), (1, 1)])
def test_what_a_check_learned_is_stored_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, seconds: int, times: int
) -> None:
    moment = KEEP_EVERY + seconds

    assert times == queried(monkeypatch, Limit(), [0, 0, moment, moment])[1]


@pytest.mark.parametrize(("silent", "is_stopped"), [(19, False), (20, True)])
def test_a_check_stops_after_twenty_links_in_a_row_without_a_response(
    monkeypatch: pytest.MonkeyPatch, silent: int, is_stopped: bool
) -> None:
    answers = [None, *[ServiceBusyError(place="", kind="HTTP 503")] * silent]
    failures = iter(answers)
    monkeypatch.setattr(
        link_check, "query_link", lambda *_: SimpleNamespace(failure=next(failures))
    )
    monkeypatch.setattr(link_check, "Placement", SimpleNamespace(from_record=lambda _: None))
    part = cast(Any, SimpleNamespace(_stopped="", _silent=7, _context=None))

    for _ in answers:
        link_check._PartCheck._check_row(part, {"url": ""})

    assert is_stopped == bool(part._stopped)


@pytest.mark.parametrize(("job_id", "cause"), [("7", ANSWERED), ("", UNREADABLE)])
def test_messages_are_answered_where_all_can_be_read(job_id: str, cause: str) -> None:
    partner = Partner(messages={"h-1": [status(job_id, "AUTH")]}, jobs={"7": {"id": 7}})
    service = ServiceSettings(base_url=SERVICE, follow_cardholders=True)
    context = QueryContext(
        partner, service, MemoryStore(), "bank/messages/", lambda: NOON, cast(Any, None)
    )
    placement = Placement(1, "a", "1", cardholder_id="h-1", opened=True)

    answer = query_link(context, placement, "https://links.example.com/l/1")

    assert 1 == answer.questions[Question(MESSAGES, cause)]


def current(**days: Any) -> bool:
    summary = {"rows": {"awaiting": 0}, "expires": [days.get("expires", "")]}
    manifest = SimpleNamespace(as_of=days.get("as_of", DAY - 2 * LIFE))
    run = SimpleNamespace(summary=summary, committed=lambda: manifest)
    return follow_links._is_current(cast(Any, run), DAY)


def test_a_run_is_followed_up_to_the_last_day_on_which_a_link_of_it_lives() -> None:
    assert [False, True, True] == [current(expires=day.isoformat()) for day in NEIGHBOURS]
    assert [False, True, True] == [current(as_of=day - LIFE) for day in NEIGHBOURS]


def test_newer_runs_are_checked_first_each_within_what_is_left_until_one_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = list[tuple[str, float]]()

    def check_links(*arguments: Any, limit: Limit, **_: Any) -> Any:
        checked.append((arguments[3].id, limit.requests))
        return SimpleNamespace(questions=Counter(links=4), stopped="x" if len(checked) > 1 else "")

    monkeypatch.setattr(follow_links, "check_links", check_links)
    monkeypatch.setattr(follow_links, "least_urgency", lambda *_: 0.0)
    bench = memory_bench(
        service={"base_url": SERVICE, "look_minutes": 1, "requests_per_second": 0.5}
    )
    runs = [cast(Any, SimpleNamespace(id=name)) for name in ("old", "new", "newest")]

    checks = [*follow_links._check_runs(bench.context, cast(Any, object()), runs, recheck=False)]

    planned = 30 * PLANNED
    assert [("newest", planned), ("new", planned - 4)] == checked
    assert ["", "x"] == [check.stopped for check in checks]


def test_a_check_goes_from_part_to_part_within_what_is_left_until_one_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = list[float]()

    class Part:
        def __init__(self, *_: Any) -> None: ...

        def count_stored(self, **_: Any) -> None: ...

        def check(self, _: Any, limit: Limit) -> LinkCheck:
            limits.append(limit.requests)
            stopped = "x" if len(limits) > 1 else ""
            return LinkCheck(A_RUN, 5, 2, 0, 1, Counter({Question("links", ""): 4}), stopped)

    bench = memory_bench(service={"base_url": SERVICE})
    settings = bench.issuer.table(ServiceSettings)
    assert settings is not None
    monkeypatch.setattr(link_check, "_PartCheck", Part)
    for name in ("mark_check", "read_with", "LinkIds"):
        monkeypatch.setattr(link_check, name, lambda *_, **__: None)
    manifest = SimpleNamespace(ledger=["1", "2", "3"])
    run = cast(Any, SimpleNamespace(id=A_RUN, issuer="bank", committed=lambda: manifest))

    check = link_check.check_links(
        bench.context, cast(Any, object()), settings, run, limit=Limit(requests=10)
    )

    assert [10, 6] == limits
    assert ("x", 4, 8) == (check.stopped, check.asked, check.questions.total())


def test_a_link_of_the_newest_run_that_has_any_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"oldest": [1], "old": [2, 3], "new": []}
    monkeypatch.setattr(run_links, "_links_of", lambda run, *_: iter(links[run]))

    newest = run_links.newest_link(cast(Any, [*links]), ServiceSettings(base_url=SERVICE))

    assert 2 == cast(Any, newest)


def test_messages_of_a_link_that_is_not_opened_are_skipped_for_a_week() -> None:
    context = SimpleNamespace(now=lambda: NOON)
    skipped = [
        _LinkQueries._is_unopened(
            cast(
                Any,
                SimpleNamespace(
                    _context=context,
                    _placement=Placement(
                        1, "a", "1", opened=False, messages_seen=moment - READ_ANYWAY_AFTER
                    ),
                ),
            )
        )
        for moment in MOMENTS
    ]

    assert [False, False, True] == skipped


def test_words_that_nobody_knows_come_the_most_frequent_first_and_of_equal_ones_by_name() -> None:
    jobs = pl.DataFrame({"status": [*"cbbad"]})

    counts = [*coverage._counted(jobs, "status")]

    assert [("b", 2), ("a", 1), ("c", 1), ("d", 1)] == [(c["word"], c["jobs"]) for c in counts]
