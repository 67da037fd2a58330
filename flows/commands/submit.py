"""Take extracts to sealed chunks: what `nightly` does each night, for one extract or all that are
new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, get_args

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import DRY_OR_SEND, Choice, Form
from flows.commands.parameters import Day, ExtractName, Field, Issuer, Reason
from flows.commands.result import Part, Result, Table, counted
from flows.errors import CardlinkError, ExtractError
from flows.steps import Sentence, Step
from flows.wiring import wire
from schemas.actions import Gate

with on_first_use():
    from flows.reports import lists
    from flows.runs import context as contexts
    from flows.runs import keys as run_keys
    from flows.runs import prior_state
    from flows.submissions import extract_states, plan, rehearsal
    from flows.submissions import submit as step
    from schemas import manifest, reasons

SEEN = "already have or await a link and are not sent"
LONGEST = 6.0  # hours: tens of millions of rows take one
FATES = ("read", "submitted", "rejected", "duplicate", "suppressed")
OPEN_GATE = Choice(
    "open_gate",
    "A gate that this run may pass, after asking the issuer; recorded with the run.",
    {
        "none": {},
        **{gate: {"opened": (gate,)} for gate in get_args(Gate)},
        "all": {"opened": get_args(Gate)},
    },
)
RERUN = Form(
    "rerun",
    "{mode}: {extract}",
    LONGEST,
    needs=("extract",),
    choices=(DRY_OR_SEND, OPEN_GATE),
    retries=(10, 60, 300),
)


@entry("submit", form=RERUN, second="gates", when="opened")
def submit(
    context: Context,
    issuer: Issuer,
    *,
    extract: ExtractName = "",
    business_date: Day = None,
    opened: Annotated[Sequence[Gate], Field("--open")] = (),
    new_run_reason: Annotated[Reason, Field("--new-run", "REASON")] = "",
    dry_run: bool = False,
) -> Result:
    """Submit extracts: validate every row, seal the chunks, commit them for upload.

    Args:
        issuer: Whose extracts.
        extract: An extract by its name below the issuer's extracts, such as
            first-bank-20261120.csv; a command without it takes all that are not submitted yet.
        business_date: The day the cards must be valid on, if the extract's name does not say it.
        opened: A gate that this run may pass; recorded with the run.
        new_run_reason: Why an extract that already has a run gets another one. Refused while a
            chunk of the earlier run is waiting, uploaded or answered: its cards would be sent
            twice.
        dry_run: Check every row and show exactly what would be sent; write nothing.
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    found = [] if extract else extract_states.unsubmitted(issuer_context, remember=not dry_run)
    names = [extract] if extract else [entry.key for entry, waits in found if not waits]
    waiting = [f"{entry.key} is not taken yet: {waits}" for entry, waits in found if waits]
    requests = [step.Request(name, business_date, opened, new_run_reason) for name in names]
    rehearsed, done = list[rehearsal.Checked](), list[step.Submitted]()
    refused: list[CardlinkError] = []
    for request in requests:  # a refused extract does not stop the others
        try:
            if dry_run:
                rehearsed.append(rehearsal.rehearse(issuer_context, request))
                continue
            step.refuse_resend(issuer_context, request)
            with context.progress(request.extract.rpartition("/")[2]) as progress:
                done.append(step.submit(issuer_context, request, progress))
        except CardlinkError as error:
            if isinstance(error, ExtractError) and not _dismisses(error):
                error.advice.append(
                    Sentence(
                        "If it comes under another name, drop this one: {dismiss}.",
                        dismiss=plan.dismiss_step(request.extract),
                    )
                )
            refused.append(error)
            if len(requests) == 1:
                raise
    if dry_run:
        return _rehearsed(issuer, rehearsed, refused)
    facts = {
        "issuer": issuer,
        "runs": [run_facts(one) for one in done],
        "refused": [str(error.text) for error in refused],
    }
    facts["waiting"] = waiting
    if not requests:
        return Result(
            facts, waiting or [f"{issuer}: no new extract to submit"], Step("ingest", issuer)
        )
    shown = [part for one in done for part in submitted(issuer_context, one)]
    shown += [*map(_refused, refused), *waiting]
    code = max((one.exit_code for one in refused), default=0)
    new = [one.manifest for one in done if not one.already]
    headline = outcome([(one.counts, len(one.chunks)) for one in new], refused) if new else ""
    return Result(facts, shown, Step("outbox list", issuer), code, issuer, headline)


def outcome(
    runs: Sequence[tuple[manifest.Counts, int]], refused: Sequence[object] = (), sent: str = "sent"
) -> str:
    """Say in one sentence where the rows of runs (counts, chunks) went, and how many chunks are to
    upload.
    """
    read, submitted, rejected, duplicate, suppressed = (
        sum(getattr(one, fate) for one, _ in runs) for fate in FATES
    )
    chunks = sum(number for _, number in runs)
    others = {"refused": rejected, "duplicate": duplicate, "suppressed": suppressed}
    rest = ", ".join(f"{rows:,} {fate}" for fate, rows in others.items() if rows)
    parts = [f"{read:,} read, {submitted:,} {sent} in {counted(chunks, 'chunk')}", rest]
    parts += [f"{counted(len(refused), 'extract')} refused" if refused else ""]
    return "; ".join(
        part for part in (*parts, f"upload {chunks:,}" if chunks and sent == "sent" else "") if part
    )


def run_facts(done: step.Submitted) -> dict[str, Any]:
    """Return the facts of a committed run."""
    facts = done.manifest.model_dump(include={"run", "counts", "reasons", "repairs"})
    return {
        **facts,
        "already": done.already,
        "chunks": len(done.manifest.chunks),
        "remarks": list(done.remarks),
    }


def submitted(
    context: contexts.IssuerContext, done: step.Submitted, headline: str = ""
) -> list[Part]:
    """Show where the rows of a committed run went, why rows were refused, and what to upload
    next.
    """
    root, run, counts = context.issuer.root, done.manifest.run, done.manifest.counts
    keys = run_keys.keys_of(run)
    why, title = (
        lists.reason_rows(done.manifest.reasons),
        f"To upload next, from {root}/{keys.chunks}",
    )
    sealed = [
        (one.name, one.rows, one.bytes, one.sha256) for one in done.manifest.chunks[: lists.SHOWN]
    ]
    tables: list[Part] = [
        _fates(counts, f"{run}-rows", f"Where the rows of {run} went", on_terminal=False),
        Table(
            ("reason", "rows", "what to do"),
            why,
            f"{run}-reasons",
            "Reasons, with what to do",
            False,
        ),
        Table(("upload", "rows", "bytes", "sha256"), sealed, f"{run}-chunks", title, False),
    ]
    if done.already:
        return [f"{run}: already committed, nothing to do", *done.remarks, *tables]
    seen = prior_state.seen_rows(done.manifest.reasons)
    lines = [
        *done.remarks,
        *(
            [f"{seen:,} of {counts.read:,} rows {SEEN}: {root}/{keys.report('held.csv')}"]
            if seen
            else []
        ),
        f"{run}: {headline or ', '.join(f'{getattr(counts, fate):,} {fate}' for fate in FATES)}",
        f"{counted(len(done.manifest.chunks), 'chunk')} to upload: {root}/{keys.chunks}",
    ]
    if counts.rejected or counts.duplicate:
        lines.append(f"rows not sent, each with its reason: {root}/{keys.report('rejects.csv')}")
    return [*lines, *tables]


def _fates(counts: manifest.Counts, key: str, title: str, *, on_terminal: bool = True) -> Table:
    return Table(
        ("rows", "count"),
        [(fate, getattr(counts, fate)) for fate in FATES],
        key,
        title,
        on_terminal,
    )


def _rehearsed(
    issuer: str, done: Sequence[rehearsal.Checked], errors: Sequence[CardlinkError]
) -> Result:
    """Show what each extract would send, and what would stop it."""
    refused, each = [str(error.text) for error in errors], [one.facts for one in done]
    facts = {"issuer": issuer, "dry_run": True, "extracts": each, "refused": refused}
    shown = [part for one in done for part in would_send(one)]
    shown += map(_refused, errors)
    code = max(
        [3 if one.refused else 0 for one in done] + [error.exit_code for error in errors], default=0
    )
    shown = ["Dry run: nothing was written", *(shown or [f"{issuer}: no new extract to submit"])]
    sent = [one for one in done if not one.already and not one.refused]
    sums = [(one.counts, one.chunks) for one in sent]
    verdict = (
        outcome(sums, sent="would be sent")
        if sent
        else str(done[0].verdict)
        if done
        else "nothing to submit"
    )
    next_step = Step("submit", issuer) if sent and not code else None
    return Result(facts, shown, next_step, code, headline=f"dry run: {verdict}")


def _dismisses(error: CardlinkError) -> bool:
    """Return whether the error advises already to dismiss the extract."""
    return any(step.entry == "dismiss" for step in error.text.steps)


def _refused(error: CardlinkError) -> Sentence:
    return Sentence("refused: {error}", error=error.text)


def would_send(checked: rehearsal.Checked) -> list[Part]:
    """Show what a real run would send, where the other rows would go and why, or what would stop
    it.
    """
    run = checked.run
    found = [
        [one.code, one.rows, ", ".join(map(str, one.first)), reasons.reason(one.code).action]
        for one in checked.found
    ]
    columns = ("reason", "rows", "first rows", "what to do")
    if checked.already:
        return [checked.verdict]
    sizes = () if checked.refused else checked.chunk_rows[: lists.SHOWN]
    return [
        checked.verdict,
        "",
        _fates(checked.counts, f"{run}-dry-rows", f"Dry run: where the rows of {run} would go"),
        *([""] if found else []),
        Table(
            columns,
            found,
            f"{run}-dry-reasons",
            "Dry run: reasons, with what to do",
            on_terminal=bool(found),
        ),
        Table(
            ("chunk", "rows"),
            [*enumerate(sizes, 1)],
            f"{run}-dry-chunks",
            "Dry run: what would be sent",
            False,
        ),
        *(
            f"repaired: {name} in {number:,} rows"
            for name, number in checked.repairs.items()
            if number
        ),
    ]
