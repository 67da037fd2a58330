"""A service that answers something else than was requested, below a path and for as long as a test
wants it.
"""

from __future__ import annotations

from flows.extensions.simulator.service.refusals import Disturbance
from tests.simulator.service.visits import Visit


def test_a_disturbance_answers_in_place_of_a_path_until_it_is_taken_away(visit: Visit) -> None:
    link = f"/card_links/{visit.link().id}"
    disturbances = visit.service.books.disturbances

    visit.service.act(lambda _: disturbances.update({"/card_links/": Disturbance(403, "no")}))
    disturbed = visit.http.get(link)
    elsewhere = visit.http.get("/place_card_on_single_site_jobs/0")
    visit.service.act(lambda _: disturbances.clear())
    answered = visit.http.get(link)

    assert (403, "no") == (disturbed.status_code, disturbed.text)
    assert (404, 200) == (elsewhere.status_code, answered.status_code)
