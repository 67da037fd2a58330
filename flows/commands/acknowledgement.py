"""Tell an issuer what became of its extracts."""

from __future__ import annotations

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Issuer, Number, Reason
from flows.commands.result import Part, Place, Result
from flows.errors import CardlinkError
from flows.steps import Sentence, Step
from flows.wiring import wire

with on_first_use():
    from flows.operations import acknowledgement as acknowledging
    from flows.runs import context as contexts
    from flows.runs import keys

ACKNOWLEDGE = Form(
    "acknowledge",
    "acknowledgements of {issuer}",
    retries=(10, 60),
)
LEFT_OUT = {"files", "folder"}  # of a record's facts: they begin with the moment
NOT_WANTED = "no [acknowledgement] in its TOML: the issuer is told nothing"


@entry("acknowledge", form=ACKNOWLEDGE)
def acknowledge(
    context: Context,
    issuer: Issuer,
    *,
    confirm: Number | None = None,
    reason: Reason = "",
    dry_run: DryRun = False,
) -> Result:
    """Tell ISSUER what became of its extracts, as far as that is new; `submit` and `ingest` do so
    at their end.

    Args:
        issuer: Whose extracts. `[acknowledgement]` says where the files go, and to whom they are
            sealed.
        confirm: Record that the issuer has this acknowledgement and those before it; then give the
            reason, such as its receipt.

    Example:
        cardlink acknowledge first-bank --dry-run
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    facts = {"issuer": issuer, "dry_run": dry_run}
    if confirm is not None:
        confirmed = acknowledging.confirm(issuer_context, confirm, reason)
        line = (
            f"{issuer}: acknowledgement {confirm} confirmed by {confirmed.by}: {confirmed.reason}"
        )
        facts |= {"number": confirm, **confirmed.model_dump(mode="json")}
        recording = Step("acknowledge", issuer, confirm=confirm, reason=reason)
        return Result(facts, [_marked(line, dry_run)], recording if dry_run else None)
    if issuer_context.issuer.acknowledgement is None:
        return Result({**facts, "told": []}, [f"{issuer}: {NOT_WANTED}"])
    facts_told, lines = tell(issuer_context, dry_run=dry_run)
    nothing = _marked(f"{issuer}: nothing new to tell the issuer", dry_run)
    next_step = Step("acknowledge", issuer) if dry_run and lines else None
    return Result({**facts, "told": facts_told}, lines or [nothing], next_step)


def tell(
    context: contexts.IssuerContext, *, dry_run: bool = False
) -> tuple[list[dict[str, object]], list[Place]]:
    """Tell an issuer what is new of its extracts; return that as facts and as lines."""
    if context.issuer.acknowledgement is None:
        return [], []
    written = acknowledging.acknowledge(context)
    acknowledging.take_receipts(context)
    facts = [
        {"number": each.number, **each.record.model_dump(mode="json", exclude=LEFT_OUT)}
        for each in written
    ]
    return facts, [_line(context, each, dry_run=dry_run) for each in written]


def with_acknowledgements(context: contexts.IssuerContext, result: Result) -> Result:
    """Return the result of a command, with what the issuer was told because of it.

    Where it cannot be told, that is said, and the command is done all the same.
    """
    try:
        written, lines = tell(context)
    except CardlinkError as error:
        failed = Sentence("the issuer was not told: {error}", error=error.text)
        facts = {**result.facts, "not_acknowledged": str(error.text)}
        return result._replace(facts=facts, shown=[*result.shown, failed])
    if not written:
        return result
    shown: list[Part] = [*result.shown, *lines]
    return result._replace(facts={**result.facts, "acknowledgements": written}, shown=shown)


def _line(context: contexts.IssuerContext, written: acknowledging.Told, *, dry_run: bool) -> Place:
    record = written.record
    counts = ", ".join(f"{number:,} {status}" for status, number in record.rows.items() if number)
    place = context.issuer.acknowledgement.to if context.issuer.acknowledgement else None
    issuer = context.issuer.issuer
    folder = f"{place or f'{context.issuer.root}/{keys.acknowledgements(issuer)}'}".rstrip("/")
    rows = f" ({counts})" if counts else ""
    line = f"{issuer}: acknowledgement {written.number} of {record.extract}: {record.status}{rows}"
    path = "" if dry_run else f"{folder}/{record.folder}"
    return Place(path, _marked(line, dry_run))


def _marked(line: str, dry_run: bool) -> str:
    return f"dry run, nothing was written: {line}" if dry_run else line
