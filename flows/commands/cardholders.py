"""Where the cardholders of an issuer stand, by its book."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from itertools import chain
from typing import Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.result import Part, Result, Table
from flows.steps import Step
from flows.wiring import wire

with on_first_use():
    from flows.book import book, people, stages, upkeep
    from flows.runs import business_date
    from flows.runs import context as contexts

DERIVED = "it changes nothing but what is derived; the form reconciliation shows the same"


class _Standing(NamedTuple):
    """Where the cardholders of an issuer stand, as facts and as it is shown."""

    facts: dict[str, Any]
    shown: list[Part]
    is_waiting: bool


@entry("cardholders", form=DERIVED)
def cardholders(context: Context, issuer: str = "", *, rebuild: bool = False) -> Result:
    """Show how many cardholders have a link, and for whom the others wait.

    Every cardholder that the issuer ever named is in exactly one state, also who was only ever
    named as blocked or deleted, until retention removes the ledgers that name it, which counts it
    as removed. Whom [status] leaves out of a full portfolio is not named by it.

    Args:
        issuer: The issuer, as its TOML file is named (default: all of them).
        rebuild: Discard what is kept of the book, make it anew from the ledgers, and say whether
            it had been right.

    Example:
        cardlink cardholders first-bank
    """

    def of_issuer(name: str) -> list[_Standing]:
        issuer_context = wire(context.folder, name)
        remark = _rebuilt(issuer_context) if rebuild else ""
        return [_standing(issuer_context, remark)]

    standings, unread = context.each(issuer, of_issuer)
    shown = list(chain.from_iterable(standing.shown for standing in standings))
    facts = {"issuers": [standing.facts for standing in standings]}
    waiting = [each.facts["issuer"] for each in standings if each.is_waiting]
    next_step = Step("worklist", *waiting[:1]) if waiting else None
    return Result(facts, shown[:-1] or ["no issuers yet"], next_step).beside(unread)


def _rebuilt(context: contexts.IssuerContext) -> str:
    """Make the book anew; return whether it said the same before."""
    name = context.issuer.issuer
    before = book.read_book(context.adapters, name).cards(_today(context))
    upkeep.forget_book(context.adapters, name)
    rebuilt = book.read_book(context.adapters, name)
    after = rebuilt.cards(_today(context))
    same = before.sort(before.columns).equals(after.sort(after.columns))
    verdict = "it says the same as before" if same else "IT HAD BEEN WRONG, and is right now"
    remark = f"{name}: the book was made anew from the ledgers; {verdict}"
    if rebuilt.opening.purges:
        remark += "; whom retention removed is counted from the records of its purges, as before"
    return remark


def _standing(context: contexts.IssuerContext, remark: str) -> _Standing:
    name = context.issuer.issuer
    current = book.read_book(context.adapters, name)
    counts = []
    links = []
    for part in current.parts():
        cards = part.cards(_today(context))
        counts.append(people.balance(cards))
        links.append(stages.known_links(cards, current.stages))
    counted = people.of_book(current, counts)
    came_to = stages.coverage(links)
    facts = {"issuer": name, **counted.facts, "links": came_to}
    remarks = [remark] if remark else []
    shown: list[Part] = [*remarks, f"{name}: {facts['sentence']}", "", standing_table(facts), ""]
    came = list(coverage_lines(came_to))
    if came:
        shown += [*came, ""]
    if current.opening.sentence:
        shown += [current.opening.sentence, ""]
    return _Standing(facts, shown, not counted.is_done)


def _today(context: contexts.IssuerContext) -> date:
    return business_date.local_day(context.adapters.now(), context.issuer.time_zone)


def coverage_lines(coverage: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many cards with a link came to each stage, of how many that is known, and by whom.

    Nothing where it is known of none.
    """
    links = coverage["links"]
    for stage in stages.STAGES:
        known_by = coverage[stage]["known_by"]
        known = sum(known_by.values())
        sources = ", ".join(f"{source} {number:,}" for source, number in known_by.items())
        if known:
            cards = coverage[stage]["cards"]
            yield f"{stage}: {cards:,} of {known:,} known ({sources}), of {links:,} with a link"
    failed = ", ".join(f"{kind} {cards:,}" for kind, cards in coverage["failed"].items())
    if failed:
        yield f"failed, of those of whom it is known whether they are placed: {failed}"


def standing_table(counted: Mapping[str, Any]) -> Table:
    """Return how many cardholders and cards stand where, without the states that none is in.

    `counted`: the facts of the balance over people.
    """
    rows = [
        (state, number, counted["cards"][state])
        for state, number in counted["people"].items()
        if number or counted["cards"][state]
    ]
    removed = counted["removed"]
    removed_cards = sum(removed["cards"].values())
    if removed_cards:
        rows.append(("removed by retention", sum(removed["people"].values()), removed_cards))
    if removed["erased_people"]:
        rows.append(("forgotten", removed["erased_people"], removed["erased_cards"]))
    removed_cards += removed["erased_cards"]
    total = ("ever named", counted["named"], sum(counted["cards"].values()) + removed_cards)
    nameless = [("rows that name no cardholder", 0, counted["nameless"])]
    nameless = nameless if counted["nameless"] else []
    return Table(("where they stand", "cardholders", "cards"), [*rows, total, *nameless])
