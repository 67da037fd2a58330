"""What is stored of one person: all of it, for a request to know; and that it is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Field, Number, Reason
from flows.commands.result import Part, Result, Table
from flows.errors import OperatorError
from flows.redaction import redact, spare
from flows.steps import CUID, Option, Sentence, Step, Text, counted
from flows.wiring import cleaner, wire

with on_first_use():
    from flows.extensions.privacy import erasure, subject_access
    from flows.reports import cardholder_trace
    from flows.runs import erased, keys

ERASE = Form("erase", "erase: {target}", hours=4)


@entry("person export", form="what is stored of one person is kept out of every form's log")
def export(context: Context, cuid: str, *, issuer: str = "") -> Result:
    """Export all that is stored about one cardholder, for a request to know.

    With what each place has, where, why, and until when; also the cells of the extracts that are
    still there. Never a card number or CVV. `--json` has all of it, with the links.

    Args:
        cuid: The cardholder's reference at the issuer.
        issuer: Only this issuer's store (default: those of all that are configured).

    Example:
        cardlink person export C-1001 --json
    """
    cardholder_trace.refuse_card_number(cuid)

    def of_issuer(name: str) -> list[dict[str, Any]]:
        issuer_context = wire(context.folder, name)
        places = subject_access.disclosures(issuer_context, cuid)
        act = erased.erasure_of(issuer_context.adapters, name, cuid)
        forgotten = act.at.isoformat(timespec="seconds") if act else None
        return [{"issuer": name, "forgotten": forgotten, "places": places}]

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


class CardholderUnnamedError(OperatorError):
    """A cardholder is named in no way or in two."""

    message = Sentence(
        "Name the cardholder either by a run and {row}, or by an issuer and {single}.",
        row=Option("--row", "N", of="person erase"),
        single=Option("--single", "NAME", of="person erase"),
    )
    next_step = Sentence(
        "{export} shows the runs and rows of a cardholder, and the links that were typed in.",
        export=Step("person export", CUID),
    )


@entry("person erase", form=ERASE, acts={"erase": ""})
def erase(
    context: Context,
    target: Annotated[
        str, Field(pattern=r"[a-z0-9][a-z0-9-]*", metavar="RUN|ISSUER", offers="targets")
    ],
    *,
    row: Number | None = None,
    single: Annotated[str, Field(pattern=r"\d{8}T\d{12}-[0-9a-f]{8}", metavar="NAME")] = "",
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Forget the cardholder of a row of RUN, or of a link that was typed in for ISSUER: nothing is
    sent for the person again, for good.

    What is derived is removed everywhere at the issuer, the link is withdrawn by the next
    delivery, and what must be kept until its own end is named. A keyed digest of the cuid stays,
    so that the person's rows in later extracts are left out. There is no way back.

    Args:
        target: A run; or with --single an issuer.
        row: A row that names the cardholder, by its number; `trace` shows run and row of a cuid.
        single: The name of a single link without a run, as `person export` shows it.

    Example:
        cardlink person erase first-bank-20261120-3f9c21aa --row 12 --reason 'ticket 7' --dry-run
    """
    whom, issuer = _meant(target, row, single)
    issuer_context = wire(context.folder, issuer)
    deleting = cleaner(issuer_context.issuer, context.folder)
    if dry_run:
        plan = erasure.plan_erasure(issuer_context, whom, hides=deleting.hides())
    else:
        plan = erasure.erase(issuer_context, deleting, whom, reason)
    facts = {
        "target": target,
        "row": row,
        "single": single,
        "dry_run": dry_run,
        "cardholders": plan.cardholders,
        "cards": plan.cards,
        "removed": plan.removed,
        "withdraws": plan.links is not None,
        "kept": [kept._asdict() for kept in plan.kept],
        "reason": redact(reason),
    }
    next_step = None if dry_run else plan.links
    return Result(facts, list(_erased(issuer, target, plan, dry_run=dry_run)), next_step)


def _meant(target: str, row: int | None, single: str) -> tuple[erasure.Whom, str]:
    """Return who is meant, and at which issuer."""
    if single and row is None:
        return erasure.OfSingle(single), target
    if single or row is None:
        raise CardholderUnnamedError
    return erasure.OfRows(target, [row]), keys.keys_of(target).run.issuer


def _erased(
    issuer: str, target: str, plan: erasure.ErasurePlan, *, dry_run: bool
) -> Iterator[Part]:
    """Yield who is forgotten, what goes, and what stays."""
    if not plan.cardholders:
        yield f"{target}: whoever was named there is forgotten already"
        return
    would = "would be " if dry_run else ""
    holders = counted(plan.cardholders, "cardholder")
    yield f"{target}: {holders} with {counted(plan.cards, 'card')} {would}forgotten"
    objects = ", ".join(f"{number:,} of {place}" for place, number in plan.removed.items())
    left = f"objects {would}removed or written anew: {objects}"
    if not objects:
        left = f"what an earlier process left of them {would or 'is '}removed"
    yield f"{left}; book and reports, too"
    if plan.links:
        yield _withdrawal(issuer, plan.links)
    rows = [(kept.where, kept.holds, kept.why, kept.until) for kept in plan.kept]
    if rows:
        yield ""
        yield Table(("kept", "what", "why", "until"), rows, "kept", "Kept until its own end")


def _withdrawal(issuer: str, step: Step) -> Text:
    return Sentence(
        "Somebody may use a link, which this withdraws: {withdraw}. Once that is confirmed, "
        "{purge} takes the person out of what was handed over.",
        withdraw=step,
        purge=Step("purge", issuer),
    )
