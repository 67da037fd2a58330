"""Links followed at a service over HTTP: what each cardholder did there is what the funnel says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.simulator.service.books import ServiceState
from flows.extensions.simulator.service.sites import SITES
from tests.placed import Placed, placed


def open_links(state: ServiceState, count: int) -> list[str]:
    """Let the first cardholders open their links and pass the verification; return their link
    ids.
    """
    ids = list(state.links.links)[:count]
    for link_id in ids:
        state.links.open(link_id, state.now).authenticated_on = state.now
    return ids


def stages(facts: dict[str, Any]) -> list[int]:
    return [one["cardholders"] for one in facts["funnel"]["stages"]]


def failed(facts: dict[str, Any]) -> dict[str, int]:
    return {one["kind"]: one["cardholders"] for one in facts["funnel"]["failed"]}


def place_at_every_site(night: Placed) -> None:
    """Let one cardholder for each merchant site start a placement there with the credentials typed
    in.
    """

    def act(state: ServiceState) -> None:
        for link_id, site in zip(open_links(state, len(SITES)), SITES, strict=True):
            state.place(link_id, [site], {site: {"username": "ada"}})

    night.service.act(act)


@pytest.mark.slow
def test_links_are_followed_to_placed_and_to_each_kind_of_failure(tmp_path: Path) -> None:
    with placed(tmp_path, 20) as night:
        place_at_every_site(night)
        first = follow_links(night.bench.context, night.client)
        night.service.advance(3600)

        last = follow_links(night.later(7).context, night.client)

    ended = [site.end for site in SITES.values()]
    asks = [len(site.asks) > 1 for site in SITES.values()]
    placed_at_once = sum(
        end.termination_type == "BILLABLE" and not more
        for end, more in zip(ended, asks, strict=True)
    )
    assert [20, 20, 20, 9] == stages(first)[:4]
    assert 9 == first["funnel"]["under_way"]
    assert (0, placed_at_once) == (last["funnel"]["under_way"], stages(last)[-1])
    assert {"SITE_INTERACTION_FAILURE": 1, "PROCESS_FAILURE": 1, "NEVER_STARTED": 1} == {
        kind: count for kind, count in failed(last).items() if kind != "USER_DATA_FAILURE"
    }


@pytest.mark.slow
def test_job_ids_that_come_as_text_say_the_same(tmp_path: Path) -> None:
    with placed(tmp_path, 12, {"job_id_as_string": True}) as night:
        place_at_every_site(night)
        night.service.advance(3600)

        facts = follow_links(night.bench.context, night.client)

    assert (9, 1) == (stages(facts)[3], failed(facts)["NEVER_STARTED"])


@pytest.mark.slow
def test_a_cardholder_who_opened_the_link_and_started_nothing_has_opened_it(tmp_path: Path) -> None:
    with placed(tmp_path, 10, {}, follow_cardholders=False) as night:
        night.service.act(lambda books: open_links(books, 4))

        facts = follow_links(night.bench.context, night.client)

    assert [10, 10, 10, 4, None, None] == stages(facts)


@pytest.mark.slow
def test_credential_requests_are_still_there_after_the_look(tmp_path: Path) -> None:
    with placed(tmp_path, 5) as night:
        (link_id,) = night.service.act(lambda books: open_links(books, 1))
        (job,) = night.service.act(lambda books: books.place(link_id, ["video.example.com"], {}))
        follow_links(night.bench.context, night.client)

        (request,) = night.client.credential_requests(str(job.id))

    assert ["email", "password"] == [prompt.key_name for prompt in request.account_link]
