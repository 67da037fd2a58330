"""The Prefect flow of each entry that has a form; its fields are in `flows.form_fields`.

All are made in this one file, so that Prefect imports the same file whichever of them it starts. A
test makes a flow of entries of its own with `form(name, among)`, without a server.

A flow runs the command, retries after a TryAgainError if its form says so, and shows the result as
log lines, artifacts and the sentence of its last state. An error of ours ends it as failed with its
sentence, in the form's words. Prefect only observes the work: updates are sent by a separate
thread, and nothing waits for them.
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
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import wraps
from textwrap import shorten
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast
from uuid import UUID

from httpx import HTTPStatusError
from prefect import Flow, artifacts, get_client, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run, task_run
from prefect.states import Completed, Failed
from prefect.tasks import Task

from flows.commands import results
from flows.commands.context import Context
from flows.commands.entry import Entry
from flows.commands.form import Form
from flows.commands.outbox import outbox_list
from flows.commands.result import OUT_OF_BALANCE, Link, Result, Table
from flows.errors import BalanceError, BugError, CardlinkError, TryAgainError, guarded
from flows.form_fields import docstring_of, fields_of, filled_in, kind_of
from flows.redaction import redact, redacted
from flows.registry import ENTRIES, FORMED, FormWords, form_of
from flows.reports.business_result import issuer_balance
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.steps import Step
from flows.submissions.build import Progress, describe_pace
from flows.wiring import config_folder, wire

P = ParamSpec("P")
T = TypeVar("T")
LINES = 20  # of a result are logged; its artifact has them all
LONGEST = 200  # characters of a flow run's name
REFUSED = "Refused"  # the state of a dry run that found what would be refused
IDLE = "idle"  # the tag of a flow run that had nothing to do
Facts = dict[str, Any]
RESEND_PAUSE = 5.0  # seconds until Prefect is sent again what it did not accept
GRACE = 30.0  # seconds after the work for what it has not taken yet


def failing(name: str) -> Callable[[Callable[P, T]], Callable[P, T | State[Any]]]:
    """End a flow or task of the form `name` as failed with an error's sentence.

    Prefect logs no stack trace of what is returned. A task raises a TryAgainError, because only
    what is raised is retried.
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
                return failed(error, name)

        return inner

    return around


def failed(error: CardlinkError, name: str) -> State[Any]:
    """Return the state of a flow or task of the form `name` that an error ended.

    A dry run that is refused has done what it is for.
    """
    message = error.sentence.in_words(FormWords(name))
    is_dry_run = (flow_run.get_parameters() or {}).get("dry_run")
    if is_dry_run and not isinstance(error, TryAgainError | BugError):
        return Completed(name=REFUSED, message=message, data=error)
    return Failed(message=message, data=error)


def passing(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Retry only after a TryAgainError; everything else needs a person."""
    return isinstance(state.data, TryAgainError)


class _Witness(NamedTuple):
    thread: ThreadPoolExecutor
    reports: list[Future[bool]]  # whether Prefect accepted it
    over: Event


_WITNESS: ContextVar[_Witness] = ContextVar("witness")


def report(send: Callable[..., object], *args: object, **options: object) -> Future[bool]:
    """Report something to Prefect beside the work, in order.

    Nothing waits for it, and it raises nothing. What Prefect does not accept is sent again until
    the flow's end, then dropped: its server may be away at any moment.
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
    """Let a flow and its tasks report to Prefect.

    At the end wait up to GRACE, then drop the rest with a log line.
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
        dropped = len(late) + sum(not sent.result() for sent in done)
        if dropped:
            get_run_logger().warning(
                "%d updates to Prefect were dropped: its server did not accept them", dropped
            )


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of a pass as a bar: the share of bytes read, rows a second, time left."""
    began = time.monotonic()
    bars: list[UUID] = []
    sent: list[Future[bool]] = []
    now: dict[str, Any] = {}

    def show() -> None:
        if bars:
            artifacts.update_progress_artifact(artifact_id=bars[0], **now)
            return
        created = artifacts.create_progress_artifact(**now)
        if isinstance(created, UUID):
            bars.append(created)

    def on_progress(progress: Progress) -> None:
        pace = describe_pace(progress.rows, progress.share, time.monotonic() - began)
        now.update(progress=round(100 * progress.share, 1), description=f"{name}: {pace}")
        if not sent or sent[-1].done():  # a slow server gets fewer
            sent.append(report(show))

    yield on_progress
    if sent and not sent[-1].done():
        report(show)


def flow_context() -> Context:
    """Return the context of a command in a flow."""
    return Context(config_folder(), progress_bar)


def show(result: Result, key: str) -> None:
    """Show a result: its first lines in the log, and everything as artifacts."""
    log = get_run_logger()
    level = logging.WARNING if result.exit_code else logging.INFO
    for line in result.texts[:LINES]:
        log.log(level, "%s", redact(line))
    keep(result, key)


def keep(result: Result, key: str) -> None:
    """Keep a result as artifacts: all of it as one page under `key`, tables and links alone."""
    page = result.markdown + _next(result.next_step)
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
            report(
                artifacts.create_link_artifact,
                link=part.url,
                key=part.key,
                link_text=str(part.text),
            )


def _next(step: Step | None) -> str:
    """Return the end of a page: the next step as a line, and the form for it."""
    if step is None:
        return ""
    choice = form_of(step)
    return f"\n\n**Next:** `{step}`" + (f", or {choice}" if choice else "")


def ended(sentence: str, data: T, code: int = 0, *, is_idle: bool = False) -> State[T]:
    """End a flow well: its state and, in the list of runs, its name say what came of it.

    `code`: its exit code. One that had nothing to do gets the tag IDLE: the watch keeps the newest
    of them.
    """
    name = shorten(f"{flow_run.get_name()}: {sentence}", LONGEST, placeholder=" …")
    changes: dict[str, Any] = {"name": name}
    if is_idle:
        changes["tags"] = [*flow_run.tags, IDLE]
    report(get_client(sync_client=True).update_flow_run, UUID(flow_run.id), **changes)
    state_name = OUT_OF_BALANCE if code == BalanceError.exit_code else None
    return Completed(name=state_name, message=sentence, data=data)


def last_sentence(built: Form, arguments: Mapping[str, Any], result: Result) -> str:
    """Return what the last state of a form says; the business result first where it asks for it."""
    if not built.says_result:
        return result.sentence
    business = business_result(wire(config_folder(), arguments["issuer"]))
    return " ".join(filter(None, [business, result.sentence]))


def business_result(context: IssuerContext) -> str:
    """Return who has a link and for whom the others wait; "" where the book cannot be read."""
    issuer = context.issuer
    today = local_day(context.adapters.now(), issuer.time_zone)
    with suppress(CardlinkError):
        return issuer_balance(context.adapters, issuer.issuer, today).sentence
    return ""


def to_do(issuer: str) -> Table:
    """Return the outbox of an issuer: the to-do list for uploads."""
    return next(
        part
        for part in outbox_list(flow_context(), issuer).shown
        if isinstance(part, Table) and part.key
    )


def form(name: str, among: Sequence[Entry[...]] = ENTRIES) -> Flow[..., Facts]:
    """Return the flow of a form: of the entry that has it, or of those it selects from."""
    entries: list[Entry[...]] = []
    forms: list[Form] = []
    for entry in among:
        if isinstance(entry.form, Form) and entry.form.name == name:
            entries.append(entry)
            forms.append(entry.form)
    built = forms[0]
    fields = fields_of(built, entries)
    signature = inspect.Signature(fields, return_annotation=Facts)

    def fill(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        picked, arguments = filled_in(built, entries, bound.arguments)
        result = _task(built, picked)(arguments)
        if isinstance(result, State):  # of the task, which failed
            return Failed(message=result.message, data=result.result(raise_on_failure=False))
        if result.outbox:
            result = result._replace(shown=(*result.shown, to_do(result.outbox)))
        show(result, f"{_subject(arguments)}-{name}")
        if result.failure is not None:
            return failed(result.failure, name)
        sentence = last_sentence(built, arguments, result)
        return ended(sentence, result.facts, result.exit_code, is_idle=result.is_idle)

    fill.__name__ = name
    fill.__doc__ = docstring_of(built, entries, fields)
    fill.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect.signature` reads
    guarded_fill = cast("Callable[..., Facts]", failing(name)(fill))  # what a success holds
    return Flow(
        guarded_fill,
        name=name,
        flow_run_name=lambda: _run_name(built, flow_run.parameters),
        persist_result=False,
        log_prints=False,
        timeout_seconds=built.hours and built.hours * 3600,
    )


def _run_name(built: Form, fields: Mapping[str, Any]) -> str:
    """Return the name of a flow run: whether it is a dry run, and what it is about."""
    name = built.run_name.format(**fields)
    return f"dry run: {name}" if fields.get("dry_run") else name


def _subject(arguments: Mapping[str, Any]) -> str:
    """Return what a form was about: a run, an issuer, an extract, or "all"."""
    for name in ("run", "target", "issuer", "extract"):
        if arguments.get(name):
            return str(arguments[name])
    return "all"


def _task(built: Form, picked: Entry[...]) -> Callable[[dict[str, Any]], Any]:
    """Return what runs the command: a task with retries, if the form has any."""

    def run(arguments: dict[str, Any]) -> Result:
        result = picked.invoke(flow_context(), arguments)
        if isinstance(result.failure, TryAgainError):
            raise result.failure
        return result

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


if TYPE_CHECKING:
    IssuerName = str
else:
    IssuerName = kind_of(results.ingest.parameters[0])

# each form is a flow of this module, by its name: so deployments name it, and Prefect loads it
_NAMES = {built.name for _, built in FORMED}
globals().update({name: form(name) for name in _NAMES})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return the flow of a form."""
