"""Simulated cardholders: some open their link, some get past it, choose sites and answer right,
wrong, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from flows.simulator.service.books import ServiceState
from flows.simulator.service.jobs import Job, Request
from flows.simulator.service.links import Link
from flows.simulator.service.refusals import RefusedRequestError
from flows.simulator.service.sites import ACK, SITES, WRONG

Wallet = Callable[[Link], Mapping[str, str]]  # what the cardholder of a link answers, by challenge
LOOK_SECONDS = 5  # how often people look whether they are asked something


class Shares(NamedTuple):
    """How people behave: each a share of those who came so far."""

    open: float = 0.8
    forget: float = 0.1  # of those who open: the challenges are answered wrong, and given up
    second: float = 0.2  # of those who get past the link: two sites instead of one
    wrong: float = 0.1  # of the answers
    silent: float = 0.05  # of the requests: never answered


def let_cardholders_act(
    state: ServiceState,
    chance: Callable[..., float],
    *,
    shares: Shares | None = None,
    sites: Sequence[str] = tuple(SITES),
    wallet: Wallet | None = None,
    until_ended: bool = True,
) -> None:
    """Let the cardholder of every link that nobody opened yet act, and the clock run until all
    their jobs have ended.

    `chance` draws a number from 0 to 1 for the names it is given, so the same one gives the same night. People
    read their screen, not the messages: those are left to be read. Without `until_ended` jobs are
    only started. With a `wallet` people answer the challenges by what it says; without one they are
    believed to know their card.
    """
    shares = shares or Shares()
    untouched = [link for link in state.links.links.values() if link.opened_on is None]
    in_hand = [link for link in untouched if _verified(state, link, chance, shares, wallet)]
    jobs = [job for link in in_hand for job in _placed(state, link, chance, shares, sites)]
    while until_ended and any(job.due for job in jobs):
        for job in jobs:
            if job.request:
                _at_the_screen(state, job, job.request, chance, shares)
        state.advance(_next_look(state, jobs))


def _verified(
    state: ServiceState,
    link: Link,
    chance: Callable[..., float],
    shares: Shares,
    wallet: Wallet | None,
) -> bool:
    """Open a link and answer its challenges; say whether its cardholder got past it."""
    if chance("open", link.id) >= shares.open:
        return False
    forgot = chance("forget", link.id) < shares.forget
    try:
        state.links.open(link.id, state.now)
        if forgot:
            state.links.verify(link.id, dict.fromkeys(state.links.challenges, WRONG), state.now)
        elif wallet:
            state.links.verify(link.id, wallet(link), state.now)
        else:
            link.authenticated_on = state.now
    except RefusedRequestError:  # expired, or answered wrong
        return False
    return True


def _placed(
    state: ServiceState,
    link: Link,
    chance: Callable[..., float],
    shares: Shares,
    sites: Sequence[str],
) -> list[Job]:
    """Choose a site or two; return the jobs that start."""
    first = int(chance("site", link.id) * len(sites))
    count = 2 if len(sites) > 1 and chance("second", link.id) < shares.second else 1
    return state.place(link.id, [sites[(first + more) % len(sites)] for more in range(count)], {})


def _at_the_screen(
    state: ServiceState, job: Job, request: Request, chance: Callable[..., float], shares: Shares
) -> None:
    """Answer what a job asks, unless its cardholder has gone away."""
    drawn = request.envelope_id
    if chance("silent", drawn) >= shares.silent:
        state.answer(job.id, drawn, _answers(request, wrong=chance("wrong", drawn) < shares.wrong))


def _answers(request: Request, *, wrong: bool) -> Mapping[str, str]:
    answers = {field.key_name: WRONG if wrong else "known" for field in request.ask.fields}
    return {"tfa": WRONG if wrong else ACK} if "tfa_message" in answers else answers


def _next_look(state: ServiceState, jobs: Sequence[Job]) -> datetime:
    """Return the moment of the next look: after a while, or when something happens where all are
    silent.
    """
    dues = [job.due for job in jobs if job.due]
    return max(state.now + timedelta(seconds=LOOK_SECONDS), min(dues, default=state.now))
