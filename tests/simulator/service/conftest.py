"""One practice service for all tests of a module; each test visits it with cardholders of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service import RunningService, running_service
from tests.simulator.service.visits import Visit, visiting


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


@pytest.fixture
def visit(service: RunningService) -> Iterator[Visit]:
    with visiting(service) as visit:
        yield visit
