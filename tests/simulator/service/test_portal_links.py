"""Sections 2.6, 2.7, 2.9, 2.10, 4 and 7 of interface.md: bulk links, their records, and the page
they lead to.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.extensions.partner_api.settings import ServiceSettings
from flows.runs.sealing import Plain
from schemas import portal
from tests import keys
from tests.builders import quick
from tests.service import running_service
from tests.simulator.service.visits import Visit, refusal, visiting
from tests.simulator.uploads import DAY, people, upload_csv


def test_a_bulk_file_goes_in_and_its_result_comes_out_one_row_each(visit: Visit) -> None:
    rows = people(7)  # the published test cards, so it may come in the clear

    found = visit.results(visit.upload(upload_csv(rows), "night-00001.csv"))

    assert [(row[portal.CUID], row[portal.PAN][-4:]) for row in rows] == [
        (one["cuid"], one["last_4"]) for one in found
    ]
    assert {("2027-01-20", "")} == {(one["expiration_date"], one["error"]) for one in found}


def test_a_sealed_bulk_file_is_opened_with_the_portals_key() -> None:
    key = keys.sound()
    with (
        GpgSealer(
            [key.public], [key.fingerprint], armor=False, compression="zip", today=DAY
        ) as sealer,
        GpgOpener([key.secret]) as opener,
        running_service(opener=opener) as service,
        visiting(service) as visit,
    ):
        (sealed,) = sealer.seal([Plain("night-00001.csv", upload_csv(people(20)))])

        found = visit.results(visit.upload(sealed.data))

    assert 20 == len({one["url"] for one in found})


def test_a_bulk_file_of_more_than_a_thousand_cardholders_is_refused(visit: Visit) -> None:
    answer = visit.upload(upload_csv(people(7) * 143), "night.csv")

    assert (422, [("upload", "")]) == refusal(answer)


def test_a_plain_bulk_file_of_other_than_published_test_cards_is_refused(visit: Visit) -> None:
    answer = visit.upload(upload_csv(people(8)), "night.csv")

    assert (422, [("upload", "")]) == refusal(answer)


def test_a_row_that_could_not_be_created_has_an_error_and_nothing_else(visit: Visit) -> None:
    rows = people(2)
    rows[0][portal.CITY] = ""

    bad, good = visit.results(visit.upload(upload_csv(rows)))

    assert rows[0][portal.CUID] in bad.pop("error")
    assert {""} == set(bad.values())
    assert good["url"]


def test_the_same_file_uploaded_twice_makes_new_links(visit: Visit) -> None:
    first, second = (
        visit.results(visit.upload(upload_csv(people(3)), "twice.csv")) for _ in range(2)
    )

    assert 6 == len({one["url"] for one in first + second})


def test_the_result_of_an_upload_that_is_not_there_is_not_found(visit: Visit) -> None:
    assert 404 == visit.http.get("/portal/uploads/999999/result").status_code


def test_a_bulk_link_is_looked_up_by_the_id_its_url_ends_in(visit: Visit) -> None:
    held = visit.link()

    record = (
        visit.http.get(f"/card_links/{visit.service.settings.id_of(held.url)}")
        .raise_for_status()
        .json()
    )

    assert (held.id, held.url, "2027-01-20") == (
        record["id"],
        record["url"],
        record["expiration_date"],
    )
    assert record["cardholder_long_token"]
    assert "card" not in record


def test_hydration_brings_the_card_and_its_cardholder_along(visit: Visit) -> None:
    held = visit.link()
    asked = {
        value: {"x-service-hydration": value}
        for value in ('["card"]', '["card", "card.cardholder"]')
    }

    card, both = (
        visit.http.get(f"/card_links/{held.id}", headers=headers).json()["card"]
        for headers in asked.values()
    )

    assert ("4242", False) == (card["last_4"], "cardholder" in card)
    assert held.row[portal.CUID] == both["cardholder"]["cuid"]
    assert card["cardholder_id"] == both["cardholder"]["id"]


@pytest.mark.parametrize("value", ["card", '"card"', '["cardholder"]', "[1]", "{}"])
def test_hydration_that_is_no_json_array_of_allowed_strings_is_refused(
    visit: Visit, value: str
) -> None:
    held = visit.link()

    answer = visit.http.get(f"/card_links/{held.id}", headers={"x-service-hydration": value})

    assert (422, [("header", "hydration")]) == refusal(answer)


def test_a_link_that_is_not_there_is_not_found(visit: Visit) -> None:
    assert (404, [("card_link", "id")]) == refusal(visit.http.get("/card_links/none"))
    assert 404 == visit.http.get("/l/none").status_code


def test_a_url_has_the_host_the_issuer_allows() -> None:
    with running_service(host="cards.example.org") as service, visiting(service) as visit:
        url = visit.link().url

    assert url.startswith("https://cards.example.org/l/")
    assert (
        ServiceSettings(base_url="https://cards.example.org").id_of(url) == url.rpartition("/")[2]
    )


def test_the_page_of_a_link_asks_for_cvv_and_zip_code_and_the_link_is_opened(visit: Visit) -> None:
    held = visit.link()

    page = visit.http.get(f"/l/{held.id}").raise_for_status().json()

    record = visit.http.get(f"/card_links/{held.id}").json()
    assert ["CVV", "ZIP Code"] == page["challenges"]
    assert (True, False) == (bool(record["opened_on"]), bool(record["authenticated_on"]))


def test_right_answers_to_the_challenges_are_noted_in_the_links_record(visit: Visit) -> None:
    held = visit.verified()

    record = visit.http.get(f"/card_links/{held.id}").json()

    assert record["created_on"] <= record["opened_on"] <= record["authenticated_on"]


@pytest.mark.parametrize(
    ("change", "value"),
    [("CVV", "7"), ("CVV", ""), ("ZIP Code", "99999"), ("ZIP Code", "")],
)
def test_a_wrong_or_missing_answer_is_refused_and_no_job_can_start(
    visit: Visit, change: str, value: str
) -> None:
    held = visit.link()

    answer = visit.http.post(
        f"/l/{held.id}/challenges", json={"answers": held.known | {change: value}}
    )
    placed = visit.http.post(
        f"/l/{held.id}/placements", json={"merchant_sites": ["shop.example.com"]}
    )

    assert (403, [("verification", "")]) == refusal(answer)
    assert (403, [("verification", "")]) == refusal(placed)


@pytest.mark.parametrize(
    "challenge", quick(2, ["CVV", "ZIP Code", "PAN Last 4", "PAN Last 5", "Expiration Date"])
)
def test_each_challenge_type_can_be_configured(challenge: str) -> None:
    with running_service(challenges=(challenge,)) as service, visiting(service) as visit:
        held = visit.link()
        asked = visit.http.get(f"/l/{held.id}").json()["challenges"]
        wrong = visit.http.post(f"/l/{held.id}/challenges", json={"answers": {challenge: "00000"}})
        right = visit.http.post(
            f"/l/{held.id}/challenges", json={"answers": {challenge: held.known[challenge]}}
        )

    assert [challenge] == asked
    assert (403, 200) == (wrong.status_code, right.status_code)


def test_a_cvv_sent_as_its_hash_opens_the_link_as_the_cvv_does(visit: Visit) -> None:
    held = visit.link(cvv="", cvv_hash="Yp9M+TN7DQx28wXYYPmIlM+ownlRa0JXR1FMqHEN65c=")

    answer = visit.http.post(
        f"/l/{held.id}/challenges", json={"answers": held.known | {"CVV": "007"}}
    )

    assert 200 == answer.status_code


def test_a_link_without_cvv_and_hash_cannot_be_opened_by_its_cvv(visit: Visit) -> None:
    held = visit.link(cvv="")

    answer = visit.http.post(f"/l/{held.id}/challenges", json={"answers": held.known | {"CVV": ""}})

    assert 403 == answer.status_code


def test_a_link_that_has_expired_does_not_open() -> None:
    with running_service() as service, visiting(service) as visit:
        held = visit.link()
        service.act(lambda books: books.advance(books.now + timedelta(days=62)))

        page = visit.http.get(f"/l/{held.id}")

    assert (410, [("card_link", "expiration_date")]) == refusal(page)


def test_choosing_sites_starts_a_job_at_each_for_the_links_card(visit: Visit) -> None:
    held = visit.verified()
    record = visit.http.get(f"/card_links/{held.id}").json()

    jobs = visit.place(held, "shop.example.com", "video.example.com")

    assert ["shop.example.com", "video.example.com"] == [job["merchant_site"] for job in jobs]
    assert {(record["cardholder_id"], record["card_id"])} == {
        (job["cardholder_id"], job["card_id"]) for job in jobs
    }
    assert 2 == len({job["account_id"] for job in jobs})


@pytest.mark.parametrize("sites", [["nowhere.example.com"], []])
def test_sites_nobody_knows_are_refused(visit: Visit, sites: list[str]) -> None:
    held = visit.verified()

    assert (
        422
        == visit.http.post(f"/l/{held.id}/placements", json={"merchant_sites": sites}).status_code
    )


def test_the_books_count_for_themselves_and_hold_no_card(visit: Visit) -> None:
    before = visit.http.get("/__books").json()
    opened, done = visit.link(), visit.verified()
    visit.http.get(f"/l/{opened.id}")
    visit.to_the_end(visit.place(done, "shop.example.com", "again.example.com")[0]["id"])

    after = visit.http.get("/__books")

    counted = {
        name: after.json()[name] - before[name]
        for name in ("links", "opened", "authenticated", "jobs")
    }
    entry = next(one for one in after.json()["cardholders"] if one["cuid"] == done.row[portal.CUID])
    assert {"links": 2, "opened": 2, "authenticated": 1, "jobs": 2} == counted
    assert [("SUCCESSFUL", "BILLABLE"), ("PENDING", None)] == [
        (job["status"], job["termination_type"]) for job in entry["jobs"]
    ]
    assert "4242" not in after.text
