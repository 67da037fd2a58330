"""A partner that takes every liberty the interface leaves: followed from link to placed card by
settings alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from flows.cli.main import main
from flows.extensions.partner_api.follow_job import follow
from flows.extensions.partner_api.service_objects import CardLink
from schemas.reference import toml
from tests.builders import quick
from tests.extensions.partner_api.liberal_partner import Books, liberal_partner, settings
from tests.extensions.partner_api.service_clients import client_at, request
from tests.extensions.partner_api.test_follow_job import Passing, Person
from tests.extensions.partner_api.test_placements_command import configure
from tests.night import local_bench, made_once

WHO = {
    "CARDLINK_SERVICE_APP_NAME": "practice",
    "CARDLINK_SERVICE_APP_KEY": "practice-key",
    "CARDLINK_SERVICE_USERNAME": "cardlink",
    "CARDLINK_SERVICE_PASSWORD": "practice",
}


@made_once
def night(folder: Path) -> tuple[Any, str]:
    """Return a bench whose run has links of the form `verify?lang=en&key=…`."""
    bench = local_bench(folder)
    run = bench.submit(bench.drop(12)).manifest.run
    bench.answer(links="query")
    bench.ingest()
    return bench, run


def cardholders(folder: Path, books: Books) -> int:
    """Let the partner know every link of the run; return how many there are."""
    rows = next((folder / "store").glob("bank/runs/*/report/rows/*.parquet"))
    linked = pl.read_parquet(rows).filter(state="linked")
    for cuid, url in linked.select("cuid", "url").iter_rows():
        books.add(cuid, url.rpartition("key=")[2])
    return linked.height


def written(table: Mapping[str, Any]) -> str:
    """Return `[service]` as a TOML has it."""
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    lines = ["[service]", *(_lines({k: v for k, v in table.items() if k not in tables}))]
    for name, below in tables.items():
        lines += [f"[service.{name}]", *_lines(below)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {toml(value)}" for name, value in values.items()]


def run_cardlink(folder: Path, *arguments: str) -> Any:
    return CliRunner(env=WHO).invoke(main, ["--config", str(folder), *arguments])


def test_links_are_followed_to_their_placed_cards_by_settings_alone(tmp_path: Path) -> None:
    night(tmp_path)
    with liberal_partner() as (address, books):
        links = cardholders(tmp_path, books)
        placed, failed, running, *_ = books.holders.values()
        books.start(placed, "Done", "Card placed")
        books.start(failed, "Linked", "Wrong input")
        books.start(running, "Linked", None)
        table = {**settings(address), "requests_per_second": 1000}
        configure(tmp_path, written(table))

        checked = run_cardlink(tmp_path, "--json", "check", "bank")
        done = run_cardlink(tmp_path, "--json", "placements", "bank")

    facts = json.loads(done.stdout)
    funnel = facts["funnel"]
    assert 0 == done.exit_code
    assert [links, 3, 3, 1] == [stage["cardholders"] for stage in funnel["stages"][2:]]
    assert [links] * 4 == [stage["known"] for stage in funnel["stages"][2:]]
    assert ([("USER_DATA_FAILURE", 1)], 1) == (
        [(line["kind"], line["cardholders"]) for line in funnel["failed"]],
        funnel["under_way"],
    )
    assert ["shop.example.com"] == [line["site"] for line in funnel["sites"]]
    service = [one for one in json.loads(checked.stdout)["checks"] if one["part"] == "service"]
    assert ["", ""] == [one["error"] for one in service]
    # it was disturbed: sessions ended, and pauses were wanted
    assert books.counts["session ended"] > 0
    assert books.counts["busy"] > 0
    assert {"bad signature", "signature used before"} & books.counts.keys() == set()


def test_a_link_is_made_once_though_its_creation_conflicts_and_comes_later() -> None:
    with (
        liberal_partner() as (address, books),
        client_at(address, **_client_settings(address)) as client,
    ):
        link = client.create_link(request())

    assert isinstance(link, CardLink)
    assert (link.id, "2027-01-20") == (next(iter(books.holders)), link.expires_raw)
    assert (1, 1) == (len(books.holders), books.counts["in progress"])


def test_a_job_is_followed_and_acknowledged_in_the_partners_words() -> None:
    ask = {"name": "tfa", "caption": "Approve in the app", "masked": False}
    pending = {"kind": "push", "envelope": "e-1", "fields": [ask], "body": {"state": "PENDING"}}
    person = Person()
    with (
        liberal_partner() as (address, books),
        client_at(address, **_client_settings(address)) as client,
    ):
        job = books.start(books.add("c-1", "k-1"), "PENDING", None)
        books.jobs[job]["pending"] = [pending]
        spoken = client.profile
        ended = follow(client, job, person, Passing().clock, polling=True, profile=spoken)

    assert ("SUCCESSFUL", "BILLABLE", 1) == (ended.status, ended.termination_type, ended.answered)
    assert (["Approve in the app"], []) == (person.notes, person.asked)
    assert 298 == person.shown[0].job_timeout


def _client_settings(address: str) -> dict[str, Any]:
    table = settings(address)
    del table["base_url"], table["fi_key"]
    return {**table, "fi_key": "bank"}


def test_a_probe_shows_what_the_records_have_and_which_names_are_missing(tmp_path: Path) -> None:
    night(tmp_path)
    with liberal_partner() as (address, books):
        cardholders(tmp_path, books)
        holder = next(iter(books.holders.values()))
        job = books.start(holder, "Linked", None)
        access = {**settings(address), "requests_per_second": 1000}
        others = {
            name: table for name, table in access["names"].items() if name not in ("link", "job")
        }
        unnamed = {**access, "names": others}
        configure(tmp_path, written(unnamed))

        probed = run_cardlink(tmp_path, "--json", "service", "probe", "bank", "--job", job)

    facts = json.loads(probed.stdout)
    assert {"result.link.linkKey", "result.link.holder.ref"} <= facts["link"].keys()
    assert {"result.state", "result.remaining"} <= facts["job"].keys()
    assert "# link.id: nothing that came is called so" in facts["profile"]
    assert [] == [value for value in (holder.key, holder.external_id) if value in probed.stdout]


@pytest.mark.parametrize(
    ("change", "told"),
    quick(
        2,
        [
            ({"signing": {}}, "LinksRefusedError"),
            ({"link_id": r"/(?P<id>[a-z]+)$"}, "LinksUnreadableError"),
            ({"auth": {}}, "LinksRefusedError"),
            ({"names": {"path": {"login": "/v2/auth/begin"}}}, "LinksUnreadableError"),
            ({"names": {"link": {}}}, "LinksUnreadableError"),
        ],
    ),
)
def test_without_one_of_these_settings_nothing_is_a_zero(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    night(tmp_path)
    with liberal_partner() as (address, books):
        cardholders(tmp_path, books)
        own = settings(address)
        names = {**own["names"], **change.pop("names", {})}
        table = {**own, **change, "names": names, "requests_per_second": 1000}
        configure(tmp_path, written(table))

        done = run_cardlink(tmp_path, "--json", "placements", "bank")

    facts = json.loads(done.stdout)
    assert (2, told) == (done.exit_code, facts["problem"]["kind"])
    assert [None, None, None] == [stage["cardholders"] for stage in facts["funnel"]["stages"][3:]]
