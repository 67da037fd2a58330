"""gpg may be missing, hang, be killed or report wrongly: each case has its own error, and nothing
is left behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import trial_seal
from flows.runs.sealing import (
    GpgHungError,
    GpgMissingError,
    GpgTooOldError,
    Plain,
    SealBrokenError,
    Sealed,
)
from tests import keys
from tests.adapters.sealers import CARD, CHUNKS, gpg_that, sealer_to

PATIENT = 60.0  # seconds that a process which was told to end has


def test_a_missing_gpg_says_what_to_install() -> None:
    with pytest.raises(GpgMissingError, match="Install GnuPG"):
        sealer_to(keys.sound(), gpg="gpg-that-is-not-there")


def test_a_gpg_that_does_not_start_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(GpgMissingError, match="Install GnuPG"):
        sealer_to(keys.sound(), gpg=gpg_that(tmp_path, "exit 1"))


@pytest.mark.parametrize("odd", ["exec sleep 30", "kill -9 $$"])
def test_a_hung_or_killed_gpg_is_trouble_of_every_chunk_in_the_group(
    tmp_path: Path, odd: str
) -> None:
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) {odd};; esac')
    chunks = [Plain("large.csv", bytes(10**6)), *CHUNKS]

    with sealer_to(keys.sound(), gpg=gpg, patience=2) as sealer:
        sealed = sealer.seal(chunks)

    assert [Sealed(chunk.name, b"", "seal.process.killed") for chunk in chunks] == sealed


def test_of_a_gpg_that_hangs_no_more_are_started_than_two(tmp_path: Path) -> None:
    started = tmp_path / "started"
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) echo >> {started}; exec sleep 30;; esac')

    with sealer_to(keys.sound(), gpg=gpg) as sealer:
        sealer.ring.gpg.patience = 0.3
        groups = [sealer.seal(CHUNKS) for _ in range(4)]

    assert {"seal.process.killed"} == {chunk.trouble for group in groups for chunk in group}
    assert 2 == len(started.read_text().splitlines())


# what a gpg does at its start and at the trial, the error that says so, and its exit code
ODD = {
    "says that it is 1.4": (
        """case "$*" in *--version*) echo "gpg (GnuPG) 1.4.23"; exit;; esac""",
        GpgTooOldError,
        2,
    ),
    "says no version": ("""case "$*" in *--version*) exit;; esac""", GpgTooOldError, 2),
    "hangs at its version": (
        """case "$*" in *--version*) exec sleep 30;; esac""",
        GpgHungError,
        75,
    ),
    "hangs when it seals": ("""case "$*" in *--encrypt*) exec sleep 30;; esac""", GpgHungError, 75),
    "is killed when it seals": (
        """case "$*" in *--encrypt*) kill -9 $$;; esac""",
        GpgHungError,
        75,
    ),
    "has no memory to seal": (
        """case "$*" in *--encrypt*) echo "gpg: out of core" >&2; exit 2;; esac""",
        GpgHungError,
        75,
    ),
    "seals nothing, and is content": (
        """case "$*" in *--encrypt*) exit 0;; esac""",
        GpgHungError,
        75,
    ),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_gpg_that_cannot_seal_is_known_before_anything_is_read(
    tmp_path: Path, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    does, error, code = ODD[odd]
    if odd.startswith("hangs"):
        monkeypatch.setattr("flows.adapters.gpg.STARTUP", 1.5)

    with (
        pytest.raises(error) as raised,
        sealer_to(keys.sound(), gpg=gpg_that(tmp_path, does)) as sealer,
    ):
        trial_seal(sealer)

    assert code == raised.value.exit_code


def test_a_gpg_that_hangs_from_the_start_is_a_temporary_failure(tmp_path: Path) -> None:
    with pytest.raises(GpgHungError):
        # its child holds the pipe
        sealer_to(keys.sound(), gpg=gpg_that(tmp_path, "sleep 3000"), patience=0.3)


def test_when_one_chunk_of_a_group_fails_the_others_are_sealed(tmp_path: Path) -> None:
    bad, calls = CHUNKS[2].name, tmp_path / "calls"
    third = f'echo >> {calls}; test "$(wc -l < {calls})" -ne 3 || exit 2'
    gpg = gpg_that(tmp_path, f'case "$*" in *--multifile*) exit 2;; *--encrypt*) {third};; esac')
    key = keys.sound()

    with sealer_to(key, gpg=gpg) as sealer, GpgOpener([key.secret]) as opener:
        calls.unlink(missing_ok=True)
        sealed = sealer.seal(CHUNKS)
        opened = [opener.open(one.data, 100) if one.data else b"" for one in sealed]

    assert ["", "", "seal.process.refused", "", ""] == [one.trouble for one in sealed]
    assert [b"" if chunk.name == bad else chunk.data for chunk in CHUNKS] == opened


def test_a_group_whose_messages_are_lost_is_sealed_one_by_one(tmp_path: Path) -> None:
    lose = 'while read path; do :; done; echo "[GNUPG:] END_ENCRYPTION" >&2; exit 0'
    gpg = gpg_that(tmp_path, f'case "$*" in *--multifile*) {lose};; esac')

    with sealer_to(keys.sound(), gpg=gpg) as sealer:
        sealed = sealer.seal(CHUNKS[:1])

    assert [(CHUNKS[0].name, "")] == [(one.name, one.trouble) for one in sealed]


def test_a_message_cut_by_a_full_disk_is_trouble_though_gpg_says_ok(tmp_path: Path) -> None:
    gpg = gpg_that(
        tmp_path,
        'case "$*" in *--multifile*) exit 2;; *--encrypt*) $real "$@" | head -c 150; exit 0;; esac',
    )

    with sealer_to(keys.sound(), gpg=gpg) as sealer:
        sealed = sealer.seal(CHUNKS[:1])

    assert [Sealed(CHUNKS[0].name, b"", "seal.packet.length.beyond_end")] == sealed


def test_a_message_sealed_to_another_key_is_trouble_and_fails_the_trial(tmp_path: Path) -> None:
    wanted, other = keys.sound(), keys.sound(copy=2)
    swap = f'set -- $(echo "$@" | sed "s/--recipient [^ ]*/--recipient {other.fingerprint}/")'
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) {swap};; esac')

    with sealer_to(wanted, other, pins=(wanted.fingerprint,), gpg=gpg) as sealer:
        sealed = sealer.seal(CHUNKS[:1])
        with pytest.raises(SealBrokenError, match=wanted.fingerprint):
            trial_seal(sealer)

    assert [Sealed(CHUNKS[0].name, b"", "seal.recipients.different")] == sealed


RUN = """
import os, sys
from datetime import date
from flows.runs.sealing import Plain
from flows.adapters.gpg import Keyring
from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.extensions.simulator.portal_key import make_portal_key

key = make_portal_key("curve25519")
settings = {"armor": False, "compression": "zip", "today": date.today()}
sealer = GpgSealer([key.public], [key.fingerprint], **settings)
opener = GpgOpener([key.secret])
opener.open(sealer.seal([Plain("c.csv", b"4242424242424242")])[0].data, 100)
if sys.argv[1] == "killed":
    print(len(os.listdir(os.environ["TMPDIR"])), flush=True)
    os.kill(os.getpid(), 9)
sealer.close(), opener.close()
"""


@contextmanager
def short_temporary_folder() -> Iterator[Path]:
    """Give an empty folder whose path leaves room for an agent's socket."""
    folder = Path(tempfile.mkdtemp(prefix="left-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_and_end(folder: Path, end: str) -> bytes:
    """Seal and open in a child process whose temporary files are in a folder; return what it
    printed.
    """
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", RUN, end]
    return subprocess.run(
        command, env=environment, check=end == "well", stdout=subprocess.PIPE
    ).stdout


def processes_left(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder, once those that were told to end
    had time to: an agent acknowledges that before it has ended.
    """
    deadline = time.monotonic() + PATIENT
    while processes_of(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes_of(folder)


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode("latin-1")
        except OSError:
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


def test_after_a_run_no_file_and_no_process_is_left() -> None:
    with short_temporary_folder() as folder:
        run_and_end(folder, "well")

        assert [] == list(folder.iterdir())
        assert [] == processes_of(folder)


CLEANUP = "from flows.adapters.gpg_home import remove_dead_homes; remove_dead_homes()"


def test_homes_of_killed_processes_are_removed_and_those_of_live_ones_kept() -> None:
    with short_temporary_folder() as folder:
        left = run_and_end(folder, "killed")
        living = folder / f"cardlink-gpg-{os.getpid()}-alive"
        living.mkdir()
        elsewhere = (
            folder / "cardlink-gpg-4194305-held"
        )  # beyond the largest process id: as of another container
        elsewhere.mkdir()
        held = (elsewhere / "held").open("wb")
        fcntl.flock(held, fcntl.LOCK_EX)
        environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path.cwd())}

        subprocess.run(
            [sys.executable, "-c", CLEANUP], env=environment, check=True, capture_output=True
        )

        assert b"2\n" == left
        held.close()
        assert {living, elsewhere} == set(folder.iterdir())
        assert [] == processes_left(folder)


def test_plaintext_is_in_no_file_of_the_home_while_gpg_works(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    grep = f"grep -l {CARD.decode()} {{}} + >> {seen}"
    search = f'$real "$@"; code=$?; find "$home" -type f -exec {grep}; '
    home = 'home=$(echo "$*" | sed "s/.*--homedir \\([^ ]*\\).*/\\1/")'
    count = f'find "$home" -type l >> {seen}.links; exit $code'
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) {home}; {search}{count};; esac')

    # a search sees through no deflate
    with sealer_to(keys.sound(), gpg=gpg, compression="none") as sealer:
        sealed = sealer.seal(CHUNKS)

    assert [""] * len(CHUNKS) == [one.trouble for one in sealed]
    assert "" == seen.read_text()
    assert len(CHUNKS) == len(Path(f"{seen}.links").read_text().splitlines())


def test_a_key_pair_shows_no_secret_in_its_repr() -> None:
    key = keys.sound()

    assert f"PortalKey({key.fingerprint})" == repr(key)


def test_the_log_of_python_gnupg_stays_quiet(caplog: pytest.LogCaptureFixture) -> None:
    key = keys.sound()
    caplog.set_level("DEBUG")

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        opener.open(sealer.seal(CHUNKS[:1])[0].data, 100)

    assert [] == caplog.messages
