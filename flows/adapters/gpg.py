"""Run gpg through python-gnupg: a private short-lived home, hard time limits, and checks of every public key."""

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
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any, Final, NamedTuple, Self

import gnupg

from flows.runs import sealing
from flows.runs.openpgp import Content, KeyCount, blocks, count_keys

PATIENCE: Final = 120.0  # seconds; sealing a group of 64 chunks takes one
SHORT: Final = "/tmp"  # noqa: S108  mkdtemp makes a private folder in it
MEMORY: Final = "/dev/shm"  # noqa: S108  as above; files there never touch a disk
ROOM: Final = 48 << 20  # bytes free in memory: the ciphertext of a few groups
SOCKET_ROOM: Final = 86  # longest path of a home: the agent's sockets below it must fit in the kernel's 108 bytes
QUIET: Final = (
    "--no-options",
    "--no-encrypt-to",
    "--no-random-seed-file",  # concurrent processes would wait for its lock
    "--lock-never",
    "--no-auto-check-trustdb",
)
_NAME = re.compile(r"^cardlink-gpg-(?P<pid>\d+)-")
_AGENT = "s2k-count 65536\nmax-cache-ttl 0\ndefault-cache-ttl 0\nallow-loopback-pinentry\ndisable-scdaemon\n"


class _TimedGPG(gnupg.GPG):  # type: ignore[misc]  # python-gnupg ships no types
    """python-gnupg with a timeout, which it lacks: a timer kills gpg after `patience` seconds. Raises GpgHungError."""

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
        if code < 0:  # raised here, before python-gnupg reports the resulting broken pipe
            raise sealing.GpgHungError(seconds=self._patience)
        return code


class Keyring:
    """A private gpg home (0700, short path), removed with its agent when the context ends.

    `agent` allows gpg to start an agent, which secret keys need. `options` are added to every call.
    Raises GpgMissingError if gpg does not run.
    """

    def __init__(
        self, *, agent: bool = False, patience: float = PATIENCE, gpg: str = "gpg", options: Sequence[str] = ()
    ) -> None:
        binary = shutil.which(gpg)
        if binary is None:
            raise sealing.GpgMissingError(reason="not found on the PATH")
        self._agent = agent
        self.patience = patience
        self.home = _make_home()
        self._held = (self.home / "held").open("wb")
        fcntl.flock(self._held, fcntl.LOCK_EX)  # for as long as this process lives: the kernel unlocks it on a kill
        logging.getLogger("gnupg").setLevel(logging.WARNING)  # DEBUG would log keys and statuses
        try:
            (self.home / "gpg-agent.conf").write_text(_AGENT)
            self.gpg = self._start(binary, options)
        except BaseException:
            self.close()
            raise

    def _start(self, binary: str, more: Sequence[str]) -> gnupg.GPG:
        environment = {"LC_ALL": "C", "LANGUAGE": "C", "PATH": f"{Path(binary).parent}{os.pathsep}{os.defpath}"}
        options = [*QUIET, *([] if self._agent else ["--no-autostart"]), *more]
        try:
            return _TimedGPG(
                self.patience, gpgbinary=binary, gnupghome=str(self.home), options=options, env=environment
            )
        except (OSError, ValueError) as error:
            reason = type(error).__name__
        raise sealing.GpgMissingError(reason=reason)

    def ask(self, work: Callable[[gnupg.GPG], Any]) -> Any:
        """Return python-gnupg's result, None if it raised (its exceptions may hold rows); GpgHungError if killed."""
        try:
            return work(self.gpg)
        except sealing.GpgHungError:
            raise
        except Exception:  # noqa: BLE001  broken pipes, statuses python-gnupg cannot read
            return None

    def close(self) -> None:
        """Stop the agent and remove the home; closing twice is harmless."""
        _remove_home(self.home, agent=self._agent)
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class KeyringOwner:
    """The base of what works with a keyring of its own, and is closed by its context."""

    _ring: Keyring

    def close(self) -> None:
        """Stop the agent and remove the private home; closing twice is harmless."""
        self._ring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def memory_files(chunks: Sequence[Content], folder: Path) -> Iterator[list[str]]:
    """Give gpg each content as a named file that exists in memory only; yields the paths, in order."""
    with ExitStack() as open_files:
        for chunk in chunks:
            file = open_files.enter_context(os.fdopen(os.memfd_create("chunk"), "wb"))
            file.writelines(chunk.pieces)
            file.flush()
            (folder / chunk.name).symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        yield [str(folder / chunk.name) for chunk in chunks]


def dead_homes() -> list[Path]:
    """Return the homes left behind by killed processes."""
    return [home for root in _roots() for home in root.glob("cardlink-gpg-*") if _is_dead(home)]


def remove_dead_homes() -> int:
    """Remove the homes left behind by killed processes; return how many there were."""
    dead = dead_homes()
    for home in dead:
        _remove_home(home, agent=True)
    return len(dead)


def _roots() -> list[Path]:
    """Return the folders a home may be in, in order of preference: TMPDIR if it is set, then memory."""
    roots = (os.environ.get("TMPDIR"), MEMORY, tempfile.gettempdir(), SHORT)
    return [Path(root) for root in dict.fromkeys(roots) if root]


def _make_home() -> Path:
    prefix = f"cardlink-gpg-{os.getpid()}-"
    fit = (root for root in _roots() if len(str(root)) + len(prefix) + 9 <= SOCKET_ROOM and _has_room(root))
    return Path(tempfile.mkdtemp(prefix=prefix, dir=next(fit, Path(SHORT))))


def _has_room(root: Path) -> bool:
    """Return whether a home fits in a folder; a container's memory may be small, and we must not fill it."""
    if not os.access(root, os.W_OK | os.X_OK):
        return False
    free = os.statvfs(root)
    return str(root) != MEMORY or free.f_bavail * free.f_frsize >= ROOM


def _is_dead(home: Path) -> bool:
    """Return whether a home is ours and its process is gone."""
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
    """Return whether a process of another container, whose ids mean nothing here, holds a home in a shared folder."""
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
        _gpgconf(home, "--remove-socketdir")  # under /run/user, if that exists
    shutil.rmtree(home, ignore_errors=True)  # the agent may remove its sockets meanwhile


def _gpgconf(home: Path, *arguments: str) -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # an agent without its home ends by itself
        subprocess.run(["gpgconf", "--homedir", str(home), *arguments], check=False, capture_output=True, timeout=20)


class Part(NamedTuple):
    """A primary key or a subkey as gpg lists it: `state` is r, e or another letter, `created` in epoch seconds."""

    key_id: str
    capabilities: str
    state: str
    created: int
    expires: date | None

    def alive(self, today: date) -> bool:
        """Return whether the key is valid for all of `today`: on its last day it could expire during a run."""
        return self.state != "e" and (self.expires is None or today < self.expires)


class Recipient(NamedTuple):
    """A pinned key to seal to: its fingerprint, the key id that messages will name, and its expiry."""

    fingerprint: str
    key_id: str
    expires: date | None


def import_public_keys(
    ring: Keyring, keys: Sequence[bytes], pinned: Sequence[str], today: date
) -> tuple[Recipient, ...]:
    """Import one public key per file and return the pinned ones, in the order of `pinned`; each flaw has its error."""
    public = [_one_public_key(key, number, len(keys), ", ".join(pinned)) for number, key in enumerate(keys, start=1)]
    for number, key in enumerate(public, start=1):
        result = ring.ask(partial(gnupg.GPG.import_keys, key_data=key))
        if result is None or len(set(result.fingerprints)) != 1:
            raise sealing.KeyUnreadableError(number=number, total=len(keys), reason="key.import.refused")
    found = {entry["fingerprint"]: entry for entry in ring.ask(lambda gpg: gpg.list_keys()) or ()}
    return tuple(_recipient(_pinned(found, fingerprint, pinned), fingerprint, today) for fingerprint in pinned)


def _one_public_key(key: bytes, number: int, of: int, pinned: str) -> bytes:
    """Return the key in binary, so that gpg sees exactly what was counted here."""
    found, why = [], "key.packet.missing"
    try:
        found = blocks(key)
        holds = count_keys(found)
    except sealing.MalformedMessageError as error:
        holds, why = KeyCount(0, 0), str(error.fields["reason"])
    if holds.secret:
        raise sealing.SecretKeyGivenError(number=number, total=of, pinned=pinned)
    if not holds.public:
        raise sealing.KeyUnreadableError(number=number, total=of, reason=why)
    if holds.public > 1:
        raise sealing.ManyKeysError(number=number, total=of, count=holds.public)
    return b"".join(found)


def _pinned(found: Mapping[str, Any], fingerprint: str, pinned: Sequence[str]) -> Any:
    if fingerprint in found:
        return found[fingerprint]
    others = sorted(set(found) - set(pinned))
    if others:
        raise sealing.KeyNotPinnedError(fingerprint=fingerprint, found=", ".join(others))
    raise sealing.KeyUnknownError(fingerprint=fingerprint)


def _recipient(listed: Any, fingerprint: str, today: date) -> Recipient:
    """Return the recipient with the subkey gpg will choose, the newest valid one; raise what is wrong if none is."""
    key = _part(listed, listed["cap"])
    subkeys = [_part(info, info["capability"]) for info in listed.get("subkey_info", {}).values()]
    able = [part for part in (key, *subkeys) if "e" in part.capabilities]  # lower case: its own capability
    if key.state == "r":
        raise sealing.KeyRevokedError(fingerprint=fingerprint)
    if not key.alive(today):
        raise sealing.KeyExpiredError(fingerprint=fingerprint, date=str(key.expires))
    if not able:
        raise sealing.KeyCannotEncryptError(fingerprint=fingerprint)
    unrevoked = [part for part in able if part.state != "r"]
    if not unrevoked:
        raise sealing.KeyRevokedError(fingerprint=fingerprint)
    alive = [part for part in unrevoked if part.alive(today)]
    if not alive:
        raise sealing.KeyExpiredError(fingerprint=fingerprint, date=max(str(part.expires) for part in unrevoked))
    chosen = max(alive, key=lambda part: part.created)
    days = [part.expires for part in (key, chosen) if part.expires is not None]
    return Recipient(fingerprint, chosen.key_id, min(days, default=None))


def _part(fields: Any, capabilities: str) -> Part:
    expires = fields["expires"]
    return Part(
        key_id=fields["keyid"],
        capabilities=capabilities,
        state=fields["trust"],
        created=int(fields["date"]),
        expires=datetime.fromtimestamp(int(expires), UTC).date() if expires else None,
    )
