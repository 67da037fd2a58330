"""A placement job followed to its end, over real HTTP, with the service's clock moved by the
follower's own waiting.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from flows.extensions.partner_api.client import ServiceClient
from flows.extensions.partner_api.follow_job import (
    Clock,
    Followed,
    PromptEndedError,
    follow,
)
from flows.extensions.partner_api.service import (
    AnswerLostError,
    NoSuchRecordError,
    ServiceBusyError,
    ServiceRefusedError,
    SessionEndedError,
)
from flows.extensions.partner_api.service_objects import (
    MEANINGS,
    UNKNOWN_END,
    CredentialRequest,
    JobMessage,
    JobRecord,
    Messages,
    RunStatus,
)
from flows.extensions.simulator.service.sites import SITES
from tests.extensions.partner_api.service_clients import client_of, started_job
from tests.service import RunningService, running_service


class Person:
    """Somebody at a terminal: answers what `knows`, remembers what was said."""

    def __init__(self, knows: Callable[[CredentialRequest], dict[str, str]] | None = None) -> None:
        self._knows = knows or (
            lambda request: {one.key_name: "right" for one in request.account_link}
        )
        self.shown: list[RunStatus] = []
        self.warnings: list[float] = []
        self.notes: list[str] = []
        self.asked: list[list[str]] = []

    def show(self, standing: RunStatus, left: float | None) -> None:
        self.shown.append(standing)

    def warn(self, left: float) -> None:
        self.warnings.append(left)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def collect(self, request: CredentialRequest, look: Callable[[], bool]) -> dict[str, str]:
        self.asked.append([one.key_name for one in request.account_link])
        return self._knows(request)


class Passing:
    """A clock that passes by being waited for, the service's with it."""

    def __init__(self, service: RunningService | None = None, most: int = 2000) -> None:
        self._service, self._most, self.now = service, most, 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < self._most
        if self._service is not None:
            self._service.advance(seconds)

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[ServiceClient]:
    with client_of(service) as opened:
        yield opened


def followed(
    service: RunningService, client: ServiceClient, site: str, person: Person, *, polling: bool
) -> Followed:
    job_id = started_job(service, client, site)
    return follow(client, job_id, person, Passing(service).clock, polling=polling)


@pytest.mark.parametrize("polling", [False, True])
@pytest.mark.parametrize("site", SITES)
def test_every_site_is_followed_to_its_end_by_messages_and_by_polling(
    service: RunningService, client: ServiceClient, site: str, polling: bool
) -> None:
    person = Person()

    ended = followed(service, client, site, person, polling=polling)

    assert ended.termination_type == SITES[site].end.termination_type
    assert ended.meaning == MEANINGS[ended.termination_type]
    assert ended.placed is (SITES[site].end.termination_type == "BILLABLE")
    assert person.shown[-1].ended


def test_each_phase_is_shown_and_a_heartbeat_that_says_nothing_new_is_not(
    service: RunningService, client: ServiceClient
) -> None:
    person = Person()

    followed(service, client, "market.example.com", person, polling=False)

    told = [(one.status, one.auth_percent_complete, one.percent_complete) for one in person.shown]
    assert {status for status, _, _ in told} >= {"PENDING", "AUTH", "UPDATING", "SUCCESSFUL"}
    assert [before for before, after in itertools.pairwise(told) if before == after] == []


def test_what_is_asked_comes_from_the_account_link_list_alone(
    service: RunningService, client: ServiceClient
) -> None:
    person = Person()

    ended = followed(service, client, "market.example.com", person, polling=False)

    assert person.asked == [["username", "password"], ["tfa"], ["security_1", "security_2"]]
    assert ended.answered == 3


@pytest.mark.parametrize("polling", [False, True])
def test_a_message_sent_to_the_user_is_acknowledged_at_once_and_its_label_shown(
    service: RunningService, client: ServiceClient, polling: bool
) -> None:
    person = Person()

    ended = followed(service, client, "music.example.com", person, polling=polling)

    assert ended.placed
    assert ["tfa_message"] not in person.asked
    assert "Open the link in the message sent to your phone" in person.notes


def test_a_wrong_answer_is_asked_again(service: RunningService, client: ServiceClient) -> None:
    tries = iter(["wrong", "right"])
    person = Person(
        lambda request: dict.fromkeys([one.key_name for one in request.account_link], next(tries))
    )

    ended = followed(service, client, "shop.example.com", person, polling=False)

    assert person.asked == [["username", "password"]] * 2
    assert ended.placed


def test_time_that_runs_out_while_somebody_types_ends_the_job(
    service: RunningService, client: ServiceClient
) -> None:
    def too_late(request: CredentialRequest) -> dict[str, str]:
        service.advance(1000)
        return {one.key_name: "right" for one in request.account_link}

    person = Person(too_late)

    ended = followed(service, client, "shop.example.com", person, polling=False)

    assert (ended.status, ended.termination_type) == ("TIMEOUT_TFA", "USER_DATA_FAILURE")
    assert ended.answered == 0
    assert any("did not accept that answer" in one for one in person.notes)


def test_the_end_is_told_though_another_client_reads_the_messages(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)

    class Thief(Passing):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            service.act(lambda books: books.messages(int(job_id)))

    ended = follow(client, job_id, Person(), Thief(service).clock)

    assert ended.placed


def test_a_job_that_has_ended_already_is_told_at_once(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)
    service.advance(1000)

    ended = follow(client, job_id, Person(), Passing().clock)

    assert ended.status == "TIMEOUT_TFA"


def test_a_job_nobody_knows_is_told_so(client: ServiceClient) -> None:
    with pytest.raises(NoSuchRecordError):
        follow(client, "999999", Person(), Passing().clock)


class StoredOutcomes:
    """A service by script: one list of messages for each look, the last again and again."""

    def __init__(self, *looks: Messages | Exception, record: RunStatus | None = None) -> None:
        self._looks = list(looks)
        self._record = record or RunStatus(status="AUTH")
        self.answers: list[Mapping[str, str]] = []
        self.lose_answers = 0

    def job(self, job_id: str) -> JobRecord:
        return JobRecord.model_validate({"id": job_id, **self._record.model_dump()})

    def messages(self, job_id: str) -> Messages:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(look, Exception):
            raise look
        return look

    def credential_requests(self, job_id: str) -> Sequence[CredentialRequest]:
        return [asking()]

    def answer(self, job_id: str, envelope_id: str, answers: Mapping[str, str]) -> object:
        self.answers.append(answers)
        if self.lose_answers:
            self.lose_answers -= 1
            raise AnswerLostError(place="PUT", kind="ReadTimeout", advice="")
        return None


def says(**standing: object) -> Messages:
    return Messages((JobMessage.model_validate({"job_id": 7, "message": standing}),))


def asking(**changes: object) -> CredentialRequest:
    plain = {
        "job_id": 7,
        "envelope_id": "e-1",
        "account_link": [{"key_name": "pin", "label": "PIN"}],
        **changes,
    }
    return CredentialRequest.model_validate(plain)


END = says(status="SUCCESSFUL", termination_type="BILLABLE")


def test_a_warning_comes_a_minute_before_the_time_is_up_and_again_where_time_was_added() -> None:
    person = Person()
    looks = [
        says(status="AUTH", job_timeout=left) for left in (70, 60, 58, 56, 200, 198, 61, 59, 57)
    ]

    follow(StoredOutcomes(*looks, END), "7", person, Passing().clock)

    assert person.warnings == [60, 59]


def test_messages_that_are_older_than_what_is_shown_are_dropped() -> None:
    person = Person()
    standings = [
        {"status": "AUTH", "percent_complete": 10, "job_timeout": 30},
        {"status": "PENDING", "percent_complete": None},
        {"status": "UPDATING", "percent_complete": 50},
        {"status": "UPDATING", "percent_complete": 70},
        {"status": "UPDATING", "percent_complete": 60},
    ]
    messages = [JobMessage.model_validate({"job_id": 7, "message": said}) for said in standings]
    record = RunStatus(status="UPDATING", percent_complete=60)

    follow(
        StoredOutcomes(Messages(tuple(messages)), END, record=record),
        "7",
        person,
        Passing().clock,
    )

    assert [60, 70, None] == [standing.percent_complete for standing in person.shown]
    assert [] == person.warnings  # the time that was left then is no time that is left


def test_the_time_that_is_left_is_heard_before_anybody_is_prompted() -> None:
    person = Person()

    class Asking(StoredOutcomes):
        def job(self, job_id: str) -> JobRecord:
            pending = {"status": "PENDING", "requests": [asking()]}
            return JobRecord.model_validate({"id": job_id, **pending})

    class Typing(Person):
        def collect(self, request: CredentialRequest, look: Callable[[], bool]) -> dict[str, str]:
            assert not look()
            return super().collect(request, look)

    person = Typing()
    follow(Asking(says(status="PENDING", job_timeout=59), END), "7", person, Passing().clock)

    assert [59] == person.warnings


def test_a_job_that_ends_while_somebody_types_is_answered_nothing() -> None:
    class Ending(StoredOutcomes):
        ended = False

        def job(self, job_id: str) -> JobRecord:
            end = {"status": "TIMEOUT_TFA", "termination_type": "USER_DATA_FAILURE"}
            return JobRecord.model_validate({"id": job_id, **(end if self.ended else {})})

    class Typing(Person):
        def collect(self, request: CredentialRequest, look: Callable[[], bool]) -> dict[str, str]:
            assert not look()
            job.ended = True
            assert look()
            raise PromptEndedError

    job = Ending(Messages(requests=(asking(),)))

    ended = follow(job, "7", Typing(), Passing().clock)

    assert ([], "TIMEOUT_TFA") == (job.answers, ended.status)


def test_another_login_that_ended_the_session_is_told_as_that() -> None:
    ended = SessionEndedError(place="GET", kind="401")
    person = Person()

    follow(StoredOutcomes(ended, END), "7", person, Passing().clock)

    [note] = person.notes
    assert note.startswith("Another login with the same user ended our session; the job continues")


def test_an_end_nobody_knows_is_told_with_what_to_do() -> None:
    ended = follow(
        StoredOutcomes(says(status="GONE", termination_type="BRAND_NEW")),
        "7",
        Person(),
        Passing().clock,
    )

    assert (ended.termination_type, ended.meaning) == ("BRAND_NEW", UNKNOWN_END)


def test_a_status_that_says_the_job_waits_is_enough_to_ask_what_for() -> None:
    told = StoredOutcomes(says(status="PENDING_NEWCREDS"), END)

    follow(told, "7", Person(), Passing().clock)

    assert told.answers == [{"pin": "right"}]


def test_a_request_of_another_job_of_the_cardholder_is_left_alone() -> None:
    told = StoredOutcomes(Messages(requests=(asking(job_id=8),)), END)

    follow(told, "7", Person(), Passing().clock)

    assert told.answers == []


def test_a_request_that_names_nothing_to_type_is_told_once() -> None:
    empty, person = Messages(requests=(asking(account_link=[]),)), Person()

    follow(StoredOutcomes(empty, empty, END), "7", person, Passing().clock)

    assert person.notes == ["The job is waiting, but requests no input."]


def asks_to_acknowledge(envelope: str = "e-1") -> Messages:
    """Return a request of the acknowledgement kind with the key that its answer has."""
    prompt = {"key_name": "tfa", "label": "Open the link", "secret": False}
    request = asking(type="tfa_message", envelope_id=envelope, account_link=[prompt])
    return Messages(requests=(request,))


def test_a_message_to_the_user_with_the_key_of_its_answer_is_acknowledged() -> None:
    person = Person()
    told = StoredOutcomes(asks_to_acknowledge(), END)

    follow(told, "7", person, Passing().clock)

    assert [{"tfa": "ack"}] == told.answers
    assert (["Open the link"], []) == (person.notes, person.asked)


def test_a_message_that_comes_anew_after_its_acknowledgement_wants_what_the_user_types() -> None:
    told = StoredOutcomes(asks_to_acknowledge(), asks_to_acknowledge("e-2"), END)

    follow(told, "7", Person(), Passing().clock)

    assert [{"tfa": "ack"}, {"tfa": "right"}] == told.answers


def test_a_request_whose_answers_are_refused_is_not_answered_for_ever() -> None:
    waiting = Messages(requests=(asking(),))
    person = Person()

    class Refusing(StoredOutcomes):
        def answer(self, job_id: str, envelope_id: str, answers: Mapping[str, str]) -> object:
            self.answers.append(answers)
            raise ServiceRefusedError(place="PUT", status=409, reason="answered")

    told = Refusing(*[waiting] * 9, END)

    follow(told, "7", person, Passing().clock)

    assert 3 == len(told.answers)
    assert "Ask the partner what it expects." in person.notes[-1]


def test_more_time_than_any_job_has_is_doubted_and_not_shown() -> None:
    class Watching(Person):
        def show(self, standing: RunStatus, left: float | None) -> None:
            assert left is None
            super().show(standing, left)

    person = Watching()
    told = [says(status="AUTH", job_timeout=left) for left in (298_000, 296_000)]

    follow(StoredOutcomes(*told, END), "7", person, Passing().clock)

    assert (1, []) == (len(person.notes), person.warnings)
    assert "these may be milliseconds" in person.notes[0]


def test_a_lost_answer_is_asked_for_again_only_while_the_request_stands() -> None:
    waiting = Messages(requests=(asking(),))
    lost, kept = StoredOutcomes(waiting, waiting, END), StoredOutcomes(waiting, Messages(), END)
    lost.lose_answers = kept.lose_answers = 1

    follow(lost, "7", Person(), Passing().clock)
    follow(kept, "7", Person(), Passing().clock)

    assert (len(lost.answers), len(kept.answers)) == (2, 1)


def test_lost_messages_are_made_up_for_by_the_record() -> None:
    lost = AnswerLostError(place="GET", kind="ReadTimeout", advice="")
    ended = RunStatus(status="SUCCESSFUL", termination_type="BILLABLE")

    class Ending(StoredOutcomes):
        def messages(self, job_id: str) -> Messages:
            self._record = ended
            raise lost

    assert follow(Ending(lost), "7", Person(), Passing().clock).placed


def test_a_service_that_loses_messages_and_then_is_busy_is_waited_for() -> None:
    class Failing(StoredOutcomes):
        calls = 0

        def job(self, job_id: str) -> JobRecord:
            self.calls += 1
            if self.calls in (2, 3):
                raise ServiceBusyError(place="GET", kind="HTTP 503")
            end = (
                {"status": "SUCCESSFUL", "termination_type": "BILLABLE"}
                if self.calls > 3
                else {"status": "AUTH"}
            )
            return JobRecord.model_validate({"id": job_id, **end})

    person = Person()

    ended = follow(
        Failing(AnswerLostError(place="GET", kind="ReadTimeout", advice="")),
        "7",
        person,
        Passing().clock,
    )

    assert ended.placed
    assert len(person.notes) == 2


def test_a_service_that_is_silent_for_a_while_is_waited_for_and_not_for_ever() -> None:
    busy, person = ServiceBusyError(place="GET", kind="HTTP 503"), Person()

    ended = follow(StoredOutcomes(busy, busy, END), "7", person, Passing().clock)
    with pytest.raises(ServiceBusyError):
        follow(StoredOutcomes(busy), "7", Person(), Passing().clock)

    assert ended.placed
    assert len(person.notes) == 2


def test_answers_are_posted_where_that_is_the_way_and_the_job_goes_on(
    service: RunningService, client: ServiceClient
) -> None:
    posted: list[str] = []

    def post(job_id: str, envelope_id: str, answers: Mapping[str, str]) -> None:
        posted.extend(answers)
        client.post_answer(job_id, envelope_id, answers)

    job_id = started_job(service, client)

    ended = follow(client, job_id, Person(), Passing(service).clock, answer=post)

    assert ended.placed
    assert ["username", "password"] == posted
