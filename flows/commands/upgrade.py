"""Let a version write what the one before it cannot read any more."""

from __future__ import annotations

from flows import __version__
from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import DryRun, Issuer, Reason
from flows.commands.result import Part, Result
from flows.steps import Step
from flows.wiring import wire

with on_first_use():
    from flows.operations import stored_format
    from flows.runs import formats

NO_FORM = "who installs a version runs it, once every machine has that version"


@entry("upgrade", form=NO_FORM, second={"upgrade": ""})
def upgrade(context: Context, issuer: Issuer, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """Write what is stored of ISSUER in the newest format from now on; there is no way back.

    Until then a version writes what the one before it reads, so that it can be installed again.
    What is stored stays as it is. Run it once every machine has this version, and has had it for
    some nights; a machine with an earlier one is refused from then on.

    Example:
        cardlink upgrade first-bank --reason 'a week without trouble' --dry-run
    """
    upgraded = stored_format.upgrade_format(wire(context.folder, issuer, dry_run=dry_run), reason)
    changes = [_line(change) for change in upgraded.changes]
    facts = {
        "issuer": issuer,
        "before": upgraded.before,
        "format": formats.NEWEST,
        "release": __version__,
        "changes": changes,
        "dry_run": dry_run,
    }
    if not changes:
        newest = f"format {upgraded.before}, the newest that cardlink {__version__} writes"
        return Result(facts, [f"{issuer} is stored in {newest}: nothing to do"])
    state = "would be written" if dry_run else "is written"
    headline = f"{issuer} {state} in format {formats.NEWEST} from now on; it was {upgraded.before}"
    shown: list[Part] = [headline, *changes]
    return Result(facts, shown, Step("check", issuer))


def _line(change: formats.Change) -> str:
    return f"format {change.number}, of {change.release}: {change.what}; back: {change.back}"
