"""Twenty nights of two issuers: deliveries, uploads, answers, an operator's day, links delivered;
then some days.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from io import BytesIO

import polars as pl

from flows.runs.keys import deliveries, extracts
from flows.runs.sealing import Opener
from flows.runs.store import read
from schemas.portal import CUID
from tests.lives.clerk import Operator
from tests.lives.deliveries import People
from tests.lives.desk import CommandLine
from tests.lives.issuers import Bank
from tests.lives.manners import deck
from tests.lives.place import FIRST, Place, Progress
from tests.lives.portal import Portal

SETTLING = 24  # days after the last night until everything must be settled
ODD_CUID = 0.3  # of the cuids have an apostrophe
UNCONFIRMED = 0.3  # of the deliveries are not confirmed the same day
ISSUERS = ("north", "south")


@dataclass
class Story:
    """What happened: the place, the operator, and the banks."""

    place: Place
    operator: Operator
    banks: list[Bank]


@contextmanager
def lived(place: Place, on_progress: Progress = lambda _: None) -> Iterator[Story]:
    """Live through the nights and the days after them, until the worklist has nothing that could
    still be done.
    """
    nights = place.plan.nights
    with place.wired() as opener:
        story = _begin(place, opener)
        operator = story.operator
        for night in range(nights + SETTLING):
            place.clock.begin_night(night)
            for bank in story.banks:
                bank.portal.day = place.clock.day
                _night(story, bank, night)
            place.clock.hour = 9
            for bank in story.banks:
                _morning(story, bank)
            for bank in story.banks:
                _day(story, bank, night)
            lines = sum(len(bank.left) for bank in story.banks)
            on_progress(f"{place.clock.day}: {operator.given.total()} commands, {lines} left")
            if night > nights and all(_settled(bank) for bank in story.banks):
                break
        for bank in story.banks:
            operator.give("reconcile", bank.name, by=operator.scheduled)
        yield story


def _begin(place: Place, opener: Opener) -> Story:
    plan = place.plan
    share = plan.nights * plan.rows
    last = FIRST + timedelta(days=plan.nights + 120)
    everybody = People.of(2 * share, last, plan.seed).everybody
    for row in everybody:
        if place.reaper.chance.random() < ODD_CUID:
            row[CUID] = f"O'{row[CUID]}"
    answer = deck()
    banks: dict[str, Bank] = {}
    for number, issuer in enumerate(ISSUERS):
        portfolio = issuer == "south"
        place.configure(issuer, portfolio=portfolio)
        chance = random.Random(f"{plan.seed} {issuer}")
        portal = Portal(issuer, opener, chance, answer, FIRST)
        people = everybody[number * share : (number + 1) * share]
        banks[issuer] = Bank(place, issuer, portfolio, people, portal, chance)
    north, south = banks.values()
    north.portal.other = south.portal
    south.portal.other = north.portal
    return Story(place, Operator(CommandLine(place)), [north, south])


def _night(story: Story, bank: Bank, night: int) -> None:
    """Drop the extracts of a night, one of them cut now and then, and submit them."""
    place = story.place
    stem = f"{bank.name}-{place.clock.day:%Y%m%d}"
    drops: dict[str, bytes] = {}
    if bank.owed:
        drops[f"{stem}-whole.csv"] = bank.owed
        bank.owed = b""
    if night < place.plan.nights:
        content = bank.extract(place.plan.rows)
        if night % 7 == 2:
            bank.owed = content
            content = content[:-20]
        drops[f"{stem}.csv"] = content
    for name, content in drops.items():
        place.store.replace(extracts(bank.name) + name, [content])
        place.clock.wait(0.1)
    story.operator.give("submit", bank.name, by=story.operator.scheduled)


def _morning(story: Story, bank: Bank) -> None:
    """Bring what the portal has ready, and ingest it."""
    for letter in bank.portal.bring():
        bank.bring(letter)
    story.operator.give("ingest", bank.name, by=story.operator.scheduled)


def _day(story: Story, bank: Bank, night: int) -> None:
    """Upset something, work through the worklist, and deliver links."""
    last = night >= story.place.plan.nights
    if not last:
        _upset(story, bank, night)
    bank.left = story.operator.work(bank)
    _deliver(story, bank, last=last)


def _upset(story: Story, bank: Bank, night: int) -> None:
    """Hold a chunk, or cancel one, which somebody then uploads all the same."""
    if night % 3 == 1:
        return
    give = partial(story.operator.give, by=story.operator.scheduled)
    chunks = give("outbox", "list", bank.name)["chunks"]
    waiting = [chunk for chunk in chunks if chunk["state"] == "waiting"]
    if not waiting:
        return
    name = waiting[0]["name"]
    chunk = (waiting[0]["run"], str(waiting[0]["number"]))
    why = ("--reason", "the issuer asked for it")
    if night % 3 == 0:
        give("outbox", "hold", *chunk, *why)
        return
    folder = story.place.folder / "somebody"
    give("outbox", "fetch", *chunk, "--to", str(folder))
    give("outbox", "cancel", *chunk, *why)
    bank.portal.upload(name, (folder / name).read_bytes())
    bank.cancelled.add(name)


def _deliver(story: Story, bank: Bank, *, last: bool) -> None:
    """Deliver links; the receiving side takes each delivery once, and does not always confirm
    it.
    """
    delivery = story.operator.give("deliver", bank.name, by=story.operator.scheduled)
    if not delivery.get("next") or not delivery.get("number"):
        return
    key = f"{deliveries(bank.name)}{delivery['number']:06d}/links.csv"
    links = pl.read_csv(BytesIO(read(story.place.store, key)), infer_schema=False)
    for row in links.to_dicts():
        if row["change"] == "withdrawn":
            bank.delivered.pop(row["url"], None)
        else:
            bank.delivered[row["url"]] = row
    if last or bank.chance.random() >= UNCONFIRMED:
        words = delivery["next"].replace("RECEIPT", "receipt-1").split()[1:]
        story.operator.give(*words, by=story.operator.scheduled)


def _settled(bank: Bank) -> bool:
    """Return whether nothing comes, and only others could settle what is on the worklist."""
    return not bank.portal.coming and all(needs_others(line["kind"]) for line in bank.left)


def needs_others(kind: str) -> bool:
    """Return whether only the issuer or the partner could settle a line of the worklist."""
    final = ("rows to correct", "errors to ask about", "links to confirm")
    return kind in final or kind.startswith("links end")
