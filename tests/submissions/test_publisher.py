"""One chunk's trouble leaves the others standing, and the same command finishes the run."""

from __future__ import annotations

import shlex
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from flows.errors import CardlinkError
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.store import (
    ObjectDamagedError,
    StoreBusyError,
    StoreCredentialsError,
    StoreDeniedError,
    StoreEndpointError,
    StoreFullError,
)
from flows.submissions import publisher
from flows.submissions.publisher import ENOUGH, PartialRunError
from tests.adapters.sealers import gpg_that
from tests.builders import quick
from tests.night import Bench, local_bench
from tests.storms import FailingStore

LIES = """
    $real "$@"; code=$?
    home=$(echo "$*" | sed 's/.*--homedir \\([^ ]*\\).*/\\1/')
    find "$home" -name '*.csv.gpg' -exec truncate -s 100 {} +
    exit $code"""


def of_chunks(tmp_path: Path, chunks: int) -> tuple[Bench, str]:
    """Return a bench and an extract of so many chunks of two rows."""
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 2})
    return bench, bench.drop(2 * chunks)


def failing(
    bench: Bench, operation: str, part: str, error: CardlinkError, times: int = 1 << 30
) -> Bench:
    """Return the bench with an error at so many of the operations on keys that hold `part`."""
    left = [times]

    def trouble(asked: str, key: str) -> CardlinkError | None:
        if asked != operation or part not in key or not left[0]:
            return None
        left[0] -= 1
        return error

    return replace(bench, store=FailingStore(bench.store, trouble))


def uploaded(bench: Bench) -> list[str]:
    return [
        entry.key.rpartition("/")[2][-13:-8]
        for entry in bench.store.keys("bank/runs/")
        if "/chunks/" in entry.key
    ]


def committed(bench: Bench) -> bool:
    return any(bench.runs.committed())


@pytest.mark.parametrize(
    ("operation", "error"),
    quick(
        1,
        [
            ("create", StoreBusyError(place="x", code="503")),
            ("create", ObjectDamagedError(key="x")),
        ],
    ),
)
def test_a_chunk_that_cannot_be_published_leaves_the_others_standing(
    tmp_path: Path, operation: str, error: CardlinkError
) -> None:
    bench, extract = of_chunks(tmp_path, 40)

    with pytest.raises(PartialRunError) as partial:
        failing(bench, operation, "-00007.csv.pgp", error).submit(extract)

    fields = partial.value.fields
    assert (1, f"1 {type(error).__name__}") == (fields["count"], fields["reason"])
    assert 39 == len(uploaded(bench))
    assert not committed(bench)
    assert len(bench.submit(extract).manifest.chunks) == 40


def test_a_partial_run_names_the_command_that_finishes_it(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, resend={"seen_before": "send"})
    bench.submit(bench.drop(5, name="2026/the extract of 20261120.csv"))
    broken = failing(bench, "create", "-00001.csv.pgp", StoreBusyError(place="x", code="503"))

    with pytest.raises(PartialRunError) as partial:
        broken.submit(
            "2026/the extract of 20261120.csv",
            new_run="lost it",
            opened=["row-jump", "reject-rate"],
        )

    words = ["--open", "reject-rate", "--open", "row-jump", "--new-run", "lost it"]
    expected = [
        "cardlink",
        "submit",
        "bank",
        "--extract",
        "2026/the extract of 20261120.csv",
        *words,
    ]
    assert expected == shlex.split(str(partial.value).partition("To finish it: ")[2])


def test_a_run_that_repeats_a_partial_one_commits_none_of_its_chunks(tmp_path: Path) -> None:
    bench, extract = of_chunks(tmp_path, 5)
    with pytest.raises(PartialRunError):
        failing(bench, "create", "-00003.csv.pgp", StoreBusyError(place="x", code="503")).submit(
            extract
        )
    standing = {key: data for key, data in bench.snapshot().items() if "/chunks/" in key}

    manifest = bench.submit(extract).manifest
    chunks = manifest.chunks

    after = bench.snapshot()
    keys = keys_of(manifest.run)
    assert standing == {key: after[key] for key in standing}
    assert [keys.chunk_name(number, epoch=2) for number in range(1, 6)] == [
        chunk.name for chunk in chunks
    ]
    assert [digest(after[keys.chunks + chunk.name]) for chunk in chunks] == [
        chunk.sha256 for chunk in chunks
    ]


FOR_OPERATORS = [
    StoreCredentialsError(place="x", code="ExpiredToken"),
    StoreDeniedError(place="x", code="AccessDenied"),
    StoreFullError(place="x", code="ENOSPC"),
    StoreEndpointError(place="x", problem="it forgets"),
]
PLACES = [
    ("create", "-00001.csv.pgp"),
    ("create", "ledger/"),
]


@pytest.mark.parametrize(
    ("operation", "part", "error"),
    [
        pytest.param(
            *place, error, marks=[] if number == at % len(FOR_OPERATORS) else [pytest.mark.slow]
        )
        for at, place in enumerate(PLACES)
        for number, error in enumerate(FOR_OPERATORS)
    ],
)
def test_what_only_an_operator_can_put_right_ends_the_run_as_itself_and_a_rerun_completes_it(
    tmp_path: Path, operation: str, part: str, error: CardlinkError
) -> None:
    bench, extract = of_chunks(tmp_path, 2)

    with pytest.raises(type(error)):
        failing(bench, operation, part, error).submit(extract)

    assert not committed(bench)
    bench.submit(extract)
    assert committed(bench)


@pytest.mark.slow
def test_a_store_that_is_down_ends_the_run_before_every_chunk_was_waited_for(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 1})
    extract = bench.drop(400)
    down = failing(bench, "create", "/chunks/", StoreBusyError(place="x", code="503"))

    with pytest.raises(PartialRunError) as partial:
        down.submit(extract)

    assert ENOUGH <= partial.value.fields["count"] <= 400
    assert 400 == len(bench.submit(extract).manifest.chunks)


def test_a_gpg_that_is_killed_once_is_asked_again(tmp_path: Path) -> None:
    bench, extract = of_chunks(tmp_path, 3)
    mark = tmp_path / "once"
    kill_once = f"[ -e {mark} ] || {{ touch {mark}; kill -9 $$; }}"
    once = f'case "$*" in *--multifile*) {kill_once};; esac'

    manifest = replace(bench, gpg=gpg_that(tmp_path, once)).submit(extract).manifest

    assert mark.exists()
    assert 3 == len(manifest.chunks)


@pytest.mark.parametrize(
    "odd",
    [
        "kill -9 $$",
        "exec sleep 0",
        LIES,
    ],
)
def test_a_gpg_that_dies_or_lies_ends_the_run_as_partial_and_a_sound_one_finishes_it(
    tmp_path: Path, odd: str
) -> None:
    bench, extract = of_chunks(tmp_path, 3)
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) {odd}; exit;; esac')

    with pytest.raises(PartialRunError) as partial:
        replace(bench, gpg=gpg).submit(extract)

    assert 3 == partial.value.fields["count"]
    assert "3 seal." in partial.value.fields["reason"]
    assert [] == uploaded(bench)
    assert 3 == len(bench.submit(extract).manifest.chunks)


def test_a_refusal_is_told_as_itself_where_it_cannot_even_be_noted(tmp_path: Path) -> None:
    bench, extract = of_chunks(tmp_path, 2)

    def full(operation: str, key: str) -> CardlinkError | None:
        return (
            StoreFullError(place=key, code="ENOSPC")
            if operation == "create" and "/claims/" not in key
            else None
        )

    with pytest.raises(StoreFullError) as error:
        replace(bench, store=FailingStore(bench.store, full)).submit(extract)

    assert "/chunks/" in error.value.fields["place"]


class StoppedWhileStarting(ThreadPoolExecutor):
    """A stop signal comes when a thread has been started and the pool does not know it yet."""

    def _adjust_thread_count(self) -> None:
        super()._adjust_thread_count()
        started = set(self._threads)
        self._threads = set()
        signal.raise_signal(signal.SIGINT)
        self._threads = started


def test_a_stop_signal_while_a_sealing_thread_is_started_leaves_none_sealing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, extract = of_chunks(tmp_path, 3)
    monkeypatch.setattr(publisher, "ThreadPoolExecutor", StoppedWhileStarting)

    with pytest.raises(KeyboardInterrupt):
        bench.submit(extract)

    assert [] == [one.name for one in threading.enumerate() if one.name.startswith("seal")]
