"""Power lost at any moment of a submit or an ingest: what was not synced is forgotten, the rerun
loses nothing.

The system calls of a real process on a directory are recorded, and replayed up to a moment into a
file system that forgets: file contents as they were when the file was last synced, names as they
were when the folder was last synced.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Literal, NamedTuple, get_args

from tests.leaks.tracing import can_trace
from tests.night import Bench
from tests.stores import Place
from tests.torture.night import EXTRACT, Children, GateFacts
from tests.torture.tally import Tally

ROOT = Path(__file__).parents[2]
CALLS = (
    "openat,write,pwrite64,ftruncate,fsync,fdatasync,link,linkat,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat"
)
ROWS = "cardlink.db"  # the database's files are written in place
CHILD = (
    "import json, sys; from tests.torture.child import work; sys.exit(work(json.load(sys.stdin)))"
)
SYNCING = ("fsync", "fdatasync")
_CALL = re.compile(r"(?P<name>\w+)\((?P<given>.*)\) += (?P<result>\d+)")
_DESCRIPTOR, _TEXT = re.compile(r"<([^>]*)>"), re.compile(r'"([^"]*)"')
# what is forgotten, where it was not synced
Memory = Literal["names and data", "data", "at random"]


class Call(NamedTuple):
    """One completed call: its name, its paths, and what was written."""

    name: str
    paths: tuple[str, ...]
    data: bytes = b""
    creates: bool = False
    place: int = 0  # where it is written, or what is left of it


@dataclass
class File:
    """The content of a file, and what of it survives; `origin` where it was there before."""

    data: bytes = b""
    synced: bytes = b""
    origin: Path | None = None

    def write(self, data: bytes, place: int) -> None:
        """Write at a place, over what is there."""
        before = self.data[:place].ljust(place, b"\0")
        self.data = before + data + self.data[place + len(data) :]


@dataclass
class Folder:
    """The names in a folder, and those that survive."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)

    def sync(self) -> None:
        """Let the names survive."""
        self.synced = dict(self.names)


class Forgetful:
    """A file system below one root that forgets what nobody synced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._top = _read(root)

    def do(self, call: Call) -> None:
        """Carry out one call."""
        paths = [PurePath(path).relative_to(self._root) for path in call.paths]
        match call.name:
            case "openat" if call.creates:
                self._folder(paths[0].parent).names.setdefault(paths[0].name, File())
            case "write":
                file = self._file(paths[0])
                file.write(call.data, len(file.data))
            case "pwrite64":
                self._file(paths[0]).write(call.data, call.place)
            case "ftruncate":
                file = self._file(paths[0])
                file.data = file.data[: call.place].ljust(call.place, b"\0")
            case "fsync" | "fdatasync":
                found = self._at(paths[0])
                if isinstance(found, File):
                    found.synced = found.data
                else:
                    found.sync()
            case "link" | "linkat":
                self._folder(paths[1].parent).names[paths[1].name] = self._at(paths[0])
            case "rename" | "renameat" | "renameat2":
                moved = self._folder(paths[0].parent).names.pop(paths[0].name)
                self._folder(paths[1].parent).names[paths[1].name] = moved
            case "unlink" | "unlinkat":
                del self._folder(paths[0].parent).names[paths[0].name]
            case "mkdir" | "mkdirat":
                self._folder(paths[0].parent).names[paths[0].name] = Folder()

    def restart(self, target: Path, memory: Memory, chance: random.Random) -> None:
        """Write what is left after a power loss to an empty folder."""
        _write(self._top, target, memory, chance)

    def _file(self, path: PurePath) -> File:
        found = self._at(path)
        assert isinstance(found, File)
        return found

    def _folder(self, path: PurePath) -> Folder:
        found = self._at(path)
        assert isinstance(found, Folder)
        return found

    def _at(self, path: PurePath) -> File | Folder:
        found: File | Folder = self._top
        for part in path.parts:
            assert isinstance(found, Folder)
            found = found.names[part]
        return found


def lose_power(
    night: GateFacts,
    children: Children,
    places: Iterator[Place],
    losses: int,
    seed: int = 0,
    *,
    synced: bool = True,
) -> Tally:
    """Lose power at so many moments, half of them of a submit, half of an ingest; the rerun must
    lose nothing.

    With `synced` False the disk only says that it has synced, so that much must be lost.
    """
    tally, chance = Tally(f"power losses {next(places).kind}"), random.Random(seed)
    tally.ended.update([] if can_trace() else ["not tried: no strace that may trace"])
    for do in ("submit", "ingest") if can_trace() else ():
        place = next(places)
        bench = night.dropped(place) if do == "submit" else night.until_answered(place)
        before = Forgetful(place.folder)
        recorded = _recorded(children, place, do)
        calls = [call for call in recorded if synced or call.name not in SYNCING]
        moments = range(len(calls) + 1)
        chosen = sorted(chance.sample(moments, min(losses // 2, len(moments))))
        for number, call in enumerate([*calls, None]):
            if number in chosen or call is None:
                memory: Memory = chance.choice(get_args(Memory)) if call else "names and data"
                restarted = next(places)
                before.restart(restarted.folder, memory, chance)
                tally.nights += 1
                tally.done[f"{do}, forgotten: {memory}"] += 1
                bench = night.bench(restarted)
                what = f"{do} after call {number} of {len(calls)}, forgotten: {memory}"
                tally.check(what, partial(_losses, night, bench, do, done=call is None))
            if call:
                before.do(call)
    return tally


def _losses(night: GateFacts, bench: Bench, do: str, *, done: bool) -> list[str]:
    """Let the rerun finish; name what is lost, also a commit that was reported and is forgotten."""
    if do == "ingest":
        return night.report_losses(bench)
    forgotten = [] if bench.submit(EXTRACT).already or not done else ["a commit that was reported"]
    return forgotten + night.submit_losses(bench) + night.report_losses(bench)


def _recorded(children: Children, place: Place, do: str) -> list[Call]:
    """Let a process do a submit or an ingest; return its calls below the place, in the order of
    their ends.
    """
    trace = children.folder / "power.trace"
    strace = [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-xx",
        "-s",
        "10000000",
        "-o",
        str(trace),
        "-e",
        f"trace={CALLS}",
    ]
    subprocess.run(
        [*strace, sys.executable, "-c", CHILD],
        input=json.dumps(children.job(do, place)),
        text=True,
        check=True,
        cwd=ROOT,
        timeout=600,
    )
    calls = list(_calls(trace, place.folder.resolve()))
    trace.unlink()
    return calls


def _calls(trace: Path, root: Path) -> Iterator[Call]:
    begun: dict[str, str] = {}  # by thread: another thread's call ended before this one
    for line in trace.read_text("latin-1").splitlines():
        thread, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[thread] = rest.removesuffix("<unfinished ...>")
            continue
        if rest.startswith("<... "):
            rest = begun.pop(thread) + rest.partition("resumed>")[2]
        found = _CALL.match(rest)
        if found and (
            call := _call(found["name"], found["given"], int(found["result"]), str(root))
        ):
            yield call


def _call(name: str, given: str, result: int, root: str) -> Call | None:
    """Return a call that succeeded below the root."""
    opened, texts = _DESCRIPTOR.findall(given), [_plain(text) for text in _TEXT.findall(given)]
    by_descriptor = name in ("write", "pwrite64", "ftruncate", *SYNCING)
    paths = tuple(os.fsdecode(one) for one in ([_plain(opened[0])] if by_descriptor else texts))
    if not all(f"{path}/".startswith(f"{root}/") for path in paths):
        return None
    data = b"".join(texts)[:result] if by_descriptor else b""
    place = int(given.rpartition(", ")[2]) if name in ("pwrite64", "ftruncate") else 0
    return Call(name, paths, data, "O_CREAT" in given, place)


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else os.fsencode(text)


def _read(folder: Path) -> Folder:
    """Return a folder as it is, all of it synced."""
    found = Folder()
    for path in folder.iterdir():
        if path.is_dir():
            found.names[path.name] = _read(path)
        elif path.name.startswith(ROWS):
            data = path.read_bytes()
            found.names[path.name] = File(data, data)
        else:
            found.names[path.name] = File(origin=path)
    found.sync()
    return found


def _write(folder: Folder, target: Path, memory: Memory, chance: random.Random) -> None:
    """Write what is left of a folder; forgotten at random, each name and content may have survived
    unsynced.
    """
    target.mkdir(exist_ok=True, parents=True)
    names = folder.names.keys() | folder.synced.keys()
    for name in sorted(names - {f"{ROWS}-shm"}):  # what is shared in memory is made anew
        kept = {"names and data": folder.synced, "data": folder.names}.get(memory)
        found = (chance.choice((folder.names, folder.synced)) if kept is None else kept).get(name)
        if isinstance(found, Folder):
            _write(found, target / name, memory, chance)
        elif found and found.origin:
            # the same file to those who look at more than its content
            os.link(found.origin, target / name)
        elif found:
            data = (
                chance.choice((found.data, found.synced)) if memory == "at random" else found.synced
            )
            (target / name).write_bytes(data)
