"""Simulated cardholders: some open their link, get past it, choose sites, and answer.

They answer right, wrong, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from flows.extensions.simulator.service.books import ServiceState
from flows.extensions.simulator.service.jobs import Job, Request
from flows.extensions.simulator.service.links import Link
from flows.extensions.simulator.service.refusals import RefusedRequestError
from flows.extensions.simulator.service.sites import ACK, SITES, WRONG

Wallet = Callable[[Link], Mapping[str, str]]  # what the cardholder of a link answers, by challenge
LOOK_SECONDS = 5  # how often people look whether a site asks them something


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
    """Let the cardholder of every link that nobody opened yet act, until all their jobs have ended.

    The clock runs meanwhile; without `until_ended` jobs are only started. `chance` draws a number
    from 0 to 1 for the names it is given, so the same one gives the same night. People read their
    screen, not the messages: those are left to be read. With a `wallet` people answer the
    challenges by what it says; without one they know their card, and get past each challenge that
    the institution has an answer to.
    """
    people = _People(state, chance, shares or Shares())
    untouched = [link for link in state.links.links.values() if link.opened_on is None]
    verified = [link for link in untouched if people.verify(link, wallet)]
    jobs = list(chain.from_iterable(people.place(link, sites) for link in verified))
    while until_ended and any(job.due for job in jobs):
        people.answer(jobs)
        state.advance(_next_look(state, jobs))


class _People:
    """All cardholders, with their habits."""

    def __init__(self, state: ServiceState, chance: Callable[..., float], shares: Shares) -> None:
        self._state = state
        self._chance = chance
        self._shares = shares

    def verify(self, link: Link, wallet: Wallet | None) -> bool:
        """Open a link and answer its challenges; return whether its cardholder got past it."""
        if self._chance("open", link.id) >= self._shares.open:
            return False
        forgot = self._chance("forget", link.id) < self._shares.forget
        links = self._state.links
        now = self._state.now
        try:
            links.open(link.id, now)
            if forgot:
                links.verify(link.id, dict.fromkeys(links.challenges, WRONG), now)
            elif wallet:
                links.verify(link.id, wallet(link), now)
            elif links.cards[link.card_id].can_answer(links.challenges):
                link.authenticated_on = now
        except RefusedRequestError:  # expired, or answered wrong
            return False
        return link.authenticated_on is not None

    def place(self, link: Link, sites: Sequence[str]) -> list[Job]:
        """Choose a site or two; return the jobs that start."""
        first = int(self._chance("site", link.id) * len(sites))
        chosen = [sites[first]]
        if len(sites) > 1 and self._chance("second", link.id) < self._shares.second:
            chosen.append(sites[(first + 1) % len(sites)])
        return self._state.place(link.id, chosen, {})

    def answer(self, jobs: Sequence[Job]) -> None:
        """Look at the screen of each job, and answer what it asks."""
        for job in jobs:
            if job.request:
                self._answer(job, job.request)

    def _answer(self, job: Job, request: Request) -> None:
        """Answer what a job asks, unless its cardholder has gone away."""
        envelope_id = request.envelope_id
        if self._chance("silent", envelope_id) >= self._shares.silent:
            is_wrong = self._chance("wrong", envelope_id) < self._shares.wrong
            self._state.answer(job.id, envelope_id, _answers(request, wrong=is_wrong))


def _answers(request: Request, *, wrong: bool) -> Mapping[str, str]:
    names = [field.key_name for field in request.ask.fields]
    if "tfa_message" in names:
        return {"tfa": WRONG if wrong else ACK}
    return dict.fromkeys(names, WRONG if wrong else "known")


def _next_look(state: ServiceState, jobs: Sequence[Job]) -> datetime:
    """Return the moment of the next look.

    That is after a while, or when something happens where all are silent.
    """
    dues = [job.due for job in jobs if job.due]
    return max(state.now + timedelta(seconds=LOOK_SECONDS), min(dues, default=state.now))
