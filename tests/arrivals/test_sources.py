"""How files are heard of: through a queue whose messages are held, and from a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from flows.adapters.sqs import QueueMessage, QueueUnusableError, SqsQueue
from flows.arrivals import folders, queues
from flows.arrivals.backlog import Message
from flows.arrivals.folders import FolderSource
from flows.arrivals.queues import QueueSource
from flows.arrivals.targets import Watched
from flows.errors import CardlinkError

PATIENCE = 300.0


class MemoryQueue:
    """A queue in memory: what is sent, held, given back and deleted."""

    def __init__(self, *bodies: str) -> None:
        self.waiting = [QueueMessage(body, f"handle {body}") for body in bodies]
        self.held = dict[str, int]()
        self.deleted = set[str]()
        self.error: CardlinkError | None = None

    def receive(self) -> Sequence[QueueMessage]:
        """Return what waits."""
        if self.error is not None:
            raise self.error
        received, self.waiting = self.waiting, []
        return received

    def hold(self, handles: Sequence[str], seconds: int = 120) -> None:
        """Note for how long."""
        self.held |= dict.fromkeys(handles, seconds)

    def delete(self, handles: Sequence[str]) -> None:
        """Note which."""
        self.deleted |= {*handles}


def body(key: str, bucket: str = "bucket") -> str:
    record = f'{{"eventName": "ObjectCreated:Put", "s3": {{"bucket": {{"name": "{bucket}"}}'
    return f'{{"Records": [{record}, "object": {{"key": "{key}"}}}}}}]}}'


def source(queue: MemoryQueue) -> tuple[QueueSource, list[Message]]:
    came: list[Message] = []
    return QueueSource(queue, frozenset({"bucket"}), came.append, Event()), came


def test_a_message_is_deleted_once_it_is_settled_and_held_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = MemoryQueue(body("a"), body("b"))
    heard, came = source(queue)
    monkeypatch.setattr(queues, "AGE", -1.0)
    heard.fetch()
    came[0].settle()

    heard.fetch()

    assert {f"handle {body('a')}"} == queue.deleted
    assert 120 == queue.held[f"handle {body('b')}"]


def test_messages_of_others_are_left_in_the_queue_and_said() -> None:
    queue = MemoryQueue("hello", body("a", "other"))
    heard, came = source(queue)

    heard.fetch()
    heard.close()

    assert ([], set(), {}) == (came, queue.deleted, queue.held)
    assert "no events of this bucket" in heard.problem


def test_what_is_not_settled_at_the_end_is_given_back() -> None:
    queue = MemoryQueue(body("a"))
    heard, _ = source(queue)
    heard.fetch()

    heard.close()

    assert {f"handle {body('a')}": 0} == queue.held


def test_a_queue_that_refuses_is_a_problem_until_it_is_usable() -> None:
    queue = MemoryQueue(body("a"))
    queue.error = QueueUnusableError(queue="q", reason="there is no such queue")
    stop = Event()
    came: list[Message] = []
    heard = QueueSource(queue, frozenset({"bucket"}), came.append, stop)
    with listening(heard.listen, stop):
        until(lambda: heard.problem)
        problem = heard.problem
        queue.error = None
        until(lambda: came)

        assert "there is no such queue" in problem
        assert until(lambda: not heard.problem)


@contextmanager
def listening(listen: Callable[[], None], stop: Event) -> Iterator[None]:
    thread = Thread(target=listen)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE)


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := holds():
            return value
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_a_file_in_a_folder_is_heard_of_also_one_that_came_before_and_one_in_a_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "LOOK", 100)
    extracts = tmp_path / "bank" / "extracts"
    results = tmp_path / "bank" / "results"
    extracts.mkdir(parents=True)
    (extracts / "missed.csv").write_text("x")
    before = time.time() - 5
    came: list[Message] = []
    stop = Event()
    bank = Watched("bank", str(tmp_path), "bank/")
    heard = FolderSource([bank], before, came.append, stop)

    def keys() -> set[str]:
        return {event.key for message in came for event in message.events}

    with listening(heard.listen, stop):
        until(lambda: "bank/extracts/missed.csv" in keys())
        (extracts / "2026").mkdir()
        (extracts / "new.tmp").write_text("x")
        (extracts / "new.tmp").rename(extracts / "new.csv")
        until(lambda: "bank/extracts/new.csv" in keys())
        results.mkdir()
        (results / "result.csv").write_text("x")
        until(lambda: "bank/results/result.csv" in keys())

    assert "bank/extracts/2026" not in keys()
    assert "" == heard.problem


def test_a_queue_that_nobody_serves_is_temporarily_away(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"ENDPOINT_URL": "http://127.0.0.1:1", "DEFAULT_REGION": "us-east-1"}
    for name, value in {**settings, "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    queue = SqsQueue("http://127.0.0.1:1/123456789012/arrivals")

    with pytest.raises(CardlinkError, match="does not respond"):
        queue.length()
