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
RESEND_PAUSE = 5.0  # seconds until Prefect is sent again what it did not accept
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


def report(send: Callable[..., object], *args: object, **options: object) -> Future[bool]:
    """Report something to Prefect beside the work, in order: nothing waits for it, and it raises
    nothing.

    What Prefect does not accept is sent again until the flow's end, then dropped: its server may be
    away at any moment.
    """
    witness = _WITNESS.get()

    def attempt() -> bool:
        while True:
            try:
                send(*args, **options)
            except Exception as error:  # noqa: BLE001 - whatever it is, the work goes on
                refused = isinstance(error, HTTPStatusError) and error.response.status_code < 500
                if refused or witness.over.wait(RESEND_PAUSE):
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
    witness = _Witness(ThreadPoolExecutor(1, "witness"), [], Event())
    token = _WITNESS.set(witness)
    try:
        yield
    finally:
        _WITNESS.reset(token)
        done, late = wait(witness.reports, GRACE)
        witness.over.set()
        witness.thread.shutdown(wait=False, cancel_futures=True)
        if dropped := len(late) + sum(not sent.result() for sent in done):
            get_run_logger().warning(
                "%d updates to Prefect were dropped: its server did not accept them", dropped
            )


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of a pass as a bar: the share of the bytes read, with rows a second and
    time left.
    """
    began = time.monotonic()
    bars: list[UUID] = []
    sent: list[Future[bool]] = []
    now: dict[str, Any] = {}

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


def flow_context() -> Context:
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
        part
        for part in outbox_list(flow_context(), issuer).shown
        if isinstance(part, Table) and part.key
    )


def form(name: str, among: Sequence[Entry[...]] = ENTRIES) -> Flow[..., Facts]:
    """Return the flow of a form's name: of the entry with that form, or of those it selects
    from.
    """
    entries: list[Entry[...]] = []
    forms: list[Form] = []
    for entry in among:
        if isinstance(entry.form, Form) and entry.form.name == name:
            entries.append(entry)
            forms.append(entry.form)
    built = forms[0]
    fields = _fields(built, entries)
    signature = inspect.Signature(fields, return_annotation=Facts)

    def fill(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        picked, arguments = _filled_in(built, entries, bound.arguments)
        result = _task(built, picked)(arguments)
        if isinstance(result, State):  # of the task, which failed
            return Failed(message=result.message, data=result.result(raise_on_failure=False))
        if result.outbox:
            result = result._replace(shown=(*result.shown, to_do(result.outbox)))
        show(result, f"{_subject(arguments)}-{name}")
        return ended(result.sentence, result.facts)

    fill.__name__ = name
    fill.__doc__ = _doc(built, entries, fields)
    fill.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect.signature` reads
    decorated = flow(
        name=name,
        flow_run_name=built.run_name,
        persist_result=False,
        log_prints=False,
        timeout_seconds=built.hours and built.hours * 3600,
    )(failing(name)(fill))
    return cast("Flow[..., Facts]", decorated)  # what a state of success holds


def _subject(arguments: Mapping[str, Any]) -> str:
    """Return what a form was about: a run, an issuer, an extract, or "all"."""
    for name in ("run", "issuer", "extract"):
        if arguments.get(name):
            return str(arguments[name])
    return "all"


def _fields(built: Form, entries: Sequence[Entry[...]]) -> list[inspect.Parameter]:
    """Return the parameters of a form, required ones first; a choice takes the place of the
    parameters it sets.
    """
    covered = _covered(built)
    fields: dict[str, inspect.Parameter] = {}
    for entry in entries:
        for parameter in entry.parameters:
            if parameter.name in covered:
                continue
            default = _default(built, entries, parameter)
            field = _field(parameter.name, kind_of(parameter, default), default)
            fields.setdefault(parameter.name, field)
    if built.picks:
        labels = tuple(entry.label for entry in entries)
        fields[built.picks] = _field(built.picks, Literal[labels], REQUIRED)
    for choice in built.choices:
        kind: Any = Literal[tuple(choice.sets)]
        fields[choice.name] = _field(choice.name, kind, next(iter(choice.sets)))
    return sorted(fields.values(), key=lambda field: field.default is not REQUIRED)


def _covered(built: Form) -> set[str]:
    """Return the parameters that are no fields of a form: what its choices set, and `without`."""
    covered = set(built.without)
    for choice in built.choices:
        for settings in choice.sets.values():
            covered.update(settings)
    return covered


def _default(built: Form, entries: Sequence[Entry[...]], parameter: Parameter) -> Any:
    """Return what a form's field holds at first; REQUIRED where it has to be filled in."""
    if parameter.name in built.needs:
        return REQUIRED
    if parameter.name == "actor" and built.actor == "required":
        return REQUIRED
    if parameter.name == "dry_run":
        return True  # a form does a dry run first
    if parameter.default is REQUIRED:
        return _default_of_required(entries, parameter)
    return None if parameter.many else parameter.default


def _default_of_required(entries: Sequence[Entry[...]], parameter: Parameter) -> Any:
    """Return the default of a field that a command needs: its only name, or nothing where
    another command of the form does without it.
    """
    names = _names(parameter)
    if len(names) == 1:
        return names[0]
    if not all(_takes(entry, parameter.name) for entry in entries):
        return NONE if parameter.field.names else ""
    return None if parameter.many else REQUIRED


def _names(parameter: Parameter) -> list[str]:
    """Return the names that a field offers; none where it takes any text."""
    return list(parameter.field.names()) if parameter.field.names else []


def _takes(entry: Entry[...], name: str) -> bool:
    return any(parameter.name == name for parameter in entry.parameters)


def _field(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
    )


def kind_of(parameter: Parameter, default: Any = REQUIRED) -> Any:
    """Return the type of a form's field, with everything the form checks."""
    kind: Any = parameter.type
    field = parameter.field
    if offered := _offered(parameter, default):
        kind = StrEnum.__call__(parameter.name, [(name, name) for name in offered])
    elif field.pattern:
        pattern = f"^({field.pattern})?$" if default == "" else f"^{field.pattern}$"
        kind = Annotated[str, Field(pattern=pattern, max_length=field.longest)]
    elif field.words:  # Prefect's server checks the pattern before it stores the text
        shape: dict[str, Any] = {"pattern": rf"^(?![\s\S]*(?:{CARD}))"}
        kind = Annotated[
            str, Field(max_length=field.longest, json_schema_extra=shape), AfterValidator(redact)
        ]
    elif field.least is not None:
        kind = Annotated[parameter.type, Field(ge=field.least, le=field.most)]
    if parameter.many:
        kind = list[kind]
    return kind | None if default is None else kind


def _offered(parameter: Parameter, default: Any) -> list[str]:
    """Return the names that a field offers, with NONE first where that is its default."""
    if parameter.field.names and default == NONE:
        return [NONE, *_names(parameter)]
    return _names(parameter)


def _filled_in(
    built: Form, entries: Sequence[Entry[...]], values: Mapping[str, Any]
) -> tuple[Entry[...], dict[str, Any]]:
    """Return the entry a form was filled in for, and its parameters."""
    picked = next(
        entry for entry in entries if not built.picks or entry.label == values[built.picks]
    )
    arguments: dict[str, Any] = {}
    for choice in built.choices:
        arguments |= choice.sets[values[choice.name]]
    for parameter in picked.parameters:
        value = values.get(parameter.name)
        if value is not None:
            arguments[parameter.name] = _argument(parameter, value)
        if parameter.default is REQUIRED and not arguments.get(parameter.name):
            raise FieldEmptyError(label=picked.label, field=parameter.name, form=built.name)
    return picked, arguments


def _argument(parameter: Parameter, value: Any) -> Any:
    """Return a field's value as the command takes it."""
    if parameter.many:
        return tuple(value)
    if not parameter.field.names:
        return value
    if value == NONE and NONE not in _names(parameter):
        return ""
    return str(value)


def _task(built: Form, picked: Entry[...]) -> Callable[[dict[str, Any]], Any]:
    """Return what runs the verb: a task with retries, if the form has any."""

    def run(arguments: dict[str, Any]) -> Result:
        return picked.invoke(flow_context(), arguments)

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
    verbs = " ".join(f"{entry.label.capitalize()}: {entry.summary}" for entry in entries)
    helps: dict[str, str] = {}
    for entry in entries:
        helps |= {parameter.name: parameter.help for parameter in entry.parameters}
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
