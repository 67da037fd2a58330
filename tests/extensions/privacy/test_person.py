"""What is stored of one person: exported whole, and forgotten by the command line and by two."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.commands.context import Context
from flows.extensions.partner_api.linking import link_typed
from flows.extensions.privacy.person import erase, export
from flows.extensions.privacy.personal_data import PLACES
from schemas.portal import ADDRESS1, CUID, EMAIL, LAST_NAME, PHONE
from tests.extensions.partner_api.linker import SERVICE, TYPED, URL, Linker
from tests.night import issuer
from tests.test_command_line import cardlink
from tests.test_dry_runs import answered, bank

SECURITY = Path(__file__).parents[3] / "deploy" / "SECURITY.md"


def linked(bench: Any, run: str) -> dict[str, Any]:
    """Return a row of a run with a link."""
    rows = pl.concat(bench.stored(run).rows(["row", "cuid", "url"], pl.col("url").is_not_null()))
    first: dict[str, Any] = rows.row(0, named=True)
    return first


def test_a_request_to_know_gets_every_place_with_its_data_and_no_card(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    person = linked(bench, run)
    extract = bench.content(bench.stored(run).committed().source.key).decode()
    card = extract.splitlines()[person["row"]]

    exported = export(Context(tmp_path), person["cuid"]).facts

    [store] = exported["issuers"]
    places = {place["place"]: place for place in store["places"]}
    assert {"extracts", "chunks", "results", "ledger", "outcomes"} == places.keys()
    [own] = places["extracts"]["objects"]
    assert ([person["row"]], person["cuid"]) == (own["rows"], own["data"][0]["cardholder.cuid"])
    assert own["data"][0]["service_card.address.city"] in card
    assert person["url"] == places["outcomes"]["objects"][0]["data"][0]["url"]
    assert all(place["why"] and place["until"] for place in store["places"])
    [number] = [cell for cell in card.split(",") if cell.isdecimal() and len(cell) == 16]
    assert number not in json.dumps(exported, default=str)
    others = set(bench.ledger(run)["cuid"].drop_nulls()) - {person["cuid"]}
    assert [] == [cuid for cuid in others if cuid in json.dumps(exported, default=str)]


def test_a_person_is_forgotten_by_two_and_the_trace_says_so(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    person = linked(bench, run)
    with (tmp_path / "bank.toml").open("a") as toml:
        toml.write('\n[four_eyes]\nacts = ["erase"]\n')

    asked = erase(Context(tmp_path, actor="anna"), run, row=person["row"], reason="request 4711")
    approve = asked.facts["request"]
    done = erase(
        Context(tmp_path, actor="bert", options={"approve": approve}),
        run,
        row=person["row"],
        reason="request 4711",
    )
    traced = cardlink(tmp_path, "trace", person["cuid"])
    proved = cardlink(tmp_path, "audit", "verify", "bank")

    assert (3, 0) == (asked.exit_code, done.exit_code)
    assert person["cuid"] not in json.dumps(asked.facts["would"]["kept"])
    assert "nothing is sent for this cuid again" in traced.stdout
    assert "no run with a ledger has this cuid" in traced.stdout
    assert "erasures that made cardholders forgotten: 1;" in proved.stdout


def test_who_is_known_from_a_typed_in_link_alone_is_exported_and_forgotten_by_its_name(
    tmp_path: Path,
) -> None:
    bench = replace(bank(tmp_path), issuer=issuer(service=SERVICE))
    link_typed(bench.context, Linker(), {**TYPED, CUID: "typed-1"})

    exported = export(Context(tmp_path), "typed-1").facts
    [place] = exported["issuers"][0]["places"]
    [single] = place["objects"]
    name = single["where"].rpartition("/")[2]
    without = cardlink(tmp_path, "person", "erase", "bank", "--reason", "request 4711")
    done = cardlink(
        tmp_path, "person", "erase", "bank", "--single", name, "--reason", "request 4711"
    )

    assert ("single", URL) == (place["place"], single["data"][0]["url"])
    assert "--single NAME" in without.stderr
    assert "bank: 1 cardholder with 1 card forgotten" in done.stdout
    assert [] == export(Context(tmp_path), "typed-1").facts["issuers"][0]["places"]


def test_neither_logs_nor_the_names_of_objects_have_anything_of_a_cardholder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bench, run = answered(tmp_path)
    cells = pl.read_csv(bench.content(bench.stored(run).committed().source.key), infer_schema=False)
    personal = cells.select(CUID, LAST_NAME, EMAIL, PHONE, ADDRESS1)
    texts = {text for column in personal for text in column if text and 5 < len(text)}

    told = "\n".join([caplog.text, *bench.snapshot()])

    assert 20 < len(texts)
    assert [] == [text for text in texts if text in told]


def test_the_security_page_has_every_place_with_personal_data() -> None:
    page = SECURITY.read_text().partition("## Personal data")[2].partition("\n## ")[0]

    missing = [name for name in PLACES if f"`{name}/" not in page]

    # these are named otherwise, or are no folders
    assert ["outcomes", "single", "decisions", "unfinished"] == missing
    assert "decisions in the database" in page
    assert "requests in the database" in page
    assert "answers in the database" in page
    assert "`single_link` of the database" in page
