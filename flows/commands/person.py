"""What is stored of one person: all of it, for a request to know; and that it is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Number, Reason, RunName
from flows.commands.result import Part, Result, Table, counted
from flows.redaction import redact, spare
from flows.steps import Sentence, Step, Text
from flows.wiring import cleaner, wire

with on_first_use():
    from flows.operations import erasure, subject_access
    from flows.reports import cardholder_trace

ERASE = Form("erase", "erase: {run}", hours=4)


@entry("person export", form="what is stored of one person is kept out of every form's log")
def export(context: Context, cuid: str, *, issuer: str = "") -> Result:
    """Export all that is stored about one cardholder, for a request to know.

    With what each place has, where, why, and until when; also the cells of the extracts that are
    still there. Never a card number or CVV. `--json` has all of it, with the links.

    Args:
        cuid: The cardholder's reference at the issuer.
        issuer: Only this issuer's store (default: those of all that are configured).
    """
    cardholder_trace.refuse_card_number(cuid)

    def of_issuer(name: str) -> list[dict[str, Any]]:
        issuer_context = wire(context.folder, name)
        places = subject_access.disclosures(issuer_context, cuid)
        act = erasure.erasure_of(issuer_context.adapters.store, name, cuid)
        forgotten = act.at.isoformat(timespec="seconds") if act else None
        facts = [place.facts for place in places]
        return [{"issuer": name, "forgotten": forgotten, "places": facts}]

    stores, unread = context.each(issuer, of_issuer)
    for link in filter(None, _links(stores)):
        spare(link)
    facts = {"cuid": cuid, "issuers": stores}
    lines = list(chain.from_iterable(map(_shown, stores)))
    return Result(facts, lines or ["no issuers yet"]).beside(unread)


def _links(value: Any) -> Iterator[str]:
    """Yield the links in what is exported, which are printed as they are."""
    match value:
        case dict():
            if isinstance(value.get("url"), str):
                yield value["url"]
            yield from chain.from_iterable(map(_links, value.values()))
        case list() | tuple():
            yield from chain.from_iterable(map(_links, value))


def _shown(store: dict[str, Any]) -> Iterator[Part]:
    """Yield what the places of an issuer's store have."""
    name = store["issuer"]
    if store["forgotten"]:
        yield f"{name}: forgotten since {store['forgotten']}; nothing is sent for this cuid again"
    if not store["places"]:
        yield f"{name}: nothing is stored of this cuid"
        return
    rows = list(chain.from_iterable(map(_rows, store["places"])))
    head = ("place", "where", "what", "why", "until")
    yield Table(head, rows, f"{name}-person", f"{name}: what is stored, and why")


def _rows(place: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return a line for each object of a place."""
    shared = (place["holds"], place["why"], place["until"])
    return [(place["place"], stored["where"], *shared) for stored in place["objects"]]


@entry("person erase", form=ERASE, second={"erase": ""})
def erase(
    context: Context,
    run: RunName,
    *,
    row: Number,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Forget the cardholder of a row of RUN: nothing is sent for the person again, for good.

    What is derived is removed everywhere at the issuer, the link is withdrawn by the next
    delivery, and what must be kept until its own end is named. A keyed digest of the cuid stays,
    so that the person's rows in later extracts are left out. There is no way back.

    Args:
        row: A row that names the cardholder, by its number; `trace` shows run and row of a cuid.
    """
    issuer_context = context.context_of(run)
    deleting = cleaner(issuer_context.issuer, context.folder)
    if dry_run:
        plan = erasure.plan_erasure(issuer_context, run, [row], hides=deleting.hides())
    else:
        plan = erasure.erase(issuer_context, deleting, run, [row], reason)
    issuer = issuer_context.issuer.issuer
    facts = {
        "run": run,
        "row": row,
        "dry_run": dry_run,
        "cardholders": plan.cardholders,
        "cards": plan.cards,
        "removed": plan.removed,
        "withdraws": plan.links,
        "kept": [kept._asdict() for kept in plan.kept],
        "reason": redact(reason),
    }
    next_step = Step("deliver", issuer) if plan.links and not dry_run else None
    return Result(facts, list(_erased(issuer, run, plan, dry_run=dry_run)), next_step)


def _erased(issuer: str, run: str, plan: erasure.ErasurePlan, *, dry_run: bool) -> Iterator[Part]:
    """Yield who is forgotten, what goes, and what stays."""
    would = "would be " if dry_run else ""
    holders = counted(plan.cardholders, "cardholder")
    yield f"{run}: {holders} with {counted(plan.cards, 'card')} {would}forgotten"
    objects = ", ".join(f"{number:,} of {place}" for place, number in plan.removed.items())
    yield f"objects {would}removed or written anew: {objects or 'none'}; book and reports, too"
    if plan.links:
        yield _withdrawal(issuer)
    rows = [(kept.where, kept.holds, kept.why, kept.until) for kept in plan.kept]
    if rows:
        yield ""
        yield Table(("kept", "what", "why", "until"), rows, "kept", "Kept until its own end")


def _withdrawal(issuer: str) -> Text:
    return Sentence(
        "The next delivery withdraws the link: {deliver}. Once that is confirmed, {purge} takes "
        "the person out of the deliveries.",
        deliver=Step("deliver", issuer),
        purge=Step("purge", issuer),
    )
