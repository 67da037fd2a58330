"""What only a directory has: modes, temporary files, growing files, full disks, pipes, a root that
is not there.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.adapters.local import LocalStore
from flows.errors import CardlinkError, LimitError
from flows.runs.store import (
    KeyRefusedError,
    ObjectChangedError,
    ObjectMissingError,
    StoreDeniedError,
    StoreMissingError,
)

NOBODY = 65534
BUSY_WRITER = """
import sys
from pathlib import Path
from flows.adapters.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
for number in range(500):  # it ends, too, where nobody is left to kill it
    store.create(f"chunks/{number}", b"%08d" % number * 40_000)
"""


def content(store: LocalStore, key: str) -> bytes:
    with store.open(key) as source:
        return source.read()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_files_are_0600_and_folders_0700_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    store, before = LocalStore(tmp_path), os.umask(umask)
    try:
        store.create("a/b/created", b"")
        store.replace("a/b/replaced", [b""])
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}

    assert {"a": 0o700, "b": 0o700, "created": 0o600, "replaced": 0o600} == modes


def test_a_killed_writer_leaves_only_whole_objects_and_its_temporary_files_are_removed(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", BUSY_WRITER, str(tmp_path)]) as writer:
            while writer.poll() is None and not any(tmp_path.glob("chunks/*")):
                pass
            writer.kill()

    for one in store.leftovers("chunks/", datetime.now(UTC) + timedelta(seconds=5)):
        store.discard(one)

    assert all(
        b"%08d" % int(entry.key[7:]) * 40_000 == content(store, entry.key)
        for entry in store.keys("chunks/")
    )
    assert len(list(store.keys(""))) == len(list(tmp_path.glob("chunks/*")))


def test_a_temporary_file_is_not_listed_and_no_leftover_while_it_is_new(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("runs/a", b"")
    (tmp_path / "runs/.tmp-1234").write_bytes(b"half")

    left = store.leftovers("", datetime.now(UTC) - timedelta(hours=1))

    assert [] == left
    assert ["runs/a"] == [entry.key for entry in store.keys("")]


def test_cleanup_removes_only_old_temporary_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("runs/a", b"")
    (tmp_path / "runs/.tmp-1234").write_bytes(b"half")

    [left] = store.leftovers("runs/", datetime.now(UTC) + timedelta(seconds=5))
    store.discard(left)

    assert ["a"] == [path.name for path in (tmp_path / "runs").iterdir()]


def test_reading_goes_on_where_it_stopped_and_nothing_is_read_where_nothing_is_asked_for(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"content")

    with store.open("a") as source:
        parts = [source.read(size) for size in (0, 3, 0, -1, 0, -1)]

    assert [b"", b"con", b"", b"tent", b"", b""] == parts


def test_a_file_that_grows_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    store, path = LocalStore(tmp_path), tmp_path / "extract.csv"
    path.write_bytes(b"x" * 100)

    with store.open("extract.csv") as source:
        source.read(10)
        with path.open("ab") as issuer:
            issuer.write(b"more")
        with pytest.raises(ObjectChangedError):
            source.read()


def test_a_file_that_is_cut_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    store, path = LocalStore(tmp_path), tmp_path / "extract.csv"
    path.write_bytes(b"x" * 100)

    with store.open("extract.csv") as source:
        source.read(10)
        os.truncate(path, 50)
        with pytest.raises(ObjectChangedError):
            source.read()


def test_a_file_that_is_replaced_while_it_is_read_stays_the_one_that_was_opened(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"old bytes")

    with store.open("a") as source:
        begun = source.read(3)
        store.replace("a", [b"new bytes"])
        rest = source.read()

    assert b"old bytes" == begun + rest


def test_a_pipe_or_a_folder_in_the_drop_folder_is_no_object_and_hangs_nothing(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    for key in ("pipe", "folder"):
        with pytest.raises(ObjectMissingError):
            store.open(key)
    assert [] == list(store.keys(""))


@pytest.mark.parametrize("target", ["/etc/hostname", "nowhere", "other-bank"])
def test_a_symbolic_link_is_no_object_and_reading_through_it_is_refused(
    tmp_path: Path, target: str
) -> None:
    store = LocalStore(tmp_path)
    store.create("other-bank/extracts/secret", b"")
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop/link").symlink_to(Path("..", target))

    assert [] == list(store.keys("drop/"))
    for key in ("drop/link", "drop/link/extracts/secret"):
        with pytest.raises(KeyRefusedError, match="symbolic link"):
            store.open(key)


def test_a_root_that_is_itself_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")

    LocalStore(tmp_path / "root").create("a", b"")

    assert ["a"] == [path.name for path in (tmp_path / "disk").iterdir()]


def test_a_file_name_that_is_not_utf_8_is_shown_printably_and_cannot_be_opened(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    (Path(os.fsdecode(bytes(tmp_path) + b"/extr\xe9.csv"))).write_bytes(b"")

    found = [entry.key for entry in store.keys("")]

    assert ["extr\\udce9.csv"] == found
    with pytest.raises(ObjectMissingError):
        store.open(found[0])


def test_which_write_of_an_object_it_was_is_told_without_digits_that_look_like_a_card(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"x")
    [first] = store.keys("")
    store.replace("a", [b"y"])
    [second] = store.keys("")

    assert first.version != second.version
    assert not any(char.isdigit() for char in first.version + second.version)


def test_folders_without_objects_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "runs/empty/deeper").mkdir(parents=True)
    (tmp_path / "runs/.tmp-folder").mkdir()

    assert [] == list(LocalStore(tmp_path).keys("", shallow=True))


def test_a_root_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "not mounted")

    with pytest.raises(StoreMissingError):
        store.create("a", b"")
    with pytest.raises(StoreMissingError):
        list(store.keys("first-bank/extracts/"))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_limit_of_the_size_of_files_is_named_and_leaves_nothing(
    tmp_path: Path, operation: str
) -> None:
    store = LocalStore(tmp_path)

    with no_file_larger_than(10_000), pytest.raises(LimitError) as met:
        store.create("a", b"x" * 20_000) if operation == "create" else store.replace(
            "a", [b"x" * 20_000]
        )

    assert [] == list(tmp_path.iterdir())
    assert met.value.__context__ is None
    assert (
        "work on a could not go on: no file may have more than 10,000 bytes (ulimit -f)."
        == met.value.what_happened
    )


SCRIPT = """
import sys
from pathlib import Path
from flows.adapters.local import LocalStore
from flows.errors import CardlinkError
store = LocalStore(Path(sys.argv[1]))
store.create("runs/0", b"warm")
try:
    print(store.create("runs/a", b"x" * 9000), store.replace("runs/b", iter([b"y", b"z"])))
    with store.open("runs/a") as source:
        size = len(source.read())
        print(size, [entry.key for entry in store.keys("runs/")], store.delete("runs/0"))
except CardlinkError as error:
    print(error, error.exit_code)
"""


def under_faults(root: Path, *faults: str) -> str:
    """Return what a process prints whose system calls fail as asked: `link:error=EIO:when=1`."""
    if shutil.which("strace") is None:
        pytest.skip("strace injects the faults, and is not installed")
    inject = [word for one in faults for word in ("-e", f"inject={one}")]
    command = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-o",
        os.devnull,
        *inject,
        sys.executable,
        "-c",
        SCRIPT,
        str(root),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_a_network_file_system_refuses_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    away = ("link:error=ESTALE:when=2", "fsync:error=EIO:when=4", "rename:error=EAGAIN:when=1")

    done = under_faults(tmp_path, *away)

    assert ["True None", "9000 ['runs/0', 'runs/a', 'runs/b'] None"] == done.splitlines()
    assert ["a", "b"] == sorted(path.name for path in (tmp_path / "runs").iterdir())


@pytest.mark.slow
def test_a_disk_that_stays_away_is_an_error_to_try_again_after_a_bounded_time(
    tmp_path: Path,
) -> None:
    done = under_faults(tmp_path, "link:error=EIO:when=2+")

    assert "The store did not respond for runs/a (EIO), even after retries." in done
    assert done.endswith("75\n")
    assert ["0"] == [path.name for path in (tmp_path / "runs").iterdir()]


@pytest.mark.slow
def test_an_object_whose_link_was_made_before_the_error_is_known_as_ours(tmp_path: Path) -> None:
    done = under_faults(tmp_path, "fsync:error=EIO:when=5")

    assert "True None" == done.splitlines()[0]


def test_a_directory_that_may_not_be_written_is_a_named_error() -> None:
    root = Path(tempfile.mkdtemp())  # below a folder that others may enter, unlike tmp_path
    try:
        root.chmod(0o500 if os.geteuid() else 0o555)
        with as_nobody(), pytest.raises(StoreDeniedError) as denied:
            LocalStore(root).create("a", b"")
    finally:
        shutil.rmtree(root)

    assert {"place": "a", "code": "EACCES"} == denied.value.fields
    assert denied.value.__context__ is None


def test_a_directory_that_may_not_be_read_is_a_named_error_and_not_an_empty_one() -> None:
    root = Path(tempfile.mkdtemp())
    try:
        LocalStore(root).create("extracts/a", b"")
        (root / "extracts").chmod(0)
        root.chmod(0o755)
        with as_nobody(), pytest.raises(StoreDeniedError):
            list(LocalStore(root).keys("extracts/"))
    finally:
        (root / "extracts").chmod(0o700)
        shutil.rmtree(root)


@given(
    contents=st.dictionaries(
        st.text("ab.-/é", max_size=8), st.binary(max_size=20), min_size=1, max_size=12
    ),
    prefix=st.text("ab./", max_size=3),
)
def test_a_listing_is_what_a_sorted_table_of_keys_would_give(
    contents: dict[str, bytes], prefix: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = LocalStore(Path(root))
        written = {
            key: data
            for key, data in contents.items()
            if accepted(partial(store.create, key, data))
        }
        listed: list[tuple[str, int]] = []
        if accepted(lambda: list(store.keys(prefix))):
            listed = [(entry.key, entry.size) for entry in store.keys(prefix)]

    expected = sorted(
        ((key, len(data)) for key, data in written.items() if key.startswith(prefix)),
        key=lambda pair: pair[0].encode(),
    )
    assert expected == listed


def accepted(act: Callable[[], object]) -> bool:
    """Return whether a key or prefix was accepted; a name that is both file and folder fits no
    directory.
    """
    try:
        act()
    except CardlinkError:
        return False
    return True


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Limit what this process may write to one file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def as_nobody() -> Iterator[None]:
    """Act without root's rights, where the tests run as root."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)
