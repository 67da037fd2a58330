"""`cardlink record`: a link's record in words, without what is secret or personal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from flows.extensions.partner_api.probe import NOT_SAID, differences, read_record
from flows.extensions.partner_api.run_links import LinkedRow
from flows.extensions.partner_api.service import StrangeAnswerError
from flows.extensions.partner_api.settings import ServiceSettings
from tests import keys
from tests.extensions.partner_api.test_link_command import TOML, cardlink, left_over
from tests.night import BANK, Bench, local_bench
from tests.service import RunningService, running_service

SETTINGS = ServiceSettings(base_url="https://service.example.com")
URL = "https://links.example.com/l/abc"
PARTS = ("of cardholder c-2", "another URL", "on 2027-02-03, our own on 2027-01-02")
TODAY = date(2026, 11, 20)
ROW = LinkedRow(1, "c-1", URL, date(2027, 1, 2), "abc")


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


@pytest.fixture
def bench(tmp_path: Path, service: RunningService) -> Bench:
    toml = TOML.format(fingerprint=keys.sound().fingerprint, address=service.address)
    (tmp_path / "bank.toml").write_text(toml)
    return local_bench(tmp_path)


def test_a_record_is_shown_in_words_by_row_url_or_id_and_nothing_secret_is(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)
    url = cardlink(tmp_path, service, "link", run, "1").stdout.splitlines()[0]
    link_id = url.rpartition("/")[2]
    link = service.books.links.find(link_id)

    of_row = cardlink(tmp_path, service, "record", run, "1")
    service.act(lambda books: books.links.open(link_id, books.now))
    facts = [
        json.loads(cardlink(tmp_path, service, "--json", "record", BANK, name).stdout)
        for name in (url, link_id)
    ]

    assert (0, "") == (of_row.exit_code, of_row.stderr)
    assert f"bank: the link of row 1 of {run}" in of_row.stdout
    assert "not yet" in of_row.stdout
    assert f"c-1, id {link.cardholder_id} at the partner" in of_row.stdout
    assert facts[0] == facts[1]
    assert {
        "expires_on": "2027-01-20",
        "opened": True,
        "opened_at": "2026-11-20T12:00:00+00:00",
        "url_host": "links.example.com",
        "has_token": True,
        "cuid": "c-1",
        "cardholder_id": str(link.cardholder_id),
        "card_id": str(link.card_id),
    } == facts[0]["record"]
    assert "text" == facts[0]["fields"]["card.cardholder.first_name"]
    shown = of_row.stdout + json.dumps(facts)
    secret = (link_id, link.cardholder_long_token, "Ada", url)
    assert [] == [value for value in secret if value in shown]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("2", "2 is no linked row"), ("none", "none is no linked row"), ("", "is no linked row")],
)
def test_a_row_without_a_link_has_no_record(
    tmp_path: Path, bench: Bench, service: RunningService, name: str, problem: str
) -> None:
    run = left_over(bench)

    done = cardlink(tmp_path, service, "record", run, name)

    assert 2 == done.exit_code
    assert problem in done.stderr


def test_where_a_record_is_not_as_our_own_it_says_so() -> None:
    record = {
        "id": "abc",
        "url": "https://links.example.com/l/other",
        "expiration_date": "2027-02-03",
        "card": {"cardholder": {"cuid": "c-2"}},
    }

    doubts = list(differences(read_record(record, SETTINGS), ROW))

    for part, doubt in zip(PARTS, doubts, strict=True):
        assert part in doubt


@pytest.mark.parametrize(
    ("day", "words"),
    [
        ("2026-11-20", "on 2026-11-20, in 0 days"),
        ("2027-01-20", "on 2027-01-20, in 61 days"),
        ("2026-11-19", "on 2026-11-19, 1 day ago"),
    ],
)
def test_when_a_link_expires_is_told_with_its_distance(day: str, words: str) -> None:
    record = read_record({"id": "abc", "expiration_date": day, "opened_on": True}, SETTINGS)

    assert (words, "yes") == (record.words(TODAY)["expires"], record.words(TODAY)["opened"])


def test_when_a_link_was_opened_is_told_in_utc() -> None:
    opened_on = "2026-11-20T10:00:00-08:00"

    record = read_record({"id": "abc", "opened_on": opened_on}, SETTINGS)

    assert "on 2026-11-20 18:00:00 UTC" == record.words(TODAY)["opened"]
    assert "2026-11-20T18:00:00+00:00" == record.facts["opened_at"]


def test_what_a_record_leaves_out_is_not_said_and_no_doubt() -> None:
    told = read_record({"id": "abc", "expiration_date": "soon"}, SETTINGS)

    assert {
        "expires": "on a day in a form nobody knows: AAAA",
        "opened": NOT_SAID,
        "url": NOT_SAID,
        "token": NOT_SAID,
        "cardholder": NOT_SAID,
        "card": NOT_SAID,
    } == told.words(TODAY)
    assert [] == list(differences(told, ROW))


@pytest.mark.parametrize("document", [None, [], {}, "text", {"status": "AUTH"}])
def test_what_is_no_link_record_is_told(document: object) -> None:
    with pytest.raises(StrangeAnswerError):
        read_record(document, SETTINGS)
