"""Our private key while `cardlink ingest` lives, and after it was killed: real processes, real
agents.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.runs.keys import results
from flows.runs.sealing import Plain
from tests import keys
from tests.adapters.sealers import sealer_to
from tests.adapters.test_gpg import processes_of
from tests.leftovers import ended
from tests.torture.test_signals import COMMAND, configured, once

FILES = 150  # so that the private key is in use for seconds


@pytest.fixture
def other_temporary_folder() -> Iterator[Path]:
    """Give a TMPDIR that no other command has, short enough for an agent's socket."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def with_sealed_results(folder: Path) -> Path:
    """Return an issuer's folder with result files that are sealed to our own key."""
    (configured(folder) / "our.asc").write_bytes(keys.sound(copy=2).secret)
    dropped = folder / "store" / results("bank")
    dropped.mkdir(parents=True)
    with sealer_to(keys.sound(copy=2)) as sealer:
        for one in sealer.seal(
            [Plain(f"result-{at:05d}.csv", b"nothing of ours\n") for at in range(FILES)]
        ):
            (dropped / f"{one.name}.pgp").write_bytes(one.data)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a command."""
    ours = {"CARDLINK_CONFIG": str(folder), "CARDLINK_PRIVATE_KEY_FILE": str(folder / "our.asc")}
    return {**os.environ, **ours, "PYTHONPATH": str(Path.cwd()), **more}


@contextmanager
def ingesting(folder: Path, temporary: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start an ingest and stop it while an agent holds our private key; give it and its gpg
    home.
    """
    process = subprocess.Popen(
        [*COMMAND, "ingest", "bank"],
        env=environment(folder, TMPDIR=str(temporary)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with ended(process):
        once(lambda: [*temporary.glob("*/private-keys-v1.d/*")] and processes_of(temporary))
        process.send_signal(signal.SIGSTOP)
        yield process, next(temporary.glob("*/private-keys-v1.d")).parent


def another_command(folder: Path) -> None:
    """Run a command that needs no key, with the TMPDIR of everybody."""
    subprocess.run([*COMMAND, "worklist"], env=environment(folder), check=True, capture_output=True)


def links_to(home: Path) -> list[Path]:
    """Return the links by which other processes find a home."""
    return [
        root / home.name
        for root in map(Path, ("/dev/shm", "/tmp"))
        if (root / home.name).is_symlink()
    ]


@pytest.mark.slow
def test_the_private_key_of_a_killed_ingest_is_gone_with_its_agent_at_the_start_of_the_next_command(
    tmp_path: Path, other_temporary_folder: Path
) -> None:
    folder = with_sealed_results(tmp_path)

    with ingesting(folder, other_temporary_folder) as (process, home):
        another_command(folder)
        kept = [*home.glob("private-keys-v1.d/*")], processes_of(home), links_to(home)
        process.kill()
        process.wait()
        another_command(folder)

    assert all(kept)  # while the process lives, nobody touches its home
    assert ([], [], []) == ([*other_temporary_folder.iterdir()], processes_of(home), links_to(home))


@pytest.mark.slow
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_an_ingest_told_to_end_takes_the_private_key_and_its_agent_along(
    tmp_path: Path, other_temporary_folder: Path, told: signal.Signals
) -> None:
    folder = with_sealed_results(tmp_path)

    with ingesting(folder, other_temporary_folder) as (process, home):
        process.send_signal(told)
        process.send_signal(signal.SIGCONT)
        code = process.wait()

    assert 75 == code
    assert ([], [], []) == ([*other_temporary_folder.iterdir()], processes_of(home), links_to(home))
