"""Fixtures of all tests: S3 servers, one of each kind for a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import servers

settings.register_profile("cardlink", deadline=None)  # a busy machine is no failure
settings.load_profile("cardlink")


@pytest.fixture(scope="session")
def moto_server() -> Iterator[servers.S3Server]:
    """A moto server with an empty bucket; share it by prefix."""
    with servers.moto() as server:
        yield server


@pytest.fixture(scope="session")
def ministack_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.S3Server]:
    """A ministack server with an empty bucket; share it by prefix."""
    with servers.ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server
