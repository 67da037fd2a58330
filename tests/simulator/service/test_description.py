"""The service held to its own OpenAPI description by schemathesis: whatever is sent, the answer is
a described one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import BaseSchema, Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

from flows.extensions.simulator.service.app import create_app
from flows.extensions.simulator.service.books import Habits, ServiceState
from flows.extensions.simulator.service.jobs import Pace
from flows.extensions.simulator.service.people_at_links import Shares, let_cardholders_act
from flows.extensions.simulator.service.wire import Spoken
from tests.builders import quick
from tests.service import NOON
from tests.simulator.uploads import PaperOpener, people, upload_csv

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# no request to them is a wrong one
FREE_TEXT = {
    "GET /card_links/{link_id}",
    "GET /l/{link_id}",
    "GET /portal/uploads",
    "GET /__books",
}


def lived_in() -> ServiceState:
    """Return books with links and waiting jobs, whose ids guessing finds."""
    books = ServiceState(PaperOpener(), NOON, Habits(pace=Pace(timeout=1e6)))
    books.upload("night.csv", upload_csv(people(7)))
    let_cardholders_act(
        books, lambda *_: 0.5, shares=Shares(open=1, forget=0, second=1), until_ended=False
    )
    return books


@pytest.fixture(scope="module")
def state() -> ServiceState:
    return lived_in()


@pytest.fixture(scope="module")
def description(state: ServiceState) -> BaseSchema:
    app = create_app(state, Spoken(), lambda: state.now)
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def explore(
    description: BaseSchema,
    mode: GenerationMode,
    headers: Callable[[], dict[str, str]],
    examples: int,
) -> None:
    """Send made-up requests to every operation, fitting its description or not, and hold the
    answers to it.
    """
    for found in description.get_all_operations():
        assert isinstance(found, Ok)
        if mode is GenerationMode.NEGATIVE and found.ok().label in FREE_TEXT:
            continue

        @given(found.ok().as_strategy(generation_mode=mode))
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def answered_as_described(case: Case[Any]) -> None:
            case.validate_response(case.call(headers=headers()), checks=CHECKS)

        answered_as_described()


@pytest.mark.slow
@pytest.mark.parametrize("mode", quick(1, [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
@pytest.mark.parametrize("examples", [10, 30])
def test_every_answer_to_a_client_is_one_the_description_knows(
    state: ServiceState, description: BaseSchema, mode: GenerationMode, examples: int
) -> None:
    explore(
        description,
        mode,
        lambda: {"Authorization": f"Bearer {state.login(state.habits.client)}"},
        examples,
    )


@pytest.mark.slow
def test_every_answer_to_a_stranger_is_one_the_description_knows(description: BaseSchema) -> None:
    explore(
        description,
        GenerationMode.POSITIVE,
        lambda: {"Authorization": "Bearer made-up"},
        examples=10,
    )
