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
    from flows.extensions.governance import in_force
    from flows.runs import identity


@entry(
    "agree",
    form=Form("agree", "agree: settings of {issuer}"),
    acts={"settings": ""},
    ungoverned=True,
)
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
    comparison = in_force.compared(issuer_context)
    changed = [redact(str(change)) for change in comparison.changed]
    facts = {
        "issuer": issuer,
        "record": comparison.number,
        "sha256": identity.digest(identity.canonical(comparison.toml)),
        "changes": changed,
        "dry_run": dry_run,
    }
    number = comparison.number
    if comparison.is_same:
        return Result(facts, [f"{issuer}: the settings are those in force (record {number})"])
    in_force.agree(issuer_context, comparison, reason)
    state = "would be in force" if dry_run else "in force"
    shown: list[Part] = [f"{issuer}: settings {state} as record {number + 1}", *changed]
    return Result(facts, shown, Step("check", issuer))
