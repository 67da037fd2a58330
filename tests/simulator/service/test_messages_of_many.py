"""Several clients at once, in any order: nothing is read twice, nothing is lost, a job waits until
it is answered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from flows.extensions.simulator.service.books import ServiceState
from flows.extensions.simulator.service.refusals import RefusedRequestError
from flows.extensions.simulator.service.sites import ACK, SITES, WRONG
from tests.service import NOON
from tests.simulator.uploads import PaperOpener, people, upload_csv

READERS = st.sampled_from(["the app", "the phone", "support"])
Message = dict[str, Any]
FAST = (Phase.generate,)  # a failure is expected, so it need not be made small


class Clients(RuleBasedStateMachine):
    """Two cardholders, any number of jobs, three clients that read and answer, two ways to read,
    broadcasts.
    """

    jobs: Bundle[int] = Bundle("jobs")
    requests: Bundle[tuple[int, Message]] = Bundle("requests")
    channels: Bundle[tuple[int, str]] = Bundle("channels")

    service: type[ServiceState] = ServiceState

    def __init__(self) -> None:
        super().__init__()
        self.books = self.service(PaperOpener(), NOON)
        self.books.upload("night.csv", upload_csv(people(2)))
        self.links = list(self.books.links.links.values())
        for link in self.links:
            link.authenticated_on = NOON
        # status messages, whoever read them
        self.read: dict[int, list[Message]] = defaultdict(list)
        # a channel of each job that hears everything but its first message
        self.witness: dict[int, str] = {}
        self.told: dict[int, list[Message]] = defaultdict(list)  # what the witness has heard
        self.first: dict[int, int] = {}  # how many messages came before the witness
        self.heard: dict[str, list[Message]] = defaultdict(list)  # by broadcast channel
        self.since: dict[str, int] = {}  # how many messages the job had told the witness by then
        self.answered: Counter[str] = Counter()
        self.asked: set[str] = set()

    @rule(
        target=jobs,
        whose=st.integers(0, 1),
        site=st.sampled_from(sorted(SITES)),
        at_once=st.booleans(),
    )
    def start(self, whose: int, site: str, at_once: bool) -> int:
        (job,) = self.books.place(
            self.links[whose].id, [site], {site: {"username": "u"}} if at_once else {}
        )
        self.witness[job.id] = self.books.register(job.id)
        self.first[job.id] = 0 if job.request else 1
        return job.id

    @rule(seconds=st.sampled_from([0, 1, 6, 15, 70, 300]))
    def wait(self, seconds: int) -> None:
        waiting = [job for job in self.books.jobs.values() if job.request]

        self.books.advance(self.books.now + timedelta(seconds=seconds))

        assert [] == [
            job for job in waiting if job.termination_type is None and job.request is None
        ]

    @rule(reader=READERS, job=jobs)
    def read_messages(self, reader: str, job: int) -> None:
        self._take(self.books.messages(job), {job})

    @rule(reader=READERS, whose=st.integers(0, 1))
    def read_cardholder(self, reader: str, whose: int) -> None:
        cardholder = self.links[whose].cardholder_id
        self._take(
            self.books.cardholder_messages(cardholder),
            {job.id for job in self.books.jobs_of(cardholder)},
        )

    @rule(target=requests, reader=READERS, job=jobs)
    def look_at_requests(self, reader: str, job: int) -> tuple[int, Message]:
        pending = self.books.credential_requests(job)
        polled = self.books.job_record(job, hydrate=True)["credential_requests"]
        assert [one["envelope_id"] for one in pending] == [one["envelope_id"] for one in polled]
        return job, (pending or [{"envelope_id": "none", "account_link": []}])[0]

    @rule(reader=READERS, request=consumes(requests), value=st.sampled_from(["known", WRONG]))
    def answer(self, reader: str, request: tuple[int, Message], value: str) -> None:
        job, asked = request
        envelope = asked["envelope_id"]
        waits = [one["envelope_id"] for one in self.books.credential_requests(job)]
        given = {field["key_name"]: value for field in asked["account_link"]} | {"tfa_message": ACK}

        refused = None
        try:
            self.books.answer(job, envelope, given)
        except RefusedRequestError as error:
            refused = error.status

        if refused:
            assert refused in (404, 409)
            assert envelope not in waits
        else:
            self.answered[envelope] += 1
            assert [envelope] == waits
            assert [] == self.books.credential_requests(job)

    @rule(job=jobs)
    def update_without_an_envelope(self, job: int) -> None:
        before = self.books.credential_requests(job)

        self.books.update_account(job)

        assert before == self.books.credential_requests(job)

    @rule(target=channels, job=jobs)
    def register(self, job: int) -> tuple[int, str]:
        key = self.books.register(job)
        self.since[key] = len(self._witnessed(job))
        return job, key

    @rule(channel=channels)
    def listen(self, channel: tuple[int, str]) -> None:
        job, key = channel
        self.heard[key] += self.books.broadcasts(job, key)

    @invariant()
    def a_job_that_waits_shows_its_request_and_one_that_does_not_shows_none(self) -> None:
        for job in self.books.jobs.values():
            shown = self.books.credential_requests(job.id)
            assert job.status.startswith("PENDING") == bool(shown)
            self.asked |= {one["envelope_id"] for one in shown}

    @invariant()
    def no_request_is_answered_twice(self) -> None:
        assert [] == [envelope for envelope, times in self.answered.items() if times > 1]

    def teardown(self) -> None:
        """Read what is left: every message a job ever told was read exactly once, in its order, on
        every channel.
        """
        for job in self.books.jobs:
            self._take(self.books.messages(job), {job})
            assert self._witnessed(job) == self.read[job][self.first[job] :]
        for job, key in [
            (job, key) for job in self.books.jobs for key in self.since if self._hears(job, key)
        ]:
            assert self.told[job][self.since[key] :] == self.heard[key]

    def _hears(self, job: int, key: str) -> bool:
        """Read what is left in a channel, if it is this job's."""
        try:
            self.heard[key] += self.books.broadcasts(job, key)
        except RefusedRequestError:
            return False
        return True

    def _witnessed(self, job: int) -> list[Message]:
        self.told[job] += self.books.broadcasts(job, self.witness[job])
        return self.told[job]

    def _take(self, messages: list[Message], of: set[int]) -> None:
        """Route messages by their job id; requests are kept by the service, status messages are
        ours now.
        """
        for message in messages:
            assert message["job_id"] in of
            if message["type"] == "job_status":
                self.read[message["job_id"]].append(message)


TestClients = Clients.TestCase
TestClients.settings = settings(stateful_step_count=40)


class Repeating(ServiceState):
    """Shows the last message of a job again."""

    def messages(self, job_id: int) -> list[Message]:
        found = super().messages(job_id)
        return found + [one for one in found if one["type"] == "job_status"][-1:]


class Losing(ServiceState):
    """Loses a message wherever two are read at once."""

    def messages(self, job_id: int) -> list[Message]:
        found = super().messages(job_id)
        return found[1:] if len(found) > 1 else found


class Impatient(ServiceState):
    """Takes an update without an envelope id for an answer."""

    def update_account(self, job_id: int) -> None:
        request = self.job(job_id).request
        if request:
            self.answer(
                job_id,
                request.envelope_id,
                {"tfa": ACK, **{one.key_name: "known" for one in request.ask.fields}},
            )


@pytest.mark.parametrize("broken", [Repeating, Losing, Impatient])
def test_the_machine_notices_a_service_that_repeats_loses_or_takes_what_is_no_answer(
    broken: type[ServiceState],
) -> None:
    class Against(Clients):
        service = broken

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Against, settings=settings(max_examples=200, deadline=None, database=None, phases=FAST)
        )
