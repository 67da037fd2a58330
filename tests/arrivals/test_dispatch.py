"""What starts for what comes: once, in time, and never lost."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from flows.arrivals.backlog import Backlog, Message
from flows.arrivals.dispatch import LONGEST_WAIT, Dispatcher
from flows.arrivals.events import ObjectEvent
from flows.arrivals.targets import LONGEST, MARGIN, QUIET, Target, Watched
from tests.arrivals.prefect import FakePrefect

BANK = Watched("first-bank", "bucket", "cards/first-bank/", "queue")
NIGHT = Target("first-bank", "nightly")
INGEST = Target("first-bank", "ingest")
EXTRACT = ObjectEvent("bucket", "cards/first-bank/extracts/cards.csv", "05")
RESULT = ObjectEvent("bucket", "cards/first-bank/results/cards-00001.csv", "05")


class Story:
    """A dispatcher with its backlog, at a moment that the test moves."""

    def __init__(self, *issuers: Watched) -> None:
        self.now = 1000.0
        self.prefect = FakePrefect()
        self.settled: list[ObjectEvent] = []
        self.backlog = Backlog(issuers or (BANK,))
        self.dispatcher = Dispatcher(self.backlog, self.prefect, lambda line: None)

    def come(self, *events: ObjectEvent) -> None:
        """Let a message come."""
        self.backlog.add(Message(events, lambda: self.settled.extend(events)), self.now)

    def wait(self, seconds: float = QUIET) -> list[str]:
        """Let time pass, and look twice; return the runs there are."""
        self.now += seconds
        self.dispatcher.step(self.now)
        self.now += 1
        self.dispatcher.step(self.now)
        return [*self.prefect.states]

    def set(self, run: str, state: str) -> None:
        """Let a run begin, end or be cancelled, and look."""
        self.prefect.states[run] = state
        self.wait(2)


def test_an_extract_starts_the_night_and_a_result_the_ingest() -> None:
    story = Story()

    story.come(EXTRACT, RESULT)

    assert {"nightly-first-bank-1", "ingest-first-bank-1"} == set(story.wait())


def test_a_run_starts_when_no_other_file_comes_any_more_or_after_the_longest_wait() -> None:
    story = Story()
    seen = []

    for number in range(int(LONGEST) + 1):
        story.come(RESULT._replace(key=f"cards/first-bank/results/{number}.csv"))
        seen.append(len(story.wait(0)))

    assert [0, 1] == sorted(set(seen))
    assert seen.index(1) >= LONGEST - 1


def test_an_extract_that_must_have_an_age_is_left_alone_for_so_long() -> None:
    story = Story(BANK._replace(min_age=120.0))
    story.come(EXTRACT, RESULT)

    early = story.wait(100)
    later = story.wait(20 + MARGIN)

    assert ["ingest-first-bank-1"] == early
    assert ["ingest-first-bank-1", "nightly-first-bank-1"] == later


def test_a_message_is_settled_when_its_run_has_begun_and_not_before() -> None:
    story = Story()
    story.come(EXTRACT)
    [run] = story.wait()
    before = [*story.settled]

    story.set(run, "running")

    assert ([], [EXTRACT]) == (before, story.settled)
    assert (1, 1) == (story.dispatcher.files[NIGHT], story.dispatcher.runs[NIGHT])


def test_what_comes_while_a_run_is_under_way_has_a_run_after_it() -> None:
    story = Story()
    story.come(RESULT)
    [first] = story.wait()
    story.set(first, "running")
    story.come(RESULT._replace(key="cards/first-bank/results/2.csv"))

    meanwhile = story.wait(60)
    story.set(first, "ended")

    assert [first] == meanwhile
    assert [first, "ingest-first-bank-2"] == story.wait()


def test_a_run_that_waits_already_takes_what_comes_and_none_is_started_beside_it() -> None:
    story = Story()
    scheduled = story.prefect.begin(NIGHT)
    story.come(EXTRACT)

    assert [scheduled] == story.wait()


def test_a_run_that_was_cancelled_is_followed_by_another_for_the_same_files() -> None:
    story = Story()
    story.come(RESULT)
    [first] = story.wait()
    story.set(first, "cancelled")
    *_, second = story.wait()

    story.set(second, "running")

    assert [RESULT] == story.settled
    assert (first, "ingest-first-bank-2") == (first, second)
    assert 1 == story.dispatcher.runs[INGEST]


def test_while_the_server_is_away_nothing_is_lost_and_it_is_asked_ever_more_rarely() -> None:
    story = Story()
    story.prefect.is_away = True
    story.come(EXTRACT)
    story.wait(600)
    problem = story.dispatcher.problems[None]

    story.prefect.is_away = False
    [run] = story.wait(LONGEST_WAIT)
    story.set(run, "running")

    assert "cannot be reached" in problem
    assert {} == story.dispatcher.problems
    assert [EXTRACT] == story.settled


def test_an_issuer_without_its_deployment_holds_up_no_other() -> None:
    other = Watched("other-bank", "bucket", "cards/other-bank/", "queue")
    story = Story(BANK, other)
    story.prefect.missing = {NIGHT}
    story.come(EXTRACT)
    story.come(EXTRACT._replace(key="cards/other-bank/extracts/cards.csv"))

    runs = story.wait()
    story.prefect.missing = set()

    assert ["nightly-other-bank-1"] == runs
    assert "no deployment nightly/nightly-first-bank" in story.dispatcher.problems[NIGHT]
    assert "nightly-first-bank-1" in story.wait(LONGEST_WAIT)


def test_an_event_that_comes_twice_or_late_starts_nothing_and_is_settled() -> None:
    story = Story()
    story.come(EXTRACT)
    [run] = story.wait()
    story.set(run, "ended")

    story.come(EXTRACT)
    story.come(EXTRACT._replace(sequencer="04"))

    assert [run] == story.wait(60)
    assert 3 == len(story.settled)


def test_a_repeated_event_is_not_settled_before_the_one_that_waits() -> None:
    story = Story()
    story.come(EXTRACT)
    story.come(EXTRACT)
    [run] = story.wait()
    before = [*story.settled]

    story.set(run, "running")

    assert ([], 2) == (before, len(story.settled))


def test_what_is_written_anew_under_the_same_name_starts_another_run() -> None:
    story = Story()
    story.come(EXTRACT)
    [run] = story.wait()
    story.set(run, "ended")

    story.come(EXTRACT._replace(sequencer="06"))

    assert [run, "nightly-first-bank-2"] == story.wait()


def test_events_for_nothing_are_settled_and_start_nothing() -> None:
    story = Story()
    nothing = [
        EXTRACT._replace(is_removal=True),
        EXTRACT._replace(key="cards/first-bank/runs/x/plan.json"),
        EXTRACT._replace(key="cards/first-bank/extracts/"),
        EXTRACT._replace(key="cards/first-bank/extracts/.cards.csv.part"),
        EXTRACT._replace(key="cards/second-bank/extracts/cards.csv"),
        EXTRACT._replace(key="cards/first-bank-old/extracts/cards.csv"),
        EXTRACT._replace(place="other"),
        ObjectEvent("bucket", ""),
    ]

    for event in nothing:
        story.come(event)

    assert [] == story.wait(60)
    assert nothing == story.settled


EVENTS = st.builds(
    ObjectEvent,
    st.just("bucket"),
    st.sampled_from(["results/1", "results/2", "extracts/1", "runs/1"]).map(
        "cards/first-bank/{}".format
    ),
    st.sampled_from(["", "01", "02", "03"]),
    st.booleans(),
)
ACTS = st.sampled_from(["wait", "begin", "end", "cancel", "away", "back"])


@given(st.lists(st.one_of(st.lists(EVENTS, min_size=1, max_size=3), ACTS), max_size=30))
def test_whatever_comes_in_whatever_order_every_message_is_settled_in_the_end(
    script: Sequence[list[ObjectEvent] | str],
) -> None:
    story = Story()
    moves = {
        "begin": ("new", "running"),
        "end": ("running", "ended"),
        "cancel": ("new", "cancelled"),
    }
    came = 0

    for act in script:
        if isinstance(act, list):
            story.come(*act)
            came += len(act)
        elif act in moves:
            before, after = moves[act]
            for run in [run for run, state in story.prefect.states.items() if state == before]:
                story.prefect.states[run] = after
        else:
            story.prefect.is_away = act == "away"
        story.wait(1)
    story.prefect.is_away = False
    for _ in range(6):
        story.wait(LONGEST_WAIT)
        story.prefect.states = dict.fromkeys(story.prefect.states, "ended")

    assert came == len(story.settled)
