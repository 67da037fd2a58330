"""The Prefect flow of each entry that has a form: its fields, help, checks and choices come from
the entry.

A flow runs the verb, retries after a TryAgainError if its form says so, and shows the result as log
lines, artifacts and the sentence of its last state; an error of ours ends it as failed with that
error's sentence, in the form's words. Prefect only observes the work: what it is sent waits in a
thread of its own, and nothing waits for it.
"""

# Prefect makes a form from a flow's signature when the flow is imported, so the issuers' names are
# read then: the one thing this package does at import. A new issuer is offered after the next
# `cardlink install`.
import inspect
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from enum import StrEnum
from functools import wraps
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, cast
from uuid import UUID

from httpx import HTTPStatusError
from prefect import Flow, artifacts, flow, get_client, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run, task_run
from prefect.states import Completed, Failed
from prefect.tasks import Task
from pydantic import AfterValidator, Field

from flows.commands.context import Context
from flows.commands.entry import Entry
from flows.commands.form import Form
from flows.commands.outbox import outbox_list
from flows.commands.parameters import CARD
from flows.commands.result import Link, Result, Table
from flows.commands.signature import REQUIRED, Parameter
from flows.errors import CardlinkError, OperatorError, TryAgainError, guarded
from flows.redaction import redact, redacted
from flows.registry import ENTRIES, FormWords, form_of
from flows.submissions.build import Progress, describe_pace
from flows.wiring import config_folder

P = ParamSpec("P")
T = TypeVar("T")
LINES = 20  # of a result are logged; its artifact has them all
LONGEST = 200  # characters of a flow run's name
NONE = "none"  # what a list of names offers for an optional field
Facts = dict[str, Any]
AGAIN = 5.0  # seconds until Prefect is sent again what it did not accept
GRACE = 30.0  # seconds after the work for what it has not taken yet


class FieldEmptyError(OperatorError):
    """A form was submitted without a field that its command needs."""

    message = (
        "{label} needs the field {field} of the form {form}, which is empty. Nothing was done."
    )
    next_step = "Fill it in and submit the form again."


def failing(name: str) -> Callable[[Callable[P, T]], Callable[P, T | State[Any]]]:
    """End a flow or task of the form `name` as failed with an error's sentence, without a stack
    trace.

    A task raises a TryAgainError, because only what is raised is retried.
    """

    def around(run: Callable[P, T]) -> Callable[P, T | State[Any]]:
        @wraps(run)
        def inner(*args: P.args, **options: P.kwargs) -> T | State[Any]:
            try:
                with witnessed():
                    return guarded(run)(*args, **options)
            except CardlinkError as error:
                if isinstance(error, TryAgainError) and task_run.get_id():
                    raise
                return Failed(message=error.sentence.in_words(FormWords(name)), data=error)

        return inner

    return around


def passing(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Retry only after a TryAgainError; everything else needs a person."""
    return isinstance(state.data, TryAgainError)


class _Witness(NamedTuple):
    thread: ThreadPoolExecutor
    reports: list[Future[bool]]  # whether Prefect accepted it
    over: Event


_WITNESS: ContextVar[_Witness] = ContextVar("witness")


def report(what: Callable[..., object], *args: object, **options: object) -> Future[bool]:
    """Report something to Prefect beside the work, in order: nothing waits for it, and it raises
    nothing.

    What Prefect does not accept is sent again until the flow's end, then dropped: its server may be
    away at any moment.
    """
    witness = _WITNESS.get()

    def attempt() -> bool:
        while True:
            try:
                what(*args, **options)
            except Exception as error:  # noqa: BLE001 - whatever it is, the work goes on
                refused = isinstance(error, HTTPStatusError) and error.response.status_code < 500
                if refused or witness.over.wait(AGAIN):
                    return False
            else:
                return True

    witness.reports.append(witness.thread.submit(copy_context().run, attempt))
    return witness.reports[-1]


@contextmanager
def witnessed() -> Iterator[None]:
    """Let a flow and its tasks report to Prefect; at the end wait up to GRACE, then drop the rest
    with a log line.
    """
    if _WITNESS.get(None):
        yield
        return
    token = _WITNESS.set(witness := _Witness(ThreadPoolExecutor(1, "witness"), [], Event()))
    try:
        yield
    finally:
        _WITNESS.reset(token)
        done, late = wait(witness.reports, GRACE)
        witness.over.set()
        witness.thread.shutdown(wait=False, cancel_futures=True)
        if dropped := len(late) + sum(not one.result() for one in done):
            get_run_logger().warning(
                "%d updates to Prefect were dropped: its server did not accept them", dropped
            )


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of a pass as a bar: the share of the bytes read, with rows a second and
    time left.
    """
    began, bars, sent = time.monotonic(), list[UUID](), list[Future[bool]]()
    now = dict[str, Any]()

    def show() -> None:
        if bars:
            artifacts.update_progress_artifact(artifact_id=bars[0], **now)
        elif isinstance(built := artifacts.create_progress_artifact(**now), UUID):
            bars.append(built)

    def on_progress(progress: Progress) -> None:
        pace = describe_pace(progress.rows, progress.share, time.monotonic() - began)
        now.update(progress=round(100 * progress.share, 1), description=f"{name}: {pace}")
        if not sent or sent[-1].done():  # a slow server gets fewer
            sent.append(report(show))

    yield on_progress
    if sent and not sent[-1].done():
        report(show)


def here() -> Context:
    """Return the context of a verb in a flow."""
    return Context(config_folder(), progress_bar)


def show(result: Result, key: str) -> None:
    """Show a result: its first lines in the log, and everything as artifacts."""
    log = get_run_logger()
    for line in [redact(line) for line in result.shown if isinstance(line, str) and line][:LINES]:
        log.log(logging.WARNING if result.exit_code else logging.INFO, "%s", line)
    keep(result, key)


def keep(result: Result, key: str) -> None:
    """Keep a result as artifacts: all of it as one page under `key`, tables and links alone."""
    page = result.markdown
    if step := result.next_step:
        choice = form_of(step)
        page += f"\n\n**Next:** `{step}`" + (f", or {choice}" if choice else "")
    key = re.sub("[^a-z0-9-]+", "-", key.lower())
    report(artifacts.create_markdown_artifact, redact(page), key=key, description=result.sentence)
    for part in result.shown:
        if isinstance(part, Table) and part.key and part.rows:
            report(
                artifacts.create_table_artifact,
                redacted(part.records),
                key=part.key,
                description=part.title,
            )
        elif isinstance(part, Table) and part.key:
            report(artifacts.create_markdown_artifact, "none", key=part.key, description=part.title)
        elif isinstance(part, Link):
            report(artifacts.create_link_artifact, link=part.url, key=part.key, link_text=part.text)


def ended(sentence: str, data: T) -> State[T]:
    """End a flow well: its state and, in the list of runs, its name say what came of it."""
    name = f"{flow_run.get_name()}: {sentence}"[:LONGEST]
    report(get_client(sync_client=True).update_flow_run, UUID(flow_run.id), name=name)
    return Completed(message=sentence, data=data)


def to_do(issuer: str) -> Table:
    """Return the outbox of an issuer: the to-do list for uploads."""
    return next(
        part for part in outbox_list(here(), issuer).shown if isinstance(part, Table) and part.key
    )


def form(name: str, among: Sequence[Entry[...]] = ENTRIES) -> Flow[..., Facts]:
    """Return the flow of a form's name: of the entry with that form, or of those it selects
    from.
    """
    formed = [
        (one, one.form) for one in among if isinstance(one.form, Form) and one.form.name == name
    ]
    entries, built = [one for one, _ in formed], formed[0][1]
    fields = _fields(built, entries)
    signature = inspect.Signature(fields, return_annotation=Facts)

    def fill(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        picked, given = _filled_in(built, entries, bound.arguments)
        result = _task(built, picked)(given)
        if isinstance(result, State):  # of the task, which failed
            return Failed(message=result.message, data=result.result(raise_on_failure=False))
        if result.outbox:
            result = result._replace(shown=(*result.shown, to_do(result.outbox)))
        subject = next(
            (str(given[name]) for name in ("run", "issuer", "extract") if given.get(name)), "all"
        )
        show(result, f"{subject}-{name}")
        return ended(result.sentence, result.facts)

    fill.__name__ = name
    fill.__doc__ = _doc(built, entries, fields)
    fill.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect.signature` reads
    made = flow(
        name=name,
        flow_run_name=built.run_name,
        persist_result=False,
        log_prints=False,
        timeout_seconds=built.hours and built.hours * 3600,
    )(failing(name)(fill))
    return cast("Flow[..., Facts]", made)  # what a state of success holds


def _fields(built: Form, entries: Sequence[Entry[...]]) -> list[inspect.Parameter]:
    """Return the parameters of a form, required ones first; a choice takes the place of the
    parameters it sets.
    """
    covered = {
        name for choice in built.choices for sets in choice.sets.values() for name in sets
    } | set(built.without)
    declared = [{one.name: one for one in entry.parameters} for entry in entries]
    fields: dict[str, inspect.Parameter] = {}
    for one in (one for names in declared for one in names.values() if one.name not in covered):
        default = one.default
        if one.name in built.needs or (one.name, built.actor) == ("actor", "required"):
            default = REQUIRED
        elif one.name == "dry_run":
            default = True  # a form does a dry run first
        elif default is REQUIRED and one.field.names and len(only := one.field.names()) == 1:
            default = only[0]
        elif default is REQUIRED and not all(one.name in names for names in declared):
            default = NONE if one.field.names else ""
        elif one.many:
            default = None
        fields.setdefault(one.name, _field(one.name, kind_of(one, default), default))
    if built.picks:
        labels = tuple(one.label for one in entries)
        fields[built.picks] = _field(built.picks, Literal[labels], REQUIRED)
    for choice in built.choices:
        fields[choice.name] = _field(
            choice.name, Literal[tuple(choice.sets)], next(iter(choice.sets))
        )
    return sorted(fields.values(), key=lambda field: field.default is not REQUIRED)


def _field(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
    )


def kind_of(one: Parameter, default: Any = REQUIRED) -> Any:
    """Return the type of a form's field, with everything the form checks."""
    kind: Any = one.type
    said = one.field
    if said.names and (offered := [*([NONE] if default == NONE else []), *said.names()]):
        kind = StrEnum.__call__(one.name, [(name, name) for name in offered])
    elif said.pattern:
        pattern = f"^({said.pattern})?$" if default == "" else f"^{said.pattern}$"
        kind = Annotated[str, Field(pattern=pattern, max_length=said.longest)]
    elif said.words:  # Prefect's server checks the pattern before it stores the text
        shape: dict[str, Any] = {"pattern": rf"^(?![\s\S]*(?:{CARD}))"}
        kind = Annotated[
            str, Field(max_length=said.longest, json_schema_extra=shape), AfterValidator(redact)
        ]
    elif said.least is not None:
        kind = Annotated[one.type, Field(ge=said.least, le=said.most)]
    if one.many:
        kind = list[kind]
    return kind | None if default is None else kind


def _filled_in(
    built: Form, entries: Sequence[Entry[...]], given: Mapping[str, Any]
) -> tuple[Entry[...], dict[str, Any]]:
    """Return the entry a form was filled in for, and its parameters."""
    picked = next(one for one in entries if not built.picks or one.label == given[built.picks])
    options: dict[str, Any] = {}
    for choice in built.choices:
        options |= choice.sets[given[choice.name]]
    for one in picked.parameters:
        value, names = given.get(one.name), one.field.names
        if value is not None and one.many:
            options[one.name] = tuple(value)
        elif value is not None and names:
            options[one.name] = "" if value == NONE and NONE not in names() else str(value)
        elif value is not None:
            options[one.name] = value
        if one.default is REQUIRED and not options.get(one.name):
            raise FieldEmptyError(label=picked.label, field=one.name, form=built.name)
    return picked, options


def _task(built: Form, picked: Entry[...]) -> Callable[[dict[str, Any]], Any]:
    """Return what runs the verb: a task with retries, if the form has any."""

    def run(given: dict[str, Any]) -> Result:
        return picked.invoke(here(), given)

    if not built.retries:
        return run
    run.__name__ = built.name
    return task(
        name=built.name,
        persist_result=False,
        cache_policy=NO_CACHE,
        retries=len(built.retries),
        retry_delay_seconds=list[float](built.retries),
        retry_condition_fn=passing,
    )(failing(built.name)(run))


def _doc(built: Form, entries: Sequence[Entry[...]], fields: Sequence[inspect.Parameter]) -> str:
    """Return the docstring from which Prefect takes a form's help texts."""
    verbs = " ".join(f"{one.label.capitalize()}: {one.summary}" for one in entries)
    helps = {one.name: one.help for entry in entries for one in entry.parameters}
    helps |= {choice.name: choice.help for choice in built.choices} | {built.picks: verbs}
    summary = verbs if built.picks else entries[0].summary
    return f"{summary}\n\nArgs:\n" + "\n".join(
        f"    {field.name}: {helps[field.name]}" for field in fields
    )


if TYPE_CHECKING:
    IssuerName = str
else:
    IssuerName = kind_of(outbox_list.parameters[0])

rerun = form("rerun")
ingest = form("ingest")
worklist = form("worklist")
deliver = form("deliver")
reconciliation = form("reconciliation")
resubmit = form("resubmit")
renew = form("renew")
backfill = form("backfill")
outbox = form("outbox")
mend = form("mend")
placements = form("placements")
purge = form("purge")
dismiss = form("dismiss")
audit = form("audit")
