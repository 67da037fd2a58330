"""The Prefect flow of each entry that has a form: its fields, help, checks and choices come from the entry.

A flow runs the verb, retries passing trouble where its form says so, and shows the result as log lines and artifacts.
"""

# Prefect makes a form from a flow's signature when the flow is imported, so names such as those of the issuers are read
# then: the one thing this package does at import. A new issuer stands in the forms after the next `prefect deploy`.
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from prefect import Flow, flow, get_run_logger, task
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task
from pydantic import Field

from flows.commands.entry import REQUIRED, Context, Entry, Form, OneOf, Parameter, Range, Text
from flows.commands.every import ENTRIES
from flows.commands.outbox import outbox_list
from flows.commands.result import Link, Result, Table
from flows.errors import TryAgainError, guarded
from flows.submissions.build import Progress, describe_pace
from flows.wiring import config_folder

LINES = 20  # of a result that are logged; its artifact has them all
NONE = "none"  # how a list of names offers to leave it
Facts = dict[str, Any]


def passing(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Retry only what the error tree calls passing; everything else needs somebody."""
    return isinstance(state.data, TryAgainError)


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[Progress], None]]:
    """Show how far a pass is as a bar: the share of the bytes that is read, with rows a second and time left."""
    began, artifacts = time.monotonic(), list[UUID]()

    def show(progress: Progress) -> None:
        share = round(100 * progress.share, 1)
        reported = f"{name}: {describe_pace(progress.rows, progress.share, time.monotonic() - began)}"
        if artifacts:
            update_progress_artifact(artifact_id=artifacts[0], progress=share, description=reported)
        elif isinstance(built := create_progress_artifact(progress=share, description=reported), UUID):
            artifacts.append(built)

    yield show


def here() -> Context:
    """Return the context of a verb in a flow."""
    return Context(config_folder(), progress_bar)


def show(result: Result, key: str = "") -> None:
    """Show a result: its lines in the log and, below `key`, as an artifact; tables and links as artifacts."""
    lines = [line for line in result.shown if isinstance(line, str) and line]
    log = get_run_logger()
    for line in lines[:LINES]:
        log.log(logging.WARNING if result.exit_code else logging.INFO, "%s", line)
    if key and lines:
        text = "\n".join(f"- {line}" for line in lines)
        create_markdown_artifact(text, key=key, description=lines[0])
    for part in result.shown:
        if isinstance(part, Table) and part.key:
            create_table_artifact(part.records, key=part.key, description=part.title)
        elif isinstance(part, Link):
            create_link_artifact(link=part.url, key=part.key, link_text=part.text)


def show_outbox(issuer: str) -> None:
    """Show the chunks that are not answered yet: the to-do list of whoever uploads."""
    show(Result({}, [part for part in outbox_list(here(), issuer).shown if isinstance(part, Table)]))


def form(name: str, among: Sequence[Entry[...]] = ENTRIES) -> Flow[..., Facts]:
    """Return the flow of a name: of the entry with that form, or of those among which it picks one."""
    entries = tuple(one for one in among if isinstance(one.form, Form) and one.form.name == name)
    built = next(one.form for one in entries if isinstance(one.form, Form))
    fields = fields_of(built, entries)
    signature = inspect.Signature(fields, return_annotation=Facts)

    def fill(*args: Any, **options: Any) -> Facts:
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        picked, given = asked(built, entries, bound.arguments)
        result = _task(built, picked)(given)
        subject = next((str(given[name]) for name in ("run", "issuer", "extract") if given.get(name)), "all")
        show(result, f"{subject}-{built.name}".lower())
        if result.outbox:
            show_outbox(result.outbox)
        return result.facts

    fill.__name__ = built.name
    fill.__doc__ = _doc(built, entries, fields)
    fill.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect.signature` reads
    return flow(
        name=built.name,
        flow_run_name=built.run_name,
        persist_result=False,
        log_prints=False,
        timeout_seconds=built.hours and built.hours * 3600,
    )(guarded(fill))


def fields_of(built: Form, entries: tuple[Entry[...], ...]) -> list[inspect.Parameter]:
    """Return the parameters of a form, those that are required first."""
    found: dict[str, inspect.Parameter] = {}
    for one in _parameters(built, entries):
        found.setdefault(one.name, _field(one, built, optional=not _everywhere(one.name, entries)))
    picks = [_choice(built.picks, [one.label for one in entries], built.picked or REQUIRED)] if built.picks else []
    chosen = [_choice(one.name, list(one.sets), next(iter(one.sets))) for one in built.choices]
    return sorted([*found.values(), *picks, *chosen], key=lambda field: field.default is not REQUIRED)


def asked(built: Form, entries: tuple[Entry[...], ...], given: Mapping[str, Any]) -> tuple[Entry[...], dict[str, Any]]:
    """Return the entry a form was filled in for, and its parameters."""
    picked = next(one for one in entries if not built.picks or one.label == given[built.picks])
    sent: dict[str, Any] = {}
    for choice in built.choices:
        sent |= choice.sets[given[choice.name]]
    for one in picked.parameters:
        value = given.get(one.name)
        if value is not None:
            sent[one.name] = tuple(value) if one.many else _named(value, one) if one.mark(OneOf) else value
    return picked, sent


def _named(value: str, one: Parameter) -> str:
    return "" if value == NONE and NONE not in one.mark(OneOf).names() else str(value)


def _task(built: Form, picked: Entry[...]) -> Callable[[dict[str, Any]], Result]:
    """Return what runs the verb: a task that tries again, where the form says so."""

    def run(given: dict[str, Any]) -> Result:
        return picked(here(), **given)

    run.__name__ = built.name
    if not built.retries:
        return run
    return task(
        name=built.name,
        persist_result=False,
        cache_policy=NO_CACHE,
        retries=len(built.retries),
        retry_delay_seconds=list[float](built.retries),
        retry_condition_fn=passing,
    )(guarded(run))


def _parameters(built: Form, entries: tuple[Entry[...], ...]) -> Iterator[Parameter]:
    """Yield the parameters a form asks for itself: not those a choice stands for."""
    covered = {name for choice in built.choices for sets in choice.sets.values() for name in sets} | set(built.without)
    yield from (one for entry in entries for one in entry.parameters if one.name not in covered)


def _everywhere(name: str, entries: tuple[Entry[...], ...]) -> bool:
    return all(name in {one.name for one in entry.parameters} for entry in entries)


def _field(one: Parameter, built: Form, *, optional: bool) -> inspect.Parameter:
    default = one.default
    if one.name in built.needs:
        default = REQUIRED
    elif one.name == "dry_run":
        default = True  # a form looks first
    elif optional and default is REQUIRED:
        default = NONE if one.mark(OneOf) else ""
    elif one.many:
        default = None
    written = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(one.name, written, default=default, annotation=kind_of(one, default))


def kind_of(one: Parameter, default: Any = REQUIRED) -> Any:
    """Return the type of a form's field, with everything the form checks."""
    names, text, limits = one.mark(OneOf), one.mark(Text), one.mark(Range)
    kind: Any = one.type
    if names and names.names():
        offered = [*([NONE] if default == NONE else []), *names.names()]
        kind = StrEnum.__call__(one.name, [(name, name) for name in offered])
    elif text:
        pattern = f"^({text.pattern})?$" if default == "" else f"^{text.pattern}$"
        kind = Annotated[str, Field(pattern=pattern, max_length=text.longest)]
    elif limits:
        bounds: dict[str, Any] = {"gt" if limits.above else "ge": limits.least, "le": limits.most}
        kind = Annotated[one.type, Field(**bounds)]
    if one.many:
        kind = list[kind]
    return kind | None if default is None else kind


def _choice(name: str, labels: list[str], default: Any) -> inspect.Parameter:
    written = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, written, default=default, annotation=Literal[tuple(labels)])


def _doc(built: Form, entries: tuple[Entry[...], ...], fields: list[inspect.Parameter]) -> str:
    """Return the docstring Prefect takes the help texts of a form from."""
    helps = {one.name: one.help for entry in entries for one in entry.parameters}
    helps |= {choice.name: choice.help for choice in built.choices}
    verbs = " ".join(f"{one.label.capitalize()}: {one.summary}" for one in entries)
    helps[built.picks] = verbs
    summary = entries[0].summary if len(entries) == 1 else verbs
    return f"{summary}\n\nArgs:\n" + "\n".join(f"    {field.name}: {helps[field.name]}" for field in fields)


if TYPE_CHECKING:
    IssuerName = str
else:
    IssuerName = kind_of(outbox_list.parameters[0])

rerun = form("rerun")
ingest = form("ingest")
reconciliation = form("reconciliation")
resubmit = form("resubmit")
renew = form("renew")
backfill = form("backfill")
outbox = form("outbox")
mend = form("mend")
placements = form("placements")
purge = form("purge")
