"""Runs of deployments, started through Prefect's API."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.arrivals.targets import Target
from flows.errors import OperatorError, TryAgainError
from flows.prefect_answers import FAILURES, reason_of
from flows.steps import Sentence, Step
from flows.wiring import now

T = TypeVar("T")
TIMEOUT = 15.0  # seconds that the server may take for an answer
TAG = "arrival"  # of the runs that a file started
TO_BEGIN = (StateType.SCHEDULED, StateType.PENDING)
UNDER_WAY = (StateType.RUNNING, StateType.CANCELLING, StateType.PAUSED)
AHEAD = timedelta(seconds=5)  # a run that is planned for later than this is none of now


class NoServerNamedError(OperatorError):
    """No Prefect server is named, so nothing can be started."""

    message = "PREFECT_API_URL names no Prefect server: no run can be started."
    next_step = "Set it as for the worker, such as http://127.0.0.1:4200/api, and start it again."


class ServerAwayError(TryAgainError):
    """The Prefect server did not answer, or with an error of its own."""

    message = "The Prefect server does not start runs: {reason}."
    next_step = "What came meanwhile is started when it answers again."


class NotDeployedError(OperatorError):
    """The deployment that takes a file is not on the Prefect server."""

    message = "Files came, and the Prefect server has no deployment {deployment}."
    next_step = Sentence(
        "Put it there: {install}; what came is started then.", install=Step("install")
    )


@contextmanager
def prefect_starts() -> Iterator["PrefectStarts"]:
    """Open the Prefect server that PREFECT_API_URL names; NoServerNamedError.

    Its client makes one attempt: what is repeated, and when, is decided by the dispatcher.
    """
    if not PREFECT_API_URL.value():
        raise NoServerNamedError
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        bounds = {"timeout": httpx.Timeout(TIMEOUT)}
        with get_client(sync_client=True, httpx_settings=bounds) as client:
            yield PrefectStarts(client)


class PrefectStarts:
    """Starts runs of deployments."""

    def __init__(self, client: SyncPrefectClient) -> None:
        self._client = client

    def begin(self, target: Target) -> str | None:
        """Return the id of a run that has not begun, a new one if there is none; None where one is
        under way.

        Two processes that ask at the same moment get the same run. ServerAwayError,
        NotDeployedError.
        """
        deployment = self._deployment(target)
        runs = _answer(partial(self._last_runs, deployment))
        waiting = [run for run in runs if run.state_type in TO_BEGIN]
        if waiting:
            return str(waiting[0].id)
        if any(run.state_type in UNDER_WAY for run in runs):
            return None
        last = runs[0].id if runs else "none"
        create = partial(
            self._client.create_flow_run_from_deployment,
            deployment,
            tags=[TAG],
            idempotency_key=f"{TAG}-{deployment}-after-{last}",
        )
        return str(_answer(create).id)

    def has_begun(self, run: str) -> bool | None:
        """Return whether a run has begun; None where it was cancelled or is gone."""
        try:
            state = _answer(partial(self._client.read_flow_run, UUID(run))).state_type
        except ObjectNotFound:
            return None
        if state == StateType.CANCELLED:
            return None
        return state not in TO_BEGIN

    def _deployment(self, target: Target) -> UUID:
        try:
            read = partial(self._client.read_deployment_by_name, target.deployment)
            return _answer(read).id
        except ObjectNotFound:
            pass
        raise NotDeployedError(deployment=target.deployment)

    def _last_runs(self, deployment: UUID) -> list[FlowRun]:
        """Return the runs of a deployment up to now: all that have not ended, then the last one."""
        of_it = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
        until_now = {"expected_start_time": {"before_": now() + AHEAD}}
        open_states = {"state": {"type": {"any_": [*TO_BEGIN, *UNDER_WAY]}}}
        newest = FlowRunSort.EXPECTED_START_TIME_DESC
        read = partial(self._client.read_flow_runs, deployment_filter=of_it, sort=newest)
        unended = FlowRunFilter.model_validate({**until_now, **open_states})
        ended = FlowRunFilter.model_validate(until_now)
        return [
            *read(flow_run_filter=unended, limit=20),
            *read(flow_run_filter=ended, limit=1),
        ]


def _answer(ask: Callable[[], T]) -> T:
    """Return what the server answers; ServerAwayError instead of the client's own errors."""
    try:
        return ask()
    except ObjectNotFound:
        raise
    except FAILURES as error:
        reason = reason_of(error)
    raise ServerAwayError(reason=reason)
