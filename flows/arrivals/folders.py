"""Files in a directory store are heard of from the system that stores them."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from stat import S_ISDIR
from threading import Event

from watchfiles import Change, watch

from flows.arrivals.backlog import Message
from flows.arrivals.events import ObjectEvent
from flows.arrivals.targets import FLOWS, Watched

LOOK = 2000  # milliseconds between two looks for new folders
GROUPED = 200  # milliseconds of changes that are told together
OVERLAP = 10.0  # seconds before the last sign that are looked through again


class FolderSource:
    """Hears of files in the folders of issuers, in a thread of its own.

    What came while nobody watched, since the moment `since`, is told first. A folder that is not
    there yet is watched when it is. `last_sign` is when it last worked, on the monotonic clock.
    """

    def __init__(
        self,
        issuers: Sequence[Watched],
        since: float,
        deliver: Callable[[Message], None],
        stop: Event,
    ) -> None:
        self.last_sign = time.monotonic()
        self.problem = ""
        self._issuers = issuers
        self._since = since
        self._deliver = deliver
        self._stop = stop

    def listen(self) -> None:
        """Tell of files until the stop; errors are waited out, and are the `problem` meanwhile."""
        while not self._stop.is_set():
            try:
                self._watch(self._folders())
            except OSError as error:
                self.problem = f"The folders cannot be watched: {error.strerror or 'OSError'}."
            except RuntimeError:  # of watchfiles, with a text of its own
                self.problem = "The folders cannot be watched; are there inotify watches left?"
            self._stop.wait(LOOK / 1000)

    def _folders(self) -> list[Path]:
        roots = [Path(issuer.place) / issuer.prefix for issuer in self._issuers]
        folders = [root / name for root, name in product(roots, FLOWS)]
        return [folder for folder in folders if _is_folder(folder)]

    def _watch(self, folders: Sequence[Path]) -> None:
        """Watch folders until there are others, or the stop."""
        if not folders:
            self._note_sign()
            return
        changed = watch(
            *folders,
            watch_filter=None,
            debounce=GROUPED,
            rust_timeout=LOOK,
            yield_on_timeout=True,
            stop_event=self._stop,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        # the first look is after the watch has begun, so that nothing is between the two
        is_first = True
        for changes in changed:
            if is_first:
                self._tell((path, False) for path in self._came_since(folders))
                is_first = False
            self._tell((Path(path), change == Change.deleted) for change, path in changes)
            self._note_sign()
            if self._folders() != folders:
                return

    def _note_sign(self) -> None:
        self.problem = ""
        self.last_sign = time.monotonic()
        self._since = time.time() - OVERLAP

    def _came_since(self, folders: Sequence[Path]) -> Iterator[Path]:
        for folder in folders:
            for path, _, names in os.walk(folder):
                files = (Path(path) / name for name in names)
                yield from (file for file in files if self._is_new(file))

    def _is_new(self, file: Path) -> bool:
        try:
            status = file.stat()
        except OSError:  # it went away
            return False
        return max(status.st_mtime, status.st_ctime) >= self._since

    def _tell(self, files: Iterator[tuple[Path, bool]]) -> None:
        events: list[ObjectEvent] = []
        for file, is_removal in files:
            if not file.is_dir():
                events += self._events_of(file, is_removal)
        if events:
            self._deliver(Message(events, lambda: None))

    def _events_of(self, file: Path, is_removal: bool) -> Iterator[ObjectEvent]:
        """Yield the event of a file, of each issuer whose folder it is in."""
        for issuer in self._issuers:
            if file.is_relative_to(Path(issuer.place) / issuer.prefix):
                key = file.relative_to(issuer.place).as_posix()
                yield ObjectEvent(issuer.place, key, "", is_removal)


def _is_folder(path: Path) -> bool:
    """Return whether it is a folder; PermissionError where this user may not look, which `is_dir`
    raises up to Python 3.13 only.
    """
    try:
        return S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
