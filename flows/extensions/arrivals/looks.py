"""The looks of the process: every few seconds at each issuer's folders, which of their files need a
run, and the beat that says that it looks.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Final

from flows.configuration import issuers, load_issuer
from flows.errors import CardlinkError, guarded
from flows.extensions.arrivals.beat import BEAT_SECONDS, Beat, write_beat
from flows.extensions.arrivals.settings import Arrivals
from flows.redaction import redact
from flows.runs.dropped_files import dropped_files
from flows.runs.keys import extracts, results
from flows.runs.store import Entry, Screened, Store, VerdictAwaitedError, VerdictRefusedError
from flows.steps import counted
from flows.wiring import now, open_store
from schemas.issuer import Issuer

LOG = logging.getLogger("cardlink")
SCHEDULED: Final = timedelta(hours=1)  # an older file was there when a schedule started its run


@dataclass
class DroppedFiles:
    """What a folder held at the last look, and the files that a run was started for.

    No run takes a file that was modified less than `min_age` ago.
    """

    folder: str
    min_age: timedelta = timedelta()
    last: frozenset[Entry] | None = None
    started: frozenset[Entry] = frozenset()

    def look(self, store: Store, moment: datetime) -> frozenset[Entry]:
        """Return the files that need a run: ready, the same as at the last look, not started.

        The first look returns none, and leaves what is older than an hour to the schedule.
        """
        dropped = dropped_files(store, self.folder, shown_as_is=False)
        listed = frozenset(entry for entry in dropped.files if not entry.key.endswith("/"))
        if self.last is None:
            self.started = frozenset(file for file in listed if moment - file.modified > SCHEDULED)
            self.last = frozenset()
        settled = listed & self.last
        self.last = listed
        self.started &= listed
        of_age = (f for f in settled - self.started if moment - f.modified >= self.min_age)
        return frozenset(file for file in of_age if _has_verdict(store, file.key))


def _has_verdict(store: Store, key: str) -> bool:
    """Return whether a file has the malware verdict that its bucket requires; a run reports a bad
    one.
    """
    if not isinstance(store, Screened):
        return True
    with suppress(VerdictRefusedError):
        try:
            store.ensure_clean(key)
        except VerdictAwaitedError:
            return False
    return True


class IssuerWatch(Thread):
    """Starts the runs of an issuer when files arrive.

    Each issuer has a thread, so that a store that does not respond holds up no other. `begin`
    starts a deployment and returns the run that takes the files, None where one is under way.
    """

    def __init__(self, issuer: Issuer, store: Store, begin: Callable[[str], str | None]) -> None:
        super().__init__(daemon=True)
        self.issuer = issuer
        self.stop = Event()
        self._store = store
        self._begin = begin
        self._beat = Beat(at=now())
        self._next_beat = 0.0
        min_age = timedelta(minutes=issuer.source.min_age_minutes)
        self._dropped = {
            "nightly": DroppedFiles(extracts(issuer.issuer), min_age),
            "ingest": DroppedFiles(results(issuer.issuer)),
        }

    def run(self) -> None:
        """Look until the stop."""
        settings = self.issuer.table(Arrivals) or Arrivals()
        LOG.info("%s: runs start when files arrive", self.issuer.issuer)
        while not self.stop.is_set():
            self.look()
            self.stop.wait(settings.every_seconds)

    def look(self) -> None:
        """Look once, start what is needed, and write the beat where it is time."""
        hindrances = [self._hindrance(flow) for flow in self._dropped]
        problem = next(filter(None, hindrances), "")
        if problem and problem != self._beat.problem:
            LOG.warning("%s: %s", self.issuer.issuer, problem)
        self._beat = Beat(at=self._beat.at if problem else now(), problem=problem)
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_SECONDS
        try:
            guarded(write_beat)(self._store, self.issuer.issuer, self._beat)
        except CardlinkError as error:
            LOG.warning("%s: its beat is not written: %s", self.issuer.issuer, error.what_happened)

    def _hindrance(self, flow: str) -> str:
        """Start a flow where files need it; return what hindered that, "" for nothing."""
        try:
            guarded(self._start_run)(flow)
        except CardlinkError as error:
            return redact(str(error))
        return ""

    def _start_run(self, flow: str) -> None:
        dropped = self._dropped[flow]
        files = dropped.look(self._store, now())
        deployment = f"{flow}/{flow}-{self.issuer.issuer}"
        run = self._begin(deployment) if files else None
        if run is not None:
            dropped.started |= files
            LOG.info("%s: %s came, run %s takes them", deployment, counted(len(files), "file"), run)


def watch_issuers(
    folder: Path, begin: Callable[[str], str | None], watches: Sequence[IssuerWatch] = ()
) -> list[IssuerWatch]:
    """Return a watch of each issuer whose TOML has `[arrivals]`: of `watches` those whose TOML has
    not changed, and new ones.
    """
    configured = list(_with_arrivals(folder))
    for watch in watches:
        if watch.issuer not in configured:
            watch.stop.set()
    kept = [watch for watch in watches if watch.issuer in configured]
    known = [watch.issuer for watch in kept]
    missing = [issuer for issuer in configured if issuer not in known]
    new = [IssuerWatch(issuer, open_store(issuer, folder), begin) for issuer in missing]
    for watch in new:
        watch.start()
    return kept + new


def _with_arrivals(folder: Path) -> Iterator[Issuer]:
    """Yield the issuers with `[arrivals]`; one whose TOML has an error is left out, and logged."""
    for name in issuers(folder):
        try:
            issuer = load_issuer(folder, name)
        except CardlinkError as error:
            LOG.warning("%s", error)
            continue
        if issuer.table(Arrivals) is not None:
            yield issuer
