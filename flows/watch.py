"""The watch: brings the matters of an issuer up to date, and lets extensions tell people of them.
It also keeps what forms offer to choose from, and removes scheduled flow runs that found nothing.

What an extension tells is a Prefect event, too, for automations of your own; those of
`deploy/automations.yaml` tell people that a watch is silent itself.
"""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard
# around it.
import time
from contextlib import suppress
from datetime import timedelta
from uuid import NAMESPACE_URL, UUID, uuid5

from httpx import HTTPError
from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags, FlowRunFilter
from prefect.client.schemas.objects import State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events import emit_event
from prefect.events.filters import EventFilter, EventOccurredFilter, EventResourceFilter
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from flows.configuration import issuers
from flows.errors import guarded
from flows.extensions import hooks
from flows.form_choices import names_of, with_choices
from flows.forms import IDLE, IssuerName, ended, failing
from flows.operations.conditions import Event
from flows.operations.matters import Failure, Matter
from flows.operations.matters import watch as watch_step
from flows.wiring import config_folder, now, wire

# more than one beat by Prefect's default, six by deploy/prefect.yaml
SILENT = timedelta(seconds=200)
PAUSE = 65.0  # seconds, two beats: a server that was away hears those who live first
BAD = (StateType.FAILED, StateType.CRASHED)
ENDED = (*BAD, StateType.COMPLETED, StateType.CANCELLED)
ALIVE = (StateType.RUNNING, StateType.PENDING, StateType.CANCELLING)


@task(name="look", persist_result=False, cache_policy=NO_CACHE)
@guarded
def look(issuer: str) -> list[str]:
    """Bring the issuer's matters up to date, emit what automations wait for, and let extensions
    tell people; return a line for each thing told.
    """
    context = wire(config_folder(), issuer)
    lines = list(map(_line, watch_step(context, failures(issuer))))
    for events in hooks("events"):
        for event in events(context):
            emit(event)
    for after_watch in hooks("after_watch"):
        lines += after_watch(context)
    return lines


def emit(event: Event) -> None:
    """Emit an event of an extension; its id is derived from what it is of, so that it is the same
    event when it is emitted again.
    """
    emit_event(
        event=f"cardlink.{event.name}",
        resource={"prefect.resource.id": event.resource, **event.labels},
        payload=dict(event.payload),
        id=uuid5(NAMESPACE_URL, f"{event.resource}/{event.number}"),
    )


def _line(matter: Matter) -> str:
    return f"{'late' if matter.ended is None else 'over'}: {matter.text}"


def _silent(client: SyncPrefectClient) -> set[UUID]:
    """Return the live flow runs of cardlink's deployments that have sent no sign of life lately."""
    since = now() - SILENT
    deployments = DeploymentFilter(tags=DeploymentFilterTags(all_=["cardlink"]))
    alive = FlowRunFilter.model_validate({"state": {"type": {"any_": ALIVE}}})
    runs = client.read_flow_runs(flow_run_filter=alive, deployment_filter=deployments)

    def heard(run: UUID) -> bool:
        resource = EventResourceFilter(id=[f"prefect.flow-run.{run}"])
        lately = EventOccurredFilter(since=since)
        events = client.read_events(EventFilter(occurred=lately, resource=resource), limit=1)
        return bool(events.events)

    unchanged = [run.id for run in runs if run.state and run.state.timestamp < since]
    return {run for run in unchanged if not heard(run)}


def failures(issuer: str) -> list[Failure]:
    """Return the issuer's deployments whose last ended run failed or crashed.

    First, flow runs of any issuer without a sign of life are marked as crashed: so they raise an
    alert, and do not block the next.
    """
    tagged = DeploymentFilter(tags=DeploymentFilterTags(all_=["cardlink", issuer]))
    failed = []
    with get_client(sync_client=True) as client:
        if silent := _silent(client):
            time.sleep(PAUSE)
            for run in silent & _silent(client):
                client.set_flow_run_state(
                    run, Crashed(message="No sign of life; its worker has died"), force=True
                )
        for deployment in client.read_deployments(deployment_filter=tagged):
            ended = FlowRunFilter.model_validate(
                {"deployment_id": {"any_": [deployment.id]}, "state": {"type": {"any_": ENDED}}}
            )
            last = client.read_flow_runs(
                flow_run_filter=ended, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=1
            )
            if last and last[0].state_type in BAD:
                failed.append((deployment.name, str(last[0].state_name)))
    return failed


def keep_choices(client: SyncPrefectClient, issuer: str) -> None:
    """Offer an issuer's runs and extracts in the forms, as they are now.

    Only those started by hand have lists: a deployment that is changed loses the runs planned next.
    """
    folder = config_folder()
    names = names_of(wire(folder, issuer))
    by_hand = DeploymentFilter(tags=DeploymentFilterTags(all_=["cardlink", "by-hand"]))
    for deployment in client.read_deployments(deployment_filter=by_hand):
        schema = deployment.parameter_openapi_schema or {"properties": {}}
        offering = with_choices(deployment.name, schema, issuer, names, issuers(folder))
        if offering != schema:
            update = DeploymentUpdate(parameter_openapi_schema=offering)
            client.update_deployment(deployment.id, update)


def remove_idle(client: SyncPrefectClient, issuer: str) -> None:
    """Delete an issuer's scheduled flow runs that had nothing to do, but the newest of each kind.

    Among eighteen runs an hour nobody would see the night.
    """
    tagged = {"tags": {"all_": [IDLE, issuer]}, "state": {"type": {"any_": [StateType.COMPLETED]}}}
    idle = client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate(tagged), sort=FlowRunSort.END_TIME_DESC
    )
    newest: set[UUID | None] = set()
    for run in idle:
        if run.deployment_id in newest and run.auto_scheduled:
            with suppress(ObjectNotFound):  # somebody else was first
                client.delete_flow_run(run.id)
        newest.add(run.deployment_id)


@flow(
    name="watch",
    flow_run_name="watch {issuer}",
    persist_result=False,
    log_prints=False,
    timeout_seconds=600,
)
@failing("watch")
def watch(issuer: IssuerName) -> State[list[str]]:
    """Bring an issuer's matters up to date, and tell people of what is late, once.

    Args:
        issuer: Whose extracts, runs, results and key are checked.
    """
    log = get_run_logger()
    lines = look(issuer)
    for line in lines:
        log.warning("%s", line)
    with suppress(HTTPError), get_client(sync_client=True) as client:  # the next watch repeats it
        keep_choices(client, issuer)
        remove_idle(client, issuer)
    if lines:
        return ended("; ".join(lines), lines)
    log.info("%s: nothing is late or over that was not told", issuer)
    return ended("nothing is late or over that was not told", lines, is_idle=True)
