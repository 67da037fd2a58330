"""The engine of every life: nights of extracts, answers in the morning, and an operator's day."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO

import polars as pl

from flows.extensions.deliveries.delivered import deliveries
from flows.runs.sealing import Opener
from tests.lives.bank import Bank
from tests.lives.clerk import Operator
from tests.lives.command_line import CommandLine
from tests.lives.deliveries import Deliverer
from tests.lives.events import EVENTS
from tests.lives.life import Life, Witness
from tests.lives.manners import deck
from tests.lives.place import FIRST, Place, Progress
from tests.lives.portal import LIFE, Portal
from tests.lives.profile import Plan, Profile
from tests.lives.town import People, Town

OUTLAST = 120  # days after the last night that cards are good
UNCONFIRMED = 0.3  # of the deliveries are not confirmed the same day


@contextmanager
def lived(
    place: Place, profile: Profile, watch: Witness, on_progress: Progress = lambda _: None
) -> Iterator[Life]:
    """Live through the nights and the days after them, and give the life with everything still in
    place; `watch` looks on before anything is purged.
    """
    nights = place.plan.nights
    with place.wired() as openers:
        life = _begin(place, profile, openers, watch)
        for night in range(nights + profile.settling):
            place.clock.begin_night(_days_until(night, place.plan))
            for bank in life.banks:
                _night(life, bank, night)
            place.clock.begin_morning()
            for bank in life.banks:
                _morning(life, bank)
            _day(life, night)
            on_progress(_progress(life))
            if night > nights + profile.once_more and all(map(_is_settled, life.banks)):
                break
        for bank in life.banks:
            bank.last_submit = life.operator.submit(bank.name)
            bank.note_runs(bank.last_submit.text)
            life.schedule("reconcile", bank.name)
        yield life


def _days_until(night: int, plan: Plan) -> int:
    """Return the days from the first night to another; after the last each day is one."""
    last = min(night, plan.nights - 1)
    return last * plan.stride + night - last


def _begin(place: Place, profile: Profile, openers: list[Opener], watch: Witness) -> Life:
    plan = place.plan
    last = FIRST + timedelta(days=plan.nights * plan.stride + OUTLAST)
    days = plan.stride if any(feed.portfolio for feed in profile.feeds) else 1
    most = max(feed.new for feed in profile.feeds)
    count = round(plan.rows * (1.5 + 2 * most * days * plan.nights)) + 100
    times = 1 if profile.are_neighbours else len(profile.feeds)
    ending = [FIRST + timedelta(days=day) for day in range(plan.nights * plan.stride)]
    share = max(feed.ending for feed in profile.feeds)
    everybody = People.of(times * count, last, plan.seed, ending, share)
    operator = Operator(CommandLine(place), place.reaper.chance)
    life = Life(place, profile, operator, openers, watch)
    answer = deck(profile.ways)
    for number, feed in enumerate(profile.feeds):
        place.configure(feed)
        people = everybody.part(number % times * count, count)
        town = Town(feed, people, plan.rows, random.Random(f"{plan.seed} {feed.issuer}"))
        chance = random.Random(f"{plan.seed} {feed.issuer}'s portal")
        portal = Portal(feed.issuer, openers[0], chance, answer, place.clock.now)
        if profile.settling and profile.acts_on == "worklist":
            # so that none ends while the life settles
            portal.long_from = place.clock.day + timedelta(days=plan.nights * plan.stride - LIFE)
        life.banks.append(Bank(place, profile, town, portal, Deliverer(town)))
    for bank, other in zip(life.banks, [*life.banks[1:], life.banks[0]], strict=True):
        bank.portal.other = other.portal if other is not bank else None
    return life


def _night(life: Life, bank: Bank, night: int) -> None:
    """Drop the files of a night (after the last only what is owed), and submit them."""
    day = life.place.clock.day
    nights = life.place.plan.nights
    if night < nights:
        drops = bank.deliverer.tonight(day, life.place.plan.stride if night else 0)
    else:
        bank.is_over = True
        drops = bank.deliverer.owed(day)
    if life.profile.once_more and night == nights + life.profile.once_more:
        drops += bank.deliverer.once_more(day)
    for drop in drops:
        bank.drop(drop)
        life.place.clock.wait()
    printed = life.operator.submit(bank.name).text
    if life.profile.acts_on == "output":
        printed += life.operator.settle(printed)
    life.note(bank, printed)


def _morning(life: Life, bank: Bank) -> None:
    """Bring what the portal has ready, and ingest it."""
    for letter in bank.portal.bring():
        bank.bring(letter)
    life.schedule("ingest", bank.name)
    bank.behind = None


def _day(life: Life, night: int) -> None:
    """Let happen what happens today, let the operator work, and deliver links."""
    plan = life.place.plan
    _happen(life, night, is_late=False)
    if life.profile.acts_on == "worklist":
        life.operator.work(life.banks)
    for bank in life.banks:
        if life.profile.acts_on == "output":
            life.operator.upload_all(bank)
        life.note(bank)
        if life.profile.delivers:
            _deliver(life, bank, is_last=night >= plan.nights)
        if life.profile.counts_daily:
            bank.witnessed.misplaced += bank.census.differing(life, bank)
    _happen(life, night, is_late=True)


def _happen(life: Life, night: int, *, is_late: bool) -> None:
    """Let happen what happens in the morning, or in the evening."""
    plan = life.place.plan
    for event in life.profile.events:
        if night < plan.nights and event.is_late == is_late and event.falls_on(night, plan):
            for bank in life.banks:
                EVENTS[event.name](life, bank)


def _deliver(life: Life, bank: Bank, *, is_last: bool) -> None:
    """Deliver links; the receiving side takes each delivery once, and does not always confirm
    it.
    """
    delivery = life.schedule("deliver", bank.name)
    if not delivery.get("next") or not delivery.get("number"):
        return
    key = f"{deliveries(bank.name)}{delivery['number']:06d}/links.csv"
    links = pl.read_csv(BytesIO(bank.content(key)), infer_schema=False)
    for row in links.to_dicts():
        if row["change"] == "withdrawn":
            bank.delivered.pop(row["url"], None)
        else:
            bank.delivered[row["url"]] = row
    if is_last or bank.town.chance.random() >= UNCONFIRMED:
        words = shlex.split(delivery["next"].replace("RECEIPT", "receipt-1"))
        life.schedule(*words[1:])


def _progress(life: Life) -> str:
    commands = life.operator.given.total()
    lines = sum(len(bank.left) for bank in life.banks)
    misplaced = sum(len(bank.witnessed.misplaced) for bank in life.banks)
    return f"{life.place.clock.day}: {commands} commands, {lines} left, {misplaced} misplaced"


def _is_settled(bank: Bank) -> bool:
    """Return whether nothing comes, and the worklist was empty today."""
    return not bank.portal.coming and not bank.left
