"""Simulated cardholders at their links: the same chance gives the same night, and what they do is
in the books.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from flows.extensions.simulator.chance import chance
from flows.extensions.simulator.service.books import ServiceState
from flows.extensions.simulator.service.links import Link
from flows.extensions.simulator.service.people_at_links import Shares, let_cardholders_act
from flows.extensions.simulator.service.recount import recount
from schemas import portal
from tests.service import NOON
from tests.simulator.uploads import PaperOpener, paper_seal, people, upload_csv

EVERYBODY = Shares(open=1, forget=0, second=0, wrong=0, silent=0)
ROWS = people(300)


def books() -> ServiceState:
    made = ServiceState(PaperOpener(), NOON)
    made.upload("night.csv.pgp", paper_seal(upload_csv(ROWS)))
    return made


def test_the_same_chance_gives_the_same_night() -> None:
    first, second = books(), books()

    for one in (first, second):
        let_cardholders_act(one, partial(chance, 7))

    assert recount(first) == recount(second)


def test_a_night_holds_every_way_a_cardholder_and_a_job_can_go() -> None:
    night = books()

    let_cardholders_act(night, partial(chance, 7), shares=Shares(wrong=0.3, silent=0.2))

    count = recount(night)
    assert count["links"] > count["opened"] > count["authenticated"] > 0
    ends = {
        "BILLABLE",
        "USER_DATA_FAILURE",
        "SITE_INTERACTION_FAILURE",
        "PROCESS_FAILURE",
        "NEVER_STARTED",
    }
    assert ends == count["ends"].keys()
    statuses = Counter(job.status for job in night.jobs.values())
    assert {"TIMEOUT_TFA", "TOO_MANY_TRIES", "DUPLICATE_CARD", "SUCCESSFUL"} <= statuses.keys()


def test_where_all_answer_right_all_cards_are_placed() -> None:
    night = books()

    let_cardholders_act(night, partial(chance, 7), shares=EVERYBODY, sites=["market.example.com"])

    assert {"BILLABLE": 300} == recount(night)["ends"]


def test_where_nobody_answers_all_jobs_time_out() -> None:
    night = books()

    let_cardholders_act(
        night, partial(chance, 7), shares=EVERYBODY._replace(silent=1), sites=["video.example.com"]
    )

    assert {("TIMEOUT_TFA", "USER_DATA_FAILURE")} == {
        (job.status, job.termination_type) for job in night.jobs.values()
    }


def test_who_acted_is_not_let_act_again() -> None:
    night = books()
    let_cardholders_act(night, partial(chance, 7), shares=EVERYBODY)
    before = recount(night)

    let_cardholders_act(night, partial(chance, 8), shares=EVERYBODY)

    assert before == recount(night)


def test_people_with_a_wallet_get_past_the_link_only_by_what_it_says() -> None:
    night = books()
    rows = {row[portal.CUID]: row for row in ROWS}

    def wallet(link: Link) -> dict[str, str]:
        row = rows[night.links.cardholders[link.cardholder_id].cuid]
        return {"CVV": row[portal.CVV], "ZIP Code": row[portal.POSTAL_CODE]}

    let_cardholders_act(
        night, partial(chance, 7), shares=EVERYBODY, wallet=wallet, until_ended=False
    )

    # the rows with a hash alone do not say the CVV
    raw = sum(bool(row[portal.CVV]) for row in ROWS)
    assert 0 < raw < len(ROWS)
    assert (len(ROWS), raw, raw) == tuple(
        recount(night)[name] for name in ("opened", "authenticated", "jobs")
    )


def test_nobody_gets_past_a_challenge_that_the_institution_has_no_answer_to() -> None:
    rows = people(20)
    for row in rows[:5]:
        row |= {portal.CVV: "", portal.CVV_HASH: ""}
    night = ServiceState(PaperOpener(), NOON)
    night.upload("night.csv.pgp", paper_seal(upload_csv(rows)))

    let_cardholders_act(night, partial(chance, 7), shares=EVERYBODY, until_ended=False)

    assert (20, 15) == (recount(night)["opened"], recount(night)["authenticated"])


@pytest.mark.parametrize("until_ended", [True, False])
def test_people_read_no_messages(until_ended: bool) -> None:
    night = books()

    let_cardholders_act(
        night,
        partial(chance, 7),
        shares=EVERYBODY,
        sites=["shop.example.com"],
        until_ended=until_ended,
    )

    kinds = Counter(one["type"] for job in night.jobs for one in night.messages(job))
    assert ({"job_status"} if until_ended else {"initial_account_link"}) == kinds.keys()
    assert kinds.total() >= len(ROWS)
