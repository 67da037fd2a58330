"""Run gpg through python-gnupg: a private short-lived home, and hard time limits."""

import errno
import logging
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

import gnupg

from flows.adapters.gpg_home import private_home
from flows.errors import BugError, LimitError, reason_of, translated
from flows.runs import sealing
from flows.stopping import groups, kill

PATIENCE: Final = 120.0  # seconds; sealing a group of 64 chunks takes one
HANGS: Final = 2  # processes of a keyring that were ended for it; then the others are not started
STARTUP: Final = 30.0  # seconds; reading a key or sealing one row takes some hundredths
OLDEST: Final = (2, 2)  # of GnuPG
_VERSION = re.compile(rb"\(GnuPG[^)]*\) (\d+)\.(\d+)")
QUIET: Final = (
    "--no-options",
    "--no-encrypt-to",
    "--no-random-seed-file",  # concurrent processes would wait for its lock
    "--lock-never",
    "--no-auto-check-trustdb",
)
_AGENT = """\
s2k-count 65536
max-cache-ttl 0
default-cache-ttl 0
allow-loopback-pinentry
disable-scdaemon
"""


class _TimedGPG(gnupg.GPG):  # type: ignore[misc]  # python-gnupg ships no types
    """python-gnupg with a timeout, which it lacks.

    A timer kills gpg after `patience` seconds; then GpgHungError, as where something else did. The
    next one has no longer than STARTUP, and after HANGS of them none is started: a gpg that hangs
    costs a run its patience once, however many groups of chunks there are.
    """

    def __init__(self, patience: float, **settings: Any) -> None:
        self.patience = patience
        self._hangs = 0
        super().__init__(**settings)

    def stated_version(self) -> tuple[int, int]:
        """Return which version gpg says it is; (0, 0) where it does not say."""
        process = self._open_subprocess(["--version"])
        result = self.result_map["verify"](self)
        self._collect_output(process, result, stdin=process.stdin)
        version = _VERSION.search(result.data)
        return (int(version[1]), int(version[2])) if version else (0, 0)

    def _open_subprocess(self, args: Sequence[str], passphrase: bool = False) -> Popen[bytes]:
        """Start gpg in a process group of its own.

        Whatever it starts dies with it, and no Ctrl-C reaches it.
        """
        if self._hangs >= HANGS:
            raise sealing.GpgHungError(reason=f"{HANGS} were ended before it, since they hung")
        command = self.make_args(args, passphrase)
        return Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self.env, process_group=0)

    def _collect_output(self, process: Popen[bytes], *args: Any, **kwargs: Any) -> int:
        patience = self.patience
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            kill(process.pid)

        timer = threading.Timer(patience, end)
        timer.daemon = True
        groups.add(process.pid)
        timer.start()
        try:
            code: int = super()._collect_output(process, *args, **kwargs)
        finally:
            timer.cancel()
            groups.discard(process.pid)
        if is_late.is_set():
            self._hangs += 1
            self.patience = min(self.patience, STARTUP)
        if code == -signal.SIGXFSZ:
            raise LimitError(place="gpg", reason=reason_of(errno.EFBIG))
        if code < 0:  # raised here, before python-gnupg reports the resulting broken pipe
            late = f"it was ended after {patience:g} seconds"
            reason = late if is_late.is_set() else f"signal {-code} ended it"
            raise sealing.GpgHungError(reason=reason)
        return code


class Keyring(ExitStack):
    """A private gpg home (0700, short path).

    It is removed with its agent when it is closed or its context ends. `agent` allows gpg to start
    an agent, which secret keys need. `options` are added to every call. Raises GpgMissingError if
    gpg does not run, GpgTooOldError, and GpgHungError.
    """

    def __init__(
        self,
        *,
        agent: bool = False,
        patience: float = PATIENCE,
        gpg: str = "gpg",
        options: Sequence[str] = (),
    ) -> None:
        super().__init__()
        binary = shutil.which(gpg)
        if binary is None:
            raise sealing.GpgMissingError(reason="not found on the PATH")
        self.home = self.enter_context(private_home(agent=agent))
        (self.home / "gpg-agent.conf").write_text(_AGENT)
        logging.getLogger("gnupg").setLevel(logging.WARNING)  # DEBUG would log keys and statuses
        env = {
            "LC_ALL": "C",
            "LANGUAGE": "C",
            "PATH": f"{Path(binary).parent}{os.pathsep}{os.defpath}",
        }
        autostart = [] if agent else ["--no-autostart"]
        arguments = [*QUIET, *autostart, *options]
        with ExitStack() as failed:
            failed.push(self)
            try:
                startup = min(patience, STARTUP)
                self.gpg = _TimedGPG(
                    startup, gpgbinary=binary, gnupghome=str(self.home), options=arguments, env=env
                )
                version = self.gpg.stated_version()
            except (OSError, ValueError) as error:
                # python-gnupg raises another one for it
                limit = translated("gpg", error.__context__ or error)
                missing = sealing.GpgMissingError(reason=type(error).__name__)
                raise limit if isinstance(limit, LimitError) else missing from None
            if version < OLDEST:
                raise sealing.GpgTooOldError(version=".".join(map(str, version)))
            self.gpg.patience = patience
            failed.pop_all()

    @contextmanager
    def briefly(self) -> Iterator[None]:
        """Give gpg no more time than STARTUP, for what takes it hundredths of a second."""
        patience = self.gpg.patience
        self.gpg.patience = min(patience, STARTUP)
        try:
            yield
        finally:
            self.gpg.patience = patience

    def import_key(self, key: bytes, passphrase: str | None = None) -> Any:
        """Return python-gnupg's result of importing one key, None if it raised.

        Raises GpgHungError, also where gpg failed before it judged the key, and LimitError.
        """
        result = self.ask(partial(gnupg.GPG.import_keys, key_data=key, passphrase=passphrase))
        if result is not None and "[GNUPG:] IMPORT_RES" not in result.stderr:
            raise sealing.GpgHungError(reason="it reported that no key could be read")
        return result

    def ask(self, work: Callable[[gnupg.GPG], Any]) -> Any:
        """Return python-gnupg's result, None if it raised: its exceptions may hold rows.

        Raises GpgHungError and LimitError.
        """
        try:
            return work(self.gpg)
        except Exception as error:  # noqa: BLE001  broken pipes, statuses python-gnupg cannot read
            problem = translated("gpg", error)
        if not isinstance(problem, BugError):
            raise problem
        return None
