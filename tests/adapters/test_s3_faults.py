"""S3 with faults: every operation succeeds or raises one of our errors, and the same again without
faults succeeds.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import pytest

from flows.adapters.s3 import PART, S3Store, connect
from flows.adapters.s3_pace import GRACE, RATE, Paced
from flows.errors import CardlinkError
from flows.runs.retry import Retry
from flows.runs.store import (
    ObjectChangedError,
    ObjectDamagedError,
    StoreBusyError,
    StoreClockError,
    StoreDeniedError,
    StoreEndpointError,
    StoreExpiredError,
    StoreFullError,
    StoreMissingError,
    StoreRefusedError,
    ensure_usable,
)
from tests import fault_proxy, servers
from tests.builders import quick
from tests.fault_proxy import Chooser, Fault, Proxy, RunInputs, always, at_random, scripted
from tests.night import Bench, issuer

SECOND_TRY = [
    Fault.THROTTLED,
    Fault.TOO_MANY,
    Fault.CONFLICT,
    Fault.RESET,
    Fault.TIMEOUT,
    Fault.LOST_ANSWER,
    Fault.LATE_500,
]
OPERATORS = [
    (Fault.SKEWED, StoreClockError),
    (Fault.DENIED, StoreDeniedError),
    (Fault.NO_BUCKET, StoreMissingError),
    (Fault.FULL, StoreFullError),
]


def retry(attempts: int = 25) -> Retry:
    """Try again without waiting long, so that faults cost no time."""
    return Retry(
        time.monotonic, lambda _: time.sleep(0.001), random.random, budget=300, attempts=attempts
    )


@pytest.fixture
def calm(moto_server: servers.S3Server) -> S3Store:
    """The store as it is without faults."""
    return servers.store(moto_server, uuid4().hex, retry())


@contextmanager
def faulty(
    calm: S3Store, server: servers.S3Server, choose: Chooser, attempts: int = 25
) -> Iterator[tuple[S3Store, Proxy]]:
    """Reach the same objects through a proxy that injects what `choose` says."""
    prefix = repr(calm).rpartition("cards/")[2].rstrip("/')")
    with fault_proxy.between(server.endpoint, choose) as proxy:
        client = servers.client(proxy.endpoint, read_timeout=1.0)
        yield S3Store(server.bucket, prefix, client, retry(attempts)), proxy


def content(store: S3Store, key: str) -> bytes:
    with store.open(key) as source:
        return source.read()


@pytest.mark.parametrize("fault", SECOND_TRY)
def test_a_write_is_tried_again_and_known_as_ours_even_where_the_first_answer_was_lost(
    calm: S3Store, moto_server: servers.S3Server, fault: Fault
) -> None:
    with faulty(calm, moto_server, scripted("PUT", fault)) as (store, proxy):
        created = store.create("a", b"ours")

    assert created
    assert {fault: 1} == proxy.injected
    assert b"ours" == content(calm, "a")


@pytest.mark.parametrize("fault", SECOND_TRY)
def test_a_write_that_meets_another_ones_object_is_not_taken_for_ours(
    calm: S3Store, moto_server: servers.S3Server, fault: Fault
) -> None:
    calm.create("a", b"theirs")

    with faulty(calm, moto_server, scripted("PUT", fault)) as (store, _):
        created = store.create("a", b"ours")

    assert not created
    assert b"theirs" == content(calm, "a")


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.RESET, Fault.LATE_500, Fault.LOST_ANSWER])
def test_a_store_that_stays_down_is_a_named_error_after_a_bounded_time(
    calm: S3Store, moto_server: servers.S3Server, fault: Fault
) -> None:
    with (
        faulty(calm, moto_server, always(fault), attempts=5) as (store, proxy),
        pytest.raises(StoreBusyError) as busy,
    ):
        store.create("a", b"data")

    assert 5 == len(proxy.asked)
    assert 75 == busy.value.exit_code
    assert calm.create("a", b"data") != (fault in (Fault.LATE_500, Fault.LOST_ANSWER))
    assert b"data" == content(calm, "a")


@pytest.mark.parametrize("operation", ["create", "open", "keys", "delete"])
@pytest.mark.parametrize(("fault", "error"), OPERATORS)
def test_what_only_an_operator_can_put_right_is_reported_at_once(
    calm: S3Store,
    moto_server: servers.S3Server,
    fault: Fault,
    error: type[CardlinkError],
    operation: str,
) -> None:
    acts: dict[str, Callable[[S3Store], object]] = {
        "create": lambda store: store.create("a", b""),
        "open": lambda store: store.open("a"),
        "keys": lambda store: list(store.keys("")),
        "delete": lambda store: store.delete("a"),
    }

    with faulty(calm, moto_server, always(fault)) as (store, proxy), pytest.raises(error) as raised:
        acts[operation](store)

    assert 1 == len(proxy.asked)
    assert (2, None) == (raised.value.exit_code, raised.value.__context__)


BREAKS = [
    Fault.SLOW_BODY,
    Fault.RESET_IN_BODY,
    Fault.CUT_BODY,
    Fault.STALLED_BODY,
    Fault.RESET,
    Fault.THROTTLED,
    Fault.TIMEOUT,
]


@pytest.mark.parametrize("fault", BREAKS)
def test_a_read_goes_on_where_it_broke_off(
    calm: S3Store, moto_server: servers.S3Server, fault: Fault
) -> None:
    data = os.urandom(5 * 2**20 + 7)
    calm.create("a", data)

    with (
        faulty(calm, moto_server, scripted("GET", fault, None, fault)) as (store, _),
        store.open("a") as source,
    ):
        pieces = list(iter(lambda: source.read(300_001), b""))

    assert hashlib.sha256(data).digest() == hashlib.sha256(b"".join(pieces)).digest()


def test_a_read_of_which_seven_in_ten_answers_drop_still_arrives_whole(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    data = os.urandom(12 * 2**20)
    calm.create("a", data)

    with faulty(calm, moto_server, at_random(7, 0.7, [Fault.RESET_IN_BODY, Fault.CUT_BODY])) as (
        store,
        proxy,
    ):
        read = content(store, "a")

    assert data == read
    assert proxy.injected.total() > 3


def test_an_object_replaced_while_it_is_read_is_never_mixed(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    calm.create("a", b"1" * 5_000_000)

    with (
        faulty(calm, moto_server, scripted("GET", Fault.RESET_IN_BODY)) as (store, _),
        store.open("a") as source,
    ):
        begun = source.read(1000)
        calm.replace("a", [b"2" * 5_000_000])
        with pytest.raises(ObjectChangedError):
            source.read()

    assert b"1" * 1000 == begun


def test_a_body_that_stalls_every_time_is_an_error_to_try_again_and_never_half_an_object(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    calm.create("a", os.urandom(3 * 2**20))

    def stall(asked: RunInputs) -> Fault | None:
        return Fault.STALLED_BODY if asked.method == "GET" else None

    with (
        faulty(calm, moto_server, stall, attempts=2) as (store, _),
        pytest.raises(StoreBusyError) as busy,
    ):
        content(store, "a")

    assert 75 == busy.value.exit_code


@pytest.mark.parametrize("always_slow", [False, True])
def test_a_body_that_trickles_is_requested_again_and_ends_within_a_bounded_time(
    calm: S3Store, moto_server: servers.S3Server, always_slow: bool
) -> None:
    data = os.urandom(100_000)
    calm.create("a", data)
    choose = always(Fault.TRICKLE) if always_slow else scripted("GET", Fault.TRICKLE)
    hurried = Retry(lambda: time.monotonic() * 200, lambda _: None, random.random, budget=300)
    prefix = repr(calm).rpartition("cards/")[2].rstrip("/')")

    with fault_proxy.between(moto_server.endpoint, choose) as proxy:
        client = servers.client(proxy.endpoint)
        store = S3Store(moto_server.bucket, prefix, client, hurried)
        if always_slow:
            with pytest.raises(StoreBusyError, match="body too slow") as busy:
                content(store, "a")
            assert 75 == busy.value.exit_code
        else:
            assert data == content(store, "a")

    assert proxy.injected[Fault.TRICKLE]


@pytest.mark.parametrize("always_slow", [False, True])
def test_a_listing_that_trickles_is_requested_again_and_ends_within_a_bounded_time(
    calm: S3Store, moto_server: servers.S3Server, always_slow: bool
) -> None:
    calm.create("a", b"")
    choose = always(Fault.TRICKLE) if always_slow else scripted("GET", Fault.TRICKLE)
    hurried = Retry(lambda: time.monotonic() * 200, lambda _: None, random.random, budget=300)
    prefix = repr(calm).rpartition("cards/")[2].rstrip("/')")

    with fault_proxy.between(moto_server.endpoint, choose) as proxy:
        store = S3Store(moto_server.bucket, prefix, servers.client(proxy.endpoint), hurried)
        if always_slow:
            with pytest.raises(StoreBusyError, match="body too slow") as busy:
                list(store.keys(""))
            assert 75 == busy.value.exit_code
        else:
            assert ["a"] == [entry.key for entry in store.keys("")]

    assert proxy.injected[Fault.TRICKLE]


class Trickle(BytesIO):
    """A stream whose bytes come one at a time, each after so many seconds."""

    def __init__(self, data: bytes, seconds: float) -> None:
        super().__init__(data)
        self.seconds = seconds
        self.now = 0.0

    def read1(self, size: int | None = -1, /) -> bytes:
        self.now += self.seconds
        return super().read(1)


@pytest.mark.parametrize(("rate", "is_refused"), [(2 * RATE, False), (RATE // 20, True)])
def test_a_small_body_has_to_come_at_the_least_rate_too(rate: int, is_refused: bool) -> None:
    stream = Trickle(b"1" * RATE * 2, 1 / rate)
    body = Paced(stream, "a", lambda: stream.now)

    with pytest.raises(StoreBusyError, match="too slow") if is_refused else nullcontext():
        assert stream.getvalue() == body.read()

    assert stream.now < 2 * GRACE


def test_a_bucket_in_another_region_is_followed_there(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    def at_home(asked: RunInputs) -> Fault | None:
        return None if "/eu-central-1/" in asked.signed else Fault.MOVED

    said = [("x-amz-bucket-region", "eu-central-1")]
    with fault_proxy.between(moto_server.endpoint, at_home, headers=said) as proxy:
        store = S3Store(moto_server.bucket, uuid4().hex, servers.client(proxy.endpoint), retry(2))
        created = [store.create("a", b"1"), store.create("b", b"2")]

    assert [True, True] == created
    assert {Fault.MOVED: 1} == proxy.injected


def test_a_bucket_that_moved_without_saying_where_is_said_at_once(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    with (
        faulty(calm, moto_server, always(Fault.MOVED)) as (store, _),
        pytest.raises(StoreEndpointError, match="it redirects without naming a region"),
    ):
        store.create("a", b"")


ACTS: dict[str, Callable[[S3Store], object]] = {
    "listed": lambda store: list(store.keys("i/")),
    "opened": lambda store: store.open("i/a"),
    "created": lambda store: store.create("i/b", b"b"),
    "replaced": lambda store: store.replace("i/b", [b"b"]),
    "replaced in parts": lambda store: store.replace("i/b", [bytes(PART), b"b"]),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_web_page_is_never_taken_for_what_a_store_answers(
    calm: S3Store, moto_server: servers.S3Server, act: str
) -> None:
    calm.create("i/a", b"a")

    with (
        faulty(calm, moto_server, always(Fault.PAGE), attempts=2) as (store, _),
        pytest.raises(StoreEndpointError, match="perhaps it is a web page"),
    ):
        ACTS[act](store)

    assert ["i/a"] == [entry.key for entry in calm.keys("i/")]


@pytest.mark.parametrize("renewed", [True, False])
def test_credentials_that_expire_in_the_middle_are_read_anew_where_they_are_kept(
    moto_server: servers.S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    kept, prefix = tmp_path / "credentials", uuid4().hex

    def keep(key: str) -> None:
        kept.write_text(
            f"[default]\naws_access_key_id={key}\naws_secret_access_key=s\naws_session_token=t\n"
        )

    def expired(asked: RunInputs) -> Fault | None:
        if asked.number < 2 or "Credential=NEW/" in asked.signed:
            return None
        keep("NEW" if renewed and asked.number > 3 else "OLD")
        return Fault.EXPIRED

    keep("OLD")
    with fault_proxy.between(moto_server.endpoint, expired) as proxy:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(kept))
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        store = connect(f"s3://{moto_server.bucket}/{prefix}", threads=2, retry=retry(4))
        store.create("a", b"1")
        store.create("b", b"2")
        if renewed:
            assert store.create("c", b"3")
        else:
            with pytest.raises(
                StoreExpiredError, match=r"expired \(ExpiredToken\).* Renew them"
            ) as error:
                store.create("c", b"3")
            assert 75 == error.value.exit_code

    assert (3 if renewed else 4) == proxy.injected[Fault.EXPIRED]


def test_credentials_that_never_worked_are_not_waited_for(moto_server: servers.S3Server) -> None:
    with fault_proxy.between(moto_server.endpoint, always(Fault.EXPIRED)) as proxy:
        store = S3Store(moto_server.bucket, "x", servers.client(proxy.endpoint), retry(4))

        with pytest.raises(StoreExpiredError):
            store.create("a", b"1")

    assert 1 == proxy.injected[Fault.EXPIRED]


def test_an_object_deleted_while_it_is_read_is_a_named_error(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    calm.create("a", b"1" * 5_000_000)

    with (
        faulty(calm, moto_server, scripted("GET", Fault.RESET_IN_BODY)) as (store, _),
        store.open("a") as source,
    ):
        calm.delete("a")
        with pytest.raises(CardlinkError, match=r"There is no a\."):
            source.read()


def test_a_wrong_byte_is_noticed_where_the_store_keeps_checksums(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    calm.create("a", b"data" * 1000)

    with (
        faulty(calm, moto_server, scripted("GET", Fault.WRONG_BYTE)) as (store, _),
        pytest.raises(ObjectDamagedError),
    ):
        content(store, "a")

    assert b"data" * 1000 == content(calm, "a")


def test_a_server_that_answers_a_range_with_the_whole_is_not_believed(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    calm.create("a", b"data" * 1_000_000)

    with (
        faulty(calm, moto_server, scripted("GET", Fault.RESET_IN_BODY, Fault.NO_RANGE)) as (
            store,
            _,
        ),
        store.open("a") as source,
        pytest.raises(StoreEndpointError, match="range"),
    ):
        source.read()


@pytest.mark.parametrize("fault", [*SECOND_TRY, Fault.GARBLED, Fault.CUT_BODY, Fault.RESET_IN_BODY])
def test_a_listing_is_whole_or_asked_for_again(
    calm: S3Store, moto_server: servers.S3Server, fault: Fault
) -> None:
    keys = [f"i/{number}" for number in range(9)]
    for key in keys:
        calm.create(key, b"")

    with faulty(calm, moto_server, scripted("GET", fault)) as (store, _):
        found = [entry.key for entry in store.keys("i/")]

    assert keys == found


@pytest.mark.parametrize("fault", quick(2, SECOND_TRY))
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_large_report_is_replaced_whole_through_any_passing_fault(
    calm: S3Store, moto_server: servers.S3Server, fault: Fault, method: str
) -> None:
    data = os.urandom(PART + 100)

    with faulty(calm, moto_server, scripted(method, fault, fault)) as (store, _):
        store.replace("report/links.csv", [data])

    assert data == content(calm, "report/links.csv")


@pytest.mark.parametrize("kind", ["moto_server", "ministack_server"])
def test_a_lost_answer_to_the_last_step_of_an_upload_counts_as_done(
    request: pytest.FixtureRequest, kind: str
) -> None:
    server: servers.S3Server = request.getfixturevalue(kind)
    calm = servers.store(server, uuid4().hex, retry())
    data = os.urandom(PART + 100)

    with faulty(calm, server, scripted("POST", None, Fault.LOST_ANSWER)) as (store, proxy):
        store.replace("report/links.csv", [data])

    assert {Fault.LOST_ANSWER: 1} == proxy.injected
    assert data == content(calm, "report/links.csv")


def test_an_upload_that_another_aborted_is_a_named_error_and_does_not_count_as_done(
    ministack_server: servers.S3Server,
) -> None:
    # moto answers 500 to the end of a swept upload
    calm = servers.store(ministack_server, uuid4().hex, retry())
    calm.create("report/links.csv", b"old")

    def swept_before_the_end(asked: RunInputs) -> None:
        if asked.method == "POST" and "uploadId" in asked.path:
            for upload in calm.leftovers("report/", datetime.now(UTC) + timedelta(hours=1)):
                calm.discard(upload)

    with (
        faulty(calm, ministack_server, swept_before_the_end) as (store, _),
        pytest.raises(ObjectChangedError),
    ):
        store.replace("report/links.csv", [b"x" * (PART + 1)])

    assert b"old" == content(calm, "report/links.csv")


def test_an_upload_that_breaks_off_leaves_the_old_report_and_no_parts(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    calm.create("report/links.csv", b"old")

    def third_put(asked: RunInputs) -> Fault | None:
        return Fault.DENIED if "partNumber=2" in asked.path else None

    with faulty(calm, moto_server, third_put) as (store, proxy), pytest.raises(StoreDeniedError):
        store.replace("report/links.csv", [b"x" * (2 * PART)])

    assert "DELETE" == proxy.asked[-1].method
    assert b"old" == content(calm, "report/links.csv")


@pytest.mark.parametrize("seed", quick(2, range(4)))
def test_random_faults_end_in_the_right_state_or_a_named_error_and_a_calm_rerun_completes(
    moto_server: servers.S3Server, calm: S3Store, seed: int
) -> None:
    keys = [f"chunks/{number}" for number in range(12)]

    def night(store: S3Store, writer: int) -> list[bool | CardlinkError]:
        outcomes: list[bool | CardlinkError] = []
        for key in keys:
            try:
                outcomes.append(store.create(key, f"{key} by {writer}".encode() * 500))
            except CardlinkError as error:
                outcomes.append(error)
        return outcomes

    with (
        faulty(calm, moto_server, at_random(seed, 0.4), attempts=4) as (store, proxy),
        ThreadPoolExecutor(3) as pool,
    ):
        nights = list(pool.map(lambda writer: night(store, writer), range(3)))
    calm_night = night(calm, 9)

    assert proxy.injected.total() > 10
    for place, key in enumerate(keys):
        outcomes = [each[place] for each in nights] + [calm_night[place]]
        winners = [
            writer
            for writer, outcome in zip([0, 1, 2, 9], outcomes, strict=True)
            if outcome is True
        ]
        stored = content(calm, key)
        assert len(winners) <= 1
        assert all(isinstance(outcome, bool | StoreBusyError) for outcome in outcomes)
        assert stored in [f"{key} by {writer}".encode() * 500 for writer in winners or [0, 1, 2]]


@pytest.mark.parametrize("fault", [Fault.CONDITIONS_REFUSED, Fault.CONDITIONS_INVALID])
def test_a_store_without_conditional_writes_is_asked_what_it_has_before_it_is_written_to(
    calm: S3Store, moto_server: servers.S3Server, fault: Fault
) -> None:
    calm.create("theirs", b"theirs")

    with faulty(calm, moto_server, always(fault)) as (store, proxy):
        created = [store.create(key, b"ours") for key in ("theirs", "first", "second", "first")]

    assert [False, True, True, False] == created
    assert [b"theirs", b"ours"] == [content(calm, key) for key in ("theirs", "first")]
    # the condition is tried until a write without it was taken
    assert ["PUT", "HEAD", "PUT", "HEAD", "PUT", "HEAD", "PUT", "HEAD"] == [
        asked.method for asked in proxy.asked
    ]


def test_a_store_without_conditional_writes_lives_a_whole_night(
    moto_server: servers.S3Server,
) -> None:
    with fault_proxy.between(moto_server.endpoint, always(Fault.CONDITIONS_REFUSED)) as proxy:
        store = S3Store(moto_server.bucket, uuid4().hex, servers.client(proxy.endpoint), retry())
        bench = Bench(store, issuer())

        run = bench.submit(bench.drop(10)).manifest.run
        bench.answer()
        bench.ingest()

    summary = bench.stored(run).summary
    assert summary is not None
    assert "balanced" == summary["verdict"]


def test_a_store_that_refuses_checksums_says_which_setting_it_needs_and_works_with_it(
    calm: S3Store, moto_server: servers.S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty(calm, moto_server, always(Fault.CHECKSUMS_REFUSED)) as (store, _):
        for write in (lambda: store.create("a", b"1"), lambda: ensure_usable(store, "check")):
            with pytest.raises(StoreRefusedError, match="AWS_REQUEST_CHECKSUM_CALCULATION"):
                write()
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with faulty(calm, moto_server, always(Fault.CHECKSUMS_REFUSED)) as (store, _):
        ensure_usable(store, "check")

        assert store.create("a", b"1")


def test_a_store_that_changes_what_is_written_is_not_usable(
    calm: S3Store, moto_server: servers.S3Server
) -> None:
    class Framing(S3Store):
        """Stores checksums within the content, as old servers do."""

        def replace(self, key: str, parts: Iterable[bytes]) -> None:
            super().replace(key, [b"18\r\n", *parts])

    store = Framing(moto_server.bucket, uuid4().hex, servers.client(moto_server.endpoint))

    with pytest.raises(StoreRefusedError, match="AWS_REQUEST_CHECKSUM_CALCULATION"):
        ensure_usable(store, "check")


@pytest.mark.slow
def test_a_server_killed_in_the_middle_and_started_again_has_every_object_once_and_whole(
    tmp_path: Path,
) -> None:
    keys = [f"chunks/{number}" for number in range(60)]
    port = servers.free_port()
    patient = Retry(time.monotonic, time.sleep, random.random, budget=300, cap=0.5)

    with ThreadPoolExecutor(3) as pool:
        with servers.ministack(tmp_path, port) as server:
            store = servers.store(server, "", patient)
            nights = [
                pool.submit(lambda: [store.create(key, key.encode() * 9999) for key in keys])
                for _ in range(3)
            ]
            while len(list(store.keys("chunks/"))) < 20:
                time.sleep(0.005)
        with servers.ministack(tmp_path, port):
            outcomes = [night.result() for night in nights]
            stored = {key: content(store, key) for key in keys}

    assert all(any(wins) for wins in zip(*outcomes, strict=True))
    assert {key: key.encode() * 9999 for key in keys} == stored
