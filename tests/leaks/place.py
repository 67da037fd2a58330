"""A place for one night: everything a process may leave behind is below one folder, so that all
of it is scanned.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import polars as pl

from schemas.expressions import PUBLISHED
from schemas.portal import CVV, CVV_HASH, PAN
from tests import keys
from tests.builders import portal_rows
from tests.leaks.scanner import Leak, Scanner
from tests.leftovers import ended

ROOT = Path(__file__).parents[2]
BANK = "bank"
EXTRACT = "bank-20261120.csv"
STARTER = ("-c", "from flows.cli.__main__ import run; run()")
TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.9
max_row_jump = 100
max_error_rate = 0.9
max_one_value."service_card.name_on_card" = 1.0
max_one_value."service_card.address.address1" = 1.0
max_one_value."service_card.address.first_name" = 1.0
max_one_value."service_card.address.last_name" = 1.0
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = 7
"""
# Generated under the test BIN, and rich in digits: of a number of zeros half the forms would be
# found anywhere.
CARDS = (
    *PUBLISHED,
    "4000001234567899", "4000007391846257", "4000009182736457", "4000005647382911",
    "4000008273645197", "4000003918274651", "4000006152839477", "4000002749163851",
    "4000007485912361", "4000001928374651", "4000005381726497", "4000009647251837",
    "4000003827465192",
)  # fmt: skip
CVVS = tuple(f"{number:03d}" for number in range(137, 137 + 37 * len(CARDS), 37))


class Said(NamedTuple):
    """What a process said and how it ended."""

    code: int
    out: str
    err: str


class Place:
    """One issuer, one store, and homes and temporary folders of their own for every process started
    here.
    """

    def __init__(
        self, folder: Path, cards: Sequence[str] = CARDS, cvvs: Sequence[str] = CVVS
    ) -> None:
        self.folder = folder
        self.scanner = Scanner(cards, cvvs)
        self.dropped: list[Path] = []  # extracts and results: cards belong there
        for name in ("store/bank/extracts", "store/bank/results", "tmp", "home", "said"):
            (folder / name).mkdir(parents=True)
        self.found: list[Leak] = []
        self.configure(TOML.format(fingerprint=keys.sound().fingerprint))
        (folder / "portal.asc").write_bytes(keys.sound().public)
        (folder / "secret.asc").write_bytes(keys.sound().secret)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every process: ours without Prefect's, and folders below this one."""
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PREFECT_", "PYTEST_"))
        }
        below = {"TMPDIR": "tmp", "HOME": "home", "PREFECT_HOME": "prefect", "CARDLINK_CONFIG": "."}
        return {
            **ours,
            **{name: str(self.folder / path) for name, path in below.items()},
            "PYTHONPATH": str(ROOT),
        }

    def configure(self, toml: str, name: str = BANK) -> None:
        """Write an issuer's TOML."""
        (self.folder / f"{name}.toml").write_text(toml)

    def drop(self, content: bytes, name: str = EXTRACT, folder: str = "extracts") -> Path:
        """Drop an extract, or a result, where cards belong."""
        path = self.folder / "store" / BANK / folder / name
        path.write_bytes(content)
        self.dropped.append(path)
        return path

    def cardlink(self, *arguments: str, env: Mapping[str, str] | None = None) -> Said:
        """Run a command with `-v`; its words, command lines and environments are scanned with the
        rest.
        """
        return self.run([sys.executable, *STARTER, "-v", *arguments], env)

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> Said:
        """Run any process here."""
        with self.started(command, env) as process:
            out, err = process.communicate()
        said = Said(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        self.heard(" ".join(command[-4:]), f"{said.out}\n{said.err}")
        return said

    @contextmanager
    def started(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process in a session of its own and watch what it and its children show of
        themselves.
        """
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        shown: set[str] = set()
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, shown, done))
        watcher.start()
        try:
            with ended(process):
                yield process
        finally:
            done.set()
            watcher.join()
            self.heard("processes", "\n".join(sorted(shown)))

    def heard(self, name: str, text: str) -> None:
        """Keep something that was said, to be scanned with the rest."""
        number = len(list((self.folder / "said").iterdir())) + 1
        (self.folder / "said" / f"{number:04d}.txt").write_text(
            f"{name}\n{text}", "utf-8", errors="replace"
        )

    def look(self) -> None:
        """Scan everything but what was dropped, as it stands now."""
        self.found += self.scanner.scan_folder(self.folder, without=self.dropped)

    def leaks(self) -> list[Leak]:
        """Return everything found, each leak once."""
        self.look()
        self.found = list(dict.fromkeys(self.found))
        return self.found


def rows(*changes: Mapping[str, str | None]) -> pl.DataFrame:
    """Return a good row for every card, the first ones with a change each; every other row has its
    CVV as a hash.
    """
    base: list[dict[str, str | None]] = [
        {PAN: card, CVV: cvv} if at % 2 else {PAN: card, CVV: None, CVV_HASH: hashed(cvv)}
        for at, (card, cvv) in enumerate(zip(CARDS, CVVS, strict=True))
    ]
    return portal_rows(
        *({**row, **change} for row, change in zip(base, _padded(changes, len(base)), strict=True))
    )


def hashed(cvv: str) -> str:
    """Return a CVV's hash as the portal wants it."""
    return b64encode(sha256(cvv.encode()).digest()).decode()


def _padded(
    changes: Sequence[Mapping[str, str | None]], size: int
) -> list[Mapping[str, str | None]]:
    return [*changes, *({} for _ in range(size - len(changes)))]


def _watch(session: int, shown: set[str], done: threading.Event) -> None:
    """Note command line and environment of every process of a session, again and again: gpg lives
    some milliseconds.
    """
    others: set[Path] = set()  # a process stays in its session, or leaves it for one of its own
    while not done.wait(0.003):
        listed = set(Path("/proc").glob("[0-9]*"))
        others &= listed
        for folder in listed - others:
            with contextlib.suppress(OSError, ValueError, IndexError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                    shown.add((folder / "cmdline").read_bytes().decode(errors="replace"))
                    shown.add((folder / "environ").read_bytes().decode(errors="replace"))
                else:
                    others.add(folder)
