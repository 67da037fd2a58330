"""The report of a run, its history and its lists: shown, or brought to a folder."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field, RunName
from flows.commands.private_files import write_new, write_whole
from flows.commands.result import Part, Result
from flows.commands.results import report_of
from flows.steps import WHY, Sentence, Step, counted

with on_first_use():
    from flows.operations import history as run_history
    from flows.reports import page, rebuild
    from flows.resend import template as templates
    from flows.runs import context as contexts
    from flows.runs import frames, keys, stored_run
    from flows.runs import store as stores
    from schemas import corrections

PAGE = "report.html"
PIECE = 1 << 20  # bytes of a file that are copied at a time
BOM = "\ufeff".encode()  # a spreadsheet that reads it saves UTF-8


@entry("report", form="the form of `ingest` rebuilds the report of a run")
def report(
    context: Context,
    run: RunName,
    *,
    to: Annotated[Path | None, Field(folder=True)] = None,
    history: bool = False,
) -> Result:
    """Rebuild the report of RUN from its ledger and results, and print its balance.

    With --history who did what, when; with --to everything about the run as files.

    Args:
        to: The folder to bring report, workbook, lists, history and the template for corrections
            to, from S3 too. A template that is there already stays as it is.
        history: Show its audit trail instead, from its first plan to its last result.

    Example:
        cardlink report first-bank-20261120-3f9c21aa --to report
    """
    if history and to is None:
        return history_of(context, run)
    issuer_context = context.context_of(run)
    stored = stored_run.StoredRun.by_id(issuer_context.adapters, run)
    built = rebuild.rebuild(issuer_context, stored)
    shown = report_of(issuer_context, built.summary)
    return shown if to is None else _brought(issuer_context, run, to, shown)


def history_of(context: Context, run: str) -> Result:
    """Show who did what to a run."""
    events = run_history.history(context.context_of(run).adapters, run)
    lines = list(chain.from_iterable(map(_event_lines, events)))
    return Result({"run": run, "history": [event._asdict() for event in events]}, lines)


def _event_lines(event: run_history.HistoryEvent) -> Iterator[str]:
    moment = event.at[:19].replace("T", " ")
    by = f" by {event.by}" if event.by else ""
    yield f"{moment}  {event.what}{by}"
    for name, value in event.facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        yield f"    {name}: {text}"


def _brought(context: contexts.IssuerContext, run: str, folder: Path, shown: Result) -> Result:
    """Bring the files of a run's report to a folder; return its report with their names."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = [*_report_files(context, run, folder), _history_file(context, run, folder)]
    template = folder / f"{run}-corrections.csv"
    is_filled_in = template.exists()
    lines = 0 if is_filled_in else _template(context, run, template)
    if lines:
        names.append(template.name)
    parts: list[Part] = [*shown.shown, "", f"{counted(len(names), 'file')} in {folder}:", *names]
    if is_filled_in:
        parts.append(f"{template} was there already and stays as it is")
    if template.exists():
        step = Step("resubmit", run, corrections=template, reason=WHY, dry_run=True)
        parts.append(Sentence("once the template is filled in: {step:bare}", step=step))
    facts: dict[str, Any] = {**shown.facts, "folder": str(folder), "files": names}
    return shown._replace(facts=facts, shown=parts)


def _report_files(context: contexts.IssuerContext, run: str, folder: Path) -> list[str]:
    """Copy the files of a run's report; return their names."""
    store = context.adapters.store
    prefix = keys.keys_of(run).report("")
    listed = (entry.key.removeprefix(prefix) for entry in store.keys(prefix, shallow=True))
    names = sorted(name for name in listed if "/" not in name)  # what it is made of is below
    for name in names:
        pieces = _content(store, f"{prefix}{name}")
        if name == PAGE:
            pieces = iter([page.without_links_out(b"".join(pieces))])
        write_whole(folder / name, pieces)
    return names


def _content(store: stores.Store, key: str) -> Iterator[bytes]:
    with store.open(key) as source:
        yield from iter(lambda: source.read(PIECE), b"")


def _history_file(context: contexts.IssuerContext, run: str, folder: Path) -> str:
    """Write the history of a run; return the file's name."""
    events = run_history.history(context.adapters, run)
    lines = chain.from_iterable(map(_event_lines, events))
    write_whole(folder / "history.txt", (f"{line}\n".encode() for line in lines))
    return "history.txt"


def _template(context: contexts.IssuerContext, run: str, path: Path) -> int:
    """Write the template for corrections of a run, if it has lines; return how many."""
    rows = list(templates.correction_template(context, run))
    lines = sum(frame.height for frame in rows)
    if lines:
        write_new(path, [BOM, *frames.csv_pieces(rows, corrections.Template.dtypes())])
    return lines
