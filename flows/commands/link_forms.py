"""The form of the partner's links: what `check` shows of it, and the command that confirms it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Field, Issuer, Reason
from flows.commands.result import Result
from flows.steps import WHY, Sentence, Step, Text, counted
from flows.wiring import wire

with on_first_use():
    from flows.operations import link_form as decisions
    from flows.reports import link_forms as reported
    from flows.results import learned_forms

MOST = 5  # forms that are shown of each kind


@entry("link-form", form=Form("links", "form of links of {issuer}"), acts={"link-form": ""})
def link_form(
    context: Context,
    issuer: Issuer,
    form: Annotated[str, Field(metavar="FORM", pattern=r"https://[!-~]+", longest=500)],
    *,
    undo: bool = False,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Confirm the form of the partner's links, once the partner has: a link of no confirmed form is
    a break from then on.

    Several forms may be confirmed. `check` shows them, and those that links have.

    Args:
        form: Such as https://links.example.com/l/{hex:24}, as `check` shows it.
        undo: Take it back: links are judged as if this form had never been confirmed.

    Example:
        cardlink link-form first-bank 'https://links.example.com/l/{hex:24}' --reason 'they say'
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    record = decisions.decide_form(issuer_context, form, reason, undo=undo)
    links = f"{counted(record.links, 'link')} received until then had it"
    line = f"{record.form}: {record.what} by {record.by}; {links}"
    if dry_run:
        line = f"dry run, nothing was changed: {line}"
    facts = {**record.model_dump(mode="json"), "dry_run": dry_run}
    return Result(facts, [line], Step("ingest", issuer))


def form_records(forms: reported.LinkForms) -> list[dict[str, Any]]:
    """Return the forms of an issuer's links as plain facts."""
    confirmed: list[dict[str, Any]] = [
        {
            "form": str(known.form),
            "state": "confirmed",
            "links": known.links,
            "by": known.decision.by,
            "at": known.decision.at.isoformat(timespec="seconds"),
            "reason": known.decision.reason,
        }
        for known in forms.confirmed
    ]
    learned = [_learned(known, "learned") for known in forms.learned]
    departing = [_learned(known, "departing") for known in forms.departing]
    return [*confirmed, *learned, *departing]


def _learned(known: learned_forms.LearnedForm, state: str) -> dict[str, Any]:
    return {"form": str(known.form), "state": state, "links": known.links}


def form_lines(issuer: str, forms: reported.LinkForms) -> Iterator[Text]:
    """Yield what is known of the form of an issuer's links: first the forms that are confirmed."""
    for known in forms.confirmed:
        day = f"{known.decision.at:%Y-%m-%d}"
        share = f"{known.links:,} of the last {counted(forms.links, 'link')} have it"
        yield f"{known.form}: confirmed by {known.decision.by} on {day}; {share}"
    for learned in forms.learned[:MOST]:
        has_form = f"{_have(learned)} the form {learned.form}"
        if learned.links < learned_forms.ENOUGH:
            yield f"{has_form}; from {learned_forms.ENOUGH} links on, confirm it"
        else:
            yield _to_confirm(issuer, has_form, learned, "once the partner confirms it")
    for departing in forms.departing[:MOST]:
        has_form = f"{_have(departing)} no confirmed form, but {departing.form}"
        yield _to_confirm(issuer, has_form, departing, "if the partner confirms it")


def _have(learned: learned_forms.LearnedForm) -> str:
    return f"{counted(learned.links, 'link')} {'has' if learned.links == 1 else 'have'}"


def _to_confirm(
    issuer: str, has_form: str, learned: learned_forms.LearnedForm, when: str
) -> Sentence:
    step = Step("link-form", issuer, str(learned.form), reason=WHY)
    return Sentence("{has_form}; {when}: {step}", has_form=has_form, when=when, step=step)
