"""Agree to the settings of an issuer as its TOML has them now."""

from __future__ import annotations

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Issuer, Reason
from flows.commands.result import Part, Result
from flows.redaction import redact
from flows.steps import Step
from flows.wiring import wire

with on_first_use():
    from flows.operations import settings_in_force


@entry("agree", form=Form("agree", "agree: settings of {issuer}"), second={"settings": ""})
def agree(context: Context, issuer: Issuer, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """Agree to the settings of ISSUER as its TOML has them now; they are in force from then on.

    Keys, hosts, limits, [store], [resend], [retention] or the mapping need a second person where
    `[four_eyes] acts` names `settings` or `mapping`; [four_eyes] itself as soon as it names an act:
    by the settings that were agreed to last. A change that one person may make needs no `agree`:
    the next command records it.

    Example:
        cardlink agree first-bank --reason 'new key, compared by phone'
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    comparison = settings_in_force.compared(issuer_context)
    changed = [redact(str(change)) for change in comparison.changed]
    facts = {
        "issuer": issuer,
        "record": comparison.number,
        "sha256": comparison.sha256,
        "changes": changed,
        "dry_run": dry_run,
    }
    is_new = comparison.last is None
    if not is_new and not changed:
        return Result(
            facts, [f"{issuer}: the settings are those in force (record {comparison.number})"]
        )
    settings_in_force.agree(issuer_context, comparison, reason)
    state = "would be in force" if dry_run else "in force"
    headline = (
        f"{issuer}: settings {state} as record {comparison.number + 1} ({comparison.sha256[:12]})"
    )
    shown: list[Part] = [headline, *changed]
    return Result(facts, shown, Step("check", issuer))
