"""Runs gpg by python-gnupg: a private short-lived home, hard limits of time, and public keys judged as they come in."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, Self

import gnupg

from flows.runs.openpgp import Content, KeyCount, blocks, count_keys
from flows.runs.sealing import (
    GpgHungError,
    GpgMissingError,
    KeyCannotEncryptError,
    KeyExpiredError,
    KeyNotPinnedError,
    KeyRevokedError,
    KeyUnknownError,
    KeyUnreadableError,
    MalformedMessageError,
    ManyKeysError,
    SecretKeyGivenError,
)

PATIENCE: Final = 120.0  # seconds one gpg process may take; a group of 64 chunks takes one
SHORT: Final = "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
MEMORY: Final = "/dev/shm"  # noqa: S108 - as above; making and removing files there costs next to nothing
ROOM: Final = 48 << 20  # bytes: the ciphertext of a few groups
SOCKET_ROOM: Final = 86  # longest home below which the agent's sockets fit the kernel's 108 bytes
QUIET: Final = (
    "--no-options",
    "--no-encrypt-to",
    "--no-random-seed-file",  # two processes at once stall on its lock
    "--lock-never",
    "--no-auto-check-trustdb",
)
_NAME = re.compile(r"^cardlink-gpg-(?P<pid>\d+)-")
_AGENT = "s2k-count 65536\nmax-cache-ttl 0\ndefault-cache-ttl 0\nallow-loopback-pinentry\ndisable-scdaemon\n"


class _TimedGPG(gnupg.GPG):  # type: ignore[misc]  # python-gnupg ships no types
    """python-gnupg with an end: it waits for ever, so a timer kills what takes too long. Raises GpgHungError."""

    def __init__(self, patience: float, **settings: Any) -> None:
        self._patience = patience
        super().__init__(**settings)

    def _collect_output(self, process: Popen[bytes], *args: Any, **kwargs: Any) -> int:
        timer = threading.Timer(self._patience, process.kill)
        timer.daemon = True
        timer.start()
        try:
            code: int = super()._collect_output(process, *args, **kwargs)
        finally:
            timer.cancel()
        if code < 0:  # before python-gnupg reports the broken pipe that follows from it
            raise GpgHungError(seconds=self._patience)
        return code


class Keyring:
    """A private gpg home (0700, short path) that is gone, agent included, when the context ends.

    `agent` allows the agent that secret keys need; without it gpg cannot start one. `options` go to every call.
    GpgMissingError where gpg does not run.
    """

    def __init__(
        self,
        *,
        agent: bool = False,
        patience: float = PATIENCE,
        gpg: str = "gpg",
        options: Sequence[str] = (),
    ) -> None:
        binary = shutil.which(gpg)
        if binary is None:
            raise GpgMissingError(reason="not found on the PATH")
        self._agent = agent
        self.patience = patience
        self.home = _make_home()
        self._held = _hold(self.home)
        logging.getLogger("gnupg").setLevel(logging.WARNING)  # at DEBUG it writes keys and statuses
        try:
            (self.home / "gpg-agent.conf").write_text(_AGENT)
            self.gpg = self._start(binary, options)
        except BaseException:
            self.close()
            raise

    def _start(self, binary: str, more: Sequence[str]) -> gnupg.GPG:
        environment = {
            "LC_ALL": "C",
            "LANGUAGE": "C",
            "PATH": f"{Path(binary).parent}{os.pathsep}{os.defpath}",
        }
        options = [*QUIET, *([] if self._agent else ["--no-autostart"]), *more]
        why = ""
        try:
            return _TimedGPG(
                self.patience, gpgbinary=binary, gnupghome=str(self.home), options=options, env=environment
            )
        except (OSError, ValueError) as error:
            why = type(error).__name__
        raise GpgMissingError(reason=why)

    def ask(self, work: Callable[[gnupg.GPG], Any]) -> Any:
        """Return python-gnupg's result of `work`, None where it raised: its exceptions stay here, they may hold rows.

        Raises GpgHungError where gpg was killed, by us for being late or by somebody else.
        """
        try:
            return work(self.gpg)
        except GpgHungError:
            raise
        except Exception:  # noqa: BLE001 - broken pipes, statuses python-gnupg cannot read
            return None

    def close(self) -> None:
        """End the agent and remove the home; nothing happens the second time."""
        _remove_home(self.home, agent=self._agent)
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def memory_files(chunks: Sequence[Content], folder: Path) -> Iterator[list[str]]:
    """Show gpg each content as a file of its name that lies in memory only; yields the paths, in order."""
    with ExitStack() as open_files:
        for chunk in chunks:
            file = open_files.enter_context(os.fdopen(os.memfd_create("chunk"), "wb"))
            file.writelines(chunk.pieces)
            file.flush()
            (folder / chunk.name).symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        yield [str(folder / chunk.name) for chunk in chunks]


def dead_homes() -> list[Path]:
    """Return the homes that killed processes left behind."""
    return [home for root in _roots() for home in root.glob("cardlink-gpg-*") if _is_dead(home)]


def remove_dead_homes() -> int:
    """Remove the homes that killed processes left behind and return how many there were."""
    dead = dead_homes()
    for home in dead:
        _remove_home(home, agent=True)
    return len(dead)


def _roots() -> list[Path]:
    """Return the folders a home may be in, the best first: in memory, unless somebody has named another in TMPDIR."""
    named = [os.environ["TMPDIR"]] if os.environ.get("TMPDIR") else []
    return [Path(root) for root in dict.fromkeys([*named, MEMORY, tempfile.gettempdir(), SHORT])]


def _make_home() -> Path:
    prefix = f"cardlink-gpg-{os.getpid()}-"
    fit = (root for root in _roots() if len(str(root)) + len(prefix) + 9 <= SOCKET_ROOM and _has_room(root))
    return Path(tempfile.mkdtemp(prefix=prefix, dir=next(fit, Path(SHORT))))


def _has_room(root: Path) -> bool:
    """Tell whether a home can be made in a folder; a container's memory may be small, and is not for us to fill."""
    if not os.access(root, os.W_OK | os.X_OK):
        return False
    free = os.statvfs(root)
    return str(root) != MEMORY or free.f_bavail * free.f_frsize >= ROOM


def _hold(home: Path) -> IO[bytes]:
    """Lock a home for as long as this process lives; the kernel lets go when it is killed."""
    held = (home / "held").open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    return held


def _is_dead(home: Path) -> bool:
    """Tell a home of ours whose process is gone; homes of other users and of live processes are left alone."""
    name = _NAME.match(home.name)
    if not name or home.is_symlink() or not home.is_dir() or home.stat().st_uid != os.getuid():
        return False
    return not _runs(int(name["pid"])) and not _is_held(home)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _is_held(home: Path) -> bool:
    """Tell whether a process of another container, whose ids mean nothing here, holds a home in a shared folder."""
    try:
        with (home / "held").open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def _remove_home(home: Path, *, agent: bool) -> None:
    if not home.exists():
        return
    if agent:
        _gpgconf(home, "--kill", "gpg-agent")
        _gpgconf(home, "--remove-socketdir")  # under /run/user where that exists, else nothing
    shutil.rmtree(home, ignore_errors=True)  # the agent takes its sockets away meanwhile


def _gpgconf(home: Path, *arguments: str) -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # without its home an agent ends by itself
        subprocess.run(["gpgconf", "--homedir", str(home), *arguments], check=False, capture_output=True, timeout=20)


class Part(NamedTuple):
    """A primary key or a subkey as gpg lists it: `state` is r, e or another letter, `created` in epoch seconds."""

    key_id: str
    capabilities: str
    state: str
    created: int
    expires: date | None

    def alive(self, today: date) -> bool:
        """Tell whether the key works all of `today`: on the day it expires a night may outlive it."""
        return self.state != "e" and (self.expires is None or today < self.expires)


class Recipient(NamedTuple):
    """A pinned key that may be sealed to: its fingerprint, the key id messages will name, its last day."""

    fingerprint: str
    key_id: str
    expires: date | None


def import_public_keys(
    ring: Keyring, keys: Sequence[bytes], pinned: Sequence[str], today: date
) -> tuple[Recipient, ...]:
    """Import one public key per file and return the pinned ones in the order of their fingerprints.

    Raises the error of `key_errors` that names the key and its flaw; nothing unsound is left to gpg to notice.
    """
    wanted = ", ".join(pinned)
    public = [_one_public_key(key, number, len(keys), wanted) for number, key in enumerate(keys, start=1)]
    for number, key in enumerate(public, start=1):
        _import(ring, key, number, len(keys))
    found = {entry["fingerprint"]: entry for entry in ring.ask(lambda gpg: gpg.list_keys()) or ()}
    return tuple(_recipient(_pinned(found, fingerprint, pinned), fingerprint, today) for fingerprint in pinned)


def _one_public_key(key: bytes, number: int, of: int, pinned: str) -> bytes:
    """Return the key in binary, so that gpg sees what was counted here and no more."""
    found, why = [], "key.packet.missing"
    try:
        found = blocks(key)
        holds = count_keys(found)
    except MalformedMessageError as error:
        holds, why = KeyCount(0, 0), str(error.fields["reason"])
    if holds.secret:
        raise SecretKeyGivenError(number=number, total=of, pinned=pinned)
    if not holds.public:
        raise KeyUnreadableError(number=number, total=of, reason=why)
    if holds.public > 1:
        raise ManyKeysError(number=number, total=of, count=holds.public)
    return b"".join(found)


def _import(ring: Keyring, key: bytes, number: int, of: int) -> None:
    result = ring.ask(lambda gpg: gpg.import_keys(key))
    if result is None or len(set(result.fingerprints)) != 1:
        raise KeyUnreadableError(number=number, total=of, reason="key.import.refused")


def _pinned(found: Mapping[str, Any], fingerprint: str, pinned: Sequence[str]) -> Any:
    if fingerprint in found:
        return found[fingerprint]
    others = sorted(set(found) - set(pinned))
    if others:
        raise KeyNotPinnedError(fingerprint=fingerprint, found=", ".join(others))
    raise KeyUnknownError(fingerprint=fingerprint)


def _recipient(listed: Any, fingerprint: str, today: date) -> Recipient:
    """Choose the subkey gpg will choose (the newest that is sound), or say why there is none."""
    key = _part(listed, listed["cap"])
    subkeys = [_part(info, info["capability"]) for info in listed.get("subkey_info", {}).values()]
    able = [part for part in (key, *subkeys) if "e" in part.capabilities]  # lower case: the part's own ability
    if key.state == "r":
        raise KeyRevokedError(fingerprint=fingerprint)
    if not key.alive(today):
        raise KeyExpiredError(fingerprint=fingerprint, date=str(key.expires))
    if not able:
        raise KeyCannotEncryptError(fingerprint=fingerprint)
    chosen = _newest_alive(able, fingerprint, today)
    days = [part.expires for part in (key, chosen) if part.expires is not None]
    return Recipient(fingerprint, chosen.key_id, min(days, default=None))


def _newest_alive(able: Sequence[Part], fingerprint: str, today: date) -> Part:
    standing = [part for part in able if part.state != "r"]
    if not standing:
        raise KeyRevokedError(fingerprint=fingerprint)
    alive = [part for part in standing if part.alive(today)]
    if not alive:
        raise KeyExpiredError(fingerprint=fingerprint, date=max(str(part.expires) for part in standing))
    return max(alive, key=lambda part: part.created)


def _part(fields: Any, capabilities: str) -> Part:
    expires = fields["expires"]
    return Part(
        key_id=fields["keyid"],
        capabilities=capabilities,
        state=fields["trust"],
        created=int(fields["date"]),
        expires=datetime.fromtimestamp(int(expires), UTC).date() if expires else None,
    )
