"""How a run that was submitted, or would be, is shown: by submit, resend, renewal and backfill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flows.commands import on_first_use
from flows.commands.result import Part, Place, Table
from flows.steps import FOLDER, Step, counted

with on_first_use():
    from flows.reports import lists
    from flows.runs import context as contexts
    from flows.runs import keys
    from flows.submissions import rehearsal, submit
    from schemas import manifest, reasons


SEEN = "already have or await a link and are not sent"
GIVEN_UP = "are of cards that are given up and are not sent"
DELETED = "are marked as deleted and close their cards"
UNREADABLE = "are marked as deleted and close nothing: their cuid or card number cannot be read"
FATES = ("read", "submitted", "rejected", "ineligible", "duplicate", "suppressed")


def upload_step(issuer: str) -> Step:
    """Return the step after runs of an issuer were committed: the upload of what waits."""
    return Step("upload", issuer, to=FOLDER)


def outcome(
    runs: Sequence[tuple[manifest.Counts, int]], refused: Sequence[object] = (), sent: str = "sent"
) -> str:
    """Say in one sentence where the rows of runs (counts, chunks) went, and what is to upload."""
    chunks = sum(number for _, number in runs)
    read = _total(runs, "read")
    submitted_rows = _total(runs, "submitted")
    others = {
        "refused": _total(runs, "rejected"),
        "not eligible": _total(runs, "ineligible"),
        "duplicate": _total(runs, "duplicate"),
        "suppressed": _total(runs, "suppressed"),
    }
    unsent = [f"{rows:,} {fate}" for fate, rows in others.items() if rows]
    parts = [f"{read:,} read, {submitted_rows:,} {sent} in {counted(chunks, 'chunk')}"]
    if unsent:
        parts.append(", ".join(unsent))
    if refused:
        parts.append(f"{counted(len(refused), 'extract')} refused")
    if chunks and sent == "sent":
        parts.append(f"upload {chunks:,}")
    return "; ".join(parts)


def _total(runs: Sequence[tuple[manifest.Counts, int]], fate: str) -> int:
    return sum(getattr(counts, fate) for counts, _ in runs)


def run_facts(done: submit.Submitted) -> dict[str, Any]:
    """Return the facts of a committed run."""
    facts = done.manifest.model_dump(include={"run", "counts", "reasons", "repairs"})
    return {
        **facts,
        "already": done.already,
        "chunks": len(done.manifest.chunks),
        "remarks": list(done.remarks),
    }


def submitted(
    context: contexts.IssuerContext, done: submit.Submitted, headline: str = ""
) -> list[Part]:
    """Show where the rows of a committed run went, why rows were refused, and what to upload."""
    run = done.manifest.run
    tables = _tables(done.manifest)
    if done.already:
        return [f"{run}: already committed, nothing to do", *done.remarks, *tables]
    lines = _lines(context, done.manifest, headline)
    return [*done.remarks, *lines, *tables]


def _lines(
    context: contexts.IssuerContext, run: manifest.Manifest, headline: str
) -> Iterator[Part]:
    """Yield what came of a run that was committed now, and where its files are."""

    def place(key: str, text: str) -> Place:
        return Place(f"{context.issuer.root}/{key}", text)

    run_keys = keys.keys_of(run.run)
    counts = run.counts
    suppressed = {
        SEEN: reasons.seen_rows(run.reasons),
        GIVEN_UP: run.reasons.get(reasons.GIVEN_UP, 0),
        DELETED: run.reasons.get(reasons.DELETED, 0),
        UNREADABLE: run.reasons.get(reasons.UNREADABLE_DELETION, 0),
    }
    for why, rows in suppressed.items():
        if not rows:
            continue
        line = f"{rows:,} of {counts.read:,} rows {why}"
        has_list = not context.issuer.full_portfolio
        yield place(run_keys.report("suppressed.csv"), line) if has_list else line
    fates = ", ".join(f"{getattr(counts, fate):,} {fate}" for fate in FATES)
    yield f"{run.run}: {headline or fates}"
    yield from _set_aside(counts)
    yield place(run_keys.chunks, f"{counted(len(run.chunks), 'chunk')} to upload")
    if counts.rejected or counts.ineligible or counts.duplicate:
        yield place(run_keys.report("rejects.csv"), "rows not sent, each with its reason")


def _set_aside(counts: manifest.Counts) -> Iterator[str]:
    """Say how many lines are no rows, where there are others than those of the header."""
    kinds = {kind: (counts.set_aside or {}).get(kind, 0) for kind in manifest.ASIDE}
    shown = [f"{number:,} {kind}" for kind, number in kinds.items() if number]
    if sum(kinds.values()) > kinds["header"]:
        yield f"{counts.lines:,} lines: {counts.read:,} rows, {', '.join(shown)}"


def _tables(run: manifest.Manifest) -> list[Table]:
    """Return the tables of a run, which Prefect alone shows."""
    chunks = [
        (chunk.name, chunk.rows, chunk.bytes, chunk.sha256) for chunk in run.chunks[: lists.SHOWN]
    ]
    return [
        _fates(run.counts, f"{run.run}-rows", f"Where the rows of {run.run} went"),
        Table(
            ("reason", "rows", "what to do"),
            lists.reason_rows(run.reasons),
            f"{run.run}-reasons",
            "Reasons, with what to do",
            on_terminal=False,
        ),
        Table(
            ("upload", "rows", "bytes", "sha256"),
            chunks,
            f"{run.run}-chunks",
            f"To upload next, of {run.run}",
            on_terminal=False,
        ),
    ]


def would_send(checked: rehearsal.Checked) -> list[Part]:
    """Show what a real run would send, where the other rows would go and why.

    Or what would stop it.
    """
    if checked.already:
        return [checked.verdict]
    fates = _fates(
        checked.counts,
        f"{checked.run}-dry-rows",
        f"Dry run: where the rows of {checked.run} would go",
    )
    shown: list[Part] = [checked.verdict, "", fates._replace(on_terminal=True)]
    shown += _set_aside(checked.counts)
    if checked.others:
        shown += ["", checked.others]
    if checked.found:
        shown.append("")
    shown += [_reasons(checked), _chunks(checked)]
    for name, rows in checked.repairs.items():
        if rows:
            shown.append(f"repaired: {name} in {counted(rows, 'row')}")
    return shown


def _reasons(checked: rehearsal.Checked) -> Table:
    rows = []
    for reason in checked.found:
        first_lines = ", ".join(map(str, reason.lines))
        rows.append([reason.code, reason.rows, first_lines, reasons.reason(reason.code).action])
    return Table(
        ("reason", "rows", "first lines", "what to do"),
        rows,
        f"{checked.run}-dry-reasons",
        "Dry run: reasons, with what to do",
        on_terminal=bool(rows),
    )


def _chunks(checked: rehearsal.Checked) -> Table:
    sizes = () if checked.refused else checked.chunk_rows[: lists.SHOWN]
    return Table(
        ("chunk", "rows"),
        [*enumerate(sizes, 1)],
        f"{checked.run}-dry-chunks",
        "Dry run: what would be sent",
        on_terminal=False,
    )


def _fates(counts: manifest.Counts, key: str, title: str) -> Table:
    rows = [(fate, getattr(counts, fate)) for fate in FATES]
    return Table(("rows", "count"), rows, key, title, on_terminal=False)
