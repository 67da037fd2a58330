"""The process: what it listens to, one loop that starts runs, and its beat."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import NamedTuple, Protocol

from flows.arrivals.backlog import Backlog, Message
from flows.arrivals.beats import Beats, Condition
from flows.arrivals.dispatch import Dispatcher, Starts
from flows.arrivals.folders import FolderSource
from flows.arrivals.queues import QueueSource
from flows.arrivals.targets import Watched, watched
from flows.configuration import issuers, load_issuer
from flows.errors import CardlinkError, guarded
from flows.runs.store import Store
from flows.wiring import open_queue, open_store, root_of

LOG = logging.getLogger("cardlink")
PATIENCE = 5.0  # seconds that the last beat may take
TICK = 0.5  # seconds between two looks at what has come
CONFIGURED = 30.0  # seconds between two looks at the TOML files


class Source(Protocol):
    """What hears of files, in a thread of its own."""

    last_sign: float

    @property
    def problem(self) -> str:
        """Why it hears nothing, "" where it does."""

    def listen(self) -> None:
        """Tell of files until the stop."""


class Configured(NamedTuple):
    """The issuers whose runs start when a file arrives, and why others of them do not."""

    issuers: tuple[Watched, ...]
    unread: tuple[str, ...] = ()


def configured(folder: Path) -> Configured:
    """Return the issuers with `[arrivals]`; one whose TOML has an error is left out, and named."""
    known: list[Watched] = []
    unread: list[str] = []
    for name in issuers(folder):
        try:
            issuer = load_issuer(folder, name)
            place = watched(issuer, root_of(issuer, folder))
        except CardlinkError as error:
            unread.append(str(error))
        else:
            known += [place] if place else []
    return Configured(tuple(known), tuple(unread))


def stores(folder: Path, known: Sequence[Watched]) -> dict[str, Store]:
    """Open the stores of issuers, by name."""
    return {place.issuer: open_store(load_issuer(folder, place.issuer), folder) for place in known}


def run(folder: Path, starts: Starts, stop: Event, sign: Callable[[], None]) -> None:
    """Start the runs of all issuers with `[arrivals]` until the stop; `sign` is called meanwhile.

    Each time the TOML files say something else, it begins anew with what they say now.
    """
    while not stop.is_set():
        plan = configured(folder)
        for problem in plan.unread:
            LOG.warning("%s", problem)
        names = ", ".join(place.issuer for place in plan.issuers)
        LOG.info("runs start when files arrive, of: %s", names or "no issuer yet")
        process = Process(plan.issuers, stores(folder, plan.issuers), starts)
        with process.listening():
            process.work(stop, _Changes(folder, plan), sign)


class _Changes:
    """Whether the TOML files say something else than a plan; looked up now and then."""

    def __init__(self, folder: Path, plan: Configured) -> None:
        self._folder = folder
        self._plan = plan
        self._looked = time.monotonic()

    def __call__(self) -> bool:
        """Return whether they do."""
        if time.monotonic() - self._looked < CONFIGURED:
            return False
        self._looked = time.monotonic()
        return configured(self._folder) != self._plan


class Process:
    """Listens for the issuers of one configuration, and starts their runs."""

    def __init__(
        self,
        known: Sequence[Watched],
        opened: Mapping[str, Store],
        starts: Starts,
    ) -> None:
        self._over = Event()
        self._came = SimpleQueue[Message]()
        self._backlog = Backlog(known)
        self._dispatcher = Dispatcher(self._backlog, starts, LOG.info)
        self._beats = Beats(opened, self._dispatcher)
        self._sources = self._listen_to(known)
        self._last_tick = time.monotonic()

    def _listen_to(self, known: Sequence[Watched]) -> dict[str, Source]:
        """Return what is listened to for each issuer: its queue, or all folders together."""
        on_disk = [place for place in known if place.queue is None]
        folders = FolderSource(on_disk, self._beats.last_at(), self._came.put, self._over)
        queues: dict[str, QueueSource] = {}
        for url in dict.fromkeys(place.queue for place in known if place.queue):
            places = frozenset(place.place for place in known if place.queue == url)
            queues[url] = QueueSource(open_queue(url), places, self._came.put, self._over)
        return {place.issuer: queues.get(place.queue or "", folders) for place in known}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen, and beat, while the block runs; then give back what is held."""
        sources = list(dict.fromkeys(self._sources.values()))
        beating = Thread(target=self._beat, daemon=True)
        beating.start()
        for source in sources:
            Thread(target=source.listen, daemon=True).start()
        try:
            yield
        finally:
            self._over.set()
            for source in sources:
                if isinstance(source, QueueSource):
                    source.close()
            beating.join(PATIENCE)

    def work(self, stop: Event, is_over: Callable[[], bool], sign: Callable[[], None]) -> None:
        """Start runs until the stop, or until it is over."""
        while not (stop.is_set() or is_over()):
            sign()
            self._take_in()
            try:
                guarded(self._dispatcher.step)(time.monotonic())
            except CardlinkError as error:
                self._dispatcher.problems[None] = str(error)
            self._last_tick = time.monotonic()
            stop.wait(TICK)

    def _take_in(self) -> None:
        while True:
            try:
                message = self._came.get_nowait()
            except Empty:
                return
            self._backlog.add(message, time.monotonic())

    def _beat(self) -> None:
        while not self._over.is_set():
            for issuer, source in self._sources.items():
                sign = min(self._last_tick, source.last_sign)
                self._beats.beat(issuer, Condition(time.monotonic() - sign, source.problem))
            self._over.wait(self._beats.every)
        self._beats.end()
