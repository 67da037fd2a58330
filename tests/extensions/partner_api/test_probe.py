"""`cardlink service probe` shows which fields came and never a value, and proposes settings; `check`
tries the service.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flows.extensions.partner_api.probe import guessed
from flows.extensions.partner_api.profile import INTERFACE, Profile
from flows.extensions.partner_api.responses import job_of, link_of
from flows.extensions.partner_api.translation import fields_of
from flows.extensions.simulator.service.refusals import Disturbance
from tests.builders import quick
from tests.extensions.partner_api.test_placements_command import cardlink, serve
from tests.extensions.partner_api.test_responses import body
from tests.placed import Placed, placed

LINK = {
    "result": {
        "link": {
            "id": "l-1",
            "href": "https://links.example.com/start?k=KEY",
            "openedAt": "2026-11-20T12:00:00Z",
            "holder": {"ref": 5, "cuid": "c-1"},
        }
    }
}
JOB = {"data": {"job": {"id": 9, "status": "AUTH", "outcome": None}}, "holder": {"ref": 5}}


def opened(night: Placed) -> tuple[str, str]:
    """Let the cardholder of a link open it and start a job; return the ids of both."""
    link_id = next(iter(night.service.books.links.links))
    night.service.act(
        lambda books: setattr(books.links.open(link_id, books.now), "authenticated_on", books.now)
    )
    (job,) = night.service.act(lambda books: books.place(link_id, ["shop.example.com"], {}))
    return link_id, str(job.id)


def test_a_service_that_speaks_as_the_interface_does_needs_no_table_and_no_value_is_shown(
    tmp_path: Path,
) -> None:
    with placed(tmp_path, 3) as night:
        serve(tmp_path, night.service)
        link_id, job_id = opened(night)
        link = night.service.books.links.find(link_id)

        facts = cardlink(
            tmp_path, night.service, "--json", "service", "probe", "bank", "--job", job_id
        )
        shown = cardlink(tmp_path, night.service, "service", "probe", "bank", night.run)

    told = json.loads(facts.stdout)
    assert (0, "") == (facts.exit_code, told["profile"])
    assert ("text (address)", "number") == (told["link"]["url"], told["link"]["card.cardholder.id"])
    assert "list of 1" == told["job"]["credential_requests"]
    assert "the interface's own names fit: no table is needed" in shown.stdout
    assert "doubt: job: no job of this link is known; name one with --job" in shown.stdout
    values = (link_id, link.cardholder_long_token, "shop.example.com", "links.example.com/l")
    assert [] == [value for value in values if value in facts.stdout + shown.stdout]


def test_the_proposed_tables_find_what_came_and_every_guess_is_a_doubt() -> None:
    link = guessed("link", LINK, fields_of(LINK), INTERFACE)
    job = guessed("job", JOB, fields_of(JOB), INTERFACE)

    profile = Profile.model_validate({"names": tomllib.loads("\n".join([*link.lines, *job.lines]))})

    record = link_of(body(LINK), profile)
    state = job_of(body(JOB), profile)
    assert record is not None
    assert state is not None
    assert ("l-1", "c-1", True) == (record.id, record.cuid, record.opened)
    assert ("9", "AUTH") == (state.id, state.status)
    assert "link.cuid: is it result.link.holder.cuid?" in link.doubts
    assert "# job.termination_type: nothing that came is called so" in job.lines


def test_fields_are_names_and_types_and_a_name_that_is_a_value_is_left_out() -> None:
    document: dict[str, Any] = {
        "cards": {"4242424242424242": {"id": 1}, "last": "4242"},
        "items": [{"a": 1}, {"a": "x", "b": None}],
        "on": "2026-11-20T12:00:00Z",
    }

    assert {
        "cards.last": "text (number)",
        "items": "list of 2",
        "items[].a": "number or text",
        "items[].b": "null",
        "on": "text (moment)",
    } == fields_of(document)


def test_the_proposal_is_written_to_a_new_file(tmp_path: Path) -> None:
    with placed(tmp_path, 3) as night:
        serve(tmp_path, night.service, '[service.names]\nlink.opened_on = ["seen"]\n')
        file = tmp_path / "proposal.toml"

        done = cardlink(tmp_path, night.service, "service", "probe", "bank", "--write", str(file))
        again = cardlink(tmp_path, night.service, "service", "probe", "bank", "--write", str(file))

    assert (0, 2) == (done.exit_code, again.exit_code)
    proposed = tomllib.loads(file.read_text())["service"]["names"]["link"]
    assert {"opened_on": ["opened_on"]} == proposed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "disturbance", "error"),
    quick(
        1,
        [
            ("/session", Disturbance(401), "UnauthorisedError"),
            ("/card_links/", Disturbance(403), "ServiceRefusedError"),
            ("/card_links/", Disturbance(503), "ServiceBusyError"),
        ],
    ),
)
def test_check_tries_the_service_and_says_what_it_refuses(
    tmp_path: Path, path: str, disturbance: Disturbance, error: str
) -> None:
    with placed(tmp_path, 3) as night:
        serve(tmp_path, night.service)
        good = cardlink(tmp_path, night.service, "--json", "check", "bank")
        night.service.act(lambda books: books.disturbances.update({path: disturbance}))
        refused = cardlink(tmp_path, night.service, "--json", "check", "bank")

    texts = [one["text"] for one in json.loads(good.stdout)["checks"] if one["part"] == "service"]
    wrong = {one["part"]: one["error"] for one in json.loads(refused.stdout)["checks"]}
    assert "names its cardholder and says whether the link was opened" in texts[0]
    assert "the service's clock agrees with this machine's" == texts[1]
    assert error == wrong["service"]


@pytest.mark.slow
def test_check_accepts_no_login_that_gives_no_session_though_no_link_is_known_yet(
    tmp_path: Path,
) -> None:
    with placed(tmp_path, 3) as night:
        serve(tmp_path, night.service)
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        (tmp_path / "store").mkdir()
        good = cardlink(tmp_path, night.service, "--json", "check", "bank")
        strange = {"/session": Disturbance(200, "{}")}
        night.service.act(lambda books: books.disturbances.update(strange))
        refused = cardlink(tmp_path, night.service, "--json", "check", "bank")

    texts = [one["text"] for one in json.loads(good.stdout)["checks"] if one["part"] == "service"]
    wrong = {one["part"]: one["error"] for one in json.loads(refused.stdout)["checks"]}
    assert texts[0].endswith("login is accepted; no record was read, since no link is known yet")
    assert "StrangeAnswerError" == wrong["service"]


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, ['link.url = ["personalUrl"]  # guessed']),
        ({"helpUrl": "https://help.example.com"}, ["# link.url: nothing that came is called so"]),
    ],
)
def test_the_only_address_that_came_is_proposed_as_the_url_of_a_link(
    more: dict[str, str], lines: list[str]
) -> None:
    record = {"id": "l-1", "personalUrl": "https://links.example.com/l/1", **more}

    guess = guessed("link", record, fields_of(record), INTERFACE)

    assert lines == [line for line in guess.lines if "link.url" in line]
    assert ("link.url: is it personalUrl?" in guess.doubts) is not bool(more)
