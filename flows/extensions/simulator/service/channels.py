"""Where a job's messages wait until they are read (interface.md 2.1 rule 2, 4, 6).

Each channel gives each one once.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from flows.extensions.simulator.service.jobs import Job, Snapshot
from flows.extensions.simulator.service.refusals import refused

Message = dict[str, Any]


class Channels:
    """The channels of one job: the main one, and registered broadcasts.

    Reading the messages of its cardholder drains the main one too.
    """

    def __init__(self) -> None:
        self._main: deque[Message] = deque()
        self._broadcasts: dict[str, deque[Message]] = {}

    def send(self, message: Message) -> None:
        """Put a status message into every channel."""
        for channel in (self._main, *self._broadcasts.values()):
            channel.append(message)

    def read(self) -> list[Message]:
        """Take what the main channel holds."""
        return _drain(self._main)

    def register(self, access_key: str) -> None:
        """Open a broadcast channel; it gets what is sent from now on."""
        self._broadcasts[access_key] = deque()

    def broadcast(self, access_key: str) -> list[Message]:
        """Take what a broadcast channel holds."""
        channel = self._broadcasts.get(access_key)
        if channel is None:
            raise refused(
                403, "broadcast", "unregistered", "needs an access key of this job's registration"
            )
        return _drain(channel)


def status_message(job_id: int | str, snapshot: Snapshot) -> Message:
    """Return a job status message (interface.md 2.1).

    `termination_type` is on the final one only.
    """
    return {"type": "job_status", "job_id": job_id, "message": _data(snapshot, final=True)}


def credential_request(
    job: Job, job_id: int | str, snapshot: Snapshot, *, polled: bool = False
) -> Message:
    """Return the pending credential request of a job (interface.md 2.4).

    As it is in messages, or where it is `polled`.
    """
    assert job.request  # noqa: S101 - for the type checker: callers ask only jobs that wait
    ask = job.request.ask
    return {
        "type": ask.polled if polled else ask.type,
        "job_id": job_id,
        "envelope_id": job.request.envelope_id,
        "account_link": [field._asdict() for field in ask.fields],
        "message": _data(snapshot),
    }


def flat_request(request: Message) -> Message:
    """Return the "slightly different format" of GET .../credential_requests.

    Status data is beside, not in `message`.
    """
    return {
        **{name: value for name, value in request.items() if name != "message"},
        **request["message"],
    }


def _data(snapshot: Snapshot, *, final: bool = False) -> Message:
    data = snapshot._asdict()
    if not (final and snapshot.termination_type):
        del data["termination_type"]
    return data


def _drain(channel: deque[Message]) -> list[Message]:
    return [channel.popleft() for _ in range(len(channel))]
