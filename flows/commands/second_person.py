"""A command that needs a second person: one requests it, another carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.result import Result
from flows.configuration import load_issuer
from flows.steps import YOUR_NAME
from flows.wiring import acting, wire

with on_first_use():
    from flows.operations import four_eyes
    from flows.runs import identity, keys
    from schemas import records, settings

if TYPE_CHECKING:
    from flows.commands.entry import Entry

WAITING = 3  # exit code where a second person is needed
FILES = ("extract", "corrections", "key", "answers")  # parameters that name a file
REASONS = ("override_reason", "override", "reason")


def run_by_two(
    entry: Entry[...], context: Context, actor: str, values: Mapping[str, Any], act: settings.Act
) -> Result:
    """Run a command as an act that needs a second person where its issuer's settings say so.

    Without a request of another person it is stored as one, and nothing is done. `values` are those
    of its parameters by name.
    """
    issuers = _issuers_that_need_two(context, values, act)
    if not issuers:
        return entry.run_with(context, values)
    issuer_context = wire(context.folder, issuers[0])
    command = _command(entry, context, actor, values, act)
    if not context.approve:
        would = _rehearsed(entry, context, values)  # what would be refused is not requested
        number, record = four_eyes.request(issuer_context, command)
        next_step = entry.step(values).adding(approve=number, actor=YOUR_NAME)
        return _requested(number, record, would)._replace(next_step=next_step)
    with (
        four_eyes.carrying_out(issuer_context, context.approve, command) as requester,
        acting(f"{actor} for {requester}"),
    ):
        return entry.run_with(context, values)


def _issuers_that_need_two(
    context: Context, values: Mapping[str, Any], act: settings.Act
) -> list[str]:
    """Return the issuers whose settings want a second person for the act; of a run, its own."""
    target = values.get("target")
    named = str(values.get("run") or target or "")
    run = keys.RunId.parse(named)
    name = run.issuer if run else values.get("issuer") or named
    issuers, _ = context.each(name, lambda issuer: [load_issuer(context.folder, issuer)])
    return [issuer.issuer for issuer in issuers if act in issuer.four_eyes.acts]


def _command(
    entry: Entry[...], context: Context, actor: str, values: Mapping[str, Any], act: settings.Act
) -> four_eyes.Command:
    """Return the command as it is requested: its line, and the files it must be run with."""
    files = _set(values, FILES)
    if act == "gates" and not files:
        files = [""]  # without a name, a gate is opened for every extract
    digests = _digests(files) if context.local_files else []
    reason = next(iter(_set(values, REASONS)), "")
    return four_eyes.Command(act, entry.step(values).line(), files, digests, actor, reason)


def _set(values: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the values of these parameters that are set."""
    return [str(values[name]) for name in names if values.get(name)]


def _digests(files: Sequence[str]) -> list[str]:
    """Return the digests of those files that are on this machine."""
    paths = [Path(file) for file in files]
    return [identity.digest(path.read_bytes()) for path in paths if path.is_file()]


def _rehearsed(entry: Entry[...], context: Context, values: Mapping[str, Any]) -> Result:
    """Return what the command would do, as its dry run says; nothing where it has none."""
    if not entry.has_parameter("dry_run"):
        return Result({})
    return entry.run_with(context, {**values, "dry_run": True})


def _requested(number: str, record: records.Approval, would: Result) -> Result:
    """Show a stored request, and what the command would do."""
    state = (
        f"request {number} of {record.actor}: nothing has been done yet; "
        f"a second person must carry it out by {record.until:%Y-%m-%d %H:%M} UTC"
    )
    facts = {
        "request": number,
        "until": record.until.isoformat(),
        "digest": record.digest,
        "would": would.facts,
    }
    return Result(facts, [state, *would.shown], exit_code=WAITING)
