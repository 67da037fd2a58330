"""Chunks answered by the practice service: what a result file says, its book says too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flows.adapters.local import LocalStore
from flows.extensions.simulator.answer_at_service import answer_at_service
from flows.extensions.simulator.link_styles import STYLES, id_in
from flows.extensions.simulator.portal import Behaviour
from flows.extensions.simulator.service_portal import (
    NoPracticeServiceError,
    ServicePortal,
    practice_address,
    practice_http,
)
from flows.runs.store import read
from tests.night import edges, issuer
from tests.service import RunningService, running_service
from tests.simulator.test_answer import ISSUER, commit_run
from tests.simulator.uploads import answers

SOME_FAIL = Behaviour(fail_share=0.3, seed=1)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    commit_run(store, [9, 5])
    return store


@pytest.fixture
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


def answer(store: LocalStore, service: RunningService, behaviour: Behaviour = SOME_FAIL) -> int:
    """Answer the store, and return how many results were written."""
    with httpx.Client(base_url=service.address, timeout=300, trust_env=False) as http:
        return len(answer_at_service(edges(store), ISSUER, ServicePortal(http), behaviour).results)


def urls(store: LocalStore) -> set[str]:
    """Return the links that the result files have."""
    files = [read(store, entry.key) for entry in store.keys(f"{ISSUER}/results/")]
    return {row["url"] for file in files for row in answers(file) if row["url"]}


def booked_urls(service: RunningService) -> set[str]:
    return {link.url for link in service.books.links.links.values()}


def test_the_service_knows_each_link_of_a_result_and_no_other(
    store: LocalStore, service: RunningService
) -> None:
    written = answer(store, service)

    links = urls(store)
    assert 2 == written
    assert 0 < len(links) < 14
    assert links == booked_urls(service)


def test_what_is_answered_is_not_answered_again(store: LocalStore, service: RunningService) -> None:
    answer(store, service)

    assert 0 == answer(store, service)
    assert len(urls(store)) == len(service.books.links.links)


def test_a_service_that_was_started_anew_is_told_of_earlier_links(
    store: LocalStore, service: RunningService
) -> None:
    answer(store, service)

    with running_service() as started_anew:
        written = answer(store, started_anew)

    assert 0 == written
    assert urls(store) == booked_urls(started_anew)


def test_a_result_that_was_lost_after_the_upload_is_downloaded(
    store: LocalStore, service: RunningService, tmp_path: Path
) -> None:
    answer(store, service)
    before = urls(store)
    for file in (tmp_path / ISSUER / "results").iterdir():
        file.unlink()

    assert 2 == answer(store, service)
    assert before == urls(store)


@pytest.mark.parametrize("style", STYLES)
def test_a_link_of_any_style_has_an_id_of_its_own(
    store: LocalStore, service: RunningService, style: str
) -> None:
    answer(store, service, Behaviour(links=style))

    assert {id_in(url) for url in urls(store)} == service.books.links.links.keys()
    assert 14 == len(service.books.links.links)


def test_where_no_practice_service_responds_it_is_said_how_to_start_it() -> None:
    settings = issuer(service={"base_url": "http://127.0.0.1:1"})

    with (
        pytest.raises(NoPracticeServiceError) as caught,
        practice_http(settings, "http://127.0.0.1:1") as http,
    ):
        ServicePortal(http).uploads()

    assert "cardlink practice bank --port 1" in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [("http://127.0.0.1:8000", "http://127.0.0.1:8000"), ("https://partner.example.com", None)],
)
def test_only_a_service_on_loopback_is_for_practice(base_url: str, expected: str | None) -> None:
    assert expected == practice_address(issuer(service={"base_url": base_url}))
    assert practice_address(issuer()) is None
