"""Limits and precedence of a check of links: the limit and its neighbours, the first and the last, in
memory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.errors import CardlinkError
from flows.extensions.partner_api import follow_links, link_check, run_links
from flows.extensions.partner_api.causes import UNREADABLE
from flows.extensions.partner_api.job_records import Job, Placement
from flows.extensions.partner_api.link_check import PLANNED, REQUESTS, Turn, _Check, due_links
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
from flows.extensions.partner_api.words import (
    LinksRefusedError,
    LinksUnansweredError,
    problem_of,
)
from schemas.result import LIFE
from tests.extensions.partner_api.test_look import Partner, status
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
    [answered] = [answered for _, answered, _ in sources[:1]] or [0]
    asked = 4 if sources else 0
    looked = {"asked": asked, "unanswered": 0 if answered else asked}
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

RUN = cast(Any, SimpleNamespace(id="run-1", committed=lambda: SimpleNamespace(as_of=DAY)))


def turn(**service: Any) -> Turn:
    return Turn(ServiceSettings(base_url=SERVICE, **service), NOON)


def due_of(asked: Turn, **columns: Sequence[Any]) -> list[int]:
    """Return which of these links are due, the most urgent first, by their places."""
    numbers = range(len(next(iter(columns.values()))))
    known = {"run": "run-1", "opened": False, "running": False, "open_jobs": 0}
    rows = [
        dict.fromkeys(link_check._DUE)
        | known
        | {"row": row}
        | {name: values[row] for name, values in columns.items()}
        for row in numbers
    ]
    links = pl.DataFrame(rows, link_check._DUE)
    return due_links(RUN, links, asked)["row"].to_list()


def test_a_link_is_queried_up_to_the_day_on_which_it_expires() -> None:
    due = due_of(turn(), expires_on=NEIGHBOURS)

    assert [1, 2] == sorted(due)


def test_a_link_that_comes_due_at_the_end_of_a_check_is_due_in_it() -> None:
    asked = turn(look_minutes=30)
    begins = NOON - timedelta(hours=5.5)

    due = due_of(asked, seen_at=[begins + SECOND, begins, begins - SECOND])

    assert [1, 2] == sorted(due)


def test_a_link_is_never_queried_more_often_than_at_least_is_waited() -> None:
    moved = NOON - timedelta(hours=1)

    waited = [NOON - timedelta(hours=hours) for hours in (5, 7)]
    due = due_of(turn(look_minutes=1), seen_at=waited, moved_at=[moved, moved])

    assert [1] == due


def test_a_check_without_the_time_for_one_link_queries_one() -> None:
    due = pl.DataFrame({"urgency": [2.0, 3.0], "requests": [REQUESTS, REQUESTS]})

    chosen = turn(requests_per_second=1, look_minutes=0.01).chosen(due)

    assert [3.0] == chosen["urgency"].to_list()


def test_messages_of_a_link_that_is_not_opened_take_a_request_again_after_a_week() -> None:
    moments = [moment - READ_ANYWAY_AFTER for moment in MOMENTS]
    links = pl.DataFrame(
        {"cardholder_id": "h", "opened": False, "open_jobs": 0, "messages_at": moments}
    )

    requests = links.select(link_check._requests(turn(follow_cardholders=True))).to_series()

    assert [2, 2, 1] == requests.to_list()


# Checks
# --------------------------------------------------------------------------------------------------


def is_over(check: Any, sent: int, seconds: float) -> bool:
    """Return whether a check begins with no more links after so many requests and seconds."""
    state = SimpleNamespace(_turn=check, _questions=Counter({Question("links", ""): sent}))
    return _Check._is_over(cast(Any, state), time.monotonic() + check.planned_seconds - seconds)


def test_a_check_begins_with_links_until_its_requests_are_sent_or_its_time_is_over() -> None:
    check = turn(requests_per_second=1, look_minutes=1)
    planned = int(60 * PLANNED)

    assert [False, True] == [is_over(check, sent, 0) for sent in (planned, planned + 1)]
    assert [False, True] == [is_over(check, 0, seconds) for seconds in (planned - 9, planned + 1)]
    assert not is_over(check._replace(recheck=True), 10**9, 10**9)


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
    check = cast(Any, SimpleNamespace(_stopped="", _silent=7, _context=None))

    for _ in answers:
        _Check._query(check, cast(Any, None), {"url": ""})

    assert is_stopped == bool(check._stopped)


@pytest.mark.parametrize(("job_id", "cause"), [("7", ANSWERED), ("", UNREADABLE)])
def test_messages_are_answered_where_all_can_be_read(job_id: str, cause: str) -> None:
    partner = Partner(messages={"h-1": [status(job_id, "AUTH")]}, jobs={"7": {"id": 7}})
    service = ServiceSettings(base_url=SERVICE, follow_cardholders=True)
    stored = cast(Any, SimpleNamespace(store_messages=lambda *_: None))
    context = QueryContext(partner, service, stored, lambda: NOON)
    placement = Placement("run-1", 1, cardholder_id="h-1", opened=True)

    answer = query_link(context, cast(Any, None), placement, "https://links.example.com/l/1")

    assert 1 == answer.questions[Question(MESSAGES, cause)]


def current(**days: Any) -> bool:
    summary = {"rows": {"awaiting": 0}, "expires": [days.get("expires", "")]}
    manifest = SimpleNamespace(as_of=days.get("as_of", DAY - 2 * LIFE))
    run = SimpleNamespace(summary=summary, committed=lambda: manifest)
    return follow_links._is_current(cast(Any, run), DAY)


def test_a_run_is_followed_up_to_the_last_day_on_which_a_link_of_it_lives() -> None:
    assert [False, True, True] == [current(expires=day.isoformat()) for day in NEIGHBOURS]
    assert [False, True, True] == [current(as_of=day - LIFE) for day in NEIGHBOURS]


def test_newer_runs_are_checked_first_and_nothing_more_once_a_check_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    links = pl.DataFrame([{"run": name, "row": 1} for name in ("old", "new", "newest")])
    due = links.with_columns(urgency=1.0, requests=pl.lit(1, pl.UInt32))
    monkeypatch.setattr(link_check, "_NOTHING_DUE", due.clear())
    monkeypatch.setattr(link_check, "LinkIds", lambda _, run: run.id)
    queried = list[str]()

    class Check(_Check):
        def _due(self, run: Any) -> pl.DataFrame:
            return due.filter(run=run.id)

        def _query(self, ids: Any, _: Any) -> None:
            queried.append(ids)
            self._stopped = "x" if len(queried) > 1 else ""

    bench = memory_bench(service={"base_url": SERVICE})
    runs = [cast(Any, SimpleNamespace(id=name)) for name in links["run"]]

    check = Check(bench.context, cast(Any, object()), turn()).check(runs)

    assert ["newest", "new"] == queried
    assert ("x", 3) == (check.stopped, check.waiting)


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
                        "run-1", 1, opened=False, messages_at=moment - READ_ANYWAY_AFTER
                    ),
                ),
            )
        )
        for moment in MOMENTS
    ]

    assert [False, False, True] == skipped


def test_words_that_nobody_knows_come_the_most_frequent_first_and_of_equal_ones_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [Job(str(number), word) for number, word in enumerate("CBBAD")]
    monkeypatch.setattr(follow_links, "_jobs", lambda _: jobs)

    counts = follow_links.unknown_words([RUN])

    assert [("B", 2), ("A", 1), ("C", 1), ("D", 1)] == [(c["word"], c["jobs"]) for c in counts]
