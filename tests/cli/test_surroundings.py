"""A command in bad surroundings: the right exit code, one sentence that names the cause, and a
rerun that does it.

Each case is a shell line in a folder with an issuer; `SUBMIT` stands for the command, in a process
of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.runs.stored_runs import StoredRuns
from tests.night import edges
from tests.torture.test_signals import configured

ROOT = Path(__file__).parents[2]
CHUNKS = 3
SUBMIT = f"{sys.executable} -m flows.cli submit bank"
PANIC = """
import polars as pl
from flows.cli.__main__ import run
from flows.submissions import submit


def build_run(*_):
    raise pl.exceptions.PanicException("4111111111111111")


submit.build_run = build_run
run()
"""
JUMP = """
import os
from datetime import timedelta
from itertools import count
from flows import wiring
from flows.cli.__main__ import run

asked, real = count(1), wiring.now
jump = timedelta(hours=int(os.environ["HOURS"]))
wiring.now = lambda: real() + (jump if next(asked) > int(os.environ["AFTER"]) else timedelta())
run()
"""
HIDDEN = (
    "mount --bind . /mnt; mount --bind {root} /media; cd /mnt; "
    "export PYTHONPATH=/media CARDLINK_CONFIG=/mnt; "
)
ANOTHER = (
    "setpriv --reuid 10001 --regid 10001 --clear-groups "
    "--inh-caps +dac_read_search --ambient-caps +dac_read_search "
)
slow = pytest.mark.slow


def told(folder: Path, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in a folder."""
    return subprocess.run(
        ["bash", "-c", line.replace("SUBMIT", SUBMIT)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CARDLINK_CONFIG": str(folder), **environment},
        capture_output=True,
        text=True,
    )


def private(line: str) -> str:
    """Return a shell line that mounts what it likes where nobody else sees it."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    return f"unshare -m bash -c '{line}'"


def limited(kind: str, limit: str, value: int) -> str:
    """Return the beginning of a shell line that goes on in a control group of its own, which is
    gone afterwards.
    """
    root = Path("/sys/fs/cgroup") / kind
    if not (root / "tasks").exists() or not os.access(root, os.W_OK):
        pytest.skip(f"needs the right to make a control group of {kind}")
    group = root / f"cardlink-{os.getpid()}"
    return (
        f"mkdir {group}; echo {value} > {group}/{kind}.{limit}; "
        f"(echo $BASHPID > {group}/cgroup.procs; exec SUBMIT); "
        f"code=$?; until rmdir {group}; do sleep 0.1; done; exit $code"
    )


def homes() -> set[Path]:
    return {home for root in ("/dev/shm", "/tmp") for home in Path(root).glob("cardlink-gpg-*")}


def committed(folder: Path) -> list[int]:
    """Return the rows sent by each committed run."""
    runs = StoredRuns(edges(LocalStore(folder / "store")), "bank")
    return [manifest.counts.submitted for manifest in runs.manifests()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("SUBMIT <&- >&- 2>&-", 0, ""),
        pytest.param("SUBMIT >&-", 0, "Done, but the output could not be printed", marks=slow),
        pytest.param("SUBMIT 2>&-", 0, "", marks=slow),
        pytest.param(
            "SUBMIT >/dev/full",
            0,
            "Done, but the output could not be printed .No space",
            marks=slow,
        ),
        pytest.param("SUBMIT >/dev/full 2>/dev/full", 0, "", marks=slow),
        pytest.param(
            "SUBMIT | true; exit ${PIPESTATUS[0]}", 0, "Done, but .* .Broken pipe", marks=slow
        ),
        pytest.param("env -u HOME SUBMIT", 0, "", marks=slow),
        pytest.param("umask 777; SUBMIT", 0, "", marks=slow),
        pytest.param("TMPDIR=/nonexistent SUBMIT", 0, "", marks=slow),
        pytest.param("TMPDIR=/etc/passwd SUBMIT", 0, "", marks=slow),
        pytest.param("ulimit -n 24; SUBMIT", 0, "", marks=slow),
    ],
)
def test_a_commit_whose_result_cannot_be_shown_or_whose_machine_is_odd_is_done(
    tmp_path: Path, line: str, code: int, sentence: str
) -> None:
    configured(tmp_path, CHUNKS)

    done = told(tmp_path, line)

    assert (code, [CHUNKS * 5]) == (done.returncode, committed(tmp_path))
    assert re.search(sentence, done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("mkdir gone; cd gone; rmdir ../gone; SUBMIT", 2, "The working directory was removed"),
        ("ulimit -v 600000; SUBMIT", 2, r"The limit of address space \(ulimit -v\) is 585 MB"),
        pytest.param("ulimit -n 12; SUBMIT", 75, "too many open files", marks=slow),
        *(
            pytest.param(f"ulimit -n {most}; SUBMIT", 75, "too many open files", marks=slow)
            for most in (5, 8)
        ),
        *(
            pytest.param(f"ulimit -f {most}; SUBMIT", 75, "no file may have more than", marks=slow)
            for most in (0, 1, 8, 64)
        ),
    ],
)
def test_a_command_that_a_limit_stops_names_it_in_one_sentence_and_the_next_one_does_the_work(
    tmp_path: Path, line: str, code: int, sentence: str
) -> None:
    configured(tmp_path, CHUNKS)

    stopped = told(tmp_path, line)

    assert (code, 1, "") == (stopped.returncode, len(stopped.stderr.splitlines()), stopped.stdout)
    assert re.search(sentence, stopped.stderr)
    assert (0, [CHUNKS * 5]) == (told(tmp_path, "SUBMIT").returncode, committed(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mounts", "code", "sentence"),
    [
        (HIDDEN + "mount -t tmpfs -o ro t /dev/shm; SUBMIT", 0, ""),
        ("mkdir t; mount -t tmpfs -o size=16k t t; TMPDIR=$PWD/t SUBMIT", 0, ""),
        (
            HIDDEN + "mount -t tmpfs -o ro t /dev/shm; mount -t tmpfs -o ro t /tmp; SUBMIT",
            75,
            "48 MB are free",
        ),
        (
            HIDDEN
            + "for one in /dev/shm /tmp; do mount -t tmpfs -o size=4k t $one; done; SUBMIT",
            75,
            "48 MB are free",
        ),
        (
            "mkdir store/bank/runs; mount -t tmpfs -o size=16k t store/bank/runs; SUBMIT",
            2,
            "no room left for",
        ),
        (
            "mkdir -p store/bank/runs; mount -t tmpfs -o ro t store/bank/runs; SUBMIT",
            2,
            r"denied \(EROFS\)",
        ),
    ],
)  # fmt: skip
def test_a_full_or_read_only_disk_is_named_and_the_next_command_does_the_work(
    tmp_path: Path, mounts: str, code: int, sentence: str
) -> None:
    configured(tmp_path, CHUNKS)
    # the project may be in /tmp itself
    submit = SUBMIT.replace(str(ROOT), "/media") if "/media" in mounts else SUBMIT

    stopped = told(tmp_path, private(mounts.format(root=ROOT).replace("SUBMIT", submit)))

    assert (code, "Traceback" in stopped.stderr) == (stopped.returncode, False)
    assert re.search(sentence, stopped.stderr)
    assert (0, [CHUNKS * 5]) == (told(tmp_path, "SUBMIT").returncode, committed(tmp_path))


@pytest.mark.slow
def test_a_command_that_only_reads_and_cannot_print_says_so_and_fails(tmp_path: Path) -> None:
    configured(tmp_path, CHUNKS)
    status = f"{sys.executable} -m flows.cli cardholders bank"
    usage = f"{sys.executable} -m flows.cli --help"

    full = [told(tmp_path, f"{line} >/dev/full") for line in (status, usage)]
    left = told(tmp_path, f"{status} | true; exit ${{PIPESTATUS[0]}}")

    assert ([75, 75], 0) == ([one.returncode for one in full], left.returncode)
    assert [1, 1] == [
        one.stderr.count("could not be printed (No space left on device)") for one in full
    ]
    assert "Traceback" not in left.stderr


@pytest.mark.slow
def test_a_panic_of_a_library_is_one_sentence_without_its_text(tmp_path: Path) -> None:
    configured(tmp_path, CHUNKS)

    (tmp_path / "panic.py").write_text(PANIC)

    broken = told(tmp_path, f"{sys.executable} panic.py submit bank")

    assert (1, 1) == (broken.returncode, len(broken.stderr.splitlines()))
    assert broken.stderr.startswith(
        "cardlink: Internal error in submit (PanicException at panic.py:"
    )
    assert (0, [CHUNKS * 5]) == (told(tmp_path, "SUBMIT").returncode, committed(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 6, 12, 15])
def test_a_limit_of_processes_is_named_and_the_next_command_does_the_work(
    tmp_path: Path, most: int
) -> None:
    configured(tmp_path, CHUNKS)

    stopped = told(tmp_path, limited("pids", "max", most))

    assert (75, 1) == (stopped.returncode, len(stopped.stderr.splitlines()))
    assert stopped.stderr.startswith("cardlink: The limit of processes and threads")
    assert (0, [CHUNKS * 5]) == (told(tmp_path, "SUBMIT").returncode, committed(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("umask 077; {another}SUBMIT", 0, ""),
        ("umask 077; {another}env -u HOME SUBMIT", 0, ""),
        ("ulimit -u 1; {another}SUBMIT", 75, "The limit of processes and threads"),
        ("ulimit -u 14; {another}SUBMIT", 75, "The limit of processes and threads"),
        ("chown -R root store; {another}SUBMIT", 2, r"Access to bank/.* is denied \(EACCES\)"),
        (
            "mkdir -p store/bank/runs; {another}SUBMIT",
            2,
            r"Access to bank/runs.* is denied \(EACCES\)",
        ),
    ],
)
def test_another_user_s_command_is_done_or_names_what_stops_it_and_its_next_one_does_the_work(
    tmp_path: Path, line: str, code: int, sentence: str
) -> None:
    """The user may read what only root may (the interpreter can be there), and write what is its
    own.
    """
    configured(tmp_path, CHUNKS)
    if told(tmp_path, f"chown -R 10001 . && {ANOTHER}true").returncode:
        pytest.skip("needs the right to become another user")

    ended = told(tmp_path, line.format(another=ANOTHER))

    # where it is done, its next step has a name to fill in, which a second line says
    assert (code, 1 + (code == 0)) == (ended.returncode, len(ended.stderr.splitlines()))
    assert re.search(sentence, ended.stderr)
    again = told(tmp_path, f"chown -R 10001 .; umask 077; {ANOTHER}SUBMIT")
    assert (0, [CHUNKS * 5]) == (again.returncode, committed(tmp_path))


@pytest.mark.slow
def test_after_a_kill_for_want_of_memory_the_next_command_does_the_work(tmp_path: Path) -> None:
    configured(tmp_path, CHUNKS)

    killed = told(tmp_path, limited("memory", "limit_in_bytes", 60 << 20))

    assert 128 + 9 == killed.returncode
    assert (0, [CHUNKS * 5]) == (told(tmp_path, "SUBMIT").returncode, committed(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("there", ["runs/*/chunks", "runs/*/chunks/*", "runs/*/ledger"])
@pytest.mark.parametrize("back", ["", "sleep 0.3; mv away store; "])
def test_a_store_that_vanishes_is_named_and_once_it_is_back_the_next_command_does_the_work(
    tmp_path: Path, there: str, back: str
) -> None:
    configured(tmp_path, CHUNKS)
    gone = (
        f"until compgen -G 'store/bank/{there}' >/dev/null || ! kill -0 $run; do :; done; "
        f"mv store away; {back}"
    )

    stopped = told(
        tmp_path,
        f"SUBMIT & run=$!; {gone} wait $run; code=$?; [ -e store ] || mv away store; exit $code",
    )

    assert stopped.returncode in (0, 2, 75)
    assert "Traceback" not in stopped.stderr
    assert (0, [CHUNKS * 5]) == (told(tmp_path, "SUBMIT").returncode, committed(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("hours", ["-2000", "-2", "2", "2000"])
@pytest.mark.parametrize("after", ["1", "4", "8"])
def test_a_clock_that_jumps_is_named_or_does_no_harm_and_nothing_is_sent_twice(
    tmp_path: Path, hours: str, after: str
) -> None:
    configured(tmp_path, CHUNKS)
    (tmp_path / "jump.py").write_text(JUMP)

    jumped = told(tmp_path, f"{sys.executable} jump.py submit bank", HOURS=hours, AFTER=after)

    assert jumped.returncode in (0, 2, 75)
    assert "Traceback" not in jumped.stderr
    assert (0, [CHUNKS * 5]) == (told(tmp_path, "SUBMIT").returncode, committed(tmp_path))
