"""What happens before an act: whether its issuer wants two persons, and then what of it is done."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flows.commands.context import Context
from flows.commands.entry import Entry
from flows.commands.result import Result
from flows.configuration import load_issuer
from flows.extensions.governance.in_force import compared
from flows.extensions.governance.requests import Request
from flows.extensions.governance.settings import FourEyes
from flows.extensions.governance.signatures import signatures
from flows.extensions.governance.two_persons import Command, carrying_out, request
from flows.runs.identity import digest
from flows.runs.keys import RunId
from flows.runs.shown_rows import refuse_other_rows
from flows.steps import YOUR_NAME
from flows.wiring import acting, wire
from schemas.settings import Act

WAITING = 3  # exit code where a second person is needed
# parameters that name a file, and those that say why
FILES = ("extract", "corrections", "key", "answers", "result", "rows")
REASONS = ("override_reason", "override", "reason")

Values = Mapping[str, Any]


def before_act(
    entry: Entry[...], context: Context, actor: str, values: Values, acts: Collection[Act]
) -> Result | None:
    """Run a command by two persons, if it is an act for which its issuer's settings want them.

    Without a request of another person it is stored as one, and nothing is done.
    """
    needed = _needed(entry, context, values, acts)
    if needed is None:
        return None
    issuer_context = wire(context.folder, needed.issuer)
    rehearsals = list[Result]()

    def rehearse() -> Values:
        rehearsals.append(_rehearsed(entry, context, needed.issuer, values))
        return rehearsals[-1].facts

    files = _set(values, FILES)
    if needed.act == "gates" and not files:
        files = [""]  # without a name, a gate is opened for every extract
    settings = compared(issuer_context)
    proofs = None
    if settings.persons:
        proofs = signatures(context.folder, settings.persons, at_hand=context.local_files)
    command = Command(
        act=needed.act,
        line=entry.step(values).line(),
        parameters={"command": entry.name, **_parameters(entry, values)},
        files=files,
        local=_digests(files) if context.local_files else {},
        actor=actor,
        reason=next(iter(_set(values, REASONS)), ""),
        settings=settings,
        rehearse=rehearse,
        signatures=proofs,
    )
    number = context.options.get("approve")
    if number:
        with (
            carrying_out(issuer_context, number, command) as requester,
            acting(f"{actor} for {requester}"),
        ):
            return entry.run_with(context, values)
    stored = request(issuer_context, command)
    return _requested(entry, values, stored, rehearsals[-1])


class _Needed(NamedTuple):
    """An issuer whose settings want a second person, and for which act."""

    issuer: str
    act: Act


def _needed(
    entry: Entry[...], context: Context, values: Values, acts: Collection[Act]
) -> _Needed | None:
    """Return the first issuer whose settings want a second person for an act; of a run, its own."""
    target = values.get("target")
    named = str(values.get("run") or target or "")
    run = RunId.parse(named)
    name = run.issuer if run else values.get("issuer") or named

    def needing_two(issuer: str) -> list[_Needed]:
        if "settings" in acts:  # by those in force, not by the file at hand
            comparison = compared(wire(context.folder, issuer))
            return [_Needed(issuer, "settings")] if comparison.needing_two else []
        four_eyes = load_issuer(context.folder, issuer).table(FourEyes) or FourEyes()
        return [_Needed(issuer, act) for act in acts if act in four_eyes.acts]

    needed, _ = context.each(name, needing_two)
    are_acts = (each for each in needed if entry.is_act(each.act, context, each.issuer, values))
    return next(are_acts, None)


def _parameters(entry: Entry[...], values: Values) -> dict[str, Any]:
    return {
        parameter.name: values[parameter.name]
        for parameter in entry.parameters
        if parameter.is_set(values.get(parameter.name))
    }


def _set(values: Values, names: Sequence[str]) -> list[str]:
    """Return the values of these parameters that are set."""
    return [str(values[name]) for name in names if values.get(name)]


def _digests(files: Sequence[str]) -> dict[str, str]:
    """Return the digests of those files that are on this machine, by name."""
    paths = [Path(file) for file in files]
    return {path.name: digest(path.read_bytes()) for path in paths if path.is_file()}


def _rehearsed(entry: Entry[...], context: Context, issuer: str, values: Values) -> Result:
    """Return what the command would do, as its dry run says; nothing where it has none."""
    if not entry.has_parameter("dry_run"):
        return Result({})
    rehearsed = entry.run_with(context, {**values, "dry_run": True})
    if rehearsed.rows is not None:  # what nobody could carry out is not requested
        refuse_other_rows(issuer, str(values["run"]), rehearsed.rows, values.get("rows", ""))
    return rehearsed


def _requested(entry: Entry[...], values: Values, stored: Request, would: Result) -> Result:
    """Show a stored request, and what the command would do."""
    state = (
        f"request {stored.number} of {stored.actor}: nothing has been done yet; "
        f"a second person must carry it out by {stored.until:%Y-%m-%d %H:%M} UTC: "
        f"anybody but {stored.actor} whose name CARDLINK_ACTORS accepts"
    )
    facts = {"request": stored.number, "until": stored.until.isoformat(), "would": would.facts}
    next_step = entry.step(values).adding(approve=stored.number, actor=YOUR_NAME)
    return Result(facts, [state, *would.shown], next_step, WAITING)
