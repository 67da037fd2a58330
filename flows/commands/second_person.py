"""A command that needs a second person: one requests it, another carries it out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.result import Result
from flows.configuration import load_issuer
from flows.steps import YOUR_NAME
from flows.wiring import acting, signatures, wire

with on_first_use():
    from flows.operations import four_eyes, settings_in_force
    from flows.runs import context as contexts
    from flows.runs import identity, keys, shown_rows
    from schemas import records, settings

if TYPE_CHECKING:
    from flows.commands.entry import Entry

WAITING = 3  # exit code where a second person is needed
FILES = (
    "extract",
    "corrections",
    "key",
    "answers",
    "result",
    "rows",
)  # parameters that name a file
REASONS = ("override_reason", "override", "reason")


def run_by_two(
    entry: Entry[...],
    context: Context,
    actor: str,
    values: Mapping[str, Any],
    acts: Collection[settings.Act],
) -> Result:
    """Run a command that is these acts, of which its issuer's settings may want two persons.

    Without a request of another person it is stored as one, and nothing is done. `values` are those
    of its parameters by name.
    """
    issuer, act = _needed(entry, context, values, acts)
    if act is None:
        return entry.run_with(context, values)
    issuer_context = _issuer_context(context, issuer, act)
    rehearsals = list[Result]()

    def rehearse() -> Mapping[str, Any]:
        rehearsals.append(_rehearsed(entry, context, issuer, values))
        return rehearsals[-1].facts

    in_force = settings_in_force.compared(issuer_context)
    proofs: four_eyes.Signatures | None = None
    if in_force.persons:
        at_hand = context.local_files
        proofs = signatures(context.folder, in_force.persons, at_hand=at_hand)
    command = _command(entry, context, actor, values, act)
    command = command._replace(hours=in_force.hours, rehearse=rehearse, signatures=proofs)
    if not context.approve:
        # what would be refused is not requested
        number, record = four_eyes.request(issuer_context, command)
        next_step = entry.step(values).adding(approve=number, actor=YOUR_NAME)
        return _requested(number, record, rehearsals[-1])._replace(next_step=next_step)
    with (
        four_eyes.carrying_out(issuer_context, context.approve, command) as requester,
        acting(f"{actor} for {requester}"),
    ):
        return entry.run_with(context, values)


class _Needed(NamedTuple):
    """An issuer whose settings want a second person, and for which act; None: no issuer does."""

    issuer: str = ""
    act: settings.Act | None = None


def _needed(
    entry: Entry[...], context: Context, values: Mapping[str, Any], acts: Collection[settings.Act]
) -> _Needed:
    """Return the first issuer whose settings want a second person for an act; of a run, its own."""
    target = values.get("target")
    named = str(values.get("run") or target or "")
    run = keys.RunId.parse(named)
    name = run.issuer if run else values.get("issuer") or named

    def needing_two(issuer: str) -> list[_Needed]:
        if "settings" in acts:  # by those in force, not by the file at hand
            comparison = settings_in_force.compared(wire(context.folder, issuer))
            return [_Needed(issuer, "settings")] if comparison.needing_two else []
        acts_of_two = load_issuer(context.folder, issuer).four_eyes.acts
        return [_Needed(issuer, act) for act in acts if act in acts_of_two]

    named_acts, _ = context.each(name, needing_two)
    for needed in named_acts:
        if needed.act and entry.is_act(needed.act, context, needed.issuer, values):
            return needed
    return _Needed()


def _issuer_context(context: Context, issuer: str, act: settings.Act) -> contexts.IssuerContext:
    """Return the context of an issuer, which names the settings in force."""
    issuer_context = wire(context.folder, issuer)
    if act != "settings":
        return issuer_context
    last = settings_in_force.compared(issuer_context).last
    return issuer_context._replace(settings_in_force=last.sha256 if last else "")


def _command(
    entry: Entry[...], context: Context, actor: str, values: Mapping[str, Any], act: settings.Act
) -> four_eyes.Command:
    """Return the command as it is requested: its line, and the files it must be run with."""
    files = _set(values, FILES)
    if act == "gates" and not files:
        files = [""]  # without a name, a gate is opened for every extract
    parameters = {
        parameter.name: values[parameter.name]
        for parameter in entry.parameters
        if parameter.is_set(values.get(parameter.name))
    }
    return four_eyes.Command(
        act=act,
        line=entry.step(values).line(),
        parameters={"command": entry.name, **parameters},
        files=files,
        local=_digests(files) if context.local_files else {},
        actor=actor,
        reason=next(iter(_set(values, REASONS)), ""),
    )


def _set(values: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the values of these parameters that are set."""
    return [str(values[name]) for name in names if values.get(name)]


def _digests(files: Sequence[str]) -> dict[str, str]:
    """Return the digests of those files that are on this machine, by name."""
    paths = [Path(file) for file in files]
    return {path.name: identity.digest(path.read_bytes()) for path in paths if path.is_file()}


def _rehearsed(
    entry: Entry[...], context: Context, issuer: str, values: Mapping[str, Any]
) -> Result:
    """Return what the command would do, as its dry run says; nothing where it has none."""
    if not entry.has_parameter("dry_run"):
        return Result({})
    rehearsed = entry.run_with(context, {**values, "dry_run": True})
    if rehearsed.rows is not None:  # what nobody could carry out is not requested
        place = str(values["run"])
        shown_rows.refuse_other_rows(issuer, place, rehearsed.rows, values.get("rows", ""))
    return rehearsed


def _requested(number: str, record: records.Request, would: Result) -> Result:
    """Show a stored request, and what the command would do."""
    state = (
        f"request {number} of {record.actor}: nothing has been done yet; "
        f"a second person must carry it out by {record.until:%Y-%m-%d %H:%M} UTC: "
        f"anybody but {record.actor} whose name CARDLINK_ACTORS accepts"
    )
    facts = {
        "request": number,
        "until": record.until.isoformat(),
        "digest": record.digest,
        "would": would.facts,
    }
    return Result(facts, [state, *would.shown], exit_code=WAITING)
