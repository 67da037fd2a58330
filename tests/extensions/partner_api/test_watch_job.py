"""A placement job watched by a channel of its own: its progress is shown to the end, and whoever
follows it misses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from flows.extensions.partner_api.client import ServiceClient
from flows.extensions.partner_api.follow_job import REGISTERED_AGAIN, WAITING, watch
from flows.extensions.partner_api.service import (
    AnswerLostError,
    NoSuchRecordError,
    ServiceBusyError,
    ServiceRefusedError,
)
from flows.extensions.partner_api.service_objects import JobMessage, JobRecord
from tests.extensions.partner_api.service_clients import client_of, started_job
from tests.extensions.partner_api.test_follow_job import Passing, Person
from tests.service import RunningService, running_service

LOST = AnswerLostError(place="GET /messages", kind="reset", advice="")
BUSY = ServiceBusyError(place="GET /messages", kind="HTTP 503")
CLOSED = ServiceRefusedError(place="GET /messages", status=403, reason="unregistered")
END = {"status": "SUCCESSFUL", "termination_type": "BILLABLE"}


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[ServiceClient]:
    with client_of(service) as opened:
        yield opened


class Answering(Passing):
    """A clock that passes while somebody else answers what the job asks."""

    def __init__(self, service: RunningService, client: ServiceClient, job_id: str) -> None:
        super().__init__(service)
        self._client = client
        self._job_id = job_id

    def sleep(self, seconds: float) -> None:
        for request in self._client.credential_requests(self._job_id):
            answers = {prompt.key_name: "right" for prompt in request.account_link}
            self._client.answer(self._job_id, request.envelope_id, answers)
        super().sleep(seconds)


def test_a_job_is_watched_to_its_end_and_no_message_is_taken_from_whoever_follows_it(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)
    screen = Person()

    ended = watch(client, job_id, screen, Answering(service, client, job_id).clock)

    messages = client.messages(job_id).statuses
    assert ended.placed
    assert [] == screen.asked
    assert [WAITING] == screen.notes
    assert {"UPDATING", "SUCCESSFUL"} <= {standing.status for standing in screen.shown}
    assert ("SUCCESSFUL", "BILLABLE") == (
        messages[-1].message.status,
        messages[-1].message.termination_type,
    )


def test_a_job_nobody_has_is_told(client: ServiceClient, service: RunningService) -> None:
    with pytest.raises(NoSuchRecordError):
        watch(client, "424242", Person(), Passing(service).clock)


class Channel:
    """A job that runs by its record until the tenth look, and a channel that answers as it is
    told.
    """

    def __init__(self, heard: Callable[[int], Sequence[JobMessage]]) -> None:
        self._heard = heard
        self.looks = 0
        self.registered = 0

    def job(self, job_id: str) -> JobRecord:
        state = END if self.looks > 9 else {"status": "AUTH", "termination_type": None}
        return JobRecord.model_validate({"id": job_id, **state})

    def register(self, job_id: str) -> str:
        self.registered += 1
        return f"key-{self.registered}"

    def broadcasts(self, job_id: str, access_key: str) -> Sequence[JobMessage]:
        self.looks += 1
        return self._heard(self.looks)


def raising(error: Exception, *, until: int = 10**6) -> Callable[[int], Sequence[JobMessage]]:
    """Return a channel that raises until a look, and is silent afterwards."""

    def heard(look: int) -> Sequence[JobMessage]:
        if look <= until:
            raise error
        return ()

    return heard


@pytest.mark.parametrize("heard", [lambda look: (), raising(LOST)], ids=["silent", "lost"])
def test_where_the_channel_says_nothing_the_record_tells_the_end(
    heard: Callable[[int], Sequence[JobMessage]],
) -> None:
    ended = watch(Channel(heard), "7", Person(), Passing().clock)

    assert ("SUCCESSFUL", "BILLABLE") == (ended.status, ended.termination_type)


def test_a_channel_that_was_closed_is_registered_again() -> None:
    channel, screen = Channel(raising(CLOSED, until=1)), Person()

    ended = watch(channel, "7", screen, Passing().clock)

    assert ended.placed
    assert 2 == channel.registered
    assert [REGISTERED_AGAIN] == screen.notes


def test_a_service_that_does_not_respond_for_long_ends_the_watch() -> None:
    channel, screen = Channel(raising(BUSY)), Person()

    with pytest.raises(ServiceBusyError):
        watch(channel, "7", screen, Passing().clock)

    assert 10 == channel.looks
    assert 9 == len(screen.notes)
