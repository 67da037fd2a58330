"""Twenty nights of two issuers: deliveries, uploads, answers, an operator's day, links delivered;
then some days.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from flows import wiring
from flows.adapters.gpg_opener import GpgOpener
from flows.commands import outbox as outbox_commands
from flows.commands import overview, trace
from flows.runs.keys import deliveries, extracts, results
from flows.runs.sealing import Opener
from schemas.portal import CITY, CUID, POSTAL_CODE, columns
from tests import keys
from tests.clocked import ClockedStore
from tests.quarter.life import FIRST
from tests.twenty.clerk import Line, Operator
from tests.twenty.manners import deck
from tests.twenty.portal import Portal
from tests.year.deliveries import People
from tests.year.life import TOML

SETTLING = 24  # days after the last night until everything must be settled
AGAIN = 0.2  # of the rows of a delta file stood in earlier ones
UNFIT = 0.06  # of the new rows lack their city
HOPELESS = 0.3  # of those can never be corrected
ODD_CUID = 0.3  # of the cuids have an apostrophe
UNCONFIRMED = 0.3  # of the deliveries are not confirmed the same day
ISSUERS = ("north", "south")
Row = dict[str, str | None]


class Plan(NamedTuple):
    """How long and how large: nights, new rows a night, rows a chunk."""

    nights: int = 20
    rows: int = 60
    per_chunk: int = 12
    seed: int = 1


@dataclass
class Bank:
    """One issuer: its cardholders, what it delivered, its portal, and what it was delivered."""

    name: str
    portfolio: bool
    everybody: list[Row]
    portal: Portal
    chance: random.Random
    known: int = 0
    owed: bytes = b""  # an extract that was cut: it comes whole the next night
    # the cities that are missing, by cuid
    unfit: dict[str, str | None] = field(default_factory=dict)
    # what the receiving side has, by URL
    delivered: dict[str, dict[str, str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)  # deliveries it took
    left: list[Line] = field(default_factory=list)  # of the last worklist
    cancelled: set[str] = field(default_factory=set)  # chunks

    def extract(self, rows: int, *, last: bool) -> bytes:
        """Return tonight's extract: new people and some of the known ones, or everybody."""
        new = [] if last else self.everybody[self.known : self.known + rows]
        known = self.everybody[: self.known]
        old = (
            known
            if self.portfolio
            else self.chance.sample(known, min(len(known), round(rows * AGAIN)))
        )
        self.known += len(new)
        for one in new:
            if self.chance.random() < UNFIT:
                self.unfit[str(one[CUID])], one[CITY] = one[CITY], None
        return pl.DataFrame([*new, *old], dict.fromkeys(columns(), pl.String)).write_csv().encode()


@dataclass
class Story:
    """What happened, and who took part."""

    plan: Plan
    folder: Path
    store: ClockedStore
    operator: Operator
    banks: list[Bank] = field(default_factory=list)
    day: date = FIRST
    hour: float = 0.0

    def now(self) -> datetime:
        """Return the moment by the story's clock."""
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC) + timedelta(
            hours=self.hour
        )

    def bank(self, name: str) -> Bank:
        """Return an issuer by its name."""
        return next(one for one in self.banks if one.name == name)


@contextmanager
def lived(
    folder: Path, plan: Plan, on_progress: Callable[[str], None] = lambda _: None
) -> Iterator[Story]:
    """Live through the nights and the days after them, until the worklist has nothing that could
    still be done.
    """
    (folder / "store").mkdir(parents=True)
    clock: list[Story] = []
    store = ClockedStore(folder / "store", lambda: clock[0].now())
    with GpgOpener([keys.sound().secret]) as opener, pytest.MonkeyPatch.context() as patch:
        for module in (wiring, outbox_commands, overview, trace):
            patch.setattr(module, "now", lambda: clock[0].now())
        patch.setattr(wiring, "open_store", lambda *_: store)
        patch.setattr(wiring, "actor", lambda: "operator@desk:1")
        clock.append(_begin(folder, plan, store, opener))
        story = clock[0]
        for night in range(plan.nights + SETTLING):
            story.day, story.hour = FIRST + timedelta(days=night), 1.5
            story.operator.day = story.day
            for bank in story.banks:
                bank.portal.day = story.day
                _night(story, bank, night)
            story.hour = 9
            for bank in story.banks:
                _morning(story, bank)
            for bank in story.banks:
                _upset(story, bank, night)
                bank.left = story.operator.work(bank.portal)
                _deliver(story, bank, last=night >= plan.nights)
            on_progress(
                f"{story.day}: {sum(story.operator.gave.values())} commands, {_left(story)} left"
            )
            if (
                night > plan.nights
                and not any(bank.portal.coming for bank in story.banks)
                and not _open(story)
            ):
                break
        for bank in story.banks:
            operator = story.operator
            operator.give("reconcile", bank.name, by=operator.scheduled)
        yield story


def _begin(folder: Path, plan: Plan, store: ClockedStore, opener: Opener) -> Story:
    more = round(plan.nights * plan.rows)
    people = People.of(2 * more, FIRST + timedelta(days=plan.nights + 120), plan.seed)
    chance = random.Random(plan.seed)
    (folder / "portal.asc").write_bytes(keys.sound().public)
    for row in people.everybody:
        row[CUID] = f"O'{row[CUID]}" if chance.random() < ODD_CUID else row[CUID]
    story: list[Story] = []
    operator = Operator(
        folder, chance, FIRST,
        bring=lambda issuer, letter: story[0].store.replace(results(issuer) + letter.name, [letter.content]),
        correct=lambda issuer, rows: _fill_in(story[0].bank(issuer), rows),
        whole=lambda issuer: not story[0].bank(issuer).owed,
        remove=lambda issuer, name: (folder / "store" / results(issuer) / name).unlink(),
    )  # fmt: skip
    story.append(Story(plan, folder, store, operator))
    answer = deck()
    for at, issuer in enumerate(ISSUERS):
        text = TOML.format(
            issuer=issuer,
            source="",
            fingerprint=keys.sound().fingerprint,
            per_chunk=plan.per_chunk,
            more="",
        )
        portfolio = issuer == "south"
        (folder / f"{issuer}.toml").write_text(f"full_portfolio = {str(portfolio).lower()}\n{text}")
        luck = random.Random(f"{plan.seed} {issuer}")
        portal = Portal(issuer, opener, luck, answer, FIRST)
        story[0].banks.append(
            Bank(issuer, portfolio, people.everybody[at * more : (at + 1) * more], portal, luck)
        )
    north, south = story[0].banks
    north.portal.other, south.portal.other = south.portal, north.portal
    return story[0]


def _night(story: Story, bank: Bank, night: int) -> None:
    """Drop the extracts of a night, one of them cut now and then, and submit them."""
    drops: dict[str, bytes] = {}
    if bank.owed:
        drops[f"{bank.name}-{story.day:%Y%m%d}-whole.csv"], bank.owed = bank.owed, b""
    if night < story.plan.nights:
        content = bank.extract(story.plan.rows, last=False)
        if night % 7 == 2:
            bank.owed, content = content, content[:-20]
        drops[f"{bank.name}-{story.day:%Y%m%d}.csv"] = content
    for name, content in drops.items():
        story.store.replace(extracts(bank.name) + name, [content])
        story.hour += 0.1
    story.operator.give("submit", bank.name, by=story.operator.scheduled)


def _morning(story: Story, bank: Bank) -> None:
    """Bring what the portal has ready, and ingest it."""
    for letter in bank.portal.bring():
        story.store.replace(results(bank.name) + letter.name, [letter.content])
    story.operator.give("ingest", bank.name, by=story.operator.scheduled)


def _upset(story: Story, bank: Bank, night: int) -> None:
    """Hold a chunk, or cancel one, which somebody then uploads all the same."""
    give = partial(story.operator.give, by=story.operator.scheduled)
    if night % 3 == 1 or night >= story.plan.nights:
        return
    waiting = [
        one for one in give("outbox", "list", bank.name)["chunks"] if one["state"] == "waiting"
    ]
    if not waiting:
        return
    one = waiting[0]
    why = ("--reason", "the issuer asked for it")
    if night % 3 == 0:
        give("outbox", "hold", one["run"], str(one["number"]), *why)
        return
    folder = story.folder / "somebody"
    give("outbox", "fetch", one["run"], str(one["number"]), "--to", str(folder))
    give("outbox", "cancel", one["run"], str(one["number"]), *why)
    bank.portal.upload(one["name"], (folder / one["name"]).read_bytes())
    bank.cancelled.add(one["name"])


def _deliver(story: Story, bank: Bank, *, last: bool) -> None:
    """Deliver links; the receiving side takes each delivery once, and does not always confirm
    it.
    """
    told = story.operator.give("deliver", bank.name, by=story.operator.scheduled)
    number = told.get("number")
    if not told.get("next") or not number:
        return
    place = story.folder / "store" / deliveries(bank.name) / f"{number:06d}" / "links.csv"
    for row in pl.read_csv(place, infer_schema=False).to_dicts():
        if row["change"] == "withdrawn":
            bank.delivered.pop(row["url"], None)
        else:
            bank.delivered[row["url"]] = row
    if last or bank.chance.random() >= UNCONFIRMED:
        words = told["next"].replace("RECEIPT", "receipt-1").split()[1:]
        story.operator.give(*words, by=story.operator.scheduled)


def _fill_in(bank: Bank, rows: list[dict[str, str]]) -> bool:
    """Fill in what the issuer knows by now: a city that was missing, another postal code; False
    where it is nothing.
    """
    by_cuid = {str(one[CUID]): one for one in bank.everybody}
    some = False
    for row in rows:
        person = by_cuid[row["cuid"].removeprefix("'")]
        luck = random.Random(row["cuid"]).random()
        if row["column"] == CITY and row["cuid"] in bank.unfit and luck >= HOPELESS:
            row["correction"] = person[CITY] = bank.unfit.pop(row["cuid"]) or ""
        elif row["column"] == POSTAL_CODE:
            code = str(person[POSTAL_CODE])
            at = max(at for at, one in enumerate(code) if one.isdigit())
            row["correction"] = person[POSTAL_CODE] = (
                f"{code[:at]}{(int(code[at]) + 1) % 10}{code[at + 1 :]}"
            )
        some = some or bool(row["correction"])
    return some


def _left(story: Story) -> int:
    return sum(len(bank.left) for bank in story.banks)


def _open(story: Story) -> bool:
    """Return whether a worklist has anything but what only a cardholder's data or the partner could
    settle.
    """
    final = ("rows to correct", "errors to ask about", "links to confirm")
    return any(
        one["kind"] not in final and not one["kind"].startswith("links end")
        for bank in story.banks
        for one in bank.left
    )
