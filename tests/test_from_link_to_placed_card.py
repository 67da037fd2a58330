"""From the file to the placed card: bulk links, verification and jobs of a night, held against the
service's books.

People open links, prove who they are by CVV and ZIP code, choose merchant sites, answer codes,
messages and security questions rightly, wrongly or never. The funnel is made of link records,
messages and job records alone; the recount is made of `GET /__books` alone.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.simulator.chance import chance
from flows.extensions.simulator.service.links import Link
from flows.extensions.simulator.service.people_at_links import Shares, Wallet, let_cardholders_act
from flows.runs.keys import extracts
from tests.night import BANK, Bench
from tests.placed import Placed, placed

BILLABLE = "BILLABLE"


def wallet(bench: Bench, night: Placed) -> Wallet:
    """Return what each cardholder knows of the card, as the extract has it."""
    text = bench.content(extracts(BANK) + "bank-20261120.csv").decode()
    known = {row["cardholder.cuid"]: row for row in csv.DictReader(io.StringIO(text, newline=""))}

    def answers(link: Link) -> Mapping[str, str]:
        row = known[night.service.books.links.cardholders[link.cardholder_id].cuid]
        return {"CVV": row["service_card.cvv"], "ZIP Code": row["service_card.address.postal_code"]}

    return answers


def act(night: Placed, share: float, seed: int) -> None:
    """Let a share of those who did nothing yet open their links, and go on until all their jobs
    have ended.
    """
    knows = wallet(night.bench, night)
    shares = Shares(open=share, silent=0.1, wrong=0.2)
    night.service.act(
        lambda books: let_cardholders_act(
            books, lambda *name: chance(seed, *name), shares=shares, wallet=knows
        )
    )


def recount(night: Placed) -> list[dict[str, Any]]:
    """Return every cardholder of the service's own books."""
    answer = httpx.get(f"{night.service.address}/__books", trust_env=False, timeout=300)
    cardholders: list[dict[str, Any]] = answer.raise_for_status().json()["cardholders"]
    return cardholders


def ends(cardholder: dict[str, Any]) -> set[str]:
    return {job["termination_type"] for job in cardholder["jobs"]}


def failures(cardholders: list[dict[str, Any]]) -> Iterator[set[str]]:
    """Yield the kinds of failure of everyone who has jobs, all ended, and none that placed the
    card.
    """
    for one in cardholders:
        kinds = ends(one)
        if kinds and None not in kinds and BILLABLE not in kinds:
            yield kinds


def stages(cardholders: list[dict[str, Any]], bench: Bench, run: str) -> list[int]:
    """Count from the ledger who was read and sent, and from the books how far everyone came."""
    ledger = bench.ledger(run)
    return [
        ledger["cuid"].n_unique(),
        ledger.filter(fate="submitted")["cuid"].n_unique(),
        sum(bool(one["links"]) for one in cardholders),
        sum(one["opened"] for one in cardholders),
        sum(any(job["authenticated"] for job in one["jobs"]) for one in cardholders),
        sum(BILLABLE in ends(one) for one in cardholders),
    ]


def run_demo(folder: Path, rows: int) -> None:
    """Run a night of so many cardholders in two waves, looked at before, between and after, and
    compare.
    """
    with placed(folder, rows) as night:
        funnels = [follow_links(night.bench.context, night.client)["funnel"]]
        for hours, share in ((7, 0.5), (20, 0.7)):  # links in which nothing happened are due then
            act(night, share, hours)
            funnels.append(follow_links(night.later(hours).context, night.client)["funnel"])
        books = recount(night)

    last = funnels[-1]
    told = [[one["cardholders"] for one in funnel["stages"]] for funnel in funnels]
    assert [rows, rows, rows, 0, 0, 0] == told[0]
    assert stages(books, night.bench, night.run) == told[-1]
    assert 0 < told[1][5] < told[2][5] < told[2][4] < told[2][3] < rows

    kinds = list(failures(books))
    only = Counter(next(iter(found)) for found in kinds if len(found) == 1)
    any_of = Counter(kind for found in kinds for kind in found)
    counted = {one["kind"]: one["cardholders"] for one in last["failed"]}
    assert (len(kinds), 0) == (sum(counted.values()), last["under_way"])
    assert all(only[kind] <= counted[kind] <= any_of[kind] for kind in counted)
    assert {
        "USER_DATA_FAILURE",
        "SITE_INTERACTION_FAILURE",
        "PROCESS_FAILURE",
        "NEVER_STARTED",
    } == any_of.keys()

    sites = {one["site"]: one["placed"] for one in last["sites"]}
    at_one = Counter(
        one["jobs"][0]["merchant_site"]
        for one in books
        if len(one["jobs"]) == 1 and BILLABLE in ends(one)
    )
    anywhere = Counter(
        job["merchant_site"]
        for one in books
        for job in one["jobs"]
        if job["termination_type"] == BILLABLE
    )
    assert sum(sites.values()) == told[-1][5]
    assert all(at_one[site] <= number <= anywhere[site] for site, number in sites.items())


@pytest.mark.slow
def test_a_night_from_bulk_links_to_placed_cards_is_counted_as_the_services_books_have_it(
    tmp_path: Path,
) -> None:
    run_demo(tmp_path, 200)


@pytest.mark.slow
def test_two_thousand_cardholders_from_bulk_links_to_placed_cards(tmp_path: Path) -> None:
    run_demo(tmp_path, 2000)
