"""Cardholders played at a practice service, by the commands that a person types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.adapters.gpg_opener import GpgOpener
from flows.commands.context import Context
from flows.extensions.simulator.practice_people import (
    NoPracticeError,
    NoSuchSiteError,
    practice_people,
)
from tests import keys
from tests.extensions.partner_api.test_placements_command import cardlink, configure, serve
from tests.night import NOON, submitted
from tests.service import running_service

ALL_OPEN = ("--open", "1", "--forget", "0", "--second", "0", "--wrong", "0", "--silent", "0")


def test_a_link_of_a_result_file_is_followed_to_the_card_that_a_cardholder_placed(
    tmp_path: Path,
) -> None:
    submitted(tmp_path, 9)
    with (
        GpgOpener([keys.sound().secret]) as opener,
        running_service(opener=opener, now=NOON) as service,
    ):
        serve(tmp_path, service)

        def done(*arguments: str) -> dict[str, Any]:
            result = cardlink(tmp_path, service, "--json", *arguments)
            facts: dict[str, Any] = json.loads(result.stdout)
            return facts

        answered = done("simulate", "bank", "--fail", "0")
        done("ingest", "bank")
        people = done(
            "practice people", "bank", *ALL_OPEN, "--sites", "shop.example.com,again.example.com"
        )
        funnel = done("placements", "bank")["funnel"]
        [standing] = done("cardholders", "bank")["issuers"]

    stages = {stage["stage"]: stage["cardholders"] for stage in funnel["stages"]}
    placed = people["ends"]["BILLABLE"]
    assert (9, service.address) == (answered["linked"], answered["service"])
    assert {"BILLABLE", "USER_DATA_FAILURE"} == people["ends"].keys()
    assert (9, 9, 9, placed) == (
        stages["linked"],
        stages["opened"],
        stages["authenticated"],
        stages["placed"],
    )
    assert [
        {"kind": "USER_DATA_FAILURE", "cardholders": 9 - placed, "share": (9 - placed) / 9}
    ] == (funnel["failed"])
    assert {
        "links": 9,
        "opened": {"cards": 9, "known_by": {"service": 9}},
        "authenticated": {"cards": 9, "known_by": {"service": 9}},
        "placed": {"cards": placed, "known_by": {"service": 9}},
        "failed": {"USER_DATA_FAILURE": 9 - placed},
    } == standing["links"]


def test_cardholders_are_played_only_where_service_leads_to_practice(tmp_path: Path) -> None:
    configure(tmp_path)

    with pytest.raises(NoPracticeError):
        practice_people(Context(tmp_path), "bank")


def test_a_site_that_nobody_knows_is_refused_before_anybody_acts(tmp_path: Path) -> None:
    configure(tmp_path, '[service]\nbase_url = "http://127.0.0.1:1"\n')

    with pytest.raises(NoSuchSiteError) as caught:
        practice_people(Context(tmp_path), "bank", sites="shop.example.com,nowhere.example.com")

    assert "nowhere.example.com" == caught.value.fields["site"]
