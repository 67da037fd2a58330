"""Runs of deployments, started through Prefect's API."""

from contextlib import suppress
from datetime import timedelta
from typing import Final

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId, FlowRunFilter
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.errors import OperatorError
from flows.prefect_answers import answering
from flows.steps import Sentence, Step
from flows.wiring import now

TAG: Final = "arrival"  # of the runs that a file started
TO_BEGIN: Final = (StateType.SCHEDULED, StateType.PENDING)
UNDER_WAY: Final = (StateType.RUNNING, StateType.CANCELLING, StateType.PAUSED)
AHEAD: Final = timedelta(seconds=5)  # a run that is planned for later than this is none of now


class NotDeployedError(OperatorError):
    """The deployment that takes a file is not on the Prefect server."""

    message = "Files came, and the Prefect server has no deployment {deployment}."
    next_step = Sentence(
        "Put it there: {install}; what came is started then.", install=Step("install")
    )


def begin(deployment: str) -> str | None:
    """Return the id of a run that has not begun, a new one if there is none; None where one is
    under way, which may have looked before the files came.

    Raises ServerFailsError, ServerRefusesError, NotDeployedError. Nothing is retried: the next look
    is soon.
    """
    with (
        answering(),
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(sync_client=True) as client,
        suppress(ObjectNotFound),
    ):
        return _begun(client, deployment)
    raise NotDeployedError(deployment=deployment)


def _begun(client: SyncPrefectClient, deployment: str) -> str | None:
    known = client.read_deployment_by_name(deployment).id
    of_now = {
        "expected_start_time": {"before_": now() + AHEAD},
        "state": {"type": {"any_": [*TO_BEGIN, *UNDER_WAY]}},
    }
    runs = client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[known])),
        flow_run_filter=FlowRunFilter.model_validate(of_now),
    )
    to_begin = [run for run in runs if run.state_type in TO_BEGIN]
    if to_begin:
        return str(to_begin[0].id)
    if runs:
        return None
    return str(client.create_flow_run_from_deployment(known, tags=[TAG]).id)
