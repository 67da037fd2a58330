"""Run gpg through python-gnupg: a private short-lived home, and hard time limits."""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

import gnupg

from flows.adapters.gpg_home import private_home
from flows.errors import BugError, LimitError, translated
from flows.runs import sealing
from flows.stopping import groups, kill

PATIENCE: Final = 120.0  # seconds; sealing a group of 64 chunks takes one
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

    A timer kills gpg after `patience` seconds; then GpgHungError.
    """

    def __init__(self, patience: float, **settings: Any) -> None:
        self._patience = patience
        super().__init__(**settings)

    def _open_subprocess(self, args: Sequence[str], passphrase: bool = False) -> Popen[bytes]:
        """Start gpg in a process group of its own.

        Whatever it starts dies with it, and no Ctrl-C reaches it.
        """
        command = self.make_args(args, passphrase)
        return Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self.env, process_group=0)

    def _collect_output(self, process: Popen[bytes], *args: Any, **kwargs: Any) -> int:
        timer = threading.Timer(self._patience, kill, [process.pid])
        timer.daemon = True
        groups.add(process.pid)
        timer.start()
        try:
            code: int = super()._collect_output(process, *args, **kwargs)
        finally:
            timer.cancel()
            groups.discard(process.pid)
        if code < 0:  # raised here, before python-gnupg reports the resulting broken pipe
            raise sealing.GpgHungError(seconds=self._patience)
        return code


class Keyring(ExitStack):
    """A private gpg home (0700, short path).

    It is removed with its agent when it is closed or its context ends. `agent` allows gpg to start
    an agent, which secret keys need. `options` are added to every call. Raises GpgMissingError if
    gpg does not run.
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
                self.gpg = _TimedGPG(
                    patience, gpgbinary=binary, gnupghome=str(self.home), options=arguments, env=env
                )
            except (OSError, ValueError) as error:
                # python-gnupg raises another one for it
                limit = translated("gpg", error.__context__ or error)
                missing = sealing.GpgMissingError(reason=type(error).__name__)
                raise limit if isinstance(limit, LimitError) else missing from None
            failed.pop_all()

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
